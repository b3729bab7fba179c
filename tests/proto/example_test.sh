#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# example_test.sh SOURCE FAKE_LATENTD: docs/protocol.md is true: its table of limits is that of
# proto/limits.def, and its Python program prints a stream once though the daemon is killed four
# times.  77 without python3-protobuf.
set -u
source=$1
fake=$2
doc=$source/docs/protocol.md
work=$(mktemp -d)
daemon='' client=''
trap '[ -z "$daemon" ] || kill $daemon $client 2>/dev/null; rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

awk -F'[(,) ]+' '/^X\(/ { printf "| `%s.%s` | %s | %s |\n", $2, $3, ($4 == 0 ? "" : $4), $5 }' \
    "$source/proto/limits.def" >"$work/limits"
grep -E '^\| .[a-z_]+\.[a-z_]+. \| [0-9]* \| [0-9]+ \|$' "$doc" >"$work/documented"
[ -s "$work/limits" ] || fail "no rows in limits.def"
diff "$work/limits" "$work/documented" || fail "the limits of docs/protocol.md"

# shellcheck source=tests/support/await.sh
. "${0%/*}/../support/await.sh"

python=/usr/bin/python3
if ! "$python" -c 'import google.protobuf' 2>/dev/null || ! command -v protoc >/dev/null; then
    echo "example_test: no python3-protobuf or no protoc; the Python program was not run"
    exit 77
fi
sed -n '/^<!-- example.py -->$/,/^```$/p' "$doc" | sed '1,2d;$d' >"$work/example.py"
lines=$(wc -l <"$work/example.py")
{ [ "$lines" -ge 40 ] && [ "$lines" -le 70 ]; } || fail "the program has $lines lines"
protoc --python_out="$work" --proto_path="$source/proto" latentd.proto || fail protoc

start_daemon() { # RATE_MS
    : >"$work/bound"
    "$fake" "ipc://$work/socket" "$work/state" "$1" "$source/tests/data/models/tiny-v3-q4_k_m.gguf" \
        >"$work/bound" 2>>"$work/log" &
    daemon=$!
    await 'the start of the daemon' longer "$work/bound" 0
}

start_daemon 300
"$python" "$work/example.py" "$work/socket" "Once upon a time" >"$work/out" 2>"$work/err" &
client=$!
# 100 tokens take 30 s; of the last daemon, with a token a millisecond, they are due at once.
seen=0
for rate in 300 300 300 1; do
    await 'text from example.py' goes_on "$client" "$work/out" "$seen"
    seen=$(wc -c <"$work/out")
    kill -KILL "$daemon"
    wait "$daemon" 2>/dev/null
    start_daemon "$rate"
done
ended "$client" example.py || fail "example.py: $(cat "$work/err")"
[ "$(cat "$work/out")" = "$(for k in $(seq 100); do printf 'w%d ' "$k"; done)" ] ||
    fail "example.py printed: $(cat "$work/out")"
grep -q FINISH_LENGTH "$work/err" || fail "example.py ended with: $(cat "$work/err")"
