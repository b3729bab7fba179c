# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# await.sh - for scripts that start processes: waiting for what is to happen, not for a time.  A
# machine may be slow; what has not come after two minutes is an error that is named, with the end
# of $work/log, if there is one.  Whoever reads this file has a function `fail`.

await_s=120

# await WHAT COMMAND...: until the command succeeds.
await() {
    local what=$1 until=$((SECONDS + await_s))
    shift
    until "$@"; do
        if [ $SECONDS -ge $until ]; then
            fail "not within $await_s s: $what: $(tail -c 400 "${work-}/log" 2>/dev/null)"
            return 1
        fi
        sleep 0.02
    done
}

# ended PID WHAT: until this child has ended, which is killed if it does not; returns its status.
ended() {
    await "the end of $2" has_ended "$1" || kill -KILL "$1"
    wait "$1"
}
has_ended() { ! kill -0 "$1" 2>/dev/null; }

# alive PID: and not only waiting to be reaped
alive() { grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null; }
is_gone() { ! alive "$1"; }

# longer FILE BYTES: than so many
longer() { [ "$(stat -c %s "$1" 2>/dev/null || echo 0)" -gt "$2" ]; }

# goes_on PID FILE BYTES: what the child writes is longer than that, or all there will be
goes_on() { longer "$2" "$3" || has_ended "$1"; }
