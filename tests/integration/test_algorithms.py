#!/usr/bin/env python3
"""The examples of client/examples/algorithms: what they minimise beside the papers' formulas, written out in numpy; that they learn; that a
stack is its networks one by one; that the daemon's optimiser and targets are torch's; that torch's tensors pass by reference.

usage: test_algorithms.py PARLEYD      (by a Python that has torch and grpcio; see algorithms.sh)"""
import argparse
import contextlib
import copy
import doctest
import io
import json
import os
import pickle
import struct
import sys
import tempfile

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client/examples/algorithms"))
import numpy as np  # noqa: E402
import parley  # noqa: E402
import parley.optim  # noqa: E402
import parley.policies  # noqa: E402
import parley.stack  # noqa: E402
import torch  # noqa: E402
from children import Daemon  # noqa: E402
from parley.parallel import Pool, dumps, loads, share  # noqa: E402
from parley.rollouts import Environments, Rollout, learn  # noqa: E402
from parley.v1 import tensor_pb2  # noqa: E402

import losses  # noqa: E402
import networks  # noqa: E402
import noise  # noqa: E402
import spread  # noqa: E402
import train  # noqa: E402
from algorithms import ALGORITHMS, RAINBOW  # noqa: E402

PARLEYD = sys.argv[1]
O, A, N = 3, 2, 5  # numbers of an observation and of an action, rows


class Task:
    def __init__(self, observations=O, actions=A):
        self.observations, self.actions = observations, actions


def options(name="x", **more):
    return argparse.Namespace(**{"name": name, "noise": None, "without": [], "prioritised": False, "decrease": 1.0} | more)


def batch(k, choices=0, agents=1, seed=0):
    draw = np.random.default_rng(seed)
    found = {"observation": draw.standard_normal((k, N, O)), "next_observation": draw.standard_normal((k, N, O)), "reward": draw.standard_normal((k, N)),
             "discount": draw.choice([0, 0.9], (k, N)), "action": draw.uniform(-1, 1, (k, N, A)), "weight": draw.uniform(0.5, 1, (k, N))}
    if choices:
        found["action"] = draw.integers(choices, size=(k, N))
    return {name: torch.from_numpy(a) for name, a in found.items()}


# --- the formulas, one network at a time, one row at a time, in numpy ---


def numbers(stack, i):
    """The weights and biases of network i of a stack."""
    return [(layer.weight[i].detach().numpy().copy(), layer.bias[i, 0].detach().numpy().copy()) for layer in stack.layers if hasattr(layer, "weight")]


def forward(layers, x):
    for at, (w, b) in enumerate(layers):
        x = w @ x + b
        if at < len(layers) - 1:
            x = np.maximum(x, 0)
    return x


def slope(loss, array, at, step=1e-6):
    """The derivative of a loss by one number."""
    was = array[at]
    array[at] = was + step
    high = loss()
    array[at] = was - step
    low = loss()
    array[at] = was
    return (high - low) / (2 * step)


def agrees(found, stack, i, loss, layers, what):
    """A loss and its gradient are the formula's."""
    value = found[i].item()
    assert abs(value - loss()) < 1e-9 * max(1, abs(value)), (what, value, loss())
    parameters = [p for layer in stack.layers if hasattr(layer, "weight") for p in (layer.weight, layer.bias)]
    gradients = torch.autograd.grad(found.sum(), parameters, retain_graph=True)
    draw = np.random.default_rng(1)
    for at, (w, b) in enumerate(layers):
        for array, gradient in (w, gradients[2 * at][i]), (b, gradients[2 * at + 1][i, 0]):
            for _ in range(3):
                place = tuple(draw.integers(s) for s in array.shape)
                numeric = slope(loss, array, place)
                assert abs(gradient[place].item() - numeric) < 1e-5 * max(1, abs(numeric)), (what, at, place, gradient[place].item(), numeric)


def stacks(*sizes, n=2):
    return [networks.mlp(range(10 * i, 10 * i + n), *size).double() for i, size in enumerate(sizes)]


