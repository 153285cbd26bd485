#!/usr/bin/env python3
"""parleyd's HTTP as others see it: the unmodified `openai` client (chat, streams, completions, models, responses, log probabilities,
errors as its own exceptions), and bare sockets that say what no client should: half requests, bad chunks, bytes that trickle.

usage: test_openai.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has the clients; see venv.sh)
"""
import base64
import json
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import openai

import children
import harness
from children import PATIENCE, until

SLOW_S = 1  # a request that takes longer to come is cut off
STORY = [{"role": "user", "content": "Tell me a long story."}]


def client_of(parley, **more):
    return openai.OpenAI(base_url=f"http://{parley.http}/v1", api_key="any", timeout=PATIENCE, max_retries=0, **more)


def expect(kind, says, call, *args, **more):
    try:
        call(*args, **more)
    except kind as error:
        assert says in str(error), f"{says!r} is not in {error}"
        return error
    raise AssertionError(f"no {kind.__name__}")


# --- the client ---


def chat(parley):
    client = client_of(parley)
    parts = [{"role": "system", "content": "Be brief."},
             {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    whole = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    a = client.chat.completions.create(model="tiny", messages=parts, max_tokens=12, seed=7)
    b = client.chat.completions.create(model="tiny", messages=whole, max_completion_tokens=12, seed=7,
                                       extra_body={"ignore_eos": False, "nobody_knows": {"this": 1}})
    assert a.choices[0].message.content == b.choices[0].message.content != ""
    assert a.object == "chat.completion" and a.model == "tiny" and a.choices[0].message.role == "assistant"
    assert a.usage.prompt_tokens > 0 and a.usage.completion_tokens <= 12
    assert a.usage.total_tokens == a.usage.prompt_tokens + a.usage.completion_tokens
    echoed = client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "é\"\\\n\U0001f600"}])
    assert echoed.choices[0].message.content == "é\"\\\n\U0001f600" and echoed.choices[0].finish_reason == "stop"


def streams(parley):
    client = client_of(parley)
    asked = dict(model="tiny", messages=STORY, max_tokens=40, seed=3, extra_body={"ignore_eos": True})
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **asked))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content != ""
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert all(c.choices[0].finish_reason is None for c in chunks[:-2])
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 40
    assert not any("usage" in c.model_fields_set for c in chunks[:-1])  # not as null either: some clients take whatever has the member for the last
    running = list(client.chat.completions.create(
        model="tiny", messages=STORY, max_tokens=5, stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True}, extra_body={"ignore_eos": True}))
    counts = [c.usage.completion_tokens for c in running]
    assert counts == sorted(counts) and counts[-1] == 5 and counts[0] >= 1
    with client.chat.completions.stream(model="echo", messages=STORY) as stream:
        assert stream.get_final_completion().choices[0].message.content == STORY[0]["content"]
    stopped = client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "one"}], stop=["zzz"], stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in stopped) == "one"


def tokens(parley):
    """/tokenize has for messages what a chat has for its prompt; for a text, the text's alone."""
    client, url = client_of(parley), f"http://{parley.http}"

    def ids(**body):
        reply = json.loads(call(url + "/tokenize", {"model": "tiny", **body})[1])
        assert reply["count"] == len(reply["tokens"]) and reply["max_model_len"] > 0, reply
        return reply["tokens"]

    user = {"role": "user", "content": "hello there"}
    talk = [user, {"role": "assistant", "content": "a reply"}, {"role": "user", "content": [{"type": "text", "text": "and you?"}]}]
    for messages in ([user], talk, [{"role": "system", "content": "Be brief."}, *talk]):
        asked = client.chat.completions.create(model="tiny", messages=messages, max_tokens=1)
        prompt = ids(messages=messages)
        assert len(prompt) == asked.usage.prompt_tokens, (prompt, asked.usage)
        bare = ids(messages=messages, add_generation_prompt=False)
        assert len(bare) < len(prompt) and prompt[:len(bare)] == bare
        assert ids(messages=messages, prompt="not this") == prompt
    shown = json.loads(call(url + "/detokenize", {"model": "tiny", "tokens": ids(messages=[user])})[1])["prompt"]
    assert "hello there" in shown and "user" in shown, shown
    # Control tokens written in a text are recognised unless the request says not; content is llama-server's name for it.
    end = ids(prompt="<|im_end|>")
    assert len(end) == 1 and len(ids(prompt="<|im_end|>", parse_special=False)) > 1, end
    assert json.loads(call(url + "/tokenize", {"model": "tiny", "content": "<|im_end|>"})[1]) == {"tokens": end}
    assert json.loads(call(url + "/detokenize", {"model": "tiny", "tokens": end})[1]) == {"prompt": "<|im_end|>", "content": "<|im_end|>"}
    for body, param in [({"prompt": "a", "parse_special": 1}, "parse_special"), ({"content": 1}, "content"), ({"messages": "hello"}, "messages"), ({"messages": []}, "messages"), ({}, "prompt"), ({"messages": [user], "add_generation_prompt": 1}, "add_generation_prompt"),
                        ({"content": "a", "with_pieces": 1}, "with_pieces"), ({"prompt": "a", "return_token_strs": 1}, "return_token_strs"), ({"messages": [user], "chat_template": "{{ 1 }}"}, "chat_template"), ({"messages": [{"role": "user"}]}, "messages")]:
        status, reply = call(url + "/tokenize", {"model": "tiny", **body})[:2]
        assert status == 400 and param in json.loads(reply)["error"]["message"], (status, reply)


def completions(parley):
    client = client_of(parley)
    asked = dict(model="tiny", max_tokens=6, temperature=0, extra_body={"ignore_eos": True})
    text = client.completions.create(prompt="Once upon a time", **asked)
    url = f"http://{parley.http}"
    ids = json.loads(call(url + "/tokenize", {"model": "tiny", "prompt": "Once upon a time"})[1])
    assert ids["count"] == len(ids["tokens"]) == text.usage.prompt_tokens
    assert json.loads(call(url + "/detokenize", {"model": "tiny", "tokens": ids["tokens"]})[1])["prompt"] == "Once upon a time"
    by_ids = client.completions.create(prompt=ids["tokens"], **asked)
    assert by_ids.choices[0].text == text.choices[0].text and by_ids.usage.prompt_tokens == ids["count"]
    many = client.completions.create(prompt=["Once upon a time", "There was"], n=2, **asked)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    assert many.choices[0].text == many.choices[1].text == text.choices[0].text
    assert many.usage.completion_tokens == 24
    lists = client.completions.create(prompt=[ids["tokens"], ids["tokens"]], **asked)
    assert [c.text for c in lists.choices] == [text.choices[0].text] * 2
    default = client.completions.create(model="tiny", prompt="Once", extra_body={"ignore_eos": True})
    assert default.usage.completion_tokens == 16 and default.choices[0].finish_reason == "length"
    chunks = list(client.completions.create(prompt="Once upon a time", stream=True, **asked))
    assert "".join(c.choices[0].text for c in chunks) == text.choices[0].text
    assert client.completions.create(model="echo", prompt="raw").choices[0].text == "raw"
    assert client.completions.create(model="tiny", prompt="a", max_tokens=2, echo=True).choices[0].text.startswith("a")
    expect(openai.BadRequestError, "suffix is not supported", client.completions.create, model="tiny", prompt="a", suffix="b")
    expect(openai.BadRequestError, "999999", client.completions.create, model="tiny", prompt=[1, 999999])
    expect(openai.BadRequestError, "prompt", client.completions.create, model="tiny", prompt="")


