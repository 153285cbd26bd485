#!/usr/bin/env python3
"""Tokens a second of 1, 8 and 64 conversations under a common schema, and under one that forces most of the text, beside free ones: loads of
parley bench on one daemon, that take turns. With --peer the same loads on a server that speaks OpenAI's API, such as llama-server with the same
file (llama_server.sh makes it), in the same turns.

usage: constrained.py BUILD_DIR MODEL.gguf [--rounds N] [--rows N,N] [--tokens N] [--peer http://HOST:PORT]
exit 3: at 64 conversations less than 0.97 of the free throughput under the common schema, or where most is forced not more than it
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


def measure(options, parley, rows, folder):
    """The medians of the ratios by the clock, by way."""
    def load(schema, server):
        command = [f"{options.build}/parley", "bench", server or f"parley://{parley.address}", "--concurrency", str(rows), "--requests", str(rows),
                   "--input-tokens", "32", "--output-tokens", str(options.tokens), "--json"]
        if schema is None:
            command += ["--ignore-eos"]
        else:
            path = pathlib.Path(folder, "schema.json")
            path.write_text(json.dumps(schema), encoding="utf-8")
            command += ["--schema", str(path)]
        said = json.loads(children.run(command, check=True, capture_output=True, text=True, timeout=900).stdout)
        assert said["failed"] == 0, said
        return said["output_throughput"], said["total_output_tokens"] / said["server_cpu_s"] if said.get("server_cpu_s") else 0

    ways = {"free": (None, None), "common schema": (COMMON, None), "mostly forced": (FORCED, None)}
    if options.peer:
        ways |= {"peer, free": (None, options.peer), "peer, common schema": (COMMON, options.peer), "peer, mostly forced": (FORCED, options.peer)}
    for way in ways.values():  # compiles the schemas
        load(*way)
    ratios = {way: {"clock": [], "processor": []} for way in ways if way != "free"}
    print(f"{rows} conversations, replies of at most {options.tokens} tokens; tokens/s, in brackets those of a second of the daemon's processor time")
    for _ in range(options.rounds):
        rates = {way: load(*of) for way, of in ways.items()}
        rates["free again"] = load(None, None)  # the machine may change meanwhile
        for way, of in ratios.items():
            for at, kind in enumerate(of):
                of[kind].append(rates[way][at] / statistics.mean((rates["free"][at], rates["free again"][at])))
        print("  ".join(f"{way} {clock:.0f} ({processor:.0f})" for way, (clock, processor) in rates.items()), flush=True)
    for way, of in ratios.items():
        print(f"{way}: " + ", ".join(f"by the {kind} {statistics.median(some):.2f} of our free throughput ({min(some):.2f} to {max(some):.2f})"
                                     for kind, some in of.items()))
    return {way: statistics.median(of["clock"]) for way, of in ratios.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default="1,8,64")
    parser.add_argument("--tokens", type=int, default=96, help="of a reply")
    parser.add_argument("--peer", help="a server that speaks OpenAI's API")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, \
            children.Daemon(f"{options.build}/parleyd", "--model", f"m={options.model}") as parley:
        medians = {rows: measure(options, parley, rows, folder) for rows in map(int, options.rows.split(","))}
    sys.exit(3 if 64 in medians and (medians[64]["common schema"] < 0.97 or medians[64]["mostly forced"] <= 1) else 0)


main()
