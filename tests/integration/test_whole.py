#!/usr/bin/env python3
"""The Python package under Ctrl-C: a table of methods, each interrupted at every place where it sends, receives or waits, before and
after it does. Whatever the place, the object's next call gets the answer to its own question, and nothing is half written.

usage: test_whole.py PARLEYD      (run by the interpreter that has grpcio; see venv.sh)"""
import contextlib
import os
import queue
import signal
import sys
import tempfile
import threading

import numpy as np

import children
from children import Daemon, until

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
import parley.channel  # noqa: E402
import parley.client  # noqa: E402
import parley.gym  # noqa: E402
import parley.language  # noqa: E402
import parley.optim  # noqa: E402
import parley.parallel.direct  # noqa: E402
import parley.policies  # noqa: E402
import parley.rollouts  # noqa: E402
from parley.parallel import Pool, World  # noqa: E402
from parley.vector import VectorEnv  # noqa: E402
from parley.v1 import models_pb2, params_pb2  # noqa: E402


class Points:
    """The places that a method passes. At number `at` Ctrl-C happens, once."""

    def __init__(self):
        self.n, self.at = 0, None

    def cross(self):
        if self.at is None or threading.current_thread() is not threading.main_thread():
            return
        self.n += 1
        if self.n == self.at:
            raise KeyboardInterrupt

    def around(self, does, *args, **more):
        self.cross()
        did = does(*args, **more)
        self.cross()
        return did


POINTS = Points()


class Call:
    """A call of grpc whose answers are places."""

    def __init__(self, call):
        self.call = call

    def __iter__(self):
        return self

    def __next__(self):
        return POINTS.around(next, self.call)

    def result(self, **more):
        return POINTS.around(self.call.result, **more)

    def __getattr__(self, name):
        return getattr(self.call, name)


class Method:
    def __init__(self, method, is_unary):
        self.method, self.is_unary = method, is_unary

    def __call__(self, *args, **more):
        did = POINTS.around(self.method, *args, **more)
        return did if self.is_unary else Call(did)

    def future(self, *args, **more):
        return Call(POINTS.around(self.method.future, *args, **more))


class Channel:
    def __init__(self, channel):
        self.channel = channel

    def __getattr__(self, name):
        made = getattr(self.channel, name)
        if name not in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
            return made
        return lambda *args: Method(made(*args), name == "unary_unary")


class Queue(parley.channel.SimpleQueue):
    def put(self, what):
        POINTS.around(super().put, what)


def sleep(seconds):
    POINTS.around(threading.Event().wait, seconds)


@parley.agent("speller", deterministic=True)
class Speller:
    """Says what it is told, a word in a piece."""

    def __init__(self, system=""):
        self.words = []

    def observe(self, messages):
        self.words = messages[-1].text.split()  # what was observed before comes with it

    def act(self):
        for word in self.words:
            yield word + " "


CONDITION_WAIT = threading.Condition.wait
NUMBERS = iter(range(1, 1 << 30))  # no two questions are alike


# --- Replay ---

COLUMNS = {"x": ("i8", ()), "bulk": ("u1", (300_000,))}  # six steps a message


def rows(n):
    return {"x": np.array([next(NUMBERS) for _ in range(n)]), "bulk": np.zeros((n, 300_000), np.uint8)}


def row(x):
    return {"x": x, "bulk": np.zeros(300_000, np.uint8)}


def table(server):
    return parley.Replay(server, f"t{next(NUMBERS)}", COLUMNS, sampler="lifo", max_bytes=64 << 20)


def filled(server):
    replay = table(server)
    replay.insert_all(rows(3))
    return replay


def check_table(replay, _):
    """The keys are those of the items."""
    x = next(NUMBERS)
    key = replay.insert(row(x))
    batch = replay.sample(1)
    assert batch["x"].tolist() == [x] and batch.keys.tolist() == [key]
    some = rows(8)
    keys = replay.insert_all(some)
    batch = replay.sample(8)
    assert dict(zip(batch.keys.tolist(), batch["x"].tolist())) == dict(zip(keys, some["x"].tolist()))
    assert replay.update_priorities(batch, np.ones(8)) == 8
    replay.delete()


def writer(server):
    w = parley.replay.Writer(table(server), 8, 0)
    for _ in range(3):
        w.append(row(next(NUMBERS)))
    return w


