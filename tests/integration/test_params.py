#!/usr/bin/env python3
"""The parameter server as a foreign trainer sees it: rounds, quorums, what is refused and what a failure leaves behind.

usage: test_params.py PARLEYD      (run by the interpreter that has grpcio, numpy and the stubs; see venv.sh)
"""
import mmap
import os
import subprocess
import sys
import threading
import time

import children
import google_crc32c
import grpc
import harness
import numpy as np
import trainer
from children import PATIENCE, until
from harness import error_pb2, params, tensor_pb2
from trainer import Updates, create, parts, upload


def fails(code, call, field=None, says=""):
    try:
        call()
    except grpc.RpcError as error:
        detail = next(error_pb2.ErrorDetail.FromString(v) for k, v in error.trailing_metadata() if k == "parley-error-bin")
        assert error.code() == code, f"{error.code()} {error.details()}, not {code}"
        assert field is None or detail.field == field, detail
        assert says in error.details(), error.details()
        return detail
    raise AssertionError(f"no error, {code} was due")


def info(parley, name):
    return next(p for p in parley.params.List(params.ParamsListRequest()).params if p.name == name)


def pull(parley, name, **more):
    return trainer.Answer(parley.params.Pull(params.ParamsPullRequest(name=name, **more)))


def later(act):
    """act on a thread of its own; call the result for what it returned or raised."""
    said = {}

    def run():
        try:
            said["value"] = act()
        except Exception as error:  # handed to the caller
            said["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join():
        thread.join(PATIENCE)
        assert not thread.is_alive(), "it hangs"
        if "error" in said:
            raise said["error"]
        return said["value"]

    return join


def simulate(rounds, rate, momentum):
    values = np.zeros(trainer.N_FEATURES + 1, np.float32)
    buffer, losses = np.zeros_like(values), []
    shards = [trainer.data(i, 3) for i in range(3)]
    for step in range(rounds):
        each = [trainer.loss_and_gradient(values, *shard) for shard in shards]
        losses.append([loss for loss, _ in each])
        gradient = (each[0][1] + each[1][1] + each[2][1]) / np.float32(3)
        buffer = gradient if step == 0 else np.float32(momentum) * buffer + gradient
        values = values - np.float32(rate) * buffer
    return values, losses


def three_trainers(parley):
    rounds, rate, momentum = 60, 0.1, 0.5
    create(parley.params, "linear", {"w": [trainer.N_FEATURES], "b": [1]}, round_size=3,
           optimiser=params.ParamsOptimiser(learning_rate=rate, momentum=momentum))
    watched = parley.params.Watch(params.ParamsWatchRequest(name="linear"))
    assert next(watched).version == 0, "the version there is comes first"
    script = os.path.join(os.path.dirname(__file__), "trainer.py")
    command = [sys.executable, script, parley.address, "linear"]
    processes = [children.start(command + [f"trainer-{i}", str(i), "3", str(rounds)], stdout=subprocess.PIPE, text=True)
                 for i in range(3)]
    said = [p.communicate(timeout=PATIENCE)[0].split() for p in processes]
    assert all(p.returncode == 0 for p in processes)
    values, losses = simulate(rounds, rate, momentum)
    for i in range(3):
        assert np.allclose([float(loss) for loss in said[i][:-1]], [each[i] for each in losses], rtol=1e-4, atol=1e-9)
        assert np.allclose(np.frombuffer(bytes.fromhex(said[i][-1]), "<f4"), values, rtol=1e-6, atol=1e-7)
        assert said[i][-1] == said[0][-1], "all have the same bytes"
        assert float(said[i][-2]) < 1e-4, said[i][-2]
    seen = [v for v in (next(watched) for _ in range(1))]
    while seen[-1].version < rounds:
        seen.append(next(watched))
    assert all(a.version < b.version for a, b in zip(seen, seen[1:]))
    assert list(seen[-1].contributors) == ["trainer-0", "trainer-1", "trainer-2"]
    watched.cancel()
    have = info(parley, "linear")
    assert (have.version, have.rounds, have.partial, have.aborted, have.waiting) == (rounds, rounds, 0, 0, 0), have
    numbers = 4 * (trainer.N_FEATURES + 1)
    assert have.size_bytes == numbers and have.held_bytes <= (3 + 3) * numbers, have


def sgd_vector(parley):
    create(parley.params, "vector", {"p": [1]}, optimiser=params.ParamsOptimiser(learning_rate=0.001, momentum=0.9))
    updates = Updates(parley.params)
    for step, want in enumerate((-0.001, -0.0029, -0.00561), 1):
        answer = updates.update("vector", "a", step, [1.0], base=step - 1)
        assert answer.version.version == answer.version.counted_in == step
        assert abs(answer.values[0] - want) < 1e-9, answer.values
    updates.close()


def fan_in(parley):
    for reduce, want in ((params.PARAMS_REDUCE_MEAN, (-5, -1, 1)), (params.PARAMS_REDUCE_SUM, (-23, -10, -5))):
        name = f"fan-in-{reduce}"
        create(parley.params, name, {"w": [3]}, values=[1, 2, 3], reduce=reduce, round_size=2, fan_in=2)
        for step in range(1, 5):
            pushed = parley.params.Push(upload(name, f"pusher-{step}", step, [6, 3, 2]))
        until("the round", lambda: info(parley, name).version == 1)
        assert pushed.dropped == 0
        assert tuple(pull(parley, name).values) == want, pull(parley, name).values
        assert list(pull(parley, name).version.contributors) == [f"pusher-{i}" for i in range(1, 5)]


def pushed_and_awaited(parley):
    """Pushed gradients wait until there are enough, and count in a round like those that somebody waits for."""
    create(parley.params, "queue", {"w": [1]}, fan_in=4, max_queue=4)
    for step in range(1, 4):
        assert parley.params.Push(upload("queue", "p", step, [step])).depth == step
    parley.params.Push(upload("queue", "p", 4, [4]))
    until("the round", lambda: info(parley, "queue").version == 1)
    assert pull(parley, "queue").values[0] == -2.5
    create(parley.params, "mixed", {"w": [1]}, round_size=2, dedupe=True)
    one = later(lambda: Updates(parley.params).update("mixed", "a", 1, [1]))
    until("the first", lambda: info(parley, "mixed").waiting == 1)
    parley.params.Push(upload("mixed", "p", 1, [3]))
    assert one().values[0] == -2
    parley.params.Push(upload("mixed", "p", 1, [3]))
    assert (info(parley, "mixed").depth, info(parley, "mixed").duplicates) == (0, 1)
    fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: parley.params.Push(iter(())), says="without a gradient")


