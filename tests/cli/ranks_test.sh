#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# ranks_test.sh LATENT DATA [quick]: several ranks as a user starts them, as threads (--ranks) and as
# processes (mpirun): the same bytes come out, rules are obeyed, failures are one line of rank 0.
# quick: what differs only in its options from what is tried anyway is left out (sanitizers).
set -u
latent=$1
data=$2
quick=${3-}
v3=$data/models/tiny-v3-q4_k_m.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
ids=5,77,1000,3,900,42,8,15,16,23

fail() {
    echo "FAILED: $*"
    bad=1
}

# shellcheck source=tests/support/await.sh
. "${0%/*}/../support/await.sh"

run() {
    local want=$1 got
    shift
    "$latent" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" = "$want" ] || fail "latent $*: exit $got, want $want: $(head -c 300 "$work/err")"
}
says() { grep -qF -- "$2" "$work/$1" || fail "$1 lacks '$2': $(head -c 400 "$work/$1")"; }
same() { cmp -s "$work/one.npy" "$work/other.npy" || fail "other logits: $*"; }

# ---- Threads --------------------------------------------------------------------
run 0 logits -m "$v3" --tokens $ids -o "$work/one.npy"
for n in 2 3 5; do
    run 0 logits -m "$v3" --tokens $ids -o "$work/other.npy" --ranks $n -t 1
    same "$n ranks"
    says err "RANK$((n - 1)): "
done
run 0 logits -m "$v3" --tokens $ids -o "$work/other.npy" --ranks 3 -t 1 -ub 4 \
    -ot 'blk\.1\..*exps=RANK2,blk\.2\.attn=RANK1,^output\.weight=RANK2+RANK0'
same 'placed by rules'
run 0 logits -m "$v3" --tokens $ids -o "$work/other.npy" --ranks 2 -t 1 --cpu-moe
same '--cpu-moe'
run 0 logits -m "$v3" --tokens $ids -o "$work/other.npy" --ranks 2 -t 1 --reduce f32
# Without --ranks, one for each NUMA node of a machine that hwloc is told of.
export HWLOC_SYNTHETIC='numa:3 core:2 pu:1'
run 0 logits -m "$v3" --tokens $ids -o "$work/other.npy" -t 1
same 'a rank for each node'
says err 'RANK2: '
run 0 plan "$v3"
says out 'machine   1 host, 3 ranks'
run 0 plan "$v3" -t 3
says out 'machine   1 host, 1 rank' # three of three threads are more than the cores
unset HWLOC_SYNTHETIC
run 2 logits -m "$v3" --tokens $ids -o "$work/other.npy" --ranks 2 -ot 'exps=RANK2'
says err 'no RANK2: this plan has 2 ranks'
run 2 logits -m "$v3" --tokens $ids -o "$work/other.npy" -ot 'exps=CUDA0'
says err 'no GPU is in this plan'
run 2 logits -m "$v3" --tokens $ids -o "$work/other.npy" -ot 'nothing_at_all=CPU'
run 3 generate -m "$v3" -p x --ranks 2 -c 1000000000
says err 'the plan does not fit'

# ---- Frequencies of experts -------------------------------------------------------
# 3 tokens warm up, 2 + 40 are prefill, 2 + 3 decode: 50, each with 4 of the 16 experts in every
# layer but 0, which is dense.
counted=(bench -m "$v3" --pp 40 --tg 3 --depth 2 -r 1 -t 1 -ub 16)
run 0 "${counted[@]}" --record-experts "$work/hot1"
run 0 "${counted[@]}" --record-experts "$work/hot3" --ranks 3
cmp "$work/hot1" "$work/hot3" || fail 'three ranks count other experts'
sums=$(awk '{ n[$1]++; sum[$1] += $3 } END { for (l in n) print l, n[l], sum[l] }' "$work/hot1" | sort)
[ "$sums" = $'1 16 200\n2 16 200' ] || fail "expert counts: $sums"
run 0 plan "$v3" --hot "$work/hot1"
run 0 generate -m "$v3" -p 'The whale' -n 4 --temp 0 --hot "$work/hot1" --record-experts "$work/hot1"
awk '{ sum[$1] += $3 } END { exit !(sum[1] > 0 && sum[1] == sum[2] && sum[1] < 200) }' "$work/hot1" ||
    fail 'generate has not counted its own tokens'
