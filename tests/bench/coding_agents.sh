#!/usr/bin/env bash
# Coding agents as their makers publish them on PyPI, in environments of their own below build/coding_agents: Codex, Claude Code and OpenAI's
# agents in one, aider in another, since it pins other versions of the same packages. Each is made once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
make() { # make NAME PACKAGES
    local at=build/coding_agents/$1
    [ "$(cat "$at/packages" 2>/dev/null)" != "$2" ] || return 0
    printf 'making %s: %s\n' "$at" "$2" >&2
    rm -rf "$at"
    mkdir -p build/coding_agents
    python3 -m venv "$at"
    # shellcheck disable=SC2086 # one word a package
    "$at/bin/pip" install --quiet --disable-pip-version-check $2 >&2
    printf '%s' "$2" >"$at/packages"
}
make agents "openai-codex-cli-bin==0.163.0 claude-agent-sdk==0.2.189 openai-agents==0.24.0"
make aider "aider-chat==0.86.2"
tests/integration/venv.sh
exec build/venv/bin/python tests/bench/coding_agents.py "$@"
