#!/usr/bin/env python3
"""The Python package, unpacked from its wheel: conversations, blocking and by asyncio, agents of one's own.

usage: test_python.py PARLEYD WRITE_TINY_MODEL WRITE_POLICY EXAMPLE      (run by the interpreter that has grpcio; see venv.sh)"""
import asyncio
import contextlib
import hashlib
import importlib.metadata
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading

import gymnasium
import numpy as np

import children
from children import Daemon, until

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
import parley.policies  # noqa: E402
from parley.v1 import env_pb2, models_pb2, tensor_pb2  # noqa: E402

PARLEYD, WRITE_TINY_MODEL, WRITE_POLICY, EXAMPLE = sys.argv[1:5]


@parley.agent("speller", deterministic=True)
class Speller:
    """Says each word that it is told in a piece of its own, then how many it has heard. A word of these does what it says."""

    gate = threading.Event()

    def __init__(self, system=""):
        self.system, self.heard, self.said, self.words = system, 0, 0, []

    def observe(self, messages):
        self.words = [w for m in messages for w in m.text.split()]
        self.heard += len(self.words)

    def act(self):
        if "fail" in self.words:
            raise parley.Error("FAILED_PRECONDITION", "it was told to fail")
        for word in self.words:
            if word == "wait":
                Speller.gate.wait()
            yield word + " "
        yield f"{self.heard} {self.said}{self.system}"

    def self_observe(self, reply):
        self.said += 1


def serve(agent, address, name=""):
    threading.Thread(target=parley.serve, args=(agent, address, name), daemon=True).start()


def models(server):
    return {m.name: m for m in server.links[0].call("Models/List", models_pb2.ModelsListRequest(), models_pb2.ModelsListResponse).models}


def attached(server, name):
    until(f"{name} is attached", lambda: name in models(server))


def refused(call, code, words):
    try:
        call()
    except parley.Error as e:
        assert e.code == code and words in e.message, (e.code, e.message)
        return e
    raise AssertionError(f"it was not refused: {words}")


def test_a_conversation():
    """Turns in pieces and whole, forks, rewinds, what is observed, resumed, left and closed."""
    with Daemon(PARLEYD) as daemon, parley.connect(daemon.address) as server:
        serve(Speller, daemon.address)
        attached(server, "speller")
        chat = server.open("speller", system="!")
        turn = chat.turn("one two")
        assert list(turn) == ["one ", "two ", "2 0!"] and turn.reply().finish_reason == "stop" and turn.number == 1
        reply = chat.ask([{"role": "user", "text": "three"}])
        assert (str(reply), reply.turn, chat.turns) == ("three 3 1!", 2, 2)
        fork = chat.fork(at_turn=1)
        assert (fork.turns, fork.ask("three").text) == (1, "three 3 1!")
        chat.rewind(0)
        assert (chat.turns, chat.generation, chat.ask("one").text) == (0, 2, "one 1 0!")
        e = refused(lambda: chat.ask("now fail"), "FAILED_PRECONDITION", "it was told to fail")
        assert e.retry_after == 0 and chat.ask("two").text == "two 2 1!", "a turn that failed left no trace"
        pieces = list(chat.turn("a b c"))
        again = server.conversation(chat.id)
        assert (again.turns, again.generation) == (3, 2)
        assert pieces == ["a ", "b ", "c ", "5 2!"] and pieces[0].cursor is None
        assert again.resume(parley.Cursor(2, 3, 0)).reply().text == "".join(pieces)
        e = refused(lambda: again.resume(parley.Cursor(2, 3, 99)).reply(), "OUT_OF_RANGE", "")
        assert e.reason == "CURSOR_NOT_FOUND"
        Speller.gate.clear()
        with chat.turn("x wait y") as left:
            assert next(left) == "x "
        Speller.gate.set()  # the worker hears of it now
        assert left.reply().finish_reason == "cancelled" and chat.turns == 4
        assert [t.turn for t in chat.get().transcript] == [1, 2, 3, 4]
        echo = server.open("echo")
        echo.observe("by the way")
        assert echo.turns == 1 and echo.ask("hello").turn == 2
        for c in (chat, fork, echo, echo):
            c.close()
        refused(lambda: chat.ask("more"), "NOT_FOUND", "")
        refused(lambda: server.conversation(chat.id), "NOT_FOUND", "")
        refused(lambda: server.open("nobody"), "NOT_FOUND", "nobody")


