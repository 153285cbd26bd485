#!/usr/bin/env bash
# Runs a test by the interpreter of build/venv, which need not be there when the build is configured.
# usage: run_python.sh PYTHON SCRIPT ARGUMENTS…
set -euo pipefail
[ -x "$1" ] || { echo "no $1: tests/integration/venv.sh makes it" >&2; exit 1; }
exec "$@"