head -c 1500 "$0" >"$work/text"
run 0 perplexity -m "$v3" -f "$work/text" -c 64 --json --record-experts "$work/hot1"
# a chunk of 64 feeds 63 tokens and scores 31
scored=$(grep -o '"tokens": [0-9]*' "$work/out" | grep -o '[0-9]*$')
sum=$(awk '$1 == 1 { sum += $3 } END { print sum }' "$work/hot1")
[ "$sum" = $((scored / 31 * 63 * 4)) ] || fail "perplexity scored $scored tokens, counted $sum"
run 3 generate -m "$v3" -p x -c 1000000000 --record-experts "$work/none"
run 1 generate -m "$v3" -p x --record-experts "$work/no/such/folder"
says err 'no/such/folder'
run 2 bench --devices --record-experts "$work/none"
compgen -G "$work/none*" >/dev/null && fail 'a command that failed has left a record'

# ---- Processes --------------------------------------------------------------------
if ! mpirun=$(command -v mpirun); then
    echo 'no mpirun: processes are not tested'
    exit $bad
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
export ASAN_OPTIONS=detect_leaks=0 # MPI keeps memory to the end

# mpi STATUS N ARGS...: latent as N processes.
mpi() {
    local want=$1 n=$2 got
    shift 2
    timeout 200 "$mpirun" -q --mca odls_base_sigkill_timeout 0 --oversubscribe --bind-to none -np "$n" "$latent" "$@" \
        >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" = "$want" ] || fail "$n x latent $*: exit $got, want $want: $(head -c 400 "$work/err")"
}

counts='1 2 3'
[ -z "$quick" ] || counts=3
for n in $counts; do
    mpi 0 "$n" logits -m "$v3" --tokens $ids -o "$work/other.npy" -t 1
    same "$n processes"
done
mpi 0 2 logits -m "$v3" --tokens $ids -o - -t 1 && cmp "$work/out" "$work/one.npy" || fail 'logits -o - of two processes'
run 0 generate -m "$v3" -p 'The whale' -n 8 --temp 0
cp "$work/out" "$work/greedy"
mpi 0 2 generate -m "$v3" -p 'The whale' -n 8 --temp 0 -t 1 -ot 'exps=RANK1'
# mpirun gives its processes a terminal, on which the text ends with a newline
[ "$(cat "$work/out")" = "$(cat "$work/greedy")" ] || fail "other text from two processes: $(cat "$work/out")"
mpi 0 2 perplexity -m "$v3" -f "$work/text" -c 64 -t 1 --json
says out '"perplexity"'
mpi 0 2 "${counted[@]}" --record-experts "$work/hot2"
cmp "$work/hot2" "$work/hot3" || fail 'two processes count other experts'
mpi 1 2 "${counted[@]}" --record-experts "$work/no/such/folder"
mpi 2 2 generate -m "$v3"
[ "$(grep -c '^latent: generate: wants one prompt' "$work/err")" = 1 ] || fail 'not said once'
mpi 2 2 generate -m "$v3" -p x --ranks 3
says err 'mpirun has started 2'
mpi 1 2 generate -m "$work/none.gguf" -p x
[ "$(grep -c '^latent: ' "$work/err")" = 1 ] || fail "not one line: $(cat "$work/err")"

# What runs on no ranks happens once, and what all get wrong is said once.
mpi 0 3 plan "$v3"
[ "$(grep -c 'It fits' "$work/out")" = 1 ] || fail 'not planned once'
mpi 0 3 convert "$v3" "$work/converted.gguf" --layout legacy
mpi 2 3 generate --bogus
[ "$(cat "$work/err")" = 'latent: --bogus: no such option; latent help generate lists all' ] ||
    fail "not said once: $(cat "$work/err")"

# Ranks that were started with different options or files load nothing.
cat >"$work/differs" <<'EOF'
#!/bin/sh
# differs A B LATENT ARGS: of the options "A" and "B" rank 1 takes the second
a=$1 b=$2
shift 2
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && a=$b
# shellcheck disable=SC2086
exec "$@" $a
EOF
chmod +x "$work/differs"
echo 'exps=RANK0' >"$work/rules0"
echo 'exps=RANK1' >"$work/rules1"
differ() {
    timeout 200 "$mpirun" --oversubscribe --bind-to none -np 2 "$work/differs" "$1" "$2" "$latent" \
        generate -p x -n 2 -t 1 >"$work/out" 2>"$work/err" </dev/null &&
        fail "served with $1 and $2"
    says err "latent: $3: rank 1 on host "
    [ "$(grep -c '^latent: .*rank 1' "$work/err")" = 1 ] || fail "$3: not said once"
}
differ "-m $v3" "-m $data/models/tiny-v3-legacy-iq4_ks.gguf" model
# These are compared as the model is.
if [ -z "$quick" ]; then
    half=$(($(stat -c %s "$v3") / 2)) # the same headers, but no weights behind the middle
    { head -c $half "$v3"; head -c $half /dev/zero; } >"$work/holes.gguf"
    differ "-m $v3" "-m $work/holes.gguf" model
    differ "-m $v3 -c 256" "-m $v3 -c 128" -c
    differ "-m $v3" "-m $v3 --reduce f32" --reduce
    differ "-m $v3 -ot exps=RANK0" "-m $v3 -ot exps=RANK1" -ot
    differ "-m $v3 --rules $work/rules0" "-m $v3 --rules $work/rules1" plan