def test_a_cursor():
    """A reply of tokens goes on behind any piece's cursor, in another client, too."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tiny.gguf")
        children.run([WRITE_TINY_MODEL, path], check=True)
        with Daemon(PARLEYD, "--model", f"tiny={path}") as daemon, parley.connect(daemon.address) as server:
            chat = server.open("tiny", temperature=0, max_tokens=12, ignore_eos=True)
            pieces = list(chat.turn("hello"))
            marks = [(i, p.cursor) for i, p in enumerate(pieces) if p.cursor is not None]
            assert marks and "".join(pieces) == chat.resume(parley.Cursor(1, 1, 0)).reply().text
            for i, cursor in marks:
                assert server.conversation(chat.id).resume(cursor).reply().text == "".join(pieces[i + 1:]), i


def test_asyncio():
    """The same for asyncio; an agent whose act waits has all rows of a step at once."""

    @parley.agent("together")
    class Together:
        present, full, go = 0, None, None

        def observe(self, messages):
            self.text = messages[0].text

        async def act(self):
            if self.text == "hold":
                await Together.go.wait()
                return "held"
            Together.present += 1
            if Together.present == 2:
                Together.full.set()
            await Together.full.wait()  # nobody goes on before two are here
            return self.text + "!"

    @parley.agent("letters")
    class Letters:
        def observe(self, messages):
            self.text = "".join(m.text for m in messages)

        async def act(self):
            for letter in self.text:
                await asyncio.sleep(0)
                yield letter

    async def main(address):
        Together.full, Together.go = asyncio.Event(), asyncio.Event()
        workers = [asyncio.create_task(parley.aio.serve(a, address)) for a in (Together, Letters)]
        async with parley.aio.connect(address) as server:
            async def model(name):
                answer = await server.links[0].call("Models/List", models_pb2.ModelsListRequest(), models_pb2.ModelsListResponse)
                return next((m for m in answer.models if m.name == name), None)

            while await model("together") is None or await model("letters") is None:
                await asyncio.sleep(0.01)  # nobody tells
            chat = await server.open("letters")
            assert [p async for p in chat.turn("abc")] == ["a", "b", "c"]
            fork = await chat.fork()
            assert (await fork.ask("de")).text == "de" and fork.turns == 2
            await chat.rewind(0)
            assert [p async for p in chat.turn("xyz")] == ["x", "y", "z"]
            assert (await (await server.conversation(chat.id)).resume(parley.Cursor(2, 1, 0)).reply()).text == "xyz"
            assert (await chat.get()).turns == 1
            # A task is cancelled at each of its waits: the next question gets its own answer.
            for waits in range(12):
                for ask in (lambda: chat.ask("lost"), lambda: chat.turn("lost").reply(), lambda: chat.observe("lost")):
                    task = asyncio.create_task(ask())
                    for _ in range(waits):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    word = f"w{waits}"
                    assert (await chat.ask(word)).text in (word, "lost" + word), "what was observed comes with it"
                    assert (await chat.get()).turns == chat.turns
            await chat.close()
            try:
                await chat.ask("more")
                raise AssertionError("it was answered")
            except parley.Error as e:
                assert e.reason == "CONVERSATION_NOT_FOUND"
            # While a step is held others wait, and come together.
            chats = [await server.open("together") for _ in range(3)]
            held = asyncio.create_task(chats[0].ask("hold"))
            while (await model("together")).batching.running < 1:
                await asyncio.sleep(0.01)
            both = asyncio.gather(chats[1].ask("a"), chats[2].ask("b"))
            while (await model("together")).batching.waiting < 2:
                await asyncio.sleep(0.01)
            Together.go.set()
            assert [(await held).text, *(r.text for r in await both)] == ["held", "a!", "b!"]
        for w in workers:
            w.cancel()
        assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*workers, return_exceptions=True))

    with Daemon(PARLEYD) as daemon:
        asyncio.run(main(daemon.address))


def test_a_restart():
    """The daemon is killed in mid-reply and comes back: the reply goes on behind its last piece, and happens once. The worker
    waits for the daemon, too."""
    with tempfile.TemporaryDirectory() as folder:
        first = Daemon(PARLEYD, "--data", folder)
        first.__enter__()
        serve(Speller, first.address)
        with parley.connect(first.address, patience=children.PATIENCE) as server:
            attached(server, "speller")
            chat = server.open("speller")
            assert chat.ask("zero").text == "zero 1 0"
            Speller.gate.clear()
            turn = chat.turn("one wait two")
            assert next(turn) == "one "
            first.process.kill()
            first.process.wait()
            Speller.gate.set()
            with Daemon(PARLEYD, "--data", folder, listen=first.address):
                assert list(turn) == ["wait ", "two ", "4 1"]
                assert chat.ask("three").text == "three 5 2"
                assert [t.reply for t in chat.get().transcript] == ["zero 1 0", "one wait two 4 1", "three 5 2"]


def test_several_addresses():
    """New conversations go to each daemon in turn, past one that is gone; each conversation stays where it is."""
    with Daemon(PARLEYD) as one, Daemon(PARLEYD) as two:
        gone = Daemon(PARLEYD)
        with gone:
            pass
        with parley.connect([one.address, gone.address, two.address], patience=children.PATIENCE) as server:
            chats = [server.open("echo") for _ in range(4)]
            assert {c._link.address for c in chats} == {one.address, two.address}
            assert all(c.ask("hi").turn == 1 and c.ask("again").turn == 2 for c in chats)
        with parley.connect(f"{one.address},{two.address}") as server:
            assert all(server.conversation(c.id).turns == 2 for c in chats)
        with parley.connect(gone.address, patience=0.2) as server:
            refused(lambda: server.open("echo"), "UNAVAILABLE", "")


def test_keys_and_tls():
    """A key goes with each call; a server's certificate is checked against the file that is given."""
    with tempfile.TemporaryDirectory() as folder:
        keys, key, cert = (os.path.join(folder, n) for n in ("keys", "key.pem", "cert.pem"))
        with open(keys, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
            print("anna", hashlib.sha256(b"pk-anna").hexdigest(), file=f)
        children.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                      "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                     check=True, capture_output=True)
        with Daemon(PARLEYD, "--keys", keys, "--tls-cert", cert, "--tls-key", key) as daemon:
            with parley.connect(daemon.address, key="pk-anna", tls=cert) as server:
                assert server.open("echo").ask("hello").text
            with parley.connect(daemon.address, tls=cert) as server:
                e = refused(lambda: server.open("echo"), "UNAUTHENTICATED", "")
                assert e.reason == "KEY_MISSING"
            with parley.connect(daemon.address, key="pk-anna", patience=0.2) as server:
                refused(lambda: server.open("echo"), "UNAVAILABLE", "")


def worker(address, *more):
    return children.start([sys.executable, EXAMPLE, address, *more], env={**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]})


