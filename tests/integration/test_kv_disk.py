#!/usr/bin/env python3
"""KV pages on disk: a prompt that was read once is not computed again after a restart, a kill or a change of the files, its reply
is the same, and no other principal finds it.

usage: test_kv_disk.py PARLEYD WRITE_TINY_MODEL        (PARLEY_KV_KILLS: how often the daemon is killed while it writes, else 2)
"""
import concurrent.futures
import glob
import hashlib
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import children

WORDS = " ".join(f"hello {i * 7919 % 1000} in the hell" for i in range(40))


def ask(http, text, key=None, **more):
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 12, "temperature": 0.9, "seed": 3, **more}
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(f"http://{http}/v1/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=children.PATIENCE) as response:
            reply = json.load(response)
    except urllib.error.HTTPError as e:
        raise AssertionError(f"{e.code}: {e.read().decode()}") from e
    usage = reply["usage"]["prompt_tokens_details"]
    details = usage.get("cached_tokens_details", {})
    assert not details or sum(details.values()) == usage["cached_tokens"], usage
    return reply["choices"][0]["message"]["content"], details.get("disk_tokens", 0), reply["usage"]["prompt_tokens"]


def metrics(http, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with urllib.request.urlopen(urllib.request.Request(f"http://{http}/metrics", headers=headers), timeout=children.PATIENCE) as response:
        lines = response.read().decode().splitlines()
    return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def kill(daemon):
    """kill -9, and what __exit__ would do."""
    daemon.process.kill()
    daemon.process.wait()
    daemon.listener.join(children.PATIENCE)


def restarts(start, folder):
    constraint = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": {"enum": ["yes", "no"]}}}}
    with start() as daemon:
        reply, n_disk, n_prompt = ask(daemon.http, WORDS)
        assert n_disk == 0 and n_prompt > 500
    whole = (n_prompt - 1) // 16 * 16
    modes = {os.stat(path).st_mode & 0o777 for path in glob.glob(os.path.join(folder, "tiny", "*"))}
    assert modes == {0o600}, modes
    with start() as daemon:
        assert ask(daemon.http, WORDS) == (reply, whole, n_prompt)
        assert ask(daemon.http, WORDS)[:2] == (reply, 0)  # from memory
        seen = metrics(daemon.http)
        assert seen['parley_prefix_hit_disk_tokens_total{model="tiny"}'] == whole
        assert seen['parley_kv_disk_read_pages_total{model="tiny"}'] == whole // 16
        assert seen['parley_kv_disk_pages_used{model="tiny"}'] > whole // 16
        ask(daemon.http, "something else " * 20)
        assert metrics(daemon.http)['parley_prefix_missed_tokens_total{model="tiny",reason="never_computed"}'] > 100
    with start() as daemon:  # a reply that a constraint binds, and eight at once
        assert ask(daemon.http, WORDS, **constraint)[1] == whole
    with start() as daemon:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert {text for text, _, _ in pool.map(lambda _: ask(daemon.http, WORDS), range(8))} == {reply}
        assert metrics(daemon.http)['parley_prefix_hit_disk_tokens_total{model="tiny"}'] >= whole
    return reply, n_prompt


def damage(start, folder, reply):
    """Bytes that change, files that are cut and gone: misses, and no error."""
    chance = random.Random(5)
    for kind in ("flip", "cut", "gone"):
        for path in glob.glob(os.path.join(folder, "tiny", "slab-*.kv")):
            size = os.stat(path).st_size
            if kind == "gone":
                os.unlink(path)
            elif kind == "cut":
                os.truncate(path, size // 20)
            else:
                with open(path, "r+b") as f:
                    for _ in range(40):
                        f.seek(4096 + chance.randrange(size // 8))
                        byte = f.read(1)
                        f.seek(-1, os.SEEK_CUR)
                        f.write(bytes([byte[0] ^ 1 << chance.randrange(8)]))
        with start() as daemon:
            assert ask(daemon.http, WORDS)[0] == reply, kind
    with start() as daemon:
        assert ask(daemon.http, WORDS)[1] > 0  # written again


def kills(start, reply, n_prompt):
    chance = random.Random(6)
    for i in range(int(os.environ.get("PARLEY_KV_KILLS", "2"))):
        daemon = start().__enter__()
        try:
            assert ask(daemon.http, f"{i} {WORDS}")[2] > n_prompt - 20
            for _ in range(chance.randrange(3)):
                assert ask(daemon.http, WORDS)[0] == reply
        finally:
            kill(daemon)
    with start() as daemon:
        assert ask(daemon.http, WORDS)[0] == reply


def keyed(parleyd, flags, folder):
    """The keys of two principals, and what starts a daemon that has them in an order."""
    keys, path = {name: "pk-" + secrets.token_hex(32) for name in ("ann", "bob")}, os.path.join(folder, "keys")

    def start(*names):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            for name in names:
                print(name, hashlib.sha256(keys[name].encode()).hexdigest(), "admin", file=f)
        return children.Daemon(parleyd, *flags, "--keys", path)

    return keys, start


def principals(parleyd, flags, folder):
    keys, start = keyed(parleyd, flags, folder)
    secret = "a secret " + WORDS
    with start("ann", "bob") as daemon:
        reply, n_disk, _ = ask(daemon.http, secret, keys["ann"])
        assert n_disk == 0
    with start("bob", "ann") as daemon:  # their numbers change with the order of the lines
        assert ask(daemon.http, secret, keys["bob"])[:2] == (reply, 0)
        assert metrics(daemon.http, keys["bob"])['parley_prefix_missed_tokens_total{model="tiny",reason="other_salt"}'] > 400
        assert ask(daemon.http, secret, keys["ann"])[1] > 400
    with children.Daemon(parleyd, *flags) as daemon:
        assert ask(daemon.http, secret)[:2] == (reply, 0)


def revisions(parleyd, flags):
    with children.Daemon(parleyd, *flags, "--kv", "q8") as daemon:
        assert ask(daemon.http, WORDS)[1] == 0
        seen = metrics(daemon.http)
        assert seen['parley_prefix_missed_tokens_total{model="tiny",reason="other_revision"}'] > 400
        assert seen['parley_kv_disk_pages_dropped{model="tiny"}'] > 20


def recurrent(parleyd, write_tiny_model, folder):
    """A model with a recurrent state, and memory for one conversation: its snapshots come back with its pages, or neither does."""
    tiny, pages = os.path.join(folder, "tiny-state.gguf"), os.path.join(folder, "of-states")
    children.run([write_tiny_model, tiny, "qwen35.context_length=2048"], check=True)
    keys, start = keyed(parleyd, ["--http", "127.0.0.1:0", "--model", f"tiny={tiny}", "--threads", "2", "--kv-bytes", "1M", "--kv-disk", "64M",
                                  "--kv-disk-dir", pages], folder)

    def seen(daemon, name):
        return metrics(daemon.http, keys["ann"])[f'parley_{name}{{model="tiny"}}']

    with start("ann", "bob") as daemon:
        reply, n_disk, n_prompt = ask(daemon.http, WORDS, keys["ann"])
        assert n_disk == 0 and seen(daemon, "state_slots") < 10, n_disk
    whole = (n_prompt - 1) // 16 * 16
    states = glob.glob(os.path.join(pages, "tiny", "states", "*"))
    assert states and {os.stat(path).st_mode & 0o777 for path in states} == {0o600}, states

    daemon = start("bob", "ann").__enter__()
    try:
        assert ask(daemon.http, WORDS, keys["ann"]) == (reply, whole, n_prompt)
        assert seen(daemon, "prefix_hit_disk_tokens_total") == whole and seen(daemon, "state_snapshots_used_total") > 0
        assert ask(daemon.http, WORDS, keys["ann"])[:2] == (reply, 0)  # from memory
        for i in range(2):  # which then has others
            ask(daemon.http, f"{i} {WORDS}", keys["ann"])
        again, n_disk, _ = ask(daemon.http, WORDS, keys["ann"])
        assert again == reply and whole // 2 < n_disk <= whole, n_disk  # but for the system prompt's pages
        assert ask(daemon.http, WORDS, keys["bob"])[:2] == (reply, 0)
        ask(daemon.http, f"3 {WORDS}", keys["ann"])
    finally:
        kill(daemon)  # while the last snapshots are written

    with start("ann", "bob") as daemon:
        assert ask(daemon.http, WORDS, keys["ann"])[:2] == (reply, whole)
    for path in states:  # a byte of each block behind the headers
        with open(path, "r+b") as f:
            for at in range(64 << 10, os.stat(path).st_size, 4096):
                f.seek(at)
                byte = f.read(1)
                f.seek(at)
                f.write(bytes([byte[0] ^ 1]))
    with start("ann", "bob") as daemon:  # whole pages of no use
        assert ask(daemon.http, WORDS, keys["ann"])[:2] == (reply, 0)
        assert seen(daemon, "kv_disk_broken_pages_total") > 0
    with start("ann", "bob") as daemon:  # written again
        assert ask(daemon.http, WORDS, keys["ann"])[:2] == (reply, whole)


def refusals(parleyd, flags, tiny, folder):
    def said(*more):
        done = children.run([parleyd, "--listen", "127.0.0.1:0", "--model", f"tiny={tiny}", *more], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
        assert done.returncode != 0, done.stdout
        return done.stdout

    assert "--kv-disk: needs a folder" in said("--kv-disk", "1G")
    assert "--prefix-cache off" in said("--kv-disk", "1G", "--kv-disk-dir", folder, "--prefix-cache", "off")
    assert "are too few for KV pages on disk" in said("--kv-disk", "1K", "--kv-disk-dir", os.path.join(folder, "few"))
    file = os.path.join(folder, "file")
    with open(file, "w"):
        pass
    assert "Not a directory" in said("--kv-disk", "1G", "--kv-disk-dir", file)
    with children.Daemon(parleyd, *flags):
        assert "is in use by another parleyd" in said("--kv-disk", "1G", "--kv-disk-dir", folder)


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        tiny, pages = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "kv")
        children.run([write_tiny_model, tiny], check=True)
        flags = ["--http", "127.0.0.1:0", "--model", f"tiny={tiny}", "--threads", "2", "--kv-disk", "64M"]
        own = [*flags, "--kv-disk-dir", pages]

        def start():
            return children.Daemon(parleyd, *own)

        reply, n_prompt = restarts(start, pages)
        damage(start, pages, reply)
        kills(start, reply, n_prompt)
        principals(parleyd, [*flags, "--kv-disk-dir", os.path.join(folder, "of-principals")], folder)
        recurrent(parleyd, write_tiny_model, folder)
        refusals(parleyd, own, tiny, pages)
        revisions(parleyd, own)
        with children.Daemon(parleyd, *flags, "--data", os.path.join(folder, "data")) as daemon:  # in the folder of --data
            ask(daemon.http, WORDS)
        assert glob.glob(os.path.join(folder, "data", "kv", "tiny", "slab-*.kv"))
    print("KV pages on disk: found after restarts and kills, by their principal alone; the same replies")


if __name__ == "__main__":
    main()
