#!/usr/bin/env bash
# The foreign programs of the tests: Python's grpcio, numpy, gymnasium, openai, anthropic, ollama, cloudpickle, jinja2, tokenizers, h2,
# google-crc32c and connectrpc in build/venv, with stubs made from proto/ into build/venv/stubs, and our own package, unpacked from its wheel
# into build/venv/package. Each is made once, and again when what it is made from changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=build/venv
packages="grpcio==1.81.1 grpcio-reflection==1.81.1 grpcio-status==1.81.1 tritonclient[grpc]==2.73.0 grpcio-tools==1.81.1 grpcio-health-checking==1.81.1 numpy==2.3.5 gymnasium==1.2.2 openai==3.54.0 anthropic==2.14.0 ollama==0.6.3 gguf==0.19.0 cloudpickle==3.1.2 jinja2==3.1.6 tokenizers==0.23.3 h2==4.4.1 google-crc32c==1.9.0 connectrpc==0.13.0"
if [ "$(cat "$venv/packages" 2>/dev/null)" != "$packages" ]; then
    printf 'making build/venv: %s\n' "$packages" >&2
    rm -rf "$venv"
    for python in python3 /usr/bin/python3; do
        "$python" -m venv "$venv" >/dev/null 2>&1 && break
    done
    # shellcheck disable=SC2086 # one word a package
    "$venv/bin/pip" install --quiet --disable-pip-version-check $packages >&2
    printf '%s' "$packages" >"$venv/packages"
fi
protos=$(cat proto/parley/v1/*.proto | sha256sum)
if [ "$(cat "$venv/protos" 2>/dev/null)" != "$protos" ]; then
    rm -rf "$venv/stubs"
    mkdir "$venv/stubs"
    "$venv/bin/python" -m grpc_tools.protoc -Iproto --python_out="$venv/stubs" --grpc_python_out="$venv/stubs" proto/parley/v1/*.proto
    "$venv/bin/python" -m compileall -q "$venv/stubs" # tests write no bytecode
    printf '%s' "$protos" >"$venv/protos"
fi
package=$(find client/python proto/parley/v1 meson.build tools/wheel.sh -type f -not -path '*/__pycache__/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum)
if [ "$(cat "$venv/package.sha256" 2>/dev/null)" != "$package" ]; then
    rm -rf "$venv/package"
    wheel=$(tools/wheel.sh "$venv/bin/python" "$venv/wheel")
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$venv/package" "$wheel" >&2
    printf '%s' "$package" >"$venv/package.sha256"
fi
