#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# remote_test.sh LATENT FAKE_LATENTD DATA: the subcommands that talk to a daemon, against one
# without a model, whose token k is always "w<k> ".
set -u
latent=$1
fake=$2
vocabulary=$3/models/tiny-v3-q4_k_m.gguf
work=$(mktemp -d)
endpoint=ipc://$work/socket
daemon='' client=''
trap '[ -z "$daemon$client" ] || kill $daemon $client 2>/dev/null; rm -rf "$work"' EXIT
bad=0

fail() {
    echo "FAILED: $*"
    bad=1
}

# shellcheck source=tests/support/await.sh
. "${0%/*}/../support/await.sh"

# start_daemon RATE_MS [ADDRESS [TOKEN]]: waits until it listens; its address is in $work/bound.
start_daemon() {
    : >"$work/bound"
    "$fake" "${2-$endpoint}" "$work/state" "$1" "$vocabulary" "${@:3}" \
        >"$work/bound" 2>>"$work/log" &
    daemon=$!
    await 'the start of the daemon' longer "$work/bound" 0
}
stop_daemon() {
    kill "-${1-TERM}" "$daemon"
    wait "$daemon" 2>/dev/null
    daemon=
}

# run STATUS ARGS...: leaves $work/out and $work/err.
run() {
    local want=$1 got
    shift
    "$latent" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" = "$want" ] || fail "latent $*: exit $got, want $want: $(head -c 300 "$work/err")"
}
says() { grep -qF -- "$2" "$work/$1" || fail "$1 lacks '$2': $(head -c 300 "$work/$1")"; }
words() { for k in $(seq "$1" "$2"); do printf 'w%d ' "$k"; done; }
out_is() { [ "$(cat "$work/out")" = "$1" ] || fail "stdout is not '$1': $(head -c 300 "$work/out")"; }

# heard [BYTES]: more than so much has come from the client in the background.
heard() { await 'text from the client' goes_on "$client" "$work/out" "${1-0}"; }
# client_ended: leaves the status of the client in the background.
client_ended() {
    ended "$client" 'the client' || { client=; return 1; }
    client=
}

# ---- Without a daemon ---------------------------------------------------------
run 1 status --endpoint "$endpoint"; says err 'no such socket'
[ "$(wc -l <"$work/err")" = 1 ] || fail "more than one line"
run 2 submit --endpoint "$endpoint"; says err 'no prompt'
run 2 status --endpoint http://x; says err 'no endpoint'
run 2 follow

# ---- Short questions ------------------------------------------------------------
start_daemon 5
run 0 status --endpoint "$endpoint"; says out 'serving'; says out 'green'
run 0 status --endpoint "$endpoint" --json; says out '"phase": "serving"'
run 0 metrics --endpoint "$endpoint"; says out 'latentd_fake 1'
run 0 submit --endpoint "$endpoint" -p hello -n 10 --id one --temp 0 -q; out_is "$(words 1 10)"
run 0 submit --endpoint "$endpoint" -p hello -n 10 --id one -q; out_is "$(words 1 10)"
run 0 list --endpoint "$endpoint"; says out one; says out length
run 0 list --endpoint "$endpoint" --json; says out '"produced_tokens": 10'
run 0 follow one --endpoint "$endpoint" --cursor 7; out_is "$(words 8 10)"; says err 'ended by length'
run 1 follow nobody --endpoint "$endpoint"; says err 'unknown_request'
run 0 submit --endpoint "$endpoint" -f - -n 3 -q
# The socket must not become what was closed: the text would go to the daemon.
"$latent" submit --endpoint "$endpoint" -p hello -n 3 -q 2>"$work/err" >&- && fail "written nowhere"
says err 'Bad file descriptor'
run 0 submit --endpoint "$endpoint" -p hello -n 100000 --detach
id=$(cat "$work/out")
run 0 cancel "$id" --endpoint "$endpoint"
run 1 follow "$id" --endpoint "$endpoint"
run 1 cancel nobody --endpoint "$endpoint"
run 0 drain --endpoint "$endpoint"; says out 'takes nothing new; 0 requests'
run 1 submit --endpoint "$endpoint" -p hello; says err draining
run 0 drain --undo --endpoint "$endpoint"
run 0 drain --wait --endpoint "$endpoint"
run 0 drain --undo --endpoint "$endpoint"

