#!/usr/bin/env python3
"""parleyd as Anthropic's programs see it: the unmodified `anthropic` client (messages, streams event by event, counted tokens, models, errors
as its own exceptions), and bare connections for what it does not show: lines, compressed bodies, pages, keys, broken JSON.

usage: test_anthropic.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has the client; see venv.sh)
"""
import gzip
import hashlib
import http.client
import json
import os
import sys
import tempfile
import time

import anthropic

import children
from children import PATIENCE, until

STORY = [{"role": "user", "content": "Tell me a long story."}]


def client_of(daemon, **more):
    return anthropic.Anthropic(**{"base_url": f"http://{daemon.http}", "api_key": "any", "timeout": PATIENCE, "max_retries": 0, **more})


def expect(kind, says, call, *args, **more):
    try:
        call(*args, **more)
    except kind as error:
        assert says in str(error), f"{says!r} is not in {error}"
        return error
    raise AssertionError(f"no {kind.__name__} with {says!r}")


def ask(daemon, method, path, body=None, **headers):
    """Status, headers and body of a bare request."""
    connection = http.client.HTTPConnection(daemon.http, timeout=PATIENCE)
    connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body).encode(), headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, said


def text_of(message):
    assert [block.type for block in message.content] == ["text"], message
    return message.content[0].text


def part_of(text):
    """Some letters from within the text; a byte that is no character has none."""
    return next(text[i:i + 3] for i in range(3, len(text)) if "\ufffd" not in text[i:i + 3] and len(text[i:i + 3]) == 3)


# --- the client ---


def messages(daemon):
    client = client_of(daemon)
    said = client.messages.create(model="echo", max_tokens=100, messages=[{"role": "user", "content": "é\"\\\n\U0001f600"}])
    assert text_of(said) == "é\"\\\n\U0001f600" and said.type == "message" and said.role == "assistant" and said.model == "echo"
    assert said.id.startswith("msg_") and said.stop_reason == "end_turn" and said.stop_sequence is None and said._request_id
    # Documents that are text, and what a search has found, are read as text.
    texts = [{"type": "text", "text": "The Elbe"}, {"type": "text", "text": " flows."}]
    blocks = [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a\0b"}, "title": "T", "context": "C"},
              {"type": "document", "source": {"type": "content", "content": texts}, "title": None},
              {"type": "document", "source": {"type": "content", "content": "c"}, "cache_control": {"type": "ephemeral"}},
              {"type": "search_result", "source": "http://s", "title": "S", "content": texts}, {"type": "text", "text": "And?"}]
    said = client.messages.with_raw_response.create(model="echo", max_tokens=100, messages=[{"role": "user", "content": blocks}])
    assert text_of(said.parse()) == ("<document>\n<title>T</title>\n<context>C</context>\na\0b\n</document>\n<document>\nThe Elbe flows.\n</document>\n<document>\nc\n</document>\n"
                                     "<search_result>\n<title>S</title>\n<source>http://s</source>\nThe Elbe flows.\n</search_result>\nAnd?"), said.parse()
    assert "X-Parley-Unenforced" not in said.headers
    blocks[0]["citations"] = {"enabled": True}
    said = client.messages.with_raw_response.create(model="echo", max_tokens=100, messages=[{"role": "user", "content": blocks}])
    assert said.headers["X-Parley-Unenforced"] == "citations"
    asked = dict(model="tiny", max_tokens=12, extra_body={"temperature": 1, "seed": 7, "ignore_eos": True})
    a = client.messages.create(messages=[{"role": "user", "content": [{"type": "text", "text": "Hel", "cache_control": {"type": "ephemeral"}},
                                                                       {"type": "text", "text": "lo"}]}],
                               system=[{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}], metadata={"user_id": "x"}, **asked)
    b = client.messages.create(messages=[{"role": "user", "content": "Hello"}], system="Be brief.", thinking={"type": "disabled"}, **asked)
    other = client.messages.create(messages=[{"role": "user", "content": "Hello"}], **asked)
    assert text_of(a) == text_of(b) != text_of(other) and a.id != b.id
    assert a.stop_reason == "max_tokens" and a.usage.output_tokens == 12
    prompts = [m.usage.input_tokens + m.usage.cache_read_input_tokens for m in (a, b)]
    assert prompts[0] == prompts[1] > 0 and b.usage.cache_creation_input_tokens == 0
    asked["extra_body"] |= {"temperature": 2, "top_k": 50, "top_p": 0.95}
    warm = client.messages.create(messages=STORY, **asked)
    cut = part_of(text_of(warm))
    stopped = client.messages.create(messages=STORY, stop_sequences=["never said", cut], **asked)
    assert text_of(stopped) == text_of(warm).split(cut)[0]
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == cut, stopped
    ended = [client.messages.create(messages=[{"role": "user", "content": "Hello"}], model="tiny", max_tokens=2000, stop_sequences=["im_end", word],
                                    extra_body={"temperature": 1, "seed": 1}) for word in ("never said", "end|", "|>")]
    assert {m.stop_reason for m in ended} == {"end_turn"}, ended  # the token that ends a turn is no text of the reply


