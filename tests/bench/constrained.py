#!/usr/bin/env python3
"""Tokens a second of 64 conversations under a common schema, and under one that forces most of the text, beside free ones: loads of parley
bench on one daemon, that take turns.

usage: constrained.py BUILD_DIR MODEL.gguf [--rounds N] [--rows N] [--tokens N]
exit 3: under the common schema less than 0.97 of the free throughput, or where most is forced not more than it
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
import children  # noqa: E402


def an_object(members):
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


# What programs ask for: names, a text, numbers, a choice, a list. And a questionnaire: its keys are most of a reply.
COMMON = an_object({"name": {"type": "string"}, "summary": {"type": "string"}, "year": {"type": "integer"}, "rating": {"enum": ["good", "fair", "poor"]},
                    "tags": {"type": "array", "items": {"type": "string"}}})
QUESTIONS = ("the customer wants a refund", "the customer has written before", "the parcel came later than promised", "the parcel was damaged on the way",
             "an answer is expected today", "a manager has to be told")
FORCED = an_object({question.replace(" ", "_"): {"type": "boolean"} for question in QUESTIONS})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=96, help="of a reply")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, \
            children.Daemon(f"{options.build}/parleyd", "--model", f"m={options.model}") as parley:
        def load(schema):
            command = [f"{options.build}/parley", "bench", f"parley://{parley.address}", "--concurrency", str(options.rows), "--requests", str(options.rows),
                       "--input-tokens", "32", "--output-tokens", str(options.tokens), "--json"]
            if schema is None:
                command += ["--ignore-eos"]
            else:
                path = pathlib.Path(folder, "schema.json")
                path.write_text(json.dumps(schema), encoding="utf-8")
                command += ["--schema", str(path)]
            said = json.loads(children.run(command, check=True, capture_output=True, text=True, timeout=600).stdout)
            assert said["failed"] == 0, said
            return said["output_throughput"], said["total_output_tokens"] / said["server_cpu_s"]

        ways = {"free": None, "common schema": COMMON, "mostly forced": FORCED}
        for schema in ways.values():  # compiles the schemas
            load(schema)
        ratios = {way: {"clock": [], "processor": []} for way in ("common schema", "mostly forced")}
        print(f"{options.rows} conversations, replies of at most {options.tokens} tokens; tokens/s, in brackets those of a second of the daemon's processor time")
        for _ in range(options.rounds):
            rates = {way: load(schema) for way, schema in ways.items()}
            rates["free again"] = load(None)  # the machine may change meanwhile
            for way, of in ratios.items():
                for at, kind in enumerate(of):
                    of[kind].append(rates[way][at] / statistics.mean((rates["free"][at], rates["free again"][at])))
            print("  ".join(f"{way} {clock:.0f} ({processor:.0f})" for way, (clock, processor) in rates.items()), flush=True)
    for way, of in ratios.items():
        print(f"{way}: " + ", ".join(f"by the {kind} {statistics.median(some):.2f} of the free throughput ({min(some):.2f} to {max(some):.2f})"
                                     for kind, some in of.items()))
    medians = {way: statistics.median(of["clock"]) for way, of in ratios.items()}
    sys.exit(0 if medians["common schema"] >= 0.97 and medians["mostly forced"] > 1 else 3)


main()
