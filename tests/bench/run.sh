#!/usr/bin/env bash
# Prints what is fast, as ratios against a reference in the same run.
# usage: tests/bench/run.sh BUILD_DIR MODEL.gguf [echo|attend|engine|products|types|load|conversation|draft|policy|grouped|rhythm|http|clients|load_tools|schemas|schema-pairs|real-schemas|hostile|constrained|choices|thread_pool|worlds|eval|teacher|replay|marks|refused|quotas|rooms|fairness|cache-timing|keys-cost|tutorial|tokenizers|templates|kl|fidelity|gemma|stall|report|page|agreement|drive|journal|cluster|idle|starspace|preprocess|dynamic-batching|env|agents|baselines|coding-agents|optim|rpc|gym|work|long-session|kv-disk|durable|verify|proof|training-kills]… | --determinism
#        tests/bench/run.sh BUILD_DIR MODEL.gguf --peer http://HOST:PORT [--pairs N] [--rows ROW,…] [--json]
#        tests/bench/run.sh BUILD_DIR MODEL.gguf --openvino PEER_MODEL.gguf [the same]
#        tests/bench/run.sh BUILD_DIR MODEL.gguf leaderboard PEER… [--rows ROW,…] [--rounds N] [--files FILE,…] [--reference FILE] [--out FOLDER]
#        tests/bench/run.sh BUILD_DIR MODEL.gguf products --backend NAME
#        tests/bench/run.sh BUILD_DIR MODEL.gguf load SHAPE TYPE      see shapes.py
#        tests/bench/run.sh BUILD_DIR MODEL.gguf shapes [SHAPE:TYPE]… [--rounds N] [--tokens N]   see sizes.py
#        tests/bench/run.sh BUILD_DIR MODEL.gguf starspace --parlai [SEEDS]
#        tests/bench/run.sh BUILD_DIR MODEL.gguf dynamic-batching --parlai [--examples N] [--rounds N]
#        tests/bench/run.sh BUILD_DIR MODEL.gguf tutorial [--rpc unary,stream,python,vector] [--world W] [--pairs N] [--mode MODE,…]
#        tests/bench/run.sh BUILD_DIR MODEL.gguf --endurance [MINUTES] [--json]
#        tests/bench/run.sh BUILD_DIR MODEL.gguf history [--kills N] [--seed N] | history --mutations [NAME…]
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
build=$1 model=$2
shift 2

# by_python SCRIPT [arguments]: with the foreign client of the tests
by_python() {
    "$here/../integration/venv.sh"
    PARLEY_STUBS=$PWD/build/venv/stubs PARLEY_PACKAGE=$PWD/build/venv/package PYTHONDONTWRITEBYTECODE=1 build/venv/bin/python "$here/$1" "$build" "$model" "${@:2}"
}

# shaped SHAPE TYPE: the path of a file of random weights
shaped() {
    "$here/../integration/venv.sh"
    PYTHONDONTWRITEBYTECODE=1 build/venv/bin/python "$here/shapes.py" "$model" "$1" "$2"
}

# tutorial [options]: with a Python that has torch
tutorial() {
    local python
    "$here/../integration/venv.sh"
    python=$("$here/../support/torch.sh")
    PARLEY_PACKAGE=$PWD/build/venv/package PYTHONDONTWRITEBYTECODE=1 "$python" "$here/tutorial.py" "$build" "$@"
}

# baselines [ppo|sac]… [--seeds N…] [--steps N]: with a Python that has torch 2 and stable-baselines3
baselines() {
    local python
    python=$("$here/baselines.sh")
    "$here/../integration/venv.sh"
    PYTHONPATH=$PWD/build/venv/package PYTHONDONTWRITEBYTECODE=1 "$python" "$here/baselines.py" "$build" "$@"
}

# kv_disk_faults KILLS [FLIPS]: how often the store of KV pages is killed, and its bytes are changed
kv_disk_faults() {
    local flips=${2-10000}
    PARLEY_KV_KILLS=$1 PARLEY_KV_FLIPS=$flips "$build/tests/unit/compute/test_compute_kv_disk"
    PARLEY_KV_FLIPS=$((flips / 50)) "$build/tests/unit/agents/lm/test_agents_lm_disk"
}

# durable [KILLS [TURNS]]
durable() {
    "$here/../integration/venv.sh"
    PARLEY_STUBS=$PWD/build/venv/stubs PARLEY_PACKAGE=$PWD/build/venv/package PYTHONDONTWRITEBYTECODE=1 PARLEY_TEST_SECONDS=86400 \
        build/venv/bin/python "$here/../history/test_durable.py" "$build/parleyd" "$build/tests/integration/write_tiny_model" "${1-1000}" "${2-43}"
}

# long proof [TURNS [CONVERSATIONS [CHANGES [WEIGHTS [SEED]]]]] | long training-kills [KILLS [SEED]]
long() {
    PARLEY_TEST_SECONDS=86400 by_python "${1//-/_}.py" "${@:2}"
}

