#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# help_in_docs.sh LATENT DOC [--write]: in DOC, a line "<!-- latent help X -->" stands right before
# a fenced block with exactly that help page.  Fails where it is another; --write puts it there.
set -euo pipefail
latent=$1
doc=$2
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT

in=text # or marker: right behind one; block: inside the old page
while IFS= read -r line; do
    case $in:$line in
    'marker:```') in=block; continue ;;
    'block:```') in=text; continue ;;
    block:*) continue ;;
    esac
    in=text
    printf '%s\n' "$line"
    if [[ $line =~ ^'<!-- latent help '([a-z]+)' -->'$ ]]; then
        printf '```\n'
        "$latent" help "${BASH_REMATCH[1]}"
        printf '```\n'
        in=marker
    fi
done <"$doc" >"$fresh"

if [ "${3-}" = --write ]; then
    cat "$fresh" >"$doc"
elif ! diff "$doc" "$fresh"; then
    echo "$doc is behind options/options.def: run tests/cli/help_in_docs.sh LATENT $doc --write"
    exit 1
fi
