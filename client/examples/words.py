#!/usr/bin/env python3
"""An agent of one's own, which counts the words of each conversation. usage: words.py [ADDRESS [NAME]]

It needs grpcio, and the stubs of proto/ in PYTHONPATH:
    python3 -m grpc_tools.protoc -Iproto --python_out=stubs --grpc_python_out=stubs proto/parley/v1/*.proto"""
import queue
import sys

import grpc
from parley.v1 import agents_pb2 as agents, agents_pb2_grpc

address, name = (sys.argv[1:] + ["127.0.0.1:8001", "words"][len(sys.argv) - 1:])[:2]
answers, counts = queue.SimpleQueue(), {}


def count(messages):
    return sum(len(m.text.split()) for m in messages if m.role == "user")


def reply(row):
    counts[row.clone] += count(row.messages)
    return agents.AgentRowResult(row=row.row, text=f"{counts[row.clone]} words", outcome=agents.AGENT_ROW_OUTCOME_DONE)


answers.put(agents.AgentsAttachRequest(offer=agents.AgentOffer(name=name)))
for order in agents_pb2_grpc.AgentsStub(grpc.insecure_channel(address)).Attach(iter(answers.get, None)):
    what = order.WhichOneof("what")
    if what == "open":
        counts[order.open.clone] = 0
    elif what == "replay":
        counts[order.replay.clone] += count(order.replay.messages)
    elif what == "close":
        del counts[order.close.clone]
    elif what == "step":
        result = agents.AgentStepResult(step=order.step.step, rows=map(reply, order.step.rows))
        answers.put(agents.AgentsAttachRequest(result=result))