# beside_postgres SCRIPT [arguments]: as by_python, beside a PostgreSQL of its own
beside_postgres() {
    "$here/../integration/venv.sh"
    PARLEY_STUBS=$PWD/build/venv/stubs PARLEY_PACKAGE=$PWD/build/venv/package PYTHONDONTWRITEBYTECODE=1 \
        "$(realpath "$here/../support/postgres.sh")" build/venv/bin/python "$here/$1" "$build" "$model" "${@:2}"
}

case ${1-} in
--peer) by_python compare.py "$@"; exit ;;
--openvino)
    [ $# -ge 2 ] || { sed -n '5s/^# *//p' "$0" >&2; exit 2; }
    OPENVINO_PYTHON=$("$here/openvino.sh")
    export OPENVINO_PYTHON
    by_python compare.py "$@"
    exit
    ;;
starspace)
    if [ "${2-}" = --parlai ]; then
        exec python3 "$here/starspace.py" "$build" --parlai "$("$here/parlai.sh" --torch)" "${@:3}"
    fi
    ;;
dynamic-batching)
    if [ "${2-}" = --parlai ]; then
        exec python3 "$here/dynamic_batching.py" "$build" --parlai "$("$here/parlai.sh" --torch)" "${@:3}"
    fi
    ;;
tutorial) case ${2-} in -*) tutorial "${@:2}"; exit ;; esac ;;
baselines)
    baselines "${@:2}"
    exit
    ;;
idle) case ${2-} in -*) by_python idle.py "${@:2}"; exit ;; esac ;;
cluster) case ${2-} in -*) beside_postgres cluster.py "${@:2}"; exit ;; esac ;;
long-session) case ${2-} in -*) by_python long_session.py "${@:2}"; exit ;; esac ;;
kv-disk) case ${2-} in [0-9]*) kv_disk_faults "${@:2}"; exit ;; esac ;;
durable) case ${2-} in [0-9]*) durable "${@:2}"; exit ;; esac ;;
proof | training-kills) case ${2-} in [0-9]*) long "$@"; exit ;; esac ;;
history) by_python ../history/bench.py "${@:2}"; exit ;;
replay)
    if [ "${2-}" = --reverb ]; then
        by_python replay_beside.py "$("$here/reverb.sh")" "${@:3}"
        exit
    fi
    ;;
products)
    if [ "${2-}" = --backend ]; then
        exec "$build/tests/bench/bench_products" "${@:2}" "$model"
    fi
    ;;