def write(w):
    for _ in range(10):
        w.append(row(next(NUMBERS)))
        w.item(2)
    w.flush()


def check_writer(w, _):
    x = [next(NUMBERS) for _ in range(9)]
    before = len(w.keys)
    for i in x:
        w.append(row(i))
    w.item(3)
    w.item(1)
    assert len(w.flush()) == 2 and len(w.keys) == before + 2, "of its own items"
    batch = w.replay.sample(2)
    got = sorted((batch.data["x"][s:s + n].tolist() for s, n in zip(np.cumsum(batch.steps) - batch.steps, batch.steps.tolist())), key=len)
    assert got == [x[-1:], x[-3:]], got
    w.close()
    w.replay.delete()


def read_batches(replay):
    with contextlib.closing(replay.batches(2)) as batches:
        for batch, _ in zip(batches, range(3)):
            assert len(batch) == 2


# --- Store ---

class Pushed:
    def __init__(self, server):
        self.store, self.key = parley.OrderedStore(server), f"k{next(NUMBERS)}"
        self.store.push(self.key, {"first": self.key}, 1)


def check_store(p, _):
    value = {"mine": next(NUMBERS)}
    newest = p.store.versions(p.key)[0]
    while not p.store.push(p.key, value, newest + 1, newest):  # an interrupted push may be taken until now, and once
        before, newest = newest, p.store.versions(p.key)[0]
        assert (before, newest) == (1, 2)
    assert p.store.pull(p.key) == (value, newest + 1)


class Weights(dict):
    """A model, each of whose arrays is a place."""

    def __getitem__(self, name):
        return POINTS.around(super().__getitem__, name)


class Model:
    """Two copies of a model, one of which is behind."""

    def __init__(self, server):
        key = f"m{next(NUMBERS)}"
        self.ahead, self.behind = parley.PushPullModel(server, key), parley.PushPullModel(server, key)
        self.weights = Weights(a=np.full(3, 1.0), b=np.full((2, 2), 1.0))
        self.ahead.push({"a": np.full(3, 2.0), "b": np.full((2, 2), 2.0)})


def check_model(m, _):
    values = {float(x) for a in m.weights.values() for x in a.flat}
    assert len(values) == 1 and (m.behind.version > 0) == (values == {2.0}), "half of one version and half of another"
    assert m.behind.pull(m.weights) and (m.weights["a"] == 2).all() and (m.weights["b"] == 2).all()
    m.weights["a"][:] = m.weights["b"][:] = 5
    assert m.behind.push(m.weights) and m.ahead.pull(m.weights)


def check_pushed(m, _):
    """An interrupted push may be taken until now, and once."""
    for is_last in False, True:
        m.behind.pull(m.weights)
        assert (m.weights["a"] == 2).all() and (m.weights["b"] == 2).all()
        m.weights["a"][:] = m.weights["b"][:] = 5
        if m.behind.push(m.weights):
            break
        assert not is_last
    assert m.ahead.pull(m.weights) and (m.weights["a"] == 5).all()


# --- conversations ---

def chat(server):
    c = server.open("speller")
    c.ask("begin")
    return c


def check_chat(c, _):
    """A question gets its own answer; what happened before is a turn of its own, or did not happen."""
    for ask in (lambda word: c.ask(word).text, lambda word: "".join(c.turn(word))):
        word = f"w{next(NUMBERS)}"
        said = ask(word)
        assert said == word + " ", (said, word)
    other = c.fork()
    assert other.ask("forked").text == "forked " and other.turns == c.turns + 1
    c.rewind(1)
    assert c.turns == 1 and c.ask("again").text == "again "
    assert c.get().turns == c.turns == 2
    other.close()
    c.close()


# --- policies ---

def vector(server):
    return parley.rollouts.Environments(server, "CartPole-v1", 2, seed=1)


def check_vector(v, _):
    """The next rollout is whole, and goes on where the environments are."""
    first = v.rollout("pole", 3)
    second = v.rollout("pole", 5)
    width = 4 * first.observation.shape[2]
    assert list(first.reward.shape) == [2, 3] and list(second.reward.shape) == [2, 5]
    assert first.observation.data[3 * width:4 * width] == second.observation.data[:width]
    v.close()


# --- shared parameters ---

class Parameter(np.ndarray):
    """A parameter, whose loading is a place."""

    def __setitem__(self, where, values):
        POINTS.around(super().__setitem__, where, values)


