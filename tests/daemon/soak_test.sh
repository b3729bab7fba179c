#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# soak_test.sh LATENTD LATENT LOAD MODEL: 64 clients at once for 20 seconds ($LATENTD_SOAK_SECONDS):
# each reply is the one that the request gets alone, memory stays where it is, no page is lost.
set -euo pipefail

latentd=$1 latent=$2 load=$3 model=$4
seconds=${LATENTD_SOAK_SECONDS:-20}
work=$(mktemp -d)
endpoint=ipc://$work/latentd.sock
daemon=0
cleanup() {
    [ "$daemon" = 0 ] || kill -KILL "$daemon" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "soak: $*" >&2; cat "$work/log" >&2; exit 1; }

# shellcheck source=tests/support/await.sh
. "${0%/*}/../support/await.sh"

# A cache so small that all of it is in use, and so in memory, long before the first look.
"$latentd" -q -m "$model" -c 4096 --reuse strict --listen "$endpoint" --state-dir "$work/state" \
    2>"$work/log" &
daemon=$!
status() { "$latent" status --endpoint "$endpoint" 2>/dev/null; }
green() { status | grep '^health *green' >/dev/null; }
await 'a green daemon' green
rank=$(pgrep -P "$daemon")
kib() { awk '/^VmRSS:/ { print $2 }' "/proc/$1/status"; }

soak() { # SECONDS
    "$load" "$endpoint" 64 "$1" >"$work/load" 2>&1 ||
        { cat "$work/load"; fail "a reply is another one than alone"; }
}
n_ended() {
    "$latent" metrics --endpoint "$endpoint" |
        awk '/^latentd_requests_ended_total/ { n += $2 } END { print n }'
}
# 256 ended requests stay in memory: when there are more, what is needed once is there.
while [ "$(n_ended)" -lt 400 ]; do
    soak 2
done
before=$(kib "$rank") before_daemon=$(kib "$daemon")
soak "$seconds"
after=$(kib "$rank") after_daemon=$(kib "$daemon")
cat "$work/load"
echo "memory: rank $before -> $after KiB, daemon $before_daemon -> $after_daemon KiB"

flat() { # BEFORE AFTER
    local change=$(($2 - $1))
    [ $((50 * ${change#-})) -le "$1" ]
}
flat "$before" "$after" || fail "the rank's memory changed by more than 2 %"
flat "$before_daemon" "$after_daemon" || fail "the daemon's memory changed by more than 2 %"
status | grep '^pages  *0 of ' >/dev/null || fail "pages are lost: $(status | grep '^pages')"

kill -TERM "$daemon"
result=0
ended "$daemon" 'the daemon' || result=$?
daemon=0
[ $result = 0 ] || fail "stopped with status $result"
