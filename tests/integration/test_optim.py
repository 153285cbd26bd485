#!/usr/bin/env python3
"""The Python package's RemoteOptimizer: what several processes train together is what one process trains alone.

usage: test_optim.py PARLEYD                            (run by the interpreter that has grpcio and numpy; see venv.sh)
       test_optim.py train ADDRESS SHARD N_SHARDS KIND  (one of the processes)"""
import hashlib
import os
import re
import signal
import subprocess
import sys
import threading

import ml_dtypes  # of tritonclient
import numpy as np
from google.protobuf.message import DecodeError

import children
from children import Daemon, until

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
import parley.optim  # noqa: E402
from parley import transfer  # noqa: E402
from parley.v1 import params_pb2  # noqa: E402
from parley.crc32c import crc32c, crc32c_by_numpy  # noqa: E402

N_INPUTS, N_HIDDEN, N_SAMPLES, ROUNDS = 7, 33, 48, 25
KINDS = {"sgd": {"lr": 0.1, "momentum": 0.9}, "adam": {"lr": 0.01}}


class Net:
    """A perceptron with one hidden layer, its gradient written out."""

    def __init__(self, seed):
        draw = np.random.default_rng(seed)
        self.parameters = [(draw.standard_normal(shape) / 3).astype(np.float32)
                           for shape in [(N_INPUTS, N_HIDDEN), (N_HIDDEN,), (N_HIDDEN, 1), (1,)]]

    def gradients(self, x, y):
        """Of the mean of the squared errors."""
        w, b, v, c = self.parameters
        hidden = np.tanh(x @ w + b)
        error = (hidden @ v + c - y) * np.float32(2 / len(x))
        back = (error @ v.T) * (1 - hidden * hidden)
        return [x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]


def data(shard, n_shards):
    draw = np.random.default_rng(543)
    x = draw.standard_normal((N_SAMPLES, N_INPUTS)).astype(np.float32)
    y = np.sin(x.sum(1, keepdims=True)).astype(np.float32)
    return x[shard::n_shards], y[shard::n_shards]


def train(address, shard, n_shards, kind):
    net = Net(seed=shard)  # of its own; whoever is first, the parameters are its
    x, y = data(shard, n_shards)
    with parley.connect(address, patience=children.PATIENCE) as server:
        optimizer = parley.optim.RemoteOptimizer(net.parameters, server, kind, round_size=n_shards, kind=kind, **KINDS[kind])
        if optimizer.version == 0:
            print("first", np.concatenate([p.reshape(-1) for p in net.parameters]).tobytes().hex(), flush=True)
        sys.stdin.readline()  # all are there
        for _ in range(ROUNDS):
            optimizer.step(net.gradients(x, y))
        print("last", optimizer.version, np.concatenate([p.reshape(-1) for p in net.parameters]).tobytes().hex(), flush=True)
        optimizer.close()


class Alone:
    """torch's SGD and Adam, in numpy, in double precision."""

    def __init__(self, kind):
        self.kind, self.moments, self.t = kind, {}, 0

    def step(self, parameters, gradients):
        self.t += 1
        for i, (p, g) in enumerate(zip(parameters, gradients)):
            m, v = self.moments.get(i, (np.zeros(p.shape), np.zeros(p.shape)))
            g = g.astype(np.float64)
            if self.kind == "sgd":
                m = 0.9 * m + g
                p[...] = p - 0.1 * m
            else:
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
                p[...] = p - 0.01 * (m / (1 - 0.9**self.t)) / (np.sqrt(v / (1 - 0.999**self.t)) + 1e-8)
            self.moments[i] = m, v


