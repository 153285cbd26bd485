#!/bin/sh
# libparley.a: one object of libparley's own archive and what it needs of the others, in which only what
# parley.h declares is a global name, so that nothing clashes with the names of a program.
# usage: archive.sh PREFIX OUT.a OWN.a OTHER.a…    PREFIX: of the tools' names, where it is built for another processor
set -eu
tools=$1 out=$2 own=$3
shift 3
trap 'rm -f "$out.o"' EXIT
"${tools}ld" -r -o "$out.o" --whole-archive "$own" --no-whole-archive --start-group "$@" --end-group
"${tools}objcopy" --localize-hidden "$out.o"
rm -f "$out"
"${tools}ar" rcsD "$out" "$out.o"
