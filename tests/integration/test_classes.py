#!/usr/bin/env python3
"""The classes of the Python package for what the daemon can do: language models in a training, policies of one's own, the examples of
the docstrings.

usage: test_classes.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has grpcio; see venv.sh)"""
import contextlib
import copy
import doctest
import importlib
import json
import os
import pickle
import pkgutil
import signal
import sys
import tempfile
import threading
import types
import urllib.request

import gguf
import gymnasium
import numpy as np
from gymnasium import spaces

import children
from children import Daemon, until

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
from parley import language, optim, parallel, policies, vector, worlds  # noqa: E402
from parley import spaces as parley_spaces  # noqa: E402
from parley.v1 import scores_pb2  # noqa: E402

PARLEYD, WRITE_TINY_MODEL = sys.argv[1:3]
NEEDS_TORCH = {"parley.stack"}  # whose examples test_algorithms.py runs


@contextlib.contextmanager
def serving(*options):
    """A daemon with a small language model as `smollm2`, whose replies are of no sense."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tiny.gguf")
        children.run([WRITE_TINY_MODEL, path], check=True)
        with Daemon(PARLEYD, "--model", f"smollm2={path}", *options) as daemon, parley.connect(daemon.address) as server:
            yield daemon, server


def refused(call, code, words):
    try:
        call()
    except parley.Error as e:
        assert e.code == code and words in e.message, (e.code, e.message)
        return
    raise AssertionError(f"it was not refused: {words}")


def test_sampling_is_scoring():
    """Each token of replies at several temperatures has, scored behind its prompt, the log-probability it was drawn with, to the bit."""
    with serving() as (_, server):
        equal = n_tokens = 0
        for i in range(13):
            prompt = [{"role": "user", "text": f"question {i}, " * (i + 1)}]
            group = language.samples(server, prompt, 8, model="smollm2", system="Be brief." if i % 2 else "", max_tokens=12, ignore_eos=True,
                                     temperature=[1, 0.7, 2][i % 3], top_k=[0, 20][i % 2], repetition_penalty=[1, 1.2][i % 2])
            assert len({reply.token_ids for reply in group}) > 1
            own = language.score(server, [prompt], model="smollm2", system="Be brief." if i % 2 else "")[0].token_ids
            assert {reply.prompt_tokens for reply in group} == {len(own)}
            scored = language.score(server, [own + reply.token_ids for reply in group], model="smollm2")
            for reply, score in zip(group, scored):
                assert score.token_ids == own + reply.token_ids and score.logprobs[0] == score.ranks[0] == 0
                equal += sum(a == b for a, b in zip(reply.logprobs, score.logprobs[len(own):], strict=True))
                n_tokens += len(reply.token_ids)
        assert equal == n_tokens == 1248, (equal, n_tokens)


def test_scores():
    """Texts, ids and chats; the likeliest tokens and ranks; the same numbers over HTTP; what is refused."""
    with serving("--http", "127.0.0.1:0") as (daemon, server):
        raw, = language.score(server, ["hello world"], raw=True, top=3)
        ids, = language.score(server, [raw.token_ids], top=3)
        chat, again = language.score(server, ["hello world", [{"role": "user", "text": "hello world"}]])
        assert raw == ids and chat == again and len(chat.token_ids) > len(raw.token_ids) > 3
        for logprob, rank, top in zip(raw.logprobs[1:], raw.ranks[1:], raw.top_logprobs[1:]):
            assert len(top) == 3 and logprob <= top[0][1] and (rank == 1) == (logprob == top[0][1])
        assert raw.total() == sum(raw.logprobs) and raw.total(len(raw.token_ids)) == 0
        body = json.dumps({"prompt": list(raw.token_ids), "max_tokens": 1, "prompt_logprobs": 3, "temperature": 0}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"http://{daemon.http}/v1/completions", body)) as f:
            said = json.load(f)["choices"][0]["prompt_logprobs"]
        over_http = [token[str(i)]["logprob"] for i, token in zip(raw.token_ids[1:], said[1:])]
        assert [np.float32(x) for x in over_http] == [np.float32(x) for x in raw.logprobs[1:]], "nine digits are all of a float's"
        with server.open("smollm2", max_tokens=4, ignore_eos=True) as chat:
            whole = chat.ask("hello", logprobs=2, temperature=0)
            chat.rewind(0)
            turn = chat.turn("hello", logprobs=2, temperature=0)
            pieces = list(turn)
            assert turn.reply().token_ids == whole.token_ids and turn.reply().logprobs == whole.logprobs
            assert sum((p.logprobs for p in pieces), ()) == whole.logprobs and turn.reply().top_logprobs == whole.top_logprobs
            assert all(top[0][1] == logprob for top, logprob in zip(whole.top_logprobs, whole.logprobs)) and len(whole.logprobs) == 4
            chat.rewind(0)
            assert chat.ask("hello").logprobs == ()
        for inputs, more, code, words in [
                ([], {}, "INVALID_ARGUMENT", "inputs is empty"), ([[]], {}, "INVALID_ARGUMENT", "empty"), ([""], {"raw": True}, "INVALID_ARGUMENT", "empty"),
                ([[1 << 30]], {}, "INVALID_ARGUMENT", "1073741824 is not a token id"), (["x"], {"top": 21}, "INVALID_ARGUMENT", "top is 21"),
                ([[1], [-1]], {}, "INVALID_ARGUMENT", "input 1: -1 is not"), 
                ([[{"role": "usr", "text": "x"}]], {}, "INVALID_ARGUMENT", "messages[0].role is 'usr'"), (["x"], {"model": "echo"}, "UNIMPLEMENTED", "cannot return log-probabilities"),
                (["a b " * 5000], {}, "OUT_OF_RANGE", "context"), ([[1]] * 2049, {}, "INVALID_ARGUMENT", "2049 entries")]:
            try:
                language.score(server, inputs, **more)
                raise AssertionError(f"it was taken: {words}")
            except parley.Error as e:
                assert e.code == code and words in str(e), (words, e)
        refused(lambda: server.links[0].once("Scores/Score", scores_pb2.ScoresScoreRequest(inputs=[scores_pb2.ScoreInput(
            chat=scores_pb2.ScoreChat())]), scores_pb2.ScoresScoreResponse), "INVALID_ARGUMENT", "a chat without messages")
        many = language.score(server, [[5, 6, 7, i] for i in range(200)])  # more than are in flight at once
        assert [s.token_ids[3] for s in many] == list(range(200)) and len({s.logprobs[1:3] for s in many}) == 1
        call = server.links[0].channel.unary_unary("/parley.v1.Scores/Score").future(
            scores_pb2.ScoresScoreRequest(inputs=[scores_pb2.ScoreInput(tokens={"ids": [5] * 1500})] * 64).SerializeToString())
        call.cancel()
        assert language.score(server, [[5, 6, 7]])[0].logprobs[1:] == many[0].logprobs[1:3], "after one who went away"


def test_samples():
    """Forks of a conversation, which stays as it is; seeds; nothing is left open, even after a failure."""
    with serving() as (_, server):
        def n_open():
            from parley.v1 import conversations_pb2 as pb
            return server.links[0].call("Conversations/List", pb.ConversationsListRequest(), pb.ConversationsListResponse).total

        with server.open("smollm2", max_tokens=6, ignore_eos=True) as chat:
            chat.ask("hello", temperature=0)
            group = language.samples(chat, "go on", 5, seed=7, temperature=1)
            assert [r.turn for r in group] == [2] * 5 and chat.turns == 1 and n_open() == 1
            assert language.samples(chat, "go on", 3, seed=9, temperature=1) == group[2:]
            refused(lambda: language.samples(chat, "go on", 3, temperature=-1), "INVALID_ARGUMENT", "temperature")
            with parley.connect(server.links[0].address, patience=0) as hasty:
                refused(lambda: language.samples(hasty, "go on", 3, model="nobody"), "NOT_FOUND", "nobody")
                refused(lambda: language.score(hasty, ["x"], model="nobody"), "NOT_FOUND", "nobody")
            assert n_open() == 1
            forks = language.fork(chat, 2, at_turn=0)
            assert [f.turns for f in forks] == [0, 0] and n_open() == 3
            language.close(forks)
        assert n_open() == 0
        serve(Endless, server.links[0].address)
        until("it is attached", lambda: "endless" in [m.name for m in parley.Models(server).list()])
        try:
            language.samples(server, "go on", 2, model="endless", logprobs=0)
            raise AssertionError("it was not interrupted")
        except KeyboardInterrupt:  # without waiting for the replies
            assert n_open() == 0
        finally:
            Endless.gate.set()


@parley.agent("endless")
class Endless:
    """Presses Ctrl-C, and says nothing."""

    gate = threading.Event()

    def observe(self, messages):
        pass

    def act(self):
        if not Endless.gate.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        Endless.gate.wait()
        return "at last"


def network(path):
    """What a policy's file computes, as a function of numpy arrays."""
    weights = {t.name: t.data.astype(np.float64) for t in gguf.GGUFReader(path).tensors}

    def forward(seen):
        hidden = seen.reshape(len(seen), -1).astype(np.float64)
        for i in range(2):
            hidden = np.maximum(hidden @ weights[f"hidden.{i}.weight"].T + weights[f"hidden.{i}.bias"], 0)
        return [hidden @ weights[f"{name}.weight"].reshape(-1, hidden.shape[1]).T + weights[f"{name}.bias"] for name in ("actions", "value")]

    return forward


