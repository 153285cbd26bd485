#!/usr/bin/env python3
"""parley.v1.Work by raw calls: workers that obey and workers that do not, Submit, Map, Wait, Cancel, request ids, deadlines,
retries, and who may do what.

usage: test_work.py PARLEYD      (run by the interpreter that has grpcio; see venv.sh)"""
import os
import queue
import signal
import sys
import tempfile
import urllib.request

import grpc

import children
import harness
import test_keys
from children import until
from parley.v1 import work_pb2 as pb, work_pb2_grpc

PARLEYD = sys.argv[1]
PATIENCE = children.PATIENCE


class Worker:
    """A worker by hand: it computes nothing that it is not told to."""

    def __init__(self, channel, *functions, metadata=None, **offer):
        self.out = queue.SimpleQueue()
        self.call = work_pb2_grpc.WorkStub(channel).Attach(iter(self.out.get, None), metadata=metadata, timeout=2 * PATIENCE)
        self.send(offer=pb.WorkOffer(functions=functions, **offer))
        self.waiting = []
        self.accepted = next(self.call).accepted

    def send(self, **what):
        self.out.put(pb.WorkAttachRequest(**what))

    def order(self):
        while not self.waiting:
            self.waiting += next(self.call).orders
        return self.waiting.pop(0)

    def answer(self, order, payload, **more):
        self.send(answers=[pb.WorkAnswer(task=order.task, payload=payload, **more)])

    def compute(self, n=1):
        for _ in range(n):
            order = self.order()
            self.answer(order, order.payload[::-1])

    def leave(self):
        self.out.put(None)
        self.call.cancel()

    def ended(self):
        """The sentence with which the daemon ended it."""
        try:
            for _ in self.call:
                pass
        except grpc.RpcError as e:
            return e.code(), e.details()
        return grpc.StatusCode.OK, ""


def refused(call, code, words):
    try:
        call()
    except grpc.RpcError as e:
        assert e.code() == code and words in e.details(), e
        return e
    raise AssertionError(f"it was not refused: {words}")


def is_draining(stub):
    try:
        submit(stub, b"", function="nobody's")
    except grpc.RpcError as e:
        return e.code() == grpc.StatusCode.UNAVAILABLE
    return False


def submit(stub, *payloads, function="turn", **more):
    return stub.Submit(iter([pb.WorkSubmitRequest(tasks=[pb.WorkTask(function=function, payload=p, **more) for p in payloads])])).tasks


def results(stub, tasks, until=pb.WORK_UNTIL_ALL, **more):
    got, rest = [], b""
    for m in stub.Wait(pb.WorkWaitRequest(tasks=tasks, until=until), timeout=PATIENCE, **more):
        got += m.results
        if m.rest:
            got[-1].payload += m.rest
    return got


def test_tasks(channel):
    """A task's life: submitted, computed, waited for by several, forgotten; the order is that of arrival."""
    stub = work_pb2_grpc.WorkStub(channel)
    refused(lambda: submit(stub, b"abc"), grpc.StatusCode.NOT_FOUND, "offered by no worker")
    worker = Worker(channel, "turn", "other", room=3)
    tasks = submit(stub, b"a1", b"b2", b"c3", b"d4", b"e5")
    orders = [worker.order() for _ in range(3)]
    assert [o.payload for o in orders] == [b"a1", b"b2", b"c3"] and list(tasks[:3]) == [o.task for o in orders]
    worker.answer(orders[1], b"2b")
    assert worker.order().payload == b"d4", "there was room for one"
    (any_one,) = results(stub, tasks, pb.WORK_UNTIL_ANY)
    assert any_one.payload == b"2b" and any_one.task == tasks[1]
    failed = pb.WorkException(type="Odd", message="it is\nso", trace="here")
    worker.send(answers=[pb.WorkAnswer(task=orders[0].task, exception=failed, payload=b"itself")])
    got = results(stub, tasks, pb.WORK_UNTIL_FIRST_ERROR)
    assert got[-1].exception == failed and got[-1].payload == b"itself" and got[-1].error.code == grpc.StatusCode.UNKNOWN.value[0]
    stub.Cancel(pb.WorkCancelRequest(tasks=tasks[2:4]))
    worker.send(answers=[pb.WorkAnswer(task=t) for t in tasks[2:4]])  # too late: they are of no use
    worker.compute()
    got = {r.task: r for r in results(stub, tasks)}
    assert got[tasks[2]].error.code == got[tasks[3]].error.code == grpc.StatusCode.CANCELLED.value[0] and got[tasks[4]].payload == b"5e"
    stub.Cancel(pb.WorkCancelRequest(tasks=tasks))
    refused(lambda: results(stub, tasks), grpc.StatusCode.NOT_FOUND, "no such task")
    refused(lambda: results(stub, []), grpc.StatusCode.INVALID_ARGUMENT, "tasks")
    worker.leave()


