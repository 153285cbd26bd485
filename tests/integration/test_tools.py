#!/usr/bin/env python3
"""Tools and thoughts over gRPC, chat completions and Responses, with the unmodified `openai` client, over Messages with `anthropic`, over /api/chat with `ollama`, and bare HTTP: forced calls, round trips, streams,
parallel calls, families' forms of calls, what is refused, and the same bytes alone and in company.

What a model writes without being forced is put into its mouth by a constraint (guided_choice), since tiny models call nothing.

usage: test_tools.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has the clients; see venv.sh)
"""
import concurrent.futures
import json
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request

import anthropic
import grpc
import ollama
import openai

import children
import harness
from children import PATIENCE
from harness import content, conversations as pb
from parley.v1 import cursor_pb2 as cursor  # found by harness

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"enum": ["Bonn", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                   "required": ["city", "days"]}}}
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, NOW]
ASK = [{"role": "user", "content": "What is the weather in Bonn?"}]
NAMED = {"type": "function", "function": {"name": "weather"}}

# How Qwen's templates show tools, calls, results and thoughts; the thoughts of earlier turns are dropped.
HERMES = """{% if tools %}<|im_start|>system
# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Write <tool_call> and {"name": NAME, "arguments": {}}</tool_call>.<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{% if message.role == 'tool' %}user
<tool_response>
{{ message.content }}
</tool_response>{% else %}{{ message.role }}
{% if loop.last and message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}{% for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

# How templates of models that think read the variables that switch it: by default the prompt ends inside a thought.
SWITCH = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if reasoning_effort is defined %}Effort: {{ reasoning_effort }}
{% endif %}{% if persona is defined %}Be {{ persona.name }}.
{% endif %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% else %}<think>
{% endif %}{% endif %}"""


def client_of(parley):
    return openai.OpenAI(base_url=f"http://{parley.http}/v1", api_key="any", timeout=PATIENCE, max_retries=0)


def says(text):
    """The reply is this text, whatever the model would say."""
    return {"guided_choice": [text]}


def check_arguments(text):
    arguments = json.loads(text)
    assert set(arguments) == {"city", "days"} and arguments["city"] in ("Bonn", "Rome") and 1 <= arguments["days"] <= 9, text


def forced(parley):
    """A call that is required, or named, comes from any model, and its arguments match the schema."""
    create = client_of(parley).chat.completions.create
    for model in ("tiny", "hermes"):
        for seed in range(4):
            said = create(model=model, messages=ASK, tools=TOOLS, tool_choice=NAMED, parallel_tool_calls=False, seed=seed, temperature=1.5)
            message = said.choices[0].message
            assert said.choices[0].finish_reason == "tool_calls" and message.content is None and len(message.tool_calls) == 1, said
            call = message.tool_calls[0]
            assert call.type == "function" and call.function.name == "weather" and len(call.id) == 9
            check_arguments(call.function.arguments)
        said = create(model=model, messages=ASK, tools=[NOW], tool_choice="required", parallel_tool_calls=False)
        assert said.choices[0].message.tool_calls[0].function.arguments == "{}", said
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "now"}}]}}
        said = create(model=model, messages=ASK, tools=TOOLS, tool_choice=allowed, parallel_tool_calls=False)
        assert said.choices[0].message.tool_calls[0].function.name == "now", said
    # A tool that is named is called once; so is any by a model that was never taught calls. A format beside it is of a text that does not come.
    one_format = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": {"type": "array"}}}
    for choice, more in ((NAMED, {}), ("required", {}), ("any", {}), (NAMED, {"response_format": one_format}), ("required", {"response_format": {"type": "json_object"}})):
        said = create(model="tiny", messages=ASK, tools=[WEATHER], tool_choice=choice, temperature=0, **more).choices[0]
        assert said.finish_reason == "tool_calls" and len(said.message.tool_calls) == 1 and said.message.content is None, (choice, more, said)
        check_arguments(said.message.tool_calls[0].function.arguments)
    names = ["K\u00e8be", 'a"be\\fe', "\U0001f600", "\u001fa"]
    spelled = {"type": "function", "function": {"name": "spell", "parameters": {
        "type": "object", "properties": {"name": {"enum": names}, "is": {"type": "boolean"}}, "required": ["name", "is"]}}}
    for seed in range(12):
        said = create(model="hermes", messages=ASK, tools=[spelled], tool_choice="required", parallel_tool_calls=False, seed=seed, temperature=2)
        arguments = json.loads(said.choices[0].message.tool_calls[0].function.arguments)
        assert arguments["name"] in names and arguments["is"] in (True, False), arguments
    several = create(model="tiny", messages=ASK, tools=TOOLS, tool_choice=NAMED, parallel_tool_calls=False, n=3, temperature=1.5)
    ids = [c.message.tool_calls[0].id for c in several.choices]
    assert len(set(ids)) == 3, ids
    cut = create(model="tiny", messages=ASK, tools=TOOLS, tool_choice=NAMED, max_tokens=8)
    assert cut.choices[0].finish_reason == "length", cut


def old_form(parley):
    """functions and function_call: the same with another answer."""
    create = client_of(parley).chat.completions.create
    asked = dict(model="tiny", messages=ASK, functions=[WEATHER["function"]], function_call={"name": "weather"}, seed=3)
    said = create(**asked)
    assert said.choices[0].finish_reason == "function_call" and said.choices[0].message.tool_calls is None
    check_arguments(said.choices[0].message.function_call.arguments)
    chunks = [c.choices[0] for c in create(stream=True, **asked)]
    parts = [c.delta.function_call for c in chunks if c.delta.function_call is not None]
    assert [p.name for p in parts] == ["weather"] + [None] * (len(parts) - 1) and chunks[-1].finish_reason == "function_call"
    assert "".join(p.arguments for p in parts) == said.choices[0].message.function_call.arguments
    more = ASK + [{"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}},
                  {"role": "function", "name": "weather", "content": "rain"}]
    assert create(model="tiny", messages=more, max_tokens=4).choices[0].finish_reason in ("stop", "length")


def round_trip(parley):
    """Call, result, answer: the history in the template's form is what the model wrote, so it is found in the cache."""
    create = client_of(parley).chat.completions.create
    for model in ("tiny", "hermes"):
        messages = [{"role": "system", "content": "You know the weather of every city, and say so in few words."}] + ASK
        first = create(model=model, messages=messages, tools=TOOLS, tool_choice=NAMED, parallel_tool_calls=False, temperature=0)
        call = first.choices[0].message.tool_calls[0]
        messages += [first.choices[0].message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "Sun, 21 degrees."}]
        second = create(model=model, messages=messages, tools=TOOLS, max_tokens=8, temperature=0)
        assert second.choices[0].message.content != "" or second.usage.completion_tokens == 1
        assert second.usage.prompt_tokens > first.usage.total_tokens, (first.usage, second.usage)
        cached = second.usage.prompt_tokens_details.cached_tokens
        assert cached >= (first.usage.total_tokens - 2) // 16 * 16, (model, cached, first.usage)


def joined(chunks):
    """What a client makes of a stream: strings are concatenated, calls by their index."""
    content, thoughts, calls = "", "", []
    for c in chunks:
        delta = c.choices[0].delta
        content += delta.content or ""
        thoughts += getattr(delta, "reasoning_content", None) or ""
        for part in delta.tool_calls or []:
            if part.index == len(calls):
                assert part.id and part.function.name and part.type == "function"
                calls.append([part.id, part.function.name, ""])
            else:
                assert part.index == len(calls) - 1 and part.id is None and part.function.name is None, part
            calls[part.index][2] += part.function.arguments
    return content, thoughts, calls