fi
timeout 200 "$mpirun" --oversubscribe --bind-to none -np 2 "$work/differs" "-m $v3" "-m $work/none.gguf" \
    "$latent" generate -p x -n 2 -t 1 >"$work/out" 2>"$work/err" </dev/null
[ $? = 1 ] || fail "a file that rank 1 lacks: $(cat "$work/err")"
says err "none.gguf: cannot open"
[ "$(grep -c '^latent: .*rank 1' "$work/err")" = 1 ] || fail 'a file that rank 1 lacks: not said once'

# kill_last SIGNAL OPTION...: to the last of three ranks, with options of mpirun.  All end soon.
kill_last() {
    local signal=$1 job ranks p
    shift
    timeout 200 "$mpirun" --oversubscribe --bind-to none "$@" -np 3 "$latent" bench -m "$v3" --pp 512 \
        --tg 64 -r 1000 -t 1 --record-experts "$work/killed" >"$work/out" 2>"$work/err" </dev/null &
    job=$!
    await 'the plan of three ranks' grep -q 'RANK2: ' "$work/err"
    ranks=$(pgrep -P "$(pgrep -P $job)")
    kill "-$signal" "$(echo "$ranks" | tail -n 1)"
    ended $job "a job whose last rank gets SIG$signal"
    status=$?
    for p in $ranks; do
        await "the end of rank $p" is_gone "$p"
    done
}
# Somebody says which; a hasty mpirun may be the only one that still can.
kill_last KILL --mca odls_base_sigkill_timeout 0
[ $status != 0 ] || fail 'exit 0 without a rank'
grep -q 'rank 2' "$work/err" || fail "the killed rank is not named: $(tail -c 300 "$work/err")"
# A rank that is told to end ends all, with one line, and no draft of a file stays.
kill_last TERM -q
[ $status = 143 ] || fail "status $status after SIGTERM"
[ "$(grep -c 'SIGTERM\|lost' "$work/err")" = 1 ] || fail "not one line: $(tail -n 3 "$work/err")"
grep -q '^latent: rank 2 on host .* was told to end .*: SIGTERM$' "$work/err" || fail 'no such line'
compgen -G "$work/killed*" >/dev/null && fail 'a draft is left'
# mpirun does not mind a rank that ends well before others have come.
cat >"$work/missing" <<'EOF'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec "$@"
EOF
chmod +x "$work/missing"
timeout 200 "$mpirun" -q --mca odls_base_sigkill_timeout 0 --oversubscribe --bind-to none -np 3 \
    "$work/missing" "$latent" generate -m "$v3" -p x >"$work/out" 2>"$work/err" </dev/null
[ $? = 70 ] || fail "a rank that never came: $(cat "$work/err")"
grep -q '^latent: .*number 2 of 3 on host .* has ended' "$work/err" || fail "$(cat "$work/err")"
mpi 3 2 generate -m "$v3" -p x -c 1000000000
[ "$(grep -c 'does not fit' "$work/err")" = 1 ] || fail 'not said once'
# One rank of three is on a host, of a name space of its own, with too little memory.
cat >"$work/poor" <<'EOF'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec "$@"
exec unshare -m -u sh -c 'hostname poor && mount --bind "$0" /proc/meminfo && exec "$@"' "$MEMINFO" "$@"
EOF
chmod +x "$work/poor"
printf 'MemTotal: 900000 kB\nMemAvailable: 270000 kB\n' >"$work/meminfo"
if unshare -m -u sh -c 'mount --bind "$0" /proc/meminfo' "$work/meminfo" 2>/dev/null; then
    MEMINFO=$work/meminfo timeout 200 "$mpirun" -q --oversubscribe --bind-to none -np 3 "$work/poor" \
        "$latent" generate -m "$v3" -p x -n 2 -t 1 >"$work/out" 2>"$work/err" </dev/null
    [ $? = 3 ] || fail "a host without memory: $(cat "$work/err")"
    says err 'does not fit: host poor (RANK1) needs '
fi

# ---- Sums over ranks in the profile ------------------------------------------------
run 0 bench --devices --state-dir "$work/state" --json
says out '"all_reduce": null'
mpi 0 2 bench --devices --state-dir "$work/state" --json
says out '"ranks": 2'
mpi 0 3 bench --devices --state-dir "$work/state"
grep -q '^sums over ranks  *2 .* us a row of V3, .* 1 host$' "$work/out" || fail 'no sums of 2 ranks'
says out ' GB/s, 1 host'
run 0 plan "$v3" --state-dir "$work/state" --ranks 2
exit $bad
