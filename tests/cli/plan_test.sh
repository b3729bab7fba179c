#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# plan_test.sh LATENT DATA: `latent plan` as a user runs it: exit status, what is said where, and
# that a file cut behind its tensor table gives the same plan as the whole one.
set -u
latent=$1
data=$2
v3=$data/models/tiny-v3-q4_k_m.gguf
box='host(ram=8G,bw=20G,gpus=2*RTX3090)'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

fail() {
    echo "FAILED: $*"
    bad=1
}

run() {
    local want=$1 got
    shift
    "$latent" plan "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" = "$want" ] || fail "plan $*: exit $got, want $want: $(head -c 300 "$work/err")"
}
says() { grep -qF -- "$2" "$work/$1" || fail "$1 lacks '$2': $(head -c 300 "$work/$1")"; }

# ---- Fits, does not fit, is wrong -----------------------------------------------
run 0 "$v3" -c 4096
says out 'It fits'
run 0 "$v3" --devices "$box" -ot 'exps=CUDA*:3+CPU'
run 3 "$v3" --devices 'host(ram=400M,bw=10G,cores=2)' -c 1000000
says err 'the cheapest change that fits: -c '
fitting=$(sed -n 's/.*change that fits: -c \([0-9]*\).*/\1/p' "$work/err")
run 0 "$v3" --devices 'host(ram=400M,bw=10G,cores=2)' -c "$fitting"
run 3 "$v3" --devices 'host(ram=400M,bw=10G,cores=2)' -c "$((fitting + 64))"
run 2 "$v3" --devices "$box" -ot 'exps=CUDA7'
says err 'no CUDA7: this plan has 2 GPUs'
run 2 "$v3" -ot 'exps=CPU' -ot 'exps=CPU'
says err 'rule 2 (-ot #2, column 1)'
run 0 "$v3" -ot 'exps=CPU' -ot 'exps=CPU' --allow-unused-rules
run 0 "$v3" -ot 'exps=CPU' --cpu-moe --n-cpu-moe 2
run 2 "$v3" -ot 'blk(=CPU'
says err 'never closed'
says err '1 error in the rules'
run 2 "$v3" -ot 'exps='
says err '1 error in the rules'
run 0 "$v3" --rules /dev/null
says err 'has no rules'
run 1 "$v3" --devices "@$work"
says err 'Is a directory'
run 2 "$v3" --devices 'host(ram=1G)'
says err 'a host needs bw='
run 2 "$v3" --devices 'host(ram=8G,bw=20G,gpus=2*RTX30990)'
says err 'the nearest is RTX3090'
run 2 "$v3" --engine vllm
says err 'latentd, llama.cpp'
run 2 "$v3" --explain blk.1.ffn_up_exp.weight
says err 'blk.1.ffn_up_exps.weight'
run 2 "$v3" --explain blk.2.ffn_up_exps
says err 'blk.2.ffn_up_exps.weight'
run 2
run 1 "$data/models/nothing.gguf"

# ---- Rules from a file, frequencies ----------------------------------------------------
printf '# experts\nexps=CUDA0 # all\nattn=FOO\n' >"$work/rules"
run 2 "$v3" --devices "$box" --rules "$work/rules"
says err "$work/rules:3, column 1"
printf '1 5 100\n1 9 50\n2 0 7\n' >"$work/hot"
run 0 "$v3" --devices "$box" --hot "$work/hot" -ot 'exps=CUDA0:2+CPU' --json
python3 - "$work/out" <<'PY' || fail 'frequent experts are not on the GPU'
import json, sys
plan = json.load(open(sys.argv[1]))
want = {"blk.1.ffn_up_exps.weight": [[5, 6], [9, 10]], "blk.2.ffn_up_exps.weight": [[0, 2]]}
for name, ranges in want.items():
    got = [t for t in plan["tensors"] if t["name"] == name and t["device"] == "CUDA0"]
    assert len(got) == 1 and got[0]["slice"] == {"axis": "experts", "ranges": ranges}, got
    assert got[0]["rule"] == 0 and got[0]["rank"] == 0
PY
run 0 "$v3" --devices "$box" --hot "$work/hot"
grep -qE '^ +1 --hot +\S+ +planner +6 +6 ' "$work/out" || fail '--hot has no row among the rules'
grep -q 'takes nothing' "$work/out" && fail '--hot is called unused'
run 0 "$v3" --devices "$box" --hot "$work/hot" -ot exps=CPU
grep -qE '^ +2 --hot +\S+ +planner +0 +6 ' "$work/out" || fail '--hot is not behind the rules'
grep -q 'takes nothing' "$work/out" && fail '--hot is called unused'
run 0 "$v3" --devices "$box" --hot "$work/hot" --explain blk.1.ffn_up_exps.weight
says out 'frequent experts first'
printf '1 99 1\n' >"$work/hot"
run 2 "$v3" --hot "$work/hot"
says err 'no expert 99 in layer 1'

# ---- JSON ---------------------------------------------------------------------------------
run 0 "$v3" --devices "$box" --json -ot '(\d|"x")\.ffn_.*_exps=CPU' --html "$work/page.html"
python3 - "$work/out" <<'PY' || fail 'the JSON is not what the manual says'
import json, sys
plan = json.load(open(sys.argv[1]))
for d in plan["devices"]:
    parts = sum(t["memory_bytes"] for t in plan["tensors"] if t["device"] == d["name"])
    assert parts == d["weights_bytes"], d
    used = sum(d[k + "_bytes"] for k in
               ("weights", "cache", "activation", "staging", "comm", "reserve"))
    assert d["slack_bytes"] == d["capacity_bytes"] - used, d
assert plan["fits"] is True
rule = plan["rules"][0]
assert rule["index"] == 0 and rule["tensors"] == rule["tensors_alone"] == 6, rule
assert rule["error"] is None and rule["bytes"] > 0 and rule["source"] == "-ot"
for phase in ("decode", "prefill"):
    us = sum(t["us"] for t in plan["predict"]["terms"] if t["phase"] == phase)
    tokens = {"decode": 1, "prefill": 512}[phase]
    assert abs(plan["predict"][phase + "_tps"] / (tokens * 1e6 / us) - 1) < 1e-3
PY
grep -q '</html>' "$work/page.html" || fail 'the page is not complete'
grep -qE '(src|href)=' "$work/page.html" && fail 'the page needs other files'

# ---- A file that ends behind its tensor table ------------------------------------------------
run 0 "$v3" --devices "$box" --json
mv "$work/out" "$work/whole"
python3 - "$work/whole" "$v3" "$work/cut.gguf" <<'PY'
import sys
whole = open(sys.argv[2], "rb").read()
open(sys.argv[3], "wb").write(whole[:400000])
PY
run 0 "$work/cut.gguf" --devices "$box" --json
diff <(sed 's/tiny-v3-q4_k_m\|cut//' "$work/whole" | sed 1,3d) <(sed 1,3d "$work/out") >/dev/null ||
    fail 'a cut file is planned otherwise'

exit $bad
