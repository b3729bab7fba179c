#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# launch_test.sh FOLDER: the launchers of FOLDER with programs that only say what they were called
# with in place of latentd, latentd-rank and ssh.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin=$work/bin
mkdir "$bin"
cp "$1"/latentd-mpirun "$1"/latentd.sbatch "$bin"
program() { # NAME, its text from standard input
    { echo '#!/bin/sh'; cat; } >"$bin/$1"
    chmod +x "$bin/$1"
}
program latentd <<'END'
echo latentd
for word in "$@"; do echo "<$word>"; done
END
program latentd-rank <<<'echo latentd-rank 1.2.3'
# The other hosts: `old` has another version, `dead` does not answer, the rest are like this one.
program ssh <<'END'
while [ "$1" = -o ]; do shift 2; done
case "$1" in
dead) echo "ssh: connect to host dead: no route"; exit 255 ;;
old) echo latentd-rank 1.2.2 ;;
*) sh -c "$2" ;;
esac
END
export PATH=$bin:$PATH HOME=$work
fail() { echo "launch: $*" >&2; exit 1; }

me=$(uname -n)
echo weights >"$work/model.gguf"
hosts() { printf '%s\n' "$@" >"$work/hosts"; }
refuses() { # PART OF THE LINE, ARGUMENT...
    local part=$1 said status=0
    shift
    said=$(latentd-mpirun "$@" 2>&1) || status=$?
    [ $status = 2 ] || fail "$*: status $status, wanted 2: $said"
    [ "$(wc -l <<<"$said")" = 1 ] || fail "$*: not one line: $said"
    [[ "$said" == *"$part"* ]] || fail "$*: '$said' lacks '$part'"
}

hosts '# two hosts' "$me slots=2" '' '  node2 slots=1  # the other'
said=$(latentd-mpirun "$work/hosts" -m "$work/model.gguf" -c 4096)
[ "$said" = "latentd
<--launch>
<mpirun --hostfile '$work/hosts'>
<-m>
<$work/model.gguf>
<-c>
<4096>" ] || fail "called otherwise: $said"

refuses 'usage:'
refuses 'usage:' --help
refuses 'cannot be read' "$work/nowhere" -m "$work/model.gguf"
refuses 'No such file' "$work/hosts" --model="$work/nothing.gguf"
hosts '#'
refuses 'names no host' "$work/hosts"
hosts node2 "$me"
refuses 'put it first' "$work/hosts"
hosts "$me" dead
refuses 'dead: ssh: connect' "$work/hosts"
hosts "$me" old
refuses 'old: has latentd-rank 1.2.2; this host has latentd-rank 1.2.3' "$work/hosts"

# The Slurm script, outside of Slurm: its words, and where it puts things.
said=$(SLURM_CPUS_PER_TASK=8 latentd.sbatch "$work/model.gguf" -c 4096)
for word in "<--model>" "<$work/model.gguf>" "<ipc://$work/latentd/latentd.sock>" "<-c>"; do
    grep -qxF -- "$word" <<<"$said" || fail "latentd.sbatch: no $word: $said"
done
grep -q '^<srun .*--export=ALL --cpus-per-task=8>$' <<<"$said" || fail "latentd.sbatch: $said"
[ "$(stat -c %a "$work/latentd")" = 700 ] || fail "latentd.sbatch: others see its folder"
! latentd.sbatch >/dev/null 2>&1 || fail "latentd.sbatch: no model, no error"
