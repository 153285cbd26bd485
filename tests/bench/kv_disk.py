#!/usr/bin/env python3
"""What a prompt costs that is on disk (--kv-disk): 2,000 tokens, computed, and read back after a restart, with the files in the page cache and
without, of the default model and of random weights with the shape of a 1B one, in one run; beside it what the disk itself reads.

usage: kv_disk.py BUILD_DIR MODEL.gguf [FILE.gguf…] [--rounds N] [--tokens N] [--folder DIR] [--json]

Times are to the first token, and include HTTP and one computed token. Exit 3: a reply differs, or a prompt was not found on disk.
"""
import argparse
import glob
import json
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.request

import children

WORDS = "river stone light winter paper engine garden silver window market letter forest island bridge copper morning".split()


def ask(http, text):
    """Milliseconds, prompt tokens, those found on disk, the reply."""
    body = {"prompt": text, "max_tokens": 1, "temperature": 0}
    request = urllib.request.Request(f"http://{http}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    start = time.monotonic()
    with urllib.request.urlopen(request, timeout=3600) as response:
        reply = json.load(response)
    took = (time.monotonic() - start) * 1000
    usage = reply["usage"]
    details = usage["prompt_tokens_details"].get("cached_tokens_details", {})
    return took, usage["prompt_tokens"], details.get("disk_tokens", 0), reply["choices"][0]["text"]


def prompt(n_tokens, seed):
    chance = random.Random(seed)
    return " ".join(chance.choice(WORDS) for _ in range(int(n_tokens * 0.98)))


def drop(folder):
    """Takes the files out of the page cache; what was not on disk yet is written first."""
    for path in glob.glob(os.path.join(folder, "*", "*.kv")):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def disk_rate(folder, n_bytes, is_cold):
    """MB/s of reading so much from the slabs, in pieces of a page, as one thread does."""
    if is_cold:
        drop(folder)
    left, start = n_bytes, time.monotonic()
    for path in sorted(glob.glob(os.path.join(folder, "*", "*.kv"))):
        with open(path, "rb", buffering=0) as f:
            while left > 0 and (piece := f.read(384 << 10)):
                left -= len(piece)
    return (n_bytes - left) / 1e6 / (time.monotonic() - start)


def measure(parleyd, model, o):
    rows, is_wrong = {"computed": [], "warm": [], "cold": []}, False
    with tempfile.TemporaryDirectory(dir=o.folder) as folder:
        flags = ["--http", "127.0.0.1:0", "--model", f"m={model}"]
        kept = [*flags, "--kv-disk", "4G", "--kv-disk-dir", folder]
        text, right = prompt(o.tokens, 1), None
        with children.Daemon(parleyd, *kept) as daemon:
            _, n_prompt, _, right = ask(daemon.http, text)
        size = sum(os.stat(path).st_blocks * 512 for path in glob.glob(os.path.join(folder, "*", "*.kv")))
        for _ in range(o.rounds):
            for kind in rows:
                if kind == "cold":
                    drop(folder)
                with children.Daemon(parleyd, *(flags if kind == "computed" else kept)) as daemon:
                    ask(daemon.http, "warm up " * 40)  # threads, first touches
                    if kind == "cold":
                        drop(folder)
                    took, n_prompt, n_disk, reply = ask(daemon.http, text)
                rows[kind].append(took)
                is_wrong |= reply != right or n_disk != (0 if kind == "computed" else (n_prompt - 1) // 16 * 16)
        rates = {kind: statistics.median(disk_rate(folder, size, kind == "cold") for _ in range(3)) for kind in ("warm", "cold")}
    found = {"model": os.path.basename(model), "tokens": n_prompt, "mb": size / 1e6, "is_wrong": is_wrong,
             **{f"{kind}_ms": statistics.median(times) for kind, times in rows.items()},
             **{f"{kind}_disk_mb_s": rate for kind, rate in rates.items()}}
    for kind in ("warm", "cold"):
        found[f"{kind}_of_computed"] = found[f"{kind}_ms"] / found["computed_ms"]
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("models", nargs="+")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--tokens", type=int, default=2000)
    p.add_argument("--folder", default="build")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    all_found = [measure(os.path.join(o.build, "parleyd"), model, o) for model in o.models]
    if o.json:
        print(json.dumps(all_found))
    else:
        for f in all_found:
            print(f"{f['model']}: {f['tokens']} tokens, {f['mb']:.0f} MB on disk, to the first token {f['computed_ms']:.0f} ms computed, "
                  f"{f['warm_ms']:.0f} ms from the page cache (1/{1 / f['warm_of_computed']:.1f}), {f['cold_ms']:.0f} ms from disk "
                  f"(1/{1 / f['cold_of_computed']:.1f}); the files alone are read at {f['warm_disk_mb_s']:.0f} and {f['cold_disk_mb_s']:.0f} MB/s"
                  + ("; WRONG" if f["is_wrong"] else ""))
    sys.exit(3 if any(f["is_wrong"] for f in all_found) else 0)


if __name__ == "__main__":
    main()
