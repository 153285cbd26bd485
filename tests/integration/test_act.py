#!/usr/bin/env python3
"""Act, as a foreign client sees it: the modes of batching, sessions and their numbers, what is refused, and a
training whose observers come and go.

usage: test_act.py PARLEYD WRITE_POLICY      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import os
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

import children
import harness
from children import PATIENCE, until
from parley.v1 import act_pb2 as act, act_pb2_grpc, tensor_pb2  # harness knows where they are

NONE, AUTO, LOCKSTEP, DYNAMIC = act.ACT_MODE_NONE, act.ACT_MODE_AUTO, act.ACT_MODE_LOCKSTEP, act.ACT_MODE_DYNAMIC


def tensor(*numbers, shape=None, dtype=tensor_pb2.DTYPE_F32, name="observation"):
    return tensor_pb2.Tensor(name=name, dtype=dtype, shape=shape or [len(numbers)], data=struct.pack(f"<{len(numbers)}f", *numbers))


def request(env="env", run=1, seq=1, observation=None, **more):
    return act.ActStepRequest(env_id=env, run_id=run, seq=seq, observation=[observation or tensor(0.01, -0.02, 0.03, 0.04)], **more)


def refused(call, code, *words):
    """The call fails with this status, and its text has these words."""
    try:
        call()
    except grpc.RpcError as e:
        assert e.code() == code, f"{e.code()} instead of {code}: {e.details()}"
        for word in words:
            assert word in e.details(), f"'{word}' is not in '{e.details()}'"
        return
    raise AssertionError(f"it is not refused with {code}")


def numbers(response):
    return {t.name: t.data for t in response.output}


class Act:
    def __init__(self, address):
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = act_pb2_grpc.ActStub(self.channel)

    def configure(self, mode, **more):
        return self.stub.Configure(act.ActConfigureRequest(mode=mode, **more))

    def step(self, *args, **more):
        return self.stub.Step(request(*args, **more), timeout=PATIENCE)

    def begin(self, *args, **more):
        """A step that is under way."""
        return self.stub.Step.future(request(*args, **more), timeout=PATIENCE)

    def together(self, *requests):
        """What becomes of steps that are all in flight at once, in their order."""
        return outcomes([self.stub.Step.future(r, timeout=PATIENCE) for r in requests])


def outcomes(calls):
    return [c.exception() or c.result() for c in calls]


def sessions_and_numbers(a):
    first = a.step("numbers", 7, 1)
    assert first.seq == 1 and first.batch_size == 1 and set(numbers(first)) >= {"action", "logp"}, first
    second = a.step("numbers", 7, 2)
    again = a.step("numbers", 7, 2)
    assert numbers(again) == numbers(second) and again.seq == 2, "the last number again has the stored answer"
    for more in ({"observation": tensor(9, 9, 9, 9)}, {"reward": 1}, {"done": True}):
        refused(lambda more=more: a.step("numbers", 7, 2, **more), grpc.StatusCode.ALREADY_EXISTS, "seq 2 was sent before")
    refused(lambda: a.step("numbers", 7, 1), grpc.StatusCode.OUT_OF_RANGE, "seq is 1", "has 2", "next is 3")
    refused(lambda: a.step("numbers", 7, 4), grpc.StatusCode.OUT_OF_RANGE, "seq is 4", "has 2", "next is 3")
    refused(lambda: a.step("numbers", 8, 3), grpc.StatusCode.OUT_OF_RANGE, "seq is 3", "next is 1")
    assert a.step("numbers", 7, 3).seq == 3, "a run that is refused ends no other"
    assert a.step("numbers", 8, 1).seq == 1, "another run begins afresh"
    refused(lambda: a.step("numbers", 7, 4), grpc.StatusCode.OUT_OF_RANGE, "has 0")
    assert numbers(a.step("other", 7, 1)) == numbers(first), "the same run elsewhere draws the same"
    print("sessions: stored answers, gaps and another run")


def what_is_refused(a):
    bad = grpc.StatusCode.INVALID_ARGUMENT
    good = tensor(0, 0, 0, 0)
    refused(lambda: a.step(""), bad, "env_id is empty")
    refused(lambda: a.step("x" * 257), bad, "env_id is longer than 256 bytes")
    refused(lambda: a.step("bad", seq=0), bad, "seq is 0")
    refused(lambda: a.step("bad", model="nobody"), grpc.StatusCode.NOT_FOUND, "nobody", "policy")
    refused(lambda: a.step("bad", model="echo"), grpc.StatusCode.FAILED_PRECONDITION, "echo", "does not act")
    refused(lambda: a.step("bad", observation=tensor(1, 2, 3)), bad, "f32[3]", "f32[4]")
    refused(lambda: a.step("bad", observation=tensor(0, 0, 0, 0, dtype=tensor_pb2.DTYPE_I32)), bad, "i32[4]")
    refused(lambda: a.step("bad", observation=tensor(0, 0, 0, 0, shape=[5])), bad, "observation[0]", "16 bytes", "needs 20")
    refused(lambda: a.step("bad", observation=tensor(0, 0, 0, 0, shape=[-4])), bad, "f32[-4]", "impossible")
    refused(lambda: a.step("bad", observation=tensor(0, 0, 0, 0, shape=[1] * 9)), bad, "9 dimensions")
    refused(lambda: a.step("bad", observation=tensor(0, 0, 0, 0, dtype=77)), bad, "dtype is 77")
    many = act.ActStepRequest(env_id="bad", run_id=1, seq=1, observation=[good] * 65)
    refused(lambda: a.stub.Step(many), grpc.StatusCode.INVALID_ARGUMENT, "observation", "65 tensors")
    none = act.ActStepRequest(env_id="bad", run_id=1, seq=1)
    refused(lambda: a.stub.Step(none), bad, "observation")
    assert a.step("bad").seq == 1, "what was refused left no trace"

    refused(lambda: a.configure(LOCKSTEP), bad, "n is 0")
    refused(lambda: a.configure(LOCKSTEP, n=1 << 30), bad, "n is 1073741824", "rows")
    refused(lambda: a.configure(DYNAMIC, min=9, max=8), bad, "min is 9, above max, 8")
    refused(lambda: a.configure(DYNAMIC, max=1 << 30), bad, "max is 1073741824")
    refused(lambda: a.configure(9), bad, "mode is 9")
    refused(lambda: a.configure(LOCKSTEP, n=1, on_miss=7), bad, "on_miss is 7")
    refused(lambda: a.configure(LOCKSTEP, n=1, timeout_ms=86400001), bad, "timeout_ms is 86400001")
    refused(lambda: a.configure(NONE, model="echo"), grpc.StatusCode.FAILED_PRECONDITION, "echo", "does not act")
    refused(lambda: a.configure(NONE, model="nobody"), grpc.StatusCode.NOT_FOUND, "nobody")
    refused(lambda: next(a.stub.Train(act.ActTrainRequest(observers=0, episodes=1))), bad, "observers is 0")
    refused(lambda: next(a.stub.Train(act.ActTrainRequest(observers=1, episodes=0))), bad, "episodes is 0")
    refused(lambda: next(a.stub.Train(act.ActTrainRequest(observers=1, episodes=1, gamma=2))), bad, "gamma is 2")
    refused(lambda: next(a.stub.Train(act.ActTrainRequest(observers=1, episodes=1, learning_rate=-1))), bad, "learning_rate is -1")
    refused(lambda: next(a.stub.Train(act.ActTrainRequest(observers=1, episodes=1, model="echo"))),
            grpc.StatusCode.FAILED_PRECONDITION, "cannot train")
    refused(lambda: next(a.stub.Train(act.ActTrainRequest(observers=3, episodes=1, timeout_ms=20))),
            grpc.StatusCode.DEADLINE_EXCEEDED, "0 of 3 observers")
    print("refusals: each with its status and what to do about it")


def waiting(parley):
    return next(m for m in parley.admin.Status(harness.admin.AdminStatusRequest()).models if m.name == "policy").batching.waiting


def until_they_wait(parley, *calls):
    """Whatever else waits has been told already: these are all."""
    until(f"the waiting of {len(calls)}", lambda: waiting(parley) == len(calls), *calls)


def until_nobody_waits(parley):
    """Who was cancelled, or came too late, has left its batch and its session."""
    until("the end of all waiting", lambda: waiting(parley) == 0)


def modes(a, parley):
    """Time runs only once all wait that are to: how soon they come decides nothing."""
    a.configure(NONE)
    some = a.together(*(request(f"none{i}") for i in range(6)))
    assert [r.batch_size for r in some] == [1] * 6, some

    a.configure(LOCKSTEP, n=3)
    some = a.together(*(request(f"lock{i}", row=2 - i) for i in range(3)))
    assert [r.batch_size for r in some] == [3] * 3, some
    refused(lambda: a.step("lock0", seq=2, row=3), grpc.StatusCode.INVALID_ARGUMENT, "row is 3")
    begun = time.monotonic()
    two = [a.begin("lock0", seq=2, row=0), a.begin("lock1", seq=2, row=1)]
    until_they_wait(parley, *two)
    a.configure(LOCKSTEP, n=3, timeout_ms=1000)
    some = outcomes(two)
    took = time.monotonic() - begun
    assert [e.code() for e in some] == [grpc.StatusCode.ABORTED] * 2, some
    assert "2 of 3 requests of the fixed batch arrived" in some[0].details(), some[0].details()
    assert took > 0.99, f"those who wait know after {took} s"
    a.configure(LOCKSTEP, n=3)
    some = a.together(*(request(f"lock{i}", seq=2, row=i) for i in range(3)))
    assert [r.seq for r in some] == [2] * 3, "an aborted number is free"

    waits = a.begin("lock0", seq=3, row=0)
    until_they_wait(parley, waits)
    refused(lambda: a.step("twin", row=0), grpc.StatusCode.FAILED_PRECONDITION, "row 0", "twin")
    a.configure(LOCKSTEP, n=3, timeout_ms=60)
    assert waits.exception().code() == grpc.StatusCode.ABORTED

    a.configure(LOCKSTEP, n=3)
    two = [a.begin("lock0", seq=3, row=0), a.begin("lock1", seq=3, row=1)]
    until_they_wait(parley, *two)
    a.configure(LOCKSTEP, n=3, timeout_ms=60, on_miss=act.ACT_ON_MISS_PARTIAL)
    some = outcomes(two)
    assert [r.batch_size for r in some] == [2, 2], some

    a.configure(DYNAMIC, min=2, max=4, delay_us=30000)
    one = a.step("dyn0")
    assert one.batch_size == 1 and 30000 <= one.queue_us, one
    a.configure(DYNAMIC, min=2, max=4, delay_us=int(PATIENCE * 1e6))
    some = a.together(request("dyn0", seq=2), request("dyn1"))
    assert [r.batch_size for r in some] == [2, 2], some
    a.configure(DYNAMIC, max=4, delay_us=300)
    queued = [a.step("dyn0", seq=3).queue_us]
    while queued[-1] >= 1000 and len(queued) < 2000:  # the machine may be busy, but not always
        queued.append(a.step("dyn0", seq=3 + len(queued)).queue_us)
    assert 300 <= min(queued) < 1000, f"a delay of 300 us takes {min(queued)} us at least"

    a.configure(LOCKSTEP, n=2)
    waits = a.begin("auto0")
    until_they_wait(parley, waits)
    a.configure(AUTO)
    assert waits.result().batch_size == 1, "those who wait go by the new mode"
    print(f"modes: none, lock-step, dynamic, auto; a delay of 300 us took {min(queued)} us")


def a_step_that_waits_and_is_late(a, parley, *args, **more):
    """Its deadline passes once it waits: one that is over before begins again, with more time."""
    seconds = 0.05
    while True:
        gone = a.stub.Step.future(request(*args, **more), timeout=seconds)
        until("a step that waits, or is late", lambda: gone.done() or waiting(parley) == 1)
        has_waited = not gone.done()
        assert gone.exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED, gone
        until_nobody_waits(parley)
        if has_waited:
            return
        seconds *= 2


def a_cancelled_step_leaves_its_batch(a, parley):
    a.configure(LOCKSTEP, n=2)
    gone = a.begin("cancel0", row=0)
    until_they_wait(parley, gone)
    gone.cancel()
    until_nobody_waits(parley)
    some = a.together(request("cancel1", row=0), request("cancel0", run=1, row=1))
    assert [r.batch_size for r in some] == [2, 2], some

    a_step_that_waits_and_is_late(a, parley, "cancel0", seq=2, row=0)
    first = a.begin("cancel0", seq=2, row=0)
    until_they_wait(parley, first)
    joined = a.begin("cancel0", seq=2, row=0)
    other = a.begin("cancel1", seq=2, row=1)
    assert numbers(first.result()) == numbers(joined.result()), "the same number joins the step that waits"
    assert other.result().batch_size == 2

    first = a.stub.Step.future(request("cancel0", seq=3, row=0), timeout=0.3)
    joined = a.begin("cancel0", seq=3, row=0)  # or begins afresh, if the first is late already
    assert first.exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED, first
    other = a.begin("cancel1", seq=3, row=1)
    assert [r.batch_size for r in outcomes([joined, other])] == [2, 2], "who joins has the time that it asked for"

    old = a.begin("cancel0", seq=4, row=0)
    until_they_wait(parley, old)
    new = a.begin("cancel0", run=2, row=0)
    assert old.exception().code() == grpc.StatusCode.ABORTED and "another run" in old.exception().details(), old.exception()
    some = [a.step("cancel1", seq=4, row=1), new.result()]
    assert [r.batch_size for r in some] == [2, 2], some
    a.configure(AUTO)
    print("cancel: a step leaves its batch, its number is free; another run takes its place")


def a_stream(a):
    n, steps = 8, 50
    outgoing = queue.Queue()
    answers = a.stub.Stream(iter(outgoing.get, None))
    for i in range(n):
        outgoing.put(request(f"stream{i}", tag=i))
    outgoing.put(request("stream0", seq=9, tag=99))
    seen = {i: 0 for i in range(n)}
    errors = 0
    for r in answers:
        if r.tag == 99:
            assert r.error.code == grpc.StatusCode.OUT_OF_RANGE.value[0] and "seq is 9" in r.error.message, r
            errors += 1
        else:
            assert not r.HasField("error") and r.seq == seen[r.tag] + 1, r
            seen[r.tag] = r.seq
            if r.seq < steps:
                outgoing.put(request(f"stream{r.tag}", seq=r.seq + 1, tag=r.tag))
        if errors == 1 and all(s == steps for s in seen.values()):
            outgoing.put(None)
    assert errors == 1 and all(s == steps for s in seen.values()), (errors, seen)
    print(f"stream: {n} sessions of {steps} steps, and an error in band")


def observe(address, env, run, dies_at=0, row=None):
    """An observer of an environment without physics: rewards are 1. Ends with its stream."""
    a = Act(address)
    outgoing = queue.Queue()
    outgoing.put(act.ActAttachRequest(offer=act.ActOffer(env_id=env, run_id=run, environment="none")))
    seq, episodes = 0, 0
    try:
        for order in a.stub.Attach(iter(outgoing.get, None)):
            if order.WhichOneof("what") == "accepted":
                row = order.accepted.row
                continue
            result = act.ActEpisodeResult(episode=order.run.episode, reward=order.run.n_steps, returns=[float(order.run.n_steps - i) for i in range(order.run.n_steps)])
            for i in range(order.run.n_steps):
                if dies_at and i == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                try:
                    a.step(env, run, seq + 1, row=row)
                    seq += 1
                except grpc.RpcError as e:
                    result = act.ActEpisodeResult(episode=order.run.episode, error=harness.error_pb2.ErrorDetail(code=e.code().value[0], message=e.details()))
                    break
            episodes += 1
            outgoing.put(act.ActAttachRequest(result=result))
    except grpc.RpcError as e:
        return episodes, e
    finally:
        outgoing.put(None)
        a.channel.close()
    return episodes, None


def in_thread(*args):
    pool = ThreadPoolExecutor(1)
    return pool.submit(observe, *args)


def a_training(a, address, folder):
    n, steps, episodes = 3, 40, 4
    path = os.path.join(folder, "trained.gguf")
    a.configure(LOCKSTEP, n=n)
    train = a.stub.Train(train_request(observers=n, episodes=episodes, n_steps=steps, save_path=path, seed=5))
    observers = [in_thread(address, f"observer{i}", 100 + i) for i in range(n)]
    events = list(train)
    assert [e.episode for e in events] == list(range(1, episodes + 1)), events
    for i, e in enumerate(events):
        assert e.actions == n * steps * (i + 1) and e.forwards == steps * (i + 1), f"episode {i + 1}: {e}"
        assert e.observers == n and e.mean_reward == steps, e
    assert [e.params_version for e in events] == sorted({e.params_version for e in events}), "each learning is a version"
    assert abs(events[-1].running_reward - steps * (1 - 0.5 ** episodes)) < 1e-3, events[-1]
    assert os.path.getsize(path) > 0
    for elsewhere in ("/no/such/folder/x.gguf", os.path.join(folder, "..", "x.gguf"), os.path.join(folder, "x.sh"), os.path.join(folder, ".gguf")):
        refused(lambda: list(a.stub.Train(train_request(observers=n, episodes=1, n_steps=2, save_path=elsewhere))),
                grpc.StatusCode.PERMISSION_DENIED, "save_path", folder)
    early = list(a.stub.Train(train_request(observers=n, episodes=9, n_steps=2, until=1.4)))
    assert len(early) == 2, "1, then 1.5, is good enough"
    running = a.stub.Train(train_request(observers=n, episodes=1000, n_steps=steps))
    next(running)
    refused(lambda: next(a.stub.Train(train_request(observers=n, episodes=1))), grpc.StatusCode.FAILED_PRECONDITION, "already")
    running.cancel()
    until("the end of the cancelled training", lambda: is_trained(a, n))
    again = list(a.stub.Train(train_request(observers=n, episodes=1, n_steps=steps)))
    assert again[0].observers == n, "observers of a cancelled training are idle again"
    print(f"training: {events[-1].actions} actions by {events[-1].forwards} forwards, saved, ended early, cancelled")
    return path, observers


def train_request(**more):
    """Observers have all the time they need to attach."""
    return act.ActTrainRequest(timeout_ms=int(PATIENCE * 1000), **more)


def is_trained(a, n):
    """Another training is taken, which it is not while there is one. It is over when its stream is."""
    try:
        return len(list(a.stub.Train(train_request(observers=n, episodes=1, n_steps=1)))) == 1
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.FAILED_PRECONDITION and "already" in e.details(), e
    return False


def an_observer_is_killed(a, address):
    steps, dies_at = 30, 20
    a.configure(LOCKSTEP, n=2)  # without a time-out: nobody may wait for the dead
    train = a.stub.Train(train_request(observers=2, episodes=2, n_steps=steps))
    stays = in_thread(address, "stays", 1)
    dies = children.start([sys.executable, __file__, "--observe", address, "dies", "1", str(dies_at)])
    events = []
    for e in train:
        events.append(e)
        if len(events) == 1:
            assert dies.wait(PATIENCE) == -signal.SIGKILL
            restarted = in_thread(address, "dies", 2)
    assert [e.observers for e in events] == [1, 2], events
    assert events[0].actions == steps + dies_at and events[0].forwards == steps, events
    assert events[1].actions == events[0].actions + 2 * steps, events
    assert events[1].forwards == events[0].forwards + steps, events
    a.configure(AUTO)
    print("killed: the episode went on without it; restarted, it ran the next")
    return stays, restarted


def step_and_die(address, env):
    """Answers a first batch, is in the next, and is killed before that has come together."""
    a = Act(address)
    a.step(env, row=1)
    a.begin(env, seq=2, row=1).exception()


def a_killed_observer_and_a_timeout(a, parley):
    """Nobody waits much longer than the time-out for one who is dead, however it went."""
    timeout_ms = 500
    for on_miss, env in ((act.ACT_ON_MISS_ABORT, "abort"), (act.ACT_ON_MISS_PARTIAL, "partial")):
        a.configure(LOCKSTEP, n=3)
        others = [f"{env}{i}" for i in range(2)]
        dies = children.start([sys.executable, __file__, "--step-and-die", parley.address, env], stdout=subprocess.PIPE, text=True)
        first = a.together(*(request(e, row=2 * i) for i, e in enumerate(others)))
        assert [r.batch_size for r in first] == [3, 3], first
        until("the last step of the one who dies", lambda: waiting(parley) == 1, dies)
        dies.kill()
        assert dies.wait(PATIENCE) == -signal.SIGKILL
        until_nobody_waits(parley)
        calls = [a.begin(e, seq=2, row=2 * i) for i, e in enumerate(others)]
        until_they_wait(parley, *calls)
        begun = time.monotonic()
        a.configure(LOCKSTEP, n=3, timeout_ms=timeout_ms, on_miss=on_miss)
        some = outcomes(calls)
        took_ms = (time.monotonic() - begun) * 1000
        if on_miss == act.ACT_ON_MISS_PARTIAL:
            assert [r.batch_size for r in some] == [2, 2], some
        else:
            assert [e.code() for e in some] == [grpc.StatusCode.ABORTED] * 2, some
        a.configure(LOCKSTEP, n=3)
        fresh = a.begin(env, run=2, seq=1, row=1)
        left = a.together(*(request(e, seq=3 if on_miss == act.ACT_ON_MISS_PARTIAL else 2, row=2 * i) for i, e in enumerate(others)))
        assert fresh.result().seq == 1 and [r.batch_size for r in left] == [3, 3], "the restarted one begins afresh"
    a.configure(AUTO)
    print(f"killed: with a time-out of {timeout_ms} ms the others knew after {took_ms:.0f} ms")


def main():
    parleyd, write_policy = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "policy.gguf")
        children.run([write_policy, model], check=True)
        with harness.Parleyd(parleyd, "--model", f"policy={model}") as parley:
            a = Act(parley.address)
            sessions_and_numbers(a)
            what_is_refused(a)
            modes(a, parley)
            a_cancelled_step_leaves_its_batch(a, parley)
            a_stream(a)
            a_killed_observer_and_a_timeout(a, parley)
        with harness.Parleyd(parleyd, "--model", f"policy={model}") as parley:
            a = Act(parley.address)
            trained, observers = a_training(a, parley.address, folder)
        for o in observers:
            episodes, error = o.result(timeout=PATIENCE)
            assert episodes > 0 and error.code() == grpc.StatusCode.UNAVAILABLE, "a server that stops says so"
        with harness.Parleyd(parleyd, "--model", f"policy={trained}") as parley:
            a = Act(parley.address)
            stays, restarted = an_observer_is_killed(a, parley.address)
            waits = a.stub.Train(train_request(observers=9, episodes=1))
            until("the training", lambda: parley.admin.Status(harness.admin.AdminStatusRequest()).calls == 4)
        refused(lambda: list(waits), grpc.StatusCode.UNAVAILABLE, "the server is shutting down")
        assert stays.result(timeout=PATIENCE)[0] == 2 and restarted.result(timeout=PATIENCE)[0] == 1


if sys.argv[1] == "--observe":
    observe(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
elif sys.argv[1] == "--step-and-die":
    step_and_die(sys.argv[2], sys.argv[3])
else:
    main()
