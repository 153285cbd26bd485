#!/usr/bin/env python3
"""Reinforcement learning on parleyd: policies act (Env.Rollout) and learn (Act.Learn) in the daemon; this says when.

  a2c     a vector of environments; the policy learns after each rollout (Mnih et al., 2016)
  a3c     several such vectors, none of which waits for another
  ppo     as a2c, several times from each rollout, with clipped importance weights (Schulman et al., 2017)
  dqn     double Q-learning of three steps by a duelling head, from a buffer of ours; each environment explores as much as its
          place says (Horgan et al., 2018), and four more say what the policy is worth without exploring
  apex    the same learner and judges, from a table of the daemon (Replay) by priority, which actors fill meanwhile; its limiter keeps
          samples and inserts in proportion, and the learner sets priorities by its errors
  impala  actors roll out while the policy learns from batches of what they did, by V-trace (Espeholt et al., 2018)

usage: train.py a2c|a3c|ppo|dqn|apex|impala [options]; `./run train a2c` starts a daemon of its own"""
import argparse
import collections
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import parley
import parley.policies
from parley.rollouts import Environments, Returns, Transition, join, learn, learn_q, transitions

# What each environment is learned with, and the mean return of 100 episodes at which it is learned. Pendulum's actions are
# numbers beyond which more of the same changes nothing: of these ways only ppo's small steps learn it.
ENVIRONMENTS = {
    "CartPole-v1": dict(until=475, reward_scale=0.1, gamma=0.99, lambda_=0.95, entropy_weight=0.01, learning_rate=0.002),
    "Pendulum-v1": dict(until=-200, reward_scale=0.1, gamma=0.95, lambda_=0.95, entropy_weight=0.003, learning_rate=0.001),
}


class Training:
    """What all the ways share: the policy, the steps so far, and what is shown of them."""

    def __init__(self, server, options):
        self.server, self.options, self.lock = server, options, threading.Lock()
        self.config = dict(ENVIRONMENTS[options.env])
        until = self.config.pop("until")
        self.until = until if options.until is None else options.until
        self.returns, self.curve, self.start, self.shown = [], [], time.monotonic(), 0.0
        self.steps = self.updates = 0
        self.is_over, self.error, self.last = False, None, None

    def environments(self, n, which=0):
        return Environments(self.server, self.options.env, n, seed=self.options.seed + 1000 * which)

    def learn(self, steps, **more):
        self.updates, self.last = self.updates + 1, steps
        learn(self.server, "policy", steps, normalise=True, max_gradient_norm=0.5, **self.config, **more)

    def note(self, returns, steps):
        """A rollout of a vector."""
        before = len(returns.done)
        returns.add(steps)
        with self.lock:
            if self.is_over:
                return  # another thread's rollout ended it: what it reached is the result
            self.steps += len(steps.reward.data) // 4
            self.returns += returns.done[before:]
            mean = self.mean()
            if self.returns:
                self.curve.append((self.steps, mean))
            self.is_over |= len(self.returns) >= 100 and mean >= self.until or self.steps >= self.options.steps
            now = time.monotonic()
            if self.is_over or now - self.shown > 0.5:
                self.shown = now
                rate = self.steps / (now - self.start)
                end = "\r" if sys.stderr.isatty() and not self.is_over else "\n"
                print(f"{self.steps:9,} steps {len(self.returns):6} episodes {self.updates:5} updates  return {mean:7.1f}  {rate:7,.0f} steps/s",
                      end=end, file=sys.stderr, flush=True)

    def save(self, path):
        """The daemon writes beside the policy's own file, after one more step."""
        if self.options.way in ("dqn", "apex"):
            learn_q(self.server, "policy", self.last, save_path=path)
        else:
            self.learn(self.last, off_policy=True, save_path=path)

    def mean(self):
        """The return of the last 100 episodes."""
        return sum(self.returns[-100:]) / max(1, len(self.returns[-100:]))

    def guard(self, work, *args):
        """Runs in a thread; what goes wrong ends all."""
        try:
            work(*args)
        except Exception as e:
            self.error, self.is_over = self.error or e, True


def a2c(training, which=0, n_steps=0, epochs=1, **more):
    with training.environments(training.options.envs, which) as environments:
        returns = Returns(environments.n)
        while not training.is_over:
            steps = environments.rollout("policy", n_steps or training.options.n_steps, seed=training.options.seed)
            training.note(returns, steps)
            for _ in range(epochs):
                training.learn(steps, **more)


def ppo(training):
    a2c(training, n_steps=4 * training.options.n_steps, epochs=10, off_policy=True, clip=0.2, rho_max=2)


