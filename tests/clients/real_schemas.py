#!/usr/bin/env python3
"""Replies under the real schemas of collect_schemas.py, with the default model (or one of random weights with its vocabulary, `shapes.py MODEL 3M BF16`,
which says anything, and a hundred times as fast: what ends a reply is the constraint): how many schemas are refused when strict, and why; what compiling
takes; and of the others, greedy and sampled, with 60, 200 and 1,000 tokens, how many replies end by themselves where the shortest one fits, and
whether those validate with Python's jsonschema.

usage: real_schemas.py BUILD_DIR MODEL.gguf [--every N] [--offset N] [--tokens N,N] [--also FILE]
       FILE: more schemas, in lines of {"kind", "name", "schema"}
exit 3: more than 12 % are refused, a reply does not end where the shortest one fits, or one that ended does not validate
"""
import argparse
import collections
import concurrent.futures
import gzip
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "integration"), str(HERE)]
import children  # noqa: E402
import schemas  # noqa: E402

MOST_REFUSED = 0.12
PYTHON = "build/schema_pairs/bin/python"  # schema_pairs.sh makes it


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--every", type=int, default=1, help="of so many schemas one is asked for replies")
    parser.add_argument("--offset", type=int, default=0, help="the first of them")
    parser.add_argument("--tokens", default="60,200,1000", help="the most that a reply may have")
    parser.add_argument("--also", help="a file of more schemas")
    options = parser.parse_args()
    subprocess.run([f"{HERE.parent}/integration/schema_pairs.sh", "--make"], check=True)
    drawn = [json.loads(line) for line in gzip.decompress((HERE / "real_schemas.jsonl.gz").read_bytes()).decode().splitlines()]
    if options.also:
        drawn += [json.loads(line) for line in pathlib.Path(options.also).read_text(encoding="utf-8").splitlines()]
    module = {"PARLEY_GRAMMAR_MODULE": f"{options.build}/agents/lm/grammar/libparley-grammar.so"}
    compiled = subprocess.run([f"{options.build}/tests/bench/bench_schemas", options.model], input="".join(json.dumps(s) + "\n" for s in drawn),
                              capture_output=True, text=True, check=True, env=os.environ | module).stdout.splitlines()[1:]  # the first is the vocabulary
    costs = [json.loads(line) for line in compiled]
    assert len(costs) == len(drawn)
    by_kind = collections.Counter((s["kind"], c["refused_by"] != "") for s, c in zip(drawn, costs))
    for kind in sorted({s["kind"] for s in drawn}):
        print(f"{kind:10} {by_kind[kind, False]:4} compile, {by_kind[kind, True]:3} are refused")
    for why, n in collections.Counter(c["why"].split(": ", 1)[-1] for c in costs if c["refused_by"]).most_common():
        print(f"{n:4} refused: {why}")
    times = sorted(c["compiler_ms"] + c["engine_ms"] for c in costs if not c["refused_by"])
    share = sum(c["refused_by"] != "" for c in costs) / len(costs)
    print(f"{share:.1%} of {len(costs)} are refused; the others take {times[len(times) // 2]:.0f} ms of processor time in the median, {times[-1]:.0f} at most",
          flush=True)

    asked = [(s, c["least_tokens"]) for s, c in zip(drawn, costs) if not c["refused_by"]][options.offset::options.every]
    with children.Daemon(f"{options.build}/parleyd", "--http", "127.0.0.1:0", "--model", f"smollm2={options.model}") as parley, \
            concurrent.futures.ThreadPoolExecutor(schemas.N_AT_ONCE) as pool:
        jobs = [(s, least, way, n, pool.submit(schemas.ask, parley.http, s | {"part": s["kind"]}, way, n))
                for n in map(int, options.tokens.split(",")) for s, least in asked for way in schemas.WAYS]
        said = [(s, least, way, n, *job.result()) for s, least, way, n, job in jobs]
    counts = collections.Counter((n, way, "ended" if finish == "stop" else finish if least <= n else "does not fit") for _, least, way, n, finish, _ in said)
    for (n, way, finish), count in sorted(counts.items()):
        print(f"{n:5} tokens, {way:8} {finish:12} {count:4}")
    ended = [(s, way, n, text) for s, _, way, n, finish, text in said if finish == "stop"]
    wrong = [(s, way, n, text, why) for (s, way, n, text), why in zip(ended, schemas.validate([(s["schema"], text) for s, _, _, text in ended], PYTHON)) if why]
    for s, way, n, text, why in wrong:
        print(f"does not validate: {s['name']}, {way}, {n}: {why}: {text[:200]!r}")
    n_cut = sum(finish != "stop" and least <= n for _, least, _, n, finish, _ in said)
    print(f"{len(ended)} replies ended by themselves, {n_cut} did not though the shortest one fits, {len(wrong)} do not validate")
    sys.exit(3 if wrong or n_cut or share > MOST_REFUSED else 0)


main()
