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

# shellcheck source=tests/support/await.sh
. "${0%/*}/../support/await.sh"

# run STATUS ARGS...: runs latent, leaves $work/out and $work/err; run_with has standard input too.
run_with() {
    local want=$1 got
    shift
    "$latent" "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" = "$want" ] || fail "latent $*: exit $got, want $want: $(head -c 300 "$work/err")"
}
run() { run_with "$@" </dev/null; }

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
run 2 generat; one_line; says err 'the nearest is generate'
run 1 status --endpoint ipc:///no/socket; one_line; says err 'no such socket'
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
run 1 inspect $'two\nlines\e[31m'; one_line
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
run 0 inspect "$v3" --override-kv deepseek2.block_count=int:2
says err '18 tensors of further blocks are not used: block_count is 2'
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

# SIGINT ends the answer, which is long, not the conversation: the second message is answered.
mkfifo "$work/in"
"$latent" chat -m "$v3" --temp 0 --ignore-eos -n -1 -c 8192 <"$work/in" >"$work/out" 2>"$work/err" &
pid=$!
exec 9>"$work/in"
echo 'Call me Ishmael.' >&9
await 'an answer' longer "$work/out" 0
kill -INT $pid
await 'the end of the answer' grep -q interrupted "$work/err"
bytes=$(wc -c <"$work/out")
echo 'And then?' >&9
await 'a second answer' longer "$work/out" "$bytes"
kill -INT $pid
exec 9>&-
ended $pid 'an interrupted chat' || fail "an interrupted chat: exit $?: $(cat "$work/err")"
[ "$(grep -c interrupted "$work/err")" = 2 ] || fail "not interrupted twice: $(cat "$work/err")"

# ---- generate ---------------------------------------------------------------
run 2 generate; one_line; says err '-p TEXT'
run 2 generate -p x; one_line; says err '-m FILE'
run 2 generate -m "$v3" -p x -f y; one_line
run 2 generate -m "$v3" -p x --temp -1; one_line; says err '--temp'
run 2 generate -m "$v3" -p x -np 2; one_line; says err 'not in this version yet'
run 2 generate -m "$v3" -p x --tempp 1; one_line; says err '--temp'
run 1 generate -m "$v3" -f "$work/none"; one_line
run 1 generate -m "$v3" -p "$(yes word | head -n 500)" -c 64; one_line; says err '-c leaves room for 64'
run 3 generate -m "$v3" -p x -c 2000000000; one_line; says err 'that fits: -c'
run 1 generate -m "$work/cut.gguf" -p x; one_line; says err 'token_embd.weight'

run 0 generate -m "$v3" -p 'The whale' -n 12 --temp 0
cp "$work/out" "$work/greedy"
[ -s "$work/greedy" ] || fail 'no text'
grep -q 'The whale' "$work/greedy" && fail 'the prompt is echoed'
grep -q 'seed' "$work/err" && fail 'greedy text has no seed'
says err 'tokens/s'
same() { cmp -s "$work/out" "$work/$1" || fail "$2 changes the text"; }
run 0 generate -m "$v3" -p 'The whale' -n 12 --temp 0 -q -t 1 -ub 1 -ngl 99 -fa on -rtr --no-mmap
same greedy 'one thread, one token a step'
[ "$(grep -c 'has no effect' "$work/err")" = 4 ] || fail 'not one line for each flag of the peers'
run 0 generate -m "$v3" -p 'The whale' -n 12 --top-k 1 -q; same greedy '--top-k 1'
run 0 generate -m "$v3" -p 'The whale' -n 12 -c 8; says err 'context of 8 positions is full'
run 0 generate -m "$v3" -p 'The whale' -n 0 -q; [ -s "$work/out" ] && fail '-n 0 prints'
run 0 generate -m "$v3" -p 'The whale' -n 12 --seed 7; cp "$work/out" "$work/random"; says err 'seed: 7'
run 0 generate -m "$v3" -p 'The whale' -n 12 --seed 7 -ub 2; same random 'the size of a step'
run 0 generate -m "$v3" -p 'The whale' -n 12 --temp 0 --stop "$(head -c 3 "$work/greedy")"
[ -s "$work/out" ] && fail '--stop is ignored'
printf 'a\0b\377\n' >"$work/bytes"
run_with 0 generate -m "$v3" -f - -n 2 --temp 0 <"$work/bytes"