def serve(policy, address):
    threading.Thread(target=parley.serve, args=(policy, address), daemon=True).start()


def test_policies():
    """A policy in numpy does what the daemon's own does with the same weights; lock-step; new versions; modules that fail."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        files = {head: os.path.join(folder, f"{head}.gguf") for head in ("softmax", "gaussian")}
        for head, path in files.items():
            policies.create(path, 4, 2, head=head, seed=3)
        daemon, server = stack.enter_context(serving(*(f"--model={head}={path}" for head, path in files.items())))
        for head, path in files.items():
            kind = {"actions": 2} if head == "softmax" else {"action_numbers": 2}
            mine = parley.Policy(f"my-{head}", network(path), observations=(2, 2), head=head, value=True, **kind)
            serve(mine, daemon.address)
            own, other = parley.Act(server, head, 5, run=100), parley.Act(server, f"my-{head}", 5, run=100)
            other.wait()
            draw = np.random.default_rng(1)
            chosen = []
            for step in range(40):
                seen, gained, ended = draw.standard_normal((5, 4)), draw.standard_normal(5), draw.random(5) < 0.1
                a, b = own.act(seen, gained, ended), other.act(seen, gained, ended)
                assert a.keys() == b.keys() == {"action", "logp", "value"} and a["action"].dtype == b["action"].dtype
                for name in a:
                    assert np.allclose(a[name], b[name], atol=1e-5), (head, step, name, a, b)
                chosen.append(b["action"])
            assert len(np.unique(np.stack(chosen))) >= 2 and (other.params_versions == 0).all()
        names, seen = ["softmax", "my-softmax", "softmax"], draw.standard_normal((3, 4))
        with parley.Act(server, names, run=7) as several:  # of several policies at once, each by its own
            several.wait()
            several.configure("auto")
            out = several.act(seen)
            for i, name in enumerate(names):
                with parley.Act(server, name, run=7 + i) as alone:
                    one = alone.act(seen[i:i + 1])
                assert several.rows == [0, 0, 1] and all(np.allclose(out[key][i], one[key][0], atol=1e-5) for key in out), (name, out, one)
        for wrong in (["softmax", "gaussian"], "other outputs"), ([], "at least 1"), (["softmax", "nobody"], "nobody"):
            try:
                parley.Act(server, wrong[0], run=7).act(seen[:len(wrong[0])])
                raise AssertionError("it was taken")
            except (ValueError, parley.Error) as e:
                assert wrong[1] in str(e), e
        try:
            parley.Act(server, names, 2)
            raise AssertionError("it was taken")
        except ValueError as e:
            assert "n is 2, but model has 3 names" in str(e), e
        act = other
        seen = draw.standard_normal((5, 4))
        act.configure("lockstep", n=5)
        mine.update(params_version=7)
        act.act(seen)
        assert (act.params_versions == 7).all() and (act.batch_sizes == 5).all(), act.batch_sizes
        act.configure("auto")
        mine.update(lambda seen: (np.full((len(seen), 4), np.nan), np.zeros(len(seen))))
        refused(lambda: act.act(seen), "INTERNAL", "not finite")
        mine.update(lambda seen: seen[:1])
        refused(lambda: act.act(seen), "INTERNAL", "ValueError")
        mine.update(network(files["gaussian"]))
        assert np.isfinite(act.act(seen)["value"]).all() and (act.params_versions == 10).all(), "the worker has outlived them"
        for greedy, actions in [("greedy", [1, 0, 1]), ("action", [1, 0, 1])]:
            table = np.array([[0.0, 1], [2, 1], [3, 4]])
            chooses = parley.Policy(greedy, (lambda seen: seen @ np.eye(2)) if greedy == "greedy" else lambda seen: np.argmax(seen, 1), observations=2,
                                    actions=2, head=greedy)
            serve(chooses, daemon.address)
            with parley.Act(server, greedy, 3) as some:
                some.wait()
                assert (out := some.act(table))["action"].tolist() == actions and out.keys() == {"action"}
        compiles(daemon, server)
        for bad, words in [({"head": "x", "actions": 2}, "head is 'x'"), ({}, "exactly one"), ({"actions": 2, "action_numbers": 1}, "exactly one"),
                           ({"head": "gaussian", "actions": 2}, "needs action_numbers"), ({"actions": 2, "stack": -1}, "stack is -1"), ({"actions": 2, "warm": [0]}, "warm is [0]"),
                           ({"actions": 2, "value": True, "critic": np.dot}, "value and critic")]:
            try:
                parley.Policy("bad", lambda seen: seen, observations=2, **bad)
                raise AssertionError("it was made")
            except ValueError as e:
                assert words in str(e), e


class Compiled:
    """A module that compiles when it is called, as torch.compile makes it."""

    _torchdynamo_orig_callable = None

    def __init__(self, n=None):
        self.calls, self.n = [], n

    def __call__(self, seen, actions=None):
        self.calls.append((seen.shape, float(abs(seen).sum())) if actions is None else (seen.shape, actions.shape))
        if self.n not in (None, len(seen)):
            raise ValueError(f"it takes {self.n} rows")
        return seen if actions is None else seen.sum(-1)


class Plain:
    """A module of no framework."""

    def __call__(self, seen):
        return seen


class Decorated(Plain):
    def forward(self, seen):
        return seen

    forward._torchdynamo_orig_callable = forward


def compiles(daemon, server):
    """A module that compiles when it is called is called with zeros before a step has it: of any size, in a stack, and a new one."""
    first, second, critic, plain = Compiled(), Compiled(), Compiled(), Compiled()
    warms = parley.Policy("warms", first, observations=2, actions=2, critic=critic)
    serve(warms, daemon.address)
    with parley.Act(server, "warms", 3) as act:
        act.wait()
        zeros = [((1, 2), 0.0), ((2, 2), 0.0)]
        assert first.calls == zeros and critic.calls == [((1, 2), (1,)), ((2, 2), (2,))], (first.calls, critic.calls)
        act.act(np.ones((3, 2)))
        assert sum(shape[0] for shape, _ in first.calls[2:]) == 3 and all(seen > 0 for _, seen in first.calls[2:]), first.calls
        warms.update(second)
        assert second.calls == zeros and len(critic.calls) == len(first.calls)
        warms.update(second, critic=critic)
        assert second.calls == zeros and len(critic.calls) == len(first.calls), "networks that were changed in place"
    for module, more, expected in ((plain, {"warm": ()}, []), (lambda seen: plain(seen), {"warm": [5]}, [((5, 2), 0.0)]), (plain, {"stack": 2}, [((2, 1, 2), 0.0), ((2, 2, 2), 0.0)]),
                                   (plain, {"rows": 1}, [((1, 2), 0.0)]), (plain, {"stack": 2, "rows": 2}, [((2, 1, 2), 0.0)])):
        plain.calls.clear()
        parley.Policy("one", module, observations=2, actions=2, **more).__parley_worker__()
        assert plain.calls == expected, (more, plain.calls)
    several, has_part = Plain(), Plain()
    several.modules, has_part.inner = [np.dot], plain
    assert not policies.is_compiled(several) and policies.is_compiled(has_part) and not policies.is_compiled(len) and policies.is_compiled(Decorated())
    fixed = Compiled(n=5)
    parley.Policy("fixed", fixed, observations=2, actions=2).__parley_worker__()
    assert [shape for shape, _ in fixed.calls] == [(1, 2), (2, 2)], "it takes steps of 5 rows"
    try:
        parley.Policy("fixed", fixed, observations=2, actions=2, warm=[2]).__parley_worker__()
        raise AssertionError("it was offered")
    except ValueError as e:
        assert "5 rows" in str(e)


class Shouts:
    """A world whose code answers what a participant says."""

    participants = [{"name": "me", "human": True}]

    def parley(self):
        me, = self.agents
        me.observe(me.act()["text"] + "!")
        me.act()


def test_copied_world():
    """Copies of a conversation with a world each have the orders of their own turns, in whatever order they are asked."""
    world = type("World", (worlds.Play,), {"cls": Shouts})('{"script": true}')
    world.observe([types.SimpleNamespace(text="{}")])
    world.self_observe(world.reply())
    copies = [copy.deepcopy(world) for _ in range(3)]
    for i, one in enumerate(copies):
        one.observe([types.SimpleNamespace(text=json.dumps({"who": "me", "act": {"text": str(i)}}))])
    for i, one in enumerate(copies):
        order = one.reply()
        assert f"{i}!" in order, order
        one.self_observe(order)
        assert copy.deepcopy(one).reply() == order


def test_acting():
    """A step that is interrupted counts once; sessions that fail are named; what is no observation is refused before it is sent."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        pole = os.path.join(folder, "pole.gguf")
        policies.create(pole, 4, 2)
        daemon, server = stack.enter_context(serving("--model", f"pole={pole}"))
        whole, cut = (parley.Act(server, "pole", 3, run=5) for _ in range(2))
        for step in range(12):
            seen = np.full((3, 4), step / 7)
            expected = whole.act(seen)
            if step % 3 == 1:  # interrupted before, between and behind the answers
                ask = cut._ask

                def interrupted(requests, n_read=step // 3 % 3):
                    cut._ask = ask
                    cut._stream = stopping(cut._stream, n_read) if cut._stream else stopping(None, 0)
                    return ask(requests)

                cut._ask = interrupted
                try:
                    cut.act(seen)
                    raise AssertionError("it was not interrupted")
                except KeyboardInterrupt:
                    pass
                assert cut._stream is None and cut._doubtful
                cut._ask(cut._doubtful)
                continue
            got = cut.act(seen)
            assert all((got[name] == expected[name]).all() for name in got), step
        whole.reset(run=5)
        assert (whole.act(np.zeros((3, 4)))["action"] == parley.Act(server, "pole", 3, run=5).act(np.zeros((3, 4)))["action"]).all()
        refused(lambda: whole.act(np.full((3, 4), np.nan)), "INVALID_ARGUMENT", "holds nan")
        assert whole.act(np.zeros((3, 4))).keys() == {"action", "logp", "value"}, "no session has moved"
        for seen, more, words in [(np.zeros((2, 4)), {}, "the first dimension must be 3"), (np.full((3, 4), 1e300), {}, "1e+300"),
                                  ([["a"] * 4] * 3, {}, "observations"), (np.zeros((3, 4)), {"rewards": [1, 2]}, "rewards has 2 numbers"),
                                  (np.zeros((3, 4)), {"rewards": [0, np.nan, 0]}, "rewards has nan"), (np.zeros((3, 4)), {"rewards": [1e39] * 3}, "rewards has 1e+39"),
                                  (np.zeros((3, 4)), {"done": [0.5] * 3}, "done")]:
            try:
                whole.act(seen, **more)
                raise AssertionError(f"it was taken: {words}")
            except (ValueError, parley.Error) as e:
                assert words in str(e), (words, e)
        for bad in ({"mode": "x"}, {"mode": "lockstep", "n": 0}):
            try:
                whole.configure(**bad)
                raise AssertionError("it was configured")
            except (ValueError, parley.Error):
                pass
        with parley.connect(daemon.address, patience=0.1) as hasty:
            refused(lambda: parley.Act(hasty, "nobody").wait(), "NOT_FOUND", "nobody")
        for what in server, whole, parley.OrderedStore(server):
            try:
                pickle.dumps(what)
                raise AssertionError("a connection was pickled")
            except TypeError as e:
                assert "connect in the process" in str(e), e


class stopping:
    """A stream that is interrupted behind so many answers."""

    def __init__(self, stream, n):
        self.stream, self.left = stream, n

    def __next__(self):
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        return next(self.stream)

    def cancel(self):
        if self.stream is not None:
            self.stream.cancel()


class Medley(gymnasium.Env):
    """Observations and actions of every kind of space; all of it follows from the seed and the actions."""

    def __init__(self):
        self.observation_space = spaces.Dict({
            "image": spaces.Box(0, 255, (2, 3, 3), np.uint8), "pair": spaces.Tuple([spaces.Discrete(5, start=-2), spaces.MultiDiscrete([3, 4])]),
            "bits": spaces.MultiBinary(3), "wide": spaces.Box(-1, 1, (2,), np.float64), "whole": spaces.Box(-(1 << 24), 1 << 24, (), np.int64)})
        self.action_space = spaces.Dict({"m": spaces.MultiDiscrete([3, 4]), "i": spaces.Box(-3, 9, (2,), np.int16), "b": spaces.MultiBinary(2),
                                         "t": spaces.Tuple([spaces.Box(-2, 2, (1,), np.float32), spaces.Discrete(3, start=1)])})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {"seed": seed, "list": np.arange(3), "text": "x", "what": object()}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        if self.t == 3 and action["b"].sum() == 2 and action["m"][0] == 2:
            raise RuntimeError("two bits")
        reward = float(action["i"].sum() + action["m"].sum() + action["t"][1] + action["t"][0][0])
        return self.observation_space.sample(), reward, self.t == 5, False, {"t": self.t} if self.t % 2 else {}


def alike(a, b):
    """Whether two values of spaces are the same, by type; floats are rounded to float32."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and (a.astype(np.float32) == b.astype(np.float32)).all()


def sound(env):
    """gymnasium's own rules of a vector environment's spaces and values."""
    assert gymnasium.vector.utils.batch_space(env.single_observation_space, env.num_envs) == env.observation_space
    assert gymnasium.vector.utils.batch_space(env.single_action_space, env.num_envs) == env.action_space
    observation, infos = env.reset()
    assert env.observation_space.contains(observation) and isinstance(infos, dict)
    observation, reward, terminated, truncated, infos = env.step(env.action_space.sample())
    assert env.observation_space.contains(observation) and isinstance(infos, dict)
    assert reward.dtype == np.float64 and terminated.dtype == truncated.dtype == bool
    assert reward.shape == terminated.shape == truncated.shape == (env.num_envs,)


def test_vector():
    """A daemon's environments are a vector environment of gymnasium: what the same class does there, it does here."""
    parley.environment("Medley-v0")(Medley)
    mode = gymnasium.vector.AutoresetMode.NEXT_STEP
    with Daemon(PARLEYD) as daemon, parley.connect(daemon.address) as server:
        serve(Medley, daemon.address)
        until("it is offered", lambda: opens(server, "Medley-v0"))
        theirs = gymnasium.vector.SyncVectorEnv([Medley] * 3, autoreset_mode=mode)
        with vector.VectorEnv(server, "Medley-v0", 3) as mine:
            assert mine.single_observation_space == theirs.single_observation_space and mine.action_space == theirs.action_space
            sound(mine)
            mine.action_space.seed(2)
            (a, infos), (b, expected) = mine.reset(seed=5), theirs.reset(seed=5)
            assert alike(a, b) and mine.observation_space.contains(a)
            for key in ("seed", "list", "text", "_seed"):
                assert (infos[key] == expected[key]).all(), key
            assert infos["_not_sent"][0] == ["what"], "an object is not sent, and that is said"
            n_resets = 0
            for step in range(20):
                action = mine.action_space.sample()
                action["b"][:, 0] = 0
                got, want = mine.step(action), theirs.step(action)
                assert all((x == y.astype(np.float32)).all() for x, y in zip(got[1:4], want[1:4], strict=True)), step
                assert mine.observation_space.contains(got[0]) and (n_resets or alike(got[0], want[0])), step
                assert ("t" in got[4]) == ("t" in want[4]) and all((got[4][k] == want[4][k]).all() for k in want[4] if k in ("t", "_t")), step
                n_resets += got[2].any()
            assert n_resets >= 3
            mine.reset(seed=[7, 8, 9])
            action = {"m": np.array([[2, 0]] * 3), "i": np.zeros((3, 2), np.int16), "b": np.array([[0, 0], [1, 1], [0, 0]], np.int8),
                      "t": (np.zeros((3, 1), np.float32), np.ones(3, np.int64))}
            ends = [mine.step(action) for _ in range(4)]
            assert ends[2][3].tolist() == [False, True, False] and "two bits" in ends[2][4]["failure"][1] and not ends[2][4]["_failure"][0]
            assert ends[3][1][1] == 0 and not ends[3][3].any(), "the one that failed was reset, the others went on"
            mine.reset(options={"reset_mask": np.array([True, False, False])})
            for bad, words in [({**action, "b": np.zeros((3, 3), np.int8)}, "['b'] has the shape"), ({**action, "m": np.full((3, 2), 0.5)}, "float64")]:
                try:
                    mine.step(bad)
                    raise AssertionError("it was taken")
                except ValueError as e:
                    assert words in str(e), e
            for seed in -1, 1.5, "123":
                try:
                    vector.VectorEnv(server, "Medley-v0", 3, seed=seed)
                    raise AssertionError("it was taken")
                except ValueError as e:
                    assert str(e).startswith("seed is "), e
            for bad in ({"options": {"x": 1}}, {"seed": [1]}, {"seed": -1}, {"seed": 1.5}, {"seed": [1, 2.5, 3]}, {"seed": "123"}, {"options": {"reset_mask": np.zeros(3, bool)}}):
                try:
                    mine.reset(**bad)
                    raise AssertionError("it was taken")
                except ValueError:
                    pass
            once, mine.environments.link.once = mine.environments.link.once, interrupt
            try:
                mine.step(action)
                raise AssertionError("it was not interrupted")
            except KeyboardInterrupt:
                mine.environments.link.once = once
            refused(lambda: mine.step(action), "FAILED_PRECONDITION", "call reset")
            mine.reset()
            mine.step(action)
        for name in ("CartPole-v1", "Pendulum-v1"):
            with vector.VectorEnv(server, name, 2, seed=3) as mine:
                theirs = gymnasium.make_vec(name, num_envs=2, vectorization_mode="sync")
                assert mine.single_observation_space == theirs.single_observation_space and mine.single_action_space == theirs.single_action_space
                sound(mine)
                counted = gymnasium.wrappers.vector.RecordEpisodeStatistics(gymnasium.wrappers.vector.NormalizeObservation(mine))
                counted.reset(seed=1)
                lengths = []
                for _ in range(210):
                    *_, infos = counted.step(counted.action_space.sample())
                    lengths += infos["episode"]["l"][infos["_episode"]].tolist() if "episode" in infos else []
                assert len(lengths) >= 2 and (name != "Pendulum-v1" or set(lengths) == {200}), lengths
        with vector.VectorEnv(server, "GridWorld-v0", 2, seed=1) as mine:
            sound(mine)
        for space, words in [(spaces.Box(-(1 << 40), 1 << 40, (1,), np.int64), "the observation space['x'] is"), (spaces.Text(3), "Text"),
                             (spaces.Box(np.iinfo(np.int32).min, 5, (), np.int32), "beyond"), (spaces.Discrete(1 << 30), "beyond")]:
            try:
                parley_spaces.dump(spaces.Dict({"x": space}), spaces.Discrete(2))
                raise AssertionError("it was taken")
            except TypeError as e:
                assert words in str(e), e


def interrupt(*_):
    raise KeyboardInterrupt


def opens(server, name):
    try:
        vector.VectorEnv(server, name, 1).close()
        return True
    except parley.Error as e:
        assert e.code == "NOT_FOUND", e
        return False


def test_models():
    """Models are listed, loaded and unloaded."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        pole = os.path.join(folder, "pole.gguf")
        policies.create(pole, 4, 2)
        _, server = stack.enter_context(serving("--model", f"pole={pole}"))
        models = parley.Models(server)
        kinds = {m.name: (m.state, m.kind) for m in models.list()}
        assert kinds["pole"] == ("ready", "policy") and kinds["smollm2"] == ("ready", "lm") and models.get().is_default
        models.unload("pole")
        refused(lambda: models.get("pole"), "UNAVAILABLE", "not loaded")
        loaded = models.load("pole")
        assert loaded == models.load("pole") == models.get("pole") and loaded.state == "ready" and len(loaded.version) == 64
        refused(lambda: models.load("nobody"), "NOT_FOUND", "nobody")
        refused(lambda: models.unload("nobody"), "NOT_FOUND", "nobody")


def test_kept():
    """Parameters and keys that were checkpointed outlive a daemon that is killed; those that were not are as they were before."""
    with tempfile.TemporaryDirectory() as folder:
        more = ["--data", folder, "--checkpoint-rounds", "1000", "--checkpoint-interval", "1h"]
        daemon = Daemon(PARLEYD, *more)
        daemon.__enter__()
        with parley.connect(daemon.address) as server:
            params, store = parley.Params(server), parley.OrderedStore(server)
            optimizer = optim.RemoteOptimizer([np.zeros(5, np.float32)], server, "net", lr=1.0)
            params.checkpoint("net")  # has no round yet: is kept already
            assert params.follow("target", "net") == params.follow("target", "net") == 0
            seen, watching = [], threading.Event()

            def watch():
                with contextlib.suppress(parley.Error):
                    for version, clients in params.watch("net"):
                        seen.append((version, clients))
                        watching.set()

            threading.Thread(target=watch, daemon=True).start()
            assert watching.wait(children.PATIENCE)
            for _ in range(3):
                optimizer.step([np.ones(5, np.float32)])
            until("the versions are seen", lambda: seen[-1][0] == 3)
            assert seen[0] == (0, ()) and seen[-1][1] == (optimizer.client,), seen
            assert params.follow("target", "net", tau=0.5) == 1 and params.pull("target")[0].tolist() == [-1.5] * 5
            refused(lambda: params.follow("target", "net", tau=2), "INVALID_ARGUMENT", "tau")
            params.checkpoint("target")
            params.checkpoint("net")
            params.checkpoint("net")
            threads = [threading.Thread(target=params.checkpoint, args=("net",)) for _ in range(4)]
            optimizer.step([np.ones(5, np.float32)])
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            optimizer.step([np.ones(5, np.float32)])  # is lost
            assert store.push("key", {"a": 1}, 1)
            store.checkpoint("key")
            assert store.push("key", {"a": 2}, 2, 1)  # is lost
            values, version = params.pull("net")
            assert version == 5 and values.tolist() == [-5] * 5 and params.pull("net", if_newer_than=5) == (None, 5)
            refused(lambda: params.checkpoint("none"), "NOT_FOUND", "none")
            refused(lambda: store.checkpoint("none"), "NOT_FOUND", "none")
        daemon.process.kill()
        daemon.process.wait()
        with Daemon(PARLEYD, *more) as again, parley.connect(again.address) as server:
            params, store = parley.Params(server), parley.OrderedStore(server)
            values, version = params.pull("net")
            assert version == 4 and values.tolist() == [-4] * 5 and store.pull("key") == ({"a": 1}, 1)
            assert {p.name: p.version for p in params.list()} == {"net": 4, "target": 1}
            assert params.pull("target")[0].tolist() == [-1.5] * 5
            assert params.follow("target", "net", tau=0.5) == 2 and params.pull("target")[0].tolist() == [-2.75] * 5
            params.delete("net")
            params.delete("target")
            assert not params.list()
            refused(lambda: params.delete("net"), "NOT_FOUND", "net")
    with Daemon(PARLEYD) as daemon, parley.connect(daemon.address) as server:
        optim.RemoteOptimizer([np.zeros(5, np.float32)], server, "net")
        parley.OrderedStore(server).push("key", 1, 1)
        refused(lambda: parley.Params(server).checkpoint("net"), "FAILED_PRECONDITION", "no --data")
        refused(lambda: parley.OrderedStore(server).checkpoint("key"), "FAILED_PRECONDITION", "no --data")


def examples():
    """The examples of the docstrings of all modules of the package."""
    for info in pkgutil.walk_packages(parley.__path__, "parley."):
        if not info.name.startswith("parley.v1") and info.name not in NEEDS_TORCH:
            module = importlib.import_module(info.name)
            yield from (e for e in doctest.DocTestFinder(exclude_empty=True).find(module, info.name) if e.examples)
    yield doctest.DocTestFinder().find(parley, "parley")[0]


def test_examples():
    """What the docstrings show."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        pole, value = os.path.join(folder, "pole.gguf"), os.path.join(folder, "value.gguf")
        policies.create(pole, 4, 2)
        policies.create(value, 4, 2, value=True)
        daemon, _ = stack.enter_context(serving("--model", f"pole={pole}", "--model", f"value={value}"))
        done = set()
        for example in examples():
            print(f"  {example.name}", flush=True)
            example.globs.update({"ADDRESS": daemon.address, "parley": parley})
            assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example).failed == 0, example.name
            done.add(example.name)
        assert {"parley", "parley.parallel", "parley.parallel.group", "parley.replay", "parley.rooms", "parley.rooms.aio", "parley.worlds"} <= done, done