def test_request_ids(channel):
    """The same request id is the same task; with another body it is refused."""
    stub = work_pb2_grpc.WorkStub(channel)
    worker = Worker(channel, "turn", room=10)
    tasks = [submit(stub, b"once", request_id="r1")[0] for _ in range(3)]
    assert len(set(tasks)) == 1
    refused(lambda: submit(stub, b"else", request_id="r1"), grpc.StatusCode.ALREADY_EXISTS, "another body")
    refused(lambda: submit(stub, b"x", request_id="r" * 129), grpc.StatusCode.INVALID_ARGUMENT, "request_id")
    worker.compute()
    assert results(stub, tasks[:1])[0].payload == b"ecno" and submit(stub, b"once", request_id="r1")[0] == tasks[0]
    plain = submit(stub, b"x", b"x")
    assert plain[0] != plain[1]
    worker.compute(2)
    assert len(results(stub, plain)) == 2
    worker.leave()


def test_large_payloads(channel):
    """Payloads and results of more than a message come in parts."""
    stub = work_pb2_grpc.WorkStub(channel)
    worker = Worker(channel, "turn", room=2)
    data = os.urandom(5_000_000)
    parts = [pb.WorkSubmitRequest(tasks=[pb.WorkTask(function="turn", payload=b"small"),
                                         pb.WorkTask(function="turn", payload=data[:1_000_000], size_bytes=len(data))])]
    parts += [pb.WorkSubmitRequest(rest=data[at:at + 1_000_000]) for at in range(1_000_000, len(data), 1_000_000)]
    tasks = stub.Submit(iter(parts)).tasks
    worker.compute()
    order, got = worker.order(), b""
    got = order.payload
    while len(got) < order.size_bytes:
        got += next(worker.call).rest
    assert got == data
    worker.send(answers=[pb.WorkAnswer(task=order.task, payload=data[:2_000_000], size_bytes=len(data))])
    worker.send(rest=data[2_000_000:4_000_000])
    worker.send()  # it lives
    worker.send(rest=data[4_000_000:])
    assert [r.payload for r in results(stub, tasks)] == [b"llams", data]
    refused(lambda: stub.Submit(iter(parts[:2])), grpc.StatusCode.INVALID_ARGUMENT, "not whole")
    refused(lambda: stub.Submit(iter([parts[0], parts[0]])), grpc.StatusCode.INVALID_ARGUMENT, "rest is missing")
    refused(lambda: stub.Submit(iter([pb.WorkSubmitRequest(rest=b"x")])), grpc.StatusCode.INVALID_ARGUMENT, "belongs to no task")
    refused(lambda: stub.Submit(iter([parts[0]] + [pb.WorkSubmitRequest(rest=b"x" * 3_000_000)] * 2)), grpc.StatusCode.INVALID_ARGUMENT, "announced")
    refused(lambda: submit(stub, b"x", size_bytes=1 << 40), grpc.StatusCode.INVALID_ARGUMENT, "at most")
    worker.leave()


def test_map(channel):
    """One stream: results as they are done; what is not done when it ends is cancelled."""
    stub = work_pb2_grpc.WorkStub(channel)
    worker = Worker(channel, "turn", room=4)
    out = queue.SimpleQueue()
    call = stub.Map(iter(out.get, None), timeout=PATIENCE)
    out.put(pb.WorkSubmitRequest(tasks=[pb.WorkTask(function="turn", payload=b"m%d" % i, tag=i) for i in range(6)]))
    orders = [worker.order() for _ in range(4)]
    worker.answer(orders[2], b"two")
    (first,) = next(call).results
    assert first.tag == 2 and first.payload == b"two"
    out.put(pb.WorkSubmitRequest(cancel=[5]))
    assert next(call).results[0].tag == 5
    worker.answer(orders[0], b"zero")
    worker.answer(orders[1], b"one")
    worker.answer(orders[3], b"three")
    worker.compute()
    out.put(None)
    assert sorted(r.tag for m in call for r in m.results) == [0, 1, 3, 4]
    left = queue.SimpleQueue()
    gone = stub.Map(iter(left.get, None))
    left.put(pb.WorkSubmitRequest(tasks=[pb.WorkTask(function="turn", payload=b"left")]))
    order = worker.order()
    gone.cancel()
    left.put(None)
    cancelled = list(next(worker.call).cancelled)
    assert cancelled == [order.task], "its result is of no use"
    worker.answer(order, b"")
    submit(stub, b"next")
    assert worker.order().payload == b"next"
    worker.leave()