def logprobs(parley):
    client = client_of(parley)
    said = client.chat.completions.create(model="tiny", messages=STORY, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3,
                                          extra_body={"ignore_eos": True})
    tokens = said.choices[0].logprobs.content
    assert len(tokens) == 4 and all(len(t.top_logprobs) == 3 for t in tokens)
    assert all(t.logprob <= 0 and t.top_logprobs[0].logprob == t.logprob for t in tokens)
    raw = b"".join(bytes(t.bytes) for t in tokens)
    assert raw.decode(errors="replace").startswith(said.choices[0].message.content.rstrip("\ufffd")[:1])
    none = client.chat.completions.create(model="tiny", messages=STORY, max_tokens=2, logprobs=True, extra_body={"ignore_eos": True})
    assert [t.top_logprobs for t in none.choices[0].logprobs.content] == [[], []]
    chunks = list(client.chat.completions.create(model="tiny", messages=STORY, max_tokens=4, temperature=0, logprobs=True,
                                                 stream=True, extra_body={"ignore_eos": True}))
    streamed = [t.logprob for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert streamed == [t.logprob for t in tokens]
    old = client.completions.create(model="tiny", prompt="Once", max_tokens=4, logprobs=2, extra_body={"ignore_eos": True})
    p = old.choices[0].logprobs
    assert len(p.tokens) == len(p.token_logprobs) == len(p.top_logprobs) == len(p.text_offset) == 4
    assert p.text_offset[0] == 0 and all(top[token] == logprob and len(top) in (2, 3) for token, logprob, top in  # itself, if it is a third
                                         zip(p.tokens, p.token_logprobs, p.top_logprobs))
    # Parts of characters keep apart by their bytes, so that none hides another, the best one least of all.
    many = client.completions.create(model="tiny", prompt="Once", max_tokens=8, temperature=0, logprobs=20, extra_body={"ignore_eos": True})
    p = many.choices[0].logprobs
    parts = [key for top in p.top_logprobs for key in top if key.startswith("bytes:")]
    assert parts and all("\\x" in key for key in parts), p.top_logprobs
    for token, logprob, top in zip(p.tokens, p.token_logprobs, p.top_logprobs):
        assert len(top) == 20 and max(top.values()) == top[token] == logprob and "\ufffd" not in top, (token, logprob, top)


def several(parley):
    client = client_of(parley)
    asked = dict(model="tiny", messages=STORY, max_tokens=10, temperature=1.5, seed=5, extra_body={"ignore_eos": True})
    a = client.chat.completions.create(n=3, **asked)
    b = client.chat.completions.create(n=3, **asked)
    texts = [c.message.content for c in a.choices]
    assert texts == [c.message.content for c in b.choices] and len(set(texts)) == 3
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(n=3, stream=True, **asked):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == texts
    banned = client.chat.completions.create(model="tiny", messages=STORY, max_tokens=1, temperature=0,
                                            logprobs=True, extra_body={"ignore_eos": True})
    first = json.loads(call(f"http://{parley.http}/tokenize", {"prompt": banned.choices[0].logprobs.content[0].token})[1])["tokens"]
    if len(first) == 1:
        other = client.chat.completions.create(model="tiny", messages=STORY, max_tokens=1, temperature=0,
                                               logit_bias={str(first[0]): -100}, extra_body={"ignore_eos": True})
        assert other.choices[0].message.content != banned.choices[0].message.content


def models(parley):
    client = client_of(parley)
    listed = client.models.list().data
    assert [m.id for m in listed] == ["tiny", "long", "echo"]
    assert client.models.retrieve("tiny").id == "tiny"
    error = expect(openai.NotFoundError, "there is no model 'a/b', there are: tiny, long, echo", client.models.retrieve, "a/b")
    assert error.param == "model" and error.code == "model_not_found"


def responses(parley):
    client = client_of(parley)
    first = client.responses.create(model="tiny", input="Name a river.", instructions="Be brief.", max_output_tokens=24)
    assert first.object == "response" and first.status in ("completed", "incomplete")
    second = client.responses.create(model="tiny", input=[{"role": "user", "content": "Where is it?"}], max_output_tokens=8,
                                     previous_response_id=first.id)
    twin = client.responses.create(model="tiny", input=[{"type": "message", "role": "user",
                                                         "content": [{"type": "input_text", "text": "Where is it?"}]}],
                                   max_output_tokens=8, previous_response_id=first.id)
    # All of the first is there but for the last token said, which is computed with what follows it.
    known = first.usage.input_tokens + first.usage.output_tokens - 1
    assert second.usage.input_tokens_details.cached_tokens >= known
    assert twin.usage.input_tokens == second.usage.input_tokens and twin.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    assert second.instructions == "Be brief."
    events = list(client.responses.create(model="tiny", input="Go on.", previous_response_id=second.id, stream=True,
                                          max_output_tokens=12, extra_body={"ignore_eos": True}))
    kinds = [e.type for e in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"]
    assert [e.sequence_number for e in events] == list(range(len(events)))
    deltas = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert deltas == events[-1].response.output_text == events[-4].text and deltas != ""
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"
    third = client.responses.create(model="tiny", input="And?", previous_response_id=events[-1].response.id, max_output_tokens=4)
    assert third.usage.input_tokens > events[-1].response.usage.total_tokens
    gone = client.responses.create(model="tiny", input="Forget it.", store=False, max_output_tokens=4)
    for unknown in (gone.id, "resp_0", first.id[:-1] + "9"):
        error = expect(openai.NotFoundError, "not kept", client.responses.create, model="tiny", input="x", previous_response_id=unknown)
        assert error.param == "previous_response_id"
    # Other instructions than those of the response are a message of the system, which is not said twice; they are counted so.
    asked = dict(model="tiny", input="x", previous_response_id=first.id)
    plain, other = (client.responses.create(max_output_tokens=2, **asked, **more) for more in ({}, {"instructions": "Be long."}))
    assert plain.instructions == "Be brief." and other.instructions == "Be long." and other.usage.input_tokens > plain.usage.input_tokens
    counts = [client.responses.input_tokens.count(**asked, **more).input_tokens for more in ({}, {"instructions": "Be long."})]
    assert counts[1] - counts[0] == other.usage.input_tokens - plain.usage.input_tokens, counts
    asked["previous_response_id"] = other.id
    lengths = [client.responses.create(max_output_tokens=2, **asked, **more).usage.input_tokens for more in ({}, {"instructions": "Be long."}, {"instructions": "Be brief."})]
    counts = [client.responses.input_tokens.count(**asked, **more).input_tokens for more in ({}, {"instructions": "Be long."}, {"instructions": "Be brief."})]
    assert lengths[0] == lengths[1] < lengths[2] and counts[0] == counts[1] < counts[2], (lengths, counts)
    # A response tells those that hold for it, read again, too; a message of the first input is none.
    third = client.responses.create(max_output_tokens=2, **asked)
    for r, says in ((first, "Be brief."), (plain, "Be brief."), (other, "Be long."), (third, "Be long.")):
        assert r.instructions == client.responses.retrieve(r.id).instructions == says, says
    bare = client.responses.create(model="tiny", input=[{"role": "developer", "content": "Be long."}, {"role": "user", "content": "x"}], max_output_tokens=2)
    assert bare.instructions is client.responses.retrieve(bare.id).instructions is None
    told = client.responses.create(model="tiny", input="x", previous_response_id=bare.id, instructions="Be brief.", max_output_tokens=2)
    assert told.instructions == client.responses.retrieve(told.id).instructions == "Be brief."
    # One in the input, with instructions or without, is no reason to leave instructions out.
    both = client.responses.create(model="tiny", input=[{"role": "user", "content": "y"}, {"role": "developer", "content": "Be odd."}], instructions="Be brief.", max_output_tokens=2)
    asked = dict(model="tiny", input="x", previous_response_id=both.id)
    lengths = [client.responses.create(max_output_tokens=2, instructions=says, **asked).usage.input_tokens for says in ("Be brief.", "Be odd.")]
    counts = [client.responses.input_tokens.count(instructions=says, **asked).input_tokens for says in ("Be brief.", "Be odd.")]
    assert lengths[0] < lengths[1] and counts[0] < counts[1], (lengths, counts)
    expect(openai.BadRequestError, "metadata has the character U+0000", client.responses.create, model="tiny", input="x", metadata={"a": "b\0c"})
    expect(openai.BadRequestError, "xml", client.responses.create, model="tiny", input="x",
           text={"format": {"type": "xml"}})


def stored(parley):
    """A response is read again, whole and by its events, while it is generated and afterwards; its input is listed; it is cancelled, deleted."""
    client = client_of(parley)
    create, retrieve = client.responses.create, client.responses.retrieve
    first = create(model="tiny", instructions="Be brief.", max_output_tokens=8, temperature=0.5, metadata={"a": "b", "é": "\""}, extra_body={"ignore_eos": True},
                   input=[{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}])
    assert retrieve(first.id) == first
    assert first.metadata == {"a": "b", "é": "\""} and first.temperature == 0.5 and first.max_output_tokens == 8 and first.completed_at >= first.created_at
    for field in ("id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id", "instructions", "output", "error",
                  "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "temperature",
                  "reasoning", "usage", "max_output_tokens", "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key"):
        assert field in first.model_fields_set | set(first.model_extra), field
    second = create(model="tiny", input="four", previous_response_id=first.id, max_output_tokens=8)
    assert retrieve(second.id) == second and second.previous_response_id == first.id and second.metadata == {}
    listed = client.responses.input_items.list(first.id)
    assert [i.content[0].text for i in listed.data] == ["three", "two", "one"] and not listed.has_more and [i.role for i in listed.data][1] == "assistant"
    assert [i.content[0].type for i in listed.data] == ["input_text", "output_text", "input_text"]
    assert [i.content[0].text for i in client.responses.input_items.list(first.id, order="asc", limit=1)] == ["one", "two", "three"]  # pages follow each other
    behind = client.responses.input_items.list(first.id, order="asc", after=listed.data[-1].id, limit=1)
    assert [i.content[0].text for i in behind.data] == ["two"] and behind.has_more and behind.last_id == behind.first_id == listed.data[1].id
    streamed = list(create(model="tiny", input="Go on.", stream=True, max_output_tokens=12, extra_body={"ignore_eos": True}))
    last = streamed[-1].response
    assert list(retrieve(last.id, stream=True)) == streamed
    for after in (0, 3, 7, len(streamed) - 3, len(streamed) - 1, 1000):
        assert list(retrieve(last.id, stream=True, starting_after=after)) == streamed[after + 1:], after
    # While it is generated.
    running = create(model="long", input="Tell me a long story.", stream=True, extra_body={"ignore_eos": True})
    begun = [e for e, _ in zip(running, range(8))]
    id = begun[0].response.id
    now = retrieve(id)
    assert now.status == "in_progress" and now.output == [] and now.usage is None and now.completed_at is None
    with retrieve(id, stream=True, starting_after=3) as other:
        assert [e for e, _ in zip(other, range(4))] == begun[4:]
        ended = client.responses.cancel(id)
        assert ended.status == "cancelled" and ended.output_text.startswith("".join(e.delta for e in begun[4:])) and ended.incomplete_details is None
        rest = list(other)
    assert rest[-1].response == ended == list(running)[-1].response == retrieve(id) == client.responses.cancel(id)
    assert client.responses.cancel(first.id) == first  # which is done
    for gone in (first.id, id):
        assert client.responses.with_raw_response.delete(gone).http_response.json() == {"id": gone, "object": "response", "deleted": True}
        for call in (retrieve, client.responses.cancel, client.responses.delete, client.responses.input_items.list):
            expect(openai.NotFoundError, "not kept", call, gone)
    assert retrieve(second.id) == second  # which goes on from one that is gone
    unkept = create(model="tiny", input="x", store=False, max_output_tokens=1)
    for unknown in (unkept.id, "resp_0", "x" * 100):
        expect(openai.NotFoundError, "not kept", retrieve, unknown)
    expect(openai.BadRequestError, "limit", client.responses.input_items.list, second.id, limit=0)
    expect(openai.BadRequestError, "order", client.responses.input_items.list, second.id, order="up")
    expect(openai.BadRequestError, "after", client.responses.input_items.list, second.id, after="msg_0")
    expect(openai.BadRequestError, "starting_after", retrieve, second.id, starting_after=1, stream=False)
    expect(openai.BadRequestError, "starting_after", retrieve, second.id, starting_after=-1, stream=True)
    expect(openai.BadRequestError, "metadata", create, model="tiny", input="x", metadata={"a": 1})
    status, _, headers = call_bare(parley, "PUT", f"/v1/responses/{second.id}")
    assert status == 405 and headers["allow"] == "GET, HEAD, POST, DELETE"
    assert call_bare(parley, "POST", f"/v1/responses/{second.id}")[0] == 405 and call_bare(parley, "GET", f"/v1/responses/{second.id}/nothing")[0] == 404
    head = f"HEAD /v1/responses/{second.id}?stream=true HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    said = say(parley, head)
    assert said.startswith(b"HTTP/1.1 200") and said.endswith(b"\r\n\r\n") and said.count(b"\r\n\r\n") == 1, said


def compacted(parley):
    """The tokens of a response's prompt are counted without a reply; a history becomes the user's messages and a summary, which later input may have in its place."""
    client = client_of(parley)
    count, compact, create = client.responses.input_tokens.count, client.responses.compact, client.responses.create
    past = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    brief = {"structured_outputs": {"choice": ["y"]}, "temperature": 0}
    first = create(model="tiny", input=past, instructions="Be brief.", extra_body=brief)
    named, other = (client.conversations.create(items=past[:2], extra_body={"model": "tiny"}).id for _ in range(2))
    for asked in ({"input": "hello"}, {"input": past}, {"input": past, "instructions": "Be brief."}, {"input": "four", "previous_response_id": first.id},
                  {"input": "four", "conversation": named}, {"input": "four", "conversation": {"id": other}, "instructions": "Be brief."}, {"input": "x", "tools": [tool]}):
        counted = count(model="tiny", **asked)
        assert counted.object == "response.input_tokens"
        used = create(model="tiny", max_output_tokens=1, **asked).usage.input_tokens
        assert abs(counted.input_tokens - used) <= ("previous_response_id" in asked), (asked, counted, used)  # an earlier reply may have ended by another token than the template's
    second = create(model="tiny", input="four", previous_response_id=first.id, extra_body=brief)
    for asked, said in (({"previous_response_id": second.id, "input": "five"}, ["one", "three", "four", "five"]), ({"input": past, "instructions": "Be brief."}, ["one", "three"])):
        asked["extra_body"] = {"max_output_tokens": 12}
        done = compact(model="tiny", **asked)
        *kept, summary = done.output
        assert done.object == "response.compaction" and done.created_at >= first.created_at and done.usage.output_tokens <= 12
        assert [(item.type, item.role, item.content[0].type, item.content[0].text) for item in kept] == [("message", "user", "input_text", text) for text in said]
        mark, _, coded = summary.encrypted_content.partition(":")
        text = base64.b64decode(coded).decode()
        assert summary.type == "compaction" and mark == "parley-summary" and text != "" and compact(model="tiny", **asked).output[-1].encrypted_content == summary.encrypted_content
        items = [{"role": "user", "content": text} for text in said] + [{"type": "compaction", "id": summary.id, "encrypted_content": summary.encrypted_content}]
        spelled = items[:-1] + [{"role": "user", "content": f"This summary stands for the conversation before it:\n\n{text}"}]
        assert count(model="tiny", input=items) == count(model="tiny", input=spelled)
        assert create(model="tiny", input=items, max_output_tokens=4, temperature=0).output_text == create(model="tiny", input=spelled, max_output_tokens=4, temperature=0).output_text
        expect(openai.NotFoundError, "not kept", create, model="tiny", input="x", previous_response_id=done.id)
    long = [{"role": role, "content": f"{i} " + "word " * 25} for i in range(10) for role in ("user", "assistant")]
    assert count(model="tiny", input=long).input_tokens > 2048
    assert [item.content[0].text[0] for item in compact(model="tiny", input=long, extra_body={"max_output_tokens": 4}).output[:-1]] == [str(i) for i in range(10)]  # its front is left out of the summary alone
    expect(openai.BadRequestError, "maximum context length", compact, model="tiny", input="word " * 3000)
    for call in (compact, count):
        for field, wrong in (("input", {}), ("input", {"input": []}), ("input", {"input": 5}), ("model", {"input": "x", "model": 5}), ("previous_response_id", {"previous_response_id": "resp_0"}),
                             ("conversation", {"conversation": named, "previous_response_id": first.id}), ("instructions", {"instructions": 5, "previous_response_id": first.id})):
            own = {key: value for key, value in wrong.items() if call is count or key != "conversation"}
            extra = {"conversation": named} if "conversation" in wrong and call is compact else {}
            error = expect((openai.BadRequestError, openai.NotFoundError), "", call, **{"model": "tiny", **own}, extra_body=extra)
            assert error.param == field, (error.param, field, wrong)
        expect(openai.BadRequestError, "model 'tiny'", call, model="long", previous_response_id=first.id)
    expect(openai.BadRequestError, "comes whole", compact, model="tiny", input="x", extra_body={"stream": True})
    expect(openai.BadRequestError, "not stored", compact, model="tiny", input="x", extra_body={"background": True})
    for path in ("/v1/responses/compact", "/v1/responses/input_tokens"):
        assert call_bare(parley, "GET", path)[0] == 405


def background(parley):
    """A response in the background is answered at once, goes on without its client, and is read when it is done."""
    client = client_of(parley)
    asked = dict(model="long", input="Tell me a long story.", background=True, max_output_tokens=300, extra_body={"ignore_eos": True})
    begun = client.responses.create(**asked)
    assert begun.status == "in_progress" and begun.background and begun.output == []

    def done(id):
        until("the end of the response", lambda: client.responses.retrieve(id).status != "in_progress")
        return client.responses.retrieve(id)

    ended = done(begun.id)
    assert ended.status == "incomplete" and ended.usage.output_tokens == 300 and ended.background and ended.created_at == begun.created_at
    stream = client.responses.create(stream=True, **asked)
    seen = [e for e, _ in zip(stream, range(8))]
    stream.close()
    ended = done(seen[0].response.id)
    assert ended.usage.output_tokens == 300 and ended.status == "incomplete"
    assert list(client.responses.retrieve(ended.id, stream=True))[:8] == seen
    again = [client.responses.create(extra_headers={"Idempotency-Key": "in the background"}, **asked) for _ in range(2)]
    assert again[0].id == again[1].id and done(again[0].id).usage.output_tokens == 300
    endless = client.responses.create(**{**asked, "max_output_tokens": 60000, "stream": True})
    begun = [e for e, _ in zip(endless, range(6))][0].response
    endless.close()
    assert client.responses.retrieve(begun.id).status == "in_progress"
    assert client.responses.cancel(begun.id).status == "cancelled" == client.responses.retrieve(begun.id).status
    until("the end of all", lambda: running(parley) == 0)
    expect(openai.BadRequestError, "store", client.responses.create, store=False, **asked)


def constrained(parley):
    """Replies match in every spelling, streamed or whole; what is left out is named; beside the module's absence one line says why."""
    client = client_of(parley)
    create = client.chat.completions.with_raw_response.create
    common = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 200, "temperature": 2, "seed": 5}
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"]}
    if not os.path.exists(os.path.join(os.path.dirname(sys.argv[1]), "agents/lm/grammar/libparley-grammar.so")):
        error = expect(openai.APIStatusError, "libparley-grammar.so", client.with_options(max_retries=0).chat.completions.create,
                       response_format={"type": "json_object"}, **common)
        assert error.status_code == 503, error.status_code
        return

    def reply(**more):
        answer = create(**common, **more)
        choice = answer.parse().choices[0]
        assert choice.finish_reason == "stop", choice
        return choice.message.content, answer.headers

    for more in [{"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}},
                 {"extra_body": {"guided_json": schema}}, {"extra_body": {"json_schema": schema}},
                 {"extra_body": {"structured_outputs": {"json": schema}}}]:
        text, headers = reply(**more)
        said = json.loads(text)
        assert set(said) == {"a", "b"} and isinstance(said["a"], bool) and said["b"] in ("x", "y"), text
        assert "x-parley-unenforced" not in headers
    assert reply(extra_body={"guided_choice": ["yes", "no"]})[0] in ("yes", "no")
    assert re.fullmatch("[ab]{3}-[0-9]{2}", reply(extra_body={"guided_regex": "[ab]{3}-[0-9]{2}"})[0])
    assert re.fullmatch("(hi )+!", reply(extra_body={"grammar": 'root ::= ("hi " | "hi hi ") "!"'})[0])
    some = {"type": "array", "not": {"format": "date"}, "maxItems": 2}
    assert reply(extra_body={"guided_json": some})[1]["x-parley-unenforced"] == "# not"
    streamed = client.chat.completions.create(stream=True, extra_body={"guided_json": schema}, **common)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices)
    assert set(json.loads(text)) == {"a", "b"}, text
    answer = client.responses.create(model="tiny", input="x", temperature=2, max_output_tokens=200,
                                     text={"format": {"type": "json_schema", "name": "a", "schema": schema}})
    assert set(json.loads(answer.output_text)) == {"a", "b"}, answer.output_text


def closed(parley):
    """Under a schema a reply that repeats itself for long is closed as soon as the schema lets it, and validates; under a regular expression it is ended where max_tokens is."""
    if not os.path.exists(os.path.join(os.path.dirname(sys.argv[1]), "agents/lm/grammar/libparley-grammar.so")):
        return
    client = client_of(parley)

    def tokens_of(text):
        body = json.dumps({"model": "tiny", "content": text, "add_special": False}).encode()
        with urllib.request.urlopen(f"http://{parley.http}/tokenize", body, timeout=PATIENCE) as answer:
            return json.load(answer)["tokens"]

    def reply(letter, **more):
        [token] = tokens_of(letter)
        answer = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x"}], max_tokens=400, temperature=0,
                                                logit_bias={str(token): 100}, extra_body=more)
        return answer.choices[0].message.content, answer.choices[0].finish_reason

    text, finish = reply("b", guided_json={"type": "string"})
    assert finish == "stop" and re.fullmatch("b{128,}", json.loads(text)[-128:]), (text, finish)
    some = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer"}}, "required": ["a", "n"]}
    for letter in "b1":
        text, finish = reply(letter, guided_json=some)
        said = json.loads(text)
        assert finish == "stop" and set(said) == {"a", "n"} and isinstance(said["n"], int), (text, finish)
    text, finish = reply("b", guided_regex="b+")  # it ends near the limit alone
    assert finish == "stop" and re.fullmatch("b{380,400}", text), (text, finish)


