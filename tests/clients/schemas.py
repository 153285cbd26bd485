#!/usr/bin/env python3
"""Replies under a JSON schema, with the default model: of 200 schemas (schemas.jsonl; draw_schemas.py drew them), each greedy and sampled, how many
replies end by themselves, and whether those validate with Python's jsonschema. Before it the official suite's verdicts.

usage: schemas.py BUILD_DIR MODEL.gguf [--every N] [--tokens N]      exit 3: fewer than 95 % end, or one that ended does not validate
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "integration"), str(HERE)]
import children  # noqa: E402
import environments  # noqa: E402

LEAST_ENDED = 0.95
N_AT_ONCE = 16
WAYS = {"greedy": {"temperature": 0}, "sampled": {"temperature": 1, "seed": 24}}
SUITE = "build/schema_suite/jsonschema-4.25.1/json/tests"


def ask(http, drawn, way, n_tokens):
    """How the reply ended, and its text; or that the schema is refused, and why."""
    body = {"messages": [{"role": "user", "content": "Answer with a short example."}], "max_tokens": n_tokens, **WAYS[way],
            "response_format": {"type": "json_schema", "json_schema": {"name": "one", "strict": True, "schema": drawn["schema"]}}}
    request = urllib.request.Request(f"http://{http}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=900) as answer:
            choice = json.load(answer)["choices"][0]
        if choice["finish_reason"] != "stop":
            print(f"did not end: {drawn['part']}: {drawn['name']}, {way}: …{choice['message']['content'][-120:]!r}", flush=True)
        return choice["finish_reason"], choice["message"]["content"]
    except urllib.error.HTTPError as error:
        said = json.load(error)["error"]["message"]
        assert error.code == 400, (drawn["name"], error.code, said)
        return "refused", said


def validate(pairs, python=None):
    """Runs in an environment that has jsonschema: for each pair of a schema and a text "" or what is wrong, formats included."""
    script = ("import json, sys, jsonschema\n"
              "checker = jsonschema.Draft202012Validator.FORMAT_CHECKER\n"
              "for line in sys.stdin:\n"
              "    schema, text = json.loads(line)\n"
              "    try:\n"
              "        jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(text)); print('\"\"')\n"
              "    except Exception as e:\n"
              "        print(json.dumps(type(e).__name__ + ': ' + str(e).split(chr(10))[0][:200]))\n")
    done = subprocess.run([python or environments.python_of("frameworks"), "-c", script], input="".join(json.dumps(p) + "\n" for p in pairs),
                          capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--every", type=int, default=1, help="of so many schemas one")
    parser.add_argument("--tokens", type=int, default=1024, help="the most that a reply may have")
    options = parser.parse_args()
    verdicts = f"{options.build}/tests/unit/agents/lm/grammar/schema_verdicts"
    is_well = subprocess.run([sys.executable, str(HERE.parent / "integration" / "schema_suite.py"), verdicts, SUITE], check=False).returncode == 0
    schemas = [json.loads(line) for line in (HERE / "schemas.jsonl").read_text(encoding="utf-8").splitlines()][::options.every]
    with children.Daemon(f"{options.build}/parleyd", "--http", "127.0.0.1:0", "--model", f"smollm2={options.model}") as parley, \
            concurrent.futures.ThreadPoolExecutor(N_AT_ONCE) as pool:
        jobs = [(s, way, pool.submit(ask, parley.http, s, way, options.tokens)) for s in schemas for way in WAYS]
        said = [(s, way, *job.result()) for s, way, job in jobs]
    ended = [(s, way, text) for s, way, finish, text in said if finish == "stop"]
    wrong = [(s, way, text, why) for (s, way, text), why in zip(ended, validate([(s["schema"], text) for s, _, text in ended])) if why]
    n_cut = sum(finish not in ("stop", "refused") for _, _, finish, _ in said)
    for s, way, text, why in wrong:
        print(f"does not validate: {s['part']}: {s['name']}, {way}: {why}: {text[:200]!r}")
    for s, text in {s["name"]: (s, text) for s, _, finish, text in said if finish == "refused"}.values():
        print(f"refused: {s['part']}: {s['name']}: {text}")
    counts = collections.Counter((s["part"], way, finish) for s, way, finish, _ in said)
    for (part, way, finish), n in sorted(counts.items()):
        print(f"{part:10} {way:8} {finish:8} {n:4}")
    share = len(ended) / max(1, len(ended) + n_cut)
    print(f"{len(ended)} of {len(ended) + n_cut} replies ended by themselves ({share:.1%}), {len(wrong)} of them do not validate")
    sys.exit(0 if is_well and share >= LEAST_ENDED and not wrong else 3)


if __name__ == "__main__":
    main()