def test_ddpg_and_td3():
    actor, critic, actor_then, critic_then = stacks((O, 8, A), (O + A, 8, 1), (O, 8, A), (O + A, 8, 1))
    twins, twins_then = stacks((O + A, 8, 1), (O + A, 8, 1), n=4)
    b = batch(2)
    drawn = torch.from_numpy(np.random.default_rng(2).uniform(-0.5, 0.5, (2, N, A)))
    target = losses.ddpg_target(actor_then, critic_then, b)
    lesser = losses.td3_target(actor_then, twins_then, b, drawn)
    for i in range(2):
        o, a, r, d, s = (b[name][i].numpy() for name in ("observation", "action", "reward", "discount", "next_observation"))
        for row in range(N):
            then = np.tanh(forward(numbers(actor_then, i), s[row]))
            want = r[row] + d[row] * forward(numbers(critic_then, i), np.concatenate([s[row], then]))[0]
            assert abs(target[i, row].item() - want) < 1e-9
            then = np.clip(then + drawn[i, row].numpy(), -1, 1)
            want = r[row] + d[row] * min(forward(numbers(twins_then, j), np.concatenate([s[row], then]))[0] for j in (i, 2 + i))
            assert abs(lesser[i, row].item() - want) < 1e-9

        def critic_loss(layers, goal, o=o, a=a):
            return np.mean([(forward(layers, np.concatenate([o[row], a[row]]))[0] - goal[row]) ** 2 for row in range(N)])

        layers = numbers(critic, i)
        agrees(losses.td(critic, b["observation"], b["action"], target.detach())[0], critic, i,
               lambda: critic_loss(layers, target[i].detach().numpy()), layers, "td")
        weighed, priorities = losses.td(critic, b["observation"], b["action"], target.detach(), b["weight"], 0.3)
        errors = [forward(layers, np.concatenate([o[row], a[row]]))[0] - target[i, row].item() for row in range(N)]
        errors = np.array([0.3 * e if e > 0 else e for e in errors])
        assert np.allclose(priorities[i], abs(errors)) and abs(weighed[i].item() - np.mean(b["weight"][i].numpy() * errors ** 2)) < 1e-9
        both = [numbers(twins, j) for j in (i, 2 + i)]
        value = losses.td(twins, b["observation"], b["action"], lesser.detach())[0][i].item()
        assert abs(value - sum(critic_loss(one, lesser[i].detach().numpy()) for one in both)) < 1e-9
        acts, judges = numbers(actor, i), [numbers(critic, i), numbers(twins, i)]
        for which, judge in zip((critic, twins), judges, strict=True):
            agrees(losses.deterministic_loss(actor, which, b["observation"]), actor, i,
                   lambda judge=judge: -np.mean([forward(judge, np.concatenate([o[row], np.tanh(forward(acts, o[row]))]))[0] for row in range(N)]), acts, "actor")


def test_sac():
    actor, actor_of_batch = stacks((O, 8, 2 * A), (O, 8, 2 * A))
    twins, twins_then = stacks((O + A, 8, 1), (O + A, 8, 1), n=4)
    b, draws = batch(2), torch.from_numpy(np.random.default_rng(2).standard_normal((2, N, A)))
    temperature = torch.tensor([0.2, 0.7], dtype=torch.float64)

    def squashed(layers, seen, z):
        out = forward(layers, seen)
        mean, log_std = out[:A], np.clip(out[A:], -5, 2)
        u = mean + np.exp(log_std) * z
        return np.tanh(u), np.sum(-0.5 * z * z - log_std - 0.5 * np.log(2 * np.pi)) - np.sum(np.log(1 - np.tanh(u) ** 2))

    def least(of, i, seen, action):
        return min(forward(numbers(of, j), np.concatenate([seen, action]))[0] for j in (i, 2 + i))

    target = losses.sac_target(actor_of_batch, twins_then, b, temperature, draws)
    loss, logp = losses.sac_actor_loss(actor, twins, b["observation"], temperature, draws)
    for i in range(2):
        o, r, d, s = (b[name][i].numpy() for name in ("observation", "reward", "discount", "next_observation"))
        z, t = draws[i].numpy(), temperature[i].item()
        for row in range(N):
            action, lp = squashed(numbers(actor_of_batch, i), s[row], z[row])
            assert abs(target[i, row].item() - (r[row] + d[row] * (least(twins_then, i, s[row], action) - t * lp))) < 1e-9
        acts = numbers(actor, i)

        def by_formula(o=o, z=z, t=t, i=i, acts=acts):
            rows = [squashed(acts, o[row], z[row]) for row in range(N)]
            return np.mean([t * lp - least(twins, i, o[row], action) for row, (action, lp) in enumerate(rows)])

        agrees(loss, actor, i, by_formula, acts, "sac")
        assert abs(logp[i].item() - np.mean([squashed(acts, o[row], z[row])[1] for row in range(N)])) < 1e-9
    extreme = losses.squashed(lambda seen: torch.full((1, 1, 2), 50.0), torch.zeros(1, 1, O), torch.zeros(1, 1, 1))
    assert torch.isfinite(extreme[1]).all()