def streams(parley):
    """Deltas of a forced call join to what the same request gives whole; the client's own helper makes the same of them."""
    client = client_of(parley)
    for model in ("tiny", "hermes"):
        asked = dict(model=model, messages=ASK, tools=TOOLS, tool_choice=NAMED, parallel_tool_calls=False, seed=5, temperature=1.5)
        whole = client.chat.completions.create(**asked).choices[0].message.tool_calls[0].function
        chunks = list(client.chat.completions.create(stream=True, **asked))
        content, _, calls = joined(chunks)
        assert content == "" and [c[1:] for c in calls] == [["weather", whole.arguments]], (calls, whole)
        assert chunks[0].choices[0].delta.role == "assistant" and all(c.choices[0].delta.role is None for c in chunks[1:])
        assert len(chunks) > 4 and chunks[-1].choices[0].finish_reason == "tool_calls"
        with client.chat.completions.stream(**asked) as stream:
            final = stream.get_final_completion().choices[0]
        assert final.message.tool_calls[0].function.arguments == whole.arguments and final.finish_reason == "tool_calls"


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln", "days": 1}}\n</tool_call>'
REPLIES = [  # content, thoughts, calls, finish
    ("Hello.", ("Hello.", "", [], "stop")),
    ("I look.\n\n" + CALL, ("I look.", "", [("weather", '{"city": "Köln", "days": 1}')], "tool_calls")),
    (CALL + "\n" + '<tool_call>{"name": "now"}</tool_call>',
     ("", "", [("weather", '{"city": "Köln", "days": 1}'), ("now", "{}")], "tool_calls")),
    ("<think>\nHm.\n</think>\n\n" + CALL, ("", "Hm.", [("weather", '{"city": "Köln", "days": 1}')], "tool_calls")),
    ("<think>\nHm.\n</think>\n\nIt rains.", ("It rains.", "Hm.", [], "stop")),
    ('<tool_call>{"name": "nothing", "arguments": {}}</tool_call>',
     ('<tool_call>{"name": "nothing", "arguments": {}}</tool_call>', "", [], "stop")),
    ("a <tool_call", ("a <tool_call", "", [], "stop")),
    # Delimiters where the format does not allow them, and calls that are none.
    ("Put `<tool_call>{\"name\": \"now\"}</tool_call>` or <tool_call> x.",
     ("Put `<tool_call>{\"name\": \"now\"}</tool_call>` or <tool_call> x.", "", [], "stop")),
    ("It's A<think>no</think>B.", ("It's A<think>no</think>B.", "", [], "stop")),
    (CALL[:60], (CALL[:60], "", [], "stop")),
    (CALL.replace('"Köln"', "'Köln'"), (CALL.replace('"Köln"', "'Köln'"), "", [], "stop")),
    ("So: " + CALL.replace("}}", "}"), ("So:", "", [("weather", '{"city": "Köln", "days": 1}')], "tool_calls")),
]


def free(parley):
    """A model that has the family's form calls by itself; what is no call is text; thoughts are apart, whole and streamed."""
    create = client_of(parley).chat.completions.create
    for text, (content, thoughts, calls, finish) in REPLIES:
        asked = dict(model="hermes", messages=ASK, tools=TOOLS, extra_body=says(text))
        choice = create(**asked).choices[0]
        got = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]
        assert (choice.message.content or "", getattr(choice.message, "reasoning_content", ""), got, choice.finish_reason) == \
            (content, thoughts, calls, finish), (text, choice)
        chunks = list(create(stream=True, **asked))
        streamed = joined(chunks)
        assert (streamed[0], streamed[1], [tuple(c[1:]) for c in streamed[2]]) == (content, thoughts, calls), (text, streamed)
        assert chunks[-1].choices[0].finish_reason == finish
    # Without tools a call is text, and so are thoughts for who wants them so.
    said = create(model="hermes", messages=ASK, extra_body=says(CALL)).choices[0]
    assert said.message.content == CALL and said.finish_reason == "stop"
    said = create(model="hermes", messages=ASK, extra_body={"reasoning_format": "none", **says("<think>\nHm.\n</think>\n\nYes.")})
    assert said.choices[0].message.content == "<think>\nHm.\n</think>\n\nYes."
    # A model without a form of its own answers in text, and tool_choice none is no tools.
    for model, more in (("tiny", {}), ("echo", {}), ("hermes", {"tool_choice": "none"})):
        assert create(model=model, messages=ASK, tools=TOOLS, max_tokens=8, **more).choices[0].message.tool_calls is None
    one = create(model="hermes", messages=ASK, tools=TOOLS, parallel_tool_calls=False, extra_body=says(REPLIES[2][0]))
    assert [c.function.name for c in one.choices[0].message.tool_calls] == ["weather"]


