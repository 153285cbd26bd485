#!/usr/bin/env python3
"""Draws the schemas of `./run bench schemas` by a seed, in three equal parts: the official JSON-Schema suite, tools and models of programs that
ask for JSON, and generated ones. What it draws is committed, since the programs change: run it in build/clients/frameworks to draw others.

usage: draw_schemas.py SUITE OPEN_WEBUI_TOOLS.py [SEED] >tests/clients/schemas.jsonl      (SUITE: the folder that holds draft2020-12)
"""
import ast
import importlib
import inspect
import json
import pathlib
import pkgutil
import random
import sys
import typing

import pydantic

SHARES = {"suite": 67, "programs": 67, "generated": 66}
PACKAGES = ("langchain.agents", "langchain_core.utils", "langchain_core.outputs", "instructor", "agents", "openai.types.chat", "openai.types.responses", "mcp.types")
MAX_BYTES = 8000


def suite(folder):
    for path in sorted((folder / "draft2020-12").glob("*.json")):
        for case in json.loads(path.read_text()):
            if isinstance(case["schema"], dict) and any(t["valid"] for t in case["tests"]):
                yield f"{path.stem}: {case['description']}", case["schema"]


def webui_tools(path):
    """The parameters of the tools that Open WebUI attaches to each chat, from their signatures."""
    names = {"Optional": typing.Optional, "Literal": typing.Literal, "Any": typing.Any, "dict": dict, "list": list}
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        defaults = [...] * (len(node.args.args) - len(node.args.defaults)) + [ast.unparse(d) for d in node.args.defaults]
        members = {}
        for argument, default in zip(node.args.args, defaults):
            if argument.arg.startswith("_") or argument.annotation is None:
                continue
            try:
                kind = eval(ast.unparse(argument.annotation), {}, names)  # noqa: S307: the signature of a file that is installed here
                members[argument.arg] = (kind, ... if default is ... else ast.literal_eval(default))
            except (NameError, ValueError):  # what is handed to it by the program
                continue
        if members:
            yield f"open-webui: {node.name}", pydantic.create_model(node.name, **members).model_json_schema()


def models():
    found = {}
    for name in PACKAGES:
        package = importlib.import_module(name)
        inner = [m.name for m in pkgutil.walk_packages(package.__path__, name + ".")] if hasattr(package, "__path__") else []
        for module in [name, *inner]:
            try:
                members = vars(importlib.import_module(module)).values()
            except Exception:  # what a module lacks is of no interest
                continue
            for kind in members:
                if inspect.isclass(kind) and issubclass(kind, pydantic.BaseModel) and kind.__module__.startswith(name):
                    found[f"{kind.__module__}.{kind.__qualname__}"] = kind
    for name in sorted(found):
        try:
            schema = found[name].model_json_schema()
        except Exception:
            continue
        if schema.get("properties") and len(json.dumps(schema)) <= MAX_BYTES:
            yield name, schema


def generated(chance, depth=0):
    """As pydantic writes them, by turns of a die."""
    kinds = ["string", "integer", "number", "boolean", "enum", "const", "format", "pattern", "null"] + ["object", "array", "anyOf"] * (2 if depth < 3 else 0)
    kind = "object" if depth == 0 else chance.choice(kinds)
    if kind == "object":
        names = chance.sample(["name", "city", "age", "tags", "id", "when", "price", "notes", "owner", "items", "is_open", "größe"], chance.randint(1, 5))
        return {"type": "object", "properties": {n: generated(chance, depth + 1) for n in names},
                "required": [n for n in names if chance.random() < 0.7], "additionalProperties": False}
    if kind == "array":
        least = chance.randint(0, 2)
        return {"type": "array", "items": generated(chance, depth + 1)} | chance.choice([{}, {"minItems": least, "maxItems": least + chance.randint(0, 4)}])
    if kind == "anyOf":
        return {"anyOf": [generated(chance, depth + 1), {"type": "null"}], "default": None}
    if kind == "string":
        return {"type": "string"} | chance.choice([{}, {}, {"maxLength": chance.randint(1, 40)}, {"minLength": 1}])
    if kind in ("integer", "number"):
        least = chance.randint(-100, 100)
        return {"type": kind} | chance.choice([{}, {"minimum": least}, {"minimum": least, "maximum": least + chance.randint(1, 1000)}])
    return {"boolean": {"type": "boolean"}, "null": {"type": "null"}, "const": {"const": chance.choice(["a", 1, True, None])},
            "enum": {"enum": chance.sample(["red", "green", "blue", 1, 2.5, None], chance.randint(1, 5))},
            "format": {"type": "string", "format": chance.choice(["date", "date-time", "uuid", "ipv4", "email"])},
            "pattern": {"type": "string", "pattern": chance.choice(["^[A-Z]{3}-[0-9]{2,4}$", "^[a-z]+$", "^(yes|no)$"])}}[kind]


def main():
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 24
    chance = random.Random(seed)
    tools = sorted(webui_tools(pathlib.Path(sys.argv[2])), key=str)
    others = sorted(dict(models()).items())
    parts = {"suite": chance.sample(sorted(suite(pathlib.Path(sys.argv[1])), key=str), SHARES["suite"]),
             "programs": tools[:SHARES["programs"]] + chance.sample(others, max(0, SHARES["programs"] - len(tools))),
             "generated": [(f"seed {seed}, {i}", generated(chance)) for i in range(SHARES["generated"])]}
    for part, schemas in parts.items():
        for name, schema in schemas:
            print(json.dumps({"part": part, "name": name, "schema": schema}, ensure_ascii=False))


main()
