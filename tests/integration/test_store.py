#!/usr/bin/env python3
"""Store: versions in order, what is kept and what is refused, watchers; the Python package's OrderedStore and PushPullModel, and
pushed gradients, with the numbers of Machin's own tests.

usage: test_store.py PARLEYD      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import io
import os
import sys
import threading

import ml_dtypes  # of tritonclient
import numpy as np

import children
from children import Daemon

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
import parley.optim  # noqa: E402
from parley.v1 import store_pb2 as pb  # noqa: E402


def refused(call, code, field=None):
    try:
        call()
    except parley.Error as e:
        assert e.code == code and (field is None or e.field == field), (e.code, e.field, e.message)
        return e.message
    raise AssertionError(f"not refused with {code}")


def ordered(store):
    """Machin's own test of its ordered server, with its history of one version beside the newest."""
    assert store.push("a", "first", 1, None)
    assert not store.push("a", "x", 2, 0)
    assert store.push("a", "second", 2, 1)
    assert store.push("a", "third", -1, 2)
    assert store.pull("a") == ("third", -1)
    assert store.pull("a", 2) == ("second", 2)
    assert store.pull("a", 1) is None
    assert store.pull("b") is None
    assert not store.push("a", "x", 5), "there are versions"
    assert not store.push("a", "x", 2, -1), "the key has this version"
    assert store.versions("a") == [-1, 2]
    assert store.pull_if_newer("a", -1) is None
    assert store.pull_if_newer("a", 2) == ("third", -1)


def values(store):
    """What is pushed is what is pulled, of any size and kind."""
    draw = np.random.default_rng(1)
    big = draw.bytes((5 << 19) + 1)  # three parts
    for i, value in enumerate([b"", b"\0\xff", big, {"best": [1, 2.5, None]}, "text", 7]):
        assert store.push(f"v{i}", value, 0)
        assert store.pull(f"v{i}") == (value, 0), i
    arrays = {"w": draw.standard_normal((3, 5)).astype(np.float32), "n": np.arange(4)}
    assert store.push("arrays", arrays, 1)
    got, _ = store.pull("arrays")
    assert all(np.array_equal(got[k], arrays[k]) and got[k].dtype == arrays[k].dtype for k in arrays)
    odd = {name: np.full(2, i) for i, name in enumerate(["file", "allow_pickle", "a.npy", "a", "b/c", "größe", ""])}
    assert store.push("odd names", odd, 1)
    got, _ = store.pull("odd names")
    assert list(got) == list(odd) and all((got[k] == odd[k]).all() for k in odd), got
    from_numpy = io.BytesIO()
    np.savez(from_numpy, **arrays)
    assert store.push_bytes("of numpy", from_numpy.getvalue(), 1, content_type="application/x-npz") and set(store.pull("of numpy")[0]) == set(arrays)
    data, zipped = store.pull_bytes("arrays")[1], np.load(io.BytesIO(store.pull_bytes("odd names")[1]))
    assert set(np.load(io.BytesIO(data)).files) == set(arrays) and (zipped["file"] == 0).all()
    weights = np.ones(3, ml_dtypes.bfloat16)  # numpy's files have it as V2
    for value in weights, {"w": weights}:
        try:
            store.push("bfloat16", value, 1)
        except parley.Error as e:
            assert "bfloat16" in str(e) and e.field == ("w" if isinstance(value, dict) else "value"), e
        else:
            raise AssertionError("an array came to be of another type")
    refusals = [("value", (1, 2)), ("value['a'][1]", {"a": [1, (2,)]}), ("value", {1: 2}), ("value['x']", {"x": float("nan")}), ("value", {1, 2}),
                ("value['w']", {"w": np.float32(1), "n": 1}), ("value['w']", {"w": np.ones(1), "n": 1}), ("value", np.array([None])),
                ("value", np.ma.masked_array([1, 2], [True, False])), ("value", children), ("value[0]", [b"bytes"]), ("value", {"a\0b": np.ones(1)})]
    for field, value in refusals:
        refused(lambda: store.push("converted", value, 1), "INVALID_ARGUMENT", field)
    assert store.pull("converted") is None


def bounds(store):
    """A key's history and bytes, and those of all."""
    store.configure("deep", history=3)
    for version in range(1, 7):
        assert store.push("deep", "x", version, version - 1)
    assert store.versions("deep") == [6, 5, 4, 3]
    store.configure("deep", history=0)
    assert store.versions("deep") == [6]
    store.configure("small", history=9, max_bytes=4000)
    for version in range(1, 6):
        assert store.push("small", bytes(1000), version, version - 1)
    assert store.versions("small") == [5, 4, 3]
    assert "4000" in refused(lambda: store.push("small", bytes(4000), 6, 5), "OUT_OF_RANGE", "size_bytes")
    assert store.versions("small") == [5, 4, 3], "what is refused changes nothing"
    refused(lambda: store.configure("deep", history=2000), "INVALID_ARGUMENT", "history")
    refused(lambda: store.configure("new", history=2000), "INVALID_ARGUMENT", "history")
    refused(lambda: store.delete("new"), "NOT_FOUND", "key")
    refused(lambda: store.push("huge", bytes(9 << 20), 1), "OUT_OF_RANGE", "size_bytes")
    for i in range(20):
        try:
            assert store.push(f"fill{i}", bytes(1 << 20), 1)
        except parley.Error as e:
            assert e.code == "RESOURCE_EXHAUSTED" and e.field == "size_bytes", e
            break
    else:
        raise AssertionError("the bound of all values does not hold")
    for j in range(i):
        store.delete(f"fill{j}")
    assert store.push("fill", bytes(1 << 20), 1), "deleted values leave room"
    store.delete("fill")


