#!/usr/bin/env python3
"""Hostile constraints against a real parleyd, over HTTP and gRPC: what has no finite reply is refused with a sentence, what takes too
much work or memory ends, nothing of parleyd grows; and processes that compile end with their client, by kill -9 of theirs or of the
daemon, and by an orderly stop.

usage: test_bombs.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has grpcio; see venv.sh)
"""
import http.client
import json
import os
import pathlib
import signal
import sys
import tempfile

import grpc

import bombs
import children
import harness
from children import until
from harness import content, conversations as pb

ENDLESS = "no reply is finite"
# What is refused, and what its sentence has.
REFUSED = {
    "array of itself, one at least": ENDLESS,
    "object of itself": ENDLESS,
    "30 $defs that double": "its shortest reply has 5368709116 bytes",
    "arrays of arrays of 512": "its shortest reply has",
    "pattern of 10^6 repetitions": "pattern",
    "a rule of itself": ENDLESS,
    "a circle of rules": ENDLESS,
    "30 rules that double": "its shortest reply has 1073741824 bytes",
    "500 rules of two": "more than 10^19 bytes",
    "1,000 nested groups": "too deeply",
    "300 times any number of ways": "too ambiguous",
}
ANSWERED = ["30 $defs that may double", "a literal of 120,000", "regex (a|aa)*"]
LONG = "300 rules that begin with each other"  # it takes more than its budget
GROWTH_BYTES = 256 << 20


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def compilers(pid):
    """Ids of the daemon's processes that compile."""
    found = []
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        try:
            if pathlib.Path(f"/proc/{child}/comm").read_text(encoding="ascii") == "parley-compile\n":
                found.append(int(child))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def is_there(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def metric(address, name):
    link = http.client.HTTPConnection(address, timeout=children.PATIENCE)
    link.request("GET", "/metrics")
    lines = link.getresponse().read().decode().splitlines()
    link.close()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + " "))


def begin(address, fields, max_tokens=16):
    link = http.client.HTTPConnection(address, timeout=children.PATIENCE)
    link.request("POST", "/v1/chat/completions", bombs.body(fields, "tiny", max_tokens, "x"))
    return link


def end(link):
    answer = link.getresponse()
    read = json.loads(answer.read())
    link.close()
    return answer.status, read["error"]["message"] if answer.status != 200 else ""


def verdicts(daemon, client, by_name):
    before = resident_bytes(daemon.process.pid)
    for name, expected in REFUSED.items():
        status, why = end(begin(daemon.http, by_name[name]))
        assert status == 400 and expected in why, (name, status, why)
    for name in ANSWERED:
        status, why = end(begin(daemon.http, by_name[name]))
        assert status == 200, (name, status, why)
    for constraint in (content.Constraint(grammar='root ::= "a" root'), content.Constraint(json_schema=bombs.SCHEMAS["array of itself, one at least"])):
        try:
            client.conversations.Ask(pb.TurnRequest(conversation=client.open("tiny"), text="x", constraint=constraint))
            raise AssertionError(f"{constraint} was taken")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and ENDLESS in error.details(), error
    grown = resident_bytes(daemon.process.pid) - before
    assert grown <= GROWTH_BYTES, f"parleyd has {grown >> 20} MiB more"


def is_busy(pid):
    """Whether a process computes; an idle one waits for its socket."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rsplit(") ", 1)[1].startswith("R")
    except (FileNotFoundError, ProcessLookupError):
        return False


def compiling(daemon, by_name):
    """A request whose constraint is being compiled, and the process."""
    link = begin(daemon.http, by_name[LONG])
    until("a constraint is compiled", lambda: metric(daemon.http, "parley_compile_running") == 1)
    busy = []
    until("its process computes", lambda: busy.extend(filter(is_busy, compilers(daemon.process.pid))) or busy)
    return link, busy[0]


def lost_and_left(daemon, by_name):
    pid = daemon.process.pid
    link, process = compiling(daemon, by_name)
    os.kill(process, signal.SIGKILL)
    status, why = end(link)
    assert status == 503 and "was killed by signal 9" in why, (status, why)
    status, why = end(begin(daemon.http, '"guided_regex":"[ab]{3}"'))
    assert status == 200, why

    link, process = compiling(daemon, by_name)
    link.close()
    until("its client's leaving ends a compilation", lambda: metric(daemon.http, 'parley_compile_total{result="cancelled"}') == 1)
    until("its process ends", lambda: not is_there(process))

    link, process = compiling(daemon, by_name)  # others need not wait for it
    status, why = end(begin(daemon.http, '"guided_regex":"[ab]{4}"'))
    os.kill(process, signal.SIGTERM)  # as systemd does to all processes of a unit: parleyd drains
    assert status == 200 and is_there(process), why
    status, why = end(link)
    assert status == 400 and "more than 2000 ms of processor time" in why, (status, why)
    assert pid == daemon.process.pid and daemon.process.poll() is None


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    if not os.path.exists(os.path.join(os.path.dirname(parleyd), "server/compile/parley-compile")):
        sys.exit(77)  # constraints are not built
    by_name = dict(bombs.all_bodies())
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, tiny, "8192"], check=True)
        flags = ["--model", f"tiny={tiny}", "--http", "127.0.0.1:0", "--drain-timeout", "0", "--kv-bytes", "32M"]
        daemon = harness.Parleyd(parleyd, *flags)
        with daemon as client:
            verdicts(daemon, client, by_name)
            lost_and_left(daemon, by_name)
            _, process = compiling(daemon, by_name)
        until("an orderly stop ends the processes", lambda: not is_there(process))

        daemon = children.Daemon(parleyd, *flags)
        daemon.__enter__()
        _, process = compiling(daemon, by_name)
        daemon.process.kill()
        daemon.process.wait()
        until("the processes end with the daemon", lambda: not is_there(process))


main()