def errors(parley):
    client = client_of(parley)
    create = client.chat.completions.create
    user = [{"role": "user", "content": "x"}]
    error = expect(openai.NotFoundError, "there is no model 'none'", create, model="none", messages=user)
    assert error.status_code == 404
    error = expect(openai.BadRequestError, "temperature must be a number", create, model="tiny", messages=user, temperature="hot")
    assert error.param == "temperature" and error.type == "invalid_request_error"
    for param, says, more in [
            ("top_p", "top_p", {"top_p": 7}),
            ("max_tokens", "it must be from 1", {"max_tokens": 0}),
            ("n", "it must be from 1", {"n": 0}),
            ("stop", "stop must be", {"stop": 3}),
            ("logit_bias", "'x', which is not a token's id", {"logit_bias": {"x": 1}}),
            ("logit_bias", "not a number", {"logit_bias": {"1": "a"}}),
            ("top_logprobs", "needs logprobs", {"top_logprobs": 2}),
            ("stream", "stream must be true or false", {"extra_body": {"stream": "yes"}}),
            ("response_format", "at #/properties/a: 'not' cannot be enforced", {"response_format": {
                "type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": {"properties": {"a": {"not": {"format": "date"}}}}}}}),
            ("response_format", "has no schema", {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}),
            ("typical_p", "is not supported", {"extra_body": {"typical_p": 0.5}}),
            ("guided_choice", "there are 0 choices", {"extra_body": {"guided_choice": []}}),
            ("structured_outputs.choice", "there are 0 choices", {"extra_body": {"structured_outputs": {"choice": []}}}),
            ("regex", "use structured_outputs.regex", {"extra_body": {"regex": "a+"}}),
            ("max_completion_tokens", "it must be from 1", {"max_completion_tokens": 0}),
            ("messages[0].tool_calls[0].id", "must be a string", {"messages": [{"role": "assistant", "tool_calls": [{"id": 7, "function": {"name": "f"}}]}]}),
            ("seed", "from -2^63", {"extra_body": {"seed": 2**64}})]:
        error = expect(openai.BadRequestError, says, create, **{"model": "tiny", "messages": user, **more})
        assert error.param == param, (error.param, param)
    for param, messages in [("messages", []), ("messages[0].role", [{"role": "tools", "content": "x"}]), ("messages[0]", ["x"]),
                            ("messages[1].content", [{"role": "user", "content": "x"}, {"role": "user", "content": 3}]),
                            ("messages[0].content", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])]:
        error = expect(openai.BadRequestError, param, create, model="tiny", messages=messages)
        assert error.param == param, (error.param, param)
    error = expect(openai.BadRequestError, "maximum context length is 2048 tokens", create, model="tiny", messages=[{"role": "user", "content": "w " * 40000}])
    assert error.code == "context_length_exceeded"
    # A stream of Responses fails as one that has begun.
    *_, last = client.responses.create(model="tiny", input="w " * 40000, stream=True)
    assert last.type == "response.failed" and last.response.status == "failed" and last.response.error.code == "context_length_exceeded", last
    # What runs elsewhere is left out and named; numbers and characters that JSON has are taken.
    wide = [{"role": "user", "content": "a\0b", "name": "ann"}]
    for tools in ([{"type": "web_search"}, {"type": "custom", "custom": {"name": "f"}}], []):
        raw = client.chat.completions.with_raw_response.create(model="tiny", messages=wide, tools=tools or openai.NOT_GIVEN, max_completion_tokens=3,
                                                               extra_body={"max_tokens": 3.0, "unknown": 2**64, "top_p": 0, "ignore_eos": True})
        assert raw.headers["x-parley-unenforced"] == ("web_search, custom, " if tools else "") + "unknown, messages.name", raw.headers
        assert raw.parse().usage.completion_tokens == 3
    echoes = {"prompt_cache_key": "k", "safety_identifier": "s", "user": "u", "truncation": "auto", "max_tool_calls": 3, "text": {"verbosity": "low", "format": {"type": "text"}}}
    told = client.responses.create(model="tiny", input="x", max_output_tokens=3, temperature=0, top_logprobs=2, include=["message.output_text.logprobs"],
                                   extra_body={**echoes, "ignore_eos": True})
    assert {name: told.to_dict()[name] for name in echoes} == echoes and told.top_logprobs == 2, told
    assert [len(t.top_logprobs) for t in told.output[0].content[0].logprobs] == [2, 2, 2], told.output
    every = ["file_search_call.results", "web_search_call.results", "reasoning.encrypted_content"]
    assert client.responses.create(model="tiny", input="x", max_output_tokens=3, include=every).status == "incomplete"
    expect(openai.BadRequestError, "no response has such a part", client.responses.create, model="tiny", input="x", include=["every"])
    # A history that is too long loses its beginning; what remains is what a client would have sent.
    long = [{"role": "user", "content": f"{i} " + "w " * 300} for i in range(12)]
    cut = client.responses.create(model="tiny", input=long, truncation="auto", max_output_tokens=3)
    counts = [client.responses.create(model="tiny", input=long[-n:], max_output_tokens=3).usage.input_tokens for n in (1, 2, 3)]
    assert cut.usage.input_tokens in counts and cut.usage.input_tokens + 3 <= 2048, (cut.usage, counts)
    # A limit of -1 is the rest of the context, and so is none.
    for more in ({}, {"extra_body": {"max_tokens": -1}}):
        full = [{"role": "user", "content": "w " * 900}]
        whole = client.chat.completions.create(**{"model": "tiny", "messages": full, "extra_body": {"ignore_eos": True, **more.get("extra_body", {})}})
        assert whole.usage.total_tokens == 2048 and whole.choices[0].finish_reason == "length", whole.usage
    expect(openai.APIStatusError, "at most 100000 are taken", create, model="tiny", messages=[{"role": "user", "content": "x" * 200000}])