def together(chats, texts):
    """Asks all at once; their replies."""
    async def main():
        async with parley.aio.connect(chats[0]._link.address, patience=children.PATIENCE) as server:
            those = [await server.conversation(c.id) for c in chats]
            return [r.text for r in await asyncio.gather(*(c.ask(t) for c, t in zip(those, texts)))]
    return asyncio.run(main())


def test_batches_of_an_agent():
    """64 conversations of the twenty-line example form batches of more than 30 rows. Its worker is killed in mid-step and
    started again: whoever waits gets its turn once. Two workers share the load."""
    lines = open(EXAMPLE).read().splitlines()
    assert len(lines) <= 20, len(lines)
    with Daemon(PARLEYD) as daemon, parley.connect(daemon.address, patience=children.PATIENCE) as server:
        first = worker(daemon.address)
        attached(server, "words")
        chats = [server.open("words") for _ in range(64)]
        assert together(chats, ["w " * (i + 1) for i in range(64)]) == [f"{i + 1} words" for i in range(64)]
        # A step is held while the worker stands still; all others wait, and come together.
        os.kill(first.pid, signal.SIGSTOP)
        replies = []
        asking = threading.Thread(target=lambda: replies.extend(together(chats, ["w"] * 64)))
        asking.start()
        until("all wait", lambda: models(server)["words"].batching.waiting + models(server)["words"].batching.running >= 64)
        os.kill(first.pid, signal.SIGCONT)
        asking.join()
        assert replies == [f"{i + 2} words" for i in range(64)]
        assert models(server)["words"].batching.max_rows_seen > 30, models(server)["words"].batching
        os.kill(first.pid, signal.SIGSTOP)
        replies.clear()
        asking = threading.Thread(target=lambda: replies.extend(together(chats, ["w"] * 64)))
        asking.start()
        until("it is in mid-step", lambda: models(server)["words"].batching.running > 0)
        first.kill()
        first.wait()
        second, third = worker(daemon.address), worker(daemon.address)
        asking.join()
        assert replies == [f"{i + 3} words" for i in range(64)]
        assert all(server.conversation(c.id).turns == 3 for c in chats)
        for one, other in ((second, third), (third, second)):  # whichever stands still, the other serves new conversations
            os.kill(one.pid, signal.SIGSTOP)
            fresh = [server.open("words") for _ in range(2)]
            os.kill(one.pid, signal.SIGCONT)
            assert together(fresh, ["a b", "c"]) == ["2 words", "1 words"] and other.poll() is None
        for w in (second, third):
            w.kill()
            w.wait()


