#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# cli_test.sh LATENT DATA: drives the built program as a user does: exit status, the one line
# on stderr, what goes to stdout.
set -u
latent=$1
data=$2
v3=$data/models/tiny-v3-q4_k_m.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

fail() {
    echo "FAILED: $*"
    bad=1
}

# run STATUS ARGS...: runs latent, leaves $work/out and $work/err.
run() {
    local want=$1 got
    shift
    "$latent" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" = "$want" ] || fail "latent $*: exit $got, want $want: $(head -c 300 "$work/err")"
}

# says FILE TEXT: the file holds the text.
says() { grep -qF -- "$2" "$work/$1" || fail "$1 lacks '$2': $(head -c 300 "$work/$1")"; }

# one_line: stderr is one line that begins with the program's name, stdout is empty.
one_line() {
    [ "$(wc -l <"$work/err")" = 1 ] || fail "stderr has $(wc -l <"$work/err") lines"
    grep -q '^latent: ' "$work/err" || fail "stderr does not begin with 'latent: '"
    [ -s "$work/out" ] && fail "stdout is not empty"
}

# ---- The program ------------------------------------------------------------
run 2; one_line; says err 'no subcommand'
run 2 inspct; one_line; says err 'the nearest is inspect'
run 2 plan x; one_line; says err 'not in this version yet'
run 0 --version; says out 'latent '
run 0 help; says out 'inspect'
run 0 --help; says out 'usage: latent SUBCOMMAND'
run 0 help inspect; says out '--override-kv'
run 0 inspect --help; says out '--override-kv'
run 2 help nonsense; one_line

# ---- inspect ----------------------------------------------------------------
run 2 inspect; one_line; says err 'no file'
run 2 inspect "$v3" "$v3"; one_line
run 2 inspect "$v3" --tensor; one_line; says err '--tensors'
run 1 inspect "$work/none.gguf"; one_line; says err "$work/none.gguf"
run 1 inspect "$work"; one_line
: >"$work/empty.gguf"
run 1 inspect "$work/empty.gguf"; one_line; says err 'offset 0'
run 0 inspect "$v3"
says out 'layout        mainline'
says out 'runs here     yes'
grep -qE '^  kv_lora_rank|^  attention.kv_lora_rank +512 +file' "$work/out" || fail 'no kv_lora_rank'
grep -q 'blk.0' "$work/out" && fail 'tensors are listed without --tensors'
run 0 inspect "$v3" --tensors
[ "$(grep -c '^  blk\..* bytes$' "$work/out")" = 49 ] || fail 'not 49 tensors of blocks'
run 0 inspect "$v3" --override-kv deepseek2.expert_used_count=int:2
grep -qE '^  expert_used_count +2 +overridden' "$work/out" || fail 'the override is not shown'
run 2 inspect "$v3" --override-kv nonsense; one_line
run 0 inspect "$data/models/tiny-v3-legacy-iq4_ks.gguf"; says out 'layout        legacy'

run 0 inspect "$v3" --json
if command -v python3 >/dev/null; then
    python3 - "$work/out" <<'PY' || fail 'inspect --json is not what it should be'
import json, sys
j = json.load(open(sys.argv[1]))
assert j["architecture"] == "deepseek2" and j["layout"] == "mainline" and j["refused"] is None
assert j["hparams"]["expert_count"] == {"value": 16, "source": "file"}
assert len(j["tensors"]) == 52
t = {t["name"]: t for t in j["tensors"]}["token_embd.weight"]
assert t == {"name": "token_embd.weight", "type": "Q4_K", "shape": [256, 4096], "bytes": 589824}
PY
fi

# A header alone can be read; a file cut inside its data is damaged, but shown.
head -c 139904 "$v3" >"$work/head.gguf"
run 0 inspect "$work/head.gguf"; says err 'only the header is here'; says out 'layout'
head -c 150000 "$v3" >"$work/cut.gguf"
run 1 inspect "$work/cut.gguf"; says err 'token_embd.weight'; says out 'layout'

# ---- chat --------------------------------------------------------------------
run 2 chat; one_line; says err 'give -m FILE'
run 2 chat -m "$v3" --chat-format nonsense; one_line; says err 'deepseek-v3.1, '
run 2 chat -m "$v3" --think maybe; one_line
run 1 chat -m "$v3" --chat-format glm-4 -p x; one_line; says err 'lacks [gMASK]'
run 1 chat -m "$v3" --chat-format gigachat3 -p x; one_line; says err 'lacks its text'
run 1 chat -m "$v3" -c 8 -p 'more than eight tokens of text in one message'; says err 'a larger -c'
run 0 chat -m "$v3"; says err 'chat format deepseek-v3'
[ -s "$work/out" ] && fail 'an answer to nothing'

# Two messages on standard input, one of them over two lines; an empty line is none.
chat() { "$latent" chat -m "$v3" -q --temp 0 -n 6 -sys 'Be brief.' 2>"$work/err" || fail "chat: $?"; }
printf 'Call me \\\nIshmael.\n' | chat >"$work/first"
printf 'Call me \\\nIshmael.\n\nGo on.' | chat >"$work/out"
[ -s "$work/err" ] && fail 'chat -q is not quiet'
size=$(wc -c <"$work/first")
cmp -s -n "$size" "$work/first" "$work/out" || fail 'the first answer depends on what comes after'
[ "$(wc -c <"$work/out")" -gt "$size" ] || fail 'the second message has no answer'

# SIGINT ends the answer, not the conversation: the second message is answered.
mkfifo "$work/in"
"$latent" chat -m "$v3" --temp 0 --ignore-eos <"$work/in" >"$work/out" 2>"$work/err" &
pid=$!
exec 9>"$work/in"
echo 'Call me Ishmael.' >&9
for _ in $(seq 200); do [ -s "$work/out" ] && break; sleep 0.05; done
kill -INT $pid
for _ in $(seq 200); do grep -q interrupted "$work/err" && break; sleep 0.05; done
bytes=$(wc -c <"$work/out")
echo 'And then?' >&9
for _ in $(seq 200); do [ "$(wc -c <"$work/out")" -gt "$bytes" ] && break; sleep 0.05; done
kill -INT $pid
exec 9>&-
wait $pid || fail "an interrupted chat: exit $?: $(cat "$work/err")"
[ "$(grep -c interrupted "$work/err")" = 2 ] || fail "not interrupted twice: $(cat "$work/err")"

# ---- Output that cannot be written ------------------------------------------
if [ -w /dev/full ]; then
    "$latent" inspect "$v3" >/dev/full 2>"$work/err"
    [ $? = 1 ] || fail 'a full disk goes unnoticed'
    says err 'No space left'
fi
{ "$latent" inspect "$v3" --json 2>"$work/err"; echo $? >"$work/status"; } | true
case $(cat "$work/status") in 0 | 1) ;; *) fail 'killed by a closed pipe' ;; esac
[ -s "$work/err" ] && fail 'a closed pipe is not worth a line'

exit $bad