def together(parley, name, step, who):
    """What comes of updates of all these at once; None: a round's time was over before all were in it."""
    others = [later(lambda i=i: Updates(parley.params).update(name, f"t{i}", step, [i, 2])) for i in who]
    answers = []
    for other in others:
        try:
            answers.append(other())
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.ABORTED, error
    return answers if len(answers) == len(others) else None


def in_time(holds):
    """How fast the machine is decides nothing: what does not hold with so many milliseconds is given more."""
    ms = 200
    while not holds(ms):
        ms *= 2
        assert ms < PATIENCE * 1000, "nobody is ever in time"


def goes_on_without(parley, timeout_ms):
    name = f"partial-{timeout_ms}"
    quorum = params.ParamsQuorum(min=2, timeout_ms=timeout_ms, on_miss=params.PARAMS_ON_MISS_APPLY_PARTIAL)
    create(parley.params, name, {"w": [2]}, round_size=3, quorum=quorum)
    doomed = Updates(parley.params)
    doomed.send(*upload(name, "doomed", 1, [9, 9]))
    until("its contribution", lambda: info(parley, name).waiting == 1 or info(parley, name).aborted > 0)
    doomed.stream.cancel()
    until("its leaving", lambda: info(parley, name).waiting == 0)
    answers = together(parley, name, 1, (1, 3))
    have = info(parley, name)
    if answers is None or have.aborted > 0:
        return False
    for answer in answers:
        assert answer.version.version == 1 and list(answer.version.contributors) == ["t1", "t3"]
        assert tuple(answer.values) == (-2, -2)
    assert (have.partial, have.rounds, have.aborted) == (1, 1, 0), have
    return True