def test_hostile_workers(channel):
    """A worker that does what it may not ends alone, with a sentence; its tasks go to another."""
    stub = work_pb2_grpc.WorkStub(channel)
    bad = pb.WorkAnswer
    for words, send in (
            ("which this worker does not have", lambda w, o: w.send(answers=[bad(task=1)])),
            ("which this worker does not have", lambda w, o: w.send(answers=[bad(task=o.task, payload=b"ksat"), bad(task=o.task)])),
            ("which this worker does not have", lambda w, o: w.send(returned=[2])),
            ("at most", lambda w, o: w.send(answers=[bad(task=o.task, size_bytes=1 << 50)])),
            ("announced", lambda w, o: [w.send(answers=[bad(task=o.task, size_bytes=3)]), w.send(rest=b"1234")]),
            ("belongs to no answer", lambda w, o: w.send(rest=b"1")),
            ("which is last", lambda w, o: w.send(answers=[bad(task=o.task, size_bytes=3), bad(task=o.task)])),
            ("larger than it may be", lambda w, o: w.send(answers=[bad(task=o.task, exception=pb.WorkException(type="x" * 300))])),
            ("comes once", lambda w, o: w.send(offer=pb.WorkOffer(functions=["turn"]))),
            ("at most", lambda w, o: w.send(room=5000))):
        worker = Worker(channel, "bad")
        (task,) = submit(stub, b"task", function="bad", retries=1)
        send(worker, worker.order())
        code, said = worker.ended()
        assert code == grpc.StatusCode.INVALID_ARGUMENT and words in said, (words, said)
        good = Worker(channel, "bad")
        rest = submit(stub, b"more", function="bad")  # behind it, if it is not done: the first of two answers was good
        got = []
        while not any(o.task == rest[0] for o in got):
            got.append(good.order())
            good.answer(got[-1], got[-1].payload[::-1])
        assert results(stub, [task])[0].payload == b"ksat"
        good.leave()
    for offer, words in ((dict(), "functions"), (dict(functions=["a b"]), "letters"), (dict(functions=["a", "a"]), "twice"),
                         (dict(functions=["a"], room=100000), "room"), (dict(functions=["x%d" % i for i in range(65)]), "functions"),
                         (dict(functions=["a"], name="ü"), "letters")):
        call = stub.Attach(iter([pb.WorkAttachRequest(offer=pb.WorkOffer(**offer))]))
        refused(lambda: next(call), grpc.StatusCode.INVALID_ARGUMENT, words)
    refused(lambda: next(stub.Attach(iter([pb.WorkAttachRequest()]))), grpc.StatusCode.INVALID_ARGUMENT, "sent first")


def test_lost_workers(channel):
    """Retries, then ABORTED with what the supervisor reported, before or after; what had not begun is not lost."""
    stub = work_pb2_grpc.WorkStub(channel)
    worker = Worker(channel, "lost", room=2)
    tasks = submit(stub, b"one", b"two", function="lost")
    again = submit(stub, b"three", function="lost", retries=1)
    assert [worker.order().payload for _ in range(2)] == [b"one", b"two"]
    worker.leave()
    got = results(stub, tasks, pb.WORK_UNTIL_ANY)[0]
    assert got.task == tasks[0] and got.error.code == grpc.StatusCode.ABORTED.value[0] and got.error.reason == "WORKER_LOST" and got.HasField("loss")
    worker = Worker(channel, "lost", name="w1", room=3, at_once=3)
    assert [worker.order().payload for _ in range(2)] == [b"two", b"three"]
    stub.Report(pb.WorkReportRequest(worker="w1", signal=11, stderr_tail="Segmentation fault", tells_begun=True, begun=tasks[1:]))
    worker.leave()
    got = results(stub, tasks)[1]
    assert got.task == tasks[1] and got.loss.signal == 11 and got.loss.stderr_tail == "Segmentation fault" and "signal 11" in got.error.message
    for name, late in ("w2", False), ("w3", True):
        worker = Worker(channel, "lost", name=name)
        assert worker.order().payload == b"three"
        worker.leave()
        stub.Report(pb.WorkReportRequest(worker=name, exit_code=4, tells_begun=True, begun=again))
    (got,) = results(stub, again)
    assert got.loss.exit_code == 4 and "as often as it may be (2)" in got.error.message
    refused(lambda: stub.Report(pb.WorkReportRequest(worker="")), grpc.StatusCode.INVALID_ARGUMENT, "worker")
    refused(lambda: stub.Report(pb.WorkReportRequest(worker="w", stderr_tail="x" * 5000)), grpc.StatusCode.INVALID_ARGUMENT, "stderr_tail")