def test_maddpg():
    """Two runs of two agents: network 2 r + i is agent i's of run r."""
    actor, actor_then = stacks((O, 8, A), (O, 8, A), n=4)
    critic, critic_then = stacks((2 * (O + A), 8, 1), (2 * (O + A), 8, 1), n=4)
    b = batch(4)
    target, loss = losses.maddpg_target(actor_then, critic_then, b, 2), losses.maddpg_actor_loss(actor, critic, b, 2)
    for k in range(4):
        run, i = divmod(k, 2)
        o, s, a = (b[name].numpy() for name in ("observation", "next_observation", "action"))
        agents = [2 * run, 2 * run + 1]
        for row in range(N):
            then = [np.tanh(forward(numbers(actor_then, j), s[j, row])) for j in agents]
            q = forward(numbers(critic_then, k), np.concatenate([s[j, row] for j in agents] + then))[0]
            assert abs(target[k, row].item() - (b["reward"][k, row].item() + b["discount"][k, row].item() * q)) < 1e-9
        acts, judge = numbers(actor, k), numbers(critic, k)

        def by_formula(run=run, i=i, k=k, agents=agents, acts=acts, judge=judge, o=o, a=a):
            total = 0
            for row in range(N):
                done = [a[j, row] for j in agents]
                done[i] = np.tanh(forward(acts, o[k, row]))
                total -= forward(judge, np.concatenate([o[j, row] for j in agents] + done))[0] / N
            return total

        agrees(loss, actor, k, by_formula, acts, "maddpg")


def test_rainbow():
    """The projection and the double target by loops; one atom is double Q-learning; each part changes what it is to change."""
    draw, atoms = np.random.default_rng(4), torch.linspace(-2, 3, 11, dtype=torch.float64)
    p = draw.dirichlet(np.ones(11), (2, N))
    reward, discount = draw.uniform(-2, 2, (2, N)), draw.choice([0, 0.9], (2, N))
    found = losses.projected(torch.from_numpy(p), torch.from_numpy(reward), torch.from_numpy(discount), atoms).numpy()
    for i in range(2):
        for row in range(N):
            want = np.zeros(11)
            for j in range(11):
                at = (np.clip(reward[i, row] + discount[i, row] * atoms[j].item(), -2, 3) + 2) / 0.5
                low = int(np.floor(at))
                want[low] += p[i, row, j] * (1 - (at - low))
                if at > low:
                    want[low + 1] += p[i, row, j] * (at - low)
            assert np.allclose(found[i, row], want, atol=1e-9) and abs(want.sum() - 1) < 1e-9
    for is_double in False, True:
        for n_atoms in 1, 11:
            now, then = (networks.Rainbow(seeds, O, 3, n_atoms, 8, is_noisy=False).double() for seeds in ([1, 2], [3, 4]))
            support, b = (atoms if n_atoms > 1 else torch.zeros(1, dtype=torch.float64)), batch(2, 3)
            errors = losses.rainbow_errors(now, then, b, support, is_double)
            for i in range(2):
                for row in range(N):
                    def out(net, name, i=i, row=row):
                        return net(b[name])[i, row].detach().numpy()

                    mine, next_out, next_mine = out(now, "observation"), out(then, "next_observation"), out(now, "next_observation")
                    chooses = next_mine if is_double else next_out
                    if n_atoms == 1:
                        best = chooses[:, 0].argmax()
                        goal = b["reward"][i, row].item() + b["discount"][i, row].item() * next_out[best, 0]
                        want = 0.5 * (mine[b["action"][i, row].item(), 0] - goal) ** 2
                    else:
                        best = (np.exp(chooses) @ atoms.numpy()).argmax()
                        goal = losses.projected(torch.from_numpy(np.exp(next_out[best]))[None, None], b["reward"][i:i + 1, row:row + 1],
                                                b["discount"][i:i + 1, row:row + 1], atoms)[0, 0].numpy()
                        want = -(goal * mine[b["action"][i, row].item()]).sum()
                    assert abs(errors[i, row].item() - want) < 1e-9, (is_double, n_atoms, errors[i, row].item(), want)
    net = networks.Rainbow([5], O, 3, 1, 8)
    seen = torch.ones(1, 1, O)
    noisy = net(seen)
    net.draw()
    assert not torch.equal(noisy, net(seen)), "drawn anew"
    net.eval()
    assert torch.equal(net(seen), net(seen)) and not torch.equal(noisy, net(seen)), "without noise"
    ahead = train.Ahead(3, 0.5)
    made = [list(ahead.add(t, t, 1.0 + t, t == 4, False, t + 1)) for t in range(5)]
    assert [len(m) for m in made] == [0, 0, 1, 1, 3]
    assert made[2] == [(0, 0, 1 + 0.5 * 2 + 0.25 * 3, 0.125, 3)] and [m[3] for m in made[4]] == [0, 0, 0] and made[4][2][:3] == (4, 4, 5.0)
    assert [m[3] for m in list(ahead.add(9, 9, 1.0, False, True, 10))] == [0.5], "cut off, and worth what comes behind"