def test_three_processes_are_one(parleyd):
    """A module that three processes train on a third of the data each is, to 1e-6, what one process trains on all of it."""
    with Daemon(parleyd) as daemon:
        for kind in KINDS:
            trainers = [children.start([sys.executable, __file__, "train", daemon.address, str(i), "3", kind], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True) for i in range(3)]
            first = [t.stdout.readline().split() for t in trainers]
            assert [f[0] for f in first] == ["first"] * 3 and len({f[1] for f in first}) == 1, "all begin with the same"
            for t in trainers:
                t.stdin.write("\n")
                t.stdin.flush()
            last = [t.communicate()[0].split() for t in trainers]
            assert [t.returncode for t in trainers] == [0, 0, 0] and len({x[2] for x in last}) == 1 and last[0][1] == str(ROUNDS), last
            net, at = Net(0), 0
            flat = np.frombuffer(bytes.fromhex(first[0][1]), np.float32)
            for p in net.parameters:
                p[...] = flat[at:at + p.size].reshape(p.shape)
                at += p.size
            begun = np.concatenate([p.reshape(-1) for p in net.parameters])
            alone = Alone(kind)
            for _ in range(ROUNDS):
                alone.step(net.parameters, net.gradients(*data(0, 1)))
            one = np.concatenate([p.reshape(-1) for p in net.parameters])
            three = np.frombuffer(bytes.fromhex(last[0][2]), np.float32)
            assert np.abs(one - begun).max() > 0.05, "it has learned something"
            assert np.abs(one - three).max() <= 1e-6, (kind, np.abs(one - three).max())


def test_a_trainer_alone(parleyd):
    """Steps, pushes and pulls; more than one chunk; a stream that broke; what cannot be."""
    with Daemon(parleyd) as daemon, parley.connect(daemon.address, patience=children.PATIENCE) as server:
        big, small = np.zeros((700, 500), np.float32), np.ones(3)  # float64 is taken and given as such
        optimizer = parley.optim.RemoteOptimizer([big, small], server, "net", lr=0.5)
        assert optimizer.step([np.full(big.shape, 2.0), np.array([1, 2, 3])]) == 1
        assert (big == -1).all() and small.tolist() == [0.5, 0, -0.5] and small.dtype == np.float64
        optimizer.close()
        assert optimizer.step([np.zeros(big.shape), None]) == 2, "on another stream"
        other = [np.zeros(big.shape, np.float32), np.zeros(3, np.float32)]
        joined = parley.optim.RemoteOptimizer(other, daemon.address, "net", lr=9)
        assert joined.version == 2 and (other[0] == -1).all() and other[1].tolist() == [0.5, 0, -0.5]
        joined.push([None, np.array([1, 1, 1])])
        until("it is counted", lambda: optimizer.pull() == 3)
        assert small.tolist() == [0, -0.5, -1]
        # a round that is not complete keeps its trainers waiting
        pair = [parley.optim.RemoteOptimizer([np.zeros(2)], server, "pair", round_size=2, lr=1) for _ in range(2)]
        waits = threading.Thread(target=pair[0].step, args=([np.array([2, 0])],))
        waits.start()
        pair[1].step([np.array([0, 4])])
        waits.join()
        assert [p.parameters[0].tolist() for p in pair] == [[-1, -2]] * 2
        for bad in (lambda: optimizer.step([None]), lambda: optimizer.step([None, np.zeros(2)]),
                    lambda: parley.optim.RemoteOptimizer([], server, "none")):
            try:
                bad()
                raise AssertionError("it was taken")
            except ValueError:
                pass
        try:
            joined.step([None, np.array([np.nan, 0, 0])])
            raise AssertionError("it was taken")
        except parley.Error as e:
            assert e.code == "INVALID_ARGUMENT", e


def declined(call, field, words="", code="INVALID_ARGUMENT"):
    try:
        call()
    except parley.Error as e:
        assert (e.code, e.field) == (code, field) and words in e.message, (e.code, e.field, e.message)
        return e
    raise AssertionError(f"{field} was taken")