def in_threads(training, work, n):
    threads = [threading.Thread(target=training.guard, args=(work, training, which)) for which in range(n)]
    for t in threads:
        t.start()
    return threads


def a3c(training):
    for t in in_threads(training, a2c, training.options.actors):
        t.join()


def impala(training):
    made = queue.Queue(maxsize=training.options.actors)

    def act(training, which):
        with training.environments(training.options.envs, which) as environments:
            returns = Returns(environments.n)
            while not training.is_over:
                steps = environments.rollout("policy", training.options.n_steps, seed=training.options.seed + which)
                training.note(returns, steps)
                while not training.is_over:
                    try:
                        made.put(steps, timeout=0.1)
                        break
                    except queue.Full:
                        pass

    threads = in_threads(training, act, training.options.actors)
    while not training.is_over:
        try:
            steps = [made.get(timeout=0.1)]
        except queue.Empty:
            continue
        while not made.empty():
            steps.append(made.get())
        training.learn(join(steps), off_policy=True)
    for t in threads:
        t.join()


def dqn(training):
    chance, kept, n = random.Random(training.options.seed), collections.deque(maxlen=100_000), training.options.envs
    epsilons = [0.4 ** (1 + 7 * i / max(1, n - 1)) for i in range(n)]
    with training.environments(n) as actors, training.environments(4, 1) as judges:
        returns = Returns(judges.n)
        while not training.is_over:
            steps = actors.rollout("policy", training.options.n_steps, seed=training.options.seed, epsilon=epsilons)
            kept.extend(transitions(steps, 3, reward_scale=0.1))
            training.steps += n * training.options.n_steps
            for _ in range(32):
                training.last = [chance.choice(kept) for _ in range(64)]
                learn_q(training.server, "policy", training.last, move_target=training.updates % 100 == 0, max_gradient_norm=10)
                training.updates += 1
            training.note(returns, judges.rollout("policy", 125))


# What a transition is in a table.
TRANSITION = {"observation": ("f4", (4,)), "action": ("i8", ()), "reward": ("f4", ()), "discount": ("f4", ()), "next_observation": ("f4", (4,))}
SAMPLES_PER_INSERT, MIN_SIZE = 4, 1000


def apex_actor(training, which):
    """Acts with the policy as it is, explores more than the actors before it, and inserts what it saw."""
    n, n_actors = training.options.envs, training.options.actors
    epsilons = [0.4 ** (1 + 7 * (which * n + i) / max(1, n_actors * n - 1)) for i in range(n)]
    replay = parley.Replay(training.server, "apex")
    with training.environments(n, 1 + which) as environments:
        while not training.is_over:
            steps = environments.rollout("policy", training.options.n_steps, seed=training.options.seed + which, epsilon=epsilons)
            made = list(transitions(steps, 3, reward_scale=0.1))
            columns = {name: np.array([np.frombuffer(getattr(t, name), "f4") if shape else getattr(t, name) for t in made], dtype)
                       for name, (dtype, shape) in TRANSITION.items()}
            try:
                replay.insert_all(columns)  # of the greatest priority there is; waits while the learner is behind
            except parley.Error:
                if not training.is_over:  # else the table was deleted
                    raise
            with training.lock:
                training.steps += n * training.options.n_steps


def apex_learner(training, replay):
    returns, beta = Returns(4), 0.4
    with training.environments(4) as judges:
        for batch in replay.batches(64):
            weights, beta = batch.weights(beta), min(1.0, beta + 0.0005)
            training.last = [Transition(o.tobytes(), int(a), float(r), float(d), s.tobytes())
                             for o, a, r, d, s in zip(*(batch[name] for name in TRANSITION), strict=True)]
            errors = learn_q(training.server, "policy", training.last, weights=weights, move_target=training.updates % 100 == 0, max_gradient_norm=10)
            replay.update_priorities(batch, np.abs(errors))
            training.updates += 1
            if training.updates % 32 == 0:
                training.note(returns, judges.rollout("policy", 125))
            if training.is_over:
                return


def apex(training):
    seen = 1 + SAMPLES_PER_INSERT * training.options.envs * training.options.n_steps  # what one insert of an actor allows
    replay = parley.Replay(training.server, "apex", TRANSITION, max_items=100_000, sampler="prioritized", min_size=MIN_SIZE,
                           samples_per_insert=SAMPLES_PER_INSERT, max_diff=SAMPLES_PER_INSERT * MIN_SIZE + 2 * seen, seed=training.options.seed)
    threads = in_threads(training, apex_actor, training.options.actors)
    training.guard(apex_learner, training, replay)
    replay.delete()
    for t in threads:
        t.join()


