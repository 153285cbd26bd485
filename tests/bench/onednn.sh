#!/usr/bin/env bash
# Prints the path of onednn.c as a library, with Debian's oneDNN, both made by the first call under build/; nothing is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=build/onednn
if ! [ -e "$folder/onednn.so" ]; then
    tests/integration/debs.sh bookworm "$folder" libdnnl2 libdnnl-dev ocl-icd-libopencl1
    lib=$PWD/$folder/usr/lib/x86_64-linux-gnu
    cc -O2 -fPIC -shared -fopenmp -I. -I"$folder/usr/include" -o "$folder/onednn.so.part" tests/bench/onednn.c \
        -L"$lib" -ldnnl -Wl,--disable-new-dtags,-rpath,"$lib"
    mv "$folder/onednn.so.part" "$folder/onednn.so"
fi
printf '%s\n' "$PWD/$folder/onednn.so"