def history(parley):
    """A client that sends all of its history has all of it but the new turn cached, to the page."""
    client = client_of(parley)
    messages = [{"role": "system", "content": "You are a guide who knows every river of the world by name."}]
    before = None
    for turn in range(4):
        messages.append({"role": "user", "content": f"Tell me about river number {turn}."})
        said = client.chat.completions.create(model="tiny", messages=messages, max_tokens=30, temperature=0, extra_body={"ignore_eos": True})
        if before is not None:
            held = before.prompt_tokens + before.completion_tokens
            assert said.usage.prompt_tokens_details.cached_tokens >= before.prompt_tokens // 16 * 16, (turn, said.usage)
            assert said.usage.prompt_tokens_details.cached_tokens <= held
        before = said.usage
        messages.append({"role": "assistant", "content": said.choices[0].message.content})


def bound(parley):
    """X-Conversation-Id: only what is new is computed, whether or not the client sends the rest."""
    client = client_of(parley)
    create = client.chat.completions.with_raw_response.create
    asked = dict(model="tiny", max_tokens=20, temperature=1.0, seed=9, extra_body={"ignore_eos": True})
    name = {"X-Conversation-Id": "river-42"}
    one = create(messages=STORY, extra_headers=name, **asked)
    id = one.headers["X-Conversation-Id"]
    reply = one.parse().choices[0].message.content
    only_new = [{"role": "user", "content": "Go on."}]
    two = create(messages=only_new, extra_headers=name, **asked)
    assert two.headers["X-Conversation-Id"] == id
    a, b = one.parse().usage, two.parse().usage
    assert b.prompt_tokens_details.cached_tokens >= a.total_tokens - 1, (a, b)
    all_said = STORY + [{"role": "assistant", "content": reply}] + only_new + \
        [{"role": "assistant", "content": two.parse().choices[0].message.content}, {"role": "user", "content": "And then?"}]
    three = create(messages=all_said, extra_headers={"X-Conversation-Id": id}, **asked).parse().usage
    assert one.parse().id != two.parse().id
    assert three.prompt_tokens_details.cached_tokens >= b.total_tokens - 1 and three.prompt_tokens < b.total_tokens + 40
    said = parley.conversations.Get(harness.conversations.ConversationsGetRequest(conversation=id)).transcript
    assert [t.messages[0].text for t in said] == [STORY[0]["content"], "Go on.", "And then?"]
    # No retry cures these, so their status is one that the client does not try again.
    for param, says, wrong in [("messages", "do not go on", {"messages": all_said[:2] + STORY}), ("model", "with model 'tiny'", {"messages": STORY, "model": "echo"})]:
        error = expect(openai.UnprocessableEntityError, says, create, extra_headers=name, **{**asked, **wrong})
        assert (error.code, error.param) == ("conversation_mismatch", param), (error.code, error.param)
    expect(openai.BadRequestError, "X-Conversation-Id", create, messages=STORY, extra_headers={"X-Conversation-Id": "a b"}, **asked)
    parley.close(id)
    again = create(messages=STORY, extra_headers=name, **asked)
    assert again.headers["X-Conversation-Id"] != id


