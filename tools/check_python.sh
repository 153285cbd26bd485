#!/usr/bin/env bash
# The Python package: its layout and its names by ruff, its types by mypy --strict, with the settings of its pyproject.toml. Both programs
# are made in build/lint, once; types are checked in the package of build/venv, where the messages are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages="ruff==0.17.6 mypy==2.4.1"
tests/integration/venv.sh
if [ "$(cat build/lint/packages 2>/dev/null)" != "$packages" ]; then
    rm -rf build/lint
    build/venv/bin/python -m venv build/lint
    # shellcheck disable=SC2086 # one word a package
    build/lint/bin/pip install --quiet --disable-pip-version-check $packages >&2
    printf '%s' "$packages" >build/lint/packages
fi
settings=$PWD/client/python/pyproject.toml
bad=0
build/lint/bin/ruff check --quiet --no-cache --config "$settings" client/python/parley client/python/parleyd || bad=1
build/lint/bin/ruff check --quiet --no-cache --config "$settings" --ignore I client/examples || bad=1 # which of their modules is theirs it cannot know
(cd build/venv/package && ../../lint/bin/mypy --no-error-summary --cache-dir ../../lint/cache --config-file "$settings" --python-executable ../bin/python -p parley) || bad=1
build/lint/bin/mypy --no-error-summary --cache-dir build/lint/cache --config-file "$settings" client/python/parleyd/*.py || bad=1
exit $bad
