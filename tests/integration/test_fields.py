#!/usr/bin/env python3
"""Every field that the official clients can send, and those of llama-server, vLLM and SGLang, on every API that makes replies: docs/fields.md says
of each whether it is read, refused, without effect, or named in X-Parley-Unenforced, and a daemon is asked whether that is so. A client's own types
say which fields it can send: one that has no row fails here, so that none passes in silence.

usage: test_fields.py PARLEYD WRITE_TINY_MODEL ROOT      (run by the interpreter that has the clients; see venv.sh)
"""
import http.client
import json
import os
import sys
import tempfile

import anthropic.types
import anthropic.types.beta
import ollama._types
import openai.types
import openai.types.chat
import openai.types.responses
import openai.types.shared_params

import children
import harness
from children import PATIENCE
from test_raw import GAP
from test_tools import HERMES

SAY = [{"role": "user", "content": "hello"}]
BEGUN = [*SAY, {"role": "assistant", "content": "a"}]
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {}}}
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
# Of each column: the path, and a body that is answered after two tokens.
APIS = {
    "chat": ("/v1/chat/completions", {"messages": SAY, "max_tokens": 2}),
    "completions": ("/v1/completions", {"prompt": "hello", "max_tokens": 2}),
    "responses": ("/v1/responses", {"input": "hello", "max_output_tokens": 2, "store": False}),
    "messages": ("/v1/messages", {"messages": SAY, "max_tokens": 2}),
    "api/chat": ("/api/chat", {"messages": SAY, "stream": False, "options": {"num_predict": 2}}),
    "api/generate": ("/api/generate", {"prompt": "hello", "stream": False, "options": {"num_predict": 2}}),
}
# A value as clients send it, where it is not one of a kind: by the name, or by the name and the API.
NUMBERS = dict.fromkeys(("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty"), 0.5) | {
    "max_completion_tokens": 2, "max_output_tokens": 2, "max_tokens": 2, "max_tool_calls": 2, "min_tokens": 1, "n": 2, "best_of": 2, "seed": 7, "top_k": 5, "top_logprobs": 2,
    "prompt_logprobs": 1, "thinking_budget": 5, "thinking_budget_tokens": 5, "thinking_token_budget": 5, "repetition_penalty": 1.5, "repeat_penalty": 1.5, "n_predict": 5,
    "num_predict": 2, "num_ctx": 4096, "priority": 3, "options.seed": 7, "reasoning.max_tokens": 5, "thinking.budget_tokens": 5}