def test_refusals(parleyd):
    """What makes no sense is refused by its name, and nothing is made or sent."""
    with Daemon(parleyd) as daemon, parley.connect(daemon.address, patience=children.PATIENCE) as server:
        def make(parameters=None, name="none", **more):
            return parley.optim.RemoteOptimizer([np.zeros(2)] if parameters is None else parameters, server, name, **more)

        for field, more in [("momentum", {"momentum": 5}), ("momentum", {"momentum": -0.1}), ("momentum", {"kind": "adam", "momentum": 0.9}),
                            ("lr", {"lr": -1}), ("lr", {"lr": float("nan")}), ("kind", {"kind": "adamax"}), ("betas[1]", {"kind": "adam", "betas": (0.9, 2)}),
                            ("betas", {"kind": "adam", "betas": 0.9}), ("reduce", {"reduce": "max"}), ("round_size", {"round_size": 0}),
                            ("learning_rate", {"learning_rate": 1}), ("rounds", {"rounds": 1}), ("round_timeout", {"round_size": 2, "round_timeout": -1}),
                            ("parameters", {"parameters": []}), ("parameters[1]", {"parameters": [np.zeros(1), np.zeros(1, int)]}),
                            ("parameters[0]", {"parameters": [np.float64(1)]}), ("w", {"parameters": [("w", np.zeros(1, complex))]})]:
            declined(lambda: make(**more), field)
        frozen, twice = np.zeros(2), np.zeros(2)
        frozen.flags.writeable = False
        declined(lambda: make([frozen]), "parameters[0]")
        declined(lambda: make([twice, twice]), "parameters[1]", "twice")
        declined(lambda: make([np.full(2, 1e300)]), "parameters[0]", "1e+300")
        strided, row = np.lib.stride_tricks.as_strided, np.zeros(8)
        for one in strided(row, (3,), (0,)), strided(row, (3, 2), (8, 8)), strided(row, (2, 2), (3, 16)), strided(row, (2, 3, 2), (8, 16, 24)):
            declined(lambda one=one: make([np.zeros(2), one]), "parameters[1]", "in the same memory")
        for pair in [row[:3], row[2:]], [row[5:], row[::-1]], [row[::2], row[4:5]], [strided(row, (2, 2), (16, 24)), row[3:4]]:
            declined(lambda pair=pair: make(pair), "parameters[1]", "shares memory with parameters[0]")
        assert not server.links[0].call("Params/List", params_pb2.ParamsListRequest(), params_pb2.ParamsListResponse).params
        optimiser = make([np.zeros((2, 3)), np.zeros(4)], "shapes", kind="adam")
        good = [np.ones((2, 3)), np.ones(4)]
        for field, gradients in [("the gradient of parameters[0]", [np.ones((3, 2)), np.ones(4)]), ("gradients", good[:1]), ("gradients", None),
                                 ("the gradient of parameters[1]", [good[0], np.full(4, 1e300)]), ("the gradient of parameters[1]", [good[0], ["a"] * 4])]:
            declined(lambda: optimiser.step(gradients), field)
        declined(lambda: make([np.zeros(3), np.zeros(2)], "spoilt").step([np.zeros(3), np.array([0, np.inf])]), "the gradient of parameters[1]", "is inf at position 1")
        for name, value in [("betas", (0.5, 0.5)), ("eps", 1), ("weight_decay", 0.1)]:
            optimiser.param_groups[0][name], before = value, optimiser.param_groups[0][name]
            declined(lambda: optimiser.step(good), f"param_groups[0]['{name}']")
            optimiser.param_groups[0][name] = before
        declined(lambda: optimiser.add_param_group({"params": [np.zeros(1)]}), "param_group")
        declined(lambda: optimiser.step(good, timeout=-1), "timeout")
        assert optimiser.steps == 0 and optimiser.step(good) == 1, "nothing was counted"
        views = [row[:4:2], row[3:0:-2], strided(row[4:], (1, 2, 2), (0, 16, 8)).T, row[:0], strided(row, (0, 3), (0, 0))]  # one buffer, apart
        make(views, "views", lr=1).step([np.ones(v.shape) for v in views])
        assert (row == -1).all()
        crossed = strided(np.zeros(8), (3, 2), (16, 24))
        make([crossed], "crossed", lr=1).step([np.arange(6).reshape(3, 2)])
        assert crossed.tolist() == [[0, -1], [-2, -3], [-4, -5]]
        for other in ([np.zeros((3, 2)), np.zeros(4)], [np.zeros((2, 3))], [np.zeros(6), np.zeros(4)]):
            declined(lambda: make(other, "shapes"), "0" if len(other) == 2 else "specs")
        for field, more in [("skipped", {"skipped": [2]}), ("learning_rate", {"learning_rate": -1}), ("learning_rate", {"learning_rate": 1e300})]:
            header = params_pb2.ParamsUploadHeader(name="shapes", client_id="c", step_id=1, **more)
            declined(lambda: server.links[0].upload("Params/Push", [params_pb2.ParamsUpload(header=header)], transfer.serialise,
                                                   params_pb2.ParamsPushResponse), field)


