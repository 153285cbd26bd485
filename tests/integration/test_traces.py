#!/usr/bin/env python3
"""What coding agents send, recorded (tests/bench/coding_agents.sh), is sent again: every request is answered, the official packages read every event,
calls come back as the agents' own, and the prefix cache finds the turns before. Beside it, what the recordings lack: calls of tools that are no
functions in their own forms, a context that is full in each API's words, and bounds of replies and reasoning.

usage: test_traces.py PARLEYD WRITE_TINY_MODEL SCRIPTED_AGENT [--whole] [TEST]…     (run by the interpreter that has the clients; see venv.sh)

--whole: the prefix cache with the prompts as they are; else long texts of the programs are cut.
"""
import json
import lzma
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request

import anthropic.types.beta
import openai.types.chat
import openai.types.responses
import pydantic

import children
import harness
from children import PATIENCE
from test_tools import HERMES, SWITCH

TRACES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../bench/traces")
WORDS_KEPT, TOOLS_KEPT = 300, 3  # characters of a program's own text, and tools, where prompts are cut
CHECKS = {"/v1/messages": anthropic.types.beta.BetaRawMessageStreamEvent, "/v1/responses": openai.types.responses.ResponseStreamEvent,
          "/v1/chat/completions": openai.types.chat.ChatCompletionChunk}
# As of families whose templates refuse what most take.
STRICT = HERMES.replace("{% for message in messages %}", "{% for message in messages %}{% if message.role == 'system' and not loop.first %}"
                        "{{ raise_exception('System message must be at the beginning.') }}{% elif message.role == 'user' and not loop.first and "
                        "messages[loop.index0 - 1].role in ('user', 'tool') %}{{ raise_exception('roles must alternate') }}{% endif %}")
SAY = [{"role": "user", "content": "hello there"}]