EXAMPLES = NUMBERS | {
    "model": "tiny", "messages": SAY, "prompt": "hello", "input": "hello", "system": "Be brief.", "instructions": "Be brief.", "stop": ["x"], "stop_sequences": ["x"], "suffix": "x",
    "stream": False, "stream_options": {"include_usage": True}, "stream_options.include_usage": True, "stream_options.continuous_usage_stats": True,
    "stream_options.include_obfuscation": True, "store": True, "echo": True, "raw": True, "ignore_eos": True, "logprobs": True, "logprobs completions": 1, "background": False,
    "logit_bias": {"5": 1}, "tools": [{"type": "function", "function": TOOL}], "tools responses": [{"type": "function", **TOOL}],
    "tools messages": [{"name": "f", "input_schema": TOOL["parameters"]}], "tool_choice": "auto", "tool_choice messages": {"type": "auto"}, "functions": [TOOL], "function_call": "auto",
    "parallel_tool_calls": True, "include": ["reasoning.encrypted_content"], "conversation": "fields", "previous_response_id": "resp_none", "metadata": {"a": "b"},
    "reasoning": {"effort": "low"}, "reasoning.effort": "low", "reasoning.summary": "auto", "reasoning.generate_summary": "auto", "reasoning.context": "auto", "reasoning.mode": "auto",
    "reasoning_effort": "low", "text": {"format": {"type": "text"}}, "text.format": {"type": "text"}, "text.verbosity": "low", "truncation": "auto", "modalities": ["text", "audio"],
    "output_config": {"effort": "low"}, "output_config.effort": "low", "output_config.format": {"type": "json_schema", "schema": SCHEMA}, "output_config.task_budget": {"total": 5},
    "output_format": {"type": "json_schema", "schema": SCHEMA}, "thinking": {"type": "adaptive"}, "thinking.type": "adaptive", "thinking.display": "summarized",
    "response_format": {"type": "json_object"}, "structured_outputs": {"choice": ["a", "b"]}, "structured_outputs.choice": ["a", "b"], "structured_outputs.grammar": 'root ::= "a"',
    "structured_outputs.json": SCHEMA, "structured_outputs.json_object": True, "structured_outputs.regex": "a", "structured_outputs.structural_tag": {"x": 1},
    "structured_outputs.whitespace_pattern": " ?", "grammar": 'root ::= "a"', "guided_choice": ["a", "b"], "guided_grammar": 'root ::= "a"', "guided_json": SCHEMA, "guided_regex": "a",
    "json_schema": SCHEMA, "format": "json", "enable_thinking": False, "chat_template_kwargs": {"x": 1}, "include_reasoning": False, "separate_reasoning": False, "stream_reasoning": False,
    "add_generation_prompt": False, "continue_final_message": True, "skip_special_tokens": False, "add_special_tokens": True, "add_special": True, "parse_special": True, "think": False, "keep_alive": "5m",
    "images": ["eA=="], "context": [1, 2], "options": {"seed": 1}, "options.stop": ["x"], "reasoning_format": "none", "do_sample": False, "prompt_token_ids": [1, 2],
    "add_special_tokens completions": False, "add_special_tokens api/generate": False, "add_special completions": False, "add_special api/generate": False,
    "user": "ann", "prompt_cache_key": "ann", "prompt_cache_retention": "24h", "safety_identifier": "ann", "service_tier": "auto", "truncate_prompt_tokens": 5, "tfs_z": 0.5, "typical_p": 0.5, "repeat_last_n": 5, "min_keep": 3, "return_token_ids": True, "return_tokens_as_token_ids": True,
}
# What stands beside a field so that its value means something.
BESIDE = {**{f"top_logprobs {api}": {"logprobs": True} for api in ("chat", "api/chat", "api/generate")}, "top_logprobs responses": {"include": ["message.output_text.logprobs"]}, "repeat_last_n": {"repeat_penalty": 1.5},
          "options.repeat_last_n": {"options": {"repeat_penalty": 1.5}}, "parse_special api/generate": {"raw": True}, "add_special_tokens api/generate": {"raw": True},
          "add_special api/generate": {"raw": True}, "stream_options": {"stream": True}, "add_generation_prompt chat": {"continue_final_message": True, "messages": BEGUN}, "continue_final_message chat": {"messages": BEGUN}, "function_call": {"functions": [TOOL]}, "tool_choice chat": {"tools": EXAMPLES["tools"]},
          "tool_choice api/chat": {"tools": EXAMPLES["tools"]}, "tool_choice responses": {"tools": EXAMPLES["tools responses"]}, "tool_choice messages": {"tools": EXAMPLES["tools messages"]},
          "parallel_tool_calls chat": {"tools": EXAMPLES["tools"]}, "parallel_tool_calls api/chat": {"tools": EXAMPLES["tools"]}, "parallel_tool_calls responses": {"tools": EXAMPLES["tools responses"]}}
WITHOUT = {"prompt_token_ids chat": "messages"}
WRONG = [{"x": [{}]}, "no such value"]  # of which each kind of value is one at the most
READ, REFUSED, NO_EFFECT, NAMED = "read", "400", "–", ""  # as the page writes them


def rows(page):
    """The table of the page: of each field the word of each API, then the remark."""
    table = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == len(APIS) + 2:
            for name in cells[0].split(", "):
                assert name.strip("`") not in table, name
                table[name.strip("`")] = dict(zip(APIS, cells[1:])), cells[-1]
    return table


def body_with(api, field, value):
    """The body of the API with the field, which may be a member of an object."""
    body = {"model": "tiny", **json.loads(json.dumps(APIS[api][1]))}
    body.pop(WITHOUT.get(f"{field} {api}"), None)
    for name in (field, f"{field} {api}"):
        for beside, its in BESIDE.get(name, {}).items():
            body[beside] = {**body.get(beside, {}), **its} if isinstance(its, dict) else its
    *holders, name = field.split(".") if not field.startswith("speculative.") else [field]
    inside = body
    for holder in holders:
        inside = inside.setdefault(holder, {})
    if holders == ["thinking"] and name != "type":
        inside["type"] = "adaptive"
    inside[name] = value
    return body