def test_noise():
    zero = lambda seen: torch.zeros(len(seen), seen.shape[1], 1)  # noqa: E731
    seen = torch.zeros(2, 2000, O)
    for kind, deviation in (noise.Normal(0.1), 0.1), (noise.Uniform(0.3), 0.3 / 3 ** 0.5):
        drawn = kind.act(zero, seen)
        assert abs(drawn.std().item() - deviation) < 0.01 and abs(drawn.mean().item()) < 0.01 and drawn.abs().max() <= 1
    ou = noise.OrnsteinUhlenbeck(0.1, theta=0.2)
    before = [ou.act(zero, seen).clone() for _ in range(60)][-1]
    after = ou.act(zero, seen)
    assert abs(after.std().item() - 0.1 / (1 - 0.8 ** 2) ** 0.5) < 0.01
    assert abs(np.corrcoef(before.flatten(), after.flatten())[0, 1] - 0.8) < 0.03, "each depends on the one before"
    over = torch.zeros(2, 2000, dtype=torch.bool)
    over[1] = True
    ou.reset(over)
    assert not ou.at[1].any() and torch.equal(ou.at[0], after[0])
    actor, kind = networks.mlp([1, 2], O, 8, A), noise.Parameters(0.2)
    seen = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 50, O)).astype("f4"))
    kind.adapt(actor, seen)  # before it has acted
    for _ in range(500):
        kind.act(actor, seen)
        kind.adapt(actor, seen)
    distances = []
    for _ in range(40):
        distances.append(((kind.act(actor, seen) - actor(seen).clamp(-1, 1)) ** 2).mean((1, 2)).sqrt().detach().numpy())
        kind.adapt(actor, seen)
    assert (abs(np.mean(distances, 0) - 0.2) < 0.08).all(), np.mean(distances, 0)


def test_stack():
    """A stack is its networks, also after they have learned; what it cannot stack it refuses by name. Its docstring's example."""
    assert doctest.testmod(parley.stack).failed == 0
    with_layers = [torch.nn.Sequential(torch.nn.Linear(O, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2, bias=False)) for _ in range(3)]
    stack, x = parley.stack.Stack(with_layers), torch.randn(3, 6, O)
    for i in range(3):
        assert torch.allclose(stack(x)[i], with_layers[i](x[i]), atol=1e-6) and torch.equal(stack.one(i)(x[i]), with_layers[i](x[i]))
    for bad, word in [([], "empty"), ([torch.nn.Conv1d(1, 1, 1)], "Conv1d"), ([torch.nn.Linear(2, 2), torch.nn.Linear(2, 3)], "networks[1][0]"),
                      ([torch.nn.Sequential(torch.nn.ReLU()), torch.nn.Sequential()], "networks[1]"),
                      ([torch.nn.LeakyReLU(0.1), torch.nn.LeakyReLU(0.2)], "one shape")]:
        try:
            parley.stack.Stack(bad)
        except ValueError as e:
            assert word in str(e), e
        else:
            raise AssertionError(f"stacked: {bad}")
    together, alone = ALGORITHMS["ddpg"](Task(), [4, 7], options()), [ALGORITHMS["ddpg"](Task(), [seed], options()) for seed in (4, 7)]
    for step in range(20):
        b = {name: a.float() for name, a in batch(2, seed=step).items()}
        together.learn(b)
        for i, one in enumerate(alone):
            one.learn({name: a[i:i + 1] for name, a in b.items()})
    for i, one in enumerate(alone):
        for mine, theirs in zip(one.actor.module.parameters(), together.actor.module.parameters(), strict=True):
            assert torch.allclose(mine[0], theirs[i], atol=1e-5)


# --- learning ---


