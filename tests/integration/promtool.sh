#!/usr/bin/env bash
# Fetches promtool, Prometheus' own checker, once, into build/promtool, out of Debian's package; prints where it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tool=$PWD/build/promtool
if [ ! -x "$tool" ]; then
    printf 'fetching promtool (Debian bookworm, prometheus)\n' >&2
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
    tests/integration/debs.sh bookworm "$dir" prometheus
    mkdir -p build
    cp "$dir/usr/bin/promtool" "$tool"
fi
printf '%s\n' "$tool"
