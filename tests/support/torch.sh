#!/usr/bin/env bash
# A Python with torch of Debian (python3-torch; tests/bench/optim.py also wants python3-torchvision), grpcio, google-crc32c, cloudpickle and
# gymnasium, in build/torch. Prints its path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
packages="grpcio==1.81.1 protobuf==6.33.6 google-crc32c==1.9.0 cloudpickle==3.1.2 gymnasium==1.2.2"
if [ "$(cat build/torch/packages 2>/dev/null)" != "$packages" ]; then
    /usr/bin/python3 -c 'import torch' 2>/dev/null ||
        { echo "no torch: ./run setup torch, or apt-get install --no-install-recommends python3-torch python3-torchvision" >&2; exit 1; }
    rm -rf build/torch
    /usr/bin/python3 -m venv --system-site-packages build/torch >&2
    # shellcheck disable=SC2086 # one word a package
    build/torch/bin/pip install --quiet --disable-pip-version-check $packages >&2
    printf '%s' "$packages" >build/torch/packages
fi
echo "$PWD/build/torch/bin/python"