def test_missing(parleyd):
    """A round that does not come about says who is missing: to a step with a timeout, and by its own timeout to all."""
    with Daemon(parleyd) as daemon, parley.connect(daemon.address, patience=children.PATIENCE) as server:
        def trainers(name, **more):
            made = [parley.optim.RemoteOptimizer([np.zeros(1)], server, name, round_size=3, lr=1, client=c, **more) for c in ("ann", "bob", "cid")]
            made[0].push([np.ones(1)])
            made[1].push([np.ones(1)])
            assert made[2].step([np.ones(1)]) == 1
            return made

        ann, bob, cid = trainers("patient")
        assert "sent no gradient yet" in declined(lambda: parley.optim.RemoteOptimizer([np.zeros(1)], server, "new", round_size=2).step(
            [np.ones(1)], timeout=0.01), "", code="DEADLINE_EXCEEDED").message
        ann.push([np.ones(1)])
        e = declined(lambda: cid.step([np.ones(1)], timeout=0.01), "", code="DEADLINE_EXCEEDED")
        assert "'bob'" in e.message and "'ann'" not in e.message and "'cid'" not in e.message, e.message
        bob.push([np.ones(1)])
        assert cid.step([np.ones(1)]) == 2, "what was late does not count"
        assert cid.parameters[0][0] == -2
        ann, bob, cid = trainers("short", round_timeout=3)
        said = []
        waits = [threading.Thread(target=lambda t=t: said.append(declined(lambda: t.step([np.ones(1)]), "", code="ABORTED").message)) for t in (ann, cid)]
        for w in waits:
            w.start()
        for w in waits:
            w.join()
        assert all("missing are 'bob'" in s for s in said) and len(said) == 2, said
        # a daemon that is stopped does not answer; what it then does with the gradient counts once, and for no other step
        alone = parley.optim.RemoteOptimizer([np.zeros(1)], server, "alone", lr=1)
        alone.step([np.ones(1)])
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            assert "did not answer" in declined(lambda: alone.step([np.ones(1)], timeout=0.01), "", code="DEADLINE_EXCEEDED").message
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        version = alone.step([np.ones(1)])
        assert alone.parameters[0][0] == -version and version in (2, 3), version
        # one that is started again under its name goes on
        again = parley.optim.RemoteOptimizer([np.zeros(1)], server, "short", client="cid")
        assert (again.version, again.steps) == (1, 1)
        ann.push([np.ones(1)])
        bob.push([np.ones(1)])
        assert again.step([np.ones(1)]) == 2


class AdamOfOne:
    """torch's Adam of one tensor, by its formula."""

    def __init__(self, n):
        self.value, self.m, self.v, self.n = np.zeros(n), np.zeros(n), np.zeros(n), 0

    def step(self, g):
        self.n += 1
        self.m, self.v = 0.9 * self.m + 0.1 * g, 0.99 * self.v + 0.01 * g * g
        self.value = self.value - 0.1 * (self.m / (1 - 0.9 ** self.n)) / (np.sqrt(self.v / (1 - 0.99 ** self.n)) + 1e-8)


