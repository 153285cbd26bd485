#!/usr/bin/env python3
"""Replay through the Python package: what is inserted is what is drawn, limiters make callers wait, and let them go on, time out and
leave; what is refused, by field, and that nothing is lost by it.

usage: test_replay.py PARLEYD      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import os
import signal
import sys
import threading

import grpc
import ml_dtypes  # of tritonclient
import numpy as np

import children
from children import Daemon, until

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
from parley.v1 import replay_pb2 as pb, tensor_pb2  # noqa: E402

COLUMNS = {"x": ("i4", ()), "y": ["f4", [2, 3]]}  # as JSON has them, too


def steps(first, n):
    x = np.arange(first, first + n, dtype=np.int32)
    return {"x": x, "y": np.repeat(x, 6).reshape(n, 2, 3).astype(np.float32) / 3}


def check_steps(data):
    assert data["x"].dtype == np.int32 and data["y"].dtype == np.float32
    assert np.array_equal(np.repeat(data["x"].reshape(-1), 6).astype(np.float32) / np.float32(3), data["y"].reshape(-1))


def refused(call, code, field=None):
    try:
        call()
    except parley.Error as e:
        assert e.code == code and (field is None or e.field == field), (e.code, e.field, e.message)
        return e.message
    raise AssertionError(f"not refused with {code}")


def test_samples(server):
    replay = parley.Replay(server, "plain", COLUMNS, max_items=50, seed=1)
    keys = replay.insert_all(steps(0, 40))
    assert len(set(keys)) == 40 and 0 not in keys
    keys += [replay.insert({"x": 40, "y": np.full((2, 3), 40 / 3)})]
    batch = replay.sample(200)
    check_steps(batch.data)
    assert batch["x"].shape == (200,) and batch["y"].shape == (200, 2, 3) and batch.table_items == 41
    assert all(keys[x] == k for x, k in zip(batch["x"], batch.keys))
    assert np.allclose(batch.probabilities, 1 / 41) and np.allclose(batch.weights(0.5), 1)
    replay.insert_all(steps(41, 100))
    assert len(replay) == 50 and replay.sample(500)["x"].min() == 91, "the oldest make room"
    again = parley.Replay(server, "again", COLUMNS, max_items=50, seed=1)
    again.insert_all(steps(0, 41))
    assert np.array_equal(again.sample(200)["x"], batch["x"]), "a seed gives the same samples"
    replay.clear()
    assert len(replay) == 0 and replay.info().held_bytes == 0


def test_priorities(server):
    replay = parley.Replay(server, "prio", COLUMNS, sampler="prioritized", alpha=1, epsilon=1e-6, seed=1)
    replay.insert_all(steps(0, 4), [1, 2, 3, 4])
    batch = replay.sample(1000)
    counts = np.bincount(batch["x"])
    assert np.allclose(counts, [100, 200, 300, 400], atol=1.1), counts  # one draw from each thousandth
    assert replay.update_priorities(batch, np.where(batch["x"] == 2, 5, 0)) == 1000
    assert (replay.sample(100)["x"] == 2).all()
    for wrong in (np.nan, np.inf, -np.inf):
        refused(lambda: replay.update_priorities(batch, np.full(1000, wrong)), "INVALID_ARGUMENT", "priorities")
    refused(lambda: replay.update_priorities(batch, [1]), "INVALID_ARGUMENT", "priorities")
    refused(lambda: replay.insert_all(steps(0, 2), [1, np.nan]), "INVALID_ARGUMENT", "priorities")
    refused(lambda: replay.insert_all(steps(0, 2), [1]), "INVALID_ARGUMENT", "priorities")
    refused(lambda: replay.insert(steps(0, 1) | {"x": 1, "y": np.zeros((2, 3))}, priority=np.inf), "INVALID_ARGUMENT", "priorities")
    assert len(replay) == 4 and (replay.sample(100)["x"] == 2).all(), "what is refused changes nothing"
    replay.clear()
    replay.insert_all(steps(0, 4), [0, 0, 0, 1])
    assert replay.update_priorities(batch, np.ones(1000)) == 0, "items of before"
    assert (replay.sample(100)["x"] == 3).all()


def test_runs(server):
    replay = parley.Replay(server, "runs", COLUMNS, sampler="fifo", max_times_sampled=1)
    replay.insert_run(steps(0, 7))
    with replay.writer(max_steps=5) as writer:
        for i in range(12):
            writer.append({name: a[0] for name, a in steps(100 + i, 1).items()})
            if i >= 4 and i % 2 == 0:
                writer.item(5)
        writer.item(3)
    assert len(writer.keys) == 5
    run = replay.sample(1)
    check_steps(run.data)
    assert run["x"].tolist() == [list(range(7))]
    batch = replay.sample(4)
    check_steps(batch.data)
    assert batch["y"].shape == (4, 5, 2, 3) and batch["x"][:, 0].tolist() == [100, 102, 104, 106]
    assert batch["x"][3].tolist() == [106, 107, 108, 109, 110]
    held = replay.info().held_bytes
    assert replay.sample(1)["x"].tolist() == [[109, 110, 111]]
    assert 0 == len(replay) and replay.info().held_bytes < held
    with replay.writer(max_steps=3) as writer:  # items of several messages, and of their chunks
        for i in range(200):
            writer.append({name: a[0] for name, a in steps(500 + i, 1).items()})
            if i >= 2:
                writer.item(3)
    assert len(set(writer.keys)) == 198
    assert replay.sample(198)["x"].tolist() == [[500 + i, 501 + i, 502 + i] for i in range(198)]
    replay.close()  # with it the chunks that it keeps
    until("the chunks are freed", lambda: replay.info().held_bytes == 0)
    replay.insert_run(steps(0, 2))
    replay.insert_run(steps(2, 3))
    batch = replay.sample(2)
    long = steps(0, 2500)  # of several messages
    replay.insert_run(long)
    assert np.array_equal(replay.sample(1)["x"][0], long["x"])
    assert batch.steps.tolist() == [2, 3] and batch["x"].tolist() == [0, 1, 2, 3, 4], "of different lengths, one behind the other"


def test_waiting(server, address):
    """A queue of two: who is ahead waits, in order; deadlines and callers that leave end their own waits."""
    queue = parley.Replay(server, "queue", COLUMNS, sampler="fifo", max_times_sampled=1, samples_per_insert=1, min_diff=0, max_diff=2)
    refused(lambda: queue.sample(1, timeout=0.01), "DEADLINE_EXCEEDED")
    refused(lambda: queue.sample(3), "INVALID_ARGUMENT", "batch_size")
    queue.insert_all(steps(0, 2))
    refused(lambda: queue.insert_all(steps(2, 1), timeout=0.01), "DEADLINE_EXCEEDED")
    assert queue.sample(2)["x"].tolist() == [0, 1]
    gone = server.links[0].stream("Replay/Sample", pb.ReplaySampleRequest(table="queue", batch_size=2, batches=1), pb.ReplayBatch)
    until("it waits", lambda: queue.info().waiting_samples == 1)
    gone.cancel()
    until("it has left", lambda: queue.info().waiting_samples == 0)
    got = []

    def learn():
        with parley.connect(address, patience=children.PATIENCE) as mine:
            for _, batch in zip(range(50), parley.Replay(mine, "queue").batches(1)):
                got.append(int(batch["x"][0]))

    learner = threading.Thread(target=learn)
    learner.start()
    queue.insert_all(steps(0, 50))
    learner.join()
    assert got == list(range(50)), got
    info = queue.info()
    assert info.inserted == 52 and info.sampled >= 52 and info.items <= 2


def test_refusals(server):
    def wrong(code, field, columns=COLUMNS, **more):
        refused(lambda: parley.Replay(server, "wrong", columns, **more), code, field)
        refused(lambda: parley.Replay(server, "wrong"), "NOT_FOUND", "table")

    wrong("INVALID_ARGUMENT", "max_items", max_items=0)
    wrong("INVALID_ARGUMENT", "max_bytes", max_bytes=10)
    wrong("INVALID_ARGUMENT", "max_bytes", max_bytes=1 << 40)
    wrong("INVALID_ARGUMENT", "alpha", alpha=float("nan"))
    wrong("INVALID_ARGUMENT", "epsilon", sampler="prioritized", epsilon=0)
    wrong("INVALID_ARGUMENT", "remover", remover="prioritized")
    wrong("INVALID_ARGUMENT", "columns", columns={})
    wrong("INVALID_ARGUMENT", "columns", columns={"x": ("f4", (1 << 30, 1 << 30))})
    wrong("INVALID_ARGUMENT", "columns", columns={"x": ("f4", (0,))})
    for field, value in [("max_items", -1), ("max_items", 1.5), ("seed", 1 << 64), ("min_size", -1), ("max_times_sampled", "3"), ("sampler", "heap"), ("sampler", 3),
                         ("remover", ""), ("readers", "bob"), ("writers", "bob")]:
        wrong("INVALID_ARGUMENT", field, **{field: value})
    for column in "f4", ("f4",), ("f4", 3), ("f4", (-1,)), ("f4", (2.5,)), (None, ()), ("f2", ()), ("U3", ()):
        wrong("INVALID_ARGUMENT", "columns['x']", columns={"x": column})
    wrong("INVALID_ARGUMENT", "columns", columns=[("x", "f4", ())])
    wrong("INVALID_ARGUMENT", "columns", columns={"x": ("u1", (4 << 20,))})  # a step goes in one message
    wrong("INVALID_ARGUMENT", "limiter.min_size", max_items=5, min_size=6)
    wrong("INVALID_ARGUMENT", "limiter.max_diff", samples_per_insert=4, min_diff=0, max_diff=3)
    wrong("INVALID_ARGUMENT", "limiter.samples_per_insert", samples_per_insert=float("inf"))
    refused(lambda: parley.Replay(server, "t" * 129, COLUMNS), "INVALID_ARGUMENT", "table")
    replay = parley.Replay(server, "strict", COLUMNS)
    replay.insert_all(steps(0, 3))
    flat = {"x": np.arange(2), "y": np.zeros((2, 6))}
    assert refused(lambda: replay.insert_all(flat), "INVALID_ARGUMENT", "y") == "y has steps of the shape (6,), but the column has (2, 3)"
    refused(lambda: replay.insert_all({"x": np.arange(2), "y": np.zeros((1, 2, 3))}), "INVALID_ARGUMENT", "y")
    refused(lambda: replay.insert_all({"x": np.arange(2)}), "INVALID_ARGUMENT", "steps")
    for steps_ in None, [1], 3, "x":
        refused(lambda: replay.insert(steps_), "INVALID_ARGUMENT", "steps")
    for weights in [1, -1], [1, np.nan], [1], [[1, 1, 1]], "ab", [1, None]:
        refused(lambda: replay.insert_all(steps(0, 2), priorities=weights), "INVALID_ARGUMENT", "priorities")
    refused(lambda: replay.insert({name: a[0] for name, a in steps(0, 1).items()}, priority=-1), "INVALID_ARGUMENT", "priorities")
    for n in -1, 1.5, "3":
        refused(lambda: replay.sample(n), "INVALID_ARGUMENT", "n")
    refused(lambda: replay.sample(0), "INVALID_ARGUMENT", "batch_size")
    refused(lambda: replay.sample(1 << 20), "INVALID_ARGUMENT", "batch_size")

    def insert(*messages):
        call = server.links[0].channel.stream_stream("/parley.v1.Replay/Insert", pb.ReplayInsertRequest.SerializeToString,
                                                     pb.ReplayInsertResponse.FromString)(iter(messages), timeout=children.PATIENCE)
        try:
            answers = list(call)
            assert sum(a.messages for a in answers) == len(messages), answers
            return [key for a in answers for key in a.keys]
        except grpc.RpcError as e:
            raise parley.wire.error_of(e) from None

    def chunk(id, n=2, **more):
        return pb.ReplayChunk(id=id, columns=[
            tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_I32, shape=[n], data=bytes(4 * n)),
            tensor_pb2.Tensor(**{"dtype": tensor_pb2.DTYPE_F32, "shape": [n, 2, 3], "data": bytes(24 * n), **more})])

    def item(**slice):
        return pb.ReplayItem(slices=[pb.ReplaySlice(**slice)])

    def bad(field, *messages, code="INVALID_ARGUMENT"):
        refused(lambda: insert(*messages), code, field)

    first = {"table": "strict"}
    bad("table", pb.ReplayInsertRequest(table="none"), code="NOT_FOUND")
    bad("table", pb.ReplayInsertRequest(**first), pb.ReplayInsertRequest(**first))
    bad("chunks.columns", pb.ReplayInsertRequest(chunks=[chunk(1, dtype=tensor_pb2.DTYPE_F64, data=bytes(96))], **first))
    bad("chunks.columns[1]", pb.ReplayInsertRequest(chunks=[chunk(1, data=bytes(7))], **first))
    bad("chunks.columns", pb.ReplayInsertRequest(chunks=[pb.ReplayChunk(id=1)], **first))
    bad("chunks.columns", pb.ReplayInsertRequest(chunks=[chunk(1, 0)], **first))
    bad("chunks.id", pb.ReplayInsertRequest(chunks=[chunk(2), chunk(2)], **first))
    bad("items.slices", pb.ReplayInsertRequest(chunks=[chunk(1)], items=[pb.ReplayItem()], **first))
    bad("items.slices.chunk", pb.ReplayInsertRequest(chunks=[chunk(1)], items=[item(chunk=1), item(chunk=2)], **first))
    bad("items.slices.steps", pb.ReplayInsertRequest(chunks=[chunk(1)], items=[item(chunk=1, first=2)], **first))
    bad("items.slices.steps", pb.ReplayInsertRequest(chunks=[chunk(1)], items=[item(chunk=1, first=1, steps=2)], **first))
    bad("items.slices.chunk", pb.ReplayInsertRequest(chunks=[chunk(1)], items=[item(chunk=1)], **first),
        pb.ReplayInsertRequest(items=[item(chunk=1)]))
    bad("keep_chunks", pb.ReplayInsertRequest(keep_chunks=5000, **first))
    assert len(set(insert(pb.ReplayInsertRequest(chunks=[chunk(1), chunk(5)], items=[item(chunk=1)], keep_chunks=1, **first),
                          pb.ReplayInsertRequest(items=[item(chunk=5), item(chunk=5, first=1, steps=1)])))) == 3
    assert len(replay) == 3 + 1 + 3, "what is refused is not inserted, and takes nothing away"
    big = parley.Replay(server, "big", COLUMNS, max_bytes=20_000)
    big.insert_all(steps(0, 100))
    refused(lambda: big.insert_run(steps(0, 1000)), "OUT_OF_RANGE", "chunks")
    assert len(big) > 0 and big.info().held_bytes <= 20_000


def test_types(server):
    """Nothing is converted without a word: a value comes back as it was, rounded to a shorter float at most, or is refused by its
    column's name before anything is sent."""
    kinds = ["f4", "f8", "i4", "i8", "u1", "?"]
    replay = parley.Replay(server, "types", {kind: (kind, ()) for kind in kinds}, sampler="lifo")
    plain = {"f4": 0.5, "f8": 0.5, "i4": -1, "i8": -1, "u1": 1, "?": True}
    values = {
        "of floats": [0.25, np.float16(0.25), np.float32(-0.0), np.nan, np.inf, ml_dtypes.bfloat16(0.25)],
        "not float32's": [1e300, np.float64(-1e39)],
        "small": [0, 255, np.uint8(7), np.int64(0)],
        "of 32 bits": [256, -1, 2**31 - 1, -2**31],
        "of 64 bits": [2**31, 2**40, -2**63, 2**63 - 1],
        "too large": [2**63, -2**63 - 1, np.uint64(2**64 - 1), 2**70],
        "of bools": [True, np.bool_(False)],
        "no numbers": ["1", None, 1j, np.datetime64("2026-01-01"), [1], object(), np.ma.masked_array([1])[0:1]],
    }
    taken = {"f4": ["of floats", "small", "of bools"], "f8": ["of floats", "not float32's", "small", "of 32 bits", "of bools"],
             "i4": ["small", "of 32 bits", "of bools"], "i8": ["small", "of 32 bits", "of 64 bits", "of bools"], "u1": ["small", "of bools"],
             "?": ["of bools"]}
    exact = {"f4": {-1, 256, 2**31, 2**40, -2**31, -2**63, 2**63}, "f8": {2**31, 2**40, -2**63, 2**63}}  # powers of two
    for kind in kinds:
        for which, some in values.items():
            for value in some:
                given = plain | {kind: value}
                if which in taken[kind] or isinstance(value, int) and value in exact.get(kind, ()):
                    key = replay.insert(given)
                    batch = replay.sample(1)
                    got = batch[kind][0]
                    assert batch.keys[0] == key and (got == value or got != got and value != value), (kind, value, got)
                else:
                    n = len(replay)
                    refused(lambda: replay.insert(given), "INVALID_ARGUMENT", kind)
                    assert len(replay) == n
    # The writer's way is another one, with the same rules, and it copies what it is given.
    written = parley.Replay(server, "written", {kind: (kind, ()) for kind in kinds} | {"wide": ("f4", (2,))}, sampler="lifo")
    plain["wide"] = np.zeros(2, np.float32)
    with written.writer(1) as writer:
        for kind in kinds:
            for which, some in values.items():
                for value in some:
                    plain["wide"][:] = len(writer.keys)
                    if which in taken[kind] or isinstance(value, int) and value in exact.get(kind, ()):
                        writer.append(plain | {kind: value})
                        plain["wide"][:] = -1
                        writer.item(1)
                        writer.flush()
                        batch = written.sample(1)
                        assert batch.keys[0] == writer.keys[-1] and (batch[kind][0] == value or value != value), (kind, value, batch[kind])
                        assert batch["wide"].tolist() == [[len(writer.keys) - 1] * 2]
                    else:
                        refused(lambda: writer.append(plain | {kind: value}), "INVALID_ARGUMENT", kind)
        for field, bad in [("steps", {"i4": 1}), ("steps", plain | {"more": 1}), ("wide", plain | {"wide": np.zeros(3, np.float32)}), ("wide", plain | {"wide": 1.0})]:
            refused(lambda: writer.append(bad), "INVALID_ARGUMENT", field)
    batch = replay.sample(1)
    for kind in kinds:  # a batch's arrays are its own: memory of one byte would be that of all such bytes in Python
        batch[kind][...] = not batch[kind][0]
        assert batch[kind].flags.writeable and batch[kind].base is None
    image = parley.Replay(server, "image", {"image": ("u1", (2, 2))})
    assert "float32" in refused(lambda: image.insert({"image": np.full((2, 2), 0.5, np.float32)}), "INVALID_ARGUMENT", "image")
    for kind in ("f2", ml_dtypes.bfloat16, "c8", "U3", "no type"):
        refused(lambda: parley.Replay(server, "half", {"h": (kind, ())}), "INVALID_ARGUMENT", "columns['h']")
    for seconds in (-1, 1e9, float("nan")):
        refused(lambda: image.sample(1, timeout=seconds), "INVALID_ARGUMENT", "timeout")