def streams(daemon):
    client = client_of(daemon)
    asked = dict(model="tiny", max_tokens=40, messages=STORY, extra_body={"seed": 3, "ignore_eos": True})
    whole = client.messages.create(**asked)
    events = list(client.messages.create(stream=True, **asked))
    kinds = [e.type for e in events]
    n_deltas = kinds.count("content_block_delta")
    assert n_deltas > 0 and [k for k in kinds if k != "ping"] == ["message_start", "content_block_start", *["content_block_delta"] * n_deltas,
                                                                  "content_block_stop", "message_delta", "message_stop"], kinds
    begun, ended = events[0].message, events[-2]
    assert begun.content == [] and begun.stop_reason is None and begun.usage.input_tokens + begun.usage.cache_read_input_tokens > 0
    assert all(e.index == 0 for e in events if e.type.startswith("content_block_"))
    assert "".join(e.delta.text for e in events if e.type == "content_block_delta") == text_of(whole) != ""
    assert ended.delta.stop_reason == "max_tokens" and ended.delta.stop_sequence is None and ended.usage.output_tokens == 40
    cut = part_of(text_of(whole))
    with client.messages.stream(stop_sequences=[cut], **asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(final) == text_of(whole).split(cut)[0] and final.stop_reason == "stop_sequence" and final.stop_sequence == cut
    assert final.usage.output_tokens > 0 and final.id.startswith("msg_")
    with client.messages.stream(model="echo", max_tokens=9, messages=STORY) as stream:
        assert stream.get_final_text() == STORY[0]["content"]


def formats(daemon):
    client = client_of(daemon)
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"], "additionalProperties": False}
    asked = dict(model="tiny", max_tokens=200, messages=STORY)
    body = {"temperature": 2, "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}}}
    if not os.path.exists(os.path.join(os.path.dirname(sys.argv[1]), "agents/lm/grammar/libparley-grammar.so")):
        return expect(anthropic.APIStatusError, "libparley-grammar.so", client.messages.create, extra_body=body, **asked)
    said = json.loads(text_of(client.messages.create(extra_body=body, **asked)))
    assert set(said) == {"a", "b"} and isinstance(said["a"], bool), said
    expect(anthropic.BadRequestError, "not", client.messages.create,
           extra_body={"output_config": {"format": {"type": "json_schema", "schema": {"type": "string", "not": {"format": "date"}}}}}, **asked)
    expect(anthropic.BadRequestError, "output_config", client.messages.create, extra_body={"output_config": {"format": {"type": "xml"}}}, **asked)


def counted(daemon):
    client = client_of(daemon)
    asked = dict(model="tiny", system="Be brief.", messages=STORY)
    said = client.messages.create(max_tokens=1, **asked)
    assert client.messages.count_tokens(**asked).input_tokens == said.usage.input_tokens + said.usage.cache_read_input_tokens
    expect(anthropic.BadRequestError, "echo", client.messages.count_tokens, model="echo", messages=STORY)


def models(daemon):
    client = client_of(daemon)
    listed = client.models.list()
    assert [m.id for m in listed] == ["tiny", "long", "echo"] and listed.first_id == "tiny" and listed.last_id == "echo" and not listed.has_more
    one = client.models.retrieve("tiny")
    assert one.type == "model" and one.display_name == "tiny" and one.created_at.year >= 2020 and one.lifecycle == "active"
    assert one.max_input_tokens == one.max_tokens == 2048 and client.models.retrieve("echo").max_input_tokens is None


def errors(daemon):
    client = client_of(daemon)
    create, asked = client.messages.create, dict(model="tiny", max_tokens=5, messages=STORY)
    error = expect(anthropic.NotFoundError, "nobody", create, **{**asked, "model": "nobody"})
    assert error.body["type"] == "error" and error.body["error"]["type"] == "not_found_error" and error.request_id
    error = expect(anthropic.BadRequestError, "tools", create, tools=[{"name": "f f", "input_schema": {"type": "object"}}], **asked)
    assert error.body["error"]["type"] == "invalid_request_error"
    for says, more in (("tool_choice", {"tool_choice": {"type": "any"}}), ("thinking", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
                       ("messages", {"messages": []}),
                       ("image", {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
                       *(("document", {"messages": [{"role": "user", "content": [{"type": "document", "source": source}]}]}) for source in (
                           {"type": "base64", "media_type": "application/pdf", "data": "eA=="}, {"type": "url", "url": "http://s"}, {"type": "file", "file_id": "f"}, {"type": "text", "data": 5}, {},
                           {"type": "content", "content": [{"type": "image", "source": {}}]})),
                       ("temperature", {"extra_body": {"temperature": -1}}), ("max_tokens", {"max_tokens": 0}), ("stop_sequences", {"stop_sequences": [1]}),
                       ("system", {"system": 3})):
        expect(anthropic.BadRequestError, says, create, **{**asked, **more})
    error = expect(anthropic.BadRequestError, "prompt is too long: 20090 tokens > 2048 maximum", create,
                   **{**asked, "messages": [{"role": "user", "content": "word " * 4000}]})
    assert error.body["error"]["type"] == "invalid_request_error"


# --- bare connections ---


def lines(daemon):
    """Each event has its name twice; compressed, for pages, and broken: each answer has the API's form."""
    body = {"model": "tiny", "max_tokens": 5, "messages": STORY, "stream": True}
    status, headers, said = ask(daemon, "POST", "/v1/messages?beta=true", body)
    assert status == 200 and headers["content-type"] == "text/event-stream" and headers["request-id"] == headers["x-request-id"]
    for event in said.decode().removesuffix("\n\n").split("\n\n"):
        name, data = event.split("\n")
        assert json.loads(data.removeprefix("data: "))["type"] == name.removeprefix("event: "), event
    del body["max_tokens"]
    status, headers, said = ask(daemon, "POST", "/v1/messages", body, request_id="mine")
    assert status == 400 and "max_tokens" in json.loads(said)["error"]["message"]
    packed = gzip.compress(json.dumps({"model": "echo", "max_tokens": 9, "messages": [{"role": "user", "content": "x" * 5000}]}).encode())
    status, headers, said = ask(daemon, "POST", "/v1/messages", packed, **{"Content-Encoding": "gzip", "Accept-Encoding": "gzip"})
    assert status == 200 and headers["content-encoding"] == "gzip" and json.loads(gzip.decompress(said))["content"][0]["text"] == "x" * 5000
    page = f"http://{daemon.http}"
    status, headers, said = ask(daemon, "POST", "/v1/messages", body, Origin=page)
    assert status == 400 and headers["access-control-allow-origin"] == page and json.loads(said)["type"] == "error"
    status, headers, said = ask(daemon, "POST", "/v1/messages", body, Origin="http://elsewhere.example")
    assert status == 403 and json.loads(said)["error"]["type"] == "permission_error"
    for bad in (b"{", b"", b"[1]", b"nonsense", b"{\"model\": \"\xff\"}"):
        status, _, said = ask(daemon, "POST", "/v1/messages", bad)
        assert status == 400 and json.loads(said)["error"]["type"] == "invalid_request_error", (bad, said)


def resumed(daemon):
    """A request with a key is answered once; a stream goes on behind the last piece that came."""
    body = {"model": "tiny", "max_tokens": 200, "messages": STORY, "stream": True, "temperature": 2, "ignore_eos": True}

    def said_by(**headers):
        """The names of the events, the ids of the pieces, and the text up to each."""
        names, ids, texts = [], [], [""]
        for event in ask(daemon, "POST", "/v1/messages", body, **{"Idempotency-Key": "anthropic-1", **headers})[2].decode().removesuffix("\n\n").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in event.split("\n"))
            names.append(fields["event"])
            if names[-1] == "content_block_delta":
                ids.append(fields["id"])
                texts.append(texts[-1] + json.loads(fields["data"])["delta"]["text"])
        return names, ids, texts

    names, ids, texts = said_by()
    assert said_by()[2][-1] == texts[-1] != ""
    more, _, rest = said_by(**{"Last-Event-ID": ids[0]})
    assert texts[1] + rest[-1] == texts[-1] and "message_start" not in more and more[-3:] == names[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def cancelled(daemon):
    page = ask(daemon, "GET", "/metrics")[2].decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if 'reason="CANCELED"' in line and not line.startswith("#"))


def hang_up(daemon):
    before = cancelled(daemon)
    stream = client_of(daemon).messages.create(model="long", max_tokens=60000, messages=STORY, stream=True, extra_body={"ignore_eos": True})
    for _ in zip(range(5), stream):
        pass
    stream.close()
    until("the end of the reply", lambda: cancelled(daemon) == before + 1)


def keys(parleyd, folder):
    """The client's key is taken in both of its spellings."""
    path = os.path.join(folder, "keys")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
        print("someone", hashlib.sha256(b"pk-secret").hexdigest(), file=f)
    with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--keys", path) as daemon:
        asked = dict(model="echo", max_tokens=9, messages=STORY)
        error = expect(anthropic.AuthenticationError, "key", client_of(daemon).messages.create, **asked)
        assert error.body["error"]["type"] == "authentication_error"
        for more in ({"api_key": "pk-secret"}, {"api_key": None, "auth_token": "pk-secret"}):
            assert client_of(daemon, **more).messages.create(**asked).stop_reason == "end_turn"


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
            for test in (messages, streams, formats, counted, models, errors, lines, resumed, hang_up):
                run(test, daemon)
        run(keys, parleyd, folder)


main()
