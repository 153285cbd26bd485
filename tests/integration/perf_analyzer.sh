#!/usr/bin/env bash
# Fetches perf_analyzer, NVIDIA's load tester, once, into build/perf_analyzer, and prints the command that runs it. Its
# wheel wants a newer glibc than Debian 12 has; that comes from Debian 13's packages, unpacked beside it: nothing is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
dir=$PWD/build/perf_analyzer
version=2.60.0
suite=trixie
packages=(libc6 libstdc++6 libgcc-s1 libssl3t64 zlib1g)
run=$dir/run

fetch_wheel() {
    local python
    for python in python3 /usr/bin/python3; do
        "$python" -m pip --version >/dev/null 2>&1 && break
    done
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --platform manylinux_2_38_x86_64 --dest "$dir" "perf-analyzer==$version" >&2
    "$python" -m zipfile -e "$dir"/perf_analyzer-*.whl "$dir/wheel"
    rm "$dir"/perf_analyzer-*.whl
    chmod +x "$dir/wheel/perf_analyzer/bin/perf_analyzer"
}

if [ ! -x "$run" ]; then
    printf 'fetching perf_analyzer %s (PyPI) and the libraries it needs (Debian %s)\n' "$version" "$suite" >&2
    rm -rf "$dir"
    mkdir -p "$dir"
    fetch_wheel
    tests/integration/debs.sh "$suite" "$dir/root" "${packages[@]}"
    libraries=$dir/root/usr/lib/x86_64-linux-gnu
    printf '#!/bin/sh\nexec "%s/ld-linux-x86-64.so.2" --library-path "%s" "%s" "$@"\n' \
        "$libraries" "$libraries" "$dir/wheel/perf_analyzer/bin/perf_analyzer" >"$run"
    chmod +x "$run"
fi
printf '%s\n' "$run"