def test_deadlines(channel):
    """A task that is not done in time fails, wherever it is; a wait has a deadline of its own."""
    stub = work_pb2_grpc.WorkStub(channel)
    worker = Worker(channel, "slow")
    tasks = submit(stub, b"one", b"two", function="slow", timeout_ms=50)
    order = worker.order()
    assert {r.error.code for r in results(stub, tasks)} == {grpc.StatusCode.DEADLINE_EXCEEDED.value[0]}
    assert list(next(worker.call).cancelled) == [order.task]
    worker.answer(order, b"late")
    (task,) = submit(stub, b"three", function="slow")
    refused(lambda: list(stub.Wait(pb.WorkWaitRequest(tasks=[task]), timeout=0.05)), grpc.StatusCode.DEADLINE_EXCEEDED, "")
    worker.compute()
    assert results(stub, [task])[0].payload == b"eerht"
    worker.leave()


def test_silence_and_the_end():
    """A worker that says nothing is given up; a function without workers ends its tasks after the same time; a daemon that stops
    fails what is left."""
    with harness.Parleyd(PARLEYD, "--attach-timeout", "1s", "--drain-timeout", "0s") as client:
        stub = work_pb2_grpc.WorkStub(client.channel)
        worker = Worker(client.channel, "quiet")
        assert worker.accepted.silence_ms == 1000
        (task,) = submit(stub, b"x", function="quiet", retries=1)
        worker.order()
        code, said = worker.ended()
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED and "said nothing for 1000 ms" in said
        (got,) = results(stub, [task])
        assert got.error.code == grpc.StatusCode.UNAVAILABLE.value[0] and "no worker offers" in got.error.message
        Worker(client.channel, "quiet")
        submit(stub, b"x", function="quiet")
    daemon = harness.Parleyd(PARLEYD, "--drain-timeout", "100s")
    with daemon as client:  # a stream of tasks does not hold it up
        stub = work_pb2_grpc.WorkStub(client.channel)
        worker = Worker(client.channel, "last")
        out = queue.SimpleQueue()
        call = stub.Map(iter(out.get, None), timeout=PATIENCE)
        out.put(pb.WorkSubmitRequest(tasks=[pb.WorkTask(function="last", payload=b"abc")]))
        order = worker.order()
        daemon.process.send_signal(signal.SIGTERM)
        until("it drains", lambda: is_draining(stub))
        worker.answer(order, b"cba")
        assert next(call).results[0].payload == b"cba", "what is under way is computed"
        refused(lambda: next(call), grpc.StatusCode.UNAVAILABLE, "shutting down")


def test_principals():
    """With keys a worker for others needs the role attach, a private one serves its own principal; tasks are their submitter's;
    two principals that wait take turns."""
    with tempfile.TemporaryDirectory() as folder:
        path, made = os.path.join(folder, "keys"), {name: test_keys.new_key() for name in ("ann", "bob", "eve")}
        test_keys.write_keys(path, ("ann", made["ann"], "attach"), ("bob", made["bob"]), ("eve", made["eve"]))
        keys = {name: [("authorization", f"Bearer {key}")] for name, key in made.items()}
        with harness.Parleyd(PARLEYD, "--keys", path) as client:
            stub = work_pb2_grpc.WorkStub(client.channel)

            def send(who, *payloads, function="shared"):
                tasks = [pb.WorkTask(function=function, payload=p) for p in payloads]
                return stub.Submit(iter([pb.WorkSubmitRequest(tasks=tasks)]), metadata=keys[who]).tasks

            refused(lambda: Worker(client.channel, "shared", metadata=keys["bob"]), grpc.StatusCode.PERMISSION_DENIED, "role attach")
            worker = Worker(client.channel, "shared", metadata=keys["ann"])
            mine = Worker(client.channel, "own", metadata=keys["bob"], is_private=True)
            refused(lambda: send("eve", b"x", function="own"), grpc.StatusCode.NOT_FOUND, "no worker")
            (own,) = send("bob", b"x", function="own")
            mine.compute()
            assert results(stub, [own], metadata=keys["bob"])[0].payload == b"x"
            refused(lambda: results(stub, [own], metadata=keys["eve"]), grpc.StatusCode.NOT_FOUND, "no such task")
            stub.Cancel(pb.WorkCancelRequest(tasks=[own]), metadata=keys["eve"])
            assert len(results(stub, [own], metadata=keys["bob"])) == 1, "it is not hers to forget"
            send("bob", *[b"b%d" % i for i in range(6)])
            send("eve", *[b"e%d" % i for i in range(3)])
            said = []
            for _ in range(9):
                order = worker.order()
                said.append(order.payload.decode())
                worker.answer(order, b"")
            assert said == ["b0", "e0", "b1", "e1", "b2", "e2", "b3", "b4", "b5"], said
            worker.leave()
            mine.leave()