def told_by_all(parley, text="", messages=ASK, model="hermes", **more):
    """What a model that says the text says in each API, whole and streamed: text, calls, finish. more: chat completions' fields. None: an error."""
    tools = [{"name": t["function"]["name"], "input_schema": t["function"].get("parameters", {"type": "object", "properties": {}})} for t in TOOLS]
    limit, stop, forced_ = more.get("max_tokens", 200), more.get("stop"), more.get("tool_choice") == "required"
    spelled = {"response_format": more["response_format"]} if "response_format" in more else says(text) if text else {}
    base = {"model": model, "temperature": 0, **spelled}
    told = {}

    def events(path, body):
        request = urllib.request.Request(f"http://{parley.http}{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            lines = [line.removeprefix("data: ") for line in answer.read().decode().splitlines() if line.startswith(("data: {", "{"))]
        return [json.loads(line) for line in lines]

    def both(name, path, body, whole, streamed):
        told[name] = whole(posted(parley, path, **body, stream=False))
        told[f"{name} streamed"] = streamed(events(path, {**body, "stream": True}))

    def of_chat(answer):
        message = answer["choices"][0]["message"]
        return message["content"] or "", [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", [])], \
            answer["choices"][0]["finish_reason"]

    def of_chunks(chunks):
        if "error" in chunks[-1]:
            return None
        deltas, calls = [c["choices"][0]["delta"] for c in chunks], {}
        for part in (part for d in deltas for part in d.get("tool_calls", [])):
            call = calls.setdefault(part["index"], ["", ""])
            call[0] += part["function"].get("name", "")
            call[1] += part["function"].get("arguments", "")
        return "".join(d.get("content") or "" for d in deltas), [(n, json.loads(a)) for n, a in calls.values()], chunks[-1]["choices"][0]["finish_reason"]

    both("chat", "/v1/chat/completions", {**base, "messages": messages, "tools": TOOLS, "max_tokens": limit, **({"stop": stop} if stop else {}),
                                          **({"tool_choice": "required"} if forced_ else {})}, of_chat, of_chunks)

    def of_message(answer):
        blocks = answer["content"]
        calls = [(b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"]
        return "".join(b["text"] for b in blocks if b["type"] == "text"), calls, \
            {"end_turn": "stop", "stop_sequence": "tool_calls" if calls else "stop", "max_tokens": "length", "tool_use": "tool_calls"}[answer["stop_reason"]]

    def of_events(all_):
        if all_[-1]["type"] == "error":
            return None
        content_ = [{**e["content_block"], "partial": ""} for e in all_ if e["type"] == "content_block_start"]
        for e in (e for e in all_ if e["type"] == "content_block_delta"):
            content_[e["index"]]["text" if "text" in e["delta"] else "partial"] += e["delta"].get("text", e["delta"].get("partial_json", ""))
        for b in content_:
            if b["type"] == "tool_use":
                b["input"] = json.loads(b["partial"])
        return of_message({"content": content_, "stop_reason": next(e for e in all_ if e["type"] == "message_delta")["delta"]["stop_reason"]})

    spelled = {"output_config": {"format": {"type": "json_schema", "schema": more["response_format"]["json_schema"]["schema"]}}} \
        if "response_format" in more else spelled
    both("messages", "/v1/messages", {**base, **spelled, "messages": messages, "tools": tools, "max_tokens": limit, **({"stop_sequences": stop} if stop else {}),
                                      **({"tool_choice": {"type": "any"}} if forced_ else {})}, of_message, of_events)

    def of_line(answer):
        message = answer["message"]
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]
        return message["content"], calls, "tool_calls" if calls and answer["done_reason"] == "stop" else answer["done_reason"]

    def of_lines(lines):
        return of_line({"message": {"content": "".join(line["message"]["content"] for line in lines),
                                    "tool_calls": [c for line in lines for c in line["message"].get("tool_calls", [])]}, "done_reason": lines[-1]["done_reason"]})

    spelled = {"format": more["response_format"]["json_schema"]["schema"]} if "response_format" in more else spelled
    both("ollama", "/api/chat", {**{k: v for k, v in base.items() if k != "response_format"}, **spelled, "messages": messages, "tools": TOOLS,
                                 "options": {"num_predict": limit, **({"stop": stop} if stop else {})},
                                 **({"tool_choice": "required"} if forced_ else {})}, of_line, of_lines)
    if not stop:  # Responses has none
        def of_response(answer):
            output = answer["output"]
            calls = [(o["name"], json.loads(o["arguments"])) for o in output if o["type"] == "function_call"]
            return "".join(c["text"] for o in output if o["type"] == "message" for c in o["content"]), calls, \
                "length" if answer["status"] == "incomplete" else "tool_calls" if calls else "stop"

        spelled = {"text": {"format": {"type": "json_schema", "name": "a", "schema": more["response_format"]["json_schema"]["schema"], "strict": True}}} \
            if "response_format" in more else spelled
        both("responses", "/v1/responses", {**{k: v for k, v in base.items() if k != "response_format"}, **spelled, "input": messages, "tools": FLAT,
                                            "max_output_tokens": limit, "store": False, **({"tool_choice": "required"} if forced_ else {})},
             of_response, lambda all_: None if all_[-1]["type"] == "error" else of_response(all_[-1]["response"]))
    wire = dict(text=messages[-1]["content"], tools=wire_tools(), sampling=harness.sampling.Sampling(
        max_tokens=limit, temperature=0, **({"stop": stop} if stop else {})))
    if forced_:
        wire["tool_choice"] = content.ToolChoice(mode=content.ToolChoice.MODE_REQUIRED)
    elif "response_format" in more:
        wire["constraint"] = content.Constraint(json_schema=json.dumps(more["response_format"]["json_schema"]["schema"]))
    else:
        wire["constraint"] = says_on_wire(text)
    kept = parley.open(model)
    asked = parley.conversations.Ask(pb.TurnRequest(conversation=kept, **wire))
    (kept,) = parley.get(kept).transcript
    parts, said = kept.message if kept.HasField("message") else content.Message(role="assistant", text=kept.reply), asked.message
    # Without tools, thoughts are in the text of the answer; the transcript has them apart in any case.
    assert parts == said or (not said.reasoning and parts.reasoning in said.text and said.text.endswith(parts.text)), (str(parts), str(said))
    assert kept.timings == asked.timings and kept.reply, kept
    told["grpc"] = asked.message.text, [(c.name, json.loads(c.arguments)) for c in asked.message.tool_calls], harness.word(asked, "finish_reason")
    try:
        (text_, _, calls, finish), _ = in_parts(list(parley.conversations.Turn(pb.TurnRequest(conversation=parley.open(model), **wire))))
        told["grpc streamed"] = text_, [(c[1], json.loads(c[2])) for c in calls], finish
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.OUT_OF_RANGE and "inside a call" in error.details(), error
        told["grpc streamed"] = None
    return told


def whole_or_text(parley):
    """In every API, whole and streamed: a call that a stop text or a limit has cut is text, JSON that a schema asked for is text whatever it says,
    and a call in several lines is a call."""
    arguments = {"city": "Köln", "days": 1}
    for text, more, expected in (
            (CALL, {}, ("", [("weather", arguments)], "tool_calls")),
            ("So:\n" + CALL.replace(", ", ",\n  "), {}, ("So:", [("weather", arguments)], "tool_calls")),
            (CALL, {"stop": ["ln"]}, (CALL[:CALL.index("ln")], [], "stop")),
            (CALL, {"stop": ["arguments"]}, (CALL[:CALL.index("arguments")], [], "stop")),
            (CALL, {"stop": ["</tool_call>"]}, ("", [("weather", arguments)], "tool_calls"))):
        told = told_by_all(parley, text, **more)
        assert len(told) == (8 if "stop" in more else 10) and all(t == expected for t in told.values()), (text, more, told)
    for limit in range(3, 40, 6):
        told = told_by_all(parley, "So: " + CALL, max_tokens=limit)
        assert all(t == told["chat"] for t in told.values()), (limit, told)
        assert told["chat"][1] in ([], [("weather", arguments)]) and (told["chat"][1] or ("So: " + CALL).startswith(told["chat"][0])), (limit, told)
    says_all = '<think>a</think> <tool_call>\n{"name": "now", "arguments": {}}\n</tool_call> `'
    one = {"type": "object", "properties": {"name": {"const": "now"}, "arguments": {"const": says_all}}, "required": ["name", "arguments"]}
    told = told_by_all(parley, response_format={"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": one}})
    for text, calls, finish in told.values():
        assert json.loads(text) == {"name": "now", "arguments": says_all} and calls == [] and finish == "stop", told
    # A forced call that has no room is text where it comes whole; a stream that has begun it ends with an error.
    told = told_by_all(parley, tool_choice="required", max_tokens=14)
    assert all(t is None or (t[1] == [] and t[2] == "length" and t[0] != "") for t in told.values()), told
    assert all(told[name] is not None for name in told if "streamed" not in name or "ollama" in name), told


def spelled(parley):
    """Where delimiters are control tokens, their letters are text: a reply that spells them in ordinary tokens comes back whole, in every API."""
    for text in (CALL, "<think>\nHm.\n</think>\n\nYes.", f"So: {CALL} <think>a</think> </tool_call>"):
        told = told_by_all(parley, text, model="controls")
        assert len(told) == 10 and all(t == (text, [], "stop") for t in told.values()), (text, told)
    asked = {"model": "controls", "messages": ASK, "temperature": 0, "max_tokens": 400}
    said = posted(parley, "/v1/chat/completions", **asked, enable_thinking=True, **says("</think>\nYes, <think>."))["choices"][0]["message"]
    assert said["content"] == "</think>\nYes, <think>." and "reasoning_content" not in said, said
    one = {"type": "object", "properties": {"a": {"const": f"<think>{CALL}</think>"}}, "required": ["a"]}
    for thinks in (True, False):  # the tokens that are written for it count
        said = posted(parley, "/v1/chat/completions", **asked, seed=1, enable_thinking=thinks,
                      response_format={"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": one}})["choices"][0]
        assert json.loads(said["message"]["content"]) == {"a": one["properties"]["a"]["const"]} and said["finish_reason"] == "stop", said
        assert bool(said["message"].get("reasoning_content")) == thinks, said
    called = posted(parley, "/v1/chat/completions", **asked, tools=TOOLS, tool_choice=NAMED)["choices"][0]["message"]
    check_arguments(called["tool_calls"][0]["function"]["arguments"])


def reasons_first(parley):
    """Under a schema, or made to call, a model reasons first where its template opens the reasoning or the request asks for it: then comes JSON, in
    every API."""
    one = {"type": "object", "properties": {"city": {"enum": ["Bonn", "<think>Rome</think>"]}, "is": {"type": "boolean"}}, "required": ["city", "is"]}
    asked = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": one}}}

    def check(text):
        said = json.loads(text)
        assert set(said) == {"city", "is"} and said["city"] in one["properties"]["city"]["enum"], text

    for model in ("switch", "hermes"):
        told = told_by_all(parley, model=model, max_tokens=160, **asked)
        for name, (text, calls, finish) in told.items():
            if not (name.startswith("grpc") and model == "switch"):
                check(text)
            assert calls == [] and finish == "stop", (model, name, text)
        for n, (more, reasons) in enumerate((({}, model == "switch"), ({"enable_thinking": True}, True), ({"enable_thinking": False}, False))):
            said = posted(parley, "/v1/chat/completions", model=model, messages=ASK, max_tokens=120, seed=n, temperature=1.2, **asked, **more)
            message, used = said["choices"][0]["message"], said["usage"]
            check(message["content"])
            assert bool(message.get("reasoning_content")) == reasons and said["choices"][0]["finish_reason"] == "stop", (model, more, said)
            assert (used["completion_tokens_details"]["reasoning_tokens"] > 0) == reasons and used["completion_tokens"] <= 120, used
            said = posted(parley, "/v1/chat/completions", model=model, messages=ASK, max_tokens=200, seed=n, temperature=1.2, tools=TOOLS, tool_choice=NAMED, **more)
            message = said["choices"][0]["message"]
            assert "tool_calls" in message, (model, more, said)
            check_arguments(message["tool_calls"][0]["function"]["arguments"])
            assert bool(message.get("reasoning_content")) == reasons and message["content"] is None, (model, more, said)
    effort = content.Reasoning(effort=content.Reasoning.EFFORT_HIGH)
    wire = dict(text="Bonn?", constraint=content.Constraint(json_schema=json.dumps(one)), sampling=harness.sampling.Sampling(max_tokens=160, seed=1))
    for model in ("switch", "hermes"):
        said = parley.conversations.Ask(pb.TurnRequest(conversation=parley.open(model), reasoning=effort, **wire))
        check(said.message.text)
        assert said.message.reasoning and said.usage.reasoning_tokens > 0, said
        told = in_parts(list(parley.conversations.Turn(pb.TurnRequest(conversation=parley.open(model), reasoning=effort, **wire))))[0]
        check(told[0])
        assert told[1], told


def strict(parley):
    """strict holds without force, from where a call begins; what cannot be enforced is refused, or named."""
    client = client_of(parley)
    tool = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    for seed in range(3):
        said = client.chat.completions.create(model="hermes", messages=ASK, tools=[tool], seed=seed, temperature=1.5, max_tokens=40)
        for call in said.choices[0].message.tool_calls or []:
            if said.choices[0].finish_reason == "tool_calls":
                check_arguments(call.function.arguments)
    wrong = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {
        "type": "object", "properties": {"a": {"not": {"format": "date"}}}}}}
    try:
        client.chat.completions.create(model="tiny", messages=ASK, tools=[wrong], tool_choice="required")
        raise AssertionError("it was taken")
    except openai.BadRequestError as error:
        assert error.param == "tools" and "'f'" in str(error) and "'not' cannot be enforced" in str(error), error
    wrong["function"]["strict"] = False
    answer = client.chat.completions.with_raw_response.create(model="tiny", messages=ASK, tools=[wrong], tool_choice="required", max_tokens=4)
    assert "not" in answer.headers["x-parley-unenforced"], answer.headers


def bound(parley):
    """X-Conversation-Id: a history with calls goes on from what was said, sent whole or not."""
    create = client_of(parley).chat.completions.create
    asked = dict(model="hermes", tools=TOOLS, extra_headers={"X-Conversation-Id": "weather-1"})
    first = create(messages=ASK, extra_body=says("<think>\nHm.\n</think>\n\n" + CALL), **asked)
    result = {"role": "tool", "tool_call_id": first.choices[0].message.tool_calls[0].id, "content": "rain"}
    second = create(messages=[result], extra_body=says("It rains."), **asked)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    history = ASK + [first.choices[0].message.model_dump(exclude_none=True), result,
                     {"role": "assistant", "content": "It rains."}, {"role": "user", "content": "Thanks."}]
    third = create(messages=history, max_tokens=4, temperature=0, **asked)
    alone = create(model="hermes", tools=TOOLS, messages=history, max_tokens=4, temperature=0)
    assert third.usage.prompt_tokens == alone.usage.prompt_tokens, "the template shows both the same"
    assert third.choices[0].message.content == alone.choices[0].message.content


def silent(parley):
    """A tool that has nothing to tell has answered: its empty result is a turn, in a named conversation, behind a response, and alone."""
    client, named = client_of(parley), {"X-Conversation-Id": "silent-1"}
    asked = dict(model="hermes", tools=TOOLS, extra_headers=named)
    first = client.chat.completions.create(messages=ASK, extra_body=says(CALL), **asked)
    result = {"role": "tool", "tool_call_id": first.choices[0].message.tool_calls[0].id, "content": ""}
    history = [*ASK, first.choices[0].message.model_dump(exclude_none=True), result]
    second = client.chat.completions.create(messages=[result], max_tokens=4, temperature=0, **asked)
    alone = client.chat.completions.create(model="hermes", tools=TOOLS, messages=history, max_tokens=4, temperature=0)
    assert second.usage.prompt_tokens == alone.usage.prompt_tokens and second.choices[0].message.content == alone.choices[0].message.content
    tools = [{"type": "function", **TOOLS[0]["function"]}]
    first = client.responses.create(model="hermes", input="Weather?", tools=tools, extra_body=says(CALL))
    call = next(item for item in first.output if item.type == "function_call")
    second = client.responses.create(model="hermes", previous_response_id=first.id, input=[{"type": "function_call_output", "call_id": call.call_id, "output": ""}], tools=tools, extra_body=says("Done."))
    assert second.output_text == "Done."
    said = client.chat.completions.create(model="hermes", messages=[{"role": "tool", "tool_call_id": "c", "content": ""}], extra_body=says("Done."))
    assert said.choices[0].message.content == "Done."
    said = client.chat.completions.create(model="tiny", messages=[{"role": "tool", "tool_call_id": "c", "content": ""}], max_tokens=2, extra_body={"ignore_eos": True})  # which knows no tools
    assert said.choices[0].finish_reason == "length", said


def same_bits(parley):
    """Tools, thoughts and constraints change no bit: 24 requests at once give what each gives alone."""
    create = client_of(parley).chat.completions.create
    requests = [dict(model=model, messages=ASK, tools=TOOLS, seed=seed, temperature=1.3, max_tokens=48, logprobs=True, parallel_tool_calls=False,
                     tool_choice=choice)
                for seed in range(4) for model in ("tiny", "hermes") for choice in ("auto", "required", NAMED)]

    def ask(request):
        choice = create(**request).choices[0]
        calls = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]
        return choice.message.content, calls, choice.finish_reason, [(t.token, t.logprob) for t in choice.logprobs.content]

    alone = [ask(r) for r in requests]
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        assert list(pool.map(ask, requests)) == alone
    assert any(calls for _, calls, _, _ in alone)