def may_come_again(parley, timeout_ms):
    name = f"abort-{timeout_ms}"
    create(parley.params, name, {"w": [2]}, round_size=3, quorum=params.ParamsQuorum(timeout_ms=timeout_ms))
    assert together(parley, name, 1, (1, 2)) is None
    have = info(parley, name)
    assert (have.version, have.rounds, have.aborted, have.waiting) == (0, 0, 2, 0), have
    answers = together(parley, name, 1, range(3))
    assert answers is None or {answer.version.version for answer in answers} == {1}, "the same steps may come again"
    return answers is not None


def killed_trainer(parley):
    """Its upload complete, it goes away: the round is aborted, or applied without it, as configured."""
    in_time(lambda ms: goes_on_without(parley, ms))
    in_time(lambda ms: may_come_again(parley, ms))


def duplicates(parley):
    create(parley.params, "dedupe", {"w": [1]}, round_size=2, dedupe=True)
    first = later(lambda: Updates(parley.params).update("dedupe", "a", 5, [1]))
    until("the first", lambda: info(parley, "dedupe").waiting == 1)
    again = later(lambda: Updates(parley.params).update("dedupe", "a", 5, [1]))
    until("the duplicate", lambda: info(parley, "dedupe").duplicates == 1)
    assert info(parley, "dedupe").waiting == 1, "it counts once"
    other = Updates(parley.params).update("dedupe", "b", 1, [3])
    assert first().values[0] == again().values[0] == other.values[0] == -2
    stored = Updates(parley.params).update("dedupe", "a", 5, [1])
    assert (stored.version.version, stored.version.counted_in, stored.values[0]) == (1, 1, -2)
    assert info(parley, "dedupe").rounds == 1
    fails(grpc.StatusCode.ALREADY_EXISTS, lambda: Updates(parley.params).update("dedupe", "a", 4, [1]), says="version 1")
    # without its first caller, who joined still gets it
    gone = Updates(parley.params)
    gone.send(*upload("dedupe", "a", 6, [1]))
    until("its contribution", lambda: info(parley, "dedupe").waiting == 1)
    again = later(lambda: Updates(parley.params).update("dedupe", "a", 6, [1]))
    until("the duplicate", lambda: info(parley, "dedupe").duplicates == 3)
    gone.stream.cancel()
    Updates(parley.params).update("dedupe", "b", 2, [3])
    assert again().version.counted_in == 2