def learns(name, updates, **more):
    """A task of one step, whose best action is known: what the policy does before and after."""
    is_discrete, agents = name == "rainbow", 2 if name == "maddpg" else 1
    small = type(name, (ALGORITHMS[name],), {"hidden": 32, "lr": 4e-3})
    algorithm = small(Task(2, 2 if is_discrete else 1), [1, 2], options(**more))
    draw, k = np.random.default_rng(1), 2 * agents

    def error():
        seen = draw.uniform(-1, 1, (k, 200, 2)).astype("f4")
        did = np.asarray(algorithm.judge(seen))
        if is_discrete:
            return (did.argmax(-1) != (seen[..., 0] > 0)).mean((1,))
        return abs(did[..., 0] - 0.8 * seen[..., 0]).mean(1)

    before = error()
    for _ in range(updates):
        seen = draw.uniform(-1, 1, (k, 64, 2)).astype("f4")
        action = draw.integers(2, size=(k, 64)) if is_discrete else draw.uniform(-1, 1, (k, 64, 1)).astype("f4")
        if is_discrete:
            reward = (action == (seen[..., 0] > 0)).astype("f4")
        else:
            each = -((action[..., 0] - 0.8 * seen[..., 0]) ** 2)
            reward = each if agents == 1 else each.reshape(2, 2, 64).sum(1).repeat(2, 0)  # what all get is the sum of what each does
        b = {"observation": seen, "action": action, "reward": reward, "discount": np.zeros((k, 64), "f4"), "next_observation": seen, "weight": np.ones((k, 64), "f4")}
        algorithm.learn({n: torch.from_numpy(a) for n, a in b.items()})
    after = error()
    most = 0.1 if is_discrete else 0.12
    assert (after < most).all() and (before > 1.5 * most).all(), (name, more, before, after)


def test_learning():
    for name in "ddpg", "td3", "sac", "maddpg":
        learns(name, 150)
    learns("rainbow", 60)
    learns("rainbow", 60, without=list(RAINBOW.PARTS))


def test_daemon():
    """With the daemon's optimiser and targets the parameters are those of torch's; the programs run, and say what they reached."""
    with Daemon(PARLEYD) as daemon, parley.connect(daemon.address) as server:
        for name, agents in ("ddpg", 1), ("td3", 1), ("sac", 1), ("maddpg", 2), ("rainbow", 1):
            choices = 3 if name == "rainbow" else 0
            here, there = (ALGORITHMS[name](Task(O, choices or A), [1], options(f"of-{name}"), **more) for more in ({}, {"server": server}))
            for one in here, there:
                one.move_every = 5  # of rainbow
            for step in range(12):
                b = {n: a if a.dtype == torch.int64 else a.float() for n, a in batch(agents, choices, seed=step).items()}
                here.learn(copy.deepcopy(b))
                there.learn(b)
            for part in "actor", "critic", "network", "temperature":
                if not hasattr(here, part):
                    continue
                for which in "module", "target":
                    for p, q in zip(getattr(getattr(here, part), which).parameters(), getattr(getattr(there, part), which).parameters(), strict=True):
                        assert torch.allclose(p, q, atol=1e-5), (name, part, which, (p - q).abs().max())
        with tempfile.TemporaryDirectory() as folder:
            for name in ALGORITHMS:
                path, said = os.path.join(folder, name), io.StringIO()
                more = ["--prioritised", "--decrease", "0.5", "--noise", "parameters"] if name in ("ddpg", "maddpg") else []
                with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
                    train.main([name, "--address", daemon.address, "--steps", "60", "--warm-up", "40", "--envs", "2", "--seeds", "1", "2", "--judged", "2", "--json", path, *more])
                with open(path) as f:
                    found = json.load(f)
                assert len(found["scores"]) == 2 and np.isfinite(found["scores"]).all() and found["updates"] > 4 and name in said.getvalue(), (found, said.getvalue())
        assert not [t for t in parley.Replay(server, "left", {"a": ("f4", ())})._link.call(
            "Replay/ListTables", train.parley.replay.pb.ReplayListTablesRequest(), train.parley.replay.pb.ReplayListTablesResponse).tables if t.config.table != "left"]
        for words, says in (["sac", "--env", "CartPole-v1"], "choices"), (["rainbow", "--env", "Pendulum-v1"], "numbers"):
            try:
                train.main([*words, "--address", daemon.address, "--steps", "60"])
            except SystemExit as e:
                assert "is for actions" in str(e), (says, e)
            else:
                raise AssertionError(words)