def test_deleting(server, address):
    """A table's end ends its calls, and nobody else's."""
    replay = parley.Replay(server, "short", COLUMNS, min_size=5)
    replay.insert_all(steps(0, 1))
    ended = []

    def learn():
        with parley.connect(address, patience=children.PATIENCE) as mine:
            ended.append(refused(lambda: parley.Replay(mine, "short").sample(1), "NOT_FOUND", "table"))

    learner = threading.Thread(target=learn)
    learner.start()
    until("it waits", lambda: replay.info().waiting_samples == 1)
    server.links[0].call("Replay/DeleteTable", pb.ReplayDeleteTableRequest(table="short"), pb.ReplayDeleteTableResponse)
    learner.join()
    assert "deleted" in ended[0]
    refused(lambda: replay.insert_all(steps(0, 1)), "NOT_FOUND", "table")
    assert parley.Replay(server, "short", COLUMNS).sample is not None


def test_stopping(parleyd):
    """A drain ends those that wait, and says so."""
    with Daemon(parleyd) as daemon, parley.connect(daemon.address, patience=0) as server:
        queue = parley.Replay(server, "queue", COLUMNS, sampler="fifo", max_times_sampled=1, samples_per_insert=1, max_diff=1)
        other = parley.Replay(server, "other", COLUMNS)
        queue.insert_all(steps(0, 1))
        ended = []
        waits = [threading.Thread(target=lambda call=call: ended.append(refused(call, "UNAVAILABLE")))
                 for call in (lambda: queue.insert_all(steps(1, 1)), lambda: other.sample(1))]
        for w in waits:
            w.start()
        with parley.connect(daemon.address, patience=children.PATIENCE) as watcher:
            until("both wait", lambda: (parley.Replay(watcher, "queue").info().waiting_inserts,
                                        parley.Replay(watcher, "other").info().waiting_samples) == (1, 1))
            daemon.process.send_signal(signal.SIGTERM)
            for w in waits:
                w.join(children.PATIENCE)
        assert len(ended) == 2, ended


def main():
    with Daemon(sys.argv[1], "--replay-bytes", "8G") as daemon, parley.connect(daemon.address, patience=children.PATIENCE) as server:
        for test in (test_samples, test_priorities, test_runs, test_types, test_refusals):
            print(test.__name__, flush=True)
            test(server)
        for test in (test_waiting, test_deleting):
            print(test.__name__, flush=True)
            test(server, daemon.address)
    print("test_stopping", flush=True)
    test_stopping(sys.argv[1])


main()
