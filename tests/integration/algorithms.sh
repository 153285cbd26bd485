#!/usr/bin/env bash
# Runs test_algorithms.py by a Python with torch. Where there is none, the test is skipped.
# usage: algorithms.sh SCRIPT PARLEYD
set -euo pipefail
python=build/torch/bin/python
set -- "$(realpath "$1")" "$(realpath "$2")"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
"$python" -c 'import torch, grpc, gymnasium' 2>/dev/null || { echo "no $python with torch: tests/support/torch.sh makes it" >&2; exit 77; }
exec "$python" "$@"