def test_the_ceiling():
    """What payloads and results take together is bounded; who comes then is told to come back."""
    with harness.Parleyd(PARLEYD, "--http", "127.0.0.1:0", "--work-bytes", "1M") as client:
        stub = work_pb2_grpc.WorkStub(client.channel)
        worker = Worker(client.channel, "turn", room=1)
        refused(lambda: submit(stub, b"x" * 300_000), grpc.StatusCode.INVALID_ARGUMENT, "at most 262144")
        tasks = [submit(stub, b"x" * 200_000)[0] for _ in range(5)]
        e = refused(lambda: submit(stub, b"x" * 200_000), grpc.StatusCode.RESOURCE_EXHAUSTED, "bytes")
        assert any(k == "retry-after-ms" for k, _ in e.trailing_metadata())
        worker.order()  # the first task
        with urllib.request.urlopen(f"http://{client.http}/metrics", timeout=PATIENCE) as response:
            page = response.read().decode()
        assert "\nparley_work_tasks 5\n" in page and "\nparley_work_queued 4\n" in page and "\nparley_work_bytes 1000000\n" in page
        stub.Cancel(pb.WorkCancelRequest(tasks=tasks[1:]))
        stub.Cancel(pb.WorkCancelRequest(tasks=tasks[1:]))
        submit(stub, b"x" * 200_000)
        worker.leave()


def test_a_principals_ceiling():
    """With keys one principal has half of it, results included; a result that has no room fails its task and not its worker."""
    with tempfile.TemporaryDirectory() as folder:
        path, made = os.path.join(folder, "keys"), {name: test_keys.new_key() for name in ("ann", "bob")}
        test_keys.write_keys(path, ("ann", made["ann"], "attach"), ("bob", made["bob"]))
        ann, bob = ([("authorization", f"Bearer {made[name]}")] for name in ("ann", "bob"))
        with harness.Parleyd(PARLEYD, "--keys", path, "--work-bytes", "4M") as client:
            stub = work_pb2_grpc.WorkStub(client.channel)

            def send(who, n_bytes):
                return stub.Submit(iter([pb.WorkSubmitRequest(tasks=[pb.WorkTask(function="turn", payload=b"x" * n_bytes)])]), metadata=who).tasks[0]

            worker = Worker(client.channel, "turn", metadata=ann, room=1)
            tasks = [send(bob, 1000_000) for _ in range(2)]
            refused(lambda: send(bob, 200_000), grpc.StatusCode.RESOURCE_EXHAUSTED, "half of the limit of 4194304 bytes of payloads and results of Work (--work-bytes) is reached: it has 2000000")
            other = send(ann, 200_000)
            said = dict()
            for _ in range(3):
                order = worker.order()
                who = ann if order.task == other else bob
                worker.answer(order, b"y" * 300_000, size_bytes=700_000)
                worker.send(rest=b"y" * 400_000)
                said[order.task] = results(stub, [order.task], metadata=who)[0]
                stub.Cancel(pb.WorkCancelRequest(tasks=[order.task]), metadata=who)
            assert said[tasks[0]].error.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0] and "no room" in said[tasks[0]].error.message
            assert len(said[other].payload) == len(said[tasks[1]].payload) == 700_000, "what was freed is free again"
            worker.leave()


def main():
    with harness.Parleyd(PARLEYD) as client:
        for test in test_tasks, test_request_ids, test_large_payloads, test_map, test_lost_workers, test_deadlines, test_hostile_workers:
            print(test.__name__, flush=True)
            test(client.channel)
    for test in test_silence_and_the_end, test_principals, test_the_ceiling, test_a_principals_ceiling:
        print(test.__name__, flush=True)
        test()


main()
