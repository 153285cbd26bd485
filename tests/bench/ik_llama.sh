#!/usr/bin/env bash
# Makes a Python that has ik_llama.cpp, once, under PEERS_HOME (~/.cache/peers), and prints its path; IK_LLAMA_PYTHON names one that is
# there already. PyPI's wheel has no server, and its kernels are those of AVX2.
set -euo pipefail
python=${IK_LLAMA_PYTHON:-${PEERS_HOME:-$HOME/.cache/peers}/ik_llama/bin/python}
if ! "$python" -c 'import ik_llama_cpp' 2>/dev/null; then
    [ -z "${IK_LLAMA_PYTHON:-}" ] || { printf '%s has no ik_llama_cpp\n' "$python" >&2; exit 1; }
    printf 'making %s (ik-llama-cpp-python, from PyPI)\n' "${python%/bin/python}" >&2
    python3 -m venv "${python%/bin/python}"
    "$python" -m pip install --quiet --disable-pip-version-check ik-llama-cpp-python==0.1.5 numpy >&2
fi
printf '%s\n' "$python"
