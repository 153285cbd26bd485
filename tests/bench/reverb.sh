#!/usr/bin/env bash
# Makes a Python that has DeepMind's Reverb, once, under PEERS_HOME (~/.cache/peers), and prints its path; REVERB_PYTHON names one that is
# there already. Its wheel, of which there is none for every Python, needs TensorFlow 2.15: some 600 MB from PyPI.
# `./run bench replay --reverb` calls this.
set -euo pipefail
python=${REVERB_PYTHON:-${PEERS_HOME:-$HOME/.cache/peers}/reverb/bin/python}
if ! "$python" -c 'import reverb' 2>/dev/null; then
    [ -z "${REVERB_PYTHON:-}" ] || { printf '%s has no reverb\n' "$python" >&2; exit 1; }
    printf 'making %s (dm-reverb and tensorflow, from PyPI)\n' "${python%/bin/python}" >&2
    python3 -m venv "${python%/bin/python}"
    "$python" -m pip install --quiet --disable-pip-version-check 'dm-reverb[tensorflow]==0.14.0' >&2
fi
printf '%s\n' "$python"
