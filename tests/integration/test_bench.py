#!/usr/bin/env python3
"""parley bench against parleyd, and against a small server of ours that speaks OpenAI's API.

usage: test_bench.py PARLEY PARLEYD WRITE_TINY_MODEL WRITE_POLICY      (any python3; no packages)
"""
import contextlib
import csv
import http.server
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading

import children
from test_cli import PATIENCE, Cli, Parleyd

IS_WHOLE = children.STRIDE == 1  # sanitized, what has code of its own in the load tester

NAMES = {
    "address", "concurrency", "requests", "turns", "input_tokens", "output_tokens", "seed", "completed", "failed", "duration_s", "request_s", "input_tok_s",
    "output_tok_s", "prompt_tokens", "cached_tokens", "completion_tokens", "ttft_ms_p50", "ttft_ms_p90", "ttft_ms_p99", "itl_ms_p50", "itl_ms_p99",
    "tpot_ms_p50", "e2el_ms_p50", "e2el_ms_p99", "ttft_ms_p50_by_turn", "fairness", "client_cpu_s",
}  # fmt: skip


class Seeded(Cli):
    """With a seed of its own: a fresh one may draw words that are cached, or other lengths."""

    def run(self, *args, **more):
        seed = ["--seed", "1"] if args[:1] == ("bench",) and "://" in "".join(args[1:2]) and "--seed" not in args else []
        return super().run(*args, *seed, **more)


def bench(cli, url, *options, code=0):
    result = cli.run("bench", url, "--json", "--ignore-eos", *map(str, options), code=code)
    figures = json.loads(result.stdout)
    assert NAMES <= set(figures), NAMES - set(figures)
    figures["said"] = result.stderr
    return figures


def misuse(cli):
    for args, word in [
        ([], "parley://"),
        (["127.0.0.1:1"], "parley://"),
        (["parley://"], "parley://"),
        (["parley://127.0.0.1:1", "--concurrency", "0"], "1 to"),
        (["parley://127.0.0.1:1", "--requests", "0"], "at least 1"),
        (["parley://127.0.0.1:1", "--duration", "1", "--requests", "1"], "--requests"),
        (["parley://127.0.0.1:1", "--shared-prefix", "1", "--prompt-file", "x"], "--shared-prefix"),
        (["parley://127.0.0.1:1", "--think", "-1"], "--think is -1, it must be 0 or above"),
        (["parley://127.0.0.1:1", "--seed", "x"], "--seed"),
        (["parley://127.0.0.1:1", "--concurrency", "1,x"], "1,8,64"),
        (["parley://127.0.0.1:1", "--arrivals", "often"], "poisson or constant"),
        (["parley://127.0.0.1:1", "--rate-to", "5"], "--duration"),
        (["parley://127.0.0.1:1", "--rate", "5", "--burst", "0"], "at least 1"),
        (["parley://127.0.0.1:1", "--goodput", "ttft"], "ttft:MS"),
        (["parley://127.0.0.1:1", "--goodput", "ttft:inf"], "ttft:MS"),
        (["parley://127.0.0.1:1", "--require", "p99_ttft<5"], "p99_ttft_ms"),
        (["parley://127.0.0.1:1", "--json", "--csv"], "exclude"),
        (["http://127.0.0.1:1", "--chat", "--responses"], "exclude"),
        (["http://127.0.0.1:1", "--multiplexed"], "parley://"),
        (["parley://127.0.0.1:1", "--against", "http://127.0.0.1:1", "--multiplexed"], "parley://"),
        (["parley://127.0.0.1:1", "--cancels", "1.5"], "0 to 1"),
        (["http://127.0.0.1:1", "--forks", "0.5"], "parley://"),
        (["parley://127.0.0.1:1", "--shared", "0.5"], "--shared-prefix"),
        (["parley://127.0.0.1:1", "--constrained", "0.5"], "--schema"),
        (["parley://127.0.0.1:1", "--schema", "/nowhere"], "/nowhere"),
        (["kserve://127.0.0.1:1", "--schema", "/nowhere"], "parley://"),
        (["parley://127.0.0.1:1", "--max-windows", "5"], "--stable"),
        (["parley://127.0.0.1:1", "--stable", "5", "--max-windows", "2"], "at least 3"),
        (["parley://127.0.0.1:1", "--stable", "5", "--find-knee", "p99_ttft_ms<1"], "--find-knee"),
        (["parley://127.0.0.1:1", "--find-knee", "p99<1"], "p99"),
        (["parley://127.0.0.1:1", "--input-tokens", "9:1"], "LEAST:MOST"),
        (["parley://127.0.0.1:1", "--trace", "/nowhere"], "/nowhere"),
        (["parley://127.0.0.1:1", "--trace", "/nowhere", "--turns", "2"], "--turns"),
        (["parley://127.0.0.1:1", "--shape", "chat"], "agent:X"),
        (["parley://127.0.0.1:1", "--shape", "agent", "--turns", "2"], "--turns"),
        (["parley://127.0.0.1:1", "--find-knee", "p99_ttft_ms<1", "--requests", "3"], "sets the rate"),
        (["parley://127.0.0.1:1", "--rounds", "2"], "--against"),
        (["parley://127.0.0.1:1", "--against", "127.0.0.1:1"], "parley://"),
    ][:: children.STRIDE]:
        line = cli.complaint("bench", *args, code=2)
        assert word in line, line