class Asker:
    def __init__(self, address):
        self.line = http.client.HTTPConnection(address, timeout=PATIENCE)

    def ask(self, api, field, value):
        """The status, whether the answer's error names the field, and whether the header does."""
        self.line.request("POST", APIS[api][0], json.dumps(body_with(api, field, value)), {"Content-Type": "application/json"})
        answer = self.line.getresponse()
        text = answer.read().decode()
        named = [name.strip() for name in (answer.getheader("X-Parley-Unenforced") or "").split(",")]
        return answer.status, field in text or field.split(".")[-1] in text, field in named or field.split(".")[0] in named

    def what_becomes_of(self, api, field):
        """Whether the API reads the field, refuses it, passes it over as documented, or names it."""
        value = EXAMPLES.get(f"{field} {api}", EXAMPLES.get(field, EXAMPLES.get(field.split(".")[-1], {"x": [1]})))
        status, is_told, is_named = self.ask(api, field, value)
        assert status in (200, 400, 404), (api, field, status)
        if is_named:
            return NAMED if status == 200 else f"{status}, and named"
        if status != 200:
            return REFUSED if is_told else f"{status} without a word of the field"
        for value in WRONG:
            status, is_told, is_named = self.ask(api, field, value)
            assert not is_named, (api, field)
            if status in (400, 404) and is_told:
                return READ
        return NO_EFFECT


def members(kind, path=""):
    """The fields that a client's type has: a TypedDict, or a model of pydantic."""
    return {path + name for name in getattr(kind, "model_fields", None) or kind.__annotations__}


def what_clients_send():
    """Of each API the fields of its official client's types."""
    chat, text = openai.types.chat.completion_create_params, openai.types.completion_create_params
    replies, shared = openai.types.responses, openai.types.shared_params
    beta = anthropic.types.beta.message_create_params
    return {
        "chat": members(chat.CompletionCreateParamsBase) | members(openai.types.chat.ChatCompletionStreamOptionsParam, "stream_options.") | {"stream"},
        "completions": members(text.CompletionCreateParamsBase) | members(openai.types.chat.ChatCompletionStreamOptionsParam, "stream_options.") | {"stream"},
        "responses": members(replies.response_create_params.ResponseCreateParamsBase) | members(shared.Reasoning, "reasoning.") | {"stream"}
        | members(replies.ResponseTextConfigParam, "text.") | members(replies.response_create_params.StreamOptions, "stream_options."),
        "messages": members(anthropic.types.message_create_params.MessageCreateParamsBase) | members(beta.MessageCreateParamsBase) | {"stream"}
        | members(anthropic.types.OutputConfigParam, "output_config.") | members(anthropic.types.ThinkingConfigEnabledParam, "thinking."),
        "api/chat": members(ollama._types.ChatRequest) | members(ollama._types.Options, "options."),
        "api/generate": members(ollama._types.GenerateRequest) | members(ollama._types.Options, "options."),
    }