def recorded(name):
    with lzma.open(os.path.join(TRACES, f"{name}.jsonl.xz"), "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def post(http, path, body, **headers):
    request = urllib.request.Request(f"http://{http}{path}", json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


def answer(http, path, body, **headers):
    status, _, said = post(http, path, body, **headers)
    assert status == 200, (status, said)
    return json.loads(said)


def events_of(said):
    data = [line.removeprefix("data: ") for line in said.splitlines() if line.startswith("data: ")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def told_in(path, events):
    """The text and the calls that a stream of events has."""
    text, calls = "", []
    for e in events:
        if path == "/v1/chat/completions":
            for choice in e["choices"]:
                text += choice["delta"].get("content") or ""
                for c in choice["delta"].get("tool_calls", []):
                    if "id" in c:
                        calls.append([c["function"]["name"], ""])
                    calls[-1][1] += c["function"]["arguments"]
        elif path == "/v1/responses":
            text += e["delta"] if e["type"] == "response.output_text.delta" else ""
            if e["type"] == "response.output_item.done" and e["item"]["type"] == "function_call":
                calls.append([e["item"]["name"], e["item"]["arguments"]])
        else:
            if e["type"] == "content_block_start" and e["content_block"]["type"] == "tool_use":
                calls.append([e["content_block"]["name"], ""])
            if e["type"] == "content_block_delta":
                text += e["delta"].get("text", "")
                if calls:
                    calls[-1][1] += e["delta"].get("partial_json", "")
    return text, [(name, json.loads(arguments)) for name, arguments in calls]


def said_next(trace, i):
    """What the agent had been told by request i, as its next request of the session has it; None: there is none."""
    if i + 1 == len(trace) or trace[i + 1]["session"] != trace[i]["session"]:
        return None
    new = [trace[i + 1]["body"].get(key, []) for key in ("input", "messages")]
    old = [trace[i]["body"].get(key, []) for key in ("input", "messages")]
    for n, o in zip(new, old):
        for item in n[len(o):]:
            if item.get("type") == "function_call":
                return "", [(item["name"], json.loads(item["arguments"]))]
            if item.get("role") == "assistant" and item.get("tool_calls"):
                return "", [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in item["tool_calls"]]
            if item.get("role") == "assistant" and isinstance(item["content"], list):
                return "", [(b["name"], b["input"]) for b in item["content"] if b["type"] == "tool_use"]
    return None


def as_reply(told):
    """A reply in the format of Hermes' models."""
    text, calls = told
    return text + "\n".join(f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>" for name, arguments in calls)


class Scripted:
    """with Scripted(…) as http: a daemon whose model says these replies, one after another."""

    def __init__(self, parleyd, plugin, replies, *flags):
        self.script = tempfile.NamedTemporaryFile("w", suffix=".script", encoding="utf-8")
        self.script.write("\n----\n".join(replies))
        self.script.flush()
        os.environ["PARLEY_SCRIPT"] = self.script.name
        self.daemon = children.Daemon(parleyd, "--plugin", f"scripted={plugin}", "--http", "127.0.0.1:0", *flags)

    def __enter__(self):
        return self.daemon.__enter__().http

    def __exit__(self, kind, value, trace):
        self.daemon.__exit__(kind, value, trace)
        self.script.close()


def replayed(parleyd, plugin):
    """Every recorded request: its stream is read event by event by the official package's types, and tells what the agent had been told."""
    for name, at_least in (("codex", 47), ("claude", 47), ("aider", 1), ("openai-agents", 4)):
        trace = recorded(name)
        adapters = {path: pydantic.TypeAdapter(kind) for path, kind in CHECKS.items()}
        assert len(trace) >= at_least, (name, len(trace))
        n_checked = 0
        for session in sorted({one["session"] for one in trace}):
            own = [one for one in trace if one["session"] == session]
            wanted = [said_next(own, i) for i in range(len(own))]
            with Scripted(parleyd, plugin, [as_reply(w) if w else "Done." for w in wanted]) as http:
                for i, one in enumerate(own[::children.STRIDE]):
                    path = one["path"].partition("?")[0]
                    status, headers, said = post(http, one["path"], one["body"], **one["headers"])
                    assert status == 200, (name, i, said[:500])
                    if not one["body"].get("stream"):  # aider's request for a title of its commit
                        openai.types.chat.ChatCompletion.model_validate_json(said)
                        continue
                    events = [e for e in events_of(said) if e.get("type") != "ping"]  # which the package takes, but has no type for
                    for event in events:
                        adapters[path].validate_python(event)
                    if wanted[i * children.STRIDE] and name in ("codex", "claude"):
                        assert told_in(path, events) == wanted[i * children.STRIDE], (name, i, events)
                        n_checked += 1
                    left_out = headers.get("X-Parley-Unenforced", "")
                    assert ("web_search" in left_out) == (name == "codex"), (name, left_out)
        assert n_checked >= (at_least - 3) // children.STRIDE - 2 or name in ("aider", "openai-agents"), (name, n_checked)


def cut(value, key=""):
    """The body with the program's own long texts cut."""
    if isinstance(value, dict):
        said = "system " if value.get("role") == "system" else ""  # the same text, as blocks and not
        return {k: cut(v[:TOOLS_KEPT] if k == "tools" else v, said + k) for k, v in value.items()}
    if isinstance(value, list):
        return [cut(one, key) for one in value]
    return value[:WORDS_KEPT] if isinstance(value, str) and key in ("text", "description", "instructions", "system content") else value


def usage_of(reply):
    """Tokens of the prompt, and those of them that were found."""
    u = reply["usage"]
    if "cache_read_input_tokens" in u:
        return u["input_tokens"] + u["cache_read_input_tokens"], u["cache_read_input_tokens"]
    return u["input_tokens"], u["input_tokens_details"]["cached_tokens"]


def prefixes(parleyd, model, whole):
    """Each turn finds at least 0.95 of the prompt before it, in a second session too. So does that session's first, whose task, commits and time differ."""
    for name, most in (("codex", "max_output_tokens"), ("claude", "max_tokens")):
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--http", "127.0.0.1:0") as daemon:
            before, session, shares, begins = 0, 0, [], []
            for one in recorded(name):
                body = one["body"] if whole else cut(one["body"])
                # Of what is asked for, one token; the model has no thoughts to be asked for.
                body = {k: v for k, v in body.items() if k not in ("thinking", "output_config", "reasoning")}
                reply = answer(daemon.http, one["path"], {**body, "model": "tiny", "stream": False, most: 1}, **one["headers"])
                n_prompt, n_found = usage_of(reply)
                if one["session"] != session or before == 0:
                    session = one["session"]
                    begins.append(n_found / n_prompt)
                else:
                    shares.append(n_found / before)
                before = n_prompt
        assert len(shares) >= 40 and min(shares) >= 0.95, (name, min(shares), shares)
        assert len(begins) == 2 and begins[0] == 0 and begins[1] >= 0.95, (name, begins)
        print(f"{name}: of the prompt before at least {min(shares):.4f} is found, of the second session's first prompt {begins[1]:.3f}", flush=True)


def billing(http):
    """Claude Code's line at the head of system, whatever it says, is no part of the prompt."""
    def count(*first):
        return answer(http, "/v1/messages/count_tokens", {"model": "tiny", "system": [*first, {"type": "text", "text": "Be brief."}], "messages": SAY})["input_tokens"]

    def note(text):
        return {"type": "text", "text": f"x-anthropic-billing-header: {text}"}

    assert count() == count(note("cc_version=2.1.332.73b; cc_entrypoint=sdk-cli;")) == count(note("cch=00000;" * 50)) < count({"type": "text", "text": "Another line."})
    said = [{"model": "tiny", "max_tokens": 4, "temperature": 0, "system": [note(f"cch={i}"), {"type": "text", "text": "Be brief. " * 20}], "messages": SAY} for i in range(2)]
    first, second = (answer(http, "/v1/messages", body) for body in said)
    assert first["content"] == second["content"] and second["usage"]["cache_read_input_tokens"] > 100, second


def early(http):
    """System messages before the first reply are of the system prompt, wherever they stand; later ones stay."""
    def prompt(system, *messages):
        said = {"model": "tiny", "max_tokens": 1, "temperature": 0, "messages": [{"role": role, "content": text} for role, text in messages]}
        return answer(http, "/v1/messages", {**said, "return_token_ids": True, **({} if system is None else {"system": system})})["prompt_token_ids"]

    wanted = prompt("Be brief.\n\nBe kind.\n\nBe glad.", ("user", "hello"), ("user", "there"))
    assert wanted == prompt("Be brief.", ("user", "hello"), ("system", "Be kind."), ("user", "there"), ("system", [{"type": "text", "text": "Be glad."}]))
    assert wanted == prompt(None, ("system", "Be brief."), ("system", "Be kind."), ("user", "hello"), ("user", "there"), ("system", "Be glad."))
    talk = ("user", "hello"), ("assistant", "Yes."), ("user", "there")
    late = prompt("Be brief.", *talk, ("system", "Be kind."))
    plain = prompt("Be brief.", *talk)
    same = next(i for i, (one, other) in enumerate(zip(late, plain)) if one != other)
    assert len(late) > len(plain) and same >= len(plain) - len("<|im_start|>assistant\n"), (same, plain, late)


def nothing(http):
    """An empty text is refused by the name that the client gave it."""
    empty = [{"role": "user", "content": ""}]
    for path, body, field in (("/v1/chat/completions", {"messages": empty}, "messages[0].content"), ("/v1/responses", {"input": ""}, "input"),
                              ("/v1/chat/completions", {"messages": empty, "max_completion_tokens": 2}, "messages[0].content"),
                              ("/v1/messages", {"messages": empty, "max_tokens": 2}, "messages[0].content"), ("/api/chat", {"messages": empty}, "messages[0].content")):
        status, _, said = post(http, path, {"model": "tiny", "stream": False, **body})
        assert status == 400 and f"{field} is empty" in said and "messages[0].text" not in said, (path, status, said)


def strict(http):
    """What each agent sends is read by templates that take one system message, at the head, and roles that alternate."""
    for name in ("codex", "claude", "aider", "openai-agents"):
        for one in {one["path"]: one for one in recorded(name)}.values():
            body = {k: v[:1] if k == "tools" else v for k, v in cut(one["body"]).items() if k not in ("thinking", "output_config", "reasoning")}
            most = "max_output_tokens" if one["path"].endswith("responses") else "max_tokens"
            status, _, said = post(http, one["path"], {**body, "model": "strict", "stream": False, most: 1}, **one["headers"])
            assert status == 200, (name, said[:500])


def full(http):
    """A context that is full, in each API's words: each agent's compaction begins at them."""
    long = "word " * 4000  # 20,000 tokens of this model
    messages = [{"role": "user", "content": long}]
    for path, body, wanted in (
            ("/v1/messages", {"max_tokens": 5, "messages": messages}, lambda e: e["type"] == "error" and e["error"]["type"] == "invalid_request_error" and
                e["error"]["message"].startswith("prompt is too long: 20") and e["error"]["message"].endswith(" tokens > 8192 maximum")),
            ("/v1/chat/completions", {"messages": messages}, lambda e: e["error"]["code"] == "context_length_exceeded" and e["error"]["param"] == "messages"),
            ("/v1/responses", {"input": long}, lambda e: e["error"]["code"] == "context_length_exceeded" and e["error"]["param"] == "input"),
            ("/v1/completions", {"prompt": long}, lambda e: e["error"]["code"] == "context_length_exceeded" and e["error"]["param"] == "prompt"),
            ("/api/chat", {"messages": messages}, lambda e: "8192" in e["error"]), ("/api/generate", {"prompt": long}, lambda e: "8192" in e["error"])):
        for stream in (False, True):
            status, _, said = post(http, path, {"model": "tiny", "stream": stream, **body})
            if stream and path == "/v1/responses":  # OpenAI's own form, for which Codex looks
                last = events_of(said)[-1]
                assert last["type"] == "response.failed" and last["response"]["error"]["code"] == "context_length_exceeded", said
                continue
            assert status == 400 and wanted(json.loads(said)), (path, status, said)
    # The front of a history is dropped where the request says so.
    talk = [{"role": "user", "content": long}, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And now?"}]
    reply = answer(http, "/v1/responses", {"model": "tiny", "input": talk, "truncation": "auto", "max_output_tokens": 2})
    assert reply["truncation"] == "auto" and reply["usage"]["input_tokens"] < 200, reply


OWN_TOOLS = {
    "namespace": ({"type": "namespace", "name": "crew", "description": "Helpers.", "tools": [{"type": "function", "name": "start", "parameters": {"type": "object", "properties": {"task": {"type": "string"}}}}]},
                  ("crew/start", {"task": "look"}), {"type": "function_call", "name": "start", "namespace": "crew", "arguments": '{"task": "look"}'}),
    "custom": ({"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
               ("apply_patch", {"input": "*** Begin Patch\n+Elbe\n*** End Patch"}), {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch\n+Elbe\n*** End Patch"}),
    "local_shell": ({"type": "local_shell"}, ("local_shell", {"command": ["ls", "-l"]}), {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls", "-l"], "env": {}}}),
    "shell": ({"type": "shell", "environment": {"type": "local"}}, ("shell", {"commands": ["ls"], "timeout_ms": 500}), {"type": "shell_call", "action": {"commands": ["ls"], "timeout_ms": 500}}),
    "apply_patch": ({"type": "apply_patch"}, ("apply_patch", {"type": "create_file", "path": "a"}), {"type": "apply_patch_call", "operation": {"type": "create_file", "path": "a", "diff": ""}}),
}
RESULTS = {
    "namespace": {"type": "function_call_output", "output": "good"}, "custom": {"type": "custom_tool_call_output", "output": "good"},
    "local_shell": {"type": "local_shell_call_output", "output": "good"}, "apply_patch": {"type": "apply_patch_call_output", "status": "completed"},
    "shell": {"type": "shell_call_output", "output": [{"stdout": "good", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
}


def own_items(parleyd, plugin):
    """Calls of a namespace's functions, of custom tools and of the shell are items of their own types, streamed and whole, and are read back."""
    adapter = pydantic.TypeAdapter(openai.types.responses.ResponseStreamEvent)
    for kind, (tool, called, wanted) in OWN_TOOLS.items():
        with Scripted(parleyd, plugin, [as_reply(("", [called])), "Done."]) as http:
            body = {"model": "scripted", "input": "Go on.", "tools": [tool, {"type": "web_search"}], "store": False}
            whole = answer(http, "/v1/responses", body)
            items = [i for i in whole["output"] if i["type"] != "message"]
            events = events_of(post(http, "/v1/responses", {**body, "stream": True})[2])
            for event in events:
                adapter.validate_python(event)
            streamed = [e["item"] for e in events if e["type"] == "response.output_item.done" and e["item"]["type"] != "message"]
            for got in (items, streamed):
                assert len(got) == 1 and {k: got[0].get(k) for k in wanted} == wanted, (kind, got)
            # The agent sends the call back with its result, and the next reply comes.
            history = [{"role": "user", "content": "Go on."}, *items, {**RESULTS[kind], "call_id": items[0]["call_id"], "id": "out_1"}]
            then = answer(http, "/v1/responses", {**body, "input": history})
            assert [c["text"] for i in then["output"] if i["type"] == "message" for c in i["content"]] == ["Done."], then
    for tool, called in (({"type": "bash_20250124", "name": "bash"}, ("bash", {"command": "ls"})),
                         ({"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, ("str_replace_based_edit_tool", {"command": "view", "path": "/a"})),
                         ({"type": "memory_20250818", "name": "memory"}, ("memory", {"command": "view", "path": "/memories"}))):
        with Scripted(parleyd, plugin, [as_reply(("", [called])), "Done."]) as http:
            body = {"model": "scripted", "max_tokens": 100, "tools": [tool, {"type": "web_search_20250305", "name": "web_search"}], "messages": SAY}
            status, headers, said = post(http, "/v1/messages", body)
            use = [b for b in json.loads(said)["content"] if b["type"] == "tool_use"]
            assert status == 200 and [(u["name"], u["input"]) for u in use] == [called] and "web_search" in headers["X-Parley-Unenforced"], said
            history = [*SAY, {"role": "assistant", "content": use}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use[0]["id"], "content": "good"}]}]
            assert answer(http, "/v1/messages", {**body, "messages": history})["content"][0]["text"] == "Done."


def lengths(parleyd, model, other):
    """--max-reply bounds replies that ask for nothing, of its model alone; -1 is the rest of the context, and a number is that number."""
    with children.Daemon(parleyd, "--model", f"tiny={model}", "--model", f"other={other}", "--max-reply", "tiny=7", "--http", "127.0.0.1:0") as daemon:
        def count(path, name, **body):
            reply = answer(daemon.http, path, {"model": name, "stream": False, "ignore_eos": True, **body})
            if path.startswith("/api"):
                return reply["eval_count"]
            return reply["usage"].get("completion_tokens", reply["usage"].get("output_tokens"))

        for path, body, field in (("/v1/chat/completions", {"messages": SAY}, "max_tokens"), ("/v1/chat/completions", {"messages": SAY}, "max_completion_tokens"),
                                  ("/v1/responses", {"input": "hello there"}, "max_output_tokens")):
            assert count(path, "tiny", **body) == 7 == count(path, "tiny", **body, **{field: None})
            assert count(path, "tiny", **body, **{field: 9}) == count(path, "tiny", **body, **{field: 9.0}) == count(path, "other", **body, **{field: 9}) == 9
            assert 100 < count(path, "other", **body) == count(path, "tiny", **body, **{field: -1}) <= 256
        for options, n in (({}, 7), ({"num_predict": 9}, 9), ({"num_predict": 3.0}, 3)):
            assert count("/api/chat", "tiny", messages=SAY, options={**options, "ignore_eos": True}) == n
        assert 100 < count("/api/chat", "tiny", messages=SAY, options={"num_predict": -1, "ignore_eos": True}) == \
            count("/api/generate", "tiny", prompt="hello there", options={"num_predict": -2, "ignore_eos": True}) == \
            count("/api/chat", "tiny", messages=SAY, options={"num_predict": 0, "ignore_eos": True})
        assert count("/v1/completions", "tiny", prompt="hello") == 16  # as OpenAI's API says


def thoughts(http):
    """A budget of reasoning holds in each API: at its end the delimiter is written, and the reply goes on. Without one the thoughts have no end."""
    base = {"model": "switch", "temperature": 0, "ignore_eos": True}
    chat = {**base, "messages": SAY, "max_tokens": 60}
    free = answer(http, "/v1/chat/completions", chat)
    assert free["usage"]["completion_tokens_details"]["reasoning_tokens"] > 30 and free["choices"][0]["message"]["content"] == "", free
    for asked in ({"reasoning": {"max_tokens": 10}}, {"thinking_budget": 10}, {"chat_template_kwargs": {"thinking_budget": 10}}):
        reply = answer(http, "/v1/chat/completions", {**chat, **asked})
        usage, message = reply["usage"], reply["choices"][0]["message"]
        assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] <= 10 and message["content"] and message["reasoning_content"], (asked, reply)
    reply = answer(http, "/v1/responses", {**base, "input": "hello there", "max_output_tokens": 60, "reasoning": {"max_tokens": 10}})
    assert 0 < reply["usage"]["output_tokens_details"]["reasoning_tokens"] <= 10 and [i["type"] for i in reply["output"]] == ["reasoning", "message"], reply
    reply = answer(http, "/v1/messages", {**base, "messages": SAY, "max_tokens": 60, "thinking": {"type": "enabled", "budget_tokens": 10}})
    assert [b["type"] for b in reply["content"]] == ["thinking", "text"] and reply["content"][1]["text"], reply
    efforts = [answer(http, "/v1/chat/completions", {**chat, "max_tokens": 400, "reasoning_effort": e})["usage"]["completion_tokens_details"]["reasoning_tokens"] for e in ("low", "medium", "high")]
    assert 0 < efforts[0] <= efforts[1] <= efforts[2] < 400 and efforts[0] < efforts[2], efforts


def main():
    parleyd, write_tiny_model, plugin = sys.argv[1:4]
    whole, only = "--whole" in sys.argv, [one for one in sys.argv[4:] if one != "--whole"]
    with tempfile.TemporaryDirectory() as folder:
        def model(name, template, context):
            at, text = os.path.join(folder, f"{name}.gguf"), os.path.join(folder, f"{name}.jinja")
            with open(text, "w", encoding="utf-8") as f:
                f.write(template)
            children.run([write_tiny_model, at, context, "1", text], check=True)
            return at

        def run(test, *args):
            if not only or test.__name__ in only:
                start = time.monotonic()
                test(*args)
                print(f"{test.__name__}: good, {time.monotonic() - start:.2f} s", flush=True)

        run(replayed, parleyd, plugin)
        run(own_items, parleyd, plugin)
        if children.STRIDE == 1:  # the prompts are long for a daemon that is watched
            run(prefixes, parleyd, model("long", HERMES, "131072"), whole)
        short = model("short", HERMES, "256")
        run(lengths, parleyd, short, short)
        with harness.Parleyd(parleyd, "--model", f"tiny={model('tiny', HERMES, '8192')}", "--model", f"switch={model('switch', SWITCH, '8192')}",
                             "--model", f"strict={model('strict', STRICT, '32768')}", "--http", "127.0.0.1:0") as parley:
            for test in (billing, early, nothing, strict, full, thoughts):
                run(test, parley.http)


if __name__ == "__main__":
    main()
