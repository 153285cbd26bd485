#!/usr/bin/env python3
"""Raw prompts and token ids over HTTP, with the unmodified `openai` client and bare HTTP: control tokens in the text of a prompt, the beginning
of a prompt, gaps to fill in, the ids of prompts and replies, whole and streamed, and conversations that go on by ids alone.

usage: test_raw.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has the clients; see venv.sh)
"""
import json
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request

import numpy
import ollama
import openai

import children
import harness
from children import PATIENCE
from parley.v1 import scores_pb2 as scores, scores_pb2_grpc as scores_grpc  # noqa: E402
from test_tools import CALL, HERMES, TOOLS, says

GAP = ["!<|fim_prefix|>", "!<|fim_suffix|>", "!<|fim_middle|>"]
FILES = ["!<|repo_name|>", "!<|file_sep|>"]
# Leaves messages without text out.
FILLED = ("{% for m in messages %}{% if m.content %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SAY = [{"role": "user", "content": "hello there"}]


def post(parley, path, body):
    """The status, and the reply as JSON."""
    request = urllib.request.Request(f"http://{parley.http}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def ids_of(parley, model="tiny", **body):
    status, reply = post(parley, "/tokenize", {"model": model, **body})
    assert status == 200, reply
    return reply["tokens"]


def events(parley, path, body):
    """The data of a stream's events."""
    request = urllib.request.Request(f"http://{parley.http}{path}", json.dumps({"stream": True, **body}).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        lines = answer.read().decode().split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line and not line.endswith("[DONE]")]


def whole(parley, prompt, model="tiny", **more):
    """The ids of a completion's prompt and reply."""
    status, reply = post(parley, "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **more})
    assert status == 200, reply
    choice = reply["choices"][0]
    assert sum(len(c["prompt_token_ids"]) for c in reply["choices"]) == reply["usage"]["prompt_tokens"]
    assert sum(len(c["token_ids"]) for c in reply["choices"]) == reply["usage"]["completion_tokens"]
    return choice["prompt_token_ids"], choice["token_ids"]


def control_tokens(parley):
    """One rule for prompts, /tokenize and Ollama's raw prompts; messages have none."""
    chat = "<|im_start|>user\nhello there<|im_end|>\n<|im_start|>assistant\n"
    parsed, plain = ids_of(parley, prompt=chat), ids_of(parley, prompt=chat, parse_special=False)
    assert len(parsed) < len(plain) and ids_of(parley, content=chat) == parsed and ids_of(parley, content=chat, parse_special=False) == plain
    assert whole(parley, chat)[0] == parsed and whole(parley, chat, parse_special=False)[0] == plain
    assert whole(parley, [chat, "hello"])[0] == parsed
    raw = ollama.Client(host=f"http://{parley.http}", timeout=PATIENCE).generate("tiny", chat, raw=True, options={"num_predict": 1})
    assert raw.prompt_eval_count == len(parsed), raw
    # The same prompt as a chat's: the template of this model has a system message of its own before it.
    asked = ids_of(parley, messages=SAY)
    assert asked[-len(parsed):] == parsed
    shown = post(parley, "/detokenize", {"model": "tiny", "tokens": asked})[1]["prompt"]
    assert post(parley, "/apply-template", {"model": "tiny", "messages": SAY}) == (200, {"prompt": shown})
    assert whole(parley, shown)[0] == asked
    # A message's own stay text, and no field changes that.
    said = [{"role": "user", "content": "<|im_end|>"}]
    assert len(ids_of(parley, messages=said)) > len(ids_of(parley, messages=[{"role": "user", "content": ""}])) + 1
    status, reply = post(parley, "/v1/chat/completions", {"model": "tiny", "messages": said, "parse_special": True})
    assert status == 400 and reply["error"]["param"] == "parse_special", reply
    # Scores of a prompt are those of its tokens.
    for text, ids in ((chat, parsed), ("hello", ids_of(parley, prompt="hello"))):
        body = {"model": "tiny", "prompt": text, "echo": True, "max_tokens": 0, "logprobs": 0}
        told = post(parley, "/v1/completions", body)[1]["choices"][0]
        assert len(told["logprobs"]["tokens"]) == len(ids) and told["text"] == text and told["logprobs"]["text_offset"][-1] < len(text)
        by_ids = post(parley, "/v1/completions", {**body, "prompt": ids})[1]["choices"][0]
        assert by_ids["logprobs"]["token_logprobs"] == told["logprobs"]["token_logprobs"]
    # So are those of gRPC's Scores, and of its bits.
    for literal, wanted in ((False, parsed), (True, plain)):
        request = scores.ScoresScoreRequest(model="tiny", inputs=[scores.ScoreInput(text=chat)], literal_text=literal)
        scored = scores_grpc.ScoresStub(parley.channel).Score(request).scores[0].tokens
        assert [t.id for t in scored] == wanted, scored
        if not literal:
            assert [numpy.float32(t.logprob) for t in scored[1:]] == [numpy.float32(v) for v in post(parley, "/v1/completions", {
                "model": "tiny", "prompt": chat, "echo": True, "max_tokens": 0, "logprobs": 0})[1]["choices"][0]["logprobs"]["token_logprobs"][1:]]
    for path in ("/v1/completions", "/tokenize"):
        for field in ("parse_special", "add_special_tokens"):
            status, reply = post(parley, path, {"model": "tiny", "prompt": "a", field: 1})
            assert status == 400 and field in json.dumps(reply), reply


def beginnings(parley):
    """A model that begins prompts with a token: text gets it once, ids are taken as they are."""
    bos = ids_of(parley, "bos", prompt="<|im_start|>", add_special_tokens=False)
    text = ids_of(parley, "bos", prompt="hello", add_special_tokens=False)
    assert len(bos) == 1 and ids_of(parley, "bos", prompt="hello") == bos + text == whole(parley, "hello", "bos")[0]
    assert ids_of(parley, "bos", content="hello") == text and ids_of(parley, "bos", content="hello", add_special=True) == bos + text
    assert whole(parley, "hello", "bos", add_special_tokens=False)[0] == text == whole(parley, text, "bos")[0]
    assert whole(parley, "<|im_start|>hello", "bos")[0] == bos + text == ids_of(parley, "bos", prompt="<|im_start|>hello")
    assert whole(parley, bos + text, "bos")[0] == bos + text
    status, reply = post(parley, "/tokenize", {"model": "bos", "messages": SAY, "add_special_tokens": True})
    assert status == 400 and "add_special_tokens" in reply["error"]["message"], reply


def gaps(parley):
    """A suffix: the prompt is the text before a gap. Control tokens in both are text."""
    before, behind = "def f(x):\n    ", "\n    return y<|fim_middle|>"
    prefix, suffix, middle = (ids_of(parley, "gap", prompt=token[1:])[0] for token in GAP)
    plain = dict(parse_special=False)
    wanted = [prefix, *ids_of(parley, "gap", prompt=before), suffix, *ids_of(parley, "gap", prompt=behind, **plain), middle]
    told, said = whole(parley, before, "gap", suffix=behind)
    assert told == wanted and whole(parley, wanted, "gap")[1] == said
    assert whole(parley, "", "gap", suffix=behind)[0] == [prefix, suffix, *ids_of(parley, "gap", prompt=behind, **plain), middle]
    assert whole(parley, before, "gap", suffix="")[0] == whole(parley, before, "gap", suffix=None)[0] == ids_of(parley, "gap", prompt=before)
    assert len(post(parley, "/v1/completions", {"model": "gap", "prompt": before, "suffix": behind, "max_tokens": 0, "prompt_logprobs": 1})[1]["choices"][0]["prompt_logprobs"]) == len(wanted)
    client = ollama.Client(host=f"http://{parley.http}", timeout=PATIENCE)
    for prompt, wanted in ((before, wanted), ("", [prefix, suffix, *ids_of(parley, "gap", prompt=behind, **plain), middle])):
        assert client.generate("gap", prompt, suffix=behind, options={"num_predict": 1}).prompt_eval_count == len(wanted)
    for model, body, param in (("tiny", {"prompt": before, "suffix": behind}, "suffix"), ("echo", {"prompt": before, "suffix": behind}, "prompt"), ("gap", {"prompt": [1], "suffix": behind}, "suffix"),
                               ("gap", {"prompt": before, "suffix": behind, "echo": True}, "echo"), ("gap", {"prompt": before, "suffix": 1}, "suffix"), ("gap", {"prompt": "", "suffix": ""}, "prompt")):
        status, reply = post(parley, "/v1/completions", {"model": model, **body})
        assert status == 400 and reply["error"]["param"] == param, (model, body, reply)
    for path, instead in (("/props", "/v1/models"), ("/lora-adapters", "adapters"), ("/slots", "conversations")):
        status, reply = post(parley, path, {"input_prefix": before, "input_suffix": behind})
        assert status == 501 and path in reply["error"]["message"] and instead in reply["error"]["message"], (path, status, reply)
    for body, param in (({}, "messages"), ({"messages": []}, "messages"), ({"messages": SAY, "model": "echo"}, "model"), ({"messages": SAY, "chat_template": "x"}, "chat_template")):
        status, reply = post(parley, "/apply-template", {"model": "gap", **body})
        assert status == 400 and reply["error"]["param"] == param, (body, reply)
    status, reply = post(parley, "/api/generate", {"model": "tiny", "prompt": before, "suffix": behind})
    assert status == 400 and "filling in" in reply["error"], reply


def infills(parley):
    """llama-server's /infill: the prompt is the one that llama-server makes, other files come before the gap, and its fields have their own names."""
    before, behind, typed = "def f(x):\n    ", "\n    return y<|fim_middle|>", "y = <|im_end|>"
    files = [{"filename": "a.py", "text": "A = 1\n"}, {"text": "B<|fim_suffix|>"}]

    def text(content, **more):
        return ids_of(parley, "gap", content=content, **{"parse_special": False, **more}) if content else []

    prefix, suffix, middle = (ids_of(parley, "gap", prompt=token[1:])[0] for token in GAP)
    repository, file = (ids_of(parley, "files", prompt=token[1:])[0] for token in FILES)
    parting = "\n\n--- snippet ---\n\n"
    gap = [prefix, *text(before), *text(typed, parse_special=True), suffix, *text(behind), middle]
    for model, extra, wanted in (("gap", [], gap), ("files", [], [repository, *text("myproject\n"), file, *text("filename\n"), *gap]),
                                 ("gap", files, [*text(parting), *text("A = 1\n"), *text(parting), *text("B<|fim_suffix|>"), *gap]),
                                 ("files", files, [repository, *text("myproject\n"), file, *text("a.py\n"), *text("A = 1\n"), file, *text("tmp\n"), *text("B<|fim_suffix|>"), file, *text("filename\n"), *gap])):
        body = {"model": model, "input_prefix": before, "input_suffix": behind, "prompt": typed, "input_extra": extra, "temperature": 0, "ignore_eos": True, "n_predict": 5, "return_tokens": True}
        status, reply = post(parley, "/infill", body)
        assert status == 200 and reply["tokens_evaluated"] == len(wanted) and reply["tokens_predicted"] == 5 and reply["stop_type"] == "limit", (reply, len(wanted))
        assert reply["tokens"] == whole(parley, wanted, model, max_tokens=5)[1], model
        assert reply["timings"]["prompt_n"] + reply["timings"]["cache_n"] == len(wanted) and reply["timings"]["predicted_n"] == 5
        told = events(parley, "/infill", body)
        assert [piece["stop"] for piece in told] == [False] * (len(told) - 1) + [True] and sum((piece["tokens"] for piece in told), []) == reply["tokens"]
        assert "".join(piece["content"] for piece in told) == reply["content"] and told[-1]["tokens_predicted"] == 5
    status, reply = post(parley, "/infill", {"model": "gap", "input_prefix": "", "input_suffix": "", "n_predict": 1})
    assert status == 200 and reply["tokens_evaluated"] == 3, reply
    status, reply = post(parley, "/infill", {**body, "n_predict": 0, "response_fields": ["content", "tokens", "timings/prompt_n", "timings/none", "none/x", ""]})
    assert status == 200 and reply == {"content": "", "tokens": [], "timings/prompt_n": reply["timings/prompt_n"]}, reply  # an editor that warms the cache
    assert post(parley, "/infill", body)[1]["timings"]["cache_n"] == len(wanted) // 16 * 16
    request = urllib.request.Request(f"http://{parley.http}/infill", json.dumps({**body, "samplers": ["top_k"], "t_max_predict_ms": 50, "t_max_prompt_ms": 50, "n_indent": 2, "x": 1}).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert sorted(answer.getheader("X-Parley-Unenforced").split(", ")) == ["n_indent", "samplers", "t_max_predict_ms", "t_max_prompt_ms", "x"]
    status, reply = post(parley, "/completion", {"model": "gap", "prompt": "hello", "n_predict": 6, "temperature": 0, "n_probs": 2, "ignore_eos": True, "return_tokens": True})
    told, said = whole(parley, "hello", "gap")
    assert status == 200 and reply["tokens"] == said == [t["id"] for t in reply["completion_probabilities"]] and reply["tokens_evaluated"] == len(told), reply
    assert all(len(t["top_logprobs"]) == 2 for t in reply["completion_probabilities"])
    stop = next(letter for letter in reply["content"] if letter.isascii() and letter.isalnum())
    status, cut = post(parley, "/completions", {"model": "gap", "prompt": told, "n_predict": 6, "temperature": 0, "ignore_eos": True, "stop": [stop]})
    assert status == 200 and (cut["stop_type"], cut["stopping_word"]) == ("word", stop) and cut["content"] == reply["content"].partition(stop)[0], cut
    status, reply = post(parley, "/infill", {"model": "tiny", "input_prefix": before, "input_suffix": behind})
    assert status == 501 and reply["error"]["param"] == "model" and "no tokens for filling in" in reply["error"]["message"], reply
    for wrong, param in (({"input_prefix": None}, "input_prefix"), ({"input_suffix": None}, "input_suffix"), ({"input_suffix": 5}, "input_suffix"), ({"prompt": [1]}, "prompt"),
                         ({"input_extra": {}}, "input_extra"), ({"input_extra": ["x"]}, "input_extra[0]"), ({"input_extra": [{"text": "x"}, {"text": 5}]}, "input_extra[1].text"),
                         ({"input_extra": [{}] * 257}, "input_extra"), ({"n_predict": -3}, "n_predict"), ({"n_predict": "x"}, "n_predict"), ({"n_probs": 99}, "n_probs"), ({"n": 2}, "n"),
                         ({"echo": True}, "echo"), ({"response_fields": "x"}, "response_fields"), ({"response_fields": [1]}, "response_fields"), ({"mirostat": 1}, "mirostat"), ({"top_p": 2}, "top_p"),
                         ({"return_tokens": "x"}, "return_tokens"), ({"model": "none"}, "model")):
        status, reply = post(parley, "/infill", {**body, **wrong})
        assert status in (400, 404) and reply["error"]["param"] == param, (wrong, status, reply)
    for wrong, param in (({}, "prompt"), ({"prompt": ["a", "b"]}, "prompt"), ({"prompt": [1, "b"]}, "prompt"), ({"prompt": 5}, "prompt")):
        status, reply = post(parley, "/completion", {"model": "gap", **wrong})
        assert status == 400 and reply["error"]["param"] == param, (wrong, status, reply)


def pieces(parley):
    """The texts of tokens beside their ids, in vLLM's form and in llama-server's."""
    text = "hé <|im_end|>\U0001f600"
    status, reply = post(parley, "/tokenize", {"model": "tiny", "prompt": text, "return_token_strs": True})
    assert status == 200 and len(reply["token_strs"]) == reply["count"] and "<|im_end|>" in reply["token_strs"], reply
    status, told = post(parley, "/tokenize", {"model": "tiny", "content": text, "with_pieces": True})
    assert [t["id"] for t in told["tokens"]] == reply["tokens"]
    assert b"".join(bytes(t["piece"]) if isinstance(t["piece"], list) else t["piece"].encode() for t in told["tokens"]).decode() == text


def reply_ids(parley):
    """A reply's ids, whole and in a stream, of text, thoughts and calls: none is left out, and that of the end is there."""
    ends = [ids_of(parley, "hermes", prompt=text)[0] for text in ("<|im_end|>", "<|endoftext|>")]
    for text in ("Yes.", CALL, f"<think>\nHm.\n</think>\n\n{CALL}\n{CALL}"):
        body = {"model": "hermes", "messages": SAY, "tools": TOOLS, "return_token_ids": True, "temperature": 0, **says(text)}
        status, reply = post(parley, "/v1/chat/completions", body)
        choice = reply["choices"][0]
        assert status == 200 and choice["finish_reason"] in ("stop", "tool_calls"), reply
        assert reply["prompt_token_ids"] == ids_of(parley, "hermes", messages=SAY, tools=TOOLS)
        assert choice["token_ids"][:-1] == ids_of(parley, "hermes", prompt=text) and choice["token_ids"][-1] in ends, choice
        told = events(parley, "/v1/chat/completions", body)
        assert told[0]["prompt_token_ids"] == reply["prompt_token_ids"] and not any("prompt_token_ids" in e for e in told[1:])
        assert [i for e in told for i in e["choices"][0]["token_ids"]] == choice["token_ids"], told
    body = {"model": "tiny", "prompt": ["once", "upon"], "n": 2, "max_tokens": 9, "ignore_eos": True, "seed": 4, "return_token_ids": True, "logprobs": 1, "return_tokens_as_token_ids": True}
    reply = post(parley, "/v1/completions", body)[1]
    told = events(parley, "/v1/completions", body)
    for choice in reply["choices"]:
        own = [e["choices"][0] for e in told if e["choices"][0]["index"] == choice["index"]]
        assert own[0]["prompt_token_ids"] == choice["prompt_token_ids"] and [i for c in own for i in c["token_ids"]] == choice["token_ids"]
        assert choice["logprobs"]["tokens"] == [f"token_id:{i}" for i in choice["token_ids"]]
        assert all(key.startswith("token_id:") for top in choice["logprobs"]["top_logprobs"] for key in top)
    client = openai.OpenAI(base_url=f"http://{parley.http}/v1", api_key="any", timeout=PATIENCE, max_retries=0)
    said = client.chat.completions.create(model="tiny", messages=SAY, max_tokens=5, logprobs=True, top_logprobs=2, extra_body={"ignore_eos": True, "return_token_ids": True})
    assert [t.id for t in said.choices[0].logprobs.content] == said.choices[0].token_ids and said.choices[0].logprobs.content[0].top_logprobs[0].id >= 0
    # Without the field no answer has ids.
    assert "token_ids" not in json.dumps(post(parley, "/v1/chat/completions", {"model": "tiny", "messages": SAY, "max_tokens": 2}))


def chats_by_ids(parley):
    """A chat's prompt as ids: the same reply as by messages, in parts, and the next turn behind the exact ids of the one before."""
    body = {"model": "hermes", "tools": TOOLS, "temperature": 0, "max_tokens": 200, "return_token_ids": True, **says(f"<think>\nHm.\n</think>\n\n{CALL}")}
    first = post(parley, "/v1/chat/completions", {"messages": SAY, **body})[1]
    again = post(parley, "/v1/chat/completions", {"prompt_token_ids": first["prompt_token_ids"], **body})[1]
    for reply in (first, again):
        for other in ("id", "idempotency_key"):  # which are others in each reply
            reply["choices"][0]["message"]["tool_calls"][0].pop(other)
    assert again["choices"] == first["choices"] and again["prompt_token_ids"] == first["prompt_token_ids"] and again["usage"]["prompt_tokens"] == first["usage"]["prompt_tokens"]
    told = events(parley, "/v1/chat/completions", {"prompt_token_ids": first["prompt_token_ids"], "messages": [], **body})
    assert any(e["choices"][0]["delta"].get("tool_calls") for e in told) and any(e["choices"][0]["delta"].get("reasoning_content") for e in told)
    more = ids_of(parley, "hermes", prompt="\n<|im_start|>user\nand then?<|im_end|>\n<|im_start|>assistant\n")
    ids = first["prompt_token_ids"] + first["choices"][0]["token_ids"] + more
    then = post(parley, "/v1/chat/completions", {"prompt_token_ids": ids, "model": "hermes", "max_tokens": 3, "return_token_ids": True})[1]
    assert then["prompt_token_ids"] == ids and then["usage"]["prompt_tokens_details"]["cached_tokens"] >= len(first["prompt_token_ids"]) // 16 * 16, then
    for wrong, param in (({"prompt_token_ids": [1], "messages": SAY}, "prompt_token_ids"), ({"prompt_token_ids": []}, "prompt_token_ids"), ({"prompt_token_ids": "a"}, "prompt_token_ids"),
                         ({"prompt_token_ids": [-1]}, "prompt"), ({"prompt_token_ids": [10**6]}, "prompt"), ({"prompt_token_ids": [1.5]}, "prompt_token_ids"), ({}, "messages")):
        status, reply = post(parley, "/v1/chat/completions", {"model": "hermes", **wrong})
        assert status == 400 and param in reply["error"]["param"], (wrong, reply)
    request = urllib.request.Request(f"http://{parley.http}/v1/chat/completions", json.dumps({"prompt_token_ids": [1]}).encode(), {"X-Conversation-Id": "ids"})
    try:
        urllib.request.urlopen(request, timeout=PATIENCE)
        raise AssertionError("ids in a named conversation are taken")
    except urllib.error.HTTPError as error:
        assert error.code == 400 and b"X-Conversation-Id" in error.read()


def begun(parley):
    """A last message of the assistant's is the beginning of the reply: in Messages and /api/chat always, in a chat by vLLM's field of the request or Mistral's of the message."""
    system = {"role": "system", "content": "Be brief."}
    ways = (("/v1/chat/completions", {"continue_final_message": True, "add_generation_prompt": False, "max_tokens": 6}, {}), ("/v1/chat/completions", {"max_tokens": 6}, {"prefix": True}),
            ("/v1/messages", {"max_tokens": 6}, {}), ("/api/chat", {"stream": False, "options": {"num_predict": 6, "temperature": 0}}, {}))
    for model, messages, start in (("tiny", SAY, "Once upon"), ("tiny", [system, *SAY], "A"), ("hermes", SAY, '{"a": '), ("hermes", SAY, ""), ("bos", SAY, "Once")):
        prompt = ids_of(parley, model, messages=messages) + ids_of(parley, model, content=start)
        reply = whole(parley, prompt, model, ignore_eos=False)[1]
        assert ids_of(parley, model, messages=[*messages, {"role": "assistant", "content": start}], continue_final_message=True) == prompt
        for path, more, of_message in ways:
            body = {"model": model, "temperature": 0, "return_token_ids": True, "messages": [*messages, {"role": "assistant", "content": start, **of_message}], **more}
            if path == "/v1/messages" and messages[0] is system:
                body |= {"system": system["content"], "messages": body["messages"][1:]}
            status, said = post(parley, path, body)
            own = said["choices"][0]["token_ids"] if "choices" in said else said.get("token_ids")
            assert status == 200 and said["prompt_token_ids"] == prompt and own == reply, (path, said, prompt, reply)
            if path == "/v1/messages":
                assert post(parley, "/v1/messages/count_tokens", {name: value for name, value in body.items() if name != "max_tokens"})[1]["input_tokens"] == len(prompt)
    # Without the field a chat has a further message of the assistant's, as OpenAI's; calls behind a beginning are calls.
    asked = {"model": "hermes", "messages": [*SAY, {"role": "assistant", "content": "Well. "}], "return_token_ids": True}
    assert post(parley, "/v1/chat/completions", {**asked, "max_tokens": 1})[1]["prompt_token_ids"] == ids_of(parley, "hermes", messages=asked["messages"])
    called = post(parley, "/v1/chat/completions", {**asked, "continue_final_message": True, "tools": TOOLS, **says(CALL)})[1]["choices"][0]
    assert called["finish_reason"] == "tool_calls" and called["message"]["tool_calls"] and not called["message"]["content"], called
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    for path, more, says_so in (("/v1/chat/completions", {"messages": SAY, "continue_final_message": True}, "continue_final_message"),
                                ("/v1/chat/completions", {"continue_final_message": True, "add_generation_prompt": True}, "add_generation_prompt"),
                                ("/v1/chat/completions", {"continue_final_message": 1}, "continue_final_message"), ("/tokenize", {"messages": SAY, "continue_final_message": True}, "continue_final_message"),
                                ("/v1/chat/completions", {"continue_final_message": True, "reasoning_effort": "low"}, "thoughts"), ("/api/chat", {"think": True}, "thoughts"),
                                ("/v1/chat/completions", {"continue_final_message": True, "messages": [*SAY, {"role": "assistant", "content": "", "tool_calls": calls}]}, "results"),
                                ("/v1/chat/completions", {"continue_final_message": True, "messages": [*SAY, {"role": "assistant", "content": "\n<think>\nHm"}]}, "ask for thoughts instead"),
                                ("/api/chat", {"model": "filled", "messages": [*SAY, {"role": "assistant", "content": ""}]}, "leaves an empty one out"),
                                ("/api/chat", {"model": "echo"}, "vocabulary"), ("/v1/messages", {"model": "echo", "max_tokens": 1}, "vocabulary")):
        status, said = post(parley, path, {**asked, **more})
        assert status == 400 and says_so in json.dumps(said), (path, more, status, said)
    request = urllib.request.Request(f"http://{parley.http}/v1/messages", json.dumps({**asked, "max_tokens": 1}).encode(), {"X-Conversation-Id": "begun"})
    try:
        urllib.request.urlopen(request, timeout=PATIENCE)
        raise AssertionError("a begun reply in a named conversation is taken")
    except urllib.error.HTTPError as error:
        assert error.code == 400 and b"conversation" in error.read()


def kept(parleyd, flags, folder):
    """A keyed raw prompt that a kill interrupts has the same ids afterwards: its rules are in the journal."""
    asked = {"model": "tiny", "prompt": "<|im_start|>user\nhello<|im_end|>\n", "max_tokens": 4, "ignore_eos": True, "seed": 9}
    data = ["--data", os.path.join(folder, "data")]

    def ask(parley, **more):
        request = urllib.request.Request(f"http://{parley.http}/v1/completions", json.dumps({**asked, **more}).encode(), {"Idempotency-Key": "raw-1"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read())

    daemon = harness.Parleyd(parleyd, *flags, *data, "--http", "127.0.0.1:0")
    with daemon as parley:
        first = ask(parley)
    with harness.Parleyd(parleyd, *flags, *data, "--http", "127.0.0.1:0") as parley:
        assert ask(parley) == first
        try:
            ask(parley, parse_special=False)
            raise AssertionError("the key's request is another one")
        except urllib.error.HTTPError as error:
            assert error.code == 422


def said_by(parley, path, body):
    """The last object of a stream of any API that has ids of the whole reply."""
    request = urllib.request.Request(f"http://{parley.http}{path}", json.dumps({**body, "stream": True}).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        lines = [line.removeprefix("data: ") for line in answer.read().decode().splitlines() if line.startswith(("data: {", "{"))]
    told = [json.loads(line) for line in lines]
    told = [event.get("response", event) if path == "/v1/responses" else event for event in told]
    having = [event for event in told if "token_ids" in event]
    assert len(having) == 1, told
    return having[0]


def ids_elsewhere(parley):
    """Responses, Messages and Ollama's two return the same ids as chat completions, whole and in the last object of a stream."""
    tool = {"name": TOOLS[0]["function"]["name"], "input_schema": TOOLS[0]["function"]["parameters"]}
    apis = (("/v1/responses", {"input": SAY, "tools": [{"type": "function", **TOOLS[0]["function"]}]}), ("/v1/messages", {"messages": SAY, "max_tokens": 1000, "tools": [tool]}),
            ("/api/chat", {"messages": SAY, "tools": TOOLS[:1]}))
    for text in ("Yes.", CALL, f"<think>\nHm.\n</think>\n\n{CALL}"):
        common = {"model": "hermes", "return_token_ids": True, **says(text)}
        _, chat = post(parley, "/v1/chat/completions", {**common, "messages": SAY, "tools": TOOLS[:1]})
        wanted = chat["prompt_token_ids"], chat["choices"][0]["token_ids"]
        for path, body in apis:
            status, reply = post(parley, path, {"stream": False, **common, **body})
            assert status == 200 and reply["token_ids"][:-1] == wanted[1][:-1], (path, reply, wanted)
            streamed = said_by(parley, path, {**common, **body})
            assert streamed["prompt_token_ids"] == reply["prompt_token_ids"] and streamed["token_ids"][:-1] == wanted[1][:-1], (path, streamed)
            if path != "/v1/messages":  # whose tool has no description, and so another prompt
                assert reply["prompt_token_ids"] == wanted[0], path
            status, reply = post(parley, path, {"stream": False, "model": "hermes", **says(text), **body})
            assert status == 200 and not {"token_ids", "prompt_token_ids", "context"} & set(reply), reply
            status, reply = post(parley, path, {**common, **body, "return_token_ids": 1})
            assert status == 400 and "return_token_ids" in json.dumps(reply), reply


def contexts(parley):
    """Ollama's context: the ids of what was said, behind which a prompt goes on as if it were one chat, whatever ended the reply."""
    client = ollama.Client(host=f"http://{parley.http}", timeout=PATIENCE)
    for text in ("Yes.", "Maybe"):
        first = post(parley, "/api/generate", {"model": "hermes", "prompt": SAY[0]["content"], "stream": False, **says(text)})[1]
        assert first["context"][:first["prompt_eval_count"]] == ids_of(parley, "hermes", messages=SAY) and first["context"][first["prompt_eval_count"]:] == ids_of(parley, "hermes", prompt=text)
        history = [*SAY, {"role": "assistant", "content": text}, {"role": "user", "content": "and now?"}]
        body = {"model": "hermes", "prompt": "and now?", "context": first["context"], "return_token_ids": True, "options": {"num_predict": 3, "seed": 1}}  # any seed whose reply does not end by itself
        for context in (first["context"], first["context"] + ids_of(parley, "hermes", prompt="<|im_end|>")):  # with or without what ended the reply
            status, second = post(parley, "/api/generate", {**body, "context": context, "stream": False})
            assert status == 200 and second["prompt_token_ids"] == ids_of(parley, "hermes", messages=history), second
            assert second["context"] == second["prompt_token_ids"] + second["token_ids"]
        assert said_by(parley, "/api/generate", body)["prompt_token_ids"] == second["prompt_token_ids"]
    second = client.generate("hermes", "and now?", context=first["context"], options={"num_predict": 3})
    assert list(second.context[:len(first["context"])]) == first["context"]
    third = client.generate("hermes", "and then?", context=second.context, system="Be brief.", options={"num_predict": 3})
    shown = post(parley, "/detokenize", {"model": "hermes", "tokens": third.context})[1]["prompt"]
    assert shown.startswith("<|im_start|>user\nhello there<|im_end|>\n") and "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nand then?<|im_end|>\n" in shown, shown
    assert client.generate("hermes", "a", context=[], options={"num_predict": 1}).context
    for body, word in (({"context": [10 ** 9]}, "10"), ({"context": [-1]}, "-1"), ({"context": "x"}, "context"), ({"context": ["x"]}, "context"), ({"context": [1.5]}, "context"),
                       ({"context": [1], "raw": True}, "context"), ({"context": [1] * 20000}, ""), ({"context": [1], "model": "echo"}, "context")):
        status, reply = post(parley, "/api/generate", {"model": "hermes", "prompt": "x", "options": {"num_predict": 1}, "stream": False, **body})
        assert status == 400 and word in reply["error"], (body if len(str(body)) < 100 else "long", status, reply)
    raw = post(parley, "/api/generate", {"model": "hermes", "prompt": "x", "raw": True, "stream": False, "options": {"num_predict": 1}})[1]
    assert "context" not in raw, raw
    request = urllib.request.Request(f"http://{parley.http}/api/generate", json.dumps({"model": "hermes", "prompt": "x", "stream": False, "options": {"num_predict": 1}}).encode(), {"Idempotency-Key": "contexts"})
    assert "context" not in json.loads(urllib.request.urlopen(request, timeout=PATIENCE).read())


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    only = sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        def path(name):
            return os.path.join(folder, name)

        with open(path("hermes.jinja"), "w", encoding="utf-8") as f:
            f.write(HERMES)
        children.run([write_tiny_model, path("tiny.gguf")], check=True)
        children.run([write_tiny_model, path("bos.gguf"), "add_bos"], check=True)
        children.run([write_tiny_model, path("gap.gguf"), "8192", "1", path("hermes.jinja"), *GAP], check=True)
        children.run([write_tiny_model, path("files.gguf"), "8192", "1", path("hermes.jinja"), *GAP, *FILES], check=True)
        children.run([write_tiny_model, path("hermes.gguf"), "8192", "1", path("hermes.jinja")], check=True)
        with open(path("filled.jinja"), "w", encoding="utf-8") as f:
            f.write(FILLED)
        children.run([write_tiny_model, path("filled.gguf"), "8192", "1", path("filled.jinja")], check=True)
        flags = [flag for name in ("tiny", "bos", "gap", "files", "hermes", "filled") for flag in ("--model", f"{name}={path(name + '.gguf')}")]
        with harness.Parleyd(parleyd, *flags, "--http", "127.0.0.1:0") as parley:
            for test in (control_tokens, beginnings, gaps, infills, pieces, reply_ids, ids_elsewhere, contexts, chats_by_ids, begun):
                if not only or test.__name__ in only:
                    start = time.monotonic()
                    test(parley)
                    print(f"{test.__name__}: good, {time.monotonic() - start:.2f} s", flush=True)
        if not only or "kept" in only:
            kept(parleyd, flags, folder)
            print("kept: good", flush=True)


if __name__ == "__main__":
    main()
