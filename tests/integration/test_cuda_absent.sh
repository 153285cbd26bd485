#!/usr/bin/env bash
# `--backend cuda` where something of CUDA is missing: one line that says what, and exit status 1.
# usage: test_cuda_absent.sh PARLEY PARLEYD WRITE_TINY_MODEL MODULE, MODULE being that of tests/cuda_host
set -euo pipefail
parley=$1 parleyd=$2 module=$4
failed=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$3" "$dir/tiny.gguf"

# says WORDS COMMAND...: it fails with one line that has the words
says() {
    local words=$1 out status=0
    shift
    out=$("$@" 2>&1 >/dev/null) || status=$?
    if [ $status != 1 ] || [ "$(grep -c . <<<"$out")" != 1 ] || ! grep -qF -- "$words" <<<"$out"; then
        printf 'FAILED: %s\n  wanted: %s\n  exit %s: %s\n' "$*" "$words" "$status" "$out" >&2
        failed=1
    fi
}

selftest() { env PARLEY_CUDA_MODULE="$module" "$@" "$parley" selftest --backend cuda; }

says 'but this file cannot be read' env PARLEY_CUDA_MODULE=/nowhere/libparley-cuda.so "$parley" selftest --backend cuda
says 'cannot be loaded' env PARLEY_CUDA_MODULE=/etc/passwd "$parley" selftest --backend cuda
says 'there is no NVIDIA driver' selftest CUDA_HOST_DRIVER=0
says 'supports CUDA up to 12.4 but 13.0 is needed' selftest CUDA_HOST_DRIVER=12040
says 'the NVIDIA driver shows no GPU' selftest CUDA_HOST_DEVICES=0
says 'compute capability 7.0, but 7.5 or more is needed' selftest CUDA_HOST_CAPABILITY=70
says 'not built for the GPU' selftest CUDA_HOST_FAIL=14:209
says 'out of device memory' selftest CUDA_HOST_MEMORY=100000
says 'there is no NVIDIA driver' env PARLEY_CUDA_MODULE="$module" CUDA_HOST_DRIVER=0 \
    "$parleyd" --backend cuda --model "tiny=$dir/tiny.gguf" --listen 127.0.0.1:0 --log-level error
[ $failed = 0 ]