def server_away(cli):
    for url in ("parley://127.0.0.1:1", "http://127.0.0.1:1"):
        line = cli.complaint("bench", url, "--wait", "0.1", code=1)
        assert "127.0.0.1:1" in line, line


def counts(cli, url):
    """Prompts are exactly as long as was asked, every turn is counted, and no conversation is left."""
    figures = bench(cli, url, "--concurrency", 3, "--requests", 5, "--turns", 2, "--input-tokens", 128, "--output-tokens", 6)
    assert (figures["completed"], figures["failed"]) == (10, 0), figures
    assert figures["prompt_tokens_min"] == figures["prompt_tokens_max"] == 128, figures
    assert figures["completion_tokens"] == 60 and len(figures["ttft_ms_p50_by_turn"]) == 2
    # The second turn's prompt: the first's, its reply, and as many tokens again.
    assert figures["prompt_tokens"] == 5 * (128 + 128 + 6 + 128), figures
    assert 0 < figures["fairness"] <= 1 and figures["client_cpu_s"] > 0
    assert figures["ttft_ms_p50"] <= figures["ttft_ms_p99"] <= figures["e2el_ms_p99"] <= 1e3 * figures["duration_s"] + 1
    assert cli.lines("conversations", "--json") == [], "all are closed"
    text = cli.out("bench", url, "--concurrency", "2", "--output-tokens", "4", "--input-tokens", "96", "--seed", "1")
    assert text.startswith("2 completed, 0 failed in ") and "TTFT" in text and "prompts of 96 to 96 tokens" in text, text


def honest(cli, url, folder):
    """The seed is a fresh one, which is printed; what was cached is said; a page that cannot be written is said at once; rounds have names, and their ratio stands on the page."""
    load = ["--model", "echo", "--input-tokens", "8", "--output-tokens", "8"]
    fresh = Cli(cli.path)
    seeds = [json.loads(fresh.run("bench", url, "--json", *load).stdout)["seed"] for _ in range(2)]
    assert seeds[0] != seeds[1], seeds
    assert re.search(r"\nseed (\d+): --seed \1 repeats these prompts\n$", fresh.out("bench", url, *load))
    load = ["--concurrency", "1", "--requests", "2", "--input-tokens", "256", "--output-tokens", "2", "--ignore-eos", "--seed", "77"]
    cli.run("bench", url, *load)
    again = cli.run("bench", url, *load)
    assert re.search(r"\d+% of the prompts' tokens were cached", again.stderr), again.stderr
    for more in (["--turns", "2"], ["--shared-prefix", "100"]):
        assert "tokens were cached" not in cli.run("bench", url, *load, *more).stderr, more
    page = os.path.join(folder, "none", "page.html")
    assert "No such file" in cli.complaint("bench", "parley://127.0.0.1:1", "--html", page, code=1)  # before the server is asked
    page = os.path.join(folder, "ratio.html")
    text = cli.out("bench", url, "--against", url, "--rounds", "2", "--html", page, *load)
    assert re.findall(r"--- round (\d) of 2 at 1 at once: (\S+) ---", text) == [(n, url) for n in "1122"], text
    ratio = next(line for line in text.split("\n") if "× the throughput of" in line)
    with open(page) as file:
        whole = file.read()
    assert ratio in whole and "<p>Seed 77.</p>" in whole
    text = cli.out("bench", url, *load, "--rate", "40")
    asked, served = re.search(r"asked for (\S+) conversations/s, (\S+)/s were served", text).groups()
    assert asked == "40" and float(served) > 0, text


def prefixes(cli, url):
    load = ["--concurrency", 1, "--requests", 3, "--input-tokens", 256, "--output-tokens", 2]
    assert bench(cli, url, *load, "--seed", 2)["cached_tokens"] == 0, "each conversation begins in its own way"
    assert bench(cli, url, *load, "--seed", 3, "--shared-prefix", 100)["cached_tokens"] >= 2 * 64


def arrivals(cli, url, folder):
    figures = bench(cli, url, "--requests", 6, "--request-rate", 100, "--input-tokens", 96, "--output-tokens", 3, "--warmup", 2)
    assert (figures["completed"], figures["failed"], figures["concurrency"]) == (6, 0, 6), figures
    figures = bench(cli, url, "--duration", 0.3, "--concurrency", 2, "--turns", 3, "--think", 0.01, "--input-tokens", 96, "--output-tokens", 3)
    assert figures["completed"] >= 2 and figures["failed"] == 0 and figures["duration_s"] >= 0.25, figures
    path = os.path.join(folder, "prompts")
    with open(path, "w") as file:
        file.write("hello the\n\nthe hello the\n")
    figures = bench(cli, url, "--prompt-file", path, "--requests", 4, "--output-tokens", 3)
    assert figures["completed"] == 4 and figures["prompt_tokens_max"] > figures["prompt_tokens_min"], figures


