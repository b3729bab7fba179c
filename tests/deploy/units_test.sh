#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# units_test.sh SOURCE: installs the units of SOURCE into a folder and lets systemd judge them:
# every line is understood, and what is left open is little (exposure at most 2.0).
set -euo pipefail

source=$1
limit=2.0
for tool in systemd-analyze cmake; do
    command -v "$tool" >/dev/null || { echo "units: no $tool here"; exit 77; }
done

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
units=$root/usr/lib/systemd/system
install_units() { # VERSION_OF_SYSTEMD
    DESTDIR=$root cmake -DSOURCE="$source" -DCMAKE_INSTALL_PREFIX=/usr \
        -DUNIT_DIR=/usr/lib/systemd/system -DVERSION_OF_SYSTEMD="$1" \
        -P "$source/install.cmake" >/dev/null
    cp "$source/latentd.target" "$units"
}
fail() { echo "units: $*" >&2; exit 1; }

# What `verify` says is wrong even when its status is 0: a key that it ignores.  The program need
# not be installed for that.
verify() {
    sed -i 's#^ExecStart=/usr/bin/latentd #ExecStart=/bin/true #' "$units"/*.service
    grep -q '^ExecStart=/bin/true --config /etc/latentd/' "$units/latentd@.service" ||
        fail "ExecStart is not what it was"
    SYSTEMD_UNIT_PATH=$units: systemd-analyze verify --man=no \
        latentd.service latentd@one.service latentd.target 2>&1 || true
}

exposure() { # UNIT
    systemd-analyze security --offline=true --root="$root" --no-pager "$1" |
        sed -n 's/^.*exposure level for .*: \([0-9.]*\).*$/\1/p'
}

hold_exposure() {
    local unit value
    for unit in latentd.service latentd@one.service; do
        value=$(exposure "$unit")
        [ -n "$value" ] || fail "$unit: no exposure told"
        awk -v v="$value" -v l="$limit" 'BEGIN { exit !(v <= l) }' ||
            fail "$unit: exposure $value, wanted at most $limit"
        echo "$unit: exposure $value $*"
    done
}

install_units 252
! grep '@[A-Z]*@' "$units"/* || fail "a word is left that nothing replaced"
said=$(verify)
[ -z "$said" ] || fail "systemd-analyze verify: $said"
hold_exposure

# The drop-in is read, and shows one folder of /home only.
for unit in latentd latentd@; do
    mkdir -p "$root/etc/systemd/system/$unit.service.d"
    cp "$source/several-hosts.conf" "$root/etc/systemd/system/$unit.service.d"
done
hold_exposure "with several-hosts.conf"
table=$(systemd-analyze security --offline=true --root="$root" --no-pager latentd.service)
grep -q 'ProtectHome=.*fake empty home' <<<"$table" || fail "several-hosts.conf was not read"

# That a later systemd's keys come in, and only there.
! grep -q '^RestartSteps=' "$units/latentd.service" || fail "RestartSteps= for systemd 252"
install_units 254
grep -q '^RestartSteps=' "$units/latentd.service" || fail "no RestartSteps= for systemd 254"