def test_critic_and_stack():
    """A critic sees the actions that were taken; the rows of a stack go to their own of several policies."""
    with serving() as (daemon, server):
        weights = np.random.default_rng(1).standard_normal((3, 4, 2))  # of three policies and their critics
        critics = np.random.default_rng(2).standard_normal((3, 6))
        passes = []

        def act(seen):
            passes.append(seen.shape)
            return seen @ weights  # [3, n, 4] @ [3, 4, 2]

        def worth(seen, actions):
            return np.einsum("knw,kw->kn", np.concatenate([seen, actions], 2), critics)

        together = parley.Policy("together", act, observations=4, action_numbers=2, head="action", critic=worth, stack=3)
        alone = parley.Policy("alone", lambda seen: seen @ weights[1], observations=4, action_numbers=2, head="action",
                              critic=lambda seen, actions: np.concatenate([seen, actions], 1) @ critics[1])
        chooses = parley.Policy("chooses", lambda seen: seen[:, :2], observations=4, actions=2, head="greedy", critic=lambda seen, chosen: seen[:, 2] + chosen)
        for policy in together, alone, chooses:
            serve(policy, daemon.address)
        acts = [parley.Act(server, policy.name, 6) for policy in (together, alone, chooses)]
        for some in acts:
            some.wait()
        seen = np.random.default_rng(3).standard_normal((6, 4)).astype("f4")
        few = parley.Act(server, "together", 4)  # however these fall into steps, one has no multiple of three rows, or no first row
        refused(lambda: few.act(seen[:4]), "INTERNAL", "lock-step")
        acts[0].configure("lockstep", n=6)
        out, one = acts[0].act(seen), acts[1].act(seen)
        assert passes[-1] == (3, 2, 4)
        for row in range(6):
            assert np.allclose(out["action"][row], seen[row] @ weights[row % 3], atol=1e-5)
            assert np.allclose(out["value"][row], np.concatenate([seen[row], out["action"][row]]) @ critics[row % 3], atol=1e-5)
        assert np.allclose(out["action"][1::3], one["action"][1::3], atol=1e-5) and np.allclose(out["value"][1::3], one["value"][1::3], atol=1e-5)
        chosen = acts[2].act(seen)
        assert np.allclose(chosen["value"], seen[:, 2] + chosen["action"])
        alone.update(critic=lambda seen, actions: np.full(len(seen), np.nan))
        refused(lambda: acts[1].act(seen), "INTERNAL", "not finite")
        try:
            parley.Policy("x", act, observations=4, actions=2).update(critic=worth)
        except ValueError as e:
            assert "without one" in str(e)
        else:
            raise AssertionError("a critic where there was none was taken")