def trainer(server):
    t = parley.optim.RemoteOptimizer([np.zeros(3).view(Parameter), np.zeros((2, 2)).view(Parameter)], server, f"p{next(NUMBERS)}", lr=1)
    other = parley.optim.RemoteOptimizer([np.zeros(3), np.zeros((2, 2))], server, t.name)
    other.step(gradient(1))  # there is something to pull
    other.close()
    return t


def gradient(value):
    return [np.full(3, value), np.full((2, 2), value)]


def check_trainer(t, _):
    values = {float(x) for p in t.parameters for x in p.flat}
    assert len(values) == 1, "half of one version and half of another"
    assert values == {-t.version}, "the version is not that of the values"
    stepped = t.step(gradient(100))  # every other version is of a gradient of 1, also of one that was interrupted and counts
    assert stepped == t.version and {float(x) for p in t.parameters for x in p.flat} == {-(stepped - 1 + 100)}, "an answer to an earlier gradient"
    t.close()
    t._link.call("Params/Delete", params_pb2.ParamsDeleteRequest(name=t.name), params_pb2.ParamsDeleteResponse)


# --- policies from here, vectors, pools ---

SIGNS = np.array([[1.0, -1.0], [0.0, 0.0]])


def actor(server):
    return parley.Act(server, "sign", 2)


def seen():
    """Observations, and the actions that are theirs."""
    x = np.random.default_rng(next(NUMBERS)).choice([-1.0, 1.0], (2, 2))
    return x, [0 if row[0] > 0 else 1 for row in x]


def act(a):
    for _ in range(3):
        a.act(seen()[0])


def check_actor(a, _):
    for _ in range(4):
        x, actions = seen()
        assert a.act(x)["action"].tolist() == actions, "of other observations"
    a.close()


def gym_vector(server):
    envs = VectorEnv(server, "CartPole-v1", 2)
    envs.reset(seed=7)
    return envs


def check_gym_vector(envs, _):
    """An interrupted step is in doubt until a reset; after it all is as from the beginning."""
    try:
        envs.step(np.array([0, 1]))
    except parley.Error as e:
        assert e.code == "FAILED_PRECONDITION" and "call reset" in str(e), e
    first = envs.reset(seed=7)[0]
    steps = [envs.step(np.array([0, 1]))[0] for _ in range(3)]
    again = envs.reset(seed=7)[0]
    assert np.array_equal(first, again) and all(np.array_equal(s, envs.step(np.array([0, 1]))[0]) for s in steps)
    envs.close()


def check_gym(server, _):
    """No session is left behind."""
    assert parley.gym.rollout("CartPole-v1", server, "pole", n=3, n_steps=2).rewards.shape == (2, 3)


def learn(server):
    events = list(parley.gym.train("CartPole-v1", server, "pole", n=3, episodes=2, n_steps=3))
    assert [(e.episode, e.observers) for e in events] == [(1, 3), (2, 3)]


def check_learn(server, at):
    """No training and no observer is left behind, and no mode of gathering."""
    learn(server)
    check_gym(server, at)


class Served:
    def __init__(self, server):
        self.params, self.models, self.name = parley.Params(server), parley.Models(server), f"s{next(NUMBERS)}"
        parley.optim.RemoteOptimizer([np.full(3, 5.0)], server, self.name).close()


def serve(s):
    s.params.pull(s.name)
    s.params.list()
    s.models.list()


def check_served(s, _):
    values, version = s.params.pull(s.name)
    assert values.tolist() == [5, 5, 5] and version == 0 and s.name in [p.name for p in s.params.list()] and "pole" in [m.name for m in s.models.list()]
    s.params.delete(s.name)


def check_follow(s, at):
    s.params.follow(f"{s.name} target", s.name, tau=0.5)
    assert s.params.pull(f"{s.name} target")[0].tolist() == [5, 5, 5]
    s.params.delete(f"{s.name} target")
    check_served(s, at)


def pooled(pool):
    x = next(NUMBERS)
    assert pool.map(abs, [-x, x]) == [x, x] and pool.apply(pow, (x, 2)) == x * x and list(pool.imap(abs, [-x])) == [x]


# --- groups: one pair of members for all, since what an interruption leaves must not matter ---

