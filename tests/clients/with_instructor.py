"""instructor: every mode that its OpenAI client has, whole and in parts."""
from collections.abc import Iterable
from typing import Literal

import instructor
import openai
from pydantic import BaseModel, Field

from checks import CITIES, MODEL, URL, check, main

MODES = ("TOOLS", "TOOLS_STRICT", "PARALLEL_TOOLS", "FUNCTIONS", "JSON", "MD_JSON", "JSON_SCHEMA", "JSON_O1", "RESPONSES_TOOLS")


class Trip(BaseModel):
    """A trip to a city."""
    city: Literal["Bonn", "Rome"]
    days: int = Field(ge=1, le=9)


def client(mode):
    return instructor.from_openai(openai.OpenAI(base_url=URL, api_key="none", max_retries=0), mode=mode)




def one(name):
    def run():
        mode = instructor.Mode[name]
        more = {"max_retries": 1, "model": MODEL, "messages": [{"role": "user", "content": "Plan a trip of 3 days to Rome."}]}
        if name == "RESPONSES_TOOLS":
            more["max_output_tokens"] = 64
        else:
            more.update(max_tokens=64, temperature=0)
        if name == "MD_JSON":  # which asks by its prompt alone: the text is put into the model's mouth
            more["extra_body"] = {"guided_choice": ['```json\n{"city": "Rome", "days": 3}\n```']}
        if name in ("JSON", "JSON_O1"):  # json_object says nothing of members
            more["max_tokens"] = 200
            client(mode).create(response_model=Anything, **more)
            return
        if name == "PARALLEL_TOOLS":
            # It leaves the choice to the model, which was never taught calls.
            trips = list(client(mode).create(response_model=Iterable[Trip], extra_body={"tool_choice": "required"}, **more))
            assert trips and trips[0].city in CITIES
            return
        said = client(mode).create(response_model=Trip, **more)
        assert said.city in CITIES and 1 <= said.days <= 9, said
    return run


class Anything(BaseModel, extra="allow"):
    """Any object."""


for name in MODES:
    if hasattr(instructor.Mode, name):
        check(f"mode {name}")(one(name))


@check("parts of a stream")
def _():
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        *_, last = client(mode).create_partial(response_model=Trip, model=MODEL, max_tokens=64, temperature=0,
                                               messages=[{"role": "user", "content": "Plan a trip to Rome."}])
        assert last.city in CITIES, last


main("instructor")
