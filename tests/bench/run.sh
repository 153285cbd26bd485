#!/usr/bin/env bash
# Prints what is fast, as ratios against a reference in the same run.
# usage: tests/bench/run.sh BUILD_DIR MODEL.gguf [echo|engine|conversation|draft|policy]… | --determinism
set -euo pipefail
build=$1 model=$2
shift 2
[ $# -gt 0 ] || set -- echo engine conversation draft policy
for what; do
    printf '== %s\n' "$what"
    case $what in
    echo) "$build/tests/bench/echo" "$build/parleyd" ;;
    engine) "$build/tests/bench/bench_engine" "$model" ;;
    conversation) "$build/tests/bench/bench_conversation" ;;
    draft) "$build/tests/bench/bench_draft" "$model" ;;
    policy) "$build/tests/bench/bench_policy" ;;
    --determinism) PARLEY_MODEL=$model "$build/tests/determinism/same_bytes" whole ;;
    *) printf 'no bench is called %s; there are: echo, engine, conversation, draft, policy\n' "$what" >&2; exit 2 ;;
    esac
done