class Members:
    """The member "a" is this thread's. "b" is another thread, which does over and over what `work` says until that returns True."""

    def __init__(self, address, direct):
        self.work, self.is_last, self.idle = queue.SimpleQueue(), False, threading.Event()
        made = queue.SimpleQueue()

        def live():
            with World("b", address=address, secret="s", world_size=2, direct=direct) as world, world.create_rpc_group("g", ["a", "b"]) as group:
                group.register("twice", lambda x: 2 * x)
                group.pair("table", [1, 2])
                made.put(group)
                while (work := self.work.get()) is not None:
                    is_over = False
                    while not is_over:
                        try:
                            is_over = work(group)
                        except (parley.Error, RuntimeError):
                            pass  # "a" has given up
                    self.idle.set()

        self.thread = threading.Thread(target=live, daemon=True)
        self.thread.start()
        self.world = World("a", address=address, secret="s", world_size=2, direct=direct)
        self.group = self.world.create_rpc_group("g", ["a", "b"])
        self.other = made.get()
        self.world._link.channel = Channel(self.world._link.channel)

    def close(self):
        self.work.put(None)
        self.group.destroy()
        self.world.stop()
        self.thread.join()


def call(m):
    x = next(NUMBERS)
    assert m.group.rpc_sync("b", lambda y: y + 1, args=(x,)) == x + 1 and m.group.registered_sync("twice", (x,)) == 2 * x
    assert m.group.rpc_remote("b", lambda y: [y], args=(x,)).to_here() == [x] and m.group.get_paired("table").to_here() == [1, 2]


def pair(m):
    m.group.pair("mine", 1)
    m.group.unpair("mine")


def check_pair(m, _):
    if m.group.is_paired("mine"):
        m.group.unpair("mine")
    m.group.pair("mine", "this")
    assert m.other.get_paired("mine").to_here() == "this"
    m.group.unpair("mine")
    assert not m.other.is_paired("mine")


def check_messages(m, _):
    """What was sent is received once, in order, whatever was interrupted."""
    x = next(NUMBERS)
    sent = [m.other.isend(x + i, "a") for i in range(2)]
    got = []
    while not got or got[-1] != x + 1:
        got.append(m.group.recv("b")[0])
    for s in sent:
        s.get()
    assert got[-2:] == [x, x + 1] and len(got) <= 3, got


def receive(m):
    sent = m.other.isend("first", "a")
    assert m.group.recv("b")[0] == "first"
    sent.get()


def add(m):
    assert m.group.all_reduce(next(NUMBERS)) % 1 == 0.5


def check_add(m, _):
    x = next(NUMBERS)
    assert m.group.all_reduce(x) == x + 0.5


def others_add(group):
    """b: adds a half to what a adds; a's 0 is the last."""
    return group.all_reduce(0.5) == 0.5


def wait(m):
    m.group.barrier()


# What is interrupted: how its object is made, the call, and what must hold after it.
TABLE = {
    "Replay.insert": (table, lambda r: r.insert(row(next(NUMBERS))), check_table),
    "Replay.insert_all": (table, lambda r: r.insert_all(rows(13), np.ones(13)), check_table),
    "Replay.insert_run": (table, lambda r: r.insert_run(rows(13)), check_table),
    "Replay.sample": (filled, lambda r: r.sample(2), check_table),
    "Replay.batches": (filled, read_batches, check_table),
    "Replay.update_priorities": (filled, lambda r: r.update_priorities(r.sample(2), [1, 2]), check_table),
    "Replay.clear": (filled, lambda r: r.clear(), check_table),
    "Writer": (writer, write, check_writer),
    "OrderedStore.push": (Pushed, lambda p: p.store.push(p.key, {"second": 2}, 2, 1), check_store),
    "OrderedStore.pull": (Pushed, lambda p: p.store.pull(p.key), check_store),
    "PushPullModel.push": (Model, lambda m: m.ahead.push({"a": np.full(3, 2.0), "b": np.full((2, 2), 2.0)}), check_pushed),
    "PushPullModel.pull": (Model, lambda m: m.behind.pull(m.weights), check_model),
    "Conversation.ask": (chat, lambda c: c.ask("one two three"), check_chat),
    "Conversation.turn": (chat, lambda c: list(c.turn("one two three")), check_chat),
    "Conversation.observe": (chat, lambda c: c.observe("one two three"), check_chat),
    "Conversation.fork": (chat, lambda c: c.fork(), check_chat),
    "Conversation.rewind": (chat, lambda c: c.rewind(1), check_chat),
    "Environments.rollout": (vector, lambda v: v.rollout("pole", 200), check_vector),
    "RemoteOptimizer.step": (trainer, lambda t: t.step(gradient(1)), check_trainer),
    "RemoteOptimizer.push": (trainer, lambda t: t.push(gradient(1)), check_trainer),
    "RemoteOptimizer.pull": (trainer, lambda t: t.pull(), check_trainer),
    "Act.act": (actor, act, check_actor),
    "VectorEnv.step": (gym_vector, lambda v: v.step(np.array([0, 1])), check_gym_vector),
    "VectorEnv.reset": (gym_vector, lambda v: v.reset(seed=3), check_gym_vector),
    "gym.rollout": (lambda server: server, lambda s: parley.gym.rollout("CartPole-v1", s, "pole", n=2, n_steps=2), check_gym),
    "gym.train": (lambda server: server, learn, check_learn),
    "Params, Models": (Served, serve, check_served),
    "Params.follow": (Served, lambda s: s.params.follow(f"{s.name} target", s.name, tau=0.5), check_follow),
    "language.samples": (chat, lambda c: parley.language.samples(c, "one two", 2), check_chat),
    "Pool": (lambda server: POOLS[0], pooled, lambda pool, _: pooled(pool)),
}
POOLS = []


