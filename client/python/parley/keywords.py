"""Names that the caller wrote, checked before anything is sent: one that is not known is refused with the one that is meant."""
from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")
MEANT = {"content": "text", "max_completion_tokens": "max_tokens", "n_predict": "max_tokens", "num_predict": "max_tokens"}  # other APIs' names


def unknown(what: str, name: str, known: Iterable[str]) -> TypeError:
    """Returns the error of a name that is not known. what: what has no such name."""
    names = sorted(known)
    near = [MEANT[name]] if MEANT.get(name) in names else difflib.get_close_matches(name, names, 1, 0.6)
    hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(names)}"
    return TypeError(f"{what} has no '{name}': {hint}")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Has a function say, of a keyword that it does not know, which one is meant. Python does from 3.13 on."""
    parameters = inspect.signature(function).parameters.values()
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    needed = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    title = f"parley.{'aio.' if function.__module__.endswith('aio') else ''}{function.__name__}()"

    @functools.wraps(function)
    def wrapper(*args: P.args, **more: P.kwargs) -> R:
        for name in more.keys() - names:
            raise unknown(title, name, names)
        for name in needed[len(args):]:
            if name not in more:
                raise TypeError(f"{title} needs {name}, which is missing")
        return function(*args, **more)

    return wrapper


def named(name: Any, decorator: str) -> None:
    """Refuses a decorator that was written without its name."""
    if not isinstance(name, str):
        raise TypeError(f"a name is missing: write @parley.{decorator}(\"NAME\"), not @parley.{decorator}")


def message_of(kind: Callable[..., M], what: str, fields: Mapping[str, Any], also: Iterable[str] = ()) -> M:
    """Makes a protobuf message of fields by name. also: names that the caller may write beside these."""
    try:
        return kind(**fields)
    except (TypeError, ValueError) as e:
        raise _wrong_field(kind, what, fields, also) or e from None


def _wrong_field(kind: Callable[..., Any], what: str, fields: Mapping[str, Any], also: Iterable[str]) -> Exception | None:
    known = {field.name for field in kind().DESCRIPTOR.fields}
    for name, value in fields.items():
        if name not in known:
            return unknown(what, name, known.union(also))
        try:
            kind(**{name: value})
        except (TypeError, ValueError) as e:
            return type(e)(f"{what}: {name} must not be {value!r}: {e}")
    return None