def bound_and_told(parley):
    """A turn that asked for no reply, over gRPC, has none in the history, and no response's id."""
    client = client_of(parley)
    create = client.chat.completions.with_raw_response.create
    asked = dict(model="tiny", max_tokens=8, extra_headers={"X-Conversation-Id": "river-43"})
    one = create(messages=STORY, **asked)
    id = one.headers["X-Conversation-Id"]
    wire = harness.conversations
    list(parley.conversations.Turn(wire.TurnRequest(conversation=id, turn=2, text="It rains.", observe_only=True)))
    all_said = STORY + [{"role": "assistant", "content": one.parse().choices[0].message.content}] + \
        [{"role": "user", "content": text} for text in ("It rains.", "Go on.")]
    two = create(messages=all_said, **asked)
    said = parley.conversations.Get(wire.ConversationsGetRequest(conversation=id)).transcript
    assert [[m.text for m in t.messages] for t in said] == [[STORY[0]["content"]], ["It rains."], ["Go on."]], said
    twin = wire.TurnRequest(conversation=parley.fork(id, at_turn=1), turn=2,
                            messages=[harness.content.Message(role="user", text=text) for text in ("It rains.", "Go on.")])
    assert parley.conversations.Ask(twin).usage.prompt_tokens == two.parse().usage.prompt_tokens, "the agent has seen both"
    expect(openai.NotFoundError, "not kept", client.responses.create, model="tiny", input="x", previous_response_id=f"resp_{id}{2:08x}")
    assert client.responses.create(model="tiny", input="x", previous_response_id=f"resp_{id}{3:08x}", max_output_tokens=4).usage.input_tokens > 0
    parley.close(id)