GROUPS = {
    "Group calls": (call, lambda m, _: call(m), None),
    "Group.pair": (pair, check_pair, None),
    "Group.recv": (receive, check_messages, None),
    "Group.all_reduce": (add, check_add, others_add),
    "Group.barrier": (wait, lambda m, _: wait(m), lambda group: group.barrier() or MEMBERS[0].is_last),
}
MEMBERS = []


def sweep_group(name):
    act, check, work = GROUPS[name]
    m = MEMBERS[0]
    m.is_last = False
    m.idle.clear()
    if work is not None:
        m.work.put(work)
    n = sweep(m, name, (lambda m: m, act, check))
    m.is_last = True
    if work is others_add:
        m.group.all_reduce(0)
        m.idle.wait()
    while work is not None and not m.idle.is_set():
        try:
            m.group.barrier(timeout=0.1)
        except parley.Error:
            pass  # b has seen already that the last one is over
    return n


def sweep(server, name, row, stride=1):
    make, act, check = row
    at = 1
    while True:
        one = make(server)
        POINTS.n, POINTS.at = 0, at
        try:
            act(one)
        except KeyboardInterrupt:
            pass
        n, POINTS.at = POINTS.n, None
        check(one, at)
        if n < at:
            assert at > 2, "it has places"
            return at - 1
        at += stride * children.STRIDE


# Calls of each kind that gRPC has. Ctrl-C is a signal here, every other time an alarm whose handler raises; it comes right after gRPC has taken a
# lock, where what is raised would leave it taken.
LOCKS = ["OrderedStore.push", "Replay.insert", "Replay.sample", "Replay.batches", "Conversation.ask", "Conversation.turn", "RemoteOptimizer.step", "Act.act", "gym.train"]


class Alone:
    """A group of one member, which waits for nobody."""

    def __init__(self, server):
        self.world = World("alone", world=f"w{next(NUMBERS)}", world_size=1, address=server.links[0].address, secret="s")
        self.group = self.world.create_rpc_group("g", ["alone"])

    def barriers(self):
        self.group.barrier()
        self.group.barrier()

    def check(self, _):
        self.group.barrier()
        assert self.group.all_reduce(2) == 2
        self.group.destroy()
        self.world.stop()


class Locks(Points):
    def is_here(self):
        if self.at is None or threading.get_ident() != threading.main_thread().ident:
            return False
        self.n += 1
        return self.n == self.at

    def around(self, does, *args, **more):
        return does(*args, **more)