def parameters(path):
    """What create and the daemon write: the tensors of a policy's file by their names."""
    data = open(path, "rb").read()
    at = 8

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()

    n_tensors, n_keys = take("QQ")
    for _ in range(n_keys):
        text()
        kind = take("I")
        text() if kind == 8 else take({10: "Q", 6: "f", 7: "?", 4: "I"}[kind])
    places = []
    for _ in range(n_tensors):
        name = text()
        dims = [take("Q") for _ in range(take("I"))]
        take("I")
        places.append((name, dims[::-1], take("Q")))
    at += -at % 32
    return {name: np.frombuffer(data, "<f4", int(np.prod(dims)), at + offset).reshape(dims) for name, dims, offset in places}


def recurrent(weights, gaussian):
    """torch's cell and heads with a policy's parameters."""
    cell = torch.nn.LSTMCell(4, 6)
    named = [(cell.weight_ih, "lstm.input.weight"), (cell.weight_hh, "lstm.state.weight"), (cell.bias_ih, "lstm.input.bias"), (cell.bias_hh, "lstm.state.bias")]
    heads = {name: torch.nn.Linear(6, n) for name, n in (("actions", 4 if gaussian else 2), ("value", 1))}
    for name, head in heads.items():
        named += [(head.weight, name + ".weight"), (head.bias, name + ".bias")]
    with torch.no_grad():
        for p, name in named:
            p.copy_(torch.from_numpy(weights[name].reshape(tuple(p.shape)).copy()))
    return cell, heads, named


def test_recurrent():
    """A policy with an LSTM learns from rollouts as torch does: through the window, from the states that it began with, not past the ends
    of episodes; V-trace's targets are constants; one step of Adam."""
    def tensor(t):
        return torch.from_numpy(np.frombuffer(t.data, "<i8" if t.dtype == tensor_pb2.DTYPE_I64 else "<f4").reshape(tuple(t.shape)).copy())

    with tempfile.TemporaryDirectory() as folder:
        for head, name in ("softmax", "CartPole-v1"), ("gaussian", "numbers"):
            path, after = os.path.join(folder, head + ".gguf"), os.path.join(folder, head + "-after.gguf")
            parley.policies.create(path, 4, 2, head=head, kind="lstm", hidden=6, seed=3)
            with Daemon(PARLEYD, "--model", f"policy={path}") as daemon, parley.connect(daemon.address) as server:
                if head == "softmax":
                    with Environments(server, name, 3, seed=1) as environments:
                        environments.rollout("policy", 25)
                        steps = environments.rollout("policy", 40)
                    ends, resets = (np.frombuffer(t.data, "?").reshape(3, 40) for t in (steps.terminated, steps.reset))
                    assert ends[:, :-1].any() and resets.any() and np.frombuffer(steps.state.data, "<f4").any(), "the window has what is to be tested"
                else:  # steps that were made up: an end without a reset, a reset without an end
                    draw = np.random.default_rng(5)

                    def made(a, dtype=tensor_pb2.DTYPE_F32):
                        return tensor_pb2.Tensor(dtype=dtype, shape=a.shape, data=a.tobytes())
                    ends, resets = np.zeros((3, 40), bool), np.zeros((3, 40), bool)
                    ends[0, 10] = ends[1, 39] = resets[1, 20] = ends[2, 5] = resets[2, 6] = True
                    steps = Rollout(
                        observation=made(draw.standard_normal((3, 41, 4)).astype("<f4")), action=made(draw.standard_normal((3, 40, 2)).astype("<f4")),
                        logp=made(draw.uniform(-4, -1, (3, 40)).astype("<f4")), reward=made(draw.standard_normal((3, 40)).astype("<f4")),
                        terminated=made(ends, tensor_pb2.DTYPE_BOOL), reset=made(resets, tensor_pb2.DTYPE_BOOL),
                        state=made(draw.uniform(-0.5, 0.5, (3, 12)).astype("<f4")))
                report = learn(server, "policy", steps, off_policy=True, gamma=0.9, lambda_=0.8, entropy_weight=0.02, value_weight=0.7, learning_rate=0.01,
                               rho_max=1.2, save_path=after)
            cell, heads, named = recurrent(parameters(path), head == "gaussian")
            seen, action, reward, logp = (tensor(t) for t in (steps.observation, steps.action, steps.reward, steps.logp))
            ends, resets = torch.from_numpy(ends.copy()), torch.from_numpy(resets.copy())
            h, c = tensor(steps.state).split(6, dim=1)
            outputs, values = [], []
            for t in range(41):
                if t > 0:
                    keep = (~(ends[:, t - 1] | resets[:, t - 1])).float()[:, None]
                    h, c = h * keep, c * keep
                h, c = cell(seen[:, t], (h, c))
                outputs.append(heads["actions"](h))
                values.append(heads["value"](h)[:, 0])
            outputs, values = torch.stack(outputs, 1)[:, :-1], torch.stack(values, 1)
            if head == "softmax":
                of = torch.distributions.Categorical(logits=outputs)
                mine, entropy = of.log_prob(action), of.entropy()
            else:
                of = torch.distributions.Normal(outputs[..., :2], outputs[..., 2:].clamp(-5, 2).exp())
                mine, entropy = of.log_prob(action).sum(-1), of.entropy().sum(-1)
            with torch.no_grad():
                weight = (mine - logp).exp()
                rho, trace, discount = weight.clamp(max=1.2), weight.clamp(max=1), 0.9 * (~ends).float()
                targets, advantages, beyond = torch.zeros(3, 40), torch.zeros(3, 40), torch.zeros(3)
                for t in reversed(range(40)):
                    advantages[:, t] = rho[:, t] * (reward[:, t] + discount[:, t] * (values[:, t + 1] + 0.8 * beyond) - values[:, t])
                    beyond = rho[:, t] * (reward[:, t] + discount[:, t] * values[:, t + 1] - values[:, t]) + discount[:, t] * 0.8 * trace[:, t] * beyond
                    beyond = torch.where(resets[:, t], torch.zeros(3), beyond)
                    targets[:, t] = values[:, t] + beyond
            counts = ~resets
            losses_of = -advantages * mine + 0.7 * (values[:, :-1] - targets) ** 2 / 2 - 0.02 * entropy
            loss = losses_of[counts].mean()
            adam = torch.optim.Adam([p for p, _ in named], lr=0.01)
            loss.backward()
            norm = sum((p.grad ** 2).sum() for p, _ in named).sqrt()
            adam.step()
            assert abs(report.loss - loss.item()) < 1e-4 * max(1, abs(loss.item())) and abs(report.gradient_norm - norm.item()) < 1e-4 * norm.item(), (report, loss, norm)
            got = parameters(after)
            worst = max(np.abs(got[name].ravel() - p.detach().numpy().ravel()).max() for p, name in named)
            assert worst < 2e-5, worst
            print(f"  {head}: {worst:.1e} from torch's parameters, gradient norm {norm:.3f}")