def bad_uploads(parley):
    """Each is refused by its reason, and the round that waits meanwhile is untouched."""
    create(parley.params, "bad", {"w": [2, 3], "b": [3]}, round_size=2, max_staleness=1)
    good = np.arange(9)
    waiting = later(lambda: Updates(parley.params).update("bad", "patient", 1, good))
    until("the first", lambda: info(parley, "bad").waiting == 1)

    def refused(code, messages, **more):
        def call():
            updates = Updates(parley.params)
            updates.send(*messages)
            updates.close()
            list(updates.stream)

        detail = fails(code, call, **more)
        have = info(parley, "bad")
        assert (have.waiting, have.version) == (1, 0), have
        return detail

    def with_part(**change):
        messages = list(upload("bad", "a", 1, good))
        for name, value in change.items():
            if name == "sha256":
                messages[-1].sha256 = value
            else:
                setattr(messages[1].chunk, name, value)
        return messages

    invalid, loss = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DATA_LOSS
    refused(loss, with_part(crc32c=1), says="crc32c")
    refused(loss, with_part(sha256=b"x" * 32), says="sha256")
    refused(invalid, with_part(sha256=b"x" * 31), field="sha256")
    refused(invalid, with_part(sha256=b""), field="sha256", says="needs crc_only")
    by_crc = list(upload("bad", "a", 1, good))
    by_crc[0].header.crc_only = True
    refused(invalid, by_crc, field="sha256", says="the header says crc_only")
    by_crc = [*by_crc[:-1], params.ParamsUpload(sha256=b"")]
    by_crc[1].chunk.crc32c ^= 1
    refused(loss, by_crc, says="crc32c")
    refused(invalid, with_part(offset=4), field="offset")
    refused(invalid, with_part(data=b"12345"), field="data")
    refused(invalid, with_part(data=b""), field="data")
    refused(invalid, list(upload("bad", "a", 1, np.arange(10))), field="data")
    refused(invalid, list(upload("bad", "a", 1, np.arange(8))), field="sha256", says="32 of 36")
    refused(invalid, list(upload("bad", "a", 1, good))[:2], says="inside an upload")
    refused(invalid, list(upload("bad", "a", 1, good))[:1], says="inside an upload")
    refused(invalid, list(upload("bad", "a", 1, good))[1:], says="header")
    refused(invalid, [next(upload("bad", "a", 1, good))] * 2, says="header")
    refused(invalid, [params.ParamsUpload()])
    for value in (np.nan, np.inf, -np.inf):
        wrong = good.astype(np.float32)
        wrong[7] = value
        refused(invalid, list(upload("bad", "a", 1, wrong)), field="b", says=" at position 1,")
    spec = tensor_pb2.TensorSpec
    f32 = tensor_pb2.DTYPE_F32
    refused(invalid, list(upload("bad", "a", 1, good, specs=[spec(name="w", shape=[2, 3])])), field="dtype", says="missing")
    shapes = [spec(name="w", dtype=f32, shape=[3, 2]), spec(name="b", dtype=f32, shape=[3])]
    refused(invalid, list(upload("bad", "a", 1, good, specs=shapes)), field="w", says="f32[3,2], it must be f32[2,3]")
    shapes = [spec(name="w", shape=[2, 3], dtype="DTYPE_F64"), spec(name="b", dtype=f32, shape=[3])]
    refused(invalid, list(upload("bad", "a", 1, good, specs=shapes)), field="w", says="f64")
    refused(invalid, list(upload("bad", "", 1, good)), field="client_id")
    refused(invalid, list(upload("bad", "a", 1, good, base=3)), field="base_version")
    refused(grpc.StatusCode.NOT_FOUND, list(upload("nobody", "a", 1, good)), says="bad")

    cut = Updates(parley.params)
    cut.send(*list(upload("bad", "a", 1, good))[:2])
    cut.stream.cancel()
    small = list(parts(params.ParamsUpload, good, chunk=8))
    several = Updates(parley.params)
    several.send(next(upload("bad", "a", 1, good)), *small)
    assert trainer.Answer(several.stream).version.version == waiting().version.version == 1
    for n in range(2, 4):
        pair = [later(lambda c=c: Updates(parley.params).update("bad", c, n, good, base=n - 1)) for c in ("a", "b")]
        assert [p().version.version for p in pair] == [n, n]
    stale = list(upload("bad", "late", 1, good, base=1))

    def send_stale():
        updates = Updates(parley.params)
        updates.send(*stale)
        list(updates.stream)

    detail = fails(grpc.StatusCode.FAILED_PRECONDITION, send_stale, field="base_version")
    assert (detail.have_version, detail.want_version) == (1, 3), detail


def wants(parley):
    create(parley.params, "wants", {"w": [1]}, values=[4])
    updates = Updates(parley.params)
    assert updates.update("wants", "a", 1, [1], want=params.PARAMS_WANT_NOTHING).version.size_bytes == 0
    assert updates.update("wants", "a", 2, [1], base=1, want=params.PARAMS_WANT_IF_CHANGED).values[0] == 2
    updates.close()
    assert pull(parley, "wants", has_if_newer_than=True, if_newer_than=2).version.size_bytes == 0
    assert pull(parley, "wants", has_if_newer_than=True, if_newer_than=1).values[0] == 2
    fails(grpc.StatusCode.NOT_FOUND, lambda: pull(parley, "nobody"), says="wants")
    fails(grpc.StatusCode.NOT_FOUND, lambda: next(parley.params.Watch(params.ParamsWatchRequest(name="nobody"))))


def follow(parley, name, source, **more):
    return parley.params.Follow(params.ParamsFollowRequest(name=name, source=source, **more))