FLAT = [{"type": "function", **t["function"]} for t in TOOLS]


def items_of(events):
    """The items that a stream of Responses builds, checked event by event: numbers without gaps, items one after another."""
    items, texts = [], {}
    assert [e.sequence_number for e in events] == list(range(len(events))), [e.sequence_number for e in events]
    assert [e.type for e in events[:2]] == ["response.created", "response.in_progress"]
    for e in events:
        if e.type == "response.output_item.added":
            assert e.output_index == len(items) and e.item.status == "in_progress"
            items.append(None)
            texts[e.output_index] = ""
        elif e.type.endswith(".delta"):
            assert e.output_index == len(items) - 1
            texts[e.output_index] += e.delta
        elif e.type in ("response.function_call_arguments.done", "response.output_text.done", "response.reasoning_text.done"):
            assert texts[e.output_index] == (e.arguments if "arguments" in e.type else e.text)
        elif e.type == "response.output_item.done":
            assert items[e.output_index] is None
            items[e.output_index] = e.item
    return items


def responses(parley):
    """Responses: calls and thoughts are items, whole and streamed; their results come back as items, or behind a stored response."""
    client = client_of(parley)
    asked = dict(input=ASK[0]["content"], tools=[FLAT[0], {**FLAT[1], "description": "It tells\0."}], tool_choice={"type": "function", "name": "weather"},
                 parallel_tool_calls=False, temperature=0)
    for model in ("tiny", "hermes"):
        whole = client.responses.create(model=model, **asked)
        assert whole.status == "completed" and [o.type for o in whole.output] == ["function_call"], whole
        check_arguments(whole.output[0].arguments)
        assert whole.tools[0].name == "weather" and whole.tool_choice.name == "weather" and whole.parallel_tool_calls is False
        again = client.responses.retrieve(whole.id)
        assert [t.name for t in again.tools] == ["weather", "now"] and again.tools[0].parameters == FLAT[0]["parameters"] and again.tools[1].strict is None
        assert again.tools[1].description == "It tells\0."
        assert again.tool_choice == "required" and again.parallel_tool_calls is False and again.output[0].arguments == whole.output[0].arguments
        events = list(client.responses.create(model=model, stream=True, **asked))
        items = items_of(events)
        assert [i.model_dump() for i in items] == [o.model_dump() for o in events[-1].response.output] and len(events) > 6
        assert items[0].arguments == whole.output[0].arguments and events[-1].type == "response.completed"
        with client.responses.stream(model=model, **asked) as stream:
            assert stream.get_final_response().output[0].arguments == whole.output[0].arguments
        result = {"type": "function_call_output", "call_id": whole.output[0].call_id, "output": "Sun, 21 degrees."}
        after = client.responses.create(model=model, previous_response_id=whole.id, input=[result], tools=FLAT, max_output_tokens=8, temperature=0)
        history = [{"role": "user", "content": ASK[0]["content"]}, whole.output[0].model_dump(), result]
        alone = client.responses.create(model=model, input=history, tools=FLAT, max_output_tokens=8, temperature=0)
        assert after.usage.input_tokens > whole.usage.total_tokens
        if model == "hermes":  # rendered whole, so both are the same prompt
            assert after.usage.input_tokens == alone.usage.input_tokens and after.output_text == alone.output_text
    for text, (content, thoughts, calls, _) in REPLIES:
        expected = ([("reasoning", thoughts)] if thoughts else []) + ([("message", content)] if content else []) + \
            [("function_call", name, arguments) for name, arguments in calls]

        def told(output):
            return [(o.type, o.name, o.arguments) if o.type == "function_call" else (o.type, o.content[0].text) for o in output]

        more = dict(model="hermes", input=ASK[0]["content"], tools=FLAT, extra_body=says(text))
        assert told(client.responses.create(**more).output) == expected, text
        events = list(client.responses.create(stream=True, **more))
        assert told(items_of(events)) == expected == told(events[-1].response.output), text
    # Items come in the order in which the model said them, whole, stored and streamed.
    more = dict(model="hermes", input=ASK[0]["content"], tools=FLAT, extra_body=says("<think>Hm.</think>A " + CALL + " B " + CALL + " C"))
    whole = client.responses.create(**more)
    events = list(client.responses.create(stream=True, **more))
    for output in (whole.output, client.responses.retrieve(whole.id).output, items_of(events), events[-1].response.output):
        assert [o.type if o.type == "function_call" else o.content[0].text for o in output] == ["Hm.", "A", "function_call", "B", "function_call", "C"], output
        assert len({o.id for o in output}) == 6 and all(o.status == "completed" for o in output), output
    cut = client.responses.create(model="hermes", input="x", tools=FLAT, max_output_tokens=3, temperature=0)
    assert cut.status == "incomplete" and cut.output[0].status == "incomplete", cut
    for kind, says_what, item in ((openai.BadRequestError, "type 'spell'", {"type": "spell"}),
                                  (openai.NotFoundError, "no item 'msg_x'", {"type": "item_reference", "id": "msg_x"})):
        try:
            client.responses.create(model="tiny", input=[item])
            raise AssertionError("it was taken")
        except kind as error:
            assert error.param == "input" and says_what in str(error), error
    # The shells' calls and those that edit files, and what came of them, are to the model what a function's are.
    def prompt(*items):
        return client.responses.create(model="hermes", input=[*ASK, *items], max_output_tokens=1, extra_body={"return_token_ids": True}).prompt_token_ids

    def as_function(name, arguments, output):
        return prompt({"type": "function_call", "call_id": "c1", "name": name, "arguments": json.dumps(arguments)}, {"type": "function_call_output", "call_id": "c1", "output": output})

    act, patch = {"commands": ["ls"]}, {"type": "delete_file", "path": "a"}
    said = [{"stdout": "a", "stderr": "b\0", "outcome": {"type": "exit", "exit_code": 2}}, {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}}]
    for call, output, as_text in ((("shell", "action", act), {"output": said}, "a\nstderr:\nb\0\nexit code: 2\n\nThe time was over.\n"), (("apply_patch", "operation", patch), {"status": "completed"}, "Done"),
                                  (("apply_patch", "operation", patch), {"status": "failed", "output": "no\0!"}, "Error: no\0!"), (("apply_patch", "operation", patch), {"status": "failed"}, "Error"),
                                  (("apply_patch", "operation", patch), {"status": "completed", "output": "1 line"}, "1 line")):
        name, member, value = call
        given = prompt({"type": f"{name}_call", "call_id": "c1", member: value}, {"type": f"{name}_call_output", "call_id": "c1", **output})
        assert given == as_function(name, value, as_text), (call, output)
    assert prompt({"type": "program", "id": "p", "call_id": "p", "code": "1", "fingerprint": "f"}, {"type": "program_output", "id": "o", "call_id": "p", "result": "1", "status": "completed"}) == prompt()
    shell = dict(model="hermes", input="x", tools=[{"type": "shell"}, {"type": "apply_patch"}], max_output_tokens=300, temperature=0)
    for choice, kind in (({"type": "shell"}, "shell_call"), ({"type": "apply_patch"}, "apply_patch_call"), ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "shell"}]}, "shell_call")):
        assert {o.type for o in client.responses.create(tool_choice=choice, **shell).output} == {kind}, choice
    elsewhere = client.responses.with_raw_response.create(model="hermes", input="x", tools=[{"type": "shell", "environment": {"type": "container_auto"}}], max_output_tokens=1)
    assert elsewhere.headers["X-Parley-Unenforced"] == "shell", elsewhere.headers
    # An item of an earlier response stands for itself.
    asked = [{"role": "user", "content": "x"}, {"type": "item_reference", "id": whole.output[1].id}, {"role": "user", "content": "y"}]
    said = [asked[0], {"role": "assistant", "content": "A"}, asked[2]]
    counts = [client.responses.create(model="tiny", input=given, max_output_tokens=1).usage.input_tokens for given in (asked, said)]
    assert counts[0] == counts[1], counts


