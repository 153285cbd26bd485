#!/usr/bin/env python3
"""--memory: room for two of three models. Idle ones go, the least recently used first, and come back when they are asked for.

usage: test_memory.py PARLEYD WRITE_TINY_MODEL      (the Python of build/venv)
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import grpc
import numpy as np
import tritonclient.grpc as triton

import children
from harness import Parleyd, models, word
from test_service import Person

KV_BYTES = 2 << 20
PLAN = """
world_module: parley.worlds
overworld: menu
task_name: memory
max_workers: 1
tasks:
  a: {task_world: chat, model: a, max_tokens: 4}
  b: {task_world: chat, model: b, max_tokens: 4}
  c: {task_world: chat, model: c, max_tokens: 4}
"""


def loaded(client):
    return {m.name for m in client.models.List(models.ModelsListRequest()).models if word(m, "state") == "ready"} - {"echo"}


def refused(call, *codes):
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() in codes, error
        return error
    raise AssertionError("the call was not refused")


def ask(client, model, n=8):
    """Over HTTP, without a conversation that would stay. The text, or the status that it failed with."""
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": n, "seed": 3, "temperature": 1.0, "ignore_eos": True}
    request = urllib.request.Request(f"http://{client.http}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=children.PATIENCE) as response:
            return json.load(response)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        said = json.load(error)
        assert error.code != 429 or error.headers["Retry-After"] is not None
        return error.code, said["error"]["message"]


def figure(client, name):
    with urllib.request.urlopen(f"http://{client.http}/metrics") as page:
        return float(re.search(rf"^{name} (\S+)$", page.read().decode(), re.M).group(1))


def least_recently_used(client):
    """a and b are loaded at the start, in that order; a is used last, so b makes room for c; then a for b."""
    assert loaded(client) == {"a", "b"}
    first = {"b": ask(client, "b"), "a": ask(client, "a")}
    first["c"] = ask(client, "c")
    assert all(isinstance(text, str) and text for text in first.values()), first
    assert loaded(client) == {"a", "c"}
    assert ask(client, "b") == first["b"]
    assert loaded(client) == {"b", "c"}
    assert ask(client, "") == first["a"], "the default is the first model, though it was not loaded"
    assert figure(client, "parley_models_evicted_total") == 3
    assert 0 < figure(client, "parley_memory_used_bytes") <= figure(client, "parley_memory_limit_bytes")
    return first


def released(client):
    """Ollama's clients unload a model: one that nobody uses goes, and the next request loads it again."""
    def unload(model):
        body = json.dumps({"model": model, "keep_alive": 0}).encode()
        with urllib.request.urlopen(f"http://{client.http}/api/generate", body, timeout=children.PATIENCE) as answer:
            assert json.load(answer)["done_reason"] == "unload"
            return answer.headers["X-Parley-Unenforced"]

    first = ask(client, "a")
    held = client.open("a")
    assert unload("a") == "keep_alive" and "a" in loaded(client)
    client.close(held)
    assert unload("a") is None
    children.until("the model to be gone", lambda: "a" not in loaded(client))
    assert ask(client, "a") == first


def conversations_hold(client):
    """A model with an open conversation is not idle: it stays, and the request for a third is refused, until one is closed."""
    held = {name: client.open(name) for name in ("a", "c")}
    assert loaded(client) == {"a", "c"}
    error = refused(lambda: client.open("b"), grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert "models in use take" in error.details() and "--memory" in error.details(), error.details()
    assert any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata())
    assert ask(client, "b")[0] == 429
    assert loaded(client) == {"a", "c"}
    client.close(held["c"])
    b = client.open("b")
    assert loaded(client) == {"a", "b"}
    client.close(held["a"])
    client.close(b)


def many_at_once(client, first):
    """Requests for all three at once: each reply is the model's own, or one that says to come again; all come through."""
    def persist(name):
        def answered():
            text = ask(client, name)
            if isinstance(text, tuple):
                assert text[0] in (429, 503), text
                return False
            assert text == first[name]
            return True

        children.until(f"a reply of model '{name}'", answered)

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(persist, ["a", "b", "c"] * 10))
    assert figure(client, "parley_memory_used_bytes") <= figure(client, "parley_memory_limit_bytes")


def kserve_comes_again(client, first):
    """A request of KServe does not wait, but its model is loaded for it."""
    for name in ("a", "b"):
        assert ask(client, name) == first[name]
    text = triton.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"hello"], dtype=object))
    kserve = triton.InferenceServerClient(client.address)
    parameters = {"max_tokens": 4, "ignore_eos": True}
    try:
        kserve.infer("c", [text], parameters=parameters)
        raise AssertionError("the model was loaded")
    except triton.InferenceServerException as error:
        assert "UNAVAILABLE" in error.status(), error
    children.until("the load of c", lambda: "c" in loaded(client))
    assert kserve.infer("c", [text], parameters=parameters).as_numpy("text_output") is not None
    kserve.close()


def failures(client, paths, first):
    """A model whose file is gone says so, and others go on; one that was unloaded by a call stays away until it is loaded by one."""
    for name in ("a", "b"):
        assert ask(client, name) == first[name]
    os.rename(paths["c"], paths["c"] + ".gone")
    code, text = ask(client, "c")
    assert code >= 400 and "No such file" in text, (code, text)
    assert ask(client, "b") == first["b"]
    os.rename(paths["c"] + ".gone", paths["c"])
    assert ask(client, "c") == first["c"]
    client.models.Unload(models.ModelsUnloadRequest(name="c"))
    assert ask(client, "c")[0] == 503
    refused(lambda: client.open("c"), grpc.StatusCode.UNAVAILABLE)
    client.models.Load(models.ModelsLoadRequest(name="c"))
    assert ask(client, "c") == first["c"]


def chat_service(client):
    """An agent of the chat service has its model loaded: people are told that it is not ready until then, and their task goes on."""
    person, told = Person(client), []
    person.say("hello")
    assert person.read()["quick_replies"] == ["a", "b", "c"]
    person.say(({"a", "b", "c"} - loaded(client)).pop())

    def answers():
        person.say("hello")
        told.append(person.read()["text"])
        return not any(words in told[-1] for words in ("is not ready", "too many talks", "too fast"))

    children.until("the answer", answers)
    assert not any("world closed" in text for text in told), told
    person.close()


def main():
    parleyd, writer = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: os.path.join(folder, name + ".gguf") for name in ("a", "b", "c")}
        for i, path in enumerate(paths.values()):
            children.run([writer, path, str(2048 - 64 * i)], check=True)
        size = os.path.getsize(paths["a"])
        flags = [f"--model={name}={path}" for name, path in paths.items()]
        plan = os.path.join(folder, "service.yaml")
        with open(plan, "w", encoding="utf-8") as file:
            file.write(PLAN)
        flags += ["--kv-bytes", str(KV_BYTES), "--http", "127.0.0.1:0", "--service", plan]
        with Parleyd(parleyd, *flags, "--memory", str(5 * (size + KV_BYTES) // 2)) as client:
            first = least_recently_used(client)
            released(client)
            conversations_hold(client)
            many_at_once(client, first)
            kserve_comes_again(client, first)
            failures(client, paths, first)
            chat_service(client)
        small = subprocess.run([parleyd, *flags, "--listen", "127.0.0.1:0", "--memory", str(KV_BYTES)], capture_output=True, text=True, timeout=children.PATIENCE)
        assert small.returncode != 0 and "--memory" in small.stderr, small


if __name__ == "__main__":
    main()