def running(parley):
    return sum(m.batching.running + m.batching.waiting for m in parley.admin.Status(harness.admin.AdminStatusRequest()).models)


def cancelled(parley):
    page = call(f"http://{parley.http}/metrics")[1].decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if 'reason="CANCELED"' in line and not line.startswith("#"))


def hang_up(parley):
    before = cancelled(parley)
    stream = client_of(parley).chat.completions.create(model="long", messages=STORY, stream=True, n=32, max_tokens=100000,
                                                       extra_body={"ignore_eos": True})
    for _ in zip(range(3), stream):
        pass
    stream.close()
    until("the end of all 32", lambda: cancelled(parley) == before + 32 and running(parley) == 0)
    # One that waits for the whole reply, and goes away before.
    before = cancelled(parley)
    body = json.dumps({"model": "long", "messages": STORY, "n": 32, "max_tokens": 100000, "ignore_eos": True}).encode()
    with connect(parley) as s:
        s.sendall(post(body))
        until("a reply under way", lambda: running(parley) > 0)
    until("the end of all 32", lambda: cancelled(parley) == before + 32 and running(parley) == 0)


# --- bare sockets ---


def connect(parley):
    host, port = parley.http.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def post(body, path="/v1/chat/completions", head=""):
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def read_reply(f):
    """Status, headers, body of one answer."""
    status = int(f.readline().split()[1])
    headers = {}
    while (line := f.readline().strip()) != b"":
        name, value = line.decode().split(": ", 1)
        headers[name.lower()] = value
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while (size := int(f.readline(), 16)) > 0:
            body += f.read(size)
            f.readline()
        f.readline()
    else:
        body = f.read(int(headers["content-length"]))
    return status, body, headers


def call(url, body=None):
    host = url.split("/")[2]
    path = url.split(host, 1)[1]
    at, port = host.rsplit(":", 1)
    with socket.create_connection((at, int(port)), timeout=PATIENCE) as s:
        if body is None:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        else:
            s.sendall(post(json.dumps(body).encode(), path))
        return read_reply(s.makefile("rb"))


def call_bare(parley, method, path):
    with connect(parley) as s:
        s.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        return read_reply(s.makefile("rb"))


def say(parley, data, then_end=False):
    """All that comes back, until the server closes."""
    with connect(parley) as s:
        s.sendall(data)
        if then_end:
            s.shutdown(socket.SHUT_WR)
        with s.makefile("rb") as f:
            return f.read()


ECHO = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "hello"}]}).encode()


