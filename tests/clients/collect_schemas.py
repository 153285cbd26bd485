#!/usr/bin/env python3
"""Collects real schemas from the packages that are named here, all that each of them has, without duplicates: every Pydantic model of some
modules, every tool of MCP servers (each is started and asked), every request body of OpenAPI files, every version of Kubernetes CRDs. Titles and
descriptions are left out. What it collects is committed, since the packages change: run it to collect it anew.

usage: collect_schemas.py [--check]      (writes real_schemas.jsonl.gz beside it; installs the packages into build/clients/collected)
exit 1: with --check, which writes nothing, what is collected is not what is committed
"""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import environments  # noqa: E402

MODULES = ("mcp.types", "fastapi.openapi.models", "ollama._types", "langchain_core.messages", "langchain_core.documents",
           "langchain_core.outputs", "langchain_core.prompts")
SERVERS = ("mcp-server-time", "mcp-server-fetch", "mcp-server-git", "mcp-server-sqlite", "duckduckgo-mcp-server", "awslabs.aws-documentation-mcp-server",
           "excel-mcp-server stdio", "word_mcp_server", "wikipedia-mcp")
FILES = {"dask_kubernetes": "*.yaml", "prance": "*", "tests/specs": "*", "tests/examples": "*"}  # folders of site-packages; prance puts its tests there

# Runs in the environment of the packages: writes lines of [kind, name, schema].
INSIDE = '''
import asyncio, importlib, inspect, json, pathlib, pkgutil, sys, sysconfig
import pydantic, yaml
modules, servers, files = json.loads(sys.argv[1])

def say(kind, name, schema):
    print(json.dumps([kind, name, schema], ensure_ascii=False), flush=True)

def models():
    for name in modules:
        package = importlib.import_module(name)
        inner = [m.name for m in pkgutil.walk_packages(package.__path__, name + ".")] if hasattr(package, "__path__") else []
        found = {}
        for module in [name, *inner]:
            for kind in vars(importlib.import_module(module)).values():
                if inspect.isclass(kind) and issubclass(kind, pydantic.BaseModel) and kind.__module__.split(".")[0] == name.split(".")[0]:
                    found[f"{kind.__module__}.{kind.__qualname__}"] = kind
        for full, kind in sorted(found.items()):
            try:
                say("pydantic", full, kind.model_json_schema())
            except Exception as e:
                print(f"no schema: {full}: {type(e).__name__}", file=sys.stderr)

async def tools(command):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    program, *arguments = command.split()
    async with stdio_client(StdioServerParameters(command=str(pathlib.Path(sys.executable).parent / program), args=arguments)) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            for tool in (await session.list_tools()).tools:
                say("mcp", f"{program}: {tool.name}", tool.inputSchema)

def reachable(document, schema):
    """The schema, with all that its references name, at the same places."""
    out = dict(schema) if isinstance(schema, dict) else {"allOf": [schema]}
    waiting, done = [schema], set()
    while waiting:
        at = waiting.pop()
        if isinstance(at, list):
            waiting.extend(at)
        elif isinstance(at, dict):
            waiting.extend(at.values())
            reference = at.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/") and reference not in done:
                done.add(reference)
                path = [part.replace("~1", "/").replace("~0", "~") for part in reference[2:].split("/")]
                target = document
                for part in path:
                    target = target[part]
                holder = out
                for part in path[:-1]:
                    holder = holder.setdefault(part, {})
                holder[path[-1]] = target
                waiting.append(target)
    return out

def bodies(name, document):
    for path, item in sorted(document.get("paths", {}).items()):
        for verb, operation in sorted((item or {}).items()):
            if not isinstance(operation, dict):
                continue
            found = [p["schema"] for p in operation.get("parameters", []) if isinstance(p, dict) and p.get("in") == "body" and "schema" in p]
            found += [c["schema"] for c in operation.get("requestBody", {}).get("content", {}).values() if "schema" in c]
            for schema in found:
                say("openapi", f"{name}: {verb} {path}", reachable(document, schema))

def documents():
    root = pathlib.Path(sysconfig.get_paths()["purelib"])
    for folder, pattern in files.items():
        for path in sorted((root / folder).rglob(pattern)):
            if path.suffix not in (".yaml", ".yml", ".json"):
                continue
            name = str(path.relative_to(root))
            try:
                read = list(yaml.safe_load_all(path.read_text())) if path.suffix != ".json" else [json.loads(path.read_text())]
            except Exception as e:
                print(f"not read: {name}: {type(e).__name__}", file=sys.stderr)
                continue
            for document in read:
                if not isinstance(document, dict):
                    continue
                if document.get("kind") == "CustomResourceDefinition":
                    for version in document["spec"].get("versions", []):
                        schema = (version.get("schema") or {}).get("openAPIV3Schema")
                        if schema:
                            say("crd", f"{name}: {document['spec']['names']['kind']} {version['name']}", schema)
                elif "swagger" in document or "openapi" in document:
                    try:
                        bodies(name, document)
                    except Exception as e:
                        print(f"not read: {name}: {type(e).__name__}: {e}", file=sys.stderr)

models()
for command in servers:
    try:
        asyncio.run(asyncio.wait_for(tools(command), 120))
    except BaseException as e:
        print(f"no tools: {command}: {type(e).__name__}: {e}", file=sys.stderr)
documents()
'''


def bare(value):
    if isinstance(value, list):
        return [bare(v) for v in value]
    if not isinstance(value, dict):
        return value
    return {k: bare(v) for k, v in value.items() if not (k in ("title", "description", "summary", "example") and isinstance(v, str))}


def main():
    python = environments.python_of("collected")
    with tempfile.TemporaryDirectory() as folder:  # some servers leave files where they are started
        done = subprocess.run([python, "-c", INSIDE, json.dumps([MODULES, SERVERS, FILES])], stdout=subprocess.PIPE, text=True, check=True, cwd=folder)
    seen, lines = set(), []
    for line in done.stdout.splitlines():
        kind, name, schema = json.loads(line)
        schema = bare(schema)
        text = json.dumps(schema, sort_keys=True)
        if text not in seen:
            seen.add(text)
            lines.append(json.dumps({"kind": kind, "name": name, "schema": schema}, ensure_ascii=False))
    out = pathlib.Path(__file__).resolve().parent / "real_schemas.jsonl.gz"
    text = "".join(line + "\n" for line in lines)
    if "--check" not in sys.argv[1:]:
        out.write_bytes(gzip.compress(text.encode(), mtime=0))
    elif gzip.decompress(out.read_bytes()).decode() != text:
        sys.exit(f"{len(lines)} schemas, which are not those of {out.name}")
    print(f"{len(lines)} schemas")


main()