def test_batch_act_and_states():
    """batch_act has the rows of a step together; what it gets wrong fails its rows; a long reply goes out in pieces; states are
    saved and restored."""

    @parley.agent("sums", rows=8, save_every=1)
    class Sums:
        made, restored, batches = 0, [], []

        def __init__(self):
            self.sum, self.last = 0, ""
            Sums.made += 1

        def observe(self, messages):
            self.last = messages[0].text
            self.sum += int(self.last) if self.last.lstrip("-").isdigit() else 0

        @staticmethod
        def batch_act(rows):
            Sums.batches.append(len(rows))
            if any(r.agent.last == "miscount" for r in rows):
                return []
            return ["é" * 50000 if r.agent.last == "long" else str(r.agent.sum) for r in rows]

        def save(self):
            return str(self.sum).encode()

        def restore(self, state):
            self.sum = int(state)
            Sums.restored.append(self.sum)

    with Daemon(PARLEYD) as daemon, parley.connect(daemon.address, patience=children.PATIENCE) as server:
        serve(Sums, daemon.address)
        attached(server, "sums")
        chats = [server.open("sums") for _ in range(8)]
        assert together(chats, [str(i) for i in range(8)]) == [str(i) for i in range(8)]
        assert sum(Sums.batches) == 8
        chats[0].turns = chats[3].turns = 1  # the other client's
        assert chats[3].ask("4").text == "7"
        e = refused(lambda: chats[3].ask("miscount"), "INTERNAL", "batch_act returned 0 replies to 1 rows")
        assert e.code == "INTERNAL" and chats[3].ask("1").text == "8"
        assert len(list(chats[0].turn("long"))) > 1 and chats[0].ask("long").text == "é" * 50000
        # The daemon drops the worker, which attaches again: a state comes back, and no turn is seen twice.
        made = Sums.made
        refused(lambda: server.links[0].once("Models/Get", models_pb2.ModelsGetRequest(name="none"), models_pb2.Model), "NOT_FOUND", "")
        again = worker_of_sums(daemon.address)
        until("it is attached, too", lambda: again.stdout.readline().strip() == "attached", again)
        assert Sums.made == made
        fresh = [server.open("sums") for _ in range(4)]
        texts = together(fresh, ["5"] * 4)
        assert texts == ["5"] * 4
        again.kill()
        again.wait()
        assert together(fresh, ["2"] * 4) == ["7"] * 4, "the other worker's clones came over with their states"
        assert Sums.restored and set(Sums.restored) == {5}, Sums.restored


SUMS = """
import sys, threading, parley
@parley.agent("sums", rows=8, save_every=1)
class Sums:
    sum = 0
    def __init__(self):
        pass
    def observe(self, messages): self.sum += int(messages[0].text)
    def act(self): return str(self.sum)
    def save(self): return str(self.sum).encode()
    def restore(self, state): self.sum = int(state)
take = parley.agents.Worker.take
def told(self, order):
    if order.WhichOneof("what") == "accepted": print("attached", flush=True)
    return take(self, order)
parley.agents.Worker.take = told
parley.serve(Sums, sys.argv[1])
"""


def worker_of_sums(address):
    return children.start([sys.executable, "-c", SUMS, address], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]})


