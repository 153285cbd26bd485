#!/usr/bin/env python3
"""DDPG, TD3, SAC, MADDPG and RAINBOW on parleyd: the policy is served and asked through Act with its critic beside it (parley.Policy), the
experience is in tables (parley.Replay), the environments are the daemon's or attached (VectorEnv); torch computes the gradients.

Several seeds are one stack of networks (parley.stack): each has its own environments, table and parameters, and one pass computes all.

usage: train.py ddpg|td3|sac|maddpg|rainbow [options]; `./run train sac` starts a daemon of its own"""
import argparse
import collections
import json
import os
import sys
import threading
import time

import numpy as np
import parley
import torch
from algorithms import ALGORITHMS, RAINBOW
from noise import KINDS
from parley.vector import VectorEnv

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from launch import daemon  # noqa: E402

ENVIRONMENTS = {"maddpg": "spread", "rainbow": "CartPole-v1"}  # the others': Pendulum-v1


class Task:
    """The environment: what each agent observes and does. Actions in [-1, 1] are the environment's, divided by scale."""

    def __init__(self, envs, agents):
        seen, done = envs.single_observation_space, envs.single_action_space
        self.is_discrete = hasattr(done, "n")
        self.observations = int(np.prod(seen.shape)) // agents
        self.actions = int(done.n) if self.is_discrete else int(np.prod(done.shape)) // agents
        self.scale = 1.0 if self.is_discrete else float(np.max(done.high))


class Ahead:
    """Makes transitions of several steps of one environment."""

    def __init__(self, steps, gamma):
        self.steps, self.gamma, self.open = steps, gamma, collections.deque()

    def add(self, seen, action, reward, terminated, truncated, next_seen):
        """Yields the transitions that are complete: observation, action, reward, discount, next_observation."""
        self.open.append([seen, action, 0.0, 1.0])
        for t in self.open:
            t[2] += t[3] * reward
            t[3] *= self.gamma
        while self.open and (terminated or truncated or len(self.open) == self.steps):
            seen, action, total, discount = self.open.popleft()
            yield seen, action, total, 0.0 if terminated else discount, next_seen


