"""pydantic-ai: its three ways to an output, tools, streams, and the Responses model."""
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, PromptedOutput, Tool, ToolOutput
from pydantic_ai.direct import model_request_sync
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

from checks import CITIES, MODEL, URL, check, main

PROVIDER = OpenAIProvider(base_url=URL, api_key="none")
SETTINGS = {"temperature": 0.0, "max_tokens": 64}


class Trip(BaseModel):
    city: Literal["Bonn", "Rome"]
    days: int = Field(ge=1, le=9)


def chat():
    return OpenAIChatModel(MODEL, provider=PROVIDER)


def responses():
    return OpenAIResponsesModel(MODEL, provider=PROVIDER)


def is_trip(trip):
    return trip.city in CITIES and 1 <= trip.days <= 9


@check("text")
def _():
    said = Agent(chat(), model_settings=SETTINGS, instructions="Be brief.").run_sync("Say hello.")
    assert said.output and said.usage.output_tokens > 0, said


@check("stream")
def _():
    assert Agent(chat(), model_settings=SETTINGS).run_stream_sync("Say hello.").get_output()


@check("history")
def _():
    agent = Agent(chat(), model_settings=SETTINGS)
    first = agent.run_sync("Say hello.")
    assert agent.run_sync("And again.", message_history=first.all_messages()).output


@check("output by a tool")
def _():
    assert is_trip(Agent(chat(), output_type=ToolOutput(Trip), model_settings=SETTINGS).run_sync("Plan a trip to Rome.").output)


@check("output by a tool, streamed")
def _():
    assert is_trip(Agent(chat(), output_type=Trip, model_settings=SETTINGS).run_stream_sync("Plan a trip to Rome.").get_output())


@check("native output")
def _():
    assert is_trip(Agent(chat(), output_type=NativeOutput(Trip), model_settings=SETTINGS).run_sync("Plan a trip to Rome.").output)
    assert is_trip(Agent(chat(), output_type=NativeOutput(Trip, strict=True), model_settings=SETTINGS).run_sync("Plan a trip to Rome.").output)


@check("prompted output")
def _():
    # It sends json_object, which says nothing of members: the schema stands beside it, as llama-server's users write it.
    schema = {"type": "json_object", "schema": Trip.model_json_schema()}
    assert is_trip(Agent(chat(), output_type=PromptedOutput(Trip), model_settings=SETTINGS | {"extra_body": {"response_format": schema}}).run_sync("Plan a trip to Rome.").output)


@check("a tool, its result, an answer")
def _():
    seen = []

    def weather(city: Literal["Bonn", "Rome"]) -> str:
        """The weather of a city."""
        seen.append(city)
        return "It rains."

    call = [ModelRequest([UserPromptPart("What is the weather in Rome?")]), ModelResponse([ToolCallPart("weather", {"city": "Rome"}, "call_1")])]
    said = Agent(chat(), tools=[Tool(weather)], model_settings=SETTINGS).run_sync(message_history=call)
    assert seen == ["Rome"] and said.output, said


@check("a tool's arguments, by a direct request")
def _():
    tool = ToolDefinition(name="weather", parameters_json_schema={"type": "object", "properties": {"city": {"enum": list(CITIES)}}, "required": ["city"]})
    for model in (chat(), responses()):
        said = model_request_sync(model, [ModelRequest([UserPromptPart("What is the weather in Rome?")])], model_settings=SETTINGS | {"tool_choice": "required"},
                                  model_request_parameters=ModelRequestParameters(function_tools=[tool], allow_text_output=False))
        assert said.tool_calls[0].args_as_dict()["city"] in CITIES, said


@check("responses: text, output by a tool, native output")
def _():
    assert Agent(responses(), model_settings=SETTINGS).run_sync("Say hello.").output
    assert is_trip(Agent(responses(), output_type=Trip, model_settings=SETTINGS).run_sync("Plan a trip to Rome.").output)
    assert is_trip(Agent(responses(), output_type=NativeOutput(Trip), model_settings=SETTINGS).run_sync("Plan a trip to Rome.").output)


main("pydantic-ai")
