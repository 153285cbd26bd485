#!/usr/bin/env python3
"""The page of metrics, as Prometheus reads it: promtool has nothing to say against it but about names that are Triton's, what
is on it keeps up with what was asked, and the dashboard's panels show each metric, and none that there is not.

usage: test_metrics.py PROMTOOL_SH PARLEYD WRITE_TINY_MODEL WRITE_POLICY DASHBOARD      (the first fetches promtool, once)
"""
import hashlib
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import urllib.request

import children


def page(http, path="/metrics", **more):
    with urllib.request.urlopen(urllib.request.Request(f"http://{http}{path}", **more), timeout=children.PATIENCE) as response:
        return response.read().decode(), response.headers


def samples(text):
    """{name with labels: value}"""
    return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))}


def check(promtool, text):
    done = children.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).strip()


def without_tritons(text):
    return "".join(line + "\n" for line in text.splitlines() if not re.match(r"(# \w+ )?nv_inference_", line))


def clean(promtool, text):
    code, said = check(promtool, without_tritons(text))
    assert (code, said) == (0, ""), said
    code, said = check(promtool, text)
    assert code in (0, 3), said  # 3: it parses, and there is advice
    assert all(line.startswith("nv_inference_") for line in said.splitlines()), said
    assert check(promtool, text + "parley_broken{ 1\n")[0] == 1, "promtool sees what is wrong"


def keeps_up(http, text):
    before = samples(text)
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "ignore_eos": True}).encode()
    for i in range(3):
        page(http, "/v1/chat/completions", data=body, headers={"Content-Type": "application/json", "X-Conversation-Id": f"kept-{i}"})
    after = samples(page(http)[0])

    def grew(name):
        return after[name] - before[name]

    assert grew('nv_inference_request_success{model="tiny",version="1"}') == 3
    assert grew('parley_ttft_seconds_count{model="tiny"}') == 3
    assert grew('parley_ttft_seconds_bucket{model="tiny",le="+Inf"}') == 3
    assert grew('parley_inter_token_seconds_count{model="tiny"}') == 12
    assert grew('parley_generated_tokens_total{model="tiny"}') == 15
    assert grew('parley_prompt_tokens_total{model="tiny"}') > 0
    assert grew('parley_step_tokens_sum{model="tiny"}') >= 15
    assert grew('nv_inference_request_success{model="cart",version="1"}') == 0
    assert grew("parley_journal_records_total") >= 6  # of each, that it was asked and that it is done
    assert grew("parley_journal_transactions_total") >= 3 and after["parley_journal_failed_total"] == after["parley_journal_waiting_bytes"] == 0
    assert after["process_resident_memory_bytes"] > 1 << 20 and after["process_cpu_seconds_total"] > 0
    buckets = [v for k, v in after.items() if k.startswith('parley_step_rows_bucket{model="tiny"')]
    assert buckets == sorted(buckets) and buckets[-1] == after['parley_step_rows_count{model="tiny"}'] == after['nv_inference_exec_count{model="tiny",version="1"}']


def shown(dashboard, text):
    with open(dashboard, encoding="utf-8") as f:
        board = json.load(f)
    there = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    on_panels = {name for panel in board["panels"] for target in panel["targets"] for name in re.findall(r"\b(?:parley|nv_inference|process)_\w+", target["expr"])}
    variables = {name for t in board["templating"]["list"] for name in re.findall(r"\bparley_\w+", t["query"])}
    assert on_panels | variables <= there, f"the server has no {sorted((on_panels | variables) - there)}"
    missing = sorted(family for family in families if not on_panels & {family + end for end in ("", "_bucket", "_sum", "_count")})
    assert len(families) > 60 and not missing, f"on no panel of {dashboard}: {missing}"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


def main():
    fetch, parleyd, write_tiny_model, write_policy, dashboard = sys.argv[1:6]
    promtool = children.run([fetch], timeout=None, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        tiny, cart = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "cart.gguf")
        children.run([write_tiny_model, tiny], check=True)
        children.run([write_policy, cart], check=True)
        with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--data", os.path.join(folder, "data"), "--model", f"tiny={tiny}", "--model", f"cart={cart}") as server:
            text, headers = page(server.http)
            assert headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers["Content-Type"]
            clean(promtool, text)
            keeps_up(server.http, text)
            clean(promtool, page(server.http)[0])
        key, keys = "pk-" + secrets.token_hex(32), os.path.join(folder, "keys")
        with open(os.open(keys, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            print("root", hashlib.sha256(key.encode()).hexdigest(), "admin", file=f)
        with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--keys", keys) as server:  # some metrics are there with keys alone
            with_keys, _ = page(server.http, headers={"Authorization": "Bearer " + key})
            clean(promtool, with_keys)
            shown(dashboard, text + with_keys)
    print("metrics: clean, true, and on the dashboard, all of them")


if __name__ == "__main__":
    main()