load)
    if [ $# -eq 3 ]; then
        file=$(shaped "$2" "$3")
        exec "$build/tests/bench/bench_load" "$file"
    fi
    ;;
leaderboard) by_python leaderboard.py "${@:2}"; exit ;;
shapes) by_python sizes.py "${@:2}"; exit ;;
--endurance) by_python endurance.py "${@:2}"; exit ;;
esac
[ $# -gt 0 ] || set -- echo engine conversation draft policy grouped rhythm
for what; do
    printf '== %s\n' "$what"
    case $what in
    echo) "$build/tests/bench/echo" "$build/parleyd" --plugin "$build/agents/plugin/examples/echo.so" ;;
    attend) "$build/tests/bench/bench_attend" ;;
    teacher) "$build/tests/bench/bench_teacher" ;;
    engine) "$build/tests/bench/bench_engine" "$model" ;;
    products) "$build/tests/bench/bench_products" "$model" "$("$here/onednn.sh")" ;;
    types)
        for set in avx512 vnni256 avx2; do
            PARLEY_CPU=$set "$build/tests/bench/bench_types" 1 || true # says which sets the processor lacks
        done
        ;;
    load)
        "$build/tests/bench/bench_load" "$model"
        file=$(shaped 1B Q4_K_M)
        "$build/tests/bench/bench_load" "$file"
        ;;
    conversation) "$build/tests/bench/bench_conversation" ;;
    draft) "$build/tests/bench/bench_draft" "$model" ;;
    policy) "$build/tests/bench/bench_policy" ;;
    grouped) "$build/tests/bench/bench_grouped" "$build/parleyd" ;;
    env) by_python environments.py ;;
    replay) "$build/tests/bench/bench_replay" "$build/parleyd" ;;
    rhythm) "$build/tests/bench/bench_rhythm" "$model" ;;
    worlds)
        data=$(mktemp -d)
        "$build/tests/bench/bench_worlds" --make "$data/all.txt" 50000
        head -n 10000 "$data/all.txt" >"$data/some.txt"
        python=$("$here/parlai.sh")
        status=0
        "$build/tests/bench/bench_worlds" "$data/all.txt" "$("$python" -P "$here/parlai_worlds.py" "$data/some.txt" repeat_label 64)" || status=$?
        rm -r "$data"
        [ $status = 0 ] || exit $status
        ;;
    idle) by_python idle.py ;;
    kv-disk)
        file=$(shaped 1B Q4_K_M)
        PYTHONPATH=$here/../integration PYTHONDONTWRITEBYTECODE=1 python3 "$here/kv_disk.py" "$build" "$model" "$file"
        ;;
    durable) durable ;;
    proof | training-kills) long "$what" ;;
    rooms) python3 "$here/rooms.py" "$build" "$model" ;;
    http) python3 "$here/bench_http.py" "$build" "$model" ;;
    clients) python3 "$here/../clients/run.py" "$build" "$model" ;;
    load_tools) python3 "$here/load_tools.py" "$build" "$model" ;;
    schemas) python3 "$here/../clients/schemas.py" "$build" "$model" ;;
    schema-pairs)
        "$here/../integration/schema_pairs.sh" --make
        # 10^6 pairs in all
        PARLEY_GRAMMAR_MODULE=$build/agents/lm/grammar/libparley-grammar.so \
            "$here/../integration/schema_pairs.sh" --seeds "$build/tests/unit/agents/lm/grammar/schema_verdicts" 3001 3050
        ;;
    real-schemas) python3 "$here/../clients/real_schemas.py" "$build" "$model" ;;
    hostile) python3 "$here/hostile.py" "$build" "$model" ;;
    constrained) python3 "$here/constrained.py" "$build" "$model" ;;
    choices) python3 "$here/../clients/lm_eval_choices.py" "$build" "$model" ;;
    thread_pool) "$build/tests/bench/bench_thread_pool" ;;
    eval) python3 "$here/eval_batches.py" "$build" "$model" ;;
    --determinism) PARLEY_MODEL=$model "$build/tests/determinism/same_bytes" whole ;;
    tokenizers)
        [ -x build/tokenizers/bin/python ] || python3 -m venv build/tokenizers
        build/tokenizers/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3 sentencepiece==0.2.3 protobuf==7.36.2 >&2
        build/tokenizers/bin/python "$here/token_ids.py" "$build/parley"
        build/tokenizers/bin/python tests/integration/tokenizer_json.py "$build/parley" 20000
        ;;
    templates) by_python templates.py ;;
    kl) by_python kl.py ;;
    fidelity) by_python fidelity.py ;;
    gemma) python3 "$here/gemma.py" "$build" ;;
    verify) PARLEY_TEST_SECONDS=3600 by_python verify.py ;;
    long-session) by_python long_session.py ;;
    marks) by_python marks.py ;;
    refused) by_python refused.py ;;
    quotas) by_python quotas.py ;;
    fairness) by_python fairness.py ;;
    cache-timing) by_python cache_timing.py ;;
    keys-cost) python3 "$here/keys_cost.py" "$build" ;;
    tutorial) tutorial ;;
    stall) python3 "$here/stall.py" "$build/parley" ;;
    agreement) by_python agreement.py kserve openai ;;
    agents) by_python agents.py ;;
    coding-agents)
        "$here/coding_agents.sh" "$build"
        PARLEY_PACKAGE=$PWD/build/venv/package PARLEY_STUBS=$PWD/build/venv/stubs build/venv/bin/python "$here/../integration/test_traces.py" \
            "$build/parleyd" "$build/tests/integration/write_tiny_model" "$build/tests/integration/scripted_agent.so" --whole prefixes
        ;;
    gym) by_python gym.py ;;
    work) by_python work.py ;;
    rpc)
        "$here/../integration/venv.sh"
        python=$("$here/../support/torch.sh")
        PARLEY_PACKAGE=$PWD/build/venv/package PYTHONDONTWRITEBYTECODE=1 "$python" "$here/rpc.py" "$build"
        ;;
    baselines) baselines ;;
    optim)
        "$here/../integration/venv.sh"
        python=$("$here/../support/torch.sh")
        PARLEY_PACKAGE=$PWD/build/venv/package PYTHONDONTWRITEBYTECODE=1 "$python" "$here/optim.py" "$build" "$model"
        PARLEY_PACKAGE=$PWD/build/venv/package PYTHONDONTWRITEBYTECODE=1 "$python" "$here/params_step.py" "$build"
        ;;
    drive) python3 "$here/drive.py" "$build" ;;
    journal) by_python journal.py ;;
    cluster) beside_postgres cluster.py ;;
    report) python3 "$here/report.py" "$build" ;;
    page) python3 "$here/../browser/bench.py" "$build" "$model" ;;
    dynamic-batching) python3 "$here/dynamic_batching.py" "$build" ;;
    starspace) python3 "$here/starspace.py" "$build" ;;
    preprocess) python3 "$here/preprocess.py" "$build" ;;
    *)
        printf 'no bench is called %s; there are: %s\n' "$what" "$(sed -n '3s/.*MODEL.gguf \[\([^]]*\)\].*/\1/p' "$0" | sed 's/|/, /g')" >&2
        exit 2
        ;;
    esac
done
