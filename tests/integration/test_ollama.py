#!/usr/bin/env python3
"""parleyd as Ollama's programs see it: the unmodified `ollama` client (chat, generate, streams, formats, options, models, errors as its own
exceptions), and bare connections for what it does not show: lines, compressed bodies, pages, keys, broken JSON, a client that goes away.

usage: test_ollama.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has the client; see venv.sh)
"""
import gzip
import hashlib
import http.client
import json
import os
import sys
import tempfile
import time
import urllib.request

import ollama

import children
from children import PATIENCE, until

STORY = [{"role": "user", "content": "Tell me a long story."}]
SECOND_NS = 1_000_000_000


def client_of(daemon, **more):
    return ollama.Client(host=f"http://{daemon.http}", timeout=PATIENCE, **more)


def expect(status, says, call, *args, **more):
    try:
        list(call(*args, **more))
    except ollama.ResponseError as error:
        assert error.status_code == status and says in error.error, (error.status_code, error.error)
        return
    raise AssertionError(f"no error {status} with {says!r}")


def ask(daemon, method, path, body=None, **headers):
    """Status, headers and body of a bare request."""
    connection = http.client.HTTPConnection(daemon.http, timeout=PATIENCE)
    connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body).encode(), headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, said


def part_of(text):
    """Some letters from within the text; a byte that is no character has none."""
    return next(text[i:i + 3] for i in range(3, len(text)) if "\ufffd" not in text[i:i + 3] and len(text[i:i + 3]) == 3)


# --- the client ---


def chat(daemon):
    client = client_of(daemon)
    said = client.chat("echo", [{"role": "user", "content": "é\"\\\n\U0001f600"}])
    assert said.message.content == "é\"\\\n\U0001f600" and said.message.role == "assistant" and said.done and said.done_reason == "stop"
    assert said.model == "echo"
    options = {"num_predict": 12, "seed": 7, "ignore_eos": True}
    whole = client.chat("tiny:latest", STORY, options=options)
    assert whole.model == "tiny:latest" and whole.done_reason == "length" and whole.eval_count == 12 and whole.prompt_eval_count > 0
    assert 0 < whole.eval_duration <= whole.total_duration < PATIENCE * SECOND_NS and whole.prompt_eval_duration > 0, whole
    assert whole.created_at.endswith("Z")
    lines = list(client.chat("tiny", STORY, options=options, stream=True, keep_alive="5m"))
    assert "".join(line.message.content for line in lines) == whole.message.content != ""
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]
    assert lines[-1].eval_count == 12 and lines[-1].done_reason == "length" and lines[-1].total_duration > 0
    assert lines[0].total_duration is None and all(line.message.role == "assistant" for line in lines)
    other = client.chat("tiny", STORY, options={**options, "temperature": 2, "top_k": 50, "top_p": 0.99, "min_p": 0.01, "repeat_penalty": 1.3,
                                                "presence_penalty": 0.1, "frequency_penalty": 0.1})
    assert other.message.content != whole.message.content
    cut = part_of(whole.message.content)
    stopped = client.chat("tiny", STORY, options={**options, "stop": [cut]})
    assert stopped.message.content == whole.message.content.split(cut)[0] and stopped.done_reason == "stop"


def logprobs(daemon):
    said = client_of(daemon).chat("tiny", STORY, options={"num_predict": 4, "ignore_eos": True, "temperature": 0}, logprobs=True, top_logprobs=2)
    assert len(said.logprobs) == 4
    for token in said.logprobs:
        assert len(token.top_logprobs) == 2 and token.logprob == token.top_logprobs[0].logprob <= 0


