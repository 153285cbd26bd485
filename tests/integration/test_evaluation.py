#!/usr/bin/env python3
"""What programs that evaluate models need of /v1/completions: echo with log-probabilities, max_tokens 0, prompt_logprobs, and what
they ask before; by the unmodified `openai` client and by bare HTTP. The numbers are held against those of generated tokens.

usage: test_evaluation.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has the clients; see venv.sh)
"""
import json
import os
import sys
import tempfile
import urllib.error
import urllib.request

import openai

import children
import harness
from children import PATIENCE

DOCUMENT = "no, in a hello the hell. " * 6
ENDINGS = ["hello", " the", "no, in", "a hell of a"]


def client_of(parley):
    return openai.OpenAI(base_url=f"http://{parley.http}/v1", api_key="any", timeout=PATIENCE, max_retries=0)


def post(parley, path, body):
    request = urllib.request.Request(f"http://{parley.http}{path}", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        return json.load(error)["error"]


def tokens(parley, text):
    return post(parley, "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]


def complete(parley, prompt, **more):
    return client_of(parley).completions.create(model="tiny", prompt=prompt, **more)


def echo(parley):
    """All four lists have the prompt's tokens and the reply's; what is generated is the same as without echo."""
    ids = tokens(parley, DOCUMENT + ENDINGS[0])
    plain = complete(parley, ids, max_tokens=3, temperature=0, logprobs=2).choices[0]
    got = complete(parley, ids, max_tokens=3, temperature=0, logprobs=2, echo=True)
    choice, p = got.choices[0], got.choices[0].logprobs
    n = len(ids)
    assert choice.text == DOCUMENT + ENDINGS[0] + plain.text and choice.finish_reason == plain.finish_reason
    assert len(p.tokens) == len(p.token_logprobs) == len(p.top_logprobs) == len(p.text_offset) == n + len(plain.logprobs.tokens)
    assert p.token_logprobs[0] is None and p.top_logprobs[0] is None and all(x <= 0 for x in p.token_logprobs[1:])
    assert "".join(p.tokens[:n]) == DOCUMENT + ENDINGS[0]
    assert p.text_offset[:n] == [len("".join(p.tokens[:i])) for i in range(n)]
    assert p.tokens[n:] == plain.logprobs.tokens and p.token_logprobs[n:] == plain.logprobs.token_logprobs
    assert p.text_offset[n:] == [o + len(DOCUMENT + ENDINGS[0]) for o in plain.logprobs.text_offset]
    for token, logprob, top in list(zip(p.tokens, p.token_logprobs, p.top_logprobs))[1:]:
        assert top[token] == logprob and len(top) in (2, 3) and (logprob == max(top.values()) or len(top) == 3 or logprob == min(top.values()))
    assert got.usage.prompt_tokens == n and got.usage.completion_tokens == len(plain.logprobs.tokens)
    text = complete(parley, DOCUMENT, max_tokens=1, echo=True, temperature=0)
    assert text.choices[0].text.startswith(DOCUMENT) and text.choices[0].logprobs is None
    many = complete(parley, [DOCUMENT, "a"], max_tokens=2, n=2, echo=True, logprobs=0, seed=3)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    assert [c.text.startswith(t) for c, t in zip(many.choices, [DOCUMENT] * 2 + ["a"] * 2)] == [True] * 4
    assert many.choices[0].logprobs.token_logprobs[1:20] == many.choices[1].logprobs.token_logprobs[1:20]


def as_generated(parley):
    """A prompt's token has the log-probability that it had when it was generated."""
    ids = tokens(parley, DOCUMENT)
    said = complete(parley, ids, max_tokens=12, seed=4, temperature=1, logprobs=1, extra_body={"ignore_eos": True}).choices[0]
    texts = [bytes(t[6:], "ascii").decode("unicode_escape").encode("latin-1") if t.startswith("bytes:") else t.encode()
             for t in said.logprobs.tokens]
    again = {t: i for t, i in ((bytes_of(parley, i), i) for i in range(267))}
    whole = complete(parley, ids + [again[t] for t in texts], max_tokens=0, echo=True, logprobs=1)
    p = whole.choices[0].logprobs
    assert len(p.tokens) == len(ids) + 12 and whole.usage.completion_tokens == 0 and whole.choices[0].finish_reason == "length"
    assert p.token_logprobs[len(ids):] == said.logprobs.token_logprobs


def bytes_of(parley, i):
    """A token's bytes, by the log-probabilities' own spelling."""
    if i not in bytes_of.known:
        p = post(parley, "/v1/completions", {"model": "tiny", "prompt": [[k] for k in range(128)], "max_tokens": 0, "echo": True, "logprobs": 0})
        for first in range(0, 267, 128):
            p = post(parley, "/v1/completions", {"model": "tiny", "prompt": [[k] for k in range(first, min(267, first + 128))],
                                                 "max_tokens": 0, "echo": True, "logprobs": 0})
            for choice in p["choices"]:
                t = choice["logprobs"]["tokens"][0]
                raw = bytes(t[6:], "ascii").decode("unicode_escape").encode("latin-1") if t.startswith("bytes:") else t.encode()
                bytes_of.known[first + choice["index"]] = raw
    return bytes_of.known[i]


bytes_of.known = {}


def streamed(parley):
    """The prompt is the first chunk; together the chunks are the whole."""
    for more in ({"logprobs": 1}, {}):
        whole = complete(parley, DOCUMENT, max_tokens=5, temperature=0, echo=True, **more).choices[0]
        chunks = [c.choices[0] for c in complete(parley, DOCUMENT, max_tokens=5, temperature=0, echo=True, stream=True, **more)]
        assert chunks[0].text == DOCUMENT and "".join(c.text for c in chunks) == whole.text
        if more:
            lists = [sum((getattr(c.logprobs, name) for c in chunks if c.logprobs), [])
                     for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")]
            assert lists == [whole.logprobs.tokens, whole.logprobs.token_logprobs, whole.logprobs.top_logprobs, whole.logprobs.text_offset]
    nothing = list(complete(parley, DOCUMENT, max_tokens=0, echo=True, stream=True))
    assert "".join(c.choices[0].text for c in nothing) == DOCUMENT and nothing[-1].choices[0].finish_reason == "length"


def prompt_logprobs(parley):
    """vLLM's list, beside echo's: the same numbers, with ranks; at the top level for chat."""
    ids = tokens(parley, DOCUMENT)
    got = complete(parley, ids, max_tokens=0, echo=True, logprobs=1, extra_body={"prompt_logprobs": 3}).choices[0]
    assert len(got.prompt_logprobs) == len(ids) and got.prompt_logprobs[0] is None
    for i, entry in list(enumerate(got.prompt_logprobs))[1:]:
        own = entry[str(ids[i])]
        assert own["logprob"] == got.logprobs.token_logprobs[i] and own["decoded_token"] == got.logprobs.tokens[i]
        assert len(entry) == 3 + (own["rank"] > 3) and {e["rank"] for e in entry.values()} == {1, 2, 3, own["rank"]}
        assert sorted(entry.values(), key=lambda e: e["rank"]) == sorted(entry.values(), key=lambda e: -e["logprob"])
    assert not hasattr(complete(parley, ids, max_tokens=1).choices[0], "prompt_logprobs")
    none = complete(parley, ids, max_tokens=1, extra_body={"prompt_logprobs": 0}).choices[0]
    assert [list(e) for e in none.prompt_logprobs[1:]] == [[str(i)] for i in ids[1:]] and none.text is not None
    story = [{"role": "user", "content": "Tell me."}]
    plain, chat = (client_of(parley).chat.completions.create(model="tiny", messages=story, max_tokens=6, seed=1, extra_body=more)
                   for more in ({}, {"prompt_logprobs": 1}))
    assert chat.choices[0].message.content == plain.choices[0].message.content
    assert len(chat.prompt_logprobs) == chat.usage.prompt_tokens == plain.usage.prompt_tokens
    rendered = post(parley, "/tokenize", {"messages": story})["tokens"]
    assert [str(i) in e for i, e in zip(rendered[1:], chat.prompt_logprobs[1:])] == [True] * (len(rendered) - 1)


def tokenizer(parley):
    """What lm_eval asks before: the end's text, and its id by /tokenize."""
    with urllib.request.urlopen(f"http://{parley.http}/tokenizer_info", timeout=PATIENCE) as reply:
        info = json.load(reply)
    assert info["eos_token"] == "<|im_end|>" and info["bos_token"] == "<|im_start|>" and info["pad_token"]
    assert "im_start" in info["chat_template"] and info["tokenizer_class"] and info["model_max_length"] == 2048
    assert tokens(parley, info["eos_token"]) == [2] and tokens(parley, info["bos_token"]) == [1]


def templates(parleyd, model, folder):
    """--chat-template in place of the file's: the file's own text gives the same replies and another version; a name, for one model; one
    that cannot be compiled is refused to chat alone; a start is refused where neither a name nor a file, or no model is meant."""
    flags = ["--model", f"tiny={model}", "--model", f"other={model}", "--http", "127.0.0.1:0"]
    path = os.path.join(folder, "own.jinja")

    def ask(parley, name):
        return post(parley, "/v1/chat/completions", {"model": name, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0})

    def shown(parley):  # the first model's
        with urllib.request.urlopen(f"http://{parley.http}/tokenizer_info", timeout=PATIENCE) as reply:
            return json.load(reply)["chat_template"]

    with harness.Parleyd(parleyd, *flags) as parley:
        own, said = shown(parley), ask(parley, "tiny")["choices"]
        version = {m.name: m.version for m in parley.models.List(harness.models.ModelsListRequest()).models}
    with open(path, "w") as file:
        file.write(own)
    with harness.Parleyd(parleyd, *flags, "--chat-template", f"tiny={path}", "--chat-template", "zephyr") as parley:
        assert ask(parley, "tiny")["choices"] == said and shown(parley) == own
        other = post(parley, "/tokenize", {"model": "other", "messages": [{"role": "user", "content": "a"}]})["tokens"]
        assert post(parley, "/detokenize", {"model": "other", "tokens": other})["prompt"] == "<|user|>\na<|im_end|>\n<|assistant|>\n"
        now = {m.name: m.version for m in parley.models.List(harness.models.ModelsListRequest()).models}
        assert now["tiny"] != version["tiny"] == version["other"] != now["other"] != now["tiny"]
    with open(path, "w") as file:
        file.write("{% if %}")
    with harness.Parleyd(parleyd, *flags, "--chat-template", path) as parley:
        assert "the model's chat template: line 1" in ask(parley, "tiny")["message"]
        assert complete(parley, "a", max_tokens=2).choices[0].finish_reason
    for value, says in [("nothing", "no file named 'nothing'"), ("tony=chatml", "'tony' is the name of no model"), ("tiny=", "takes [MODEL=]FILE"),
                        (path, "the model's chat template: line 1: an expression is missing")]:
        got = children.run([parleyd, *flags, "--check", "--chat-template", value], capture_output=True, text=True)
        assert got.returncode in (1, 2) and says in got.stderr and "--chat-template" in got.stderr, (value, got)


def scores(parley):
    """vLLM's /score: cosines of embeddings, one to one, one to many, many to many."""
    def vector(text):
        return post(parley, "/v1/embeddings", {"model": "tiny", "input": text})["data"][0]["embedding"]

    def cosine(a, b):
        return sum(x * y for x, y in zip(vector(a), vector(b)))

    for path in ("/v1/score", "/score"):
        one = post(parley, path, {"model": "tiny", "text_1": DOCUMENT, "text_2": ENDINGS[0]})
        assert one["object"] == "list" and one["model"] == "tiny" and one["id"].startswith("score-") and one["created"] > 1.6e9
        assert [list(d) for d in one["data"]] == [["index", "object", "score"]] and one["data"][0]["object"] == "score"
        assert abs(one["data"][0]["score"] - cosine(DOCUMENT, ENDINGS[0])) < 1e-6 and one["usage"]["total_tokens"] > 0
    many = post(parley, "/v1/score", {"text_1": [DOCUMENT], "text_2": ENDINGS})
    assert [d["index"] for d in many["data"]] == [0, 1, 2, 3] and many["data"][0]["score"] == one["data"][0]["score"]
    pairs = post(parley, "/v1/score", {"text_1": ENDINGS[::-1], "text_2": ENDINGS})
    assert abs(pairs["data"][1]["score"] - cosine(ENDINGS[2], ENDINGS[1])) < 1e-6 and len(pairs["data"]) == 4
    assert abs(post(parley, "/score", {"text_1": "a", "text_2": "a"})["data"][0]["score"] - 1) < 1e-6
    for param, says, body in [("text_2", "as many", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}), ("text_1", "is missing", {"text_2": "a"}),
                              ("text_2", "is empty", {"text_1": "a", "text_2": []}), ("model", "compute embeddings", {"model": "echo", "text_1": "a", "text_2": "b"}),
                              ("text_2", "at most 1024 are allowed", {"text_1": "a", "text_2": ["a"] * 1025})]:
        error = post(parley, "/v1/score", body)
        assert error["param"] == param and says in error["message"], (param, says, error)


def endings(parley):
    """Several endings of one document, in one request and in several: the document is computed once, and the numbers are those of each
    alone, and of the score path of `parley eval`, which a unit test holds against the prompt's."""
    document, rest = tokens(parley, DOCUMENT * 3), [tokens(parley, e) for e in ENDINGS]
    asked = {"max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0}
    got = complete(parley, [document + e for e in rest], **asked)
    n, shared = len(document), (len(document) // 16 - 1) * 16
    assert got.usage.prompt_tokens == sum(n + len(e) for e in rest)
    assert got.usage.prompt_tokens_details.cached_tokens >= 3 * shared > 0, got.usage
    for e, choice in zip(rest, got.choices):
        alone = complete(parley, document + e, **asked)
        assert alone.choices[0].logprobs.token_logprobs == choice.logprobs.token_logprobs and alone.choices[0].text == choice.text
        assert alone.choices[0].logprobs.top_logprobs == choice.logprobs.top_logprobs
        assert alone.usage.prompt_tokens_details.cached_tokens >= shared
    texts = complete(parley, [DOCUMENT * 2 + e for e in ENDINGS], max_tokens=0, echo=True, logprobs=1)
    assert [c.text for c in texts.choices] == [DOCUMENT * 2 + e for e in ENDINGS]
    assert texts.usage.prompt_tokens_details.cached_tokens > 3 * 100
    streamed_too = list(complete(parley, [DOCUMENT * 2 + e for e in ENDINGS], max_tokens=2, echo=True, logprobs=1, stream=True))
    assert {c.choices[0].index for c in streamed_too} == {0, 1, 2, 3}


def wrong(parley):
    for param, says, more in [("max_tokens", "needs echo", {"max_tokens": 0}), ("prompt_logprobs", "stream", {"prompt_logprobs": 1, "stream": True}),
                              ("prompt_logprobs", "20", {"prompt_logprobs": 21}), ("prompt", "maximum context length is 2048 tokens", {"prompt": [5] * 2049, "max_tokens": 0, "echo": True})]:
        error = post(parley, "/v1/completions", {"model": "tiny", "prompt": "a", "logprobs": 1, **more})
        assert error["param"] == param and says in error["message"], (param, says, error)
    error = post(parley, "/v1/completions", {"model": "echo", "prompt": "a", "echo": True, "logprobs": 1})
    assert "log-probabilities of prompts" in error["message"], error
    assert len(complete(parley, [5] * 2048, max_tokens=0, echo=True, logprobs=1).choices[0].logprobs.tokens) == 2048


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, tiny], check=True)
        with harness.Parleyd(parleyd, "--model", f"tiny={tiny}", "--http", "127.0.0.1:0") as parley:
            for test in [echo, as_generated, streamed, prompt_logprobs, tokenizer, scores, endings, wrong]:
                test(parley)
                print(f"{test.__name__}: good", flush=True)
        templates(parleyd, tiny, folder)
        print("templates: good", flush=True)


if __name__ == "__main__":
    main()
