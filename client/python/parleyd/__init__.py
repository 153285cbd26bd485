"""The programs parleyd and parley, which the wheels for Linux carry in this package. What Python programs use is the package parley.

`parleyd` and `parley` in a virtual environment's bin run them, and `python -m parleyd` runs parleyd."""
import os
import sys
from typing import NoReturn


def path(name: str) -> str:
    """Where the program `parleyd` or `parley` is."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)


def _become(name: str) -> NoReturn:
    os.execv(path(name), [name, *sys.argv[1:]])


def daemon() -> NoReturn:
    _become("parleyd")


def command_line() -> NoReturn:
    _become("parley")
