#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# tokenize_test.sh LATENT DATA: `latent tokenize`, from exact bytes to ids and pieces and back.
set -u
latent=$1
model=$2/models/tiny-v3-q4_k_m.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

fail() {
    echo "FAILED: $*"
    bad=1
}

# gives TEXT WANT ARGS...: `latent tokenize ARGS` makes exactly WANT of the bytes of TEXT (as
# printf writes them).
gives() {
    local text=$1 want=$2
    shift 2
    printf "$text" | "$latent" tokenize "$@" >"$work/out" 2>"$work/err" || fail "$*: exit $?"
    printf "$want" | cmp -s - "$work/out" ||
        fail "tokenize $*: $text gives $(head -c 200 "$work/out"), want $want"
    [ -s "$work/err" ] && fail "tokenize $*: $(head -c 200 "$work/err")"
}

# refuses STATUS WHY ARGS...: on the bytes of $input, one line on stderr that says why.
refuses() {
    local want=$1 why=$2 got
    shift 2
    printf "$input" | "$latent" tokenize "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" = "$want" ] || fail "tokenize $*: exit $got, want $want"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "tokenize $*: stderr has not one line"
    grep -qF -- "$why" "$work/err" || fail "tokenize $*: no '$why' in $(cat "$work/err")"
    [ -s "$work/out" ] && fail "tokenize $*: stdout is not empty"
}

# ---- Ids --------------------------------------------------------------------
gives 'Hello world' '0 75 912 114 705\n' -m "$model"
gives 'Hello world' '75 912 114 705\n' -m "$model" --no-bos
gives 'Hello world\n' '75 912 114 705 13\n' -m "$model" --no-bos
gives '' '0\n' -m "$model"
gives '' '\n' -m "$model" --no-bos
gives 'Hello' '{"pre": "deepseek-v3", "ids": [0, 75, 912, 114]}\n' -m "$model" --json
gives 'Hello<｜EOT｜>' '0 75 912 114 4095\n' -m "$model" --parse-special
gives '<think>' '4093\n' -m "$model" --no-bos
printf 'a<｜EOT｜>' | "$latent" tokenize -m "$model" | grep -qw 4095 && fail 'text became a control token'
gives ' 1' '35 52\n' -m "$model" --no-bos --override-kv tokenizer.ggml.pre=str:gpt-2

# ---- And back ---------------------------------------------------------------
gives '0 75 912\n114,705 1' 'Hello world' -m "$model" --decode
gives '0 75 4095' '<｜begin▁of▁sentence｜>H<｜EOT｜>' -m "$model" --decode --parse-special
gives '75 912 114' '{"text": "Hello"}\n' -m "$model" --decode --json
gives '' '' -m "$model" --decode
head -c 300000 "$model" >"$work/bytes"
"$latent" tokenize -m "$model" <"$work/bytes" | "$latent" tokenize -m "$model" --decode |
    cmp -s - "$work/bytes" || fail 'bytes do not come back'

# ---- Pieces -----------------------------------------------------------------
gives 'HelloWorld 1234' '["Hello", "World", " ", "123", "4"]\n' --pieces --pre kimi-k2
gives 'HelloWorld 1234' '["HelloWorld", " ", "123", "4"]\n' --pieces --pre joyai-llm
gives 'HelloWorld 1234' '["HelloWorld", " ", "123", "4"]\n' --pieces -m "$model"
gives 'a\n"\\\377' '["a", "\\u000a", "\\"\\\\\357\277\275"]\n' --pieces --pre gigachat
gives '' '[]\n' --pieces --pre tekken

# ---- Refusals ---------------------------------------------------------------
input='75 x'
refuses 2 'no token id at byte 3' -m "$model" --decode
input='75 -1'
refuses 2 'no token id at byte 3' -m "$model" --decode
input='75 912x'
refuses 2 'no token id at byte 6' -m "$model" --decode
input='4095 4096'
refuses 2 'the id at byte 5' -m "$model" --decode
input='1\0002'
refuses 2 'no token id at byte 1' -m "$model" --decode
input='99999999999999999999999'
refuses 2 '0 to 4095' -m "$model" --decode
input=text
refuses 2 'no model' --no-bos
refuses 2 '--pre NAME' --pieces
refuses 2 'only --pieces' -m "$model" --pre glm4
refuses 2 'give one of them' -m "$model" --pieces --decode
refuses 2 'give one of deepseek-llm' --pieces --pre llama-bpe
refuses 1 "$work/none.gguf" -m "$work/none.gguf"

exit $bad
