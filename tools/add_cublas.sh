#!/bin/sh
# Joins the pieces of NVIDIA's cuBLAS into lib/, where the CUDA module finds it.
# usage: add-cublas [FOLDER]: where the pieces are; as they come, beside this folder
set -eu
here=$(cd "$(dirname "$0")" && pwd)
from=${1:-$here/..}
missing=''

fail() {
    printf 'add-cublas: %s\n' "$*" >&2
    exit 1
}

[ -d "$from" ] || fail "$from is not a folder"
pieces=$(sed 's/^[^ ]*  //' "$here/lib/cublas.sha256")
for piece in $pieces; do
    [ -f "$from/$piece" ] || missing="$missing $piece"
done
[ -z "$missing" ] || fail "these files are missing in $from:$missing"
damaged=$(cd "$from" && sha256sum --check --quiet "$here/lib/cublas.sha256" 2>/dev/null | sed 's/: .*//' | tr '\n' ' ') || true
[ -z "$damaged" ] || fail "these files are damaged (their sha256 differs), download them again: $damaged"
part=$here/lib/cublas.part
rm -rf "$part"
mkdir "$part"
trap 'rm -rf "$part"' EXIT
# shellcheck disable=SC2086 # one word a piece
(cd "$from" && cat $pieces) | tar -C "$part" -xzf -
mv "$part"/* "$here/lib/"
printf 'cuBLAS is in %s\n' "$here/lib"