WAYS = {"a2c": a2c, "a3c": a3c, "ppo": ppo, "impala": impala, "dqn": dqn, "apex": apex}


def draw(path, curves, title):
    """A line for each curve, in an SVG file."""
    width, height, left, bottom = 640, 360, 60, 40
    values, most = [y for curve in curves for _, y in curve], max(curve[-1][0] for curve in curves)
    low, high = min(0, *values), max(0, *values)
    lines = ""
    for i, curve in enumerate(curves):
        at = [(left + (width - left - 20) * x / most, height - bottom - (height - bottom - 40) * (y - low) / ((high - low) or 1))
              for x, y in curve[::max(1, len(curve) // 200)] + curve[-1:]]
        lines += (f'<polyline fill="none" stroke="hsl({211 + 40 * i},70%,45%)" stroke-width="1.5" points="'
                  + " ".join(f"{x:.1f},{y:.1f}" for x, y in at) + '"/>')
    marks = "".join(f'<text x="{left - 6}" y="{height - bottom - (height - bottom - 40) * k / 4 + 4:.0f}" text-anchor="end">'
                    f'{low + (high - low) * k / 4:.0f}</text>' for k in range(5))
    with open(path, "w") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
                  f'<rect width="{width}" height="{height}" fill="white"/><text x="{width / 2}" y="20" text-anchor="middle">{title}</text>'
                  f'{lines}{marks}<text x="{width - 20}" y="{height - 12}" text-anchor="end">{most:,} steps</text>'
                  f'<text x="{left}" y="{height - 12}">mean return of the last 100 episodes</text></svg>\n')


def daemon(parleyd, model):
    """A parleyd of our own, and its address."""
    process = subprocess.Popen([parleyd, "--model", f"policy={model}", "--listen", "127.0.0.1:0", "--log-level", "warn"],
                               stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("ready "):
            threading.Thread(target=lambda: sys.stderr.writelines(process.stderr), daemon=True).start()
            return process, dict(word.split("=", 1) for word in line.split()[1:])["grpc"]
        sys.stderr.write(line)
    raise SystemExit("parleyd did not start")


def train(way, server, options):
    training = Training(server, options)
    WAYS[way](training)
    if training.error is not None:
        raise training.error
    return training


def run(options):
    """One training, with a daemon of its own; says how it went."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/policy.gguf"
        pendulum = options.env == "Pendulum-v1"
        head = "duelling" if options.way in ("dqn", "apex") else "gaussian" if pendulum else "softmax"
        parley.policies.create(path, 3 if pendulum else 4, 1 if pendulum else 2, head=head, seed=options.seed, environment=options.env)
        process, address = daemon(options.parleyd, path)
        try:
            with parley.connect(address) as server:
                training = train(options.way, server, options)
                seconds = time.monotonic() - training.start
                if options.out:
                    training.save(f"{folder}/learned.gguf")
                    shutil.copy(f"{folder}/learned.gguf", options.out)
        finally:
            process.terminate()
            process.wait()
    print(f"{options.way} {options.env} seed {options.seed}: return {training.mean():.1f} after {training.steps:,} steps, {seconds:.1f} s", flush=True)
    return training


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--env", default="CartPole-v1", choices=ENVIRONMENTS)
    parser.add_argument("--parleyd", default="build/release/parleyd")
    parser.add_argument("--envs", type=int, default=16, help="environments of a vector")
    parser.add_argument("--n-steps", type=int, default=32, help="of a rollout")
    parser.add_argument("--actors", type=int, default=4, help="vectors of a3c, impala and apex")
    parser.add_argument("--steps", type=int, default=2_000_000, help="at most so many of all environments")
    parser.add_argument("--until", type=float, help="the mean return of 100 episodes that ends it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many trainings, one after the other, of seeds from --seed on")
    parser.add_argument("--plot", metavar="FILE.svg")
    parser.add_argument("--out", metavar="FILE.gguf", help="the policy that was learned; parleyd serves it")
    options = parser.parse_args()
    if options.way in ("dqn", "apex") and options.env == "Pendulum-v1":
        parser.error(f"{options.way} chooses among actions, Pendulum's are numbers")
    trainings = []
    for seed in range(options.seed, options.seed + options.seeds):
        options.seed = seed
        trainings.append(run(options))
    if options.plot:
        draw(options.plot, [t.curve for t in trainings if t.curve], f"{options.way}, {options.env}")
    return 0 if all(t.mean() >= t.until for t in trainings) else 1


if __name__ == "__main__":
    sys.exit(main())
