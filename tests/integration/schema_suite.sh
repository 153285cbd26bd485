#!/usr/bin/env bash
# The official JSON-Schema suite, where it was fetched. usage: schema_suite.sh VERDICTS SUITE
set -euo pipefail
[ -d "$2" ] || { echo "the suite is not there: ./run test fetches it"; exit 77; }
exec python3 "$(dirname "${BASH_SOURCE[0]}")/schema_suite.py" "$@"
