#!/usr/bin/env bash
# Builds the Python package of client/python as a wheel, and prints its path. The sources are copied first: a build leaves
# files among them.
# usage: tools/wheel.sh PYTHON OUT_FOLDER      (PYTHON has pip, setuptools and grpcio-tools)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(realpath -s "$1")
mkdir -p "$2" build
out=$(realpath "$2")
tree=$(mktemp -d build/wheel.XXXXXX)
# shellcheck disable=SC2064 # the folder of now
trap "rm -rf '$PWD/$tree'" EXIT
mkdir -p "$tree/client"
cp -r client/python "$tree/client/"
cp -r proto meson.build "$tree/"
rm -f "$out"/{parley,parleyd}-*-py3-none-any.whl
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$out" "$tree/client/python" >&2
echo "$out"/parleyd-*-py3-none-any.whl