@parley.environment("fails-v0")
class Fails(gymnasium.Env):
    """Counts its steps; one action is to fail, one to end the episode, one to say what is no number, one to answer as gym did."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2, 2)), gymnasium.spaces.Discrete(5, start=1)

    def reset(self, *, seed=None, options=None):
        self.seed, self.at = seed, 0
        return np.full((2, 2), seed), {}

    def step(self, action):
        if action == 2:
            raise RuntimeError("it was\ntold to fail")
        if action == 5:
            return np.full((2, 2), self.at), 0.0, False, {"done": "no"}
        self.at += 1
        return np.full((2, 2), np.nan if action == 4 else self.at), self.seed, action == 3, False, {}


def test_environments():
    """A decorated class is an environment of Env, as gymnasium has it; one that fails does so alone; numbers are actions, too."""
    def numbers(t):
        return np.frombuffer(t.data, "?" if t.dtype == tensor_pb2.DTYPE_BOOL else "<f4").reshape(tuple(t.shape))

    def of_numbers(a, dtype=tensor_pb2.DTYPE_I64):
        return tensor_pb2.Tensor(dtype=dtype, shape=a.shape, data=a.tobytes())

    pendulum = parley.environment("swing-v0", max_instances=2)(lambda: gymnasium.make("Pendulum-v1"))
    with Daemon(PARLEYD) as daemon, parley.connect(daemon.address) as server:
        for one in Fails, pendulum:
            threading.Thread(target=lambda one=one: ends_with(lambda: parley.serve(one, daemon.address)), daemon=True).start()
        link = server.links[0]

        def opened(name, count, seeds):
            try:
                return link.call("Env/Open", env_pb2.EnvOpenRequest(name=name, count=count, seeds=seeds), env_pb2.EnvOpenResponse)
            except parley.Error as e:
                assert e.code == "NOT_FOUND", e
                return None

        for name in "fails-v0", "swing-v0":
            until(f"{name} is attached", lambda name=name: opened(name, 1, [1]))
        one = opened("fails-v0", 3, [5])
        assert (one.observations, one.actions, one.action_numbers) == (4, 5, 0), one
        begun = link.call("Env/Reset", env_pb2.EnvResetRequest(handle=one.handle), env_pb2.EnvResetResponse)
        assert numbers(begun.observation).tolist() == [[5] * 4, [6] * 4, [7] * 4]

        def step(handle, actions, dtype=tensor_pb2.DTYPE_I64):
            return link.call("Env/Step", env_pb2.EnvStepRequest(handle=handle, action=of_numbers(np.array(actions), dtype)), env_pb2.EnvStepResponse)

        did = step(one.handle, [0, 1, 2])  # of an action space that starts at 1
        assert numbers(did.observation).tolist() == [[1] * 4, [0] * 4, [1] * 4] and numbers(did.reward).tolist() == [5, 0, 7]
        assert numbers(did.terminated).tolist() == [False, False, True]
        assert [(f.index, f.error.message) for f in did.failures] == [(1, "the environment failed: RuntimeError: it was told to fail")], did.failures
        link.call("Env/Reset", env_pb2.EnvResetRequest(handle=one.handle), env_pb2.EnvResetResponse)
        assert "not finite" in step(one.handle, [0, 3, 0]).failures[0].error.message
        link.call("Env/Reset", env_pb2.EnvResetRequest(handle=one.handle), env_pb2.EnvResetResponse)
        assert "it returned 4 values, it must return (observation, reward, terminated, truncated, info)" in step(one.handle, [0, 0, 4]).failures[-1].error.message
        swing = opened("swing-v0", 1, [3])
        peer = gymnasium.make("Pendulum-v1")
        seen = numbers(link.call("Env/Reset", env_pb2.EnvResetRequest(handle=swing.handle, seeds=[3]), env_pb2.EnvResetResponse).observation)
        assert np.allclose(seen[0], peer.reset(seed=3)[0])
        for torque in 0.5, -2.0, 1.0:
            theirs, reward, *_ = peer.step(np.array([torque], np.float32))
            did = step(swing.handle, np.array([[torque]], "<f4"), tensor_pb2.DTYPE_F32)
            assert np.allclose(numbers(did.observation)[0], theirs, atol=1e-5) and abs(numbers(did.reward)[0] - reward) < 1e-4


class Together(gymnasium.Env):
    """Its steps wait for each other: nobody goes on before all of an order have begun, and none while the gate is closed."""

    observation_space, action_space = gymnasium.spaces.Box(0, 9, (1,)), gymnasium.spaces.Discrete(3)
    n_begun, all_begun, gate = 0, None, None

    async def reset(self, *, seed=None, options=None):
        await asyncio.sleep(0)
        self.seed = seed
        return [seed], {}

    async def step(self, action):
        if action == 0:
            await Together.gate.wait()
        elif action == 1:
            Together.n_begun += 1
            if Together.n_begun == 3:
                Together.all_begun.set()
            await Together.all_begun.wait()
        else:
            raise RuntimeError("it failed")
        return [self.seed], 1.0, False, False, {}


def test_asyncio_environments():
    """Environments and teachers that wait, under parley.aio.serve: those of an order run at once, one that fails does so alone, and
    orders are answered in their order, whichever ends first. An async generator is a teacher; served otherwise it is refused."""

    @parley.teacher("lessons")
    async def lessons(fold, argument):
        for i in range(3):
            await asyncio.sleep(0)
            yield f"{fold} {argument} {i}", str(i)

    async def main(address):
        Together.all_begun, Together.gate = asyncio.Event(), asyncio.Event()
        served = [asyncio.create_task(parley.aio.serve(one, address)) for one in (parley.environment("together-v0")(Together), lessons)]
        async with parley.aio.connect(address, patience=children.PATIENCE) as server:
            link = server.links[0]

            def call(method, request):
                return link.call(f"Env/{method}", request, getattr(env_pb2, f"Env{method}Response"))

            async def opened(count):
                while True:
                    try:
                        return (await call("Open", env_pb2.EnvOpenRequest(name="together-v0", count=count, seeds=[5]))).handle
                    except parley.Error as e:
                        assert e.code == "NOT_FOUND", e
                        await asyncio.sleep(0.01)  # nobody tells

            def step(handle, *actions):
                action = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_I64, shape=[len(actions)], data=np.array(actions, "<i8").tobytes())
                return asyncio.create_task(call("Step", env_pb2.EnvStepRequest(handle=handle, action=action)))

            three, one = await opened(3), await opened(1)
            for handle, expected in (three, [5, 6, 7]), (one, [5]):
                begun = await call("Reset", env_pb2.EnvResetRequest(handle=handle))
                assert np.frombuffer(begun.observation.data, "<f4").tolist() == expected and not begun.failures
            assert not (await step(three, 1, 1, 1)).failures
            failed = (await step(three, 1, 2, 1)).failures
            assert [(f.index, f.error.message) for f in failed] == [(1, "the environment failed: RuntimeError: it failed")], failed
            await call("Reset", env_pb2.EnvResetRequest(handle=three))
            held = step(three, 0, 0, 0)
            before, late = Together.n_begun, step(one, 1)
            while Together.n_begun == before:
                await asyncio.sleep(0.001)  # then it has ended: its answer waits for that of the order before it
            assert not held.done() and not late.done()
            Together.gate.set()
            assert not (await held).failures and not (await late).failures
            chat = await server.open("lessons", system=json.dumps({"fold": "valid", "argument": "x", "from": 1}))
            lines = [json.loads(line) for line in (await chat.ask("next")).text.splitlines()]
            assert lines == [{"text": f"valid x {i}", "labels": [str(i)], "episode_done": True} for i in (1, 2)], lines
            assert (await chat.ask("next")).text == ""
        for s in served:
            s.cancel()
        assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*served, return_exceptions=True))

    with Daemon(PARLEYD) as daemon:
        asyncio.run(main(daemon.address))
        threading.Thread(target=lambda: ends_with(lambda: parley.serve(lessons, daemon.address, "plainly")), daemon=True).start()
        with parley.connect(daemon.address) as server:
            attached(server, "plainly")
            refused(lambda: server.open("plainly").ask("next"), "INTERNAL", "parley.aio.serve")


def ends_with(serve):
    """A worker whose daemon goes is to say nothing."""
    with contextlib.suppress(parley.Error):
        serve()


@parley.agent("faulty")
class Faulty:
    """Fails as its last message says."""

    def __init__(self, system=""):
        if system:
            raise ValueError(f"no such system: {system}")

    def observe(self, messages):
        self.what = messages[-1].text

    def act(self):
        return getattr(self, f"act_{self.what}")()

    def act_well(self):
        return "well"

    def act_raises(self):
        return {}["key"]

    def act_says(self):
        raise parley.Error("FAILED_PRECONDITION", "say please")

    def act_nothing(self):
        pass

    def act_bytes(self):
        return b"bytes"

    def act_numbers(self):
        yield "a"
        yield 5

    def act_gaps(self):
        yield "a"
        yield None
        yield "b"

    def act_long(self):
        yield "x" * 200000
        yield "é" * 50000

    async def act_later(self):
        yield "later"

    def act_keeps(self):
        self.lock = threading.Lock()
        return "kept"


@parley.agent("unsaved", save_every=1)
class Unsaved:
    def observe(self, messages):
        self.text = messages[-1].text

    def act(self):
        return self.text

    def save(self):
        if self.text == "raises":
            raise RuntimeError("no room")
        return self.text  # no bytes


def test_faults():
    """What an agent raises: a trace at the worker from the agent's own code on, a line for the client, and only this turn fails."""
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard), Daemon(PARLEYD) as daemon, parley.connect(daemon.address) as server:
        serve(Faulty, daemon.address)
        attached(server, "faulty")
        until("it says what it serves", lambda: f"parley: serving 'faulty' to the daemon at {daemon.address}\n" in heard.getvalue())
        with server.open("faulty") as chat:
            for what, code, words in (
                ("raises", "INTERNAL", "KeyError: 'key'"),
                ("nothing", "INTERNAL", "TypeError: act() returned None: it must return a text, or yield pieces of one"),
                ("bytes", "INTERNAL", "act() returned b'bytes'"),
                ("numbers", "INTERNAL", "act() yielded 5: it must yield texts"),
                ("gaps", "INTERNAL", "act() yielded None: it must yield texts"),
                ("later", "INTERNAL", "act() is an async generator: serve this agent with parley.aio.serve, not parley.serve"),
                ("says", "FAILED_PRECONDITION", "say please"),
            ):
                before = len(heard.getvalue())
                refused(lambda what=what: chat.ask(what), code, words)
                trace = heard.getvalue()[before:]
                assert trace.startswith("parley: 'faulty' failed:\n") if code == "INTERNAL" else trace == "", trace
                assert "agents.py" not in trace and ("in act_raises" in trace) == (what == "raises"), trace
                assert chat.ask("well").text == "well"
            assert chat.ask("long").text == "x" * 200000 + "é" * 50000, "pieces of any length"
            assert chat.ask("keeps").text == "kept"
            for call in (lambda: chat.ask("well"), lambda: chat.fork().ask("well")):
                refused(call, "INTERNAL", "Faulty cannot be copied, which is done before each turn: cannot pickle '_thread.lock' object")
        for _ in range(2):  # the worker goes on
            refused(lambda: server.open("faulty", "none").ask("well"), "INTERNAL", "ValueError: no such system: none")
        assert "test_python.py" in heard.getvalue() and server.open("faulty").ask("well").text == "well"
        serve(Unsaved, daemon.address)
        attached(server, "unsaved")
        chats = [server.open("unsaved") for _ in range(2)]
        for chat, what, words in zip(chats, ("raises", "texts"), ("RuntimeError: no room", "TypeError: "), strict=True):
            assert chat.ask(what).text == what
            until("it says that it has not saved", lambda words=words: "parley: 'unsaved' failed:\n" in heard.getvalue() and words in heard.getvalue())
        for chat in chats:
            assert chat.ask("again").text == "again", "the worker goes on"
        assert heard.getvalue().count("serving 'unsaved'") == 1


