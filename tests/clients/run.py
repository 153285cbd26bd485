#!/usr/bin/env python3
"""Programs that others wrote for OpenAI's API, and ParlAI's clients of its chat services, unmodified and from PyPI, against a parleyd of their own with the default model. A line for
each check. The model is small: where a check is of the protocol, its choice is made for it (tool_choice, a schema, a single tool).

usage: run.py BUILD_DIR MODEL.gguf [PROGRAM]…      exit 3: a check failed
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "integration"), HERE]
import children  # noqa: E402
import environments  # noqa: E402

PROGRAMS = {"langchain": "frameworks", "pydantic_ai": "frameworks", "instructor": "frameworks", "openai_agents": "frameworks",
            "llama_index": "llama_index", "dspy": "frameworks", "litellm": "frameworks", "langchain_ollama": "small", "llm": "small", "open_webui": "browser", "parlai": "parlai"}
# What keeps them from telling others, and from asking the network.
QUIET = {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "DO_NOT_TRACK": "1",
         "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "none", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}
LIMIT_SECONDS = 900  # a program's


def main():
    build, model, chosen = sys.argv[1], sys.argv[2], sys.argv[3:] or list(PROGRAMS)
    unknown = [name for name in chosen if name not in PROGRAMS]
    if unknown:
        sys.exit(f"no program is called {unknown[0]}; there are: {', '.join(PROGRAMS)}")
    failed = []
    with children.Daemon(f"{build}/parleyd", "--http", "127.0.0.1:0", "--model", f"smollm2={model}", "--model", f"tools={model}",
                         "--chat-template", f"tools={HERE}/tools.jinja", "--service", f"{HERE}/parlai.yaml") as parley:
        for name in chosen:
            command = [environments.python_of(PROGRAMS[name]), f"{HERE}/with_{name}.py", f"http://{parley.http}/v1", "smollm2"]
            more = {"OPEN_WEBUI": environments.program_of("open_webui", "open-webui")} if name == "open_webui" else {}
            if children.run(command, timeout=LIMIT_SECONDS, env=os.environ | QUIET | more).returncode != 0:
                failed.append(name)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} programs without a failure", flush=True)
    sys.exit(3 if failed else 0)


if __name__ == "__main__":
    main()
