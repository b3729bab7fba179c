#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# install_test.sh SOURCE BUILD FAKE_LATENTD CC: liblatent as somebody else uses it: installed into
# a folder, found by pkg-config, the program of docs/protocol.md linked against the shared and the
# static library and run.
set -u
source=$1
build=$2
fake=$3
cc=$4
work=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon"; rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

# shellcheck source=tests/support/await.sh
. "${0%/*}/../support/await.sh"

for component in liblatent0 liblatent-dev; do
    cmake --install "$build" --prefix "$work/usr" --component "$component" >"$work/log" 2>&1 ||
        fail "install: $(cat "$work/log")"
done
pc=$(find "$work/usr" -name latent.pc)
[ -n "$pc" ] || fail "no latent.pc"
export PKG_CONFIG_PATH=${pc%/*}
lib=$(dirname "${pc%/*}")
[ -L "$lib/liblatent.so.0" ] || fail "no liblatent.so.0 in $lib"
read -ra flags < <(pkg-config --cflags --libs latent)
read -ra static < <(pkg-config --libs --static latent | sed 's/-llatent//')

sed -n '/^#include <latent.h>$/,/^```$/p' "$source/docs/protocol.md" | sed '$d' >"$work/example.c"
warn=(-Wall -Wextra -pedantic -std=c99 -Werror)
"$cc" "${warn[@]}" "$work/example.c" "${flags[@]}" -o "$work/shared" || fail "cc, shared"
"$cc" "${warn[@]}" "$work/example.c" "-I$work/usr/include" "$lib/liblatent.a" "${static[@]}" \
    -o "$work/static" || fail "cc, static"
if command -v g++ >/dev/null; then
    echo '#include <latent.h>' | g++ -fsyntax-only -Wall -Wextra -pedantic -x c++ "-I$work/usr/include" - ||
        fail "latent.h is no C++"
fi
seen=$(nm -D --defined-only "$lib/liblatent.so.0" | awk '$3 !~ /^(latent_|LATENT_)/ { print $3 }')
[ -z "$seen" ] || fail "liblatent.so shows $seen"

"$fake" "ipc://$work/socket" "$work/state" 1 "$source/tests/data/models/tiny-v3-q4_k_m.gguf" \
    >"$work/bound" 2>"$work/log" &
daemon=$!
await 'the start of the daemon' longer "$work/bound" 0
want=$(for k in $(seq 100); do printf 'w%d ' "$k"; done)
for program in shared static; do
    got=$(LD_LIBRARY_PATH=$lib "$work/$program" "ipc://$work/socket") || fail "$program"
    [ "$got" = "$want" ] || fail "$program printed: $got"
done
if "$work/static" "ipc://$work/nobody" 2>"$work/err"; then
    fail "nobody listens, and all is well"
fi
grep -q '^unreachable: ' "$work/err" || fail "$(cat "$work/err")"
