#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# daemon_test.sh LATENT LATENTD DATA TOKENS: what a user sees of a real daemon with a small model: the
# same text as from `latent generate`, over three SIGKILLs too, a conversation, a clean end.
set -u
latent=$1
latentd=$2
model=$3/models/tiny-v3-q4_k_m.gguf
n=$4
work=$(mktemp -d)
endpoint=ipc://$work/socket
daemon='' submit=''
trap '[ -z "$daemon" ] || kill -KILL $daemon $submit 2>/dev/null; rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*; the daemon says:"
    tail -n 20 "$work/log"
    exit 1
}

# shellcheck source=tests/support/await.sh
. "${0%/*}/../support/await.sh"

start_daemon() {
    "$latentd" -m "$model" --listen "$endpoint" --state-dir "$work/state" -c 4096 -np 4 -t 1 \
        -ot 'blk\.[12]\..*(?#")exps=CPU' \
        >>"$work/log" 2>&1 &
    daemon=$!
}

# client ARGS...: latent with the endpoint, quiet where it can be; stdout is in $work/out.
client() {
    local command=$1
    shift
    "$latent" "$command" --endpoint "$endpoint" "$@" >"$work/out" 2>"$work/err" </dev/null ||
        fail "latent $command $*: $(cat "$work/err")"
}

mkdir "$work/state"
start_daemon
serving() { "$latent" status --endpoint "$endpoint" 2>/dev/null | grep 'serving' >/dev/null; }
await 'a daemon that serves' serving
client status
grep -q 'health      green' "$work/out" || fail "not green: $(cat "$work/out")"
grep -q RANK0 "$work/out" || fail "status has no plan"
[ -z "$(find "$work/state" -name 'journal*' -perm /7)" ] || fail "everybody can read the journal"

"$latent" generate -m "$model" -p 'Once upon' -n "$n" --seed 5 -t 1 -q >"$work/want" || fail generate
client submit -p 'Once upon' -n "$n" --seed 5 -q
cmp "$work/want" "$work/out" || fail "the daemon's text is not that of generate"

# Three kills, each once more of a text has come; of a further one if it ends before.
kills=0 streams=0
while [ $kills -lt 3 ]; do
    id=killed-$((++streams)) seen=0
    : >"$work/killed"
    "$latent" submit --endpoint "$endpoint" -p 'Once upon' -n "$n" --seed 5 --id "$id" \
        >"$work/killed" 2>"$work/err" &
    submit=$!
    while [ $kills -lt 3 ]; do
        await 'text of a stream' goes_on "$submit" "$work/killed" "$seen"
        has_ended "$submit" && break
        seen=$(wc -c <"$work/killed")
        kill -KILL "$daemon"
        wait "$daemon" 2>/dev/null
        start_daemon
        kills=$((kills + 1))
    done
    ended "$submit" submit || fail "submit over kills: $(cat "$work/err")"
    submit=
    cmp "$work/want" "$work/killed" || fail "another text after kills"
done
client follow "$id" -q
cmp "$work/want" "$work/out" || fail "follow gives another text"
client list
grep -q "^$id .* ended .* length" "$work/out" || fail "list: $(cat "$work/out")"
client metrics
grep -q '^latentd_up 1' "$work/out" || fail "metrics: $(cat "$work/out")"
grep -q '^latentd_rank_steps_total{rank="0",host="[^"]*"} [1-9]' "$work/out" || fail "no steps of rank 0"
grep -qF 'latentd_rule_tensors{rule="1",source="-ot",pattern="blk\\.[12]\\..*(?#\")exps"} 6' "$work/out" ||
    fail "rule 1: $(grep rule_tensors "$work/out")"
awk -f "${0%/*}/../support/metrics.awk" "$work/out" || fail 'the metrics break the rules of their format'
documented=$(sed -n '/^### Metrics/,/^## /s/^| `\([a-z_]*\)` .*/latentd_\1/p' "$3/../../docs/operations.md" | sort)
told=$(sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' "$work/out" | sort)
[ "$documented" = "$told" ] || fail "docs/operations.md: $(diff <(echo "$documented") <(echo "$told"))"

printf 'hello\nand then?\n' | "$latent" chat --endpoint "$endpoint" -n 8 --temp 0 -q \
    >"$work/out" 2>"$work/err" || fail "chat: $(cat "$work/err")"
[ "$(wc -l <"$work/out")" -ge 2 ] || fail "chat answers: $(cat "$work/out")"

client drain --wait
"$latent" submit --endpoint "$endpoint" -p x 2>"$work/err" && fail "it drains, and takes a request"
grep -q draining "$work/err" || fail "$(cat "$work/err")"
kill "$daemon"
ended "$daemon" 'the daemon' || fail "exit status $? after SIGTERM"
daemon=
[ ! -e "$work/socket" ] || fail "its socket is left"

"$latentd" -m "$model" --listen "$endpoint" --state-dir "$work/state" -c 4096 -t 1 <&- >&- 2>&- &
daemon=$!
listening() { "$latent" status --endpoint "$endpoint" >"$work/out" 2>/dev/null; }
await 'a daemon without standard streams' listening
kill "$daemon"
ended "$daemon" 'the daemon without standard streams' || fail "exit status $? without standard streams"
daemon=
grep -q listening "$work/state/lock" && fail 'without stderr the log goes into the lock'

printf '%0300d\n' 1 >"$work/token" # not cut to what fits: its clients would know another one
timeout 120 "$latentd" -m "$model" --listen tcp://127.0.0.1:0 --token-file "$work/token" --state-dir "$work/state" \
    2>"$work/err"
[ $? = 2 ] && grep -q '16 to 254' "$work/err" || fail "a token of 300 characters: $(cat "$work/err")"