def bare(parley):
    url = f"http://{parley.http}"
    assert call(url + "/health")[0] == 200
    status, page, headers = call(url + "/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain") and b"\n# TYPE" in page
    with connect(parley) as s:
        s.sendall(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head = s.makefile("rb").read()
    assert head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n")
    assert call(url + "/v1/models/a%2Fb")[0] == 404 and b"'a/b'" in call(url + "/v1/models/a%2Fb")[1]
    status, body, _ = call(url + "/nowhere")
    assert status == 404 and b"/v1/chat/completions" in body
    status, body, headers = call(url + "/v1/chat/completions")
    assert status == 405 and headers["allow"] == "POST"
    status, body, _ = call(url + "/v1/models", {})
    assert status == 405
    for bad in (b"{", b"", b"[1]", b"nonsense", b"{\"a\": \"\xff\"}", b"{\"messages\": " + b"[" * 50000):
        with connect(parley) as s:
            s.sendall(post(bad))
            status, body, _ = read_reply(s.makefile("rb"))
        assert status == 400 and "message" in json.loads(body)["error"], (bad[:20], status, body)


def keep_alive(parley):
    with connect(parley) as s:
        f = s.makefile("rb")
        for _ in range(5):  # one after the other on one connection, an error among them
            s.sendall(post(ECHO))
            assert read_reply(f)[0] == 200
            s.sendall(post(b"{}"))
            assert read_reply(f)[0] == 400
        s.sendall(post(ECHO) * 7 + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + post(ECHO))  # all at once
        got = [read_reply(f)[1] for _ in range(9)]
        assert sum(b'"hello"' in body for body in got) == 8 and got[7] == b'{"status":"ok"}'
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
        assert read_reply(f)[0] == 200  # an upgrade need not be granted
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert read_reply(f)[0] == 200 and f.read() == b""
    old = say(parley, b"GET /health HTTP/1.0\r\n\r\n")
    assert b"Connection: close" in old and old.endswith(b'{"status":"ok"}')
    stream = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "hello"}], "stream": True}).encode()
    old = say(parley, post(stream).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert b"Transfer-Encoding" not in old and old.endswith(b"data: [DONE]\n\n")
    with connect(parley) as s:  # the body only after the server has said so
        f = s.makefile("rb")
        whole = post(ECHO, head="Expect: 100-continue\r\n")
        s.sendall(whole[:-len(ECHO)])
        assert f.readline().startswith(b"HTTP/1.1 100") and f.readline() == b"\r\n"
        s.sendall(ECHO)
        assert read_reply(f)[0] == 200


def chunked(data, head=""):
    return f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{head}Transfer-Encoding: chunked\r\n\r\n".encode() + data


def chunks(parley):
    good = b"".join(b"%x\r\n%c\r\n" % (1, c) for c in ECHO) + b"0;x=y\r\nTrailer: t\r\n\r\n"
    with connect(parley) as s:
        f = s.makefile("rb")
        s.sendall(chunked(good) * 3 + post(ECHO))
        assert all(b'"hello"' in read_reply(f)[1] for _ in range(4))
    with connect(parley) as s:  # byte by byte
        for i in range(0, len(good), 3):
            s.sendall((chunked(good) if i == 0 else b"")[:-len(good)] + good[i:i + 3])
        assert b'"hello"' in read_reply(s.makefile("rb"))[1]
    for bad in (b"zz\r\n", b"-1\r\n", b"5\r\nabcdefgh\r\n", b"f" * 17 + b"\r\n", b"1\nx", b"\r\n", b"1;" + b"x" * 20000):
        said = say(parley, chunked(bad))
        assert said.startswith(b"HTTP/1.1 400") and b"malformed" in said, (bad[:10], said)
    for both, status in ((chunked(b"0\r\n\r\n", "Content-Length: 5\r\n"), b"400"), (chunked(b"0\r\n\r\n").replace(b"chunked", b"gzip"), b"501")):
        assert say(parley, both).startswith(b"HTTP/1.1 " + status)
    assert say(parley, chunked(b"fffffffff\r\n")).startswith(b"HTTP/1.1 413")
    large = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    assert say(parley, chunked(large * 4)).startswith(b"HTTP/1.1 413")


def lengths(parley):
    assert say(parley, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 411")
    for length in ("-5", "0x10", "5, 5", "99999999999999999999"):
        said = say(parley, f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
        assert said.startswith(b"HTTP/1.1 400"), (length, said)
    said = say(parley, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100001\r\n\r\n" + b" " * 100001)
    assert said.startswith(b"HTTP/1.1 413") and b"at most 100000" in said
    assert say(parley, post(ECHO)[:-5], then_end=True) == b""  # half a request
    assert say(parley, b"\x16\x03\x01\xff nonsense\r\n\r\n", then_end=True).startswith(b"HTTP/1.1 400")  # TLS, say


def pages(parleyd):
    """What web pages ask is answered for pages of this machine, and of origins that are allowed; and by a name that was pointed here, nothing."""

    def ask(parley, host, *headers, request="POST /v1/chat/completions", body=ECHO):
        lines = [f"{request} HTTP/1.1", f"Host: {host}", *headers, f"Content-Length: {len(body)}"]
        with connect(parley) as s:
            s.sendall("\r\n".join(lines + ["", ""]).encode() + body)
            return read_reply(s.makefile("rb"))

    def preflight(parley, host, origin, path="/v1/chat/completions"):
        """Status and headers: the answer has no body, and not even a length."""
        with connect(parley) as s:
            s.sendall(f"OPTIONS {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: POST\r\n"
                      "Access-Control-Request-Headers: authorization,x-stainless-os\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n"
                      "Connection: close\r\n\r\n".encode())
            first, _, rest = s.makefile("rb").read().partition(b"\r\n\r\n")
        status, *lines = first.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        if status.split()[1] == "204":
            assert "content-length" not in headers and rest.startswith(b"HTTP/1.1 200"), (headers, rest)
        return int(status.split()[1]), headers

    evil, app = "http://evil.example", "https://app.example"
    with harness.Parleyd(parleyd, "--http", "127.0.0.1:0", "--http-origin", app) as parley:
        us = parley.http
        status, body, headers = ask(parley, us)
        assert status == 200 and "access-control-allow-origin" not in headers
        for text in ("Content-Type: text/plain", "Content-Type: application/json"):  # the first is sent without a preflight
            status, body, headers = ask(parley, us, f"Origin: {evil}", text)
            assert status == 403 and json.loads(body)["error"]["type"] == "permission_error" and "access-control-allow-origin" not in headers
        assert ask(parley, us, "Origin: null")[0] == 403
        for request in ("POST /v1/chat/completions", "GET /metrics", "GET /health", "GET /v1/models", "GET /nowhere"):
            status, body, _ = ask(parley, "evil.example", request=request, body=b"")
            assert status == 403 and "evil.example" in json.loads(body)["error"]["message"], (request, status)
        for origin in (app, "http://localhost:3000", "http://127.0.0.1"):
            status, body, headers = ask(parley, us, f"Origin: {origin}", "X-Conversation-Id: page")
            assert status == 200 and headers["access-control-allow-origin"] == origin and headers["vary"] == "Origin"
            assert "x-conversation-id" in headers["access-control-expose-headers"].lower() and "x-conversation-id" in headers
            status, _, headers = ask(parley, us, f"Origin: {origin}", body=b"{}")  # a page reads what was wrong, too
            assert status == 400 and headers["access-control-allow-origin"] == origin
            status, headers = preflight(parley, us, origin)
            assert status == 204 and headers["access-control-allow-origin"] == origin
            assert headers["access-control-allow-headers"] == "authorization,x-stainless-os" and "post" in headers["access-control-allow-methods"]
        assert ask(parley, "app.example")[0] == 200  # a proxy may pass the name on
        assert preflight(parley, us, evil)[0] == 403 and preflight(parley, "evil.example", app)[0] == 403
        assert preflight(parley, us, evil, "/nowhere")[0] == 403
        assert ask(parley, us, request="OPTIONS /v1/models", body=b"")[0] == 405  # by no page
        stream = json.dumps({**json.loads(ECHO), "stream": True}).encode()
        status, body, headers = ask(parley, us, f"Origin: {app}", body=stream)
        assert status == 200 and headers["access-control-allow-origin"] == app and body.endswith(b"[DONE]\n\n")
    with harness.Parleyd(parleyd, "--http", "0.0.0.0:0") as parley:
        assert ask(parley, "parley.example:1")[0] == 200
        assert ask(parley, "parley.example:1", "Origin: http://parley.example:1")[0] == 200
        assert ask(parley, "parley.example:1", f"Origin: {evil}")[0] == 403
    with harness.Parleyd(parleyd, "--http", "127.0.0.1:0", "--http-origin", "*") as parley:
        assert ask(parley, "evil.example", f"Origin: {evil}")[2]["access-control-allow-origin"] == evil


def is_served(parley):
    """A request that is not slow itself, which is the machine's to say, has its answer."""
    start, status = time.monotonic(), None
    try:
        status = call(f"http://{parley.http}/v1/chat/completions", json.loads(ECHO))[0]
    except (OSError, IndexError):  # IndexError: no answer
        pass
    return status == 200 or time.monotonic() - start >= SLOW_S


def slow(parleyd):
    """Who sends a byte now and then is cut off, and nobody else notices."""
    with harness.Parleyd(parleyd, "--http", "127.0.0.1:0", "--http-timeout", f"{SLOW_S}s") as parley:
        cut_off(parley)


def cut_off(parley):
    cut = []

    def trickle(head, byte):
        with connect(parley) as s:
            start = time.monotonic()
            s.sendall(head)
            try:
                while time.monotonic() - start < PATIENCE:
                    s.settimeout(0.1)
                    try:
                        if s.recv(1000) == b"":
                            break
                    except TimeoutError:
                        s.sendall(byte)
            except OSError:
                pass
            cut.append(time.monotonic() - start)

    threads = [threading.Thread(target=trickle, args=a) for a in
               [(b"GET /health HTTP/1.1\r\nX-A: ", b"x"), (post(ECHO)[:-len(ECHO)], b" "), (chunked(b""), b"1\r\n \r\n"),
                (b"POST /v1/chat/completions HTTP/1.1\r\n", b"")]]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        assert is_served(parley)
    assert len(cut) == 4 and max(cut) < PATIENCE, cut


def full_queue(parleyd, tiny):
    with harness.Parleyd(parleyd, "--model", f"tiny={tiny}", "--http", "127.0.0.1:0", "--max-queue", "1") as parley:
        body = {"model": "echo", "prompt": ["a"] * 128}
        status, reply, headers = call(f"http://{parley.http}/v1/completions", body)
        assert status == 429 and int(headers["retry-after-ms"]) >= 1, (status, headers)
        assert int(headers["retry-after"]) == -(-int(headers["retry-after-ms"]) // 1000), headers  # whole seconds, and never too early
        assert json.loads(reply)["error"]["type"] == "rate_limit_error"
        expect(openai.RateLimitError, "wait", client_of(parley).completions.create, model="echo", prompt=["a"] * 128)
        assert call(f"http://{parley.http}/v1/chat/completions", json.loads(ECHO))[0] == 200


def drain(parleyd, tiny):
    """A stream in flight ends as it should, connections that wait are closed, new requests have 503."""
    daemon = harness.Parleyd(parleyd, "--model", f"tiny={tiny}", "--http", "127.0.0.1:0", "--drain-timeout", "10m", "--http-timeout", "10m")
    with daemon as parley:
        idle = connect(parley)
        idle.sendall(post(ECHO))
        assert read_reply(idle.makefile("rb"))[0] == 200
        waits = connect(parley)
        waits.sendall(post(ECHO)[:-1])
        # More than a socket holds that takes little: it is in flight until it is read.
        stream = socket.socket()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.settimeout(PATIENCE)
        stream.connect(("127.0.0.1", int(parley.http.rsplit(":", 1)[1])))
        stream.sendall(post(json.dumps({"model": "tiny", "messages": STORY, "stream": True, "n": 24, "max_tokens": 300,
                                        "ignore_eos": True}).encode()))
        said = stream.recv(1000)
        daemon.process.send_signal(signal.SIGTERM)
        assert idle.recv(100) == b""
        waits.sendall(post(ECHO)[-1:])
        status, reply, _ = read_reply(waits.makefile("rb"))
        assert status == 503 and json.loads(reply)["error"]["type"] == "server_error"
        while not said.endswith(b"0\r\n\r\n"):
            more = stream.recv(1 << 20)
            assert more != b"", said[-1000:]
            said += more
        assert said.count(b'"finish_reason":"length"') == 24 and b"data: [DONE]" in said
        daemon.process.wait(timeout=PATIENCE)


def hostile(parleyd, tiny):
    """Schemas that would be compiled for ever are refused before they are compiled, and a chat beside them goes on."""
    deep = '{"type":"string"}'
    for _ in range(2000):
        deep = '{"properties":{"a":%s}}' % deep
    some = '{"type":"string"}'
    for _ in range(100):
        some = '{"properties":{"a":%s}}' % some
    wide = "[" + ",".join(map(str, range(20000))) + "]"
    schemas = [(deep, "parsing depth"), (some, "nested too deeply"), ('{"enum":[%s1]}' % ("1," * 999_999), "too many values"), ('{"enum":[%s1]}' % ("1," * 99_999), "too many values"),
               ('{"enum":%s}' % wide, "too many values"), ('{"type":"string","minLength":1000000}', "'minLength' is larger than the compiler's limit"),
               ('{"type":"array","minItems":1000000000}', "'minItems' is larger than the compiler's limit"), ('{"type":"string","pattern":"^(a{1000}){1000}$"}', "too many repetitions"),
               ('{"enum":[%s]}' % ",".join(map(str, range(1_000_000))), "bytes, at most")]
    with harness.Parleyd(parleyd, "--model", f"tiny={tiny}", "--http", "127.0.0.1:0") as parley:
        asked = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 400}
        stream = iter(client_of(parley).chat.completions.create(stream=True, extra_body={"ignore_eos": True}, **asked))
        for schema, says in schemas:
            next(stream)
            body = json.dumps(asked)[:-1] + ',"response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":%s}}}' % schema
            try:
                urllib.request.urlopen(f"http://{parley.http}/v1/chat/completions", body.encode(), timeout=PATIENCE)
                raise AssertionError(f"taken: {schema[:80]}")
            except urllib.error.HTTPError as error:
                text = error.read().decode()
                assert error.code in (400, 413) and says in text, (schema[:80], error.code, text)
        *_, last = stream
        assert last.choices[0].finish_reason == "length", last


def readme(parleyd, tiny):
    """The examples of README.md and docs/serving.md work as they are printed."""
    root, examples = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."), []
    for page, least in ("README.md", 2), ("docs/serving.md", 17):
        with open(os.path.join(root, page), encoding="utf-8") as f:
            found = [line.strip() for line in f if line.startswith("    curl ")]
        assert len(found) >= least, (page, found)
        examples += found
    with harness.Parleyd(parleyd, "--model", f"smollm2={tiny}", "--http", "127.0.0.1:0") as parley:
        for example in examples:
            said = children.run(["sh", "-c", example.replace("127.0.0.1:8000", parley.http) + " --fail --silent --show-error"],
                                capture_output=True, text=True, timeout=PATIENCE)
            assert said.returncode == 0, (example, said)
            if "-N" in example.split():
                assert said.stdout.startswith("data: {") and said.stdout.endswith("data: [DONE]\n\n")
            elif "/metrics" not in example:
                assert json.loads(said.stdout), example


def wrong_starts(parleyd):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = children.run([parleyd, "--listen", "127.0.0.1:0", "--http", address], capture_output=True, text=True, timeout=PATIENCE)
        assert said.returncode == 1 and "--http" in said.stderr and "taken" in said.stderr, said
    for bad in ("nonsense", "127.0.0.1", "unix:/tmp/x"):
        said = children.run([parleyd, "--http", bad], capture_output=True, text=True, timeout=PATIENCE)
        assert said.returncode == 2 and bad in said.stderr, said
    with harness.Parleyd(parleyd) as parley:
        assert parley.http is None  # --listen alone asks for no other port


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    only = sys.argv[3:]
    shared = [chat, streams, tokens, completions, logprobs, several, models, responses, stored, compacted, background, constrained, closed, errors, history, bound, bound_and_told, hang_up, bare, keep_alive,
              chunks, lengths]
    with tempfile.TemporaryDirectory() as folder:
        tiny, long = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "long.gguf")
        children.run([write_tiny_model, tiny], check=True)
        children.run([write_tiny_model, long, "65536"], check=True)

        def run(test, *args):
            if not only or test.__name__ in only:
                start = time.monotonic()
                test(*args)
                print(f"{test.__name__}: good, {time.monotonic() - start:.2f} s", flush=True)

        with harness.Parleyd(parleyd, "--model", f"tiny={tiny}", "--model", f"long={long}", "--http", "127.0.0.1:0", "--http-timeout", "10m",
                             "--max-message-bytes", "100000") as parley:
            for test in shared:
                run(test, parley)
        run(pages, parleyd)
        run(slow, parleyd)
        run(full_queue, parleyd, tiny)
        run(drain, parleyd, tiny)
        run(hostile, parleyd, tiny)
        run(readme, parleyd, tiny)
        run(wrong_starts, parleyd)


if __name__ == "__main__":
    main()
