#!/usr/bin/env bash
# Compiles one .cu file, and keeps what ptxas says of its kernels (tools/cuda_kernels.py reads it).
# usage: tools/nvcc.sh ARCHITECTURES OBJECT REPORT DEPFILE SOURCE NVCC [flags]
set -euo pipefail
archs=$1 object=$2 report=$3 depfile=$4 source=$5
shift 5
codes=()
newest=0
for arch in ${archs//,/ }; do
    codes+=(-gencode "arch=compute_$arch,code=sm_$arch")
    [ "$arch" -gt "$newest" ] && newest=$arch
done
codes+=(-gencode "arch=compute_$newest,code=compute_$newest") # for GPUs that are newer than all of these
# The bits of ref: no multiply-add but where fmaf is written, divisions and roots that round as IEEE
# has it, denormals that are zero as in every thread of the host.
status=0
"$@" -std=c++17 -O3 --fmad=false --ftz=true --prec-div=true --prec-sqrt=true \
    -Werror all-warnings -Xptxas -v "${codes[@]}" \
    -Xcompiler -fPIC,-fvisibility=hidden,-ffp-contract=off -MD -MF "$depfile" -c "$source" -o "$object" 2>"$report" || status=$?
if [ $status != 0 ]; then
    grep -v '^ptxas info\|bytes stack frame' "$report" >&2 || true
    rm -f "$report"
fi
exit $status