def test_names():
    """Keywords and fields that are not known are refused with the one that is meant, before anything is sent."""
    with parley.connect("127.0.0.1:1", patience=0) as server:
        chat = server.links and parley.Conversation(parley.wire.Route(server.links, 0), "none")
        for call, words in (
            (lambda: parley.agent("x", row=3), "parley.agent() has no 'row': did you mean 'rows'?"),
            (lambda: parley.teacher("x", evaluates=print), "did you mean 'evaluate'?"),
            (lambda: parley.environment("x", instances=3), "did you mean 'max_instances'?"),
            (lambda: parley.serve(Speller, adress="x"), "parley.serve() has no 'adress': did you mean 'address'?"),
            (lambda: parley.aio.serve(Speller, world=True), "parley.aio.serve() has no 'world': did you mean 'worlds'?"),
            (lambda: parley.connect("localhost", patients=3), "did you mean 'patience'?"),
            (lambda: parley.connect(8001), "addresses is 8001, it must be 'HOST:PORT' or a list"),
            (lambda: parley.agent(version="1"), "parley.agent() needs name, which is missing"),
            (lambda: server.open("echo", temprature=0), "a conversation has no 'temprature': did you mean 'temperature'?"),
            (lambda: server.open("echo", metdata={}), "did you mean 'metadata'?"),
            (lambda: chat.ask("x", max_token=3), "a turn has no 'max_token': did you mean 'max_tokens'?"),
            (lambda: chat.ask("x", zebra=3), "a turn has no 'zebra': it has clear_logit_bias, "),
            (lambda: chat.ask("x", temperature="hot"), "a turn: temperature must not be 'hot'"),
            (lambda: chat.ask([{"role": "user", "content": "x"}]), "a message has no 'content': did you mean 'text'?"),
            (lambda: chat.ask("x", tools=[{"type": "function", "function": {"name": "f"}}]), "a tool has no 'function'"),
            (lambda: parley.agent(Speller), '@parley.agent("NAME")'),
            (lambda: parley.teacher(print), '@parley.teacher("NAME")'),
            (lambda: parley.world(print), '@parley.world("NAME")'),
            (lambda: parley.environment(Speller), '@parley.environment("NAME")'),
            (lambda: server.open("echo", ttl=-1), "ttl is -1 s, it must be from 0 to"),
            (lambda: chat.ask("x", deadline=float("inf")), "deadline is inf s, it must be from 0 to"),
        ):
            try:
                call()
                raise AssertionError(f"it was taken: {words}")
            except (TypeError, ValueError) as e:
                assert words in str(e), e
    assert parley.wire.turn_request("c", 1, "x", {}, deadline=0.0001).deadline_ms == 1, "a short time is not none"


