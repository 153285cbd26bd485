"""litellm: the SDK with both of its providers for such servers, and its proxy with the openai client before it."""
import json
import os
import subprocess
import tempfile

import litellm
import openai

from checks import CITIES, MODEL, URL, check, free_port, main, until_up

SCHEMA = {"type": "object", "properties": {"city": {"enum": list(CITIES)}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["city", "days"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "trip", "strict": True, "schema": SCHEMA}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city.",
                                           "parameters": {"type": "object", "properties": {"city": {"enum": list(CITIES)}}, "required": ["city"]}}}]
ASK = [{"role": "user", "content": "What is the weather in Rome?"}]


def complete(provider, **more):
    return litellm.completion(model=f"{provider}/{MODEL}", api_base=URL, api_key="none", messages=ASK, temperature=0, max_tokens=64, num_retries=0, **more)


def sdk(provider):
    assert complete(provider).choices[0].message.content
    parts = list(complete(provider, stream=True, stream_options={"include_usage": True}))
    assert len(parts) > 2 and parts[-1].usage.completion_tokens > 0
    call = complete(provider, tools=TOOLS, tool_choice="required").choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments)["city"] in CITIES
    trip = json.loads(complete(provider, response_format=FORMAT).choices[0].message.content)
    assert trip["city"] in CITIES
    assert litellm.text_completion(model=f"text-completion-openai/{MODEL}", api_base=URL, api_key="none", prompt="Once", max_tokens=8).choices[0].text


@check("SDK, openai")
def _():
    sdk("openai")


@check("SDK, hosted_vllm")
def _():
    sdk("hosted_vllm")


@check("SDK, embeddings and responses")
def _():
    assert len(litellm.embedding(model=f"openai/{MODEL}", api_base=URL, api_key="none", input=["one", "two"]).data) == 2
    said = litellm.responses(model=f"openai/{MODEL}", api_base=URL, api_key="none", input="Say hello.", max_output_tokens=16)
    assert said.output, said


@check("proxy")
def _():
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.yaml")
        with open(config, "w", encoding="utf-8") as file:  # JSON is YAML
            json.dump({"model_list": [{"model_name": "small", "litellm_params": {"model": f"openai/{MODEL}", "api_base": URL, "api_key": "none"}}],
                       "general_settings": {"master_key": "sk-proxy"}, "litellm_settings": {"num_retries": 0}}, file)
        with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            proxy = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", os.path.join(os.path.dirname(os.sys.executable), "litellm"), "--config", config,
                                      "--host", "127.0.0.1", "--port", str(port)], stdout=log, stderr=log)
            try:
                until_up(f"http://127.0.0.1:{port}/health/liveliness", proxy, log)
                through(port)
            finally:
                proxy.kill()
                proxy.wait()


def through(port):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-proxy", max_retries=0)
    ask = {"model": "small", "messages": ASK, "temperature": 0, "max_tokens": 64}
    assert client.chat.completions.create(**ask).choices[0].message.content
    assert len(list(client.chat.completions.create(stream=True, **ask))) > 2
    call = client.chat.completions.create(tools=TOOLS, tool_choice="required", **ask).choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments)["city"] in CITIES
    assert json.loads(client.chat.completions.create(response_format=FORMAT, **ask).choices[0].message.content)["city"] in CITIES
    assert client.responses.create(model="small", input="Say hello.", max_output_tokens=16).output


main("litellm")
