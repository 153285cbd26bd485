#!/usr/bin/env bash
# Layout, banned calls, who may include whom, names that are unique, and the wire.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bad=0
complain() { printf '%s\n' "$*" >&2; bad=1; }

tools/check_includes.py || complain 'tools/includes.txt says who may include whom, and which calls are banned'
tools/check_names.py || complain 'a struct has a name of its own, and so has a static function; tools/names.txt says what may share one'
# It says itself what to do.
tools/check_wire.py || bad=1

# Layout, one version of the tool for all: Debian 12's.
git ls-files '*.c' '*.h' | xargs clang-format --dry-run --Werror 2>&1 | head -n 40 || true
git ls-files '*.c' '*.h' | xargs clang-format --dry-run --Werror >/dev/null 2>&1 ||
    complain './run format lays the sources out'

exit $bad
