#!/bin/sh
# libparley.a: one object of libparley's own archive and what it needs of the others, in which only what
# parley.h declares is a global name, so that nothing clashes with the names of a program.
# usage: archive.sh OUT.a OWN.a OTHER.a…
set -eu
out=$1 own=$2
shift 2
trap 'rm -f "$out.o"' EXIT
ld -r -o "$out.o" --whole-archive "$own" --no-whole-archive --start-group "$@" --end-group
objcopy --localize-hidden "$out.o"
rm -f "$out"
ar rcsD "$out" "$out.o"
