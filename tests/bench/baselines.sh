#!/usr/bin/env bash
# Makes a Python that has torch 2, Stable-Baselines3 and what the Python package of ours needs, once, under PEERS_HOME (~/.cache/peers), and
# prints its path; BASELINES_PYTHON names one that is there already. PyPI's torch for Linux brings the libraries of CUDA: about 6 GB.
set -euo pipefail
home=${PEERS_HOME:-$HOME/.cache/peers}
python=${BASELINES_PYTHON:-$home/baselines/bin/python}
packages="torch==2.13.0 stable-baselines3==2.9.2 gymnasium==1.2.2 numpy==2.3.5 grpcio==1.81.1 protobuf==6.33.6 google-crc32c==1.9.0 cloudpickle==3.1.2"
if ! "$python" -c 'import torch, stable_baselines3, grpc' 2>/dev/null; then
    [ -z "${BASELINES_PYTHON:-}" ] || { printf '%s has no torch or no stable_baselines3\n' "$python" >&2; exit 1; }
    printf 'making %s (%s, from PyPI; about 6 GB)\n' "${python%/bin/python}" "$packages" >&2
    python3 -m venv "${python%/bin/python}"
    # shellcheck disable=SC2086 # one word a package
    "$python" -m pip --quiet --disable-pip-version-check install $packages >&2
fi
printf '%s\n' "$python"
