#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# boot_test.sh BUILD MODEL: the package of BUILD on a Debian of its own under a real systemd:
# installed with its dependencies, started, asked, killed, stopped, purged.  Fetches that Debian
# (300 MB), so it runs only with LATENTD_LONG set, and only as root.
set -euo pipefail

build=$1
model=$2
skip() { echo "boot: $*"; exit 77; }
[ -n "${LATENTD_LONG-}" ] || skip "only with LATENTD_LONG (deploy/check --long), for the network"
[ "$(id -u)" = 0 ] || skip "only as root"
for tool in cpack debootstrap systemd-nspawn nsenter; do
    command -v "$tool" >/dev/null || skip "no $tool here"
done

work=$(mktemp -d)
root=$work/root
guest=0
fail() { echo "boot: $*" >&2; exit 1; }
cleanup() {
    [ "$guest" = 0 ] || kill -TERM "$guest" 2>/dev/null || true
    [ -z "${nspawn-}" ] || { kill -TERM "$nspawn" 2>/dev/null || true; wait "$nspawn" || true; }
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

# ---- a Debian, and the package in it ----------------------------------------------------------

(cd "$build" && cpack -B "$work/packages" >"$work/log" 2>&1) || { cat "$work/log"; fail "cpack"; }
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus bookworm "$root" \
    http://deb.debian.org/debian >"$work/log" 2>&1 || skip "debootstrap: $(tail -n 1 "$work/log")"
mkdir -p "$root/srv/models" "$root/opt/packages"
cp "$model" "$root/srv/models/model.gguf"
cp "$work"/packages/*.deb "$root/opt/packages"
in_chroot() { # with the network of this machine
    systemd-nspawn -q -D "$root" --register=no --keep-unit --pipe "$@" </dev/null
}
in_chroot sh -c 'apt-get -q update && apt-get -qy install /opt/packages/latentd_*.deb' \
    >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "the package cannot be installed"; }
! grep -q 'ailed' "$work/log" || { cat "$work/log"; fail "installing it says so"; }

# ---- the system -------------------------------------------------------------------------------

systemd-nspawn -q -D "$root" --register=no --keep-unit --private-network --console=pipe -b \
    </dev/null >"$work/console" 2>&1 &
nspawn=$!
within() { # SECONDS COMMAND...: until it succeeds
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}
has_guest() { guest=$(pgrep -P "$nspawn" | head -n 1) && [ -n "$guest" ]; }
within 30 has_guest || { cat "$work/console"; skip "no container can be started here"; }
sys() { nsenter -t "$guest" -m -p -n -i -u -C -- "$@"; }
user() { sys runuser -u latentd -- "$@"; }
booted() { [[ $(sys systemctl is-system-running) =~ running|degraded ]]; }
within 60 booted || fail "systemd does not come up: $(sys systemctl list-jobs --no-pager)"
show() { sys systemctl show -P "$1" "${2-latentd.service}"; }
wrong() { sys journalctl --no-pager -n 50 -u 'latentd*' || true; fail "$*"; }

[ "$(show ActiveState)" = inactive ] || wrong "it runs without a model"
echo 'model = /srv/models/model.gguf' >"$root/etc/latentd/latentd.conf"

request=(-p 'The whale' -n 24 --temp 0)
endpoint=ipc:///run/latentd/latentd.sock
want=$(user latent generate -m /srv/models/model.gguf "${request[@]}" 2>/dev/null)
[ -n "$want" ] || fail "latent generate writes nothing"
answers() {
    [ "$(user latent submit --endpoint "$endpoint" "${request[@]}" 2>/dev/null)" = "$want" ]
}

start=$(date +%s%N)
sys systemctl start latentd.service || wrong "it does not start"
within 30 answers || wrong "it does not answer as latent generate does"
echo "answered $((($(date +%s%N) - start) / 1000000)) ms after the start"
[ "$(show User)" = latentd ] || wrong "it is not the user latentd"
! sys journalctl --no-pager -u latentd.service | grep -iE 'operation not permitted|denied' ||
    wrong "the sandbox is in its way"

# Killed by force: systemd starts it again, and it goes on.
sys systemctl kill --kill-whom=main -s KILL latentd.service
within 30 answers || wrong "killed: it does not come back"
[ "$(show NRestarts)" = 1 ] || wrong "killed: restarts $(show NRestarts)"

# A stop is quick, leaves no process, and is no failure.
start=$(date +%s%N)
sys systemctl stop latentd.service
took=$((($(date +%s%N) - start) / 1000000))
[ "$(show Result), $(show ExecMainStatus)" = "success, 0" ] || wrong "stopped: $(show Result)"
[ $took -le 2000 ] || wrong "stopped after $took ms"
! sys sh -c 'cat /proc/[0-9]*/comm' | grep '^latentd' || wrong "stopped: processes are left"
echo "stopped in $took ms"

# Two ranks by mpirun inside of the sandbox, and a second model beside it.
printf 'model = /srv/models/model.gguf\nranks = 2\n' >"$root/etc/latentd/two.conf"
cp "$root/etc/latentd/two.conf" "$root/etc/latentd/other.conf"
sys systemctl enable --now latentd@{two,other}.service 2>/dev/null || wrong "instances"
for name in two other; do
    endpoint=ipc:///run/latentd/$name/latentd.sock
    within 60 answers || wrong "$name: does not answer as one rank does"
done
sys systemctl stop latentd.target
for name in two other; do
    stopped() { [ "$(show ActiveState "latentd@$name.service")" = inactive ]; }
    within 20 stopped || wrong "$name: runs after the target's stop"
done

# A mistake in the configuration is said once.
echo 'modle = x' >"$root/etc/latentd/latentd.conf"
! sys systemctl start latentd.service 2>/dev/null || wrong "it starts with a wrong key"
sleep 1
[ "$(show ExecMainStatus), $(show NRestarts)" = "2, 0" ] || wrong "wrong key: it tries again"

# ---- gone -------------------------------------------------------------------------------------

rm -f "$root"/etc/latentd/{two,other}.conf
sys dpkg --purge latentd >"$work/log" 2>&1 || { cat "$work/log"; fail "purge"; }
left=$(cd "$root" && find etc usr var/lib srv -xdev -name '*latent*' -not -path 'var/lib/dpkg/*')
[ -z "$left" ] || fail "purged, but there is: $left"
! sys grep latentd /etc/passwd /etc/group || fail "purged: the user is left"
echo "installed, started, killed, stopped, purged: nothing left"