def test_steps(parleyd):
    """None leaves a tensor and its moment as they are, if all of a round have none for it; zeros are zeros; the rate may change."""
    with Daemon(parleyd) as daemon, parley.connect(daemon.address, patience=children.PATIENCE) as server:
        def make(parameters, name, **more):
            return parley.optim.RemoteOptimizer(parameters, server, name, **more)

        draw = np.random.default_rng(1)
        sizes = [3, 5000, 1, 4096, 9000]  # across the borders of the daemon's blocks
        mine = [draw.standard_normal(n).astype(np.float32) for n in sizes]
        alone, moments = [p.copy() for p in mine], [np.zeros(n, np.float32) for n in sizes]
        optimiser = make(mine, "skips", lr=0.5, momentum=0.5, weight_decay=0.25)
        for step, missing in enumerate([(), (1, 3), (0, 1, 2, 3, 4), (0, 4), ()]):
            gradients = [None if i in missing else draw.standard_normal(n).astype(np.float32) for i, n in enumerate(sizes)]
            if step == 3:
                gradients[2] = np.zeros(1, np.float32)  # which is not None
            before = [p.copy() for p in mine]
            assert optimiser.step(gradients) == step + 1
            for p, m, g in zip(alone, moments, gradients):
                if g is not None:
                    m[:] = np.float32(0.5) * m + (g + np.float32(0.25) * p)
                    p -= np.float32(0.5) * m
            assert all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(mine, alone)), step
            assert all(np.array_equal(mine[i], before[i]) == (i in missing) for i in range(5)), step
        pair = [make([np.zeros(1), np.zeros(1)], "pair", round_size=2, lr=1) for _ in range(2)]
        pair[0].push([np.ones(1), None])
        pair[1].step([np.ones(1), np.ones(1)])
        assert [float(p[0]) for p in pair[1].parameters] == [-1, -0.5], "where one has a gradient, another's None is zeros"
        total = [make([np.zeros(1)], "total", round_size=2, lr=1, reduce="sum") for _ in range(2)]
        total[0].push([np.ones(1)])
        total[1].step([np.ones(1)])
        assert total[1].parameters[0][0] == -2
        rated = make([np.zeros(1)], "rated", lr=1)
        for rate, value in [(1, -1), (0.25, -1.25), (0, -1.25), (1, -2.25)]:
            rated.param_groups[0]["lr"] = rate
            rated.step([np.ones(1)])
            assert rated.parameters[0][0] == value, rate
        saved = rated.state_dict()
        assert saved["remote"] == {"client": rated.client, "steps": 4, "version": 4}
        rated.param_groups[0]["lr"] = 7
        rated.load_state_dict(saved)
        assert rated.param_groups[0]["lr"] == 1 and rated.steps == 4
        signs = make([np.zeros(2)], "signs", kind="adam", lr=1, betas=(0, 0), eps=1e-30)
        signs.step([np.array([5, -3])])
        signs.step([np.array([-1e-3, -7])])
        assert signs.parameters[0].tolist() == [0, 2], "without moments, Adam goes by the signs"
        # A tensor's step is one of its own: after two rounds without a gradient its first step is a first one, as torch counts.
        counted = make([np.zeros(2), np.zeros(2), np.zeros(3)], "counted", kind="adam", lr=0.1, betas=(0.9, 0.99), eps=1e-8)
        gradients, alone = [np.array([3.0, -2.0]), np.array([0.5, 7.0]), np.array([1.0, -1.0, 4.0])], [AdamOfOne(n) for n in (2, 2, 3)]
        for step, missing in enumerate([(1,), (1, 2), (), (0,), ()]):
            counted.step([None if i in missing else (step + 1) * g for i, g in enumerate(gradients)])
            for i, one in enumerate(alone):
                if i not in missing:
                    one.step((step + 1) * gradients[i])
            for p, one in zip(counted.parameters, alone, strict=True):
                assert np.allclose(p, one.value, rtol=1e-5), (step, p, one.value)
        assert len({one.n for one in alone}) == 2
        # The first step of momentum takes the whole gradient, whatever the dampening, as torch's.
        damped = make([np.zeros(1), np.zeros(1)], "damped", lr=1, momentum=0.5, dampening=0.5)
        damped.step([np.ones(1), None])
        damped.step([None, np.ones(1)])
        assert [float(p[0]) for p in damped.parameters] == [-1, -1]
        half = make([np.zeros(2, np.float16), np.zeros(2, ml_dtypes.bfloat16)], "half", lr=0.5)
        half.step([np.ones(2, np.float16), np.ones(2, ml_dtypes.bfloat16)])
        assert [p.astype(float).tolist() for p in half.parameters] == [[-0.5, -0.5]] * 2