# ---- logits, perplexity -----------------------------------------------------
run 2 logits -m "$v3" -o "$work/l.npy"; one_line; says err '--tokens'
run 2 logits -m "$v3" --tokens 1; one_line; says err '-o OUT.npy'
run 2 logits -m "$v3" --tokens 1,4096 -o "$work/l.npy"; one_line; says err 'ids 0 to 4095'
run 2 logits -m "$v3" --tokens 1,,2 -o "$work/l.npy"; one_line
run 1 logits -m "$v3" --tokens 1 -o "$work/no/l.npy"; one_line
run 0 logits -m "$v3" --tokens 0,2263,35 -o "$work/l.npy"
[ "$(wc -c <"$work/l.npy")" = $((128 + 3 * 4096 * 4)) ] || fail 'the .npy has another size'
says l.npy "'shape': (3, 4096)"
run 0 logits -m "$v3" --tokens 0,2263,35 -o -
cmp -s "$work/out" "$work/l.npy" || fail '-o - writes something else'

# Ctrl-C leaves neither half a file nor what it had in hand; an older file stays.
yes 'the whale sailed on ' | head -n 4000 | tr -d '\n' >"$work/long"
"$latent" logits -m "$v3" -f "$work/long" -o "$work/l.npy" 2>"$work/err" &
pid=$!
await 'the draft of a file' test -e "$work/l.npy.part"
kill -TERM $pid
ended $pid logits
[ $? = 143 ] || fail 'logits does not end by the signal'
[ -e "$work/l.npy.part" ] && fail 'a signal leaves half a file'
says l.npy "'shape': (3, 4096)"

for _ in $(seq 40); do echo 'It was a dark and stormy night, and the whale sailed on.'; done >"$work/text"
run 2 perplexity -m "$v3"; one_line; says err '-f FILE'
run 2 perplexity -m "$v3" -f "$work/text" -c 3; one_line
run 2 perplexity -m "$v3" -f "$work/text" -c 100000; one_line; says err 'less than one chunk'
run 0 perplexity -m "$v3" -f "$work/text" -c 128
grep -qE '^PPL = [0-9]+\.[0-9]{3} ± [0-9]+\.[0-9]{3} \([0-9]+ tokens\)$' "$work/out" ||
    fail "perplexity prints $(cat "$work/out")"
run 0 perplexity -m "$v3" -f "$work/text" -c 128 --json; says out '"perplexity": '

# ---- convert, bench ---------------------------------------------------------
run 2 convert "$v3" "$work/legacy.gguf"; one_line; says err '--layout'
run 0 convert "$data/models/tiny-v2-f16.gguf" "$work/legacy.gguf" --layout legacy
run 0 inspect "$work/legacy.gguf"; says out 'layout        legacy'
run 2 convert "$data/models/tiny-v2-f16.gguf" "$work/legacy.gguf" --layout ik; one_line
run 0 convert "$data/models/tiny-v2-f16.gguf" "$work/legacy.gguf" --layout ik --force
run 0 inspect "$work/legacy.gguf"; says out 'layout        ik'
run 0 logits -m "$data/models/tiny-v2-f16.gguf" --tokens 0,5,9 -o "$work/a.npy"
run 0 logits -m "$work/legacy.gguf" --tokens 0,5,9 -o "$work/b.npy"
cmp -s "$work/a.npy" "$work/b.npy" || fail 'another layout gives other logits'

run 2 bench -m "$v3" --pp 0 --tg 0; one_line; says err 'nothing to measure'
run 0 bench -m "$v3" --pp 0 --tg 2 -r 1 --json; [ "$(grep -c '"fraction"' "$work/out")" = 1 ] || fail "bench --pp 0 measures more"
run 0 bench -m "$v3" --pp 16 --tg 2 --depth 0,8 -np 3 -r 1 --json
[ "$(grep -c '"fraction"' "$work/out")" = 6 ] || fail 'bench has not six results'
[ "$(grep -c '"experts_met": [4-9]' "$work/out")" = 4 ] || fail 'bench counts no experts'
run 2 bench -m "$v3" -np 600; one_line; says err 'larger -ub'
run 1 bench -m "$v3" -np 3 --pp 16 --tg 2 -c 130; one_line; says err 'larger -c'
run 0 bench --devices --state-dir "$work/state/dir" --json; says out '"bytes_per_s": '
says out '"all_reduce": null'
[ -s "$work/state/dir/devices.json" ] || fail 'bench --devices keeps no profile'
run 0 plan "$v3" --state-dir "$work/state/dir"
grep -q 'bandwidth is assumed' "$work/out" && fail 'plan does not use the profile'
echo '{' >"$work/state/dir/devices.json"
run 1 plan "$v3" --state-dir "$work/state/dir"; one_line
run 2 bench --devices --state-dir "$work" -m "$v3"; one_line; says err 'too small'
run 1 bench --devices --state-dir "$v3/dir"; one_line

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
