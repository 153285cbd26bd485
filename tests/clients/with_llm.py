"""llm, a command: chats whole and in parts, options, a schema, tools, completions."""
import json
import os
import subprocess
import sys
import tempfile

from checks import MODEL, URL, check, main

HOME = tempfile.TemporaryDirectory()
MODELS = f"""- model_id: chat
  model_name: {MODEL}
  api_base: {URL}
  supports_schema: true
  supports_tools: true
- model_id: text
  model_name: {MODEL}
  api_base: {URL}
  completion: true
"""
with open(os.path.join(HOME.name, "extra-openai-models.yaml"), "w", encoding="utf-8") as file:
    file.write(MODELS)


def llm(*arguments):
    done = subprocess.run([sys.executable, "-m", "llm", "--key", "none", *arguments], env=os.environ | {"LLM_USER_PATH": HOME.name}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@check("chat, streamed and whole")
def _():
    for more in ((), ("--no-stream",)):
        said = llm("-m", "chat", "What is the capital of Germany?", "-o", "temperature", "0", "-o", "max_tokens", "20", *more)
        assert "Berlin" in said, said


@check("options")
def _():
    assert llm("-m", "chat", "Hi", "-o", "max_tokens", "3", "-o", "seed", "7", "-o", "top_p", "0.9", "-o", "stop", "zzz", "-o", "presence_penalty", "0.5",
               "-o", "frequency_penalty", "0.5", "-o", "logit_bias", '{"5": -100}').strip()


@check("schema")
def _():
    said = json.loads(llm("-m", "chat", "Name a river.", "--schema", "name, km int", "-o", "temperature", "0", "-o", "max_tokens", "100"))
    assert isinstance(said["km"], int) and isinstance(said["name"], str), said


@check("tools")
def _():
    assert llm("-m", "chat", "What time is it?", "-T", "llm_time", "-o", "max_tokens", "20").strip()


@check("completion")
def _():
    assert "Paris" in llm("-m", "text", "The capital of France is", "-o", "max_tokens", "5", "-o", "temperature", "0", "-o", "logprobs", "2")


main("llm")
