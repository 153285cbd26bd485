#!/usr/bin/env bash
# The foreign client of the tests: Python's grpcio in build/venv, with stubs made from proto/ into
# build/venv/stubs. Made once, and again when what it is made from changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=build/venv
packages="grpcio==1.81.1 grpcio-tools==1.81.1 grpcio-health-checking==1.81.1"
stamp=$(cat proto/parley/v1/*.proto | sha256sum)$packages
[ "$(cat "$venv/made" 2>/dev/null)" = "$stamp" ] && exit
printf 'making build/venv: %s\n' "$packages" >&2
rm -rf "$venv"
for python in python3 /usr/bin/python3; do
    "$python" -m venv "$venv" >/dev/null 2>&1 && break
done
# shellcheck disable=SC2086 # one word a package
"$venv/bin/pip" install --quiet --disable-pip-version-check $packages >&2
mkdir -p "$venv/stubs"
"$venv/bin/python" -m grpc_tools.protoc -Iproto --python_out="$venv/stubs" --grpc_python_out="$venv/stubs" proto/parley/v1/*.proto
printf '%s' "$stamp" >"$venv/made"
