"""langchain-ollama, which speaks Ollama's own API: chats whole and in parts, its options, structured replies, calls, embeddings."""
from langchain_ollama import ChatOllama, OllamaEmbeddings
from pydantic import BaseModel, Field

from checks import CITIES, MODEL, TOOLS_MODEL, URL, check, main

ADDRESS = URL.removesuffix("/v1")


class Trip(BaseModel):
    """A trip to a city."""
    city: str = Field(max_length=20)
    days: int = Field(ge=1, le=9)


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sun in {city}"


def chat(model=MODEL, **more):
    return ChatOllama(model=model, base_url=ADDRESS, **{"num_predict": 64, "temperature": 0, **more})


@check("chat, with options that change nothing")
def _():
    said = chat(num_ctx=2048, repeat_last_n=64, mirostat=0, mirostat_tau=5.0, tfs_z=1.0, num_thread=2, keep_alive="5m", seed=1).invoke("What is the capital of Germany?")
    assert "Berlin" in said.content and said.usage_metadata["output_tokens"] > 0, said


@check("stream")
def _():
    parts = [part.content for part in chat().stream("What is the capital of Germany?")]
    assert len(parts) > 3 and "Berlin" in "".join(parts), parts


@check("structured")
def _():
    trip = chat().with_structured_output(Trip).invoke("Plan a trip of 3 days to Rome.")
    assert isinstance(trip, Trip) and 1 <= trip.days <= 9, trip


@check("calls")
def _():
    said = chat(TOOLS_MODEL).bind_tools([weather]).invoke(f"What is the weather in {CITIES[0]}?")
    assert said.content or said.tool_calls[0]["name"] == "weather", said


@check("log-probabilities")
def _():
    said = chat(num_predict=3, logprobs=True, top_logprobs=2).invoke("x")
    assert said.response_metadata["logprobs"], said


@check("embeddings")
def _():
    vectors = OllamaEmbeddings(model=MODEL, base_url=ADDRESS).embed_documents(["a river", "a stream"])
    assert len(vectors) == 2 and abs(sum(x * x for x in vectors[0]) - 1) < 1e-3


main("langchain-ollama")
