#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# manual_test.sh PROGRAM FOLDER: fills the templates of FOLDER/man and lets man format them without
# a warning.
set -euo pipefail

command -v man >/dev/null || { echo "manual: no man here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for template in "$2"/man/*.in; do
    page=$work/$(basename "$template" .in)
    "$1" <"$template" >"$page"
    LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -E UTF-8 -l "$page" >"$work/text" 2>"$work/said"
    if [ -s "$work/said" ] || ! grep -q 'SEE ALSO' "$work/text"; then
        cat "$work/said"
        echo "manual: $page: not as it should be" >&2
        exit 1
    fi
    echo "$(basename "$page"): $(wc -l <"$work/text") lines"
done
