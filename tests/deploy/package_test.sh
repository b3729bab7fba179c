#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# package_test.sh BUILD SOURCE: builds the Debian packages of BUILD, installs them into a tree that
# holds nothing else, upgrades, removes and purges them, and looks at what is there each time.
# Maintainer scripts run outside of the tree (there is no shell in it), with DPKG_ROOT.
set -euo pipefail

build=$1
source=$2
for tool in cpack dpkg dpkg-deb dpkg-shlibdeps systemd-sysusers systemd-tmpfiles; do
    command -v "$tool" >/dev/null || { echo "package: no $tool here"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "package: only root owns what it unpacks"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
fail() { echo "package: $*" >&2; exit 1; }

(cd "$build" && cpack -B "$work/packages" >"$work/cpack.log" 2>&1) ||
    { cat "$work/cpack.log"; fail "cpack"; }
packages=("$work"/packages/*.deb)

# ---- the archives ----------------------------------------------------------------------------

for deb in "${packages[@]}"; do
    echo "$(basename "$deb"): $(stat -c %s "$deb") bytes"
    dpkg-deb -c "$deb" | awk '$2 != "root/root" { bad = 1; print } END { exit bad }' ||
        fail "$deb: not all files are root's"
    ! dpkg-deb -c "$deb" | awk '$1 ~ /^-/ && $1 !~ /^-rw[x-]r-[x-]r-[x-]$/' | grep . ||
        fail "$deb: odd modes"
    ! dpkg-deb -c "$deb" | grep -E '/(local|tmp|work|build)/' || fail "$deb: odd paths"
done
main=$(echo "$work"/packages/latentd_*.deb)
dpkg-deb -f "$main" Depends | grep -q 'libc6 (>= ' || fail "Depends: lacks libc6"
dpkg-deb -f "$main" Depends | grep -q 'libpcre2-8-0' || fail "Depends: lacks what latent links"

# ---- a life ----------------------------------------------------------------------------------

mkdir -p "$root"/var/lib/dpkg/{info,updates} "$root/etc"
: >"$root/var/lib/dpkg/status"
pkg() {
    dpkg --root="$root" --force-script-chrootless --force-depends --log=/dev/null "$@" \
        >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "dpkg $*"; }
}
listing() { # what lies in the tree, dpkg's own folder apart
    (cd "$root" && find . -path ./var/lib/dpkg -prune -o -print | sort)
}
want() { [ -e "$root/$1" ] || fail "$2: no /$1"; }
lack() { [ ! -e "$root/$1" ] || fail "$2: /$1 is still there"; }
names=()
for deb in "${packages[@]}"; do names+=("$(dpkg-deb -f "$deb" Package)"); done

pkg --install "${packages[@]}"
want usr/bin/latent installed
for file in copyright NOTICE changelog.gz; do want "usr/share/doc/latentd/$file" installed; done
want usr/share/man/man1/latent.1.gz installed
grep -q 'ggml' "$root/usr/share/doc/latentd/NOTICE" || fail "NOTICE does not name ggml"
"$root/usr/bin/latent" --version | grep -q '^latent [0-9]' || fail "latent does not run"

for file in usr/bin/latentd usr/bin/latentd-rank etc/latentd/latentd.conf \
    usr/lib/systemd/system/latentd{,@}.service usr/lib/systemd/system/latentd.target \
    usr/lib/sysusers.d/latentd.conf usr/lib/tmpfiles.d/latentd.conf \
    usr/share/man/man8/latentd.8.gz usr/share/man/man5/latentd.conf.5.gz \
    usr/share/man/man3/liblatent.3.gz usr/share/doc/latentd/operations.md; do
    want "$file" installed
done
grep -q '^ExecStart=/usr/bin/latentd --config /etc/latentd/latentd.conf$' \
    "$root/usr/lib/systemd/system/latentd.service" || fail "the unit starts something else"
grep -q '^latentd:' "$root/etc/passwd" || fail "no user latentd"
[ "$(stat -c %a "$root/var/lib/latentd")" = 750 ] || fail "/var/lib/latentd: not mode 750"

# The example of liblatent(3), built as it says there.
sed -n '/^#include <latent.h>/,/^\.EE/p' "$source/deploy/man/liblatent.3.in" |
    sed '/^\.EE/d; s/\\-/-/g; s/\\e/\\/g' >"$work/example.c"
flags=$(PKG_CONFIG_PATH=$root/usr/lib/pkgconfig pkg-config --cflags --libs latent)
# shellcheck disable=SC2086 # several words
cc -Wall -Wextra -Werror -o "$work/example" "$work/example.c" $flags
! said=$(LD_LIBRARY_PATH=$root/usr/lib "$work/example" 2>&1) || fail "no daemon, but: $said"
[[ "$said" == *latentd.sock* ]] || fail "the example says: $said"

# Settings survive an upgrade and a removal; a purge takes them and the journal.
echo '# mine' >>"$root/etc/latentd/latentd.conf"
touch "$root/var/lib/latentd/journal.db"
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s /lib/systemd/system/latentd.service "$root/etc/systemd/system/multi-user.target.wants"
pkg --install "${packages[@]}"
grep -q '^# mine$' "$root/etc/latentd/latentd.conf" || fail "upgraded: settings are lost"

pkg --remove "${names[@]}"
lack usr/bin/latent removed
want etc/latentd/latentd.conf removed
want var/lib/latentd/journal.db removed

pkg --purge "${names[@]}"
! grep -qs latentd "$root/etc/passwd" "$root/etc/group" || fail "purged: the user is left"
left=$(listing | grep latent || true)
[ -z "$left" ] || fail "purged, but there is: $left"
echo "installed, upgraded, removed, purged: nothing left"
