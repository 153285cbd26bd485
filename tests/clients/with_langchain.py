"""langchain-openai: chat, streams, tools, structured output by each of its methods, embeddings, and langchain's agent."""
from typing import Literal

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

from checks import CITIES, MODEL, URL, check, main


class Trip(BaseModel):
    """A trip to a city."""
    city: Literal["Bonn", "Rome"]
    days: int = Field(ge=1, le=9)


@tool
def weather(city: Literal["Bonn", "Rome"]) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


def model(**more):
    return ChatOpenAI(model=MODEL, base_url=URL, api_key="none", temperature=0, max_tokens=64, max_retries=0, timeout=120, **more)


@check("chat")
def _():
    said = model().invoke("Say hello.")
    assert said.content and said.usage_metadata["output_tokens"] > 0, said


@check("stream")
def _():
    parts = list(model(stream_usage=True).stream([("system", "Be brief."), ("human", "Say hello.")]))
    assert len(parts) > 2 and "".join(p.content for p in parts), parts
    assert any(p.usage_metadata for p in parts)


@check("log-probabilities")
def _():
    said = model().bind(logprobs=True, top_logprobs=2).invoke("Say hello.")
    assert len(said.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 2


@check("tools, named and required")
def _():
    for choice in ("weather", "any", "required"):
        said = model().bind_tools([weather], tool_choice=choice).invoke("What is the weather in Rome?")
        assert said.tool_calls[0]["name"] == "weather" and said.tool_calls[0]["args"]["city"] in CITIES, said


@check("tools, their choice left to the model")
def _():
    said = model().bind_tools([weather]).invoke("What is the weather in Rome?")
    assert said.content or said.tool_calls, said


@check("tools, streamed")
def _():
    whole = None
    for part in model().bind_tools([weather], tool_choice="required").stream("What is the weather in Rome?"):
        whole = part if whole is None else whole + part
    assert whole.tool_calls[0]["args"]["city"] in CITIES, whole


@check("results of tools")
def _():
    call = {"name": "weather", "args": {"city": "Rome"}, "id": "call_1", "type": "tool_call"}
    said = model().bind_tools([weather], tool_choice="none").invoke(
        [HumanMessage("What is the weather in Rome?"), AIMessage("", tool_calls=[call]), ToolMessage("It rains.", tool_call_id="call_1")])
    assert said.content and not said.tool_calls, said


def structured(method, **more):
    said = model().with_structured_output(Trip, method=method, **more).invoke("Plan a trip to Rome, 3 days.")
    assert said.city in CITIES and 1 <= said.days <= 9, said


@check("structured output, json_schema")
def _():
    structured("json_schema")
    structured("json_schema", strict=True)


@check("structured output, function_calling")
def _():
    structured("function_calling")
    structured("function_calling", strict=True)


@check("structured output, json_mode")
def _():
    # Any object will do: the model is too small to be told which.
    said = model().with_structured_output(None, method="json_mode").invoke('Answer with JSON, as {"city": "Rome"}.')
    assert isinstance(said, dict), said


@check("responses")
def _():
    said = model(use_responses_api=True).bind_tools([weather], tool_choice="required").invoke("What is the weather in Rome?")
    assert said.tool_calls[0]["args"]["city"] in CITIES, said
    assert model(use_responses_api=True).invoke("Say hello.").text


@check("agent: a tool, its result, an answer")
def _():
    @wrap_model_call
    def call_once(request, handler):  # a small model would call for ever, or never
        is_told = any(isinstance(m, ToolMessage) for m in request.messages)
        return handler(request.override(tool_choice="none" if is_told else "weather"))
    said = create_agent(model(), tools=[weather], middleware=[call_once], system_prompt="Be brief.").invoke({"messages": [("user", "What is the weather in Rome?")]})
    kinds = [type(m) for m in said["messages"]]
    assert kinds == [HumanMessage, AIMessage, ToolMessage, AIMessage], kinds


@check("agent: a structured answer, by a tool and by a schema")
def _():
    for strategy in (ToolStrategy(Trip), ProviderStrategy(Trip)):
        said = create_agent(model(), tools=[], response_format=strategy).invoke({"messages": [("user", "Plan a trip to Rome.")]}, {"recursion_limit": 10})
        assert said["structured_response"].city in CITIES, said


@check("embeddings")
def _():
    numbers = OpenAIEmbeddings(model=MODEL, base_url=URL, api_key="none", check_embedding_ctx_length=False).embed_documents(["one", "two"])
    assert len(numbers) == 2 and abs(sum(x * x for x in numbers[0]) - 1) < 1e-3


main("langchain-openai")