def resumed(parley):
    """A keyed stream with parts, read on from each of its places, is the stream: numbers, items and deltas."""
    def stream(path, body, **headers):
        request = urllib.request.Request(f"http://{parley.http}{path}", json.dumps({"stream": True, **body}).encode(),
                                         {"Content-Type": "application/json", "Idempotency-Key": path, **headers})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return [block for block in answer.read().decode().split("\n\n") if block]

    def sums(blocks):
        """Pieces of a chat may come joined: what they say together."""
        if not blocks or "response" in blocks[-1]:
            return blocks
        out = {}
        if "event: " in blocks[-1]:
            for event in (json.loads(block.split("data: ")[1]) for block in blocks):
                out[event["type"], event.get("index")] = out.get((event["type"], event.get("index")), "") + "".join(
                    v for k, v in sorted(event.get("delta", {}).items()) if k in ("text", "thinking", "partial_json"))
            return out
        for block in blocks[:-1]:
            choice = json.loads(block.split("data: ")[1])["choices"][0]
            out = {**out, "finish": choice["finish_reason"]}
            for name in ("role", "content", "reasoning_content"):
                out[name] = out.get(name, "") + (choice["delta"].get(name) or "")
            for call in choice["delta"].get("tool_calls", []):
                for name, value in (("id", call.get("id", "")), *call["function"].items()):
                    out[call["index"], name] = out.get((call["index"], name), "") + value
        return out

    text = REPLIES[3][0]
    for path, body in (("/v1/responses", {"model": "hermes", "input": "x", "tools": FLAT, **says(text)}),
                       ("/v1/chat/completions", {"model": "hermes", "messages": ASK, "tools": TOOLS, **says(text)}),
                       ("/v1/messages", {"model": "hermes", "messages": ASK, "max_tokens": 200, **says(text), "tools": [
                           {"name": "weather", "input_schema": WEATHER["function"]["parameters"]}]})):
        blocks = stream(path, body)
        places = [i for i, block in enumerate(blocks) if block.startswith("id: ")]
        assert len(places) > 1, blocks
        for i in places:
            id = blocks[i].split("\n")[0].removeprefix("id: ")
            assert sums(stream(path, body, **{"Last-Event-ID": id})) == sums(blocks[i + 1:]), (path, id)


def given(message):
    """The blocks of a message as its client gives them back."""
    return [b.model_dump(exclude_none=True) for b in message.content]


def events_of(events):
    """The blocks that a stream of messages builds, checked event by event: one after another, each begun and ended."""
    blocks, open_at = [], None
    assert events[0].type == "message_start" and [e.type for e in events[-2:]] == ["message_delta", "message_stop"]
    for e in events:
        if e.type == "content_block_start":
            assert open_at is None and e.index == len(blocks), e
            open_at = e.index
            blocks.append([e.content_block.type, e.content_block.name if e.content_block.type == "tool_use" else "", ""])
        elif e.type == "content_block_delta":
            assert e.index == open_at and e.delta.type == {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}[blocks[-1][0]]
            blocks[-1][2] += getattr(e.delta, {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}[blocks[-1][0]])
        elif e.type == "content_block_stop":
            assert e.index == open_at
            open_at = None
    assert open_at is None
    return blocks


