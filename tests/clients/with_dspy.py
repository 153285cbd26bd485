"""dspy: its language model, and signatures by the JSON adapter, whose schema the reply must follow."""
from typing import Literal

import dspy

from checks import CITIES, MODEL, URL, check, main


def lm(**more):
    return dspy.LM(f"openai/{MODEL}", api_base=URL, api_key="none", temperature=0, max_tokens=200, cache=False, num_retries=0, **more)


class Plan(dspy.Signature):
    """Plan a trip."""
    wish: str = dspy.InputField()
    city: Literal["Bonn", "Rome"] = dspy.OutputField()
    days: Literal[1, 2, 3] = dspy.OutputField()


@check("language model")
def _():
    assert lm()("Say hello.")[0]
    assert len(lm()("Say hello.", n=2, temperature=0.7)) == 2


@check("language model over responses")
def _():
    assert lm(model_type="responses")("Say hello.")[0]


@check("JSON adapter")
def _():
    with dspy.context(lm=lm(), adapter=dspy.JSONAdapter()):
        said = dspy.Predict(Plan)(wish="Three days in Rome.")
    assert said.city in CITIES and said.days in (1, 2, 3), said


@check("tool")
def _():
    def weather(city: Literal["Bonn", "Rome"]) -> str:
        """The weather of a city."""
        return f"It rains in {city}."
    said = lm()(messages=[{"role": "user", "content": "What is the weather in Rome?"}], tools=[dspy.Tool(weather).format_as_litellm_function_call()],
                tool_choice="required")
    assert said[0]["tool_calls"][0]["function"]["name"] == "weather", said


main("dspy")