def test_spread():
    """Actors that go to the nearest free landmark do better than those that stand; the environment is one of gymnasium's."""
    world, found = spread.Spread(), {}
    for goes in False, True:
        total = 0.0
        for seed in range(10):
            seen, _ = world.reset(seed=seed)
            assert world.observation_space.contains(seen)
            for step in range(spread.STEPS):
                to = seen.reshape(2, 10)[:, 4:8].reshape(2, 2, 2)  # the landmarks as each agent sees them
                swap = np.linalg.norm(to[0, 0]) + np.linalg.norm(to[1, 1]) > np.linalg.norm(to[0, 1]) + np.linalg.norm(to[1, 0])
                seen, reward, ended, cut, _ = world.step(np.clip(4 * np.stack([to[0, int(swap)], to[1, int(not swap)]]), -1, 1).ravel() if goes else np.zeros(4))
                total += reward / 10
                assert not ended and cut == (step == spread.STEPS - 1)
        found[goes] = total
    assert found[True] > 0.5 * found[False] and found[True] > -20, found


def refused(does):
    try:
        does()
    except (TypeError, ValueError) as e:
        return str(e)
    raise AssertionError("it was not refused")


def test_types():
    """The parameters of a policy's module are floats of any type; a remote optimiser is not copied without what it needs, and takes no
    parameters that share memory."""
    for kind in torch.bfloat16, torch.float64:
        module = torch.nn.Linear(3, 2)
        expected = module(torch.ones(4, 3)).detach().numpy()
        policy = parley.Policy("any", module.to(kind), observations=3, action_numbers=2, head="action")
        assert np.allclose(policy.compute(np.ones((4, 3), "f4"), [])[0]["action"], expected, atol=0.02), kind
    with Daemon(PARLEYD) as daemon, parley.connect(daemon.address) as server:
        remote = parley.optim.RemoteOptimizer(torch.nn.Linear(3, 2).parameters(), server, "net")
        for copied in copy.deepcopy, copy.copy, pickle.dumps:
            assert "neither pickled nor copied" in refused(lambda copied=copied: copied(remote))
        flat = torch.zeros(6, dtype=torch.bfloat16)
        for parts, why in [((flat[:1].expand(3),), "[0] has elements in the same memory"), ((flat.unfold(0, 2, 1),), "[0] has elements in the same memory"),
                           ((flat, flat[4:]), "[1] shares memory with parameters[0]"), ((flat.to_sparse(),), "[0] has the layout torch.sparse_coo")]:
            said = refused(lambda parts=parts: parley.optim.RemoteOptimizer(map(torch.nn.Parameter, parts), server, "flat"))
            assert said.startswith(f"parameters{why}"), said
        parts = [torch.nn.Parameter(part) for part in (flat[:4:2], flat[1:4:2], flat[4:].view(1, 2, 1).expand(1, 2, 1), flat[:0])]
        remote = parley.optim.RemoteOptimizer(parts, server, "flat", lr=1)
        sum((i + 1) * part.sum() for i, part in enumerate(parts)).backward()
        remote.step()
        assert flat.tolist() == [-1, -2, -1, -2, -3, -3]


