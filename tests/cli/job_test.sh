#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# job_test.sh LATENT LATENTD DATA TOKENS: `mpirun -np N latentd` as one job: it serves, ends in whatever way
# it is told to, leaves nobody behind, and the next job goes on with the journal.
set -u
latent=$1
latentd=$2
model=$3/models/tiny-v3-q4_k_m.gguf
n_tokens=$4
work=$(mktemp -d)
endpoint=ipc://$work/socket
job='' submit=''
trap '[ -z "$job$submit" ] || kill -KILL $job $submit 2>/dev/null; rm -rf "$work"' EXIT
mpirun=$(command -v mpirun) || { echo 'no mpirun: nothing is tested'; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
export ASAN_OPTIONS=detect_leaks=0 # MPI keeps memory to the end

fail() {
    echo "FAILED: $*; the job says:"
    tail -n 30 "$work/log"
    exit 1
}

# shellcheck source=tests/support/await.sh
. "${0%/*}/../support/await.sh"

# start N PATIENCE OPTION...: a job of N ranks, whose mpirun kills so many seconds after SIGTERM.
start() {
    local n=$1 patience=$2
    shift 2
    : >"$work/log"
    "$mpirun" --oversubscribe --bind-to none --mca odls_base_sigkill_timeout "$patience" -np "$n" "$latentd" -m "$model" --listen "$endpoint" \
        --state-dir "$work/state" -c 4096 -np 4 -t 1 "$@" >"$work/log" 2>&1 </dev/null &
    job=$!
}
is_serving() {
    "$latent" status --endpoint "$endpoint" --json >"$work/out" 2>/dev/null &&
        grep -q '"serving"' "$work/out"
}
# its processes are in $all, the coordinator in $daemon
serving() {
    await 'a job that serves' is_serving
    daemon=$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' "$work/out")
    [ -n "$daemon" ] || fail "it does not serve"
    rank0=$(pgrep -P "$daemon")
    all="$(pgrep -P "$job") $rank0"
}
# ends WANT: the job leaves with this status, and nobody stays.
ends() {
    local got
    ended "$job" 'the job'
    got=$?
    job=
    [ "$got" = "$1" ] || fail "status $got, want $1"
    nobody_stays
}
nobody_stays() {
    local p
    for p in $all; do
        await "the end of process $p" is_gone "$p"
    done
}
no_socket() { [ ! -e "$work/socket" ] || fail "its socket is left"; }

mkdir "$work/state"
all=
for wrong in '--ranks 3' '--launch mpirun'; do
    # shellcheck disable=SC2086
    start 2 0 $wrong
    ends 2
    no_socket
    [ "$(grep -c "^latentd: ${wrong%% *}" "$work/log")" = 1 ] || fail "$wrong: not one line"
done

"$latent" generate -m "$model" -p 'Once upon' -n "$n_tokens" --seed 5 -t 1 -q >"$work/want" || fail generate
start 2 0
serving
grep -q '"ranks": 2' "$work/out" || fail "not two ranks: $(cat "$work/out")"
begin_stream() {
    seen=0
    : >"$work/text"
    "$latent" submit --endpoint "$endpoint" -p 'Once upon' -n "$n_tokens" --seed 5 -q \
        >"$work/text" 2>"$work/err" &
    submit=$!
}
end_stream() {
    ended "$submit" submit || fail "submit over ends of jobs: $(cat "$work/err")"
    submit=
    cmp "$work/want" "$work/text" || fail "another text from several jobs"
}
begin_stream
patience=0
for victim in daemon rank0 mpirun; do # each time once more of the text has come
    await 'text of a stream' goes_on "$submit" "$work/text" "$seen"
    if has_ended "$submit"; then
        end_stream
        begin_stream
        await 'text of a further stream' goes_on "$submit" "$work/text" 0
    fi
    seen=$(wc -c <"$work/text")
    case $victim in
    daemon) kill "$daemon" && ends 0 && no_socket ;;
    rank0) kill "$rank0" && ends 0 && no_socket && patience=1 ;;
    # Its own status after a signal is always 1; what needs more than a second is killed.
    mpirun) kill "$job" && ends 1 && patience=0 ;;
    esac
    start 3 $patience
    serving
done
end_stream

last=$(pgrep -P "$job" | tail -n 1)
kill -KILL "$last"
ended "$job" 'the job' && fail 'status 0 without a rank'
job=
nobody_stays
grep -q 'rank 2' "$work/log" || fail 'the lost rank is not named'
