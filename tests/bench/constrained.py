#!/usr/bin/env python3
"""Tokens a second of 1, 8 and 64 conversations under a common schema, and under one that forces most of the text, beside free ones: loads of
parley bench on one daemon, that take turns. Where LLAMA_CPP names the folder with llama-server (llama_server.sh makes one), the same loads on
that with the same file, in the same turns; with --peer on a server that speaks OpenAI's API and runs already.

usage: constrained.py BUILD_DIR MODEL.gguf [--rounds N] [--rows N,N] [--tokens N] [--peer http://HOST:PORT]
exit 3: at 64 conversations less than 0.97 of the free throughput under the common schema, or where most is forced not more than it
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PEER_CONTEXT = 512  # tokens of a conversation
sys.path.insert(0, str(HERE.parent / "integration"))
import children  # noqa: E402
import gemma  # noqa: E402


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
    beside = {way: [] for way in ways if f"peer, {way}" in ways}  # ours over the peer's, with the same schema
    print(f"{rows} conversations, replies of at most {options.tokens} tokens; tokens/s, in brackets those of a second of the daemon's processor time")
    for _ in range(options.rounds):
        rates = {way: load(*of) for way, of in ways.items()}
        rates["free again"] = load(None, None)  # the machine may change meanwhile
        for way, of in ratios.items():
            for at, kind in enumerate(of):
                of[kind].append(rates[way][at] / statistics.mean((rates["free"][at], rates["free again"][at])))
        for way, of in beside.items():
            of.append(rates[way][0] / rates[f"peer, {way}"][0])
        print("  ".join(f"{way} {clock:.0f} ({processor:.0f})" for way, (clock, processor) in rates.items()), flush=True)
    for way, of in ratios.items():
        print(f"{way}: " + ", ".join(f"by the {kind} {statistics.median(some):.2f} of our free throughput ({min(some):.2f} to {max(some):.2f})"
                                     for kind, some in of.items()))
    for way, of in beside.items():
        print(f"{way}: {statistics.median(of):.2f} of the peer's throughput ({min(of):.2f} to {max(of):.2f})", flush=True)
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
    all_rows, llama = [int(n) for n in options.rows.split(",")], os.environ.get("LLAMA_CPP")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        parley = stack.enter_context(children.Daemon(f"{options.build}/parleyd", "--model", f"m={options.model}"))
        if llama and not options.peer:
            most = max(all_rows)
            options.peer = stack.enter_context(gemma.theirs(llama, options.model, "-c", str(most * PEER_CONTEXT), "-np", str(most))).url
        if not options.peer:
            print("LLAMA_CPP names no folder with llama-server: the figures are Parley's alone", flush=True)
        medians = {rows: measure(options, parley, rows, folder) for rows in all_rows}
    sys.exit(3 if 64 in medians and (medians[64]["common schema"] < 0.97 or medians[64]["mostly forced"] <= 1) else 0)


main()