def walk(asker, table):
    missing = {api: sorted(sent - set(table)) for api, sent in what_clients_send().items()}
    assert not any(missing.values()), f"docs/fields.md lacks what clients can send: {missing}"
    wrong, n = [], 0
    for i, (field, (words, remark)) in enumerate(table.items()):
        for api, word in words.items() if i % children.STRIDE == 0 else ():
            n += 1
            seen = asker.what_becomes_of(api, field)
            if seen != word:
                wrong.append(f"{field} of {api}: the page says '{word}', the daemon's answer '{seen}'")
        if REFUSED in words.values() or NO_EFFECT in words.values():
            assert remark, f"docs/fields.md gives no reason for {field}"
    assert not wrong, "\n".join(wrong)
    print(f"{n} cells of {len(table)} fields hold, of which {sum(len(sent) for sent in what_clients_send().values())} are in the types of official clients")


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "description": "d", "strict": True, "schema": SCHEMA}}
FULL = {"name": "f", "description": "d", "parameters": TOOL["parameters"], "strict": False}
BLOCK = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
# Requests that have what clients nest, each of which is answered as it is.
NESTED = {
    "chat": [{"messages": [{"role": "system", "content": "s", "name": "n"}, {"role": "user", "content": [{"type": "text", "text": "x"}], "name": "n"},
                           {"role": "assistant", "content": "a", "tool_calls": [CALL], "reasoning_content": "r", "prefix": False, "annotations": []},
                           {"role": "tool", "tool_call_id": "c1", "content": "r"}, {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}, *SAY],
              "tools": [{"type": "function", "function": FULL}], "tool_choice": {"type": "function", "function": {"name": "f"}}},
             {"response_format": FORMAT}, {"functions": [FULL], "function_call": {"name": "f"}},
             {"tools": [{"type": "function", "function": FULL}],
              "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}}}],
    "completions": [{"response_format": FORMAT}],
    "responses": [{"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
                             {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}], "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": "x"},
                             {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [{"type": "output_text", "text": "x", "annotations": [], "logprobs": []}]},
                             {"type": "function_call", "call_id": "c1", "id": "i", "name": "f", "namespace": None, "arguments": "{}", "status": "completed"},
                             {"type": "function_call_output", "call_id": "c1", "output": "r", "id": "o", "status": "completed"},
                             {"type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "t"}, {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "x"}]},
                             {"type": "shell_call", "call_id": "c3", "id": "s", "action": {"commands": ["ls"]}, "environment": {"type": "local"}, "caller": {"type": "direct"}, "status": "completed"},
                             {"type": "shell_call_output", "call_id": "c3", "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}], "max_output_length": 5},
                             {"type": "apply_patch_call", "call_id": "c4", "operation": {"type": "delete_file", "path": "a"}, "status": "completed"},
                             {"type": "apply_patch_call_output", "call_id": "c4", "output": "r", "status": "completed"},
                             {"type": "compaction", "id": "k", "encrypted_content": "parley-summary:eA=="}, {"role": "user", "content": "y"}],
                   "tools": [{"type": "function", **FULL}, {"type": "custom", "name": "p", "description": "d", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}],
                   "tool_choice": {"type": "function", "name": "f"}},
                  {"text": {"format": {"type": "json_schema", **FORMAT["json_schema"]}}}],
    "messages": [{"system": [BLOCK], "messages": [{"role": "user", "content": [BLOCK, {"type": "document", "title": "t", "context": "c", "source": {"type": "text", "data": "d"}}, {"type": "search_result", "source": "s", "title": "t", "content": [BLOCK]}]},
                                                  {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, BLOCK, {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
                                                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [BLOCK], "is_error": False}]}],
                  "tools": [{"type": "custom", "name": "f", "description": "d", "input_schema": TOOL["parameters"], "strict": False, "cache_control": {"type": "ephemeral"}}],
                  "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}},
                 {"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}}],
    "api/chat": [{"messages": [*SAY, {"role": "assistant", "content": "a", "thinking": "t", "tool_calls": [{"function": {"name": "f", "arguments": {}, "index": 0}}]},
                               {"role": "tool", "content": "r", "tool_name": "f"}], "tools": [{"type": "function", "function": FULL}]}],
}
WHOLE = ("parameters", "schema", "input_schema", "arguments", "action", "operation", "outcome", "source")  # which are passed on, and not looked into
VALUES = [5, "no such value", {"x": [1]}, [1], True]


def inside(value, path=()):
    """The paths of all that is in a request, and the values."""
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield path + (key,), one
        if key not in WHOLE and not (key == "input" and path):
            yield from inside(one, path + (key,))


def spelt(path, places=True):
    return "".join((f"[{key}]" if places else "[]") if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def kinds_taken(path, value):
    """The kinds that are right at a path, beside that of its example."""
    name = path[-1]
    if name in ("content", "output") and not isinstance(value, type(None)):
        return (str, list)
    return {"arguments": (str, dict), "source": (str, dict), "schema": (str, bool, dict), "tool_choice": (str, dict), "function_call": (str, dict)}.get(name, (type(value),))


def nested(asker, page):
    """Each value inside a request that is of another kind is refused by its path, or has no effect, as the page says; what is not known is named."""
    n, without_effect = 0, {cell.strip("`") for line in page.partition("## Inside messages")[2].splitlines() if line.startswith("| `") for cell in line.split("|")[1].strip().split(", ")}

    def ask(api, asked, path=(), value=None):
        body = json.loads(json.dumps({"model": "tiny", **APIS[api][1], **asked}))
        holder = body
        for key in path[:-1]:
            holder = holder[key]
        if path:
            holder[path[-1]] = value
        asker.line.request("POST", APIS[api][0], json.dumps(body), {"Content-Type": "application/json"})
        answer = asker.line.getresponse()
        text = json.loads(answer.read())
        error = text.get("error") or ""
        return answer.status, error if isinstance(error, str) else error["message"], answer.getheader("X-Parley-Unenforced") or ""

    for api, asked in ((api, asked) for api, bodies in NESTED.items() for asked in bodies):
        status, told, plain = ask(api, asked)
        assert status == 200, (api, asked, told)
        for i, (path, value) in enumerate(inside(asked)):
            if len(path) < 2 or i % children.STRIDE:
                continue
            pattern = spelt(path, places=False)
            open_to_all = any(pattern == name or pattern.startswith(name + ".") for name in without_effect)
            for wrong in VALUES:
                if value is None or type(wrong) in kinds_taken(path, value):
                    continue
                n += 1
                status, told, named = ask(api, asked, path, wrong)
                if open_to_all:
                    assert status == 200 and named == plain, (api, spelt(path), wrong, told, named)
                else:
                    assert status == 400 and told.startswith(spelt(path)[:47]), (api, spelt(path), wrong, status, told)
            if isinstance(value, dict) and path[-1] not in WHOLE and not open_to_all and path[-1] != "input":
                status, told, named = ask(api, asked, path + ("zz",), 1)
                assert status == 200 and spelt(path + ("zz",), places=False).replace("[]", "") in named.split(", "), (api, spelt(path), status, told, named)
    many = [{"role": "user", "content": "x", "zz": 1, "yy": 1} for _ in range(50)]
    assert ask("chat", {"messages": many})[2] == "messages.zz, messages.yy"
    assert ask("chat", {"messages": [{"role": "user", "content": "x", f"f{i}": 1} for i in range(50)]})[2].endswith("messages.f30, and more")
    assert ask("chat", {"messages": [{"role": "user", "content": "x", "a" * 200: 1, "[]": 1, "é\r\n": 1}]})[2] == f"messages.{'a' * 64}, messages.??, messages.????"
    print(f"{n} values inside requests are refused by their paths, or have no effect")


def strangers(asker):
    """What no API knows is named, in letters that a header may have, and not without end."""
    for api in APIS:
        for value, is_named in ((1, True), ("x", True), ([1], True), ({"a": 1}, True), (True, True), (False, True), (0, True), ("", True), ([], True), ({}, True), (None, False)):
            assert asker.ask(api, "no_such_field", value) == (200, False, is_named), (api, value)
    for name, shown in (("a b\r\nX-Evil: 1", "a?b??X-Evil??1"), ("é" * 70, "?" * 64), ("", "?"), ("x,y", "x?y")):
        asker.line.request("POST", "/v1/chat/completions", json.dumps({**APIS["chat"][1], "model": "tiny", name: 1}), {"Content-Type": "application/json"})
        answer = asker.line.getresponse()
        answer.read()
        assert answer.status == 200 and answer.getheader("X-Evil") is None and answer.getheader("X-Parley-Unenforced") == shown, (name, answer.getheaders())
    many = {f"field_{i}": 1 for i in range(5000)}
    asker.line.request("POST", "/api/chat", json.dumps({**APIS["api/chat"][1], "model": "tiny", **many}), {"Content-Type": "application/json"})
    answer = asker.line.getresponse()
    answer.read()
    named = answer.getheader("X-Parley-Unenforced").split(", ")
    assert answer.status == 200 and len(named) == 32 and named[-1] == "and more" and set(named[:-1]) <= set(many), named
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/api/embed", {"input": "a"}), ("/tokenize", {"prompt": "a"}), ("/v1/score", {"text_1": "a", "text_2": "b"}),
                       ("/v1/rerank", {"query": "a", "documents": ["b"]}), ("/v1/messages/count_tokens", {"messages": SAY})):
        asker.line.request("POST", path, json.dumps({"model": "tiny", **body, "no_such_field": 1}), {"Content-Type": "application/json"})
        answer = asker.line.getresponse()
        text = answer.read()
        assert answer.status == 200 and answer.getheader("X-Parley-Unenforced") == "no_such_field", (path, answer.status, text)


def main():
    with open(os.path.join(sys.argv[3], "docs", "fields.md")) as file:
        page = file.read()
        table = rows(page)
    with tempfile.TemporaryDirectory() as folder:
        model, template = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "template.jinja")
        with open(template, "w", encoding="utf-8") as file:
            file.write(HERMES)
        children.run([sys.argv[2], model, "8192", "1", template, *GAP], check=True)
        with harness.Parleyd(sys.argv[1], "--model", f"tiny={model}", "--http", "127.0.0.1:0") as parley:
            asker = Asker(parley.http)
            asker.line.request("POST", "/v1/responses", json.dumps({"model": "tiny", "input": "hello", "max_output_tokens": 2}))
            EXAMPLES["previous_response_id"] = json.loads(asker.line.getresponse().read())["id"]
            asker.line.request("POST", "/v1/conversations", json.dumps({"model": "tiny"}))
            EXAMPLES["conversation"] = json.loads(asker.line.getresponse().read())["id"]
            strangers(asker)
            nested(asker, page)
            walk(asker, table)
    print("ok")


main()
