#!/usr/bin/env bash
# Drawn schemas and instances, judged by PyPI's validators too.
# usage: schema_pairs.sh --make | schema_pairs.sh VERDICTS PAIRS [SEED] | schema_pairs.sh --seeds VERDICTS FIRST LAST
# --make puts the validators into build/schema_pairs, once; without them the test is skipped. --seeds draws 20,000 pairs for each seed; what was
# said of one is kept there, and a run that was ended goes on behind it, as long as the programs are the same.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$here/../../build/schema_pairs
packages="jsonschema==4.26.0 jsonschema-rs==0.61.2 rfc3339-validator==0.1.4"
if [ "${1-}" = --make ]; then
    [ "$(cat "$venv/packages" 2>/dev/null)" != "$packages" ] || exit 0
    rm -rf "$venv"
    for python in python3 /usr/bin/python3; do
        "$python" -m venv "$venv" >/dev/null 2>&1 && break
    done
    # shellcheck disable=SC2086 # one word a package
    "$venv/bin/pip" install --quiet --disable-pip-version-check $packages >&2
    printf '%s' "$packages" >"$venv/packages"
    exit
fi
[ -f "$venv/packages" ] || { echo "the validators are not there: ./run test fetches them"; exit 77; }
if [ "${1-}" = --seeds ]; then
    of=$(cat "$2" "$PARLEY_GRAMMAR_MODULE" "$here/schema_pairs.py" | sha256sum | cut -c 1-16)
    mkdir -p "$venv/$of"
    for seed in $(seq "$3" "$4"); do
        if ! [ -f "$venv/$of/$seed" ]; then
            "$venv/bin/python" "$here/schema_pairs.py" "$2" 20000 "$seed" >"$venv/$of/part" || { cat "$venv/$of/part"; exit 1; }
            mv "$venv/$of/part" "$venv/$of/$seed"
        fi
        cat "$venv/$of/$seed"
    done
    exit
fi
exec "$venv/bin/python" "$here/schema_pairs.py" "$@"