printf 'one\ntwo\n' | "$latent" chat --endpoint "$endpoint" -n 4 -q >"$work/out" 2>"$work/err" ||
    fail "chat: $(cat "$work/err")"
out_is "$(words 1 4)
$(words 1 4)"

# ---- Interrupted ------------------------------------------------------------------
rm "$work/out"
# A shell starts background commands deaf to Ctrl-C; env gives them their ears back.
env --default-signal=INT "$latent" submit --endpoint "$endpoint" -p x -n 100000 --id stopped \
    >"$work/out" 2>"$work/err" &
client=$!
heard
kill -INT "$client"
client_ended && fail "an interrupted submit ended well"
[ -s "$work/out" ] || fail "an interrupted submit printed nothing"
run 0 list --endpoint "$endpoint"; says out cancelled

"$latent" submit --endpoint "$endpoint" -p x -n 100000 --id unread 2>"$work/err" | head -c 5 >/dev/null
run 0 list --endpoint "$endpoint" --live; grep -q unread "$work/out" && fail "nobody reads, but it runs on"

run 0 submit --endpoint "$endpoint" -p x -n 100000 --detach --id lasting
env --default-signal=INT "$latent" drain --wait --endpoint "$endpoint" >"$work/out" 2>"$work/err" &
client=$!
draining() { ! "$latent" submit --endpoint "$endpoint" -p x -n 1 -q >/dev/null 2>&1; }
await 'a daemon that drains' draining
kill -INT "$client"
client_ended && fail "an interrupted drain says that all have ended"
run 0 drain --undo --endpoint "$endpoint"
run 0 cancel lasting --endpoint "$endpoint"

# ---- Restarts -----------------------------------------------------------------------
stop_daemon
# 2000 tokens take 40 s; of the last daemon, with a token a millisecond, they are due at once.
start_daemon 20
rm "$work/out"
"$latent" submit --endpoint "$endpoint" -p x -n 2000 --id long >"$work/out" 2>"$work/err" &
client=$!
heard
for rate in 20 20 20 1; do
    seen=$(wc -c <"$work/out")
    stop_daemon KILL
    start_daemon "$rate"
    heard "$seen"
done
client_ended || fail "submit over restarts: $(cat "$work/err")"
out_is "$(words 1 2000)"
stop_daemon
start_daemon 20
rm "$work/out"
"$latent" submit --endpoint "$endpoint" -p x -n 2000 --id away >"$work/out" 2>"$work/err" &
client=$!
heard
stop_daemon KILL
await 'a line that the daemon is gone' grep -q 'waiting for it to come back' "$work/err"
start_daemon 1
client_ended || fail "submit over a pause: $(cat "$work/err")"
out_is "$(words 1 2000)"
says err 'waiting for it to come back'
says err 'the daemon is back'
stop_daemon

# ---- tcp:// ---------------------------------------------------------------------------
echo sesame >"$work/token"
echo wrong >"$work/wrong"
start_daemon 5 tcp://127.0.0.1:0 sesame
tcp=$(cat "$work/bound")
run 1 status --endpoint "$tcp"; says err unauthorized
run 1 status --endpoint "$tcp" --token-file "$work/wrong"; says err unauthorized
run 0 status --endpoint "$tcp" --token-file "$work/token"
run 0 submit --endpoint "$tcp" --token-file "$work/token" -p hi -n 5 -q; out_is "$(words 1 5)"

exit "$bad"
