#!/usr/bin/env python3
"""The shared limits of docs/operations.md with two keys: alice takes of each what she can and is refused at half, by name and option; bob
still gets his part. A reload that adds keys takes nothing from anybody.

usage: test_limits.py PARLEYD WRITE_TINY_MODEL WRITE_POLICY      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import os
import sys
import tempfile

import grpc
import numpy as np
from grpc import StatusCode

import children
import harness
import test_keys
import trainer
from children import PATIENCE
from harness import content, conversations, params, tensor_pb2
from test_principals import CHAT, Person, make_params

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools"))
from check_limits import ROW, read  # noqa: E402
from parley.v1 import act_pb2 as act, env_pb2 as env, env_pb2_grpc, replay_pb2 as replay, replay_pb2_grpc, store_pb2 as store, store_pb2_grpc  # noqa: E402

MB = 1 << 20
OPTIONS = {"--max-conversations": "300", "--max-sessions": "6", "--max-queue": "8", "--store-bytes": "4M", "--replay-bytes": "8M", "--params-bytes": "4M"}
# What costs too much here, or needs workers: the unit tests of their folders.
ELSEWHERE = {"gRPC calls in flight", "Connect calls in flight", "constraints that are compiled", "bytes of constraints of running replies", "names of conversations", "stored responses", "replies under an Idempotency-Key",
             "bytes of replies under an Idempotency-Key", "bytes of records that clients send to verify", "sequences of KServe", "groups of Registry", "bytes of values in groups of Registry",
             "rooms", "people in rooms", "bytes of rooms' logs",
             "people of the chat service", "bytes of the chat service's messages",
             "bytes of the chat service's kept logs", "bytes of the chat service's heard texts",
             "keys of Store", "tasks of Work", "bytes of payloads and results of Work", "workers of Work", "functions of Work", "attached workers"}


class Vectors:
    """Environments, and a way to be rid of them."""

    def __init__(self):
        self.open = []

    def take(self, who, count):
        stub = env_pb2_grpc.EnvStub(who.channel)
        self.open.append((stub, stub.Open(env.EnvOpenRequest(name="CartPole-v1", count=count), timeout=PATIENCE).handle))

    def close(self):
        for stub, handle in self.open:
            stub.Close(env.EnvCloseRequest(handle=handle))
        self.open = []


def push(who, i):
    message = [store.StorePushRequest(header=store.StorePushHeader(key=f"k{i}", version=1, size_bytes=MB // 2)), store.StorePushRequest(data=bytes(MB // 2))]
    store_pb2_grpc.StoreStub(who.channel).Push(iter(message), timeout=PATIENCE)


def make_table(who, i, max_bytes):
    column = tensor_pb2.TensorSpec(name="x", dtype=tensor_pb2.DTYPE_F32, shape=[1])
    config = replay.ReplayConfig(table=f"t{i}", columns=[column], max_items=1, max_bytes=max_bytes)
    replay_pb2_grpc.ReplayStub(who.channel).CreateTable(replay.ReplayCreateTableRequest(config=config), timeout=PATIENCE)


def delete_tables(who):
    stub = replay_pb2_grpc.ReplayStub(who.channel)
    for table in stub.ListTables(replay.ReplayListTablesRequest()).tables:
        stub.DeleteTable(replay.ReplayDeleteTableRequest(table=table.config.table))


def fill_set(who, i):
    """A set of 512 KiB, with its values."""
    n = MB // 8
    config = params.ParamsConfig(name=f"full{i}", round_size=1, specs=[tensor_pb2.TensorSpec(name="w", dtype=tensor_pb2.DTYPE_F32, shape=[n])],
                                 optimiser=params.ParamsOptimiser(learning_rate=0.1))
    who.params.Create(iter([params.ParamsCreateRequest(config=config), *trainer.parts(params.ParamsCreateRequest, np.zeros(n, np.float32))]), timeout=PATIENCE)


def delete_sets(who):
    for info in who.params.List(params.ParamsListRequest()).params:
        who.params.Delete(params.ParamsDeleteRequest(name=info.name))


def act_step(who, i):
    observation = [tensor_pb2.Tensor(name="observation", dtype=tensor_pb2.DTYPE_F32, shape=[4], data=bytes(16))]
    who.act.Step(act.ActStepRequest(model="policy", env_id=f"e{i}", run_id=1, seq=1, observation=observation), timeout=PATIENCE)


def takes(alice, bob, what, option, take, half=None):
    """Alice gets half, is told what she has used up, and bob gets one."""
    n = 0
    try:
        while half is None or n <= half:
            take(alice, n)
            n += 1
        raise AssertionError(f"alice has {n} of {what}")
    except grpc.RpcError as e:
        assert e.code() == StatusCode.RESOURCE_EXHAUSTED, (what, n, e)
        for words in "the principal's half of the limit of", what, option:
            assert words in e.details(), (words, e.details())
    assert n > 0 and half in (None, n), (what, n, half)
    take(bob, 0)


def queue(alice, bob):
    """More turns than a step has rows, then half of those that may wait."""
    asked = [alice.open() for _ in range(90)]
    calls = [alice.conversations.Turn(conversations.TurnRequest(
        conversation=c, turn=1, messages=[content.Message(role="user", text="Go on.")],
        sampling=harness.sampling.Sampling(max_tokens=100000, ignore_eos=True)), timeout=PATIENCE) for c in asked]
    refused = 0
    for call in calls:
        try:
            next(call)  # accepted, or waiting
        except grpc.RpcError as e:
            assert e.code() == StatusCode.RESOURCE_EXHAUSTED and "half of the limit of 8 waiting requests of a model (--max-queue)" in e.details(), e
            refused += 1
        if refused > 0:
            break
    assert refused > 0
    bob.ask(bob.open(), "Hello!")
    for c in asked:
        alice.conversations.Close(conversations.ConversationsCloseRequest(conversation=c))


def all_of_them(alice, bob):
    rows = {what: option.strip("`") for what, option, _, _ in ROW.findall(read(ROOT, "docs", "operations.md"))}
    done = set()

    def each(what, take, half=None):
        option = rows[what]
        assert option == "built in" or option in OPTIONS, what
        takes(alice, bob, what, option, take, half)
        done.add(what)

    queue(alice, bob)
    done.add("waiting requests of a model")
    each("open conversations", lambda who, i: who.open(), 150)
    status, answer, _ = alice.http(CHAT, {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
    assert status == 429 and "--max-conversations" in answer["error"]["message"], answer
    assert bob.http(CHAT, {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1})[0] == 200
    each("sessions of Act", act_step, 3)
    vectors = Vectors()
    each("environments", lambda who, i: vectors.take(who, 4096), 8)
    vectors.close()
    each("vectors of environments", lambda who, i: vectors.take(who, 1), 512)
    vectors.close()
    each("bytes of values in Store", push, 3)
    each("bytes of tables of Replay", lambda who, i: make_table(who, i, MB), 4)
    for who in alice, bob:
        delete_tables(who)
    each("tables of Replay", lambda who, i: make_table(who, i, 1000), 512)
    each("bytes of parameter sets", fill_set)
    for who in alice, bob:
        delete_sets(who)
    children.until("their sets to go", lambda: not alice.params.List(params.ParamsListRequest()).params, alice.daemon.process)
    each("parameter sets", lambda who, i: make_params(who, f"p{i}"), 32)
    assert rows.keys() == done | ELSEWHERE and not done & ELSEWHERE, (rows.keys() ^ (done | ELSEWHERE), done & ELSEWHERE)


def adds_keys(daemon, path, alice, bob, carol):
    """What alice has stays when carol comes, and carol gets her part."""
    one = alice.open()
    test_keys.reload(daemon, path, ("alice", alice.key), ("bob", bob.key), ("carol", carol))
    assert alice.conversations.Get(conversations.ConversationsGetRequest(conversation=one)).conversation == one
    Person(daemon, carol).open()
    alice.conversations.Close(conversations.ConversationsCloseRequest(conversation=one))


def main(parleyd, write_tiny_model, write_policy):
    with tempfile.TemporaryDirectory() as folder:
        model, policy, path = (os.path.join(folder, name) for name in ("tiny.gguf", "policy.gguf", "keys"))
        children.run([write_tiny_model, model], check=True)
        children.run([write_policy, policy], check=True)
        keys = [test_keys.new_key() for _ in range(3)]
        test_keys.write_keys(path, ("alice", keys[0], "admin"), ("bob", keys[1]))
        options = [word for option in OPTIONS.items() for word in option]
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--model", f"policy={policy}", "--http", "127.0.0.1:0", "--keys", path,
                             "--log-level", "info", *options) as daemon:
            alice, bob = (Person(daemon, key) for key in keys[:2])
            adds_keys(daemon, path, alice, bob, keys[2])
            all_of_them(alice, bob)


if __name__ == "__main__":
    main(*sys.argv[1:])