def others(cli, url):
    """Those in the background do not count; the newcomer has its own figures."""
    figures = bench(cli, url, "--concurrency", 2, "--input-tokens", 96, "--output-tokens", 64, "--newcomer-tokens", 600)
    assert (figures["completed"], figures["completion_tokens"]) == (2, 128), figures
    assert figures["newcomer"]["ttft_ms"] > 0 and figures["newcomer"]["itl_ms_p99"] > 0, figures
    figures = bench(cli, url, "--concurrency", 1, "--requests", 2, "--background", 2, "--input-tokens", 96, "--output-tokens", 8)
    assert (figures["completed"], figures["completion_tokens"]) == (2, 16), figures
    assert cli.lines("conversations", "--json") == [], "the others were closed too"


def bounds(cli, url):
    load = ["--concurrency", 2, "--input-tokens", 96, "--output-tokens", 3]
    figures = bench(cli, url, *load, "--max-ttft-p99-ms", 0.001, code=3)
    assert figures["completed"] == 2 and "TTFT p99" in figures["said"], figures
    bench(cli, url, *load, "--min-output-tok-s", 1e9, code=3)
    bench(cli, url, *load, "--max-ttft-p99-ms", 1e6, "--max-itl-p99-ms", 1e6, "--max-e2el-p99-ms", 1e6, "--min-fairness", 0.0001)


def levels(cli, url, folder):
    """Several concurrencies, and a second server, in one run: an object each, and one that compares them."""
    load = ["--model", "echo", "--requests", "20", "--input-tokens", "8", "--output-tokens", "8"]
    said = cli.run("bench", url, "--json", "--concurrency", "1,2", *load).stdout.splitlines()
    assert [json.loads(line)["concurrency"] for line in said] == [1, 2], said
    page = os.path.join(folder, "page.html")
    said = cli.run("bench", url, "--json", "--against", url, "--rounds", "2", "--html", page, *load).stdout.splitlines()
    assert len(said) == 5 and all(json.loads(line)["completed"] == 20 for line in said[:4]), said
    ratio = json.loads(said[4])
    assert ratio["rounds"] == 2 and 0 < ratio["ratio_min"] <= ratio["ratio"] <= ratio["ratio_max"], ratio
    with open(page) as file:
        text = file.read()
    assert text.count("<svg") == text.count("</svg>") == 2 * 4 and "src=" not in text and "href=" not in text, text[:2000]
    assert "NaN" not in text and "nan" not in text.replace("tenant", ""), "a figure that was not measured is a dash"
    cli.run("bench", url, "--concurrency", "1,2,4", "--html", page, *load)
    with open(page) as file:
        text = file.read()
    x = [float(cx) for cx in re.findall('<circle cx="([0-9.]+)"', text.split("<svg")[1])]
    assert len(x) == 3 and abs((x[1] - x[0]) - (x[2] - x[1])) < 0.11, f"twice the concurrency is equally far: {x}"
    assert f"<code>parley bench {url} --concurrency 1,2,4 --html" in text, text[:3000]
    row = re.findall("<td[^>]*>(.*?)</td>", text.split("<h2>Throughput")[1].split("</tr>")[1])
    assert row[:4] == [url, "1", "20", "0"] and row[5] == "–", f"echo's replies have no tokens: {row}"
    assert "tokens/s" not in cli.out("bench", f"kserve://{url.split('//')[1]}", *load), "nobody counts them"
    said = cli.run("bench", url, "--csv", "--concurrency", "1,2", *load).stdout.splitlines()
    rows = list(csv.DictReader(said))
    assert [row["Concurrency"] for row in rows] == ["1", "2"] and all(row["completed"] == "20" for row in rows), said
    assert abs(float(rows[0]["p99 latency"]) / 1e3 - float(rows[0]["p99_e2el_ms"])) < 0.01, rows
    text = cli.out("bench", url, "--against", url, "--rounds", "1", *load)
    assert "× the throughput of" in text, text


def schedule(cli, url):
    """An open loop sends by its schedule: bursts, a ramp; and says what it kept to."""
    load = ["--model", "echo", "--input-tokens", 8, "--output-tokens", 8]
    figures = bench(cli, url, *load, "--requests", 40, "--rate", 400, "--arrivals", "constant", "--burst", 10)
    assert figures["completed"] == 40 and figures["max_concurrent_requests"] >= 2 and figures["mean_lag_ms"] >= 0, figures
    figures = bench(cli, url, *load, "--duration", 1, "--rate", 20, "--rate-to", 60, "--arrivals", "constant", "--goodput", "ttft:0.001")
    assert (figures["completed"], figures["failed"]) == (40, 0) and figures["request_goodput"] == 0, figures
    bench(cli, url, *load, "--require", "failed<=0", "--require", "p99_ttft_ms<100000")
    assert "does not hold" in bench(cli, url, *load, "--require", "completed>5", code=3)["said"]


