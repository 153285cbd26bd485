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

# A package list of its own, so that apt's on this machine stays as it is.
fetch_libraries() {
    local apt=$dir/apt options
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/debs"
    touch "$apt/status"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian %s main\n' "$suite" >"$apt/sources.list"
    options=(-o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$apt"
        -o "Dir::State::Lists=$apt/lists" -o "Dir::State::Status=$apt/status" -o "Dir::Cache=$apt/cache" -o APT::Architecture=amd64)
    apt-get "${options[@]}" update -qq >&2
    (cd "$apt/debs" && apt-get "${options[@]}" download -qq "${packages[@]}" >&2)
    for deb in "$apt"/debs/*.deb; do
        dpkg-deb -x "$deb" "$dir/root"
    done
    rm -rf "$apt"
}

if [ ! -x "$run" ]; then
    printf 'fetching perf_analyzer %s (PyPI) and the libraries it needs (Debian %s)\n' "$version" "$suite" >&2
    rm -rf "$dir"
    mkdir -p "$dir"
    fetch_wheel
    fetch_libraries
    libraries=$dir/root/usr/lib/x86_64-linux-gnu
    printf '#!/bin/sh\nexec "%s/ld-linux-x86-64.so.2" --library-path "%s" "%s" "$@"\n' \
        "$libraries" "$libraries" "$dir/wheel/perf_analyzer/bin/perf_analyzer" >"$run"
    chmod +x "$run"
fi
printf '%s\n' "$run"
