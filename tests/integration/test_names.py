#!/usr/bin/env python3
"""Models by name: files and folders alone, Ollama's store and the Hugging Face cache, read in place; and the hub, of which there
is one here (hub.py), with huggingface_hub as the other program that reads and writes the cache.

usage: test_names.py PARLEYD WRITE_TINY_MODEL PARLEY
"""
import fcntl
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
from unittest import mock

import huggingface_hub

import children
from children import PATIENCE
from hub import COMMIT, File, Hub
from small_disk import SmallDisk


def ask(daemon, method, path, body=None, **headers):
    """Status and body of a request."""
    connection = http.client.HTTPConnection(daemon.ready["http"], timeout=PATIENCE)
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    said = answer.read().decode()
    connection.close()
    return answer.status, said


def reply(daemon, model):
    status, said = ask(daemon, "POST", "/v1/chat/completions", {
        "model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0})
    assert status == 200, said
    return json.loads(said)["choices"][0]["message"]["content"]


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def in_ollama(store, name, tag, data):
    """A model as `ollama pull` leaves it."""
    digest = hashlib.sha256(data).hexdigest()
    put(store / "blobs" / f"sha256-{digest}", data)
    put(store / "manifests/registry.ollama.ai/library" / name / tag, json.dumps({"schemaVersion": 2, "layers": [
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": len(data)},
        {"mediaType": "application/vnd.ollama.image.template", "digest": f"sha256:{'0' * 64}", "size": 1}]}).encode())


def in_cache(cache, repo, name, data):
    """A file as huggingface_hub leaves it."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    digest = hashlib.sha256(data).hexdigest()
    put(folder / "blobs" / digest, data)
    put(folder / "refs/main", COMMIT.encode())
    link = folder / "snapshots" / COMMIT / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("../" * name.count("/") + f"../../blobs/{digest}")


def refused(parleyd, says, *arguments, code=1):
    result = children.run([parleyd, "--listen", "127.0.0.1:0", *arguments], capture_output=True, text=True, stdin=children.subprocess.DEVNULL)
    assert result.returncode == code and says in result.stderr, (arguments, result.returncode, result.stderr)


def read_in_place(parleyd, tiny, folder):
    """Everything is served from where it lies, under the name that is made from it."""
    store, cache, models = folder / "store", folder / "cache", folder / "models"
    os.environ.update(OLLAMA_MODELS=str(store), HF_HUB_CACHE=str(cache))
    data = tiny.read_bytes()
    in_ollama(store, "qwen3", "latest", data)
    in_ollama(store, "qwen3", "0.6b", data)
    in_cache(cache, "o/Some-GGUF", "Q8_0/some-Q8_0.gguf", data)
    in_cache(cache, "o/Some-GGUF", "some-Q4_K_M.gguf", data)
    for name in ("b", "a"):
        put(models / f"{name}.gguf", data)
    put(models / "note.txt", b"no model")
    files = sorted(str(path) for path in folder.rglob("*"))
    with children.Daemon(parleyd, tiny, models, "--http", "127.0.0.1:0", "ollama:qwen3", "--model", "ollama:qwen3:0.6b", "hf:o/Some-GGUF",
                         "eight=hf:o/Some-GGUF:q8_0") as daemon:
        names = ["tiny", "a", "b", "qwen3", "qwen3-0.6b", "Some", "eight"]
        assert daemon.ready["models"] == ",".join([*names, "echo"]), daemon.ready
        assert len({reply(daemon, name) for name in names}) == 1
        put(models / "c.gguf", data)
        daemon.process.send_signal(signal.SIGHUP)
        children.until("the folder's new model", lambda: '"c"' in ask(daemon, "GET", "/v1/models")[1], daemon.process)
        (models / "c.gguf").unlink()
    assert sorted(str(path) for path in folder.rglob("*")) == files  # nothing was written
    refused(parleyd, "model 'x': hf:o/x in the hub's cache: nothing of it is there", "hf:o/x", "--offline")
    refused(parleyd, "there is no Q2_K; there are: ", "--model", "x=hf:o/Some-GGUF:Q2_K", "--offline")
    refused(parleyd, "ollama:nope:latest is not in Ollama's store", "ollama:nope")
    refused(parleyd, "'hf:x' is no name of the hub", "hf:x", code=2)
    refused(parleyd, "not 'serve'", "serve", code=2)
    refused(parleyd, "hf:o/x in the hub's cache", "--check", "hf:o/x")
    shutil.rmtree(store)
    shutil.rmtree(cache)


def pull(parley, *arguments, code=0, says="", **environment):
    """What it prints; says is in its errors."""
    result = children.run([parley, "pull", *arguments], capture_output=True, text=True, env={**os.environ, **environment})
    assert result.returncode == code and says in result.stderr, (arguments, result.returncode, result.stderr)
    assert "hf_" not in result.stdout + result.stderr, "a token is shown"
    return result.stdout


def is_whole(cache, repository, files):
    """huggingface_hub reads what the cache has, and has nothing to complain of."""
    for name, data in files.items():
        path = huggingface_hub.hf_hub_download(repository, name, cache_dir=cache, local_files_only=True)
        assert pathlib.Path(path).read_bytes() == data and huggingface_hub.try_to_load_from_cache(repository, name, cache_dir=cache) == path
    info = huggingface_hub.scan_cache_dir(cache)
    assert not info.warnings, info.warnings
    found = next(repo for repo in info.repos if repo.repo_id == repository)
    assert {file.file_name for revision in found.revisions for file in revision.files} >= {pathlib.Path(name).name for name in files}
    leftovers = [path for path in cache.rglob("*") if path.suffix in (".parley", ".new")]
    assert not leftovers, leftovers


def fetches(parley, parleyd, tiny, cache):
    """A file, a split model, a folder: each whole, named as the hub's programs name it, and fetched once; both ways."""
    data, large = tiny.read_bytes(), os.urandom(4_500_000)
    one, split = {"m-Q8_0.gguf": large, "m-Q4_K_M.gguf": data}, {f"Q8 0%/x-0000{i}-of-00002.gguf": large[i:] for i in (1, 2)}
    folder = {"config.json": b"{}", "tokenizer.json": b"[1]", "empty.json": b"", "model.safetensors": large}
    shards = {f"model-0000{i}-of-00002.safetensors": large[i:] for i in (1, 2)}
    index = json.dumps({"weight_map": {str(i): name for i, name in enumerate(shards)}}).encode()
    several = {**folder, "model.safetensors.index.json": index, **shards}
    del several["model.safetensors"]
    lacking = {name: data for name, data in several.items() if "-00002-of" not in name}
    with Hub({"o/one-GGUF": one, "o/split": split, "o/folder": {**folder, "README.md": b"", "x.bin": large}, "o/several": several, "o/lacking": lacking,
              "o/python": one, "o/plain": one}, token="hf_secret") as hub:
        os.environ.update(HF_ENDPOINT=hub.url + "/", HF_HUB_CACHE=str(cache))
        pull(parley, "hf:o/one-GGUF", code=1, says="HTTP 401: the repository is private or does not exist; set HF_TOKEN")
        pull(parley, "hf:o/one-GGUF", code=1, says="HTTP 401: the token of HF_TOKEN, or of 'hf auth login', is not valid there", HF_TOKEN="hf_other")
        os.environ["HF_TOKEN"] = "hf_secret\n"  # as a file has it from which it was set
        path = pull(parley, "hf:o/one-GGUF").strip()
        assert path == str(cache / "models--o--one-GGUF/snapshots" / COMMIT / "m-Q4_K_M.gguf") and pathlib.Path(path).read_bytes() == data
        told = json.loads(pull(parley, "hf:o/one-GGUF:q8_0", "--json"))
        assert told["bytes"] == len(large) and told["path"].endswith("m-Q8_0.gguf") and told["name"] == "hf:o/one-GGUF:q8_0"
        assert pull(parley, "hf:o/split", "hf:o/folder", "hf:o/several").splitlines()[1] == str(cache / "models--o--folder/snapshots" / COMMIT)
        for repository, files in (("o/one-GGUF", one), ("o/split", split), ("o/folder", folder), ("o/several", several)):
            is_whole(cache, repository, files)
        assert all(token is None for where, _, _, _, token in hub.seen if where == "store")
        assert any(where == "store" and asked for where, _, _, asked, _ in hub.seen)
        n = hub.bytes_sent
        pull(parley, "hf:o/one-GGUF", "hf:o/folder")
        for name in one:
            huggingface_hub.hf_hub_download("o/one-GGUF", name, cache_dir=cache, endpoint=hub.url, token="hf_secret")
            huggingface_hub.hf_hub_download("o/python", name, cache_dir=cache, endpoint=hub.url, token="hf_secret")
        assert hub.bytes_sent == n + sum(map(len, one.values())), "what is there was fetched again"
        n = hub.bytes_sent
        assert pathlib.Path(pull(parley, "hf:o/python").strip()).read_bytes() == data and hub.bytes_sent == n
        hub.commits["o/one-GGUF"] = "f" * 40  # a new commit, in which one file is new
        hub.repositories["o/one-GGUF"]["m-Q4_K_M.gguf"] = File(data + b"more")
        assert ("f" * 40) in pull(parley, "hf:o/one-GGUF") and hub.bytes_sent == n + len(data) + 4
        assert pathlib.Path(path).read_bytes() == data  # the older snapshot is as it was
        with children.Daemon(parleyd, "hf:o/python", "--http", "127.0.0.1:0") as daemon:
            assert daemon.ready["models"] == "python,echo" and reply(daemon, "python")
        with mock.patch.object(huggingface_hub.constants, "HF_HUB_DISABLE_SYMLINKS", True):  # as on a disk without links
            plain = huggingface_hub.hf_hub_download("o/plain", "m-Q8_0.gguf", cache_dir=cache, endpoint=hub.url, token="hf_secret")
        n = hub.bytes_sent
        assert not os.path.islink(plain) and pull(parley, "hf:o/plain:q8_0").strip() == plain and hub.bytes_sent == n
        hub.moved["o/old"] = "o/one-GGUF"
        home = cache.parent / "home of the hub"
        put(home / "token", b"hf_secret\n")
        moved = pull(parley, "hf:o/old:q8_0", HF_HUB_CACHE="", HF_HOME=str(home), HF_TOKEN="").strip()
        assert moved.startswith(str(home / "hub/models--o--old/")) and pathlib.Path(moved).read_bytes() == large
        pull(parley, "hf:o/lacking", code=1, says="hf:o/lacking in the hub's cache: model-00002-of-00002.safetensors is missing\n")


def resumes(parley, cache):
    """A download that is killed at ten places, or interrupted, goes on; nothing that was kept is asked for again."""
    data = os.urandom(22_000_000)
    os.environ.pop("HF_TOKEN")
    with Hub({"o/big": {"a.gguf": data}}) as hub:
        os.environ["HF_ENDPOINT"] = hub.url
        kept, partial = 0, cache / "models--o--big/blobs" / f"{File(data).sha256}.parley"
        for i in range(1, 11):
            gate = hub.bytes_sent + 2_000_000
            hub.open(gate)
            process = children.start([parley, "pull", "hf:o/big"], stdout=children.subprocess.DEVNULL, stderr=children.subprocess.PIPE, text=True)
            children.until("the gate", lambda gate=gate: hub.bytes_sent == gate, process)
            children.until("some of what was sent is kept", lambda: partial.exists() and partial.read_bytes()[len(data):].count(1) > kept, process)
            process.send_signal(signal.SIGINT if i == 5 else signal.SIGKILL)
            said = process.communicate()[1]
            assert process.returncode != 0 and ("hf:o/big: interrupted; the next pull goes on from there" in said) == (i == 5), said
            marks = partial.read_bytes()[len(data):]
            assert marks.count(1) > kept and not (cache / "models--o--big/refs").exists()
            kept = marks.count(1)
        assert kept >= 10
        n = hub.bytes_sent
        hub.open()
        path = pull(parley, "hf:o/big", says="going on at ").strip()
        assert pathlib.Path(path).read_bytes() == data and hub.bytes_sent - n <= len(data) - (kept - 1) * (256 << 10)
        is_whole(cache, "o/big", {"a.gguf": data})
        shutil.rmtree(cache / "models--o--big")
        put(partial, data)  # a kill after the marks were cut off: nothing is fetched again
        n = hub.bytes_sent
        pull(parley, "hf:o/big")
        assert hub.bytes_sent == n
        is_whole(cache, "o/big", {"a.gguf": data})
        shutil.rmtree(cache / "models--o--big")
        hub.open(hub.bytes_sent + 3_000_000)  # two at once: one fetches, the other waits for it
        n = hub.bytes_sent
        with tempfile.TemporaryFile() as said:
            both = [children.start([parley, "pull", "hf:o/big"], stdout=children.subprocess.DEVNULL, stderr=said) for _ in range(2)]
            children.until("one to fetch", lambda: hub.bytes_sent == n + 3_000_000, *both)
            children.until("the other to wait", lambda: b"another program fetches a.gguf; waiting" in os.pread(said.fileno(), 1 << 16, 0), *both)
            hub.open()
            assert [process.wait(PATIENCE) for process in both] == [0, 0], os.pread(said.fileno(), 1 << 16, 0)
        assert hub.bytes_sent - n == len(data)


def full_disk(parley, cache):
    """A disk that fills amid a pull ends it with a sentence. What was received is kept, and once there is room the next pull goes on."""
    if os.geteuid() != 0:
        print("full_disk: skipped, only root can mount a small disk")
        return
    data = os.urandom(4_500_000)
    partial = cache / "models--o--full/blobs" / f"{File(data).sha256}.parley"
    cache.mkdir()
    with SmallDisk(cache, "6m") as disk, Hub({"o/full": {"a.gguf": data}}) as hub:
        os.environ.update(HF_ENDPOINT=hub.url, HF_HUB_CACHE=str(cache))
        hub.open(2_000_000)
        process = children.start([parley, "pull", "hf:o/full"], stdout=children.subprocess.DEVNULL, stderr=children.subprocess.PIPE, text=True)
        children.until("a piece that is kept", lambda: partial.exists() and 1 in partial.read_bytes()[len(data):], process)
        disk.fill()
        hub.open()
        said = process.communicate()[1]
        assert process.returncode == 1 and "hf:o/full: a.gguf: cannot write " in said and "No space left on device" in said, said
        disk.make_room()
        n = hub.bytes_sent
        pull(parley, "hf:o/full", says="going on at ")
        assert hub.bytes_sent - n < len(data)
        is_whole(cache, "o/full", {"a.gguf": data})


def fails(parley, cache):
    """What the hub and the network do wrong is mended by another try, or said."""
    data = os.urandom(4_500_000)
    with Hub({"o/r": {"a.gguf": data}, "o/s": {"a.gguf": b"small"}, "o/none": {"x.bin": b""}, "o/evil": {"../a.gguf": b"", "/b.gguf": b""}}) as hub:
        os.environ.update(HF_ENDPOINT=hub.url, HF_HUB_CACHE=str(cache))
        pull(parley, "hf:o/x", code=1, says="hf:o/x: HTTP 404: there is no such repository")
        pull(parley, "hf:o/r:Q4_0", code=1, says="there is no Q4_0; there are: a.gguf")
        pull(parley, "hf:o/none", code=1, says="there is neither a GGUF file nor config.json")
        pull(parley, "hf:o/evil", code=1, says="there is neither a GGUF file")
        pull(parley, "o/r", code=2, says="is no name of the hub")
        pull(parley, "ollama:m:1b", code=2, says="'ollama pull m:1b' fetches it")
        pull(parley, "hf:o/r", "--connections", "17", code=2, says="--connections is 1 to 16")
        hub.fail("list", (403, {"X-Error-Code": "GatedRepo"}))
        pull(parley, "hf:o/r", code=1, says="accept its conditions")
        hub.fail("resolve", (403, {"X-Error-Code": "GatedRepo"}))
        pull(parley, "hf:o/r", code=1, says="hf:o/r: a.gguf: its owner gives access on request: accept its conditions")
        hub.fail("resolve", (404, {"X-Error-Code": "EntryNotFound"}))
        pull(parley, "hf:o/r", code=1, says="hf:o/r: a.gguf: HTTP 404: there is no such file")
        hub.fail("list", (429, {"Retry-After": "3600"}))
        pull(parley, "hf:o/r", code=1, says="HTTP 429: too many requests; come back in 3600 s")
        hub.fail("list", 503)
        hub.fail("resolve", 502)
        hub.fail("store", (300_000, "cut"), 500, (700_000, "cut"), (429, {"Retry-After": "1"}))
        assert pathlib.Path(pull(parley, "hf:o/r", "--connections", "1").strip()).read_bytes() == data
        shutil.rmtree(cache / "models--o--r")
        hub.repositories["o/r"]["a.gguf"].data = data[:-1] + bytes([data[-1] ^ 1])
        pull(parley, "hf:o/r", code=1, says="hf:o/r: a.gguf: its sha256 is ")
        assert not list((cache / "models--o--r/blobs").iterdir())
        hub.repositories["o/r"]["a.gguf"].data = data[:-70_000]
        pull(parley, "hf:o/r", code=1)  # the list promised more
        hub.repositories["o/r"]["a.gguf"].data = data
        hub.has_ranges = False
        pull(parley, "hf:o/r", code=1, says="the server sends no parts of files")
        pull(parley, "hf:o/s")
        hub.has_ranges = True
        pull(parley, "hf:o/r")
        lock = cache / ".locks/models--o--r" / f"{File(data).sha256}.lock"
        shutil.rmtree(cache / "models--o--r")
        with open(lock, "w", encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # as huggingface_hub does while it fetches
            process = children.start([parley, "pull", "hf:o/r"], stdout=children.subprocess.PIPE, stderr=children.subprocess.PIPE, text=True)
            assert "another program fetches a.gguf; waiting" in process.stderr.readline()
        assert process.communicate()[0] and process.returncode == 0
        hub.repositories["o/huge"], hub.commits["o/huge"] = {"a.gguf": File(b"")}, COMMIT
        hub.repositories["o/huge"]["a.gguf"].size = 1 << 42
        pull(parley, "hf:o/huge", code=1, says="MB are missing of the file, and the disk of ")
        assert not list((cache / "models--o--huge/blobs").iterdir())
        for name, files, says in (("o/many", {f"{i}.gguf": File(b"") for i in range(2001)}, "the repository has 2001 files, more than 2000"),
                                  ("o/long", {"a" * 9_000_000: File(b"")}, "the list of its files has more than 8 MB")):
            hub.repositories[name], hub.commits[name] = files, COMMIT
            pull(parley, f"hf:{name}", code=1, says=f"hf:{name}: {says}")
        pull(parley, "hf:o/r", code=1, says="HF_HUB_OFFLINE is set", HF_HUB_OFFLINE="1")
        pull(parley, "hf:o/r", code=1, says="HF_ENDPOINT is to be http(s)://HOST", HF_ENDPOINT="ftp://x")
        pull(parley, "hf:o/r", code=1, says="HF_TOKEN has characters", HF_TOKEN="a\nb")
        hub.fail("list", (200, {}))
        pull(parley, "hf:o/r", code=1, says="hf:o/r: the answer is no list of a repository; does HF_ENDPOINT name a hub?")
        pull(parley, "hf:o/r", code=1, says="cannot make the folder", HF_HUB_CACHE="/proc/nowhere")
    pull(parley, "hf:o/r", code=1, says=f"hf:o/r: {hub.url} does not answer: ")


def without_locks(parley, cache, preload):
    """Where a disk has no locks nothing is fetched; what is there is found, and removed."""
    files, variables = {"a.gguf": b"first"}, {"LD_PRELOAD": preload, "PARLEY_NO_LOCKS": "1", "HF_HUB_CACHE": str(cache)}
    with Hub({"o/nolocks": files}) as hub:
        variables["HF_ENDPOINT"] = hub.url
        pull(parley, "hf:o/nolocks", code=1, says="has no locks: set HF_HUB_CACHE to a folder of a disk that has them", **variables)
        assert not list((cache / "models--o--nolocks").rglob("*.parley")) and not list((cache / "models--o--nolocks").rglob("*.gguf"))
        pull(parley, "hf:o/nolocks", **{**variables, "LD_PRELOAD": ""})
        pull(parley, "hf:o/nolocks", **variables)
        is_whole(cache, "o/nolocks", files)
    children.run([parley, "models", "rm", "hf:o/nolocks"], env={**os.environ, **variables}, check=True, capture_output=True)
    assert not (cache / "models--o--nolocks").exists()


def removes(parley, cache):
    """What is removed is gone from all snapshots, and nothing else is; not while a program fetches it."""
    def remove(*names, code=0, says=""):
        result = children.run([parley, "models", "rm", *names], capture_output=True, text=True)
        assert result.returncode == code and says in result.stdout + result.stderr, (names, result.returncode, result.stdout, result.stderr)

    one, two, both = os.urandom(3_000_000), os.urandom(200_000), b"shared" * 40_000
    files = {"m-Q8_0.gguf": one, "m-Q4_K_M.gguf": two, "x/m-Q6_K.gguf": both, "copy/m-Q5_K.gguf": both}
    os.environ["HF_HUB_CACHE"] = str(cache)
    with Hub({"o/gone": files}) as hub:
        os.environ["HF_ENDPOINT"] = hub.url
        pull(parley, *(f"hf:o/gone:{name}" for name in files))
        hub.commits["o/gone"] = "e" * 40
        pull(parley, *(f"hf:o/gone:{name}" for name in files))  # a second snapshot, of the same blobs
    folder, blob = cache / "models--o--gone", cache / "models--o--gone/blobs" / File(one).sha256
    with open(cache / ".locks/models--o--gone" / f"{blob.name}.lock", "w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove("hf:o/gone:Q8_0", code=1, says="hf:o/gone: a program fetches it: end that first")
    remove("hf:o/gone:Q2_K", code=1, says="there is no Q2_K; there are: ")
    remove("hf:o/gone:Q8_0", says="hf:o/gone:Q8_0: removed 3.0 MB")
    assert not blob.exists() and not list(folder.rglob("m-Q8_0.gguf"))
    is_whole(cache, "o/gone", {name: data for name, data in files.items() if name != "m-Q8_0.gguf"})
    remove("hf:o/gone:Q6_K", says="removed 0.0 MB")  # another file has the same bytes
    assert not list(folder.rglob("x")) and len(list(folder.rglob("m-Q5_K.gguf"))) == 2
    remove("hf:o/gone:Q5_K", "hf:o/gone:Q4_K_M")
    assert not folder.exists()
    remove("hf:o/gone", code=1, says="nothing of it is in the hub's cache")
    remove("hf:../x", code=2, says="is no name of the hub")
    remove("ollama:m", code=2, says="'ollama rm m' removes it")


def at_start(parleyd, tiny, cache):
    """A start fetches what the cache lacks, unless it may not; what the cache has is not asked for."""
    with Hub({"o/start-GGUF": {"m.gguf": tiny.read_bytes()}}, token="hf_secret") as hub:
        os.environ.update(HF_ENDPOINT=hub.url, HF_TOKEN="hf_secret")
        for forbids in ("--offline", "--check"):
            refused(parleyd, "hf:o/start-GGUF in the hub's cache: nothing of it is there; 'parley pull' fetches it", "hf:o/start-GGUF", forbids)
        refused(parleyd, "model 'x': hf:o/x: HTTP 404: there is no such repository", "x=hf:o/x")
        n = len(hub.seen)
        assert n == 1
        with children.Daemon(parleyd, "hf:o/start-GGUF", "--http", "127.0.0.1:0", "--log-level", "debug") as daemon:
            assert daemon.ready["models"] == "start,echo" and reply(daemon, "start")
            assert any(' info fetching model=start file="m.gguf" percent=' in line for line in daemon.said), daemon.said
            n = len(hub.seen)
            (cache / "models--o--start-GGUF/refs/main").write_text("0" * 40)  # SIGHUP fetches nothing
            daemon.process.send_signal(signal.SIGHUP)
            children.until("the reload fails", lambda: any("'parley pull' fetches it" in line for line in daemon.said), daemon.process)
            assert reply(daemon, "start") and not any("hf_secret" in line for line in daemon.said)
            (cache / "models--o--start-GGUF/refs/main").write_text(COMMIT)
        with children.Daemon(parleyd, "x=hf:o/start-GGUF", "--offline", "--http", "127.0.0.1:0") as daemon:
            assert reply(daemon, "x")
        assert len(hub.seen) == n
        shutil.rmtree(cache / "models--o--start-GGUF")
        hub.open(hub.bytes_sent)  # SIGTERM ends a start that fetches, also that of a container's first process
        process = children.start([parleyd, "hf:o/start-GGUF", "--listen", "127.0.0.1:0"], stderr=children.subprocess.PIPE, text=True)
        children.until("the start to fetch", lambda: len(hub.seen) >= n + 2, process)
        process.terminate()
        said = process.communicate()[1]
        assert process.returncode == 1 and "model 'start': hf:o/start-GGUF: interrupted; the next pull goes on from there" in said, said
    del os.environ["HF_TOKEN"]


def through_a_server(parleyd, parley, tiny, cache, root):
    """Administrators pull through a server, which tells how far it is, and has the model from then on."""
    data = tiny.read_bytes()
    keys, secrets, lines = root / "keys", {}, []
    for name, role in (("root", ["--admin"]), ("guest", [])):
        made = children.run([parley, "keys", "new", "--principal", name, *role], capture_output=True, text=True, check=True).stdout.splitlines()
        secrets[name] = {"Authorization": f"Bearer {made[0]}"}
        lines.append(made[-1])
    keys.write_text("".join(f"{line}\n" for line in lines))
    keys.chmod(0o600)
    with Hub({"o/served-GGUF": {"m-Q8_0.gguf": data, "m-Q4_K_M.gguf": os.urandom(4_500_000)}, "o/other": {"tiny.gguf": data}, "o/tiny": {"x.gguf": data}}) as hub:
        os.environ["HF_ENDPOINT"] = hub.url
        with children.Daemon(parleyd, tiny, "--http", "127.0.0.1:0", "--keys", str(keys)) as daemon:
            def pulled(name, who="root", **body):
                status, said = ask(daemon, "POST", "/api/pull", {"model": name, **body}, **secrets[who])
                return status, [json.loads(line) for line in said.splitlines()]

            assert pulled("tiny", "guest") == (200, [{"status": "success"}])
            status, lines = pulled("hf.co/o/served-GGUF:Q8_0", "guest")
            assert status == 403 and "role admin" in lines[0]["error"] and not hub.seen
            status, lines = pulled("hf.co/o/served-GGUF:Q8_0")
            digest = f"sha256:{File(data).sha256}"
            assert status == 200 and lines[-1] == {"status": "success", "model": "served"} and {line["status"] for line in lines} >= {
                f"pulling {digest[7:19]}", "verifying sha256 digest", "writing manifest"}, lines
            told = [line for line in lines if "total" in line]
            assert told[-1]["completed"] == told[-1]["total"] == len(data) and told[-1]["digest"] == digest
            status, said = ask(daemon, "POST", "/parley.v1.Models/Load", {"name": "served"}, **{"Content-Type": "application/json"}, **secrets["root"])
            assert status == 200, said
            status, said = ask(daemon, "POST", "/v1/chat/completions", {"model": "served", "messages": [{"role": "user", "content": "x"}],
                                                                      "max_tokens": 2}, **secrets["guest"])
            assert status == 200, said
            assert pulled("hf:o/other:latest", stream=False) == (200, [{"status": "success", "model": "other"}])
            for name, code, says in (("hf:o/tiny", 422, "there is another model 'tiny' already"),
                                     ("hf:p/other", 422, "to serve hf:p/other beside it, start parleyd with --model NAME=hf:p/other"), ("hf:o/x", 404, "HTTP 404: there is no such"),
                                     ("hf:x", 400, "is no name of the hub"), ("hf:o/other:Q2_K", 404, "there is no Q2_K"), ("nope", 404, "no model 'nope'")):
                status, lines = pulled(name)
                assert status == code and says in lines[0]["error"], (name, status, lines)
            hub.open(hub.bytes_sent + 1_000_000)
            gate = hub.gate
            connection = http.client.HTTPConnection(daemon.ready["http"], timeout=PATIENCE)
            connection.request("POST", "/api/pull", json.dumps({"model": "hf:o/served-GGUF:Q4_K_M"}), secrets["root"])
            children.until("the gate", lambda: hub.bytes_sent == gate, daemon.process)
            assert b"pulling " in connection.getresponse().readline()
            connection.close()  # the client goes away, and so does its pull
            lock = cache / ".locks/models--o--served-GGUF" / f"{hub.repositories['o/served-GGUF']['m-Q4_K_M.gguf'].sha256}.lock"

            def is_free():
                with open(lock, "rb") as held:
                    try:
                        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        return False
                    return True

            children.until("the pull ends", is_free, daemon.process)
            hub.open(hub.bytes_sent + 500_000)
            gate = hub.gate
            connection = http.client.HTTPConnection(daemon.ready["http"], timeout=PATIENCE)
            connection.request("POST", "/api/pull", json.dumps({"model": "hf:o/served-GGUF:Q4_K_M"}), secrets["root"])
            children.until("the gate again", lambda: hub.bytes_sent == gate, daemon.process)
        said = connection.getresponse().read().decode()  # the daemon has ended, with 0, while it fetched
        assert "interrupted; the next pull goes on from there" in said.splitlines()[-1], said
        connection.close()
        with children.Daemon(parleyd, tiny, "--http", "127.0.0.1:0", "--offline") as daemon:
            status, said = ask(daemon, "POST", "/api/pull", {"model": "hf:o/other"})
            assert status == 422 and "--offline is set" in said, (status, said)


def main():
    parleyd, write_tiny_model, parley = sys.argv[1:4]
    for variable in ("HF_HUB_CACHE", "HF_HOME", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "OLLAMA_MODELS"):
        os.environ.pop(variable, None)
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        os.environ["HOME"] = str(root / "home")
        tiny = root / "tiny.gguf"
        children.run([write_tiny_model, tiny], check=True)
        (root / "place").mkdir()
        read_in_place(parleyd, tiny, root / "place")
        fetches(parley, parleyd, tiny, root / "hub")
        resumes(parley, root / "hub")
        full_disk(parley, root / "full")
        fails(parley, root / "hub")
        removes(parley, root / "hub")
        for preload in sys.argv[4:]:
            without_locks(parley, root / "nolocks", preload)
        at_start(parleyd, tiny, root / "hub")
        through_a_server(parleyd, parley, tiny, root / "hub", root)


if __name__ == "__main__":
    main()