def trace(cli, url, folder):
    """Conversations as a file says: their lengths, texts and times."""
    path = os.path.join(folder, "trace.jsonl")
    with open(path, "w") as file:
        file.write('{"timestamp": 0, "input_length": 96, "output_length": 3}\n{"timestamp": 400, "input_length": 128, "output_length": 5}\n')
        file.write('{"timestamp": 400, "conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "the"}, {"from": "human", "value": "the"}]}\n')
    figures = bench(cli, url, "--trace", path, "--output-tokens", 2)
    assert (figures["completed"], figures["failed"], figures["completion_tokens"]) == (4, 0, 3 + 5 + 2 + 2), figures
    assert figures["prompt_tokens_max"] == 128 and figures["duration_s"] >= 0.4, figures
    figures = bench(cli, url, "--requests", 8, "--input-tokens", "96:128", "--output-tokens", "normal:5,1")
    assert 96 <= figures["prompt_tokens_min"] < figures["prompt_tokens_max"] <= 128, figures
    assert 8 < figures["completion_tokens"] < 80 and figures["input_tokens"] == ["uniform", 96.0, 128.0], figures


def shape(cli, url):
    """A coding agent's session: its lengths are the shape's, or the least that a prompt can have."""
    load = ["--shape", "agent:0.004", "--requests", 2, "--concurrency", 2]
    figures = bench(cli, url, *load)
    assert (figures["completed"], figures["failed"], figures["turns"]) == (86, 0, 43), figures
    assert len(figures["ttft_ms_p50_by_turn"]) == 43 and None not in figures["ttft_ms_p50_by_turn"], figures
    text = cli.out("bench", url, "--ignore-eos", *map(str, load))
    assert re.search(r"\nTTFT p50 in ms: turn 1 [0-9.]+, turn 22 [0-9.]+, turn 43 [0-9.]+\n", text), text


def kserve(cli, address):
    """Inferences of any model that KServe's clients know: the inputs follow from its metadata."""
    url = f"kserve://{address}"
    for model in "echo", "tiny", "cart":
        figures = bench(cli, url, "--model", model, "--concurrency", 4, "--requests", 12, "--turns", 2, "--input-tokens", 8)
        assert (figures["completed"], figures["failed"]) == (24, 0) and figures["e2el_ms_p50"] > 0, figures
    assert "--model" in cli.complaint("bench", url, code=2)
    assert "nobody" in cli.complaint("bench", url, "--model", "nobody", code=1)
    assert cli.lines("conversations", "--json") == []


def act(cli, address):
    """Steps of a policy: each conversation a session of its own, each turn a step."""
    figures = bench(cli, f"act://{address}", "--model", "cart", "--concurrency", 4, "--requests", 12, "--turns", 3)
    assert (figures["completed"], figures["failed"]) == (36, 0) and figures["e2el_ms_p50"] > 0, figures
    assert "--model" in cli.complaint("bench", f"act://{address}", code=2)
    assert "not a policy" in cli.complaint("bench", f"act://{address}", "--model", "tiny", code=1)


def shares(cli, url, folder):
    """Shares of turns on forks, of cancelled ones, of constrained replies, of shared prefixes: each counts as it should."""
    load = ["--input-tokens", 96, "--output-tokens", 4]
    for more in [], ["--multiplexed"]:
        figures = bench(cli, url, *load, "--concurrency", 2, "--requests", 6, "--turns", 3, "--forks", 0.5, *more)
        assert (figures["completed"], figures["failed"]) == (18, 0), figures
        assert figures["prompt_tokens"] == 6 * (96 + (2 * 96 + 4) + (3 * 96 + 2 * 4)), "a fork has the past of its conversation"
        assert cli.lines("conversations", "--json") == [], "what was forked is closed"
    figures = bench(cli, url, *load[:2], "--output-tokens", 60, "--concurrency", 8, "--requests", 32, "--cancels", 0.5, "--multiplexed")
    assert figures["failed"] == 0 and figures["completed"] + figures["cancelled"] == 32 and 6 <= figures["cancelled"] <= 26, figures
    assert figures["completion_tokens"] == 60 * figures["completed"], figures
    assert cli.lines("conversations", "--json") == []
    shared = ["--input-tokens", 256, "--output-tokens", 2, "--requests", 12, "--shared-prefix", 128]
    n_all, n_half = (bench(cli, url, *shared, "--shared", share, "--seed", 11 + i)["cached_tokens"] for i, share in enumerate((1, 0.5)))
    assert 0 < n_half < n_all, (n_half, n_all)


def constrained(cli, url, folder):
    """Replies that must match a schema: nothing else can be said, so that each has the tokens of the one text there is."""
    path = os.path.join(folder, "schema.json")
    with open(path, "w") as file:
        file.write('{"const": "w"}')
    command = [cli.path, "bench", url, "--json", "--input-tokens", "96", "--output-tokens", "50", "--requests", "6", "--schema", path]
    for share in 1, 0.5:
        figures = json.loads(cli.out(*command[1:], "--constrained", str(share)))
        assert (figures["completed"], figures["failed"]) == (6, 0), figures
        assert (figures["completion_tokens"] < 6 * 10) == (share == 1), figures