class Training:
    def __init__(self, server, options):
        kind = ALGORITHMS[options.algorithm]
        self.server, self.options, self.runs, self.n = server, options, len(options.seeds), options.envs
        self.agents = kind.agents
        self.envs = VectorEnv(server, options.env, self.runs * self.n, seed=1000 * options.seeds[0])
        self.task = Task(self.envs, self.agents)
        if self.task.is_discrete != kind.is_discrete:
            self.envs.close()
            raise SystemExit(f"{options.env}: {options.algorithm} is for actions that are {'choices' if kind.is_discrete else 'numbers'}")
        remote = {"server": server} if options.params else {}
        self.algorithm = kind(self.task, options.seeds, options, **remote)
        self.k = self.runs * self.agents
        columns = {"observation": ("f4", (self.agents, self.task.observations)), "reward": ("f4", ()), "discount": ("f4", ()),
                   "action": ("i8", (self.agents,)) if self.task.is_discrete else ("f4", (self.agents, self.task.actions)),
                   "next_observation": ("f4", (self.agents, self.task.observations))}
        self.tables = [parley.Replay(server, f"{options.name}-{seed}", columns, max_items=options.memory, seed=seed,
                                     sampler="prioritized" if self.algorithm.prioritised else "uniform", alpha=0.5) for seed in options.seeds]
        self.ahead = [Ahead(self.algorithm.ahead, self.algorithm.gamma) for _ in range(self.runs * self.n)]
        self.policy = parley.Policy(f"{options.name}-actor", self.algorithm.act, observations=self.task.observations, stack=self.k, rows=1024,
                                    **({"actions": self.task.actions, "head": "greedy"} if self.task.is_discrete else
                                       {"action_numbers": self.task.actions, "head": "action", "critic": self.algorithm.value}))
        threading.Thread(target=parley.serve, args=(self.policy, options.address), daemon=True).start()
        self.random = np.random.default_rng(options.seeds[0])
        self.curves = [[] for _ in options.seeds]  # (steps of this seed, return of an episode)
        self.worth = 0.0

    def rows(self, seen):
        """[runs * n, …] of the environments → [n * k, …], the rows of a lock-step: row r is of network r % k."""
        return seen.reshape(self.runs, self.n, self.agents, -1).transpose(1, 0, 2, 3).reshape(self.n * self.k, -1)

    def of_environments(self, rows):
        return rows.reshape(self.n, self.runs, self.agents, -1).transpose(1, 0, 2, 3).reshape(self.runs * self.n, self.agents, -1)

    def ask(self, act, seen):
        """The actions of all environments: [runs * n, agents, a]; of choices [runs * n, agents]."""
        answer = act.act(self.rows(seen))
        self.worth = float(answer["value"].mean()) if "value" in answer else 0.0
        found = self.of_environments(answer["action"])
        return found[..., 0] if self.task.is_discrete else found

    def any(self):
        shape = (self.runs * self.n, self.agents)
        if self.task.is_discrete:
            return self.random.integers(self.task.actions, size=shape)
        return self.random.uniform(-1, 1, (*shape, self.task.actions)).astype("f4")

    def step(self, action):
        return self.envs.step(action[:, 0] if self.task.is_discrete else (self.task.scale * action.reshape(len(action), -1)).astype("f4"))

    def run(self):
        o, act = self.options, parley.Act(self.server, self.policy.name, self.n * self.k, run=self.options.seeds[0])
        act.wait()
        act.configure("lockstep", n=self.n * self.k)
        seen, _ = self.envs.reset()
        began, fresh = np.zeros(len(seen)), np.zeros(len(seen), bool)  # fresh: this step begins an episode
        steps, updates, start, shown = 0, 0.0, time.monotonic(), 0.0
        stored = [0] * self.runs  # transitions: a table without any has nothing to sample
        while steps < o.steps:
            action = self.any() if steps < o.warm_up else self.ask(act, seen)
            after, reward, terminated, truncated, _ = self.step(action)
            made = [[] for _ in range(self.runs)]
            for i in np.flatnonzero(~fresh):
                made[i // self.n] += self.ahead[i].add(seen[i].reshape(self.agents, -1), action[i], reward[i] * o.reward_scale, terminated[i], truncated[i],
                                                      after[i].reshape(self.agents, -1))
            began += np.where(fresh, 0, reward)
            steps += self.n
            fresh = terminated | truncated
            for i in np.flatnonzero(fresh):
                self.curves[i // self.n].append((steps, float(began[i])))
                began[i] = 0
            self.algorithm.ended(torch.from_numpy(np.ascontiguousarray(fresh.reshape(self.runs, self.n).repeat(self.agents, 0))))
            for which, (table, given) in enumerate(zip(self.tables, made, strict=True)):
                if given:
                    stored[which] += len(given)
                    columns = zip(*given, strict=True)
                    table.insert_all(dict(zip(("observation", "action", "reward", "discount", "next_observation"), map(self.column, columns), strict=True)))
            seen = after
            if steps >= o.warm_up and min(stored) > 0:
                updates += self.n * o.updates
                self.learn(int(updates), steps)
                updates -= int(updates)
            if time.monotonic() - shown > 2:
                shown = time.monotonic()
                print(f"{steps:7,} steps  {self.algorithm.updates:6} updates  return {self.returns()}  worth {self.worth:7.1f}  {steps / (shown - start):6.0f} steps/s",
                      file=sys.stderr, flush=True)
        seconds = time.monotonic() - start
        self.policy.update(self.algorithm.judge)
        return seconds, self.judge(act)

    @staticmethod
    def column(values):
        a = np.stack(values)
        return a.astype("i8" if a.dtype.kind == "i" else "f4")

    def learn(self, n, steps):
        """n updates: one sample of each table, cut into n batches."""
        if n == 0:
            return
        size = self.algorithm.batch
        found = [table.sample(n * size) for table in self.tables]
        data = {}
        for name in found[0].data:
            each = np.stack([batch[name] for batch in found])  # [runs, n * size, …]
            if name in ("reward", "discount"):
                data[name] = each.repeat(self.agents, 0)
            else:
                data[name] = each.swapaxes(1, 2).reshape(self.k, n * size, *each.shape[3:])
        if self.algorithm.prioritised:
            beta = min(1.0, 0.4 + 0.6 * steps / self.options.steps)
            data["weight"] = np.stack([batch.weights(beta) for batch in found]).astype("f4").repeat(self.agents, 0)
        else:
            data["weight"] = np.ones_like(data["reward"])
        data = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in data.items()}
        errors = [self.algorithm.learn({name: a[:, i:i + size] for name, a in data.items()}) for i in range(0, n * size, size)]
        if self.algorithm.prioritised:
            priorities = np.concatenate(errors, 1).reshape(self.runs, self.agents, -1).mean(1)
            for table, batch, priority in zip(self.tables, found, priorities, strict=True):
                table.update_priorities(batch, priority)

    def returns(self):
        return " ".join(f"{np.mean([r for _, r in curve[-self.n:]]) if curve else 0:7.1f}" for curve in self.curves)

    def judge(self, act):
        """Mean return of each seed's policy without exploration, of at least `judged` episodes."""
        seen, _ = self.envs.reset()
        fresh, began = np.zeros(len(seen), bool), np.zeros(len(seen))
        done = [[] for _ in range(self.runs)]
        while min(map(len, done)) < self.options.judged:
            seen, reward, terminated, truncated, _ = self.step(self.ask(act, seen))
            began += np.where(fresh, 0, reward)
            fresh = terminated | truncated
            for i in np.flatnonzero(fresh):
                done[i // self.n].append(float(began[i]))
                began[i] = 0
        return [float(np.mean(d)) for d in done]

    def close(self):
        for table in self.tables:
            table.delete()
        self.envs.close()


def offer(options, address):
    """Environments of this process, by the names that --env takes beside the daemon's."""
    if options.env == "spread":
        from spread import Spread as make
    elif options.env.startswith("gymnasium:"):
        import gymnasium

        what = options.env.removeprefix("gymnasium:")

        def make():
            return gymnasium.make(what)
    else:
        return
    threading.Thread(target=parley.serve, args=(parley.environment(options.env)(make), address), daemon=True).start()


def attempt(server, options):
    end = time.monotonic() + 30
    while True:
        try:
            return Training(server, options)
        except parley.Error as e:
            if e.code != "NOT_FOUND" or time.monotonic() > end:
                raise
            time.sleep(0.05)  # the environment is still being offered


def parsed(words):
    p = argparse.ArgumentParser(usage="train.py ddpg|td3|sac|maddpg|rainbow [options]")
    p.add_argument("algorithm", choices=ALGORITHMS)
    p.add_argument("--env", default="", help="Pendulum-v1; spread for maddpg, CartPole-v1 for rainbow; gymnasium:NAME")
    p.add_argument("--seeds", type=int, nargs="+", default=[1], help="a training each, all in one pass")
    p.add_argument("--steps", type=int, help="of the environment, each seed")
    p.add_argument("--envs", type=int, default=4, help="environments of each seed")
    p.add_argument("--updates", type=float, help="to one step")
    p.add_argument("--warm-up", type=int, default=1000, help="steps of random actions at the start")
    p.add_argument("--memory", type=int, default=100_000, help="items of each table")
    p.add_argument("--reward-scale", type=float)
    p.add_argument("--noise", choices=KINDS, help="of ddpg, td3, maddpg")
    p.add_argument("--without", choices=RAINBOW.PARTS, nargs="+", default=[], help="parts that rainbow leaves out")
    p.add_argument("--prioritised", action="store_true", help="experience by the critic's errors; rainbow has it")
    p.add_argument("--decrease", type=float, default=1.0, help="how much values that are too high are corrected (hysteretic DDPG)")
    p.add_argument("--params", action="store_true", help="the daemon takes the optimisers' steps and moves the targets (Params)")
    p.add_argument("--judged", type=int, default=20, help="episodes without exploration at the end")
    p.add_argument("--json", default="", help="where to write the curves")
    p.add_argument("--address", default="", help="of a daemon that runs; none: one is started")
    p.add_argument("--parleyd", default="build/release/parleyd")
    p.add_argument("--name", default="", help="of the tables, the policy and the parameter sets")
    options = p.parse_args(words)
    options.env = options.env or ENVIRONMENTS.get(options.algorithm, "Pendulum-v1")
    options.name = options.name or options.algorithm
    defaults = {"maddpg": (15_000, 0.5, 0.1), "rainbow": (20_000, 0.5, 1.0)}.get(options.algorithm, (6_000, 1.0, 0.1))
    for i, name in enumerate(("steps", "updates", "reward_scale")):
        setattr(options, name, defaults[i] if getattr(options, name) is None else getattr(options, name))
    for name, least in ("steps", 1), ("envs", 1), ("updates", 0), ("warm_up", 0), ("memory", 1), ("judged", 1):
        if getattr(options, name) < least:
            p.error(f"--{name.replace('_', '-')} is {getattr(options, name)}, it must be at least {least}")
    if len(set(options.seeds)) < len(options.seeds):
        p.error(f"--seeds has {options.seeds}, each must be another one: they name the tables")
    return options


def main(words):
    options = parsed(words)
    torch.set_num_threads(1)
    process = None
    if not options.address:
        process, options.address = daemon(options.parleyd)
    try:
        with parley.connect(options.address) as server:
            offer(options, options.address)
            training = attempt(server, options)
            seconds, scores = training.run()
            training.close()
    finally:
        if process is not None:
            process.terminate()
            process.wait()
    print(f"{options.algorithm} {options.env}: {options.steps:,} steps of each of {len(options.seeds)} seeds, {training.algorithm.updates} updates, {seconds:.0f} s: "
          f"mean return {np.mean(scores):.1f} of {options.judged} episodes without exploration ({', '.join(f'{s:.0f}' for s in scores)})")
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"algorithm": options.algorithm, "env": options.env, "seeds": options.seeds, "steps": options.steps, "updates": training.algorithm.updates,
                       "seconds": seconds, "cpu": time.process_time(), "scores": scores, "curves": training.curves}, out)


if __name__ == "__main__":
    main(sys.argv[1:])
