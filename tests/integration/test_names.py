#!/usr/bin/env python3
"""Models by name: files and folders alone, Ollama's store and the Hugging Face cache, read in place.

usage: test_names.py PARLEYD WRITE_TINY_MODEL PARLEY
"""
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import children
from children import PATIENCE

COMMIT = "0123456789abcdef0123456789abcdef01234567"


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
    refused(parleyd, "model 'x': hf:o/x in the hub's cache: nothing of it is there", "hf:o/x")
    refused(parleyd, "there is no Q2_K; there are: ", "--model", "x=hf:o/Some-GGUF:Q2_K")
    refused(parleyd, "ollama:nope:latest is not in Ollama's store", "ollama:nope")
    refused(parleyd, "'hf:x' is no name of the hub", "hf:x", code=2)
    refused(parleyd, "not 'serve'", "serve", code=2)
    refused(parleyd, "hf:o/x in the hub's cache", "--check", "hf:o/x")
    shutil.rmtree(store)
    shutil.rmtree(cache)


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    for variable in ("HF_HUB_CACHE", "HF_HOME", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "OLLAMA_MODELS"):
        os.environ.pop(variable, None)
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        os.environ["HOME"] = str(root / "home")
        tiny = root / "tiny.gguf"
        children.run([write_tiny_model, tiny], check=True)
        (root / "place").mkdir()
        read_in_place(parleyd, tiny, root / "place")


if __name__ == "__main__":
    main()