def test_memory(parleyd):
    """Large parameters travel in memory that is shared with the daemon: the bits of chunks, also after the stream broke and where the
    daemon has no room for it; addresses of other machines are not asked for it."""
    n = parley.optim.SHARED_BYTES // 4 + 5
    draws = np.random.default_rng(1).standard_normal((4, n)).astype(np.float32)

    def trained(server, name, prepare):
        w = [np.zeros((n - 5,), np.float64), np.zeros(5, np.float32)]
        optimizer = parley.optim.RemoteOptimizer(w, server, name, lr=0.1, momentum=0.9)
        ways = []
        for i, draw in enumerate(draws):
            prepare(optimizer, i)
            optimizer.step([draw[:-5], draw[-5:]])
            ways.append(optimizer._memory is not None)
        optimizer.close()
        return np.concatenate(w), ways

    def by_chunks(optimizer, _):
        optimizer._may_share = False

    def broken(optimizer, i):
        if i == 2:
            optimizer._updates.close()

    with Daemon(parleyd) as daemon, parley.connect(daemon.address) as server:
        want, ways = trained(server, "chunks", by_chunks)
        assert not any(ways)
        for name, prepare in ("memory", lambda *_: None), ("broken", broken):
            got, ways = trained(server, name, prepare)
            assert all(ways) and np.array_equal(got, want)
    with Daemon(parleyd, "--params-bytes", "17M") as daemon, parley.connect(daemon.address) as server:
        got, ways = trained(server, "no room", lambda *_: None)
        assert not any(ways) and np.array_equal(got, want)
    local = [bool(re.fullmatch(parley.optim.LOCAL, a)) for a in
             ("127.0.0.1:80", "localhost:8001", "unix:/tmp/s", "[::1]:80", "10.0.0.1:80", "example.org:80", "127.0.0.1.example.org:80")]
    assert local == [True] * 4 + [False] * 3


def test_checksums(_):
    """CRC-32C by lanes and by the processor's instruction is what it is byte by byte, of any length."""
    assert parley.crc32c.instruction.implementation == "c", "google-crc32c is there, with its C extension"
    assert crc32c(b"123456789") == crc32c_by_numpy(b"123456789") == 0xE3069283 and crc32c(b"") == crc32c_by_numpy(b"") == 0
    draw = np.random.default_rng(1)
    for n in (1, 255, 256, 257, 511, 512, 769, 4096, 100_001):
        data = draw.integers(0, 256, n, np.uint8).tobytes()
        crc = 0xFFFFFFFF
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        assert crc32c(data) == crc32c(memoryview(data)) == crc32c_by_numpy(data) == crc ^ 0xFFFFFFFF, n


def refused(call):
    try:
        call()
    except parley.Error as e:
        assert e.code == "DATA_LOSS" and e.reason == "CHECKSUM_DIFFERS", e
        return
    raise AssertionError("it was taken")


def test_frames(_):
    """The messages that are written and read by hand are those of the generated classes, and what is damaged is refused."""
    for n in (1, 31, 32, 33, 1 << 18, (1 << 18) + 1, 700_000):
        values = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        frames = list(transfer.frames_of(values))
        messages = [params_pb2.ParamsUpload.FromString(frame) for frame in frames]
        assert [m.SerializeToString() for m in messages[1:]] == frames[1:], "the first has an offset of 0, which they leave out"
        assert b"".join(m.chunk.data for m in messages) == values.tobytes() and len(messages) == -(-4 * n // transfer.CHUNK_BYTES) + 1
        assert messages[-1].sha256 == hashlib.sha256(values.tobytes()).digest()
        version = params_pb2.ParamsDownload(version=params_pb2.ParamsVersion(version=7, size_bytes=4 * n)).SerializeToString()
        for sent in (frames, [m.SerializeToString() for m in messages]):
            found, got = transfer.download(map(transfer.parse, [version, *sent]))
            assert found.version == 7 and got.tobytes() == values.tobytes()
        bad = bytearray(frames[0])
        bad[-9] ^= 1  # of the data
        for sent in ([bytes(bad)], frames[1:], [version], [*frames[:-1], frames[0]]):
            refused(lambda sent=sent: transfer.download(map(transfer.parse, [version, *sent])))
        refused(lambda: transfer.download(map(transfer.parse, frames)))
    chunk = params_pb2.ParamsChunk(data=b"1234", crc32c=9)
    turned = chunk.SerializeToString()[6:] + chunk.SerializeToString()[:6]  # other fields first
    assert transfer.parse(b"\x12" + bytes([len(turned)]) + turned) == transfer.Chunk(0, memoryview(b"1234"), 9)
    frame = frames[0]
    for cut in range(1, 40):
        try:
            transfer.parse(frame[:cut])
            raise AssertionError(f"{cut} bytes of it were taken")
        except DecodeError:
            pass


def main():
    if sys.argv[1] == "train":
        train(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
        return
    for test in (test_memory, test_checksums, test_frames, test_refusals, test_missing, test_steps, test_a_trainer_alone, test_three_processes_are_one):
        print(test.__name__, flush=True)
        test(sys.argv[1])


main()