def follows(parley):
    """A target network: made by the first call, moved by each, while rounds of the source go on."""
    invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    net = np.arange(3001, dtype=np.float32) / 7
    create(parley.params, "followed", {"w": [3000], "b": [1]}, values=net, round_size=1, dedupe=True)
    made = follow(parley, "target", "followed", tau=0.5)
    assert (made.version, made.is_made) == (0, True)
    updates, target = Updates(parley.params), net.copy()
    for step in range(1, 5):
        net = updates.update("followed", "a", step, np.ones(3001), base=step - 1).values
        moved = follow(parley, "target", "followed", tau=0.25)
        target += np.float32(0.25) * (net - target)
        assert (moved.version, moved.source_version, moved.is_made) == (step, step, False), moved
        assert pull(parley, "target").values.tobytes() == target.tobytes()
    assert follow(parley, "target", "followed").version == 4, "without tau it stays"
    assert follow(parley, "target", "followed", tau=0).version == 5 and pull(parley, "target").values.tobytes() == target.tobytes()
    follow(parley, "target", "followed", tau=1)
    assert pull(parley, "target").values.tobytes() == net.tobytes()
    create(parley.params, "narrow", {"w": [3000], "c": [1]}, round_size=1)
    create(parley.params, "of two", {"w": [3000], "b": [1]}, round_size=2)
    fails(invalid, lambda: follow(parley, "narrow", "followed", tau=0.5), says="'c'")
    fails(grpc.StatusCode.FAILED_PRECONDITION, lambda: follow(parley, "of two", "followed", tau=0.5), field="name", says="round_size")
    fails(invalid, lambda: follow(parley, "target", "target", tau=0.5), field="source")
    fails(missing, lambda: follow(parley, "new", "nobody", tau=0.5), field="source", says="nobody")
    for tau in -0.1, 1.1, float("nan"):
        fails(invalid, lambda tau=tau: follow(parley, "target", "followed", tau=tau), field="tau")
    fails(invalid, lambda: follow(parley, "x" * 65, "followed", tau=0.5), field="name")
    assert "new" not in [p.name for p in parley.params.List(params.ParamsListRequest()).params]
    # many at once, with rounds between: each counts once, in some order
    before = info(parley, "target").version
    moves = [later(lambda: follow(parley, "target", "followed", tau=0.1).version) for _ in range(8)]
    for step in range(5, 9):
        updates.update("followed", "a", step, np.ones(3001), base=step - 1)
    assert sorted(move() for move in moves) == list(range(before + 1, before + 9))
    # who leaves before a set is made, or before the step, leaves nothing half made
    for i in range(5):
        calls = [parley.params.Follow.future(params.ParamsFollowRequest(name=f"left {i}", source="followed")) for _ in range(2)]
        calls[0].cancel()
        calls[1].cancel()
    until("nothing half made", lambda: all(follow_is_whole(parley, f"left {i}") for i in range(5)))
    parley.params.Delete(params.ParamsDeleteRequest(name="followed"))
    assert pull(parley, "target").version.version == before + 8, "the target has its own memory"
    updates.close()


def follow_is_whole(parley, name):
    try:
        return len(pull(parley, name).values) == 3001
    except grpc.RpcError as error:
        return error.code() == grpc.StatusCode.NOT_FOUND


def creation(parley):
    exists, invalid = grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.INVALID_ARGUMENT
    create(parley.params, "taken", {"w": [1]})
    fails(exists, lambda: create(parley.params, "taken", {"w": [1]}), says="taken")
    fails(invalid, lambda: create(parley.params, "", {"w": [1]}), field="name")
    fails(invalid, lambda: create(parley.params, "x", {}), field="specs")
    fails(invalid, lambda: create(parley.params, "x", {"w": [2**40, 2**40]}), field="w")
    twice = params.ParamsConfig(name="x", specs=[tensor_pb2.TensorSpec(name="w", dtype=tensor_pb2.DTYPE_F32, shape=[1])] * 2, round_size=1,
                                optimiser=params.ParamsOptimiser(learning_rate=1))
    fails(invalid, lambda: parley.params.Create(iter([params.ParamsCreateRequest(config=twice)])), field="specs", says="'w'")
    fails(grpc.StatusCode.FAILED_PRECONDITION, lambda: create(parley.params, "x", {"w": [2**40]}), field="specs")
    fails(invalid, lambda: create(parley.params, "x", {"w": [1]}, round_size=3, quorum=params.ParamsQuorum(min=4)), field="quorum.min")
    fails(invalid, lambda: create(parley.params, "x", {"w": [1]}, round_size=3, quorum=params.ParamsQuorum(on_miss=7)), field="quorum.on_miss")
    fails(invalid, lambda: create(parley.params, "x", {"w": [1]}, round_size=3, reduce=7), field="reduce")
    partial = params.ParamsQuorum(min=1, on_miss=params.PARAMS_ON_MISS_APPLY_PARTIAL)
    fails(invalid, lambda: create(parley.params, "x", {"w": [1]}, round_size=3, quorum=partial), field="quorum.timeout_ms")
    fails(invalid, lambda: create(parley.params, "x", {"w": [1]}, fan_in=65), field="max_queue")
    fails(invalid, lambda: create(parley.params, "x", {"w": [2]}, values=[1]), field="sha256")
    fails(invalid, lambda: create(parley.params, "x", {"w": [1]}, values=[np.nan]), field="w")
    fails(invalid, lambda: parley.params.Create(iter(())), field="config")
    create(parley.params, "x", {"w": [1]}, values=[3])
    assert pull(parley, "x").values[0] == 3, "what failed left no name behind"