def refusals(store, link):
    def push(*messages):
        return link.channel.stream_unary("/parley.v1.Store/Push", pb.StorePushRequest.SerializeToString, pb.StorePushResponse.FromString)(
            iter(messages), timeout=children.PATIENCE)

    def header(**more):
        return pb.StorePushRequest(header=pb.StorePushHeader(**{"key": "r", "version": 1, "size_bytes": 4, **more}))

    def wrong(field, code, *messages):
        try:
            push(*messages)
        except Exception as e:
            e = parley.wire.error_of(e)
            assert (e.code, e.field) == (code, field), (e.code, e.field, e.message)
            return
        raise AssertionError(field)

    data = pb.StorePushRequest(data=b"abcd")
    wrong("header", "INVALID_ARGUMENT", data)
    wrong("header", "INVALID_ARGUMENT")
    wrong("header", "INVALID_ARGUMENT", header(), header())
    wrong("size_bytes", "INVALID_ARGUMENT", header())
    wrong("data", "INVALID_ARGUMENT", header(), pb.StorePushRequest(data=b"abcde"))
    wrong("key", "INVALID_ARGUMENT", header(key=""), data)
    wrong("key", "INVALID_ARGUMENT", header(key="k" * 129), data)
    wrong("content_type", "INVALID_ARGUMENT", header(content_type="t" * 129), data)
    wrong("crc32c", "DATA_LOSS", header(crc32c=1, has_crc32c=True), data)
    wrong("", "INVALID_ARGUMENT", pb.StorePushRequest())
    assert store.pull("r") is None, "what is refused leaves nothing"
    refused(lambda: next(store.watch("r")), "NOT_FOUND", "key")
    assert push(header(), data).newest_version == 1


def watching(store):
    """The newest version comes at once, later ones as they are pushed, and the end with the key's."""
    assert store.push("w", "x", 1)
    versions = store.watch("w")
    assert next(versions) == 1
    assert store.push("w", "x", 9, 1)
    assert next(versions) == 9
    store.delete("w")
    assert "deleted" in refused(lambda: next(versions), "NOT_FOUND", "key")


def race(address):
    """Of many that push behind the same version one is taken, each time."""
    taken = []

    def push():
        with parley.connect(address, patience=children.PATIENCE) as server:
            store = parley.OrderedStore(server)
            for version in range(1, 21):
                if store.push("race", version, version, version - 1):
                    taken.append(version)

    threads = [threading.Thread(target=push) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(taken) == list(range(1, len(taken) + 1)), taken  # in no order: a thread may come late to say that its push was taken


def models(server):
    """Machin's own test: ten times one more, pushed by one and pulled by another."""
    mine, theirs = ({"w": np.array([1, 2, 3], np.float32)} for _ in range(2))
    a, b = parley.PushPullModel(server, "model"), parley.PushPullModel(server, "model")
    assert not b.pull(theirs)
    for _ in range(10):
        mine["w"] += 1
        assert a.push(mine)
    assert b.pull(theirs) and b.version == 10 and theirs["w"].tolist() == [11, 12, 13]
    assert b.push(theirs)
    mine["w"][:] = 0
    assert not a.push(mine, pull_on_fail=False) and mine["w"].tolist() == [0, 0, 0]
    assert not a.push(mine) and mine["w"].tolist() == [11, 12, 13] and a.version == 11
    assert a.push(mine), "one that was pulled can be pushed"
    assert "(2,)" in refused(lambda: b.pull({"w": np.zeros(2, np.float32)}), "INVALID_ARGUMENT", "w"), "another shape is taken over"
    b.version = 0
    for dtype in np.int32, np.float64:
        refused(lambda: b.pull({"w": np.zeros(3, dtype)}), "INVALID_ARGUMENT", "w")
    assert b.version == 0
    refused(lambda: b.push({"w": [1, 2, 3]}), "INVALID_ARGUMENT", "w")


def gradients(server):
    """Machin's own test of its gradient server: weights 1, 2, 3 in a row, input 1; two pushes are reduced, and two of those."""
    for reduce, expected in (("PARAMS_REDUCE_MEAN", [-5, -1, 1]), ("PARAMS_REDUCE_SUM", [-23, -10, -5])):
        weights = [np.array([w], np.float32) for w in (1, 2, 3)]
        optimizer = parley.optim.RemoteOptimizer(weights, server, reduce, round_size=2, fan_in=2, lr=1.0, reduce=reduce)
        steps = [parley.optim.RemoteOptimizer([w.copy() for w in weights], server, reduce, client=f"c{i}") for i in range(4)]
        for s in steps:
            w1, w2, w3 = (float(p[0]) for p in s.parameters)
            s.push([np.array([g], np.float32) for g in (w2 * w3, w1 * w3, w1 * w2)])
        watch = server.links[0].stream("Params/Watch", parley.optim.pb.ParamsWatchRequest(name=reduce), parley.optim.pb.ParamsVersion)
        while next(watch).version == 0:
            pass
        watch.cancel()
        assert optimizer.pull() == 1
        assert [float(p[0]) for p in weights] == expected, (reduce, weights)


def main():
    with Daemon(sys.argv[1], "--store-bytes", "8M") as daemon, parley.connect(daemon.address, patience=children.PATIENCE) as server:
        store = parley.OrderedStore(server)
        ordered(store)
        values(store)
        bounds(store)
        refusals(store, server.links[0])
        watching(store)
        race(daemon.address)
        models(server)
        gradients(server)
    print("store: passed")


main()
