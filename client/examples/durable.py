"""An agent that may be killed anywhere, with its daemon or without, and is simply run again from its beginning: replies that there are cost
nothing and are the same, and no tool does its work twice. It needs no framework: the loop has a name, each request a key that follows from it,
each call of a tool the `idempotency_key` that the daemon gives it. The daemon needs --data.

usage: durable.py openai|anthropic|parley HOST:PORT LOOP LEDGER [TURNS]      (pip install openai anthropic, or the parley package)
       HOST:PORT is HTTP's, and gRPC's for parley. LOOP is the name of the loop, LEDGER a file: the world on which the tools have effects."""
import json
import sqlite3
import sys

TASK = "You keep a till. Pay out, or note something, one step after the other."
TOOLS = {
    "pay": ("Pays out an amount.", {"type": "object", "properties": {"amount": {"type": "integer", "minimum": 1, "maximum": 999}}, "required": ["amount"],
                                    "additionalProperties": False}),
    "note": ("Writes a note.", {"type": "object", "properties": {"about": {"enum": ["rent", "food", "travel"]}}, "required": ["about"],
                                "additionalProperties": False}),
}


class Ledger:
    """What the tools do is written in one transaction with the key of the call: a second time it is not done, and has the result of the first."""

    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None, timeout=60)
        self.db.execute("CREATE TABLE IF NOT EXISTS effects (key TEXT PRIMARY KEY, tool TEXT, arguments TEXT, result TEXT)")

    def do(self, tool, arguments, key):
        self.db.execute("BEGIN IMMEDIATE")
        done = self.db.execute("SELECT result FROM effects WHERE key = ?", (key,)).fetchone()
        if done is None:
            (before,) = self.db.execute("SELECT count(*) FROM effects WHERE tool = ?", (tool,)).fetchone()
            done = (f"{tool} number {before + 1} is done",)
            self.db.execute("INSERT INTO effects VALUES (?, ?, ?, ?)", (key, tool, arguments, *done))
        self.db.execute("COMMIT")
        return done[0]


def by_openai(address, loop, ledger, turns):
    from openai import OpenAI

    client = OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=20)
    model = client.models.list().data[0].id
    tools = [{"type": "function", "function": {"name": name, "description": what, "parameters": schema}} for name, (what, schema) in TOOLS.items()]
    messages = [{"role": "user", "content": TASK}]
    for turn in range(1, turns + 1):
        reply = client.chat.completions.create(model=model, messages=messages, tools=tools, tool_choice="required", parallel_tool_calls=False, seed=turn,
                                               extra_headers={"Idempotency-Key": f"{loop}-{turn}"})
        said = reply.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        for c in said.tool_calls:
            result = ledger.do(c.function.name, c.function.arguments, c.idempotency_key)
            messages.append({"role": "tool", "tool_call_id": c.id, "content": result})
            yield c.function.name, c.function.arguments, result, c.idempotency_key, reply.usage.completion_tokens


def by_anthropic(address, loop, ledger, turns):
    from anthropic import Anthropic

    client = Anthropic(base_url=f"http://{address}", api_key="none", max_retries=20)
    model = client.models.list().data[0].id
    tools = [{"name": name, "description": what, "input_schema": schema} for name, (what, schema) in TOOLS.items()]
    messages = [{"role": "user", "content": TASK}]
    for turn in range(1, turns + 1):
        reply = client.messages.create(model=model, messages=messages, tools=tools, tool_choice={"type": "any", "disable_parallel_tool_use": True},
                                       max_tokens=100, extra_body={"seed": turn}, extra_headers={"Idempotency-Key": f"{loop}-{turn}"})
        calls = [block for block in reply.content if block.type == "tool_use"]
        messages.append({"role": "assistant", "content": reply.content})
        results = []
        for c in calls:
            result = ledger.do(c.name, json.dumps(c.input), c.idempotency_key)
            results.append({"type": "tool_result", "tool_use_id": c.id, "content": result})
            yield c.name, json.dumps(c.input), result, c.idempotency_key, reply.usage.output_tokens
        messages.append({"role": "user", "content": results})


def by_parley(address, loop, ledger, turns):
    import parley

    tools = [{"name": name, "description": what, "parameters": schema} for name, (what, schema) in TOOLS.items()]
    with parley.connect(address, patience=60) as server:
        chat = server.open(request_id=loop)  # the same conversation in each run; its turns are numbered from 1
        said = TASK
        for turn in range(1, turns + 1):
            reply = chat.ask(said, tools=tools, tool_choice="required", parallel_tool_calls=False, seed=turn)
            said = []
            for c in reply.tool_calls:
                result = ledger.do(c.name, c.arguments, c.idempotency_key)
                said.append({"role": "tool", "tool_call_id": c.id, "text": result})
                yield c.name, c.arguments, result, c.idempotency_key, reply.completion_tokens


LOOPS = {"openai": by_openai, "anthropic": by_anthropic, "parley": by_parley}


def main():
    how, address, loop, ledger, turns = (sys.argv[1:] + ["43"])[:5]
    for name, arguments, result, key, _ in LOOPS[how](address, loop, Ledger(ledger), int(turns)):
        print(name, arguments, "→", result, key, flush=True)


if __name__ == "__main__":
    main()