def deletion(parley):
    create(parley.params, "doomed", {"w": [1]}, round_size=2)
    waiting = later(lambda: Updates(parley.params).update("doomed", "a", 1, [1]))
    until("the first", lambda: info(parley, "doomed").waiting == 1)
    watched = parley.params.Watch(params.ParamsWatchRequest(name="doomed"))
    next(watched)
    parley.params.Delete(params.ParamsDeleteRequest(name="doomed"))
    fails(grpc.StatusCode.NOT_FOUND, waiting, says="deleted")
    fails(grpc.StatusCode.NOT_FOUND, lambda: next(watched), says="deleted")
    fails(grpc.StatusCode.NOT_FOUND, lambda: parley.params.Delete(params.ParamsDeleteRequest(name="doomed")))
    create(parley.params, "doomed", {"w": [1]})


class Shared:
    """A client's end of the memory of a stream."""

    def __init__(self, stream, name):
        self.updates = stream
        stream.send(params.ParamsUpload(memory=params.ParamsMemoryRequest(name=name)))
        self.said = next(stream.stream).memory
        self.fd = os.open(f"/proc/{self.said.pid}/fd/{self.said.fd}", os.O_RDWR)
        assert os.readlink(f"/proc/self/fd/{self.fd}") == f"/memfd:{self.said.label} (deleted)"
        self.map = mmap.mmap(self.fd, self.said.size_bytes)
        self.gradient, self.values = np.frombuffer(self.map, "<f4").reshape(2, -1)

    def update(self, name, client, step, base=0, *messages, **more):
        header = params.ParamsUploadHeader(name=name, client_id=client, step_id=step, base_version=base, in_memory=True, **more)
        self.updates.send(params.ParamsUpload(header=header), *messages, params.ParamsUpload(sha256=b""))
        return next(self.updates.stream).version


