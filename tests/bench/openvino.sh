#!/usr/bin/env bash
# Makes a Python that has OpenVINO GenAI, once, under PEERS_HOME (~/.cache/peers), and prints its path; OPENVINO_PYTHON names one that is
# there already. `./run bench --openvino PEER_MODEL.gguf` calls this. PEER_MODEL is what OpenVINO loads; of SmolLM2 the Q8_0 file, since its
# import of Q4_1 loses the model. llama.cpp makes it: llama-quantize --allow-requantize MODEL.gguf PEER_MODEL.gguf Q8_0
set -euo pipefail
python=${OPENVINO_PYTHON:-${PEERS_HOME:-$HOME/.cache/peers}/openvino/bin/python}
if ! "$python" -c 'import openvino_genai' 2>/dev/null; then
    [ -z "${OPENVINO_PYTHON:-}" ] || { printf '%s has no openvino_genai\n' "$python" >&2; exit 1; }
    printf 'making %s (openvino-genai, from PyPI)\n' "${python%/bin/python}" >&2
    python3 -m venv "${python%/bin/python}"
    "$python" -m pip install --quiet --disable-pip-version-check openvino-genai==2026.4.1.0 openvino-tokenizers numpy >&2
fi
printf '%s\n' "$python"