def sweep_locks(server):
    """Each lock of gRPC's that a method takes; a lock that stays taken makes the check wait for ever."""
    global POINTS
    points, POINTS = POINTS, Locks()
    said = {"is_here": POINTS.is_here, "raise_signal": signal.raise_signal, "which": lambda: signal.SIGINT if POINTS.at % 2 else signal.SIGALRM}
    # where Python's own would be, for the channel looks at the place
    exec(compile("def enter(self):\n    taken = self._lock.__enter__()\n    if is_here():\n        raise_signal(which())\n    return taken", threading.__file__, "exec"), said)
    entered, threading.Condition.__enter__ = threading.Condition.__enter__, said["enter"]
    handlers = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGALRM)}
    try:
        for name, row in {**{name: TABLE[name] for name in LOCKS}, "Group.barrier": (Alone, Alone.barriers, Alone.check)}.items():
            print(f"{name}: {sweep(server, name, row, 1 if row[0] is Alone else 3)} locks", flush=True)
        assert {signal.getsignal(number) for number in handlers} == {signal.default_int_handler}, "a handler is not back"
    finally:
        threading.Condition.__enter__ = entered
        POINTS = points
        for number, handler in handlers.items():
            signal.signal(number, handler)


def two_signals():
    """While what one signal's handler raised waits for gRPC, the handler of another runs; what both raise is not lost."""
    told = []

    def say(number, _):
        told.append(number)
        if number != signal.SIGTERM:
            raise parley.Error("CANCELLED", str(number))

    sent = signal.SIGALRM, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGTERM
    handlers = {number: signal.signal(number, say) for number in sent}
    try:
        parley.interrupts.shielded(lambda: [signal.raise_signal(number) for number in sent])
        raise AssertionError("nothing was raised")
    except parley.Error as e:
        assert e.message == str(int(signal.SIGUSR1)) and e.__context__.message == str(int(signal.SIGALRM)), (e, e.__context__)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert told == [signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM], told


def safe_locks():
    """No line of Python is run between a lock's taking and the block of its `with`, nor behind the block until it is given back: what a
    signal's handler raised there would leave it taken. threading's own condition shows that this sees such lines."""
    def lines_with(condition):
        seen = []

        def trace(frame, *_):
            seen.append(condition._lock.locked())
            return trace

        sys.settrace(trace)
        try:
            with condition:
                pass
        finally:
            sys.settrace(None)
        return any(seen)

    conditions = [kind(threading.Lock()) for kind in (threading.Condition, parley.interrupts.Condition)]
    conditions.append(parley.interrupts.Event()._cond)
    assert [lines_with(c) for c in conditions] == [True, False, False]
    event = parley.interrupts.Event()
    threading.Thread(target=event.set).start()
    assert event.wait(children.PATIENCE) and not parley.interrupts.Event().wait(0)


def main():
    two_signals()
    safe_locks()
    sent = parley.parallel.direct.Packets.send
    parley.parallel.direct.Packets.send = lambda *args, **more: POINTS.around(sent, *args, **more)
    threading.Condition.wait = lambda *args, **more: POINTS.around(CONDITION_WAIT, *args, **more)
    parley.channel.SimpleQueue = Queue
    parley.channel.sleep = parley.client.sleep = parley.gym.sleep = parley.rollouts.sleep = sleep
    with tempfile.TemporaryDirectory() as folder:
        parley.policies.create(os.path.join(folder, "pole.gguf"), 4, 2)
        check(os.path.join(folder, "pole.gguf"))


def check(policy):
    with Daemon(sys.argv[1], "--replay-bytes", "2G", "--model", f"pole={policy}") as daemon, parley.connect(daemon.address, patience=children.PATIENCE) as server:
        threading.Thread(target=parley.serve, args=(Speller, daemon.address), daemon=True).start()
        until("the agent is attached", lambda: "speller" in {m.name for m in server.links[0].call(
            "Models/List", models_pb2.ModelsListRequest(), models_pb2.ModelsListResponse).models})
        threading.Thread(target=parley.serve, args=(parley.Policy("sign", lambda x: x @ SIGNS, observations=2, actions=2, greedy=True), daemon.address),
                         daemon=True).start()
        with parley.Act(server, "sign", 1) as one:
            one.wait()
        sweep_locks(server)
        for link in server.links:
            link.channel = Channel(link.channel)
        POOLS.append(Pool(1, address=daemon.address))
        POOLS[0]._link.channel = Channel(POOLS[0]._link.channel)
        for name in TABLE:
            print(f"{name}: {sweep(server, name, TABLE[name])} places", flush=True)
        POOLS[0].terminate()
        for direct in True, False:
            MEMBERS[:] = [Members(daemon.address, direct)]
            for name in GROUPS:
                print(f"{name}{'' if direct else ' by way of the daemon'}: {sweep_group(name)} places", flush=True)
            MEMBERS[0].close()


main()
