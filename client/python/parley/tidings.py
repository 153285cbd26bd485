"""What a worker tells those who run it, on stderr: what it serves and to whom, what it waits for, and what its agents have raised."""
from __future__ import annotations

import os
import sys
import time
import traceback

from parley.v1 import agents_pb2 as pb
from parley.wire import SAY_AFTER_S, Error

PACKAGE = os.path.dirname(os.path.abspath(__file__))


def say(text: str) -> None:
    """At once, so that the lines of several threads do not mix."""
    sys.stderr.write(f"parley: {text}\n")
    sys.stderr.flush()


def told(name: str, e: BaseException) -> str:
    """Prints the trace of what an agent, or the like, has raised, from its own code on. Returns what its client is told."""
    trace = e.__traceback__
    while trace is not None and os.path.dirname(os.path.abspath(trace.tb_frame.f_code.co_filename)) == PACKAGE:
        trace = trace.tb_next
    say(f"'{name}' failed:\n" + "".join(traceback.format_exception(type(e), e, trace)).rstrip("\n"))
    return f"{type(e).__name__}: {e}".replace("\n", " ")[:500]


class Tidings:
    """Tells on stderr what is served and to whom, and, after a second without a daemon, what is waited for: once for each cause."""

    def __init__(self, address: str) -> None:
        self.address, self.name, self.said = address, "", ""
        self.since: float | None = None  # when the first attempt failed; None: none has, or the last one has not

    def offered(self, request: pb.AgentsAttachRequest) -> pb.AgentsAttachRequest:
        self.name = request.offer.name
        return request

    def taken(self, order: pb.AgentsAttachResponse) -> None:
        if order.WhichOneof("what") == "accepted":
            self.since, self.said = None, ""
            say(f"serving '{self.name}' to the daemon at {self.address}")

    def failed(self, error: Error) -> None:
        now = time.monotonic()
        self.since = now if self.since is None else self.since
        if now - self.since >= SAY_AFTER_S and error.message != self.said:
            self.said = error.message
            say(f"waiting to serve '{self.name}': {error.message}")