def messages(parley):
    """Anthropic's Messages: calls and thoughts are blocks, whole, streamed and in the client's own accumulator; results come back as blocks."""
    client = anthropic.Anthropic(base_url=f"http://{parley.http}", api_key="any", timeout=PATIENCE, max_retries=0)
    tools = [{"name": t["function"]["name"], "description": "It tells.", "input_schema": t["function"].get("parameters", {"type": "object", "properties": {}})}
             for t in TOOLS]
    ask = dict(messages=ASK, tools=tools, max_tokens=200)
    named = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    for model in ("tiny", "hermes"):
        asked = dict(model=model, tool_choice=named, extra_body={"temperature": 0}, **ask)
        first = client.messages.create(**asked)
        assert first.stop_reason == "tool_use" and [b.type for b in first.content] == ["tool_use"] and len(first.content[0].id) == 9, first
        check_arguments(json.dumps(first.content[0].input))
        events = list(client.messages.create(stream=True, **asked))
        assert [(b[0], b[1], json.loads(b[2])) for b in events_of(events)] == [("tool_use", "weather", first.content[0].input)], events
        assert events[-2].delta.stop_reason == "tool_use" and len(events) > 8
        with client.messages.stream(**asked) as stream:
            final = stream.get_final_message()
        assert final.content[0].input == first.content[0].input and final.stop_reason == "tool_use"
        counted = client.messages.count_tokens(model=model, messages=ASK, tools=tools).input_tokens
        auto = client.messages.create(model=model, **{**ask, "max_tokens": 1}).usage
        assert counted == auto.input_tokens + auto.cache_read_input_tokens
        assert (counted > client.messages.count_tokens(model=model, messages=ASK).input_tokens) == (model == "hermes")
        result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": [{"type": "text", "text": "Sun, 21 degrees."}]}
        history = ASK + [{"role": "assistant", "content": given(first)}, {"role": "user", "content": [result, {"type": "text", "text": "And?"}]}]
        second = client.messages.create(model=model, **{**ask, "messages": history, "max_tokens": 4})
        used = second.usage.input_tokens + second.usage.cache_read_input_tokens
        assert used == client.messages.count_tokens(model=model, messages=history, tools=tools).input_tokens
        assert used > counted + first.usage.output_tokens
        any_one = client.messages.create(model=model, tool_choice={"type": "any", "disable_parallel_tool_use": True}, **{**ask, "tools": tools[1:]})
        assert any_one.content[0].name == "now" and any_one.content[0].input == {}
    for text, (content, thoughts, calls, finish) in REPLIES:
        expected = ([["thinking", "", thoughts]] if thoughts else []) + ([["text", "", content]] if content else []) + [["tool_use", *c] for c in calls]
        asked = dict(model="hermes", extra_body=says(text), **ask)

        def told(message):
            return [["tool_use", b.name, json.dumps(b.input, ensure_ascii=False)] if b.type == "tool_use" else [b.type, "", getattr(b, b.type)]
                    for b in message.content]

        whole = client.messages.create(**asked)
        assert told(whole) == expected and whole.stop_reason == ("tool_use" if calls else "end_turn"), (text, whole)
        with client.messages.stream(**asked) as stream:
            events = [e for e in stream if e.type.startswith(("message_", "content_block_"))]
            assert told(stream.get_final_message()) == expected, text
        got = [[b[0], b[1], b[2] or "{}"] if b[0] == "tool_use" else b for b in events_of(events)]
        assert got == expected and events[-2].delta.stop_reason == whole.stop_reason, (text, got)
    # Blocks come in the order in which the model said them.
    asked = dict(model="hermes", extra_body=says("<think>Hm.</think>A " + CALL + " B " + CALL + " C"), **ask)
    whole = client.messages.create(**asked)
    assert [getattr(b, b.type, b.type) for b in whole.content] == ["Hm.", "A", "tool_use", "B", "tool_use", "C"], whole
    assert [b[0] for b in events_of(list(client.messages.create(stream=True, **asked)))] == [b.type for b in whole.content]
    none = client.messages.create(model="hermes", tool_choice={"type": "none"}, **{**ask, "max_tokens": 4})
    assert none.stop_reason in ("max_tokens", "end_turn")
    # In a bound conversation a history of the client's objects goes on from what was said.
    bound = dict(model="hermes", extra_headers={"X-Conversation-Id": "weather-2"}, **ask)
    first = client.messages.create(extra_body=says(CALL.replace(": ", ":")), **bound)
    result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "rain", "is_error": True}
    history = ASK + [{"role": "assistant", "content": given(first)}, {"role": "user", "content": [result]}]
    assert client.messages.create(**{**bound, "messages": history, "max_tokens": 4}).usage.output_tokens > 0


def ollama_chat(parley):
    """Ollama's chat: a call comes whole in a line, its arguments are an object; results find their call by name; thoughts are apart."""
    client = ollama.Client(host=f"http://{parley.http}", timeout=PATIENCE)

    def bare(**more):
        body = json.dumps({"model": "hermes", "messages": ASK, "tools": TOOLS, **more}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"http://{parley.http}/api/chat", body), timeout=PATIENCE) as answer:
            return [json.loads(line) for line in answer.read().decode().splitlines()]

    shown = client.show("hermes")
    assert shown.capabilities == ["completion", "tools", "thinking", "embedding"], shown
    for text, (content, thoughts, calls, _) in REPLIES:
        whole, lines = bare(stream=False, **says(text))[0], bare(**says(text))
        assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True] and lines[-1]["done_reason"] == whole["done_reason"] == "stop"
        for messages in ([whole["message"]], [line["message"] for line in lines]):
            found = [c for m in messages for c in m.get("tool_calls", [])]
            assert "".join(m["content"] for m in messages) == content and "".join(m.get("thinking", "") for m in messages) == thoughts, (text, messages)
            assert [(c["function"]["name"], json.dumps(c["function"]["arguments"], ensure_ascii=False)) for c in found] == calls, (text, messages)
            assert [c["function"]["index"] for c in found] == list(range(len(calls))) and all(len(c["id"]) == 9 for c in found)
    # The package's own types; a call that must come, since tiny models call nothing.
    call = {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [
        {"function": {"name": "now", "arguments": {}}}, {"function": {"name": "weather", "arguments": {"city": "Bonn", "days": 1}}}]}
    results = [{"role": "tool", "tool_name": "weather", "content": "rain"}, {"role": "tool", "tool_name": "now", "content": "noon"}]
    said = client.chat("hermes", ASK + [call] + results, tools=TOOLS, think=True, options={"num_predict": 4})
    alone = client.chat("hermes", ASK, tools=TOOLS, options={"num_predict": 4})
    assert said.prompt_eval_count > alone.prompt_eval_count + 40
    ids = [{**c, "id": f"call0000{i}", "type": "function", "function": {**c["function"], "arguments": json.dumps(c["function"]["arguments"])}}
           for i, c in enumerate(call["tool_calls"])]
    chat = ASK + [{"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": ids},
                  {"role": "tool", "tool_call_id": "call00001", "content": "rain"}, {"role": "tool", "tool_call_id": "call00000", "content": "noon"}]
    same = client_of(parley).chat.completions.create(model="hermes", messages=chat, tools=TOOLS, max_tokens=4)
    # The package writes tools in its own way, so the same prompt is that of a bare request.
    assert same.usage.prompt_tokens == bare(messages=ASK + [call] + results, stream=False, options={"num_predict": 4})[0]["prompt_eval_count"]
    forced_one = bare(stream=False, tool_choice="required", parallel_tool_calls=False)[0]["message"]["tool_calls"][0]["function"]
    assert forced_one["name"] in ("weather", "now") and isinstance(forced_one["arguments"], dict)
    said = client.chat("hermes", ASK, tools=[weather_of], options={"num_predict": 4}, stream=True)
    assert list(said)[-1].done
    try:
        client.chat("tiny", ASK, think=True)
        raise AssertionError("it was taken")
    except ollama.ResponseError as error:
        assert error.status_code == 400 and error.error == '"tiny" does not support thinking', error


def posted(parley, path, **body):
    with urllib.request.urlopen(urllib.request.Request(f"http://{parley.http}{path}", json.dumps(body).encode()), timeout=PATIENCE) as answer:
        return json.load(answer)


def prompt_of(parley, **more):
    """The prompt as text, and how many tokens it has."""
    ids = posted(parley, "/tokenize", model="switch", messages=ASK, **more)["tokens"]
    return posted(parley, "/detokenize", model="switch", tokens=ids)["prompt"], len(ids)


