#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# job_test.sh LATENT LATENTD DATA: `mpirun -np N latentd` as one job: it serves, ends in whatever way
# it is told to, leaves nobody behind, and the next job goes on with the journal.
set -u
latent=$1
latentd=$2
model=$3/models/tiny-v3-q4_k_m.gguf
work=$(mktemp -d)
endpoint=ipc://$work/socket
job=
trap '[ -z "$job" ] || kill -KILL "$job"; rm -rf "$work"' EXIT
mpirun=$(command -v mpirun) || { echo 'no mpirun: nothing is tested'; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
export ASAN_OPTIONS=detect_leaks=0 # MPI keeps memory to the end

fail() {
    echo "FAILED: $*; the job says:"
    tail -n 30 "$work/log"
    exit 1
}

# start N PATIENCE OPTION...: a job of N ranks, whose mpirun kills so many seconds after SIGTERM.
start() {
    local n=$1 patience=$2
    shift 2
    : >"$work/log"
    "$mpirun" --oversubscribe --bind-to none --mca odls_base_sigkill_timeout "$patience" -np "$n" "$latentd" -m "$model" --listen "$endpoint" \
        --state-dir "$work/state" -c 4096 -np 4 -t 1 "$@" >"$work/log" 2>&1 </dev/null &
    job=$!
}
# its processes are in $all, the coordinator in $daemon
serving() {
    for _ in $(seq 300); do
        "$latent" status --endpoint "$endpoint" --json >"$work/out" 2>/dev/null &&
            grep -q '"serving"' "$work/out" && break
        sleep 0.1
    done
    daemon=$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' "$work/out")
    [ -n "$daemon" ] || fail "it does not serve"
    rank0=$(pgrep -P "$daemon")
    all="$(pgrep -P "$job") $rank0"
}
# alive PID: and not only waiting to be reaped
alive() { grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null; }
# ends WANT: the job leaves with this status, and nobody stays.
ends() {
    local got
    wait "$job"
    got=$?
    job=
    [ "$got" = "$1" ] || fail "status $got, want $1"
    for p in $all; do
        for _ in $(seq 20); do alive "$p" || break; sleep 0.1; done
        alive "$p" && fail "process $p lives on"
    done
    [ ! -e "$work/socket" ] || fail "its socket is left"
}

mkdir "$work/state"
all=
for wrong in '--ranks 3' '--launch mpirun'; do
    # shellcheck disable=SC2086
    start 2 0 $wrong
    ends 2
    [ "$(grep -c "^latentd: ${wrong%% *}" "$work/log")" = 1 ] || fail "$wrong: not one line"
done

"$latent" generate -m "$model" -p 'Once upon' -n 800 --seed 5 -t 1 -q >"$work/want" || fail generate
start 2 0
serving
grep -q '"ranks": 2' "$work/out" || fail "not two ranks: $(cat "$work/out")"
"$latent" submit --endpoint "$endpoint" -p 'Once upon' -n 800 --seed 5 -q \
    >"$work/text" 2>"$work/err" &
submit=$!
patience=0
for victim in daemon rank0 mpirun; do # each time once more of the text has come
    seen=$(wc -c <"$work/text")
    for _ in $(seq 1000); do
        [ "$(wc -c <"$work/text")" -gt "$seen" ] && break
        sleep 0.02
    done
    case $victim in
    daemon) kill "$daemon" && ends 0 ;;
    rank0) kill "$rank0" && ends 0 && patience=1 ;;
    mpirun) kill "$job" && ends 1 && patience=0 ;; # its own status after a signal is always 1
    esac
    start 3 $patience
    serving
done
wait "$submit" || fail "submit over three ends: $(cat "$work/err")"
cmp "$work/want" "$work/text" || fail "another text from three jobs"

last=$(pgrep -P "$job" | tail -n 1)
kill -KILL "$last"
wait "$job" && fail 'status 0 without a rank'
job=
for p in $all; do
    for _ in $(seq 50); do alive "$p" || break; sleep 0.1; done
    alive "$p" && fail "process $p lives on"
done
grep -q 'rank 2' "$work/log" || fail 'the lost rank is not named'
