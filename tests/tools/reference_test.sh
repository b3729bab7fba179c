#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# reference_test.sh LATENT MKMODEL REFERENCE DATA: the logits of the engine against those of
# reference.py, on the small models of the tree (which also hold the reference against its golden
# logits) and on random ones of other shapes.  Needs python3 with numpy; skipped (77) without.
set -u
latent=$1 mkmodel=$2 reference=$3 data=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

for python in python3 /usr/bin/python3 none; do
    "$python" -c 'import numpy' 2>/dev/null && break
done
[ "$python" = none ] && { echo 'skipped: no python3 with numpy'; exit 77; }

# logits MODEL TOKENS OPTION..., then compare MODEL TOKENS OPTION...
logits() { "$latent" logits -q -m "$1" --tokens "$2" -o "$work/got.npy" "${@:3}"; }
compare() { "$python" "$reference" "$1" --tokens "$2" --compare "$work/got.npy" "${@:3}"; }
fail() { echo "FAILED: $*"; bad=1; }

# ---- Models of the tree ------------------------------------------------------
p64=$("$python" -c 'import json, sys; print(*json.load(open(sys.argv[1]))["p64"], sep=",")' \
    "$data/logits/prompts.json")
for name in tiny-v2-f16 tiny-v3-q4_k_m; do
    model=$data/models/$name.gguf
    echo "$name"
    "$python" "$reference" "$model" --tokens "$p64" --limit 2e-6 \
        --compare "$data/logits/$name.p64.last8.npy" || fail "$name: the reference itself"
    logits "$model" "$p64" --exact-math && compare "$model" "$p64" --limit 1e-5 || fail "$name"
done

# ---- Random models -----------------------------------------------------------
tokens=$(seq -s, 11 7 290)

# random NAME LIMIT OPTION...: a model with these options for mkmodel, exact within LIMIT, and as
# near with int8 to a reference that rounds activations too.
random() {
    local name=$1 limit=$2 model=$work/model.gguf
    shift 2
    echo "$name"
    "$mkmodel" --layers 2 --dense 1 --vocab 333 "$@" "$model" 2>/dev/null || fail "$name: mkmodel"
    logits "$model" "$tokens" --exact-math && compare "$model" "$tokens" --limit "$limit" ||
        fail "$name: --exact-math"
    logits "$model" "$tokens" -mla 0 && compare "$model" "$tokens" --int8 --median --limit 1e-3 ||
        fail "$name: int8"
}

random 'GLM, F16' 1e-5 --preset glm-flash --d-model 128 --d-ffn 192 --q-lora 96 --kv-lora 128 \
    --heads 5 --experts 8 --d-expert 64 --type F16
random 'Kimi, Q8_0' 1e-5 --preset kimi --d-model 128 --d-ffn 256 --q-lora 128 --kv-lora 64 \
    --heads 8 --d-nope 32 --d-v 32 --d-expert 32 --type Q8_0 --output-type Q8_0
random 'V2, legacy, F32' 1e-5 --preset v2 --d-model 64 --d-ffn 96 --q-lora 64 --kv-lora 64 \
    --heads 3 --d-nope 32 --d-v 64 --d-expert 32 --layout legacy --type F32
random 'V2-Lite, Q4_K' 1e-5 --preset v2-lite --d-model 256 --d-ffn 480 --kv-lora 256 --heads 2 \
    --experts 8 --d-expert 352 --type Q4_K --small-type Q4_0

exit $bad
