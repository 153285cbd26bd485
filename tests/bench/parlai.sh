#!/usr/bin/env bash
# Prints the path of a Python that has ParlAI 1.7.2, in a virtual environment of its own under build/, made by the first call.
# Without its heavy dependencies: the worlds and teachers need none of torch, pillow and fvcore (parlai_stand_ins.py has
# their names), and of the rest what is listed here.
# usage: parlai.sh [--torch]    --torch: with them, under PEERS_HOME (~/.cache/peers): they take 5 GB, and its agents that learn need them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=$PWD/build/parlai
if [ "${1-}" = --torch ]; then
    venv=${PEERS_HOME:-$HOME/.cache/peers}/parlai
fi
if ! [ -e "$venv/installed" ]; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip -q install numpy==1.26.4 pyyaml==6.0.2 tqdm==4.62.3 regex==2024.11.6 requests==2.32.3 iopath==0.1.10 nltk==3.9.1 websocket-client==1.9.2 >&2
    if [ "${1-}" = --torch ]; then
        "$venv/bin/python" -m pip -q install torch pillow 'setuptools<80' >&2
        "$venv/bin/python" -m pip -q install --no-deps fvcore yacs termcolor tabulate portalocker >&2
    fi
    "$venv/bin/python" -m pip -q install --no-deps parlai==1.7.2 >&2
    touch "$venv/installed"
fi
printf '%s\n' "$venv/bin/python"