def test_the_wheel():
    """The wheel asks for a protobuf and a grpcio that its messages take: by their own rule, none that is older than what made them."""
    package = os.environ["PARLEY_PACKAGE"]
    with open(os.path.join(package, "parley/v1/act_pb2.py"), encoding="utf-8") as f:
        made_with = re.search(r"^# Protobuf Python Version: (\S+)$", f.read(), re.MULTILINE)[1]
    found, = importlib.metadata.distributions(name="parleyd", path=[package])
    with open(os.path.join(package, "parley/v1/act_pb2_grpc.py"), encoding="utf-8") as f:
        grpcio = re.search(r"^GRPC_GENERATED_VERSION = '(\S+)'$", f.read(), re.MULTILINE)[1]
    assert f"grpcio>={grpcio}" in found.requires, (found.requires, grpcio)
    asked = [words for words in found.requires if words.startswith("protobuf")]
    assert len(asked) == 1 and f">={made_with}" in asked[0] and f"<{int(made_with.split('.')[0]) + 2}" in asked[0], (asked, made_with)


def test_misuse():
    """What cannot be an agent, and whom the daemon does not want."""
    class Plain:
        pass

    class Deaf:
        def act(self):
            pass

    class Mute:
        def observe(self, messages):
            pass

    class Bound(Mute):
        def batch_act(self, rows):
            pass

    class Slow(Speller):
        async def observe(self, messages):
            pass

    def function():
        pass

    for what, words in ((Plain, "@parley.agent"), (parley.agent("x")(Deaf), "observe(self, messages)"), (parley.agent("x")(Mute), "act(self)"),
                        (parley.agent("x")(Bound), "@staticmethod"), (parley.agent("x")(Slow), "observe is a coroutine"),
                        (Speller(), "serve the class Speller"), (parley.agent("x")(function), "function is a function")):
        try:
            parley.serve(what)
            raise AssertionError("it was served")
        except TypeError as e:
            assert words in str(e), e
    with Daemon(PARLEYD, "--attach", "off") as daemon:
        refused(lambda: parley.serve(Speller, daemon.address), "PERMISSION_DENIED", "may not attach")
    with Daemon(PARLEYD) as daemon:
        refused(lambda: parley.serve(Speller, daemon.address, "echo"), "ALREADY_EXISTS", "echo")
    for bad in ("", [], ["a", ""]):
        try:
            parley.connect(bad)
            raise AssertionError("it was taken")
        except ValueError:
            pass


