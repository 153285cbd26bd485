#!/usr/bin/env python3
"""A worker for test_attach.py: counts the words of each conversation, with its state in its clone, and can do all that one may.

usage: agent_worker.py NAME=VALUE…      address, name, and: can=fork,rewind,save,deterministic,stateless  rows  slots  every
It prints a line for each order: what it is, and its numbers. A row whose text has a word of these makes it
    sampling tell which of its sampling parameters are set, and ignore_eos
    hold     read a line of its standard input before it answers the step
    slowly   answer in pieces, a word a step
    fail     fail the row
    kill-N   end itself by SIGKILL before it answers, if its number (number=N) is that one
    later-N  the same, after the first piece"""
import os
import queue
import signal
import sys

import grpc

sys.path.insert(0, os.environ["PARLEY_STUBS"])  # made by venv.sh
from parley.v1 import agents_pb2 as agents, agents_pb2_grpc, error_pb2  # noqa: E402

options = {"can": "", "rows": "0", "slots": "0", "every": "0", "number": "1", "version": "", **dict(a.split("=", 1) for a in sys.argv[1:])}
answers, clones, replies = queue.SimpleQueue(), {}, {}


def say(*words):
    print(*words, flush=True)


def text_of(messages):
    return " ".join(m.text for m in messages if m.role == "user")


def count(messages):
    return len(text_of(messages).split())


def whole_reply(row):
    """Of a row: the conversation's words so far, and its turn. A clone is the list of its counts, one a turn."""
    if "sampling" in text_of(row.messages).split():
        return " ".join([*(f.name for f, _ in row.sampling.ListFields()), str(row.sampling.ignore_eos)])
    if "stateless" in options["can"]:
        n = count(row.history) + count(row.messages)
    else:
        n = (clones[row.clone] or [0])[-1] + count(row.messages)
        clones[row.clone].append(n)
    return f"{n} words in turn {row.turn}"


def answer(row):
    text = text_of(row.messages)
    result = agents.AgentRowResult(row=row.row, outcome=agents.AGENT_ROW_OUTCOME_DONE)
    if "fail" in text.split():
        result.outcome = agents.AGENT_ROW_OUTCOME_FAILED
        result.error.CopyFrom(error_pb2.ErrorDetail(code=9, message="it was told to fail"))
        return result
    if f"kill-{options['number']}" in text.split():
        os.kill(os.getpid(), signal.SIGKILL)
    if row.is_continued and "stateless" not in options["can"]:
        words, dies = replies[row.clone]
    else:
        words, dies = whole_reply(row).split(" "), f"later-{options['number']}" in text.split()
        words = words[len(row.reply.split()):]
    if dies and row.is_continued:
        os.kill(os.getpid(), signal.SIGKILL)
    if dies or "slowly" in text.split() or row.is_continued:
        result.text, words = words[0] + (" " if words[1:] else ""), words[1:]
        result.outcome = agents.AGENT_ROW_OUTCOME_MORE if words else agents.AGENT_ROW_OUTCOME_DONE
        replies[row.clone] = words, dies
    else:
        result.text = " ".join(words)
    return result


def take(order):
    what = order.WhichOneof("what")
    m = getattr(order, what)
    if what == "open":
        clones[m.clone] = list(map(int, m.state.decode().split(","))) if m.has_state else []
        assert len(clones[m.clone]) == m.turn
        say("open", m.clone, m.turn)
    elif what == "replay":
        assert len(clones[m.clone]) == m.turn - 1
        clones[m.clone].append((clones[m.clone] or [0])[-1] + count(m.messages))
        say("replay", m.clone, m.turn)
    elif what == "fork":
        clones[m.clone] = clones[m.parent][:m.at_turn]
        say("fork", m.clone, m.at_turn)
    elif what == "rewind":
        del clones[m.clone][m.to_turn:]
        say("rewind", m.clone, m.to_turn)
    elif what == "close":
        del clones[m.clone]
        say("close", m.clone)
    elif what == "save":
        say("save", m.clone)
        answers.put(agents.AgentsAttachRequest(
            state=agents.AgentState(clone=m.clone, state=",".join(map(str, clones[m.clone])).encode())))
    elif what == "step":
        say("step", len(m.rows))
        if any("hold" in text_of(row.messages).split() for row in m.rows):
            say("held")
            sys.stdin.readline()
        answers.put(agents.AgentsAttachRequest(result=agents.AgentStepResult(step=m.step, rows=[answer(row) for row in m.rows])))
    else:
        say(what)


offer = agents.AgentOffer(name=options["name"], version=options["version"], max_rows=int(options["rows"]),
                          slots=int(options["slots"]), save_every=int(options["every"]))
for capability in filter(None, options["can"].split(",")):
    offer.capabilities.append(agents.AgentCapability.Value("AGENT_CAPABILITY_" + capability.upper()))
answers.put(agents.AgentsAttachRequest(offer=offer))
try:
    for order in agents_pb2_grpc.AgentsStub(grpc.insecure_channel(options["address"])).Attach(iter(answers.get, None)):
        take(order)
except grpc.RpcError as e:
    say("ended", e.code().name, e.details())
