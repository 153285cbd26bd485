"""openai-agents: tools, hand-offs, output types, over chat completions and over Responses."""
import asyncio
from typing import Literal

import agents
import openai
from pydantic import BaseModel, Field

from checks import CITIES, MODEL, URL, check, main

agents.set_tracing_disabled(True)
CLIENT = openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)
LOOP = asyncio.new_event_loop()  # one for all: a client's connections stay in theirs
SEEN = []


class Trip(BaseModel):
    city: Literal["Bonn", "Rome"]
    days: int = Field(ge=1, le=9)


@agents.function_tool
def weather(city: Literal["Bonn", "Rome"]) -> str:
    """The weather of a city."""
    SEEN.append(city)
    return "It rains."


def models():
    yield agents.OpenAIChatCompletionsModel(MODEL, CLIENT)
    yield agents.OpenAIResponsesModel(MODEL, CLIENT)


def settings(**more):
    # Over Responses a reply that is cut is an error there.
    return agents.ModelSettings(temperature=0, max_tokens=600, **more)


def run(agent, text="What is the weather in Rome?", **more):
    return LOOP.run_until_complete(agents.Runner.run(agent, text, max_turns=6, **more))


@check("text")
def _():
    for model in models():
        assert run(agents.Agent("a", instructions="Be brief.", model=model, model_settings=settings()), "Say hello.").final_output


@check("stream")
def _():
    async def stream(model):
        result = agents.Runner.run_streamed(agents.Agent("a", model=model, model_settings=settings()), "Say hello.")
        return [event async for event in result.stream_events()], result.final_output
    for model in models():
        events, said = LOOP.run_until_complete(stream(model))
        assert len(events) > 3 and said, events


@check("a tool, its result, and an answer")
def _():
    for model in models():
        SEEN.clear()
        # After the first call the choice is the model's again: reset_tool_choice.
        said = run(agents.Agent("a", model=model, tools=[weather], model_settings=settings(tool_choice="required")))
        assert SEEN and SEEN[0] in CITIES and said.final_output is not None, said


@check("a tool, named, streamed")
def _():
    async def stream(model):
        agent = agents.Agent("a", model=model, tools=[weather], model_settings=settings(tool_choice="weather"), tool_use_behavior="stop_on_first_tool")
        result = agents.Runner.run_streamed(agent, "What is the weather in Rome?")
        return [event async for event in result.stream_events()], result.final_output
    for model in models():
        assert LOOP.run_until_complete(stream(model))[1] == "It rains."


@check("an output type")
def _():
    for model in models():
        trip = run(agents.Agent("a", model=model, output_type=Trip, model_settings=settings()), "Plan a trip to Rome.").final_output
        assert trip.city in CITIES and 1 <= trip.days <= 9, trip


@check("a hand-off")
def _():
    for model in models():
        other = agents.Agent("other", instructions="You are brief.", model=model, model_settings=settings())
        first = agents.Agent("first", instructions="Hand over.", model=model, handoffs=[other], model_settings=settings(tool_choice="required"))
        assert run(first).last_agent is other


@check("a hand-off with tools, and a session")
def _():
    async def both(model):
        session = agents.SQLiteSession("s")
        other = agents.Agent("other", model=model, tools=[weather], model_settings=settings(tool_choice="required"))
        first = agents.Agent("first", model=model, handoffs=[other], model_settings=settings(tool_choice="transfer_to_other"))
        one = await agents.Runner.run(first, "What is the weather in Rome?", session=session, max_turns=6)
        return one, await agents.Runner.run(agents.Agent("a", model=model, model_settings=settings()), "Thanks.", session=session)
    for model in models():
        SEEN.clear()
        one, two = LOOP.run_until_complete(both(model))
        assert one.last_agent.name == "other" and SEEN and two.final_output is not None


main("openai-agents")