def test_shared_tensors():
    """By reference torch's tensors are the same memory, or are refused by name."""
    for shape in (1000, 10), (), (0,):
        there = share(torch.ones(shape))
        assert share(there) is there and torch.equal(there, torch.ones(shape))
    there = share(torch.zeros(1000, 10))
    half, weights = share(torch.arange(5000, dtype=torch.bfloat16)), share(torch.ones(999, requires_grad=True))
    for tensor in there, there[2:5], there.T, there[:, ::2], half, weights, torch.nn.Parameter(there[0]):
        data = dumps([tensor], copy_tensor=False)
        (back,) = loads(data)
        assert len(data) < 1500 and back.data_ptr() == tensor.data_ptr() and torch.equal(back, tensor), tensor
        assert (back.dtype, back.requires_grad, type(back)) == (tensor.dtype, tensor.requires_grad, type(tensor))
    module = torch.nn.Linear(100, 100)
    for tensor in torch.zeros(1000), module, torch.ones(1000).to_sparse():
        assert "share()" in refused(lambda tensor=tensor: dumps({"a": [tensor]}, copy_tensor=False)), tensor
    assert "sparse" in refused(lambda: share(torch.zeros(5).to_sparse()))
    for p in module.parameters():
        p.data = share(p.data)
    assert loads(dumps(module, copy_tensor=False)).weight.data_ptr() == module.weight.data_ptr()
    moved, small = torch.zeros(100, 20).share_memory_(), torch.zeros(3).share_memory_()
    assert share(moved) is moved and share(small) is small
    for tensor in moved, moved.T, moved[5:7], small:
        (back,) = loads(dumps([tensor], copy_tensor=False))
        back += 1
        assert torch.equal(back, tensor) and back.stride() == tensor.stride(), tensor
    for strategy, other in ("file_system", "file_descriptor"), ("file_descriptor", "file_system"):  # which another process may have
        torch.multiprocessing.set_sharing_strategy(strategy)
        placed = torch.zeros(5000).share_memory_()
        torch.multiprocessing.set_sharing_strategy(other)
        at, has_descriptor = placed.data_ptr(), strategy == "file_descriptor"
        assert (share(placed) is placed) == has_descriptor and placed.data_ptr() == at, strategy
        if not has_descriptor:
            assert "share()" in refused(lambda placed=placed: dumps([placed] * 2, copy_tensor=False)) and placed.data_ptr() == at
    torch.multiprocessing.set_sharing_strategy("file_descriptor")
    with tempfile.NamedTemporaryFile() as file:  # torch has no descriptor of it
        file.write(bytes(4000))
        file.flush()
        mapped = torch.from_file(file.name, True, 1000)
        assert share(mapped) is not mapped and "share()" in refused(lambda: dumps(mapped, copy_tensor=False))
    with Daemon(PARLEYD) as daemon, Pool(1, is_copy_tensor=False, share_method="cpu", address=daemon.address) as pool:
        pool.apply(lambda tensor: tensor.fill_(3), (there,))
        again = pool.apply(lambda tensor: tensor.fill_(7), (moved,))
        again[0, 0] = 8
        assert moved[0, 0] == 8 and (moved.flatten()[1:] == 7).all()
        mine = torch.zeros(5000)
        assert (there == 3).all() and (pool.apply(lambda tensor: tensor.add_(2), (mine,)) == 2).all() and (mine == 0).all()
        assert pool.map(lambda i: len(mine) + i, range(3)) == [5000, 5001, 5002]
        pool.close()
        pool.join()


TESTS = [test_ddpg_and_td3, test_sac, test_maddpg, test_rainbow, test_noise, test_stack, test_learning, test_spread, test_recurrent, test_daemon,
         test_types, test_shared_tensors]


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[2:]
    for test in TESTS:
        if not wanted or test.__name__ in wanted:
            print(test.__name__, flush=True)
            test()


main()