def windows(cli, url):
    """Loads are repeated until three agree, or until so many were: the report is of the last three."""
    load = ["--model", "echo", "--input-tokens", 8, "--output-tokens", 8, "--requests", 50]
    figures = bench(cli, url, *load, "--stable", 1000)
    assert (figures["windows"], figures["is_stable"], figures["completed"]) == (3, True, 150), figures
    figures = bench(cli, url, *load, "--stable", 0.000001, "--max-windows", 5)
    assert (figures["windows"], figures["is_stable"], figures["completed"]) == (5, False, 150), figures
    assert "not stable" in figures["said"] and figures["duration_s"] > 0, figures


def any_method(cli, address, folder):
    """Any unary method that reflection describes, with a request of JSON; what is none is refused before the load."""
    at = f"grpc://{address}/parley.v1.Conversations"
    opening = '{"model": "echo", "ttlMs": "60000", "metadata": {"of": "the bench"}}'
    figures = bench(cli, f"{at}/Open", "--data", opening, "--concurrency", 4, "--requests", 10, "--turns", 2)
    assert (figures["completed"], figures["failed"]) == (20, 0) and figures["e2el_ms_p50"] > 0, figures
    opened = cli.lines("conversations", "--json")
    assert len(opened) == 20 and all(one["model"] == "echo" for one in opened), opened
    path = os.path.join(folder, "request.json")
    with open(path, "w") as file:
        json.dump({"conversation": opened[0]["conversation"]}, file)
    figures = bench(cli, f"{at}/Get", "--data", f"@{path}", "--requests", 3)
    assert (figures["completed"], figures["failed"]) == (3, 0), figures
    for one in opened:
        cli.run("conversations", "close", one["conversation"])
    figures = bench(cli, f"{at}/Get", "--data", f"@{path}", "--requests", 3, code=1)
    assert figures["errors"] == {"NOT_FOUND": 3}, figures
    for method, data, word in [
        ("/parley.v1.Conversations/Chat", "{}", "is a stream"),
        ("/parley.v1.Conversations/Chats", "{}", "no method 'Chats'"),
        ("/parley.v1.Nobody/Get", "{}", "parley.v1.Nobody"),
        ("/parley.v1.Conversations/Get", '{"conversations": 1}', "conversations is no field of parley.v1.ConversationsGetRequest"),
        ("/parley.v1.Conversations/Get", "{", "--data"),
        ("/parley.v1.Conversations/Get", "@/nowhere", "/nowhere"),
        ("/Get", "{}", "needs a method"),
        ("", "{}", "needs a method"),
    ]:
        line = cli.complaint("bench", f"grpc://{address}{method}", "--data", data, code=2 if word == "needs a method" else 1)
        assert word in line, line


def multiplexed(cli, url):
    """The same turns on one stream: exactly as many tokens; errors of some leave the others; all is closed."""
    load = ["--multiplexed", "--concurrency", 3, "--turns", 2]
    figures = bench(cli, url, *load, "--requests", 5, "--input-tokens", 128, "--output-tokens", 6)
    assert (figures["completed"], figures["failed"], figures["completion_tokens"]) == (10, 0, 60), figures
    figures = bench(cli, url, *load, "--requests", 4, "--input-tokens", "100:3000", "--output-tokens", 2, code=1)
    assert figures["completed"] > 0 and figures["errors"] == {"OUT_OF_RANGE": figures["failed"]} and figures["failed"] > 0, figures
    figures = bench(cli, url, "--multiplexed", "--model", "echo", "--concurrency", 64, "--requests", 500)
    assert (figures["completed"], figures["failed"]) == (500, 0), figures
    assert cli.lines("conversations", "--json") == []


