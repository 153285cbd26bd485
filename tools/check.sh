#!/usr/bin/env bash
# Layout, banned calls, who may include whom, names that are unique, functions that are used, and the wire.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bad=0
complain() { printf '%s\n' "$*" >&2; bad=1; }

tools/check_includes.py || complain 'an include or a call above is not allowed; tools/includes.txt has the rules'
tools/check_names.py || complain 'a name above is not unique: structs and static functions need unique names; tools/names.txt has the exceptions'
tools/check_unused.py || complain 'nothing of the product uses a function above: take it out; tools/unused.txt has the exceptions'
PYTHONDONTWRITEBYTECODE=1 python3 tests/integration/documents.py "$PWD" || complain 'a line above of a document is too long, or leads nowhere'
tools/check_limits.py || complain 'the table of shared limits in docs/operations.md differs from the code'
tools/check_promises.py || complain 'docs/promises.md differs from the pages that it quotes or the tests that it names'
tools/minutes.py check || bad=1
# It says itself what to do.
tools/check_wire.py || bad=1

# A source above 200 lines opens with what it does.
while read -r file; do
    [ "$(head -c 2 "$file")" = '/*' ] || [ "$(wc -l <"$file")" -le 200 ] ||
        complain "$file has more than 200 lines: say in two sentences at its top what it does"
done < <(git ls-files '*.c' '*.cc' '*.cu' | grep -v '^tests/')

# Layout, one version of the tool for all: Debian 12's.
layout=$(git ls-files '*.c' '*.h' | xargs clang-format --dry-run --Werror 2>&1) || {
    head -n 40 <<<"$layout" >&2
    complain 'the formatting above is wrong: run ./run format'
}

exit $bad