def in_memory(parley):
    """Gradients and parameters in memory that a stream shares: the bits are those of chunks; what is refused; nobody can cut the memory
    off; it is gone with its stream, or its client."""
    trainer.crc32c = lambda data: google_crc32c.value(bytes(data))  # of megabytes
    n, names = (1 << 20) + 3, ("chunked", "shared", "both")
    for name in names:
        create(parley.params, name, {"w": [n]}, round_size=2 if name == "both" else 1, dedupe=True,
               optimiser=params.ParamsOptimiser(learning_rate=0.1, momentum=0.9))
    held = info(parley, "shared").held_bytes
    draws = np.random.default_rng(1).standard_normal((3, n)).astype(np.float32)
    shared = Shared(Updates(parley.params), "shared")
    assert shared.said.size_bytes == 8 * n
    chunked = trainer.Updates(parley.params)
    for step, gradient in enumerate(draws[:2], 1):
        shared.gradient[:] = gradient
        version = shared.update("shared", "a", step, step - 1)
        assert version.in_memory and version.size_bytes == 0 and version.version == version.counted_in == step
        want = chunked.update("chunked", "a", step, gradient, step - 1)
        assert np.array_equal(shared.values, want.values), "the same bits"
    assert np.array_equal(pull(parley, "shared").values, shared.values)
    version = shared.update("shared", "a", 2, 1)
    assert version.counted_in == version.version == 2 and version.in_memory, "a step that was sent again counts once"
    assert not shared.update("shared", "a", 3, 2, want=params.PARAMS_WANT_NOTHING).in_memory
    shared.gradient[12345] = np.nan
    fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: shared.update("shared", "a", 4, 3), says="w")
    for operation in (lambda: os.ftruncate(shared.fd, 4096), lambda: os.ftruncate(shared.fd, 1 << 30)):
        try:
            operation()
            raise AssertionError("the memory was cut off")
        except PermissionError:
            pass
    assert info(parley, "shared").held_bytes <= held + 5 * 4 * n
    one, other = Shared(Updates(parley.params), "both"), Updates(parley.params)
    one.gradient[:] = 1
    waiting = later(lambda: other.update("both", "b", 1, np.full(n, 3)))
    assert list(one.update("both", "a", 1).contributors) == ["a", "b"]
    assert (one.values == np.float32(-0.2)).all() and np.array_equal(waiting().values, one.values), "both ways in one round"
    until("the memory of the stream that failed to be gone", lambda: not any(shared.said.label in link for link in links(shared.said.pid)))

    def refuses(field, *messages, says=""):
        stream = Updates(parley.params)
        stream.send(*messages)
        detail = fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: [m for m in stream.stream], field, says)
        stream.close()
        return detail

    create(parley.params, "small", {"w": [4]})
    create(parley.params, "another", {"w": [n - 1]})
    header = params.ParamsUpload(header=params.ParamsUploadHeader(name="shared", client_id="c", step_id=1, in_memory=True))
    ask, end = params.ParamsUpload(memory=params.ParamsMemoryRequest(name="shared")), params.ParamsUpload(sha256=b"")
    chunk = params.ParamsUpload(chunk=params.ParamsChunk(data=bytes(4), crc32c=trainer.crc32c(bytes(4))))
    refuses("name", params.ParamsUpload(memory=params.ParamsMemoryRequest(name="small")), says="send chunks")
    refuses("in_memory", header, end, says="ask for it first")
    refuses("in_memory", params.ParamsUpload(memory=params.ParamsMemoryRequest(name="another")), header, end, says="for another set")
    refuses("chunk", ask, header, chunk, end, says="in_memory")
    refuses("sha256", ask, header, params.ParamsUpload(sha256=bytes(32)), says="in_memory")
    refuses("memory", ask, header, ask, says="between two updates")
    fails(grpc.StatusCode.NOT_FOUND, lambda: Shared(Updates(parley.params), "nobody's"))
    killed = children.start([sys.executable, "-c", f"""import sys
sys.argv = ["x"]; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import harness, os, signal
from harness import params
from trainer import Updates
updates = Updates(harness.Client({parley.address!r}).params)
updates.send(params.ParamsUpload(memory=params.ParamsMemoryRequest(name="shared")))
print(next(updates.stream).memory.label, flush=True)
os.kill(os.getpid(), signal.SIGKILL)"""], stdout=subprocess.PIPE, text=True)
    label = killed.stdout.readline().strip()
    killed.wait()
    assert label
    until("the memory of a client that was killed to be gone", lambda: not any(label in link for link in links(one.said.pid)))
    parley.params.Delete(params.ParamsDeleteRequest(name="both"))
    fails(grpc.StatusCode.NOT_FOUND, lambda: next(one.updates.stream), says="deleted")
    for name in ("chunked", "shared", "small", "another"):
        parley.params.Delete(params.ParamsDeleteRequest(name=name))


def links(pid):
    """What the descriptors of a process are."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass  # it was closed
    return found


def stops_with_a_round_open(parleyd):
    """Who waits when the server stops is told so; the daemon ends with 0 all the same."""
    with harness.Parleyd(parleyd, "--drain-timeout", "1s") as parley:
        create(parley.params, "open", {"w": [1]}, round_size=2)
        waiting = later(lambda: Updates(parley.params).update("open", "a", 1, [1]))
        until("the first", lambda: info(parley, "open").waiting == 1)
        idle = Updates(parley.params)
    try:
        waiting()
    except grpc.RpcError as error:
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), error
    idle.close()


def main():
    parleyd = sys.argv[1]
    with harness.Parleyd(parleyd) as parley:
        for part in (sgd_vector, three_trainers, fan_in, pushed_and_awaited, killed_trainer, duplicates, bad_uploads, wants, follows, creation,
                     deletion, in_memory):
            begun = time.monotonic()
            part(parley)
            print(f"{part.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    stops_with_a_round_open(parleyd)
    print("stops_with_a_round_open")


main()