def dying(cli, parleyd, *options):
    """A server that is killed in the middle of a load leaves a report with the errors."""
    with Parleyd(parleyd) as address:  # where a port is free
        pass
    daemon = children.start([parleyd, "--listen", address, "--log-level", "error"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    load = ["--model", "echo", "--concurrency", "8", "--requests", "100", "--turns", "5000", "--wait", str(PATIENCE)]
    process = children.start([cli.path, "bench", f"parley://{address}", "--json", *load, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    at = Seeded(cli.path, address)
    children.until("a load beyond its probes", lambda: at.out("conversations", "--json", "--wait", str(PATIENCE)).count("\n") >= 4, process, daemon)
    daemon.kill()
    daemon.wait()
    out, said = process.communicate(timeout=PATIENCE)
    figures = json.loads(out)
    assert process.returncode == 1 and "UNAVAILABLE" in said, said
    assert figures["completed"] + figures["failed"] == 500000 and figures["completed"] > 0, figures
    assert figures["errors"] == {"UNAVAILABLE": figures["failed"]} and figures["failed"] > 0, figures["errors"]


def stopped(cli, parleyd):
    """A daemon that stands still: --timeout, or a Ctrl-C, leaves a report. Its end waits for the conversations to be closed."""
    cases = (["--timeout", "0.3"], False, "DEADLINE_EXCEEDED"), (["--multiplexed", "--timeout", "0.3"], False, "DEADLINE_EXCEEDED"), (["--duration", "600"], True, "CANCELLED")
    for options, is_interrupted, word in cases:
        with Parleyd(parleyd) as address:  # where a port is free
            pass
        daemon = children.start([parleyd, "--listen", address, "--log-level", "error"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        load = ["--model", "echo", "--concurrency", "4", "--turns", "1000000", "--wait", str(PATIENCE)]
        process = children.start([cli.path, "bench", f"parley://{address}", *load, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        at = Seeded(cli.path, address)
        children.until("a load beyond its probes", lambda: at.out("conversations", "--json", "--wait", str(PATIENCE)).count("\n") >= 4, process, daemon)
        daemon.send_signal(signal.SIGSTOP)
        if is_interrupted:
            process.send_signal(signal.SIGINT)
        line = process.stderr.readline()
        daemon.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=PATIENCE)
        daemon.kill()
        daemon.wait()
        assert process.returncode == 1 and word in line, line
        assert " completed, " in out and (is_interrupted or f"failed with {word}" in out), out


def knee(cli, url):
    """A bound that always holds is tried at ever higher rates until the client's own limit; one that never does, at none."""
    load = ["--model", "echo", "--input-tokens", "8", "--output-tokens", "8", "--duration", "0.2"]
    said = cli.run("bench", url, "--json", *load, "--rate", "16", "--find-knee", "completed<12").stdout.splitlines()
    found, rates = json.loads(said[-1]), [json.loads(line)["request_rate"] for line in said[:-1]]
    assert rates[:2] == [16, 32] and rates.count(found["broken_rate"]) == 2 and found["knee_rate"] < found["broken_rate"] <= 1.05 * found["knee_rate"], said
    assert {found["knee_rate"], found["broken_rate"]} <= set(rates), said
    result = cli.run("bench", url, *load, "--rate", "0.02", "--find-knee", "p50_ttft_ms<0", code=3)
    assert "holds at no rate" in result.stderr, result.stderr


def failures(cli, url):
    """What the server refuses is counted, the reason is said, and the exit status tells."""
    figures = bench(cli, url, "--concurrency", 2, "--requests", 3, "--turns", 2, "--input-tokens", 3000, code=1)
    assert (figures["completed"], figures["failed"]) == (0, 6), figures
    assert "2048" in figures["first_error"] and "6 failed" in figures["said"] and "OUT_OF_RANGE" in figures["said"], figures
    line = cli.complaint("bench", url, "--input-tokens", "2", code=1)
    assert "--input-tokens must be at least" in line, line
    line = cli.complaint("bench", url, "--model", "nobody", code=1)
    assert "nobody" in line, line
    line = cli.complaint("bench", url.replace("parley:", "http:"), code=1)
    assert "it may be the port of gRPC (parley://)" in line, line
    resets_are_waited_for(cli)


def resets_are_waited_for(cli):
    """A connection that is reset while TLS begins, as by a server that starts, is tried again, and at the end its words are said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        came = []

        def reset():
            with contextlib.suppress(OSError):
                while True:
                    taken = listener.accept()[0]
                    taken.recv(1)
                    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    taken.close()
                    came.append(taken)

        threading.Thread(target=reset, daemon=True).start()
        line = cli.complaint("bench", f"https://127.0.0.1:{listener.getsockname()[1]}", "--wait", "1", code=1)
        assert len(came) > 1 and "the TLS handshake fails there" in line, (len(came), line)
        listener.shutdown(socket.SHUT_RDWR)


def interrupted(cli, url):
    """A Ctrl-C ends it in order: what was measured is printed, the conversations are closed."""
    command = [cli.path, "bench", url, "--json", "--ignore-eos", "--duration", "600", "--concurrency", "3", "--input-tokens", "96"]
    process = children.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    children.until("a load beyond its probes", lambda: len(cli.lines("conversations", "--json")) >= 3, process)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "CANCELLED" in said, (process.returncode, said)
    assert json.loads(out)["failed"] == 0, out
    assert cli.lines("conversations", "--json") == []


class Foreign(http.server.BaseHTTPRequestHandler):
    """Each word is a token; says "w " as often as it is asked to. The model's name says how it misbehaves."""

    protocol_version = "HTTP/1.1"
    bodies, lock = [], threading.Lock()
    all_here = threading.Barrier(60)

    def log_message(self, *args):
        pass

    def send(self, code, body, kind="application/json"):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def respond(self, event, how, text, n_tokens):
        """The stream of /v1/responses."""
        say = lambda kind, **fields: event(json.dumps({"type": kind, **fields}))  # noqa: E731
        self.close_connection = True
        say("response.created", response={"id": "resp_1", "error": None, "usage": None})
        for i in range(n_tokens):
            if how == "breaks" and i == 2:
                say("response.failed", response={"error": {"code": "server_error", "message": "out of ink"}})
            if how in ("breaks", "drops") and i == 2:
                return
            kind = {"thinks": "reasoning_text", "calls": "function_call_arguments"}.get(how, "output_text")
            say(f"response.{kind}.delta", delta="w " if i else " w ")
        say("response.output_text.done", text=" w " + "w " * (n_tokens - 1))
        usage = {"input_tokens": len(text.split()), "output_tokens": n_tokens, "input_tokens_details": {"cached_tokens": 1}}
        say("response.incomplete", response={"error": None, "usage": usage})

    def do_GET(self):
        self.send(200, json.dumps({"data": [{"id": "first"}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            self.bodies.append((self.path, body))
            nth = len(self.bodies)
        text = body["prompt"] if "prompt" in body else " ".join(m["content"] for m in body.get("messages") or body["input"])
        n_tokens = body["max_output_tokens" if "input" in body else "max_tokens"]
        how = body["model"] if n_tokens > 1 or body["model"] == "uncounted" else "first"  # probes go well
        if how == "dies" and nth >= 10:
            self.server.socket.close()  # nobody is let in any more
            self.close_connection = True
            return
        if how == "refuses" or (how == "refuses-some" and nth % 3 == 0):
            self.send(429, json.dumps({"error": {"message": "too many words" + ", and much more of it" * 20}}).encode())
            return
        if how in ("401", "403"):
            self.send(int(how), b"no")
            return
        if how.startswith("stalls"):
            self.connection.recv(1)  # until the client goes away
            self.close_connection = True
            return
        if how == "waits":
            self.all_here.wait(timeout=PATIENCE)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        newline = "\r\n" if how == "first" else "\n"
        event = lambda data: self.wfile.write(f"data: {data}{newline}{newline}".encode())  # noqa: E731
        if "input" in body:
            self.respond(event, how, text, n_tokens)
            return
        said = "reasoning_content" if how == "thinks" else "content"
        choice = (lambda t: {"text": t}) if "prompt" in body else (lambda t: {"delta": {said: t}})
        if how == "calls":
            choice = lambda t: {"delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""} if t == " w " else {"arguments": t}}]}}  # noqa: E731
        self.wfile.write(f": hello{newline}{newline}".encode())
        if "messages" in body:
            event(json.dumps({"choices": [{"delta": {"role": "assistant"}}]}))
        for i in range(body["max_tokens"]):
            if how == "breaks" and i == 2:
                event(json.dumps({"error": {"message": "out of ink"}}))
            if how in ("breaks", "drops") and i == 2:
                self.close_connection = True
                return
            event(json.dumps({"choices": [choice("w " if i else " w ") | {"finish_reason": None}], "error": None}))
        event(json.dumps({"choices": [choice("") | {"finish_reason": "length"}]}))
        usage = {"prompt_tokens": len(text.split()), "completion_tokens": body["max_tokens"], "prompt_tokens_details": {"cached_tokens": 1}}
        if how != "uncounted":
            event(json.dumps({"choices": [], "usage": usage}))
        event("[DONE]")
        self.close_connection = True


class ForeignServer(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # connections at once that nobody has taken yet

    def handle_error(self, request, address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # those that cancel go away in the middle
            super().handle_error(request, address)


def stalled(cli, url, load):
    """A server that answers no more: --timeout fails the turns, and a Ctrl-C leaves a report with the time that passed."""
    figures = bench(cli, url, *load, "--model", "stalls", "--timeout", 0.3, code=1)
    assert figures["errors"] == {"DEADLINE_EXCEEDED": 4} and 0.6 <= figures["duration_s"] < PATIENCE, figures
    assert "0.3 s" in figures["first_error"], figures
    for more, has_report in (["--json"], lambda out: json.loads(out)["duration_s"] > 0), (["--csv", "--find-knee", "completed>0"], lambda out: out.startswith("Concurrency,")):
        model = f"stalls {more[0]}"  # turns of the loads before may come late
        process = children.start([cli.path, "bench", url, "--model", model, "--input-tokens", "20", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        children.until("a turn beyond the probes", lambda: any(body["model"] == model and body["max_tokens"] > 1 for _, body in list(Foreign.bodies)), process)  # noqa: B023
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1 and "1 turn in flight" in said and has_report(out), (out, said)
    Foreign.bodies.clear()


def foreign(cli):
    server = ForeignServer(("127.0.0.1", 0), Foreign)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    load = ["--concurrency", 2, "--requests", 4, "--input-tokens", 20, "--output-tokens", 5]
    for more, path, said in ([], "/v1/completions", "prompt"), (["--chat"], "/v1/chat/completions", "messages"), (["--responses"], "/v1/responses", "input"):
        Foreign.bodies.clear()
        figures = bench(cli, url, *load, "--turns", 2, *more)
        assert (figures["completed"], figures["failed"], figures["completion_tokens"]) == (8, 0, 40), figures
        assert figures["prompt_tokens_min"] == figures["prompt_tokens_max"] == 20 and figures["cached_tokens"] == 8, figures
        assert figures["prompt_tokens"] == 4 * (20 + 20 + 5 + 20), figures
        at, body = Foreign.bodies[-1]
        assert at == path and said in body, (at, body)
        assert body["model"] == "first" and body["max_output_tokens" if said == "input" else "max_tokens"] == 5 and body["temperature"] == 0 and body["ignore_eos"], body
        assert body["stream"] and (said == "input" or body["stream_options"]["include_usage"]), body
        assert "w w w w w" in json.dumps(body), "the second turn holds the first's reply"
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    with tempfile.NamedTemporaryFile("w") as file:
        json.dump(schema, file)
        file.flush()
        for more, place in ([], ("structured_outputs", "json")), (["--chat"], ("response_format", "json_schema", "schema")), (["--responses"], ("text", "format", "schema")):
            assert bench(cli, url, *load, "--schema", file.name, *more)["completed"] == 4
            said = Foreign.bodies[-1][1]
            for name in place:
                said = said[name]
            assert said == schema and list(said["properties"]) == ["b", "a"], said
    figures = bench(cli, url, *load[:2], "--requests", 40, *load[4:], "--cancels", 0.5)
    assert figures["failed"] == 0 and figures["completed"] + figures["cancelled"] == 40, figures
    many = ["--concurrency", "60", "--requests", "60", "--input-tokens", "20", "--output-tokens", "2", "--model", "waits"]
    few = ["prlimit", "--nofile=40:", "--", cli.path]  # as a shell's soft limit: more may be had for the asking
    done = children.run([*few, "bench", url, "--json", *many], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("{"), done
    figures = json.loads(done.stdout)
    assert (figures["completed"], figures["max_concurrent_requests"]) == (60, 60), "each has a connection, whatever the soft limit is"
    for model, n_failed, word in ("refuses", 4, "too many words"), ("breaks", 4, "out of ink"), ("drops", 4, "before the end of the reply"):
        for api in [], ["--responses"]:
            figures = bench(cli, url, *load, "--model", model, *api, code=1)
            assert (figures["completed"], figures["failed"]) == (4 - n_failed, n_failed), (model, figures)
            assert word in figures["first_error"], figures
    figures = bench(cli, url, *load[:2], "--requests", 12, *load[4:], "--model", "refuses-some", code=1)
    assert figures["completed"] + figures["failed"] == 12 and 0 < figures["failed"] < 12, figures
    for model, status in ("401", "UNAUTHENTICATED"), ("403", "PERMISSION_DENIED"):
        assert bench(cli, url, *load, "--model", model, code=1)["errors"] == {status: 4}
    for api in ["--chat"], ["--responses"]:
        for model in ("thinks", "calls"):
            figures = bench(cli, url, *load, "--model", model, *api)
            assert figures["completed"] == 4 and figures["p99_itl_ms"] is not None and figures["p50_ttft_ms"] > 0, f"thoughts and calls are tokens: {figures}"
            assert figures["e2el_ms_p50"] >= figures["p50_ttft_ms"]
    figures = bench(cli, url, *load, "--model", "uncounted")
    assert (figures["completed"], figures["completion_tokens"], figures["prompt_tokens"]) == (4, 20, 0), figures
    assert len(Foreign.bodies[-1][1]["prompt"].split()) == 20 and "counts no tokens" in figures["said"], figures
    some = [*load[:2], "--requests", 12, *load[4:], "--model", "refuses-some"]
    figures = bench(cli, url, *some, "--require", "error_share<0.9", "--require", "completed>0")
    assert figures["failed"] > 0 and "too many words" in figures["said"], figures
    said = bench(cli, url, *load, "--model", "refuses", code=1)["said"]
    assert "too many words, and much more of it" in said and "…" in said and len(said) < 240, said  # of a reason 120 characters
    bench(cli, url, *some, "--require", "failed<1", code=3)
    bench(cli, url, *some, "--require", "completed>0", code=1)
    stalled(cli, url, load)
    Foreign.bodies.clear()
    figures = bench(cli, url, *load[:2], "--requests", 50, *load[4:], "--model", "dies", "--temperature", 0, code=1)
    assert figures["completed"] + figures["failed"] == 50 and figures["errors"]["UNAVAILABLE"] == figures["failed"] > 0, figures
    server.shutdown()


def main():
    path, parleyd, writer, write_policy = sys.argv[1:5]
    cli = Seeded(path)
    misuse(cli)
    server_away(cli)
    foreign(cli)
    dying(cli, parleyd, "--multiplexed")
    if IS_WHOLE:
        dying(cli, parleyd)
        stopped(cli, parleyd)
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        children.run([writer, tiny], check=True)
        cart = os.path.join(folder, "cart.gguf")
        children.run([write_policy, cart], check=True)
        with Parleyd(parleyd, "--model", f"tiny={tiny}", "--model", f"cart={cart}", "--threads", "1") as address:
            cli, url = Seeded(path, address), f"parley://{address}"
            figures = bench(cli, url, "--model", "echo", "--concurrency", 16, "--requests", 500)
            assert (figures["completed"], figures["failed"]) == (500, 0), figures
            counts(cli, url)
            if IS_WHOLE:
                prefixes(cli, url)
                honest(cli, url, folder)
                arrivals(cli, url, folder)
                others(cli, url)
                bounds(cli, url)
            levels(cli, url, folder)
            if IS_WHOLE:
                schedule(cli, url)
            trace(cli, url, folder)
            if IS_WHOLE:
                shape(cli, url)
            kserve(cli, address)
            if IS_WHOLE:
                shares(cli, url, folder)
                constrained(cli, url, folder)
                windows(cli, url)
            act(cli, address)
            any_method(cli, address, folder)
            multiplexed(cli, url)
            if IS_WHOLE:
                knee(cli, url)
            failures(cli, url)
            if IS_WHOLE:
                interrupted(cli, url)


main()