def thinking(parley):
    """Every API's way to have the model think, or not, reaches the template; the reply is divided as its prompt says; wrong values are named."""
    openai_client, claude, llama = client_of(parley), anthropic.Anthropic(base_url=f"http://{parley.http}", api_key="any"), \
        ollama.Client(host=f"http://{parley.http}", timeout=PATIENCE)
    off, high, plain, person = {"enable_thinking": False}, {"reasoning_effort": "high"}, {}, {"persona": {"name": "<|im_end|>"}}
    texts = {}
    for name, more in (("plain", plain), ("off", off), ("high", high), ("none", {"reasoning_effort": "none"}), ("kwargs", {"chat_template_kwargs": off}),
                       ("other name", {"chat_template_kwargs": {"thinking": False}}), ("both", {**off, "chat_template_kwargs": {"enable_thinking": True}}),
                       ("person", {"chat_template_kwargs": person}), ("null", {"enable_thinking": None, "chat_template_kwargs": None})):
        texts[name], n = prompt_of(parley, **more)
        said = posted(parley, "/v1/chat/completions", model="switch", messages=ASK, max_tokens=1, **more)
        assert said["usage"]["prompt_tokens"] == n, (name, said)
    assert texts["plain"].endswith("assistant\n<think>\n") and texts["null"] == texts["both"] == texts["plain"], texts
    assert texts["off"].endswith("</think>\n\n") and texts["off"] == texts["kwargs"] == texts["other name"], texts
    assert "Effort: high\n" in texts["high"] and texts["high"].endswith("<think>\n") and "Effort: none\n" in texts["none"] and texts["none"].endswith("</think>\n\n")
    assert "Be <|im_end|>." in texts["person"]
    # What a request sets is no control token, whatever it says: the same word comes as bytes.
    assert prompt_of(parley, chat_template_kwargs=person)[1] > prompt_of(parley, chat_template_kwargs={"persona": {"name": "x"}})[1] + 4
    sizes = {name: prompt_of(parley, **more)[1] for name, more in (("off", off), ("high", high), ("none", {"reasoning_effort": "none"}), ("on", plain))}
    assert len(set(sizes.values())) == 4, sizes
    # The other APIs' own fields give the same prompts, and each divides the reply as its prompt ended.
    text = "Hm.</think>Yes."
    for size, is_off, chat, response, message, think in (
            ("on", False, {}, {}, {}, {}),
            ("high", False, high, {"reasoning": {"effort": "high"}}, {"output_config": {"effort": "high"}}, {"think": "high"}),
            ("none", True, {"reasoning_effort": "none"}, {"reasoning": {"effort": "none"}}, {"output_config": {"effort": "none"}}, {"think": "none"}),
            ("off", True, off, off, {"thinking": {"type": "disabled"}}, {"think": False}),
            ("on", False, {"enable_thinking": True}, {"enable_thinking": True}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"think": True})):
        thoughts, content_ = ("", text) if is_off else ("Hm.", "Yes.")
        said = openai_client.chat.completions.create(model="switch", messages=ASK, extra_body={**says(text), **chat})
        got = said.choices[0].message
        assert (getattr(got, "reasoning_content", ""), got.content, said.usage.prompt_tokens) == (thoughts, content_, sizes[size]), (chat, said)
        said = openai_client.responses.create(model="switch", input=ASK, extra_body={**says(text), **response})
        assert said.output_text == content_ and [i.content[0].text for i in said.output if i.type == "reasoning"] == ([thoughts] if thoughts else []), said
        assert said.usage.input_tokens == sizes[size] and said.reasoning.effort == response.get("reasoning", {}).get("effort")
        assert openai_client.responses.retrieve(said.id).reasoning == said.reasoning
        body = dict(model="switch", messages=ASK, extra_body={**says(text), **message})
        said = claude.messages.create(max_tokens=64, **body)
        assert [(b.type, b.thinking if b.type == "thinking" else b.text) for b in said.content] == \
            ([("thinking", thoughts)] if thoughts else []) + [("text", content_)], said
        assert said.usage.input_tokens + said.usage.cache_read_input_tokens == sizes[size], said.usage
        assert posted(parley, "/v1/messages/count_tokens", model="switch", messages=ASK, **message)["input_tokens"] == sizes[size]
        said = posted(parley, "/api/chat", model="switch", messages=ASK, stream=False, **says(text), **think)
        assert (said["message"].get("thinking", ""), said["message"]["content"], said["prompt_eval_count"]) == (thoughts, content_, sizes[size]), said
    assert llama.chat("switch", ASK, think=False, options={"num_predict": 1}).prompt_eval_count == sizes["off"]
    for effort, size in ((content.Reasoning.EFFORT_HIGH, "high"), (content.Reasoning.EFFORT_NONE, "none"), (content.Reasoning.EFFORT_UNSPECIFIED, "on")):
        asked = pb.TurnRequest(conversation=parley.open("switch"), text=ASK[0]["content"], constraint=says_on_wire(text), reasoning=content.Reasoning(effort=effort))
        said = parley.conversations.Ask(asked)
        assert said.usage.prompt_tokens == sizes[size] and said.message.text == (text if size == "none" else "Yes."), (effort, said)
    # A further turn may change its mind; a call that is forced comes at once where there is no thought to end.
    bound = dict(model="switch", max_tokens=8, extra_headers={"X-Conversation-Id": "mind"})
    first = openai_client.chat.completions.create(messages=ASK, extra_body={**says(text), **off}, **bound)
    history = ASK + [{"role": "assistant", "content": first.choices[0].message.content}, ASK[0]]
    second = openai_client.chat.completions.create(messages=history, extra_body=high, **bound)
    alone = openai_client.chat.completions.create(model="switch", max_tokens=8, messages=history, extra_body=high)
    assert second.usage.prompt_tokens == alone.usage.prompt_tokens and second.usage.prompt_tokens_details.cached_tokens > 0
    said = openai_client.chat.completions.create(model="switch", messages=ASK, tools=[NOW], tool_choice="required", temperature=0, extra_body=off)
    assert said.choices[0].message.tool_calls[0].function.name == "now", said
    # A template that reads none of them is as ever.
    alike = [posted(parley, "/v1/chat/completions", model=model, messages=ASK, max_tokens=6, temperature=0, seed=1, **more)
             for model in ("tiny", "hermes") for more in (plain, {**high, **off, "chat_template_kwargs": person})]
    for one, other in (alike[:2], alike[2:]):
        assert one["choices"] == other["choices"] and one["usage"]["prompt_tokens"] == other["usage"]["prompt_tokens"]
    for path, field, body in (
            ("/v1/chat/completions", "reasoning_effort", {"reasoning_effort": 3}), ("/v1/chat/completions", "reasoning_effort", {"reasoning_effort": "some"}),
            ("/v1/chat/completions", "enable_thinking", {"enable_thinking": "no"}), ("/v1/chat/completions", "chat_template_kwargs", {"chat_template_kwargs": []}),
            ("/v1/chat/completions", "chat_template_kwargs.messages", {"chat_template_kwargs": {"messages": []}}),
            ("/v1/chat/completions", "chat_template_kwargs", {"chat_template_kwargs": {"a": "x" * 70000}}),
            ("/v1/responses", "reasoning.effort", {"reasoning": {"effort": {}}}), ("/v1/responses", "reasoning", {"reasoning": "high"}),
            ("/v1/messages", "thinking.type", {"thinking": {"type": "often"}}), ("/v1/messages", "output_config.effort", {"output_config": {"effort": 1}}),
            ("/api/chat", "think", {"think": "deeply"}), ("/tokenize", "chat_template_kwargs", {"chat_template_kwargs": 1})):
        try:
            posted(parley, path, model="switch", input="x", messages=ASK, max_tokens=1, **body)
            raise AssertionError(f"{field} was taken")
        except urllib.error.HTTPError as error:
            answer = json.load(error)
            assert error.code == 400 and field in json.dumps(answer), answer
            if path in ("/v1/chat/completions", "/v1/responses"):
                assert answer["error"]["param"] == field, answer


def thought_tokens(parley):
    """usage counts the tokens that have text of thoughts, the same whole, streamed, stored and over gRPC; a reply without thoughts has none."""
    client = client_of(parley)
    for model, text, thoughts in (("hermes", "<think>\nFirst this, then that.\n</think>\n\nIt rains.", "First this, then that."),
                                  ("hermes", "<think>\nOne.\n</think>\nA<think>Two.</think>B", "One."), ("hermes", "It rains.", ""),
                                  ("switch", "Hm, so it is.\n</think>\n\nYes.", "Hm, so it is."), ("switch", "Never more\n</think>", "Never more"), ("tiny", "It rains.", "")):
        asked = dict(model=model, messages=ASK, extra_body=says(text))
        whole = client.chat.completions.create(logprobs=True, **asked)
        tokens = [bytes(t.bytes) for t in whole.choices[0].logprobs.content]
        raw, at, expected = b"".join(tokens), 0, 0
        assert raw.startswith(text.encode()), raw
        ranges = [(raw.index(part.encode()), raw.index(part.encode()) + len(part)) for part in thoughts.split("|") if part]
        for token in tokens:
            expected += any(at < end and start < at + len(token) for start, end in ranges)
            at += len(token)
        assert (expected > 3) == (thoughts != "") and expected < whole.usage.completion_tokens, (expected, tokens)
        assert whole.usage.completion_tokens_details.reasoning_tokens == expected, (whole.usage, expected)
        last = list(client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **asked))[-1]
        assert last.usage.completion_tokens_details.reasoning_tokens == expected, last
        said = client.responses.create(model=model, input=ASK, extra_body=says(text))
        assert said.usage.output_tokens_details.reasoning_tokens == expected, said.usage
        assert client.responses.retrieve(said.id).usage == said.usage
        turn = dict(text=ASK[0]["content"], constraint=says_on_wire(text))
        assert parley.conversations.Ask(pb.TurnRequest(conversation=parley.open(model), **turn)).usage.reasoning_tokens == expected
        assert list(parley.conversations.Turn(pb.TurnRequest(conversation=parley.open(model), **turn)))[-1].done.usage.reasoning_tokens == expected
    twice = client.chat.completions.create(n=2, model="hermes", messages=ASK, extra_body=says(REPLIES[4][0])).usage
    once = client.chat.completions.create(model="hermes", messages=ASK, extra_body=says(REPLIES[4][0])).usage
    assert twice.completion_tokens_details.reasoning_tokens == 2 * once.completion_tokens_details.reasoning_tokens > 0


def weather_of(city: str) -> str:
    """The weather of a city.

    Args:
        city: its name
    """
    return city


def wire_tools():
    return [content.Tool(name=t["function"]["name"], description=t["function"].get("description", ""),
                         parameters=json.dumps(t["function"]["parameters"]) if "parameters" in t["function"] else "") for t in TOOLS]


def says_on_wire(text):
    return content.Constraint(choice=content.Constraint.Choice(texts=[text]))