def test_the_page():
    """The examples of the package's page do what they say, in their order."""
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client/python/README.md")
    examples = re.findall(r"^```python\n(.*?)^```", open(page).read(), re.DOTALL | re.MULTILINE)
    assert len(examples) >= 3
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tiny.gguf")
        children.run([WRITE_TINY_MODEL, path], check=True)
        pole = os.path.join(folder, "pole.gguf")
        children.run([WRITE_POLICY, pole], check=True)
        value = os.path.join(folder, "value.gguf")
        parley.policies.create(value, 4, 2)
        with Daemon(PARLEYD, "--model", f"smollm2={path}", "--model", f"pole={pole}", "--model", f"value={value}") as daemon, parley.connect(daemon.address) as server:
            os.environ["PATH"] = os.pathsep.join([os.path.dirname(os.path.abspath(PARLEYD)), os.environ["PATH"]])  # of `parley place`
            for example in examples:
                with contextlib.redirect_stdout(io.StringIO()):  # the tiny model says nothing of sense
                    exec(compile(example, page, "exec"), {"ADDRESS": daemon.address, "__name__": "example"})
            attached(server, "words")
            assert server.open("words").ask("one two").text == "2 words"


TESTS = [test_a_conversation, test_a_cursor, test_asyncio, test_a_restart, test_several_addresses, test_keys_and_tls, test_batches_of_an_agent,
         test_batch_act_and_states, test_environments, test_asyncio_environments, test_faults, test_names, test_the_wheel, test_misuse, test_the_page]


def main():
    wanted = sys.argv[5:]
    for test in TESTS:
        if not wanted or test.__name__ in wanted:
            print(test.__name__, flush=True)
            test()


main()
