#!/usr/bin/env bash
# axe-core's script, from PyPI's package of it, in build/axe; prints its path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
package=axe_core_python==0.1.0 script=build/axe/axe_core_python/axe.min.js
if [ ! -f "$script" ]; then
    rm -rf build/axe
    mkdir -p build/axe
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest build/axe "$package" >&2
    python3 -m zipfile -e build/axe/*.whl build/axe
fi
echo "$script"
