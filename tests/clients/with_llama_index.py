"""llama-index's OpenAILike: chat, completion, streams, tools, structured output."""
from typing import Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field

from checks import CITIES, MODEL, URL, check, main


class Trip(BaseModel):
    """A trip to a city."""
    city: Literal["Bonn", "Rome"]
    days: int = Field(ge=1, le=9)


def weather(city: Literal["Bonn", "Rome"]) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


def llm(**more):
    return OpenAILike(model=MODEL, api_base=URL, api_key="none", temperature=0, max_tokens=64, max_retries=0, is_chat_model=True, is_function_calling_model=True, **more)


@check("chat and its stream")
def _():
    assert llm().chat([ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Say hello.")]).message.content
    assert len(list(llm().stream_chat([ChatMessage(role="user", content="Say hello.")]))) > 2


@check("completion")
def _():
    assert OpenAILike(model=MODEL, api_base=URL, api_key="none", temperature=0, max_tokens=16, is_chat_model=False).complete("Once upon a time").text


@check("tools")
def _():
    said = llm().chat_with_tools([FunctionTool.from_defaults(weather)], user_msg="What is the weather in Rome?", tool_required=True)
    calls = llm().get_tool_calls_from_response(said)
    assert calls[0].tool_name == "weather" and calls[0].tool_kwargs["city"] in CITIES, calls


@check("predict and call")
def _():
    said = llm().predict_and_call([FunctionTool.from_defaults(weather)], user_msg="What is the weather in Rome?", tool_required=True)
    assert "It rains in" in str(said), said


@check("structured output, by a tool and by a schema")
def _():
    for should in (False, True):
        one = llm(should_use_structured_outputs=should).as_structured_llm(Trip).chat([ChatMessage(role="user", content="Plan a trip to Rome.")]).raw
        assert one.city in CITIES and 1 <= one.days <= 9, one


main("llama-index")