def generate(daemon):
    client = client_of(daemon)
    assert client.generate("echo", "hello", system="Be brief.").response == "hello"
    options = {"num_predict": 8, "seed": 3, "ignore_eos": True}
    raw, turn = (client.generate("tiny", "Once upon a time", raw=r, options=options) for r in (True, False))
    assert raw.prompt_eval_count < turn.prompt_eval_count and raw.eval_count == turn.eval_count == 8
    lines = list(client.generate("tiny", "Once upon a time", raw=True, options=options, stream=True))
    assert "".join(line.response for line in lines) == raw.response and lines[-1].done
    briefed = client.generate("tiny", "Once upon a time", system="Be brief.", options=options)
    same = client.chat("tiny", [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Once upon a time"}], options=options)
    assert briefed.response == same.message.content and briefed.prompt_eval_count == same.prompt_eval_count != turn.prompt_eval_count
    for loaded in (client.generate("tiny"), client.chat("tiny"), client.generate("tiny", "", keep_alive=-1)):
        assert loaded.done and loaded.done_reason == "load" and loaded.eval_count is None
    for now in (0, "0s"):  # without --memory no request would load it again
        body = json.dumps({"model": "tiny", "keep_alive": now}).encode()
        with urllib.request.urlopen(f"http://{daemon.http}/api/generate", body, timeout=PATIENCE) as answer:
            assert answer.headers["X-Parley-Unenforced"] == "keep_alive" and json.load(answer)["done_reason"] == "unload"
    assert client.generate("tiny", "Once", options=options).eval_count == 8


def formats(daemon):
    client = client_of(daemon)
    options = {"num_predict": 200, "temperature": 2, "seed": 5}
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"]}
    if not os.path.exists(os.path.join(os.path.dirname(sys.argv[1]), "agents/lm/grammar/libparley-grammar.so")):
        return expect(503, "libparley-grammar.so", client.chat, "tiny", STORY, format="json")
    said = json.loads(client.chat("tiny", STORY, format=schema, options=options).message.content)
    assert set(said) == {"a", "b"} and isinstance(said["a"], bool) and said["b"] in ("x", "y"), said
    text = "".join(line.response for line in client.generate("tiny", "x", format=schema, options=options, stream=True))
    assert set(json.loads(text)) == {"a", "b"}, text
    begun = client.chat("tiny", STORY, format="json", options=options).message.content
    assert begun.lstrip().startswith("{"), begun
    expect(400, "'type' is not a type", client.chat, "tiny", STORY, format={"type": "nothing"})


def embed(daemon):
    """The embeddings of one text and of several, scaled, shortened and in the old form."""
    client = client_of(daemon)
    one, both = client.embed("tiny:latest", "one"), client.embed("tiny", ["one", "and another"])
    assert one.model == "tiny:latest" and len(one.embeddings) == 1 and len(both.embeddings) == 2 and one.embeddings[0] == both.embeddings[0]
    assert abs(sum(x * x for x in one.embeddings[0]) - 1) < 1e-6 and 0 < one.prompt_eval_count < both.prompt_eval_count and one.total_duration > 0
    short = client.embed("tiny", "one", dimensions=8, truncate=True).embeddings[0]
    assert len(short) == 8 and abs(sum(x * x for x in short) - 1) < 1e-6
    old = client.embeddings("tiny", "one").embedding
    scale = sum(x * x for x in old) ** 0.5
    assert len(old) == len(one.embeddings[0]) and max(abs(a / scale - b) for a, b in zip(old, one.embeddings[0])) < 1e-6
    status, _, body = ask(daemon, "POST", "/api/embeddings", {"model": "tiny", "prompt": ["a", "b"]})
    assert status == 400 and "/api/embed takes lists" in json.loads(body)["error"]
    for empty in ({"input": ""}, {"input": []}, {}):
        assert ask(daemon, "POST", "/api/embed", {"model": "tiny", **empty})[::2] == (200, b'{"model":"tiny","embeddings":[]}'), empty
    assert ask(daemon, "POST", "/api/embeddings", {"model": "tiny", "prompt": ""})[::2] == (200, b'{"embedding":[]}')
    for status, wrong in ((400, {"input": [""]}), (400, {"input": 0}), (404, {"input": "", "model": "none"})):
        assert ask(daemon, "POST", "/api/embed", {"model": "tiny", **wrong})[0] == status, wrong


def models(daemon):
    client = client_of(daemon)
    listed = client.list().models
    assert [m.model for m in listed] == ["tiny:latest", "long:latest", "echo:latest"], listed
    assert all(len(m.digest) == 64 and m.modified_at is not None for m in listed) and listed[0].size > 0
    assert listed[0].details.family == "llama" and listed[0].details.format == "gguf"
    running = client.ps().models
    assert [m.model for m in running] == [m.model for m in listed] and running[0].expires_at.year > 2300 and running[0].context_length > 0
    for name in ("tiny", "tiny:latest"):
        shown = client.show(name)
        assert shown.modelinfo["general.architecture"] == "llama" and shown.modelinfo["llama.context_length"] == running[0].context_length
        assert shown.capabilities == ["completion", "embedding"] and "temperature" in shown.parameters
    assert client.pull("tiny").status == "success"
    status, _, body = ask(daemon, "GET", "/api/version")
    assert status == 200 and [int(part) for part in json.loads(body)["version"].split(".")] >= [0, 6, 4]
    for method in ("GET", "HEAD"):
        status, _, body = ask(daemon, method, "/")
        assert status == 200 and body == (b"Ollama is running" if method == "GET" else b"")


def errors(daemon):
    client = client_of(daemon)
    for call in (client.show, client.pull):
        expect(404, "not found", lambda name, c=call: [c(name)], "nobody")
    expect(404, "not found", client.chat, "nobody:latest", STORY)
    expect(404, "not found", client.chat, "nobody", STORY, stream=True)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    expect(400, "tools", client.chat, "tiny", STORY, tools=[{**tool, "function": {**tool["function"], "name": "f f"}}])
    assert client.chat("tiny", STORY, tools=[tool], options={"num_predict": 2}).message.tool_calls is None  # its template shows none: it answers in text
    expect(400, '"tiny" does not support thinking', client.chat, "tiny", STORY, think=True)
    assert client.chat("echo", STORY, think=False, tools=[]).done
    expect(400, "images", client.chat, "tiny", [{"role": "user", "content": "x", "images": [b"abc"]}])
    expect(400, "suffix", client.generate, "tiny", "x", suffix="y")
    expect(400, "template", client.generate, "tiny", "x", template="y")
    expect(400, "context", client.generate, "tiny", "x", context=[1, 2], raw=True)
    expect(400, "system", client.generate, "tiny", "x", raw=True, system="y")
    expect(400, "temperature", client.chat, "tiny", STORY, options={"temperature": -1})
    expect(400, "mirostat", client.chat, "tiny", STORY, options={"mirostat": 1})
    expect(400, "repeat_last_n", client.chat, "tiny", STORY, options={"repeat_last_n": 64, "repeat_penalty": 1.1})
    assert client.chat("tiny", STORY, options={"num_predict": 1, "repeat_last_n": 64, "mirostat": 0, "num_ctx": 4096, "seed": -1}).done
    expect(400, "context", client.generate, "tiny", "word " * 4000)
    expect(400, "embeddings", lambda model, text: [client.embed(model, text)], "echo", "x")
    expect(400, "empty", lambda model, text: [client.embed(model, text)], "tiny", ["a", ""])
    expect(501, "/api/delete", lambda model: [client.delete(model)], "tiny")
    expect(501, "/api/copy", lambda a, b: [client.copy(a, b)], "tiny", "small")


# --- bare connections ---


def lines(daemon):
    """One object a line and no blank ones; compressed, for pages, and broken: each answer has the API's form."""
    body = {"model": "tiny", "messages": STORY, "options": {"num_predict": 5, "ignore_eos": True}}
    status, headers, said = ask(daemon, "POST", "/api/chat", body)
    assert status == 200 and headers["content-type"] == "application/x-ndjson" and said.endswith(b"}\n")
    assert all("done" in json.loads(line) for line in said.decode().removesuffix("\n").split("\n"))
    status, headers, said = ask(daemon, "POST", "/api/chat", {**body, "stream": False})
    assert status == 200 and headers["content-type"] == "application/json" and json.loads(said)["done"] is True
    packed = gzip.compress(json.dumps({"model": "echo", "prompt": "x" * 5000, "stream": False}).encode())
    status, headers, said = ask(daemon, "POST", "/api/generate", packed, **{"Content-Encoding": "gzip", "Accept-Encoding": "gzip"})
    assert status == 200 and headers["content-encoding"] == "gzip" and json.loads(gzip.decompress(said))["response"] == "x" * 5000
    page = f"http://{daemon.http}"
    status, headers, said = ask(daemon, "POST", "/api/chat", {"model": "nobody", "messages": STORY}, Origin=page)
    assert status == 404 and headers["access-control-allow-origin"] == page and list(json.loads(said)) == ["error"]
    status, headers, said = ask(daemon, "POST", "/api/chat", body, Origin="http://elsewhere.example")
    assert status == 403 and isinstance(json.loads(said)["error"], str)
    for bad in (b"{", b"", b"[1]", b"nonsense", b"{\"model\": \"\xff\"}"):
        status, _, said = ask(daemon, "POST", "/api/generate", bad)
        assert status == 400 and isinstance(json.loads(said)["error"], str), (bad, said)
    for wrong in ({"messages": 1}, {"options": []}, {"stream": "yes"}, {"format": 3}, {"think": []}, {"keep_alive": {}}, {"messages": [{"role": "robot", "content": "x"}]}):
        status, _, said = ask(daemon, "POST", "/api/chat", {"model": "tiny", "messages": STORY, **wrong})
        assert status == 400 and next(iter(wrong)) in json.loads(said)["error"], (wrong, said)
    status, headers, _ = ask(daemon, "GET", "/api/chat")
    assert status == 405 and headers["allow"] == "POST"


def repeated(daemon):
    """A request with a key is answered once; a place in the stream is asked for where streams have them."""
    body = {"model": "tiny", "messages": STORY, "options": {"num_predict": 30, "temperature": 2, "ignore_eos": True}}
    first, again = (ask(daemon, "POST", "/api/chat", body, **{"Idempotency-Key": "ollama-1"})[2] for _ in range(2))
    assert first == again and len({json.loads(line)["created_at"] for line in first.splitlines()}) == 1
    assert "".join(json.loads(line)["message"]["content"] for line in first.splitlines())
    body["stream"] = False
    assert len({ask(daemon, "POST", "/api/chat", body, **{"Idempotency-Key": "ollama-2"})[2] for _ in range(2)}) == 1
    status, _, said = ask(daemon, "POST", "/api/chat", body, **{"Idempotency-Key": "ollama-1", "Last-Event-ID": "1.1.1"})
    assert status == 400 and "Last-Event-ID" in json.loads(said)["error"]


def remembered(daemon):
    """X-Conversation-Id names a conversation here, too: only what is new is sent."""
    body = {"model": "echo", "messages": [{"role": "user", "content": "one"}], "stream": False}
    status, headers, said = ask(daemon, "POST", "/api/chat", body, **{"X-Conversation-Id": "ours"})
    assert status == 200 and len(headers["x-conversation-id"]) == 32 and json.loads(said)["message"]["content"] == "one"
    body["messages"] += [{"role": "assistant", "content": "another"}, {"role": "user", "content": "two"}]
    status, _, said = ask(daemon, "POST", "/api/chat", body, **{"X-Conversation-Id": "ours"})
    assert status == 422 and "what was said" in json.loads(said)["error"]


def cancelled(daemon):
    page = ask(daemon, "GET", "/metrics")[2].decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if 'reason="CANCELED"' in line and not line.startswith("#"))


def hang_up(daemon):
    before = cancelled(daemon)
    stream = client_of(daemon).chat("long", STORY, stream=True, options={"ignore_eos": True})
    for _ in zip(range(3), stream):
        pass
    stream.close()
    until("the end of the reply", lambda: cancelled(daemon) == before + 1)


def keys(parleyd, folder):
    """A key is needed for all but the probe of who answers."""
    path = os.path.join(folder, "keys")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
        print("someone", hashlib.sha256(b"pk-secret").hexdigest(), file=f)
    with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--keys", path) as daemon:
        expect(401, "key", client_of(daemon).chat, "echo", STORY)
        expect(401, "key", lambda: client_of(daemon).list().models)
        assert client_of(daemon, headers={"Authorization": "Bearer pk-secret"}).chat("echo", STORY).done
        assert ask(daemon, "GET", "/")[0] == 200 and ask(daemon, "GET", "/api/version")[0] == 401


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    only = sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        tiny, long = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "long.gguf")
        children.run([write_tiny_model, tiny], check=True)
        children.run([write_tiny_model, long, "65536"], check=True)

        def run(test, *args):
            if not only or test.__name__ in only:
                start = time.monotonic()
                test(*args)
                print(f"{test.__name__}: good, {time.monotonic() - start:.2f} s", flush=True)

        with children.Daemon(parleyd, "--model", f"tiny={tiny}", "--model", f"long={long}", "--http", "127.0.0.1:0", "--http-timeout", "10m") as daemon:
            for test in (chat, logprobs, generate, formats, embed, models, errors, lines, repeated, remembered, hang_up):
                run(test, daemon)
        run(keys, parleyd, folder)


main()