def in_parts(events):
    """What a stream of a turn's events says: text, reasoning, calls (id, name, arguments), how it ended, and the events' cursors."""
    text, thoughts, calls, places = "", "", [], []
    for e in events:
        if e.WhichOneof("event") != "piece":
            continue
        text, thoughts = text + e.piece.text, thoughts + e.piece.reasoning
        for d in e.piece.tool_calls:
            if d.index == len(calls):
                assert d.name and len(d.id) == 9
                calls.append([d.id, d.name, ""])
            else:
                assert d.index == len(calls) - 1 and not d.name and not d.id, d
            calls[d.index][2] += d.arguments
        places.append(e.piece.next_index)
    assert events[-1].WhichOneof("event") == "done"
    return (text, thoughts, calls, harness.word(events[-1].done, "finish_reason")), places


def wired(parley):
    """gRPC: calls and reasoning come apart in pieces, in Ask's message and on Chat; results are messages; a stream goes on from each of its places."""
    for text, (said, thoughts, calls, finish) in REPLIES:
        c = parley.open("hermes")
        request = pb.TurnRequest(conversation=c, turn=1, text="x", tools=wire_tools(), constraint=says_on_wire(text))
        events = list(parley.conversations.Turn(request))
        got, places = in_parts(events)
        assert (got[0], got[1], [tuple(x[1:]) for x in got[2]], got[3]) == (said, thoughts, calls, finish), (text, got)
        for place in {p for p in places if p}:
            rest = list(parley.conversations.Turn(pb.TurnRequest(conversation=c, turn=1, tools=wire_tools(), resume_from=cursor.Cursor(
                turn=1, generation=events[0].accepted.generation, index=place))))
            i = max(k for k, e in enumerate(events) if e.piece.next_index == place)

            def joined_of(some):
                pieces = [e.piece for e in some if e.WhichOneof("event") == "piece"]
                return ["".join(p.text for p in pieces), "".join(p.reasoning for p in pieces),
                        "".join(d.id + d.name + d.arguments for p in pieces for d in p.tool_calls)]
            assert joined_of(rest) == joined_of(events[i + 1:]), (text, place)
        whole = parley.conversations.Ask(pb.TurnRequest(conversation=c, turn=1, text="x", tools=wire_tools(), constraint=says_on_wire(text)))
        assert (whole.message.text, whole.message.reasoning) == (said, thoughts) and harness.word(whole, "finish_reason") == finish
        assert [(t.id, t.name, t.arguments) for t in whole.message.tool_calls] == [tuple(x) for x in got[2]]
        tagged = parley.conversations.Chat(iter([pb.ChatRequest(tag=7, turn=request)]))
        other = in_parts([pb.TurnEvent(**{e.WhichOneof("event"): getattr(e, e.WhichOneof("event"))}) for e in tagged])[0]
        assert other == got
    # Without tools the text is all that the model wrote, unless reasoning is asked for.
    c = parley.open("hermes")
    text = REPLIES[4][0]
    plain = parley.conversations.Ask(pb.TurnRequest(conversation=c, text="x", constraint=says_on_wire(text)))
    assert plain.message.text == text and plain.message.reasoning == ""
    apart = parley.conversations.Ask(pb.TurnRequest(conversation=c, text="x", constraint=says_on_wire(text), reasoning=content.Reasoning()))
    assert apart.message.text == "It rains." and apart.message.reasoning == "Hm."
    # A forced call of any model matches its schema.
    for model in ("tiny", "hermes"):
        said = parley.conversations.Ask(pb.TurnRequest(
            conversation=parley.open(model), text="Bonn?", tools=wire_tools(), tool_choice=content.ToolChoice(name="weather", no_parallel=True)))
        assert [t.name for t in said.message.tool_calls] == ["weather"] and harness.word(said, "finish_reason") == "tool_calls"
        check_arguments(said.message.tool_calls[0].arguments)
    wrong = {"tools[0].name": dict(tools=[content.Tool(name="a b")]), "tools[0].parameters": dict(tools=[content.Tool(name="f", parameters="[")]),
             "tool_choice": dict(tool_choice=content.ToolChoice(mode=content.ToolChoice.MODE_REQUIRED)),
             "tool_choice.name": dict(tools=wire_tools(), tool_choice=content.ToolChoice(mode=content.ToolChoice.MODE_NONE, name="now")),
             "messages[0].tool_call_id": dict(text="", messages=[content.Message(role="user", text="x", tool_call_id="1")]),
             "messages[0].tool_calls": dict(text="", messages=[content.Message(role="assistant", tool_calls=[content.ToolCall(id="1")])]),
             "reasoning": dict(model="tiny", reasoning=content.Reasoning()), "reasoning.effort": dict(reasoning=content.Reasoning(effort=99))}
    for field, more in wrong.items():
        conversation = parley.open(more.pop("model", "hermes"))
        try:
            parley.conversations.Ask(pb.TurnRequest(**{"conversation": conversation, "text": "x", **more}))
            raise AssertionError(f"{field} was taken")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and field in error.details(), (field, error.details())


def kept(parleyd, flags, folder):
    """The journal keeps calls, tools and results: after a restart the conversation goes on as it would have."""
    flags = [*flags, "--data", os.path.join(folder, "data")]
    result = [content.Message(role="tool", tool_call_id="?", name="weather", text="Sun.")]

    def go_on(parley, c, **more):
        return parley.conversations.Ask(pb.TurnRequest(conversation=c, messages=result, tools=wire_tools(), **more,
                                                       sampling=harness.sampling.Sampling(max_tokens=8, temperature=0)))

    with harness.Parleyd(parleyd, *flags) as parley:
        c = parley.open("hermes")
        asked = pb.TurnRequest(conversation=c, turn=1, text="Bonn?", tools=wire_tools(), constraint=says_on_wire(REPLIES[3][0]))
        first = parley.conversations.Ask(asked)
        result[0].tool_call_id = first.message.tool_calls[0].id
        expected = go_on(parley, parley.fork(c))
        # A turn that asked for no thoughts is read so by the next server, and repeated with another wish it is another.
        calm = pb.TurnRequest(conversation=parley.open("switch"), turn=1, text="Bonn?", reasoning=content.Reasoning(effort=content.Reasoning.EFFORT_NONE),
                              sampling=harness.sampling.Sampling(max_tokens=8, temperature=0))
        calm_first, n_after = parley.conversations.Ask(calm), parley.fork(calm.conversation)
        calm_next = parley.conversations.Ask(pb.TurnRequest(conversation=n_after, text="Rome?", sampling=calm.sampling))
    with harness.Parleyd(parleyd, *flags) as parley:
        assert parley.conversations.Ask(calm).message == calm_first.message
        other = pb.TurnRequest()
        other.CopyFrom(calm)
        other.reasoning.effort = content.Reasoning.EFFORT_HIGH
        try:
            parley.conversations.Ask(other)
            raise AssertionError("another request was taken for the same")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.ALREADY_EXISTS, error
        again_next = parley.conversations.Ask(pb.TurnRequest(conversation=calm.conversation, text="Rome?", sampling=calm.sampling))
        assert again_next.message == calm_next.message and again_next.usage.prompt_tokens == calm_next.usage.prompt_tokens
        again = parley.conversations.Ask(asked)
        assert again.message == first.message
        second = go_on(parley, c, turn=2)
        assert second.message == expected.message and second.usage.prompt_tokens == expected.usage.prompt_tokens
    with harness.Parleyd(parleyd, *flags) as parley:
        transcript = parley.get(c).transcript
        assert [m for m in transcript[1].messages] == result and transcript[0].reply == REPLIES[3][0]


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    only = sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, tiny], check=True)
        flags = ["--model", f"tiny={tiny}"]
        controls = ["!<think>", "!</think>", "!<tool_call>", "!</tool_call>"]
        for name, text, tokens in (("hermes", HERMES, []), ("switch", SWITCH, []), ("controls", HERMES, controls)):
            template, model = (os.path.join(folder, f"{name}.{kind}") for kind in ("jinja", "gguf"))
            with open(template, "w", encoding="utf-8") as f:
                f.write(text)
            children.run([write_tiny_model, model, "8192", "1", template, *tokens], check=True)
            flags += ["--model", f"{name}={model}"]
        with harness.Parleyd(parleyd, *flags, "--http", "127.0.0.1:0") as parley:
            for test in (forced, old_form, round_trip, streams, free, whole_or_text, spelled, reasons_first, strict, bound, silent, responses, messages, ollama_chat, thinking, thought_tokens, wired, resumed, same_bits):
                if not only or test.__name__ in only:
                    start = time.monotonic()
                    test(parley)
                    print(f"{test.__name__}: good, {time.monotonic() - start:.2f} s", flush=True)
        if not only or "kept" in only:
            kept(parleyd, flags, folder)
            print("kept: good", flush=True)


if __name__ == "__main__":
    main()