def test_forked():
    """A process that was forked must not use what its parent has connected: each call is refused, and closing it changes nothing at the
    parent's. (Here the process only believes that it was forked: behind a real fork gRPC itself aborts at times.)"""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        pole = os.path.join(folder, "pole.gguf")
        policies.create(pole, 4, 2)
        daemon, server = stack.enter_context(serving("--model", f"pole={pole}"))
        chat, store = server.open("echo"), parley.OrderedStore(server)
        replay = parley.Replay(server, "t", {"x": ("f4", ())}, sampler="lifo")
        envs = stack.enter_context(vector.VectorEnv(server, "CartPole-v1", 2, seed=1))
        act, weights = parley.Act(server, "pole", 2), np.zeros(2)
        optimizer = optim.RemoteOptimizer([weights], server, "net", lr=1.0)
        world = stack.enter_context(parallel.World("0", rank=0, world_size=1, address=daemon.address, secret="s"))
        group = stack.enter_context(world.create_rpc_group("g", ["0"]))
        pool = stack.enter_context(parallel.Pool(1, address=daemon.address))
        streams = [server.open("echo").turn("first"), replay.batches(1), parley.Params(server).watch("net"), store.watch("k")]
        calls = [lambda: chat.ask("x"), lambda: store.push("k", 1, 1), lambda: store.pull("k"), lambda: replay.insert({"x": 1}), lambda: replay.sample(1),
                 lambda: envs.reset(), lambda: envs.step([0, 1]), lambda: act.act(np.zeros((2, 4))), lambda: optimizer.step([np.ones(2)]),
                 lambda: optimizer.pull(), lambda: group.rpc_sync("0", max, args=(1, 2)), group.barrier, lambda: pool.apply(max, (1, 2)), lambda: server.open("echo")]
        results = [call() for call in calls] + [next(stream) for stream in streams]
        assert len(results) == len(calls) + len(streams)
        pid, is_forked = os.getpid(), True
        own, os.getpid = os.getpid, lambda: pid + 1 if is_forked else pid
        try:
            for call in calls + [stream.__next__ for stream in streams]:
                refused(call, "FAILED_PRECONDITION", f"was made by the process {pid}, which has forked this one")
            for what in pool.terminate, group.destroy, world.stop, act.close, replay.close, optimizer.close, server.close:
                what()
            with parley.connect(daemon.address) as other:
                assert parley.OrderedStore(other).pull("k") == (1, 1), "a connection of its own works"
        finally:
            os.getpid = own
        for call in calls:
            call()


TESTS = [test_sampling_is_scoring, test_scores, test_samples, test_policies, test_critic_and_stack, test_copied_world, test_acting, test_vector, test_models, test_kept, test_forked, test_examples]


def main():
    wanted = sys.argv[3:]
    for test in TESTS:
        if not wanted or test.__name__ in wanted:
            print(test.__name__, flush=True)
            test()


main()
