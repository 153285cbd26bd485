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

The environment is one of the daemon's (--env CartPole-v1, Pendulum-v1), one of gymnasium's (--env gymnasium:Acrobot-v1), or a class or
function in a file of yours (--env corridor.py:Corridor), which has gymnasium's spaces, reset and step; these two run in this process. Or it is
one that a running daemon has, which an attached worker offers or a plug-in (--env attached:Corridor-v0 --address HOST:PORT).

With --kind lstm the policy remembers what it saw: the gradient goes back through all steps of a rollout, and the next rollout begins with the
state in which the last one ended.

With --run FOLDER a2c and ppo store what they have at the end of each chapter, so many updates, at whose beginning the environments start
anew. If the daemon or a worker is lost, the training goes on from there by itself; if this program is killed, the same command does. Either
way it comes to the same bytes as if it had not been interrupted; the last line that is printed is their SHA-256.

usage: parley train a2c|a3c|ppo|dqn|apex|impala [options], or `./run train a2c` in a checkout; it starts a daemon of its own"""
import argparse
import collections
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import math
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

try:
    import numpy as np
    import parley
    import parley.policies
except ImportError as e:
    raise SystemExit(f"{sys.executable} has no module {e.name}: install numpy and Parley's Python package there, or set PARLEY_PYTHON to a Python that has them") from e
from event_file import EventFile
from launch import daemon
from parley.rollouts import Environments, Returns, Transition, join, learn, learn_q, transitions

# What each environment is learned with, and the mean return of 100 episodes at which it is learned. Pendulum's actions are
# numbers beyond which more of the same changes nothing: of these ways only ppo's small steps learn it.
ENVIRONMENTS = {
    "CartPole-v1": dict(until=475, reward_scale=0.1, gamma=0.99, lambda_=0.95, entropy_weight=0.01, learning_rate=0.002),
    "Pendulum-v1": dict(until=-200, reward_scale=0.1, gamma=0.95, lambda_=0.95, entropy_weight=0.003, learning_rate=0.001),
}
OTHERS = dict(reward_scale=0.1, gamma=0.99, lambda_=0.95, entropy_weight=0.01, learning_rate=0.002)


# A daemon or a worker may be lost so often, one after the other, without a chapter in between. The variable has the chapter, and how often.
LOSSES, LOST = 20, "PARLEY_TRAINING_LOST"
WORKER_PATIENCE = 60  # seconds for a worker that was lost to be there again
UNAVAILABLE = 14  # gRPC's status


class Lost(Exception):
    """A worker was lost, and with it the steps that its environments would have made."""


class Task:
    """The environment of a training: its name in the daemon, its sizes, and how it is learned."""

    def __init__(self, options):
        self.factory, self.name, self.observations, self.actions, self.is_continuous = None, options.env, 4, 2, False
        self.why_lost = lambda: None  # an error, once an environment's own daemon or worker was not reached
        self.config = dict(ENVIRONMENTS.get(options.env, {"until": math.inf, **OTHERS}))
        if options.env == "Pendulum-v1":
            self.observations, self.actions, self.is_continuous = 3, 1, True
        elif options.env not in ENVIRONMENTS:
            try:
                self._load(options.env, options.address)
            except Exception as e:  # of the file's code, too
                raise SystemExit(f"--env {options.env}: {type(e).__name__}: {e}") from e
        for key, value in ("until", options.until), ("gamma", options.gamma), ("learning_rate", options.learning_rate), ("reward_scale", options.reward_scale):
            if value is not None:
                self.config[key] = value
        self.until = self.config.pop("until")

    def _load(self, env, address):
        kind, _, what = env.partition(":")
        if kind == "gymnasium":
            import gymnasium

            self.factory, self.name = lambda: gymnasium.make(what), what
            self.config["until"] = gymnasium.spec(what).reward_threshold or math.inf
        elif kind == "attached":
            from attached import Attached

            if not address:
                raise SystemExit(f"--env {env}: say which daemon has it: --address HOST:PORT")
            patience = WORKER_PATIENCE if LOST in os.environ else 0
            self.factory, self.name = lambda: Attached(address, what, patience), what
            self.why_lost = lambda: Attached.lost
        elif kind.endswith(".py"):
            spec = importlib.util.spec_from_file_location("environment_of_a_file", kind)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            if not what:
                raise SystemExit(f"--env {env}: say which class or function of the file it is: {kind}:NAME")
            self.factory, self.name = getattr(module, what), what
        else:
            raise SystemExit(f"--env {env}: is none of {', '.join(ENVIRONMENTS)}, no gymnasium:NAME, attached:NAME or FILE.py:NAME")
        one = self.factory()
        seen, done = one.observation_space, one.action_space
        if seen.shape is None or not (hasattr(done, "n") or done.shape):
            raise SystemExit(f"--env {env}: observations are to be numbers (Box, MultiDiscrete …), and actions a choice (Discrete) or numbers (Box)")
        self.observations, self.is_continuous = math.prod(seen.shape), not hasattr(done, "n")
        self.actions = math.prod(done.shape) if self.is_continuous else int(done.n)
        one.close()

    def serve(self, address):
        """Offers the environment to the daemon, from this process."""
        if self.factory is not None:
            offered = parley.environment(self.name)(self.factory)
            threading.Thread(target=parley.serve, args=(offered, address), daemon=True).start()


class Training:
    """What all the ways share: the policy, the steps so far, and what is shown of them."""

    def __init__(self, server, options):
        self.server, self.options, self.lock = server, options, threading.Lock()
        self.task = options.task
        self.config, self.until = self.task.config, self.task.until
        self.chapter = 0
        self.events = EventFile(os.path.join(options.tensorboard, f"{options.way}-{self.task.name}-{options.seed}")) if options.tensorboard else None
        self.returns, self.curve, self.start, self.shown = [], [], time.monotonic(), 0.0
        self.steps = self.updates = 0
        self.is_over, self.error, self.last = False, None, None

    def environments(self, n, which=0):
        """Waits until a process offers the environment."""
        end = time.monotonic() + 30
        while True:
            try:
                return Environments(self.server, self.task.name, n, seed=self.options.seed + 1000 * which + 1_000_000 * self.chapter)
            except parley.Error as e:
                if self.task.factory is None or e.code != "NOT_FOUND" or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    @property
    def seed(self):
        """Of actions, in this chapter."""
        return self.options.seed + 1_000_000 * self.chapter

    # --- a run that goes on after it was killed ---

    def store(self):
        """Stores what there is beside the policy, which is in the chapter's file. Both are there, or neither: the state names its policy."""
        state = {"command": self.options.command, "chapter": self.chapter, "steps": self.steps, "updates": self.updates, "returns": self.returns,
                 "curve": self.curve}
        write_whole(os.path.join(self.options.run, "state.json"), json.dumps(state))
        for old in os.listdir(self.options.run):
            if old.startswith("chapter-") and old != chapter_file(self.chapter):
                os.unlink(os.path.join(self.options.run, old))

    def restore(self, state):
        if state is not None:
            self.chapter, self.steps, self.updates = state["chapter"], state["steps"], state["updates"]
            self.returns, self.curve = state["returns"], [tuple(point) for point in state["curve"]]
            self.is_over = self.steps >= self.options.steps or len(self.returns) >= 100 and self.mean() >= self.until

    def check(self, steps):
        """A rollout of a run is whole: other steps would come to other bytes."""
        why = self.task.why_lost() or next((f.error.message for f in steps.failures if f.error.code == UNAVAILABLE), None)
        if why is not None:
            raise Lost(str(why))

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
                if self.events is not None and self.returns:
                    self.events.add(self.steps, mean_return=mean, updates=self.updates, steps_per_second=rate)
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


def chapter_file(chapter):
    return f"chapter-{chapter}.gguf"


def write_whole(path, text):
    with open(path + ".part", "w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".part", path)


def a2c(training, which=0, n_steps=0, epochs=1, **more):
    while not training.is_over:
        with training.environments(training.options.envs, which) as environments:
            returns, rollouts = Returns(environments.n), 0
            while not training.is_over and rollouts < training.options.chapter:
                steps = environments.rollout("policy", n_steps or training.options.n_steps, seed=training.seed)
                if training.options.run:
                    training.check(steps)
                training.note(returns, steps)
                rollouts += 1
                is_last = training.options.run and (training.is_over or rollouts == training.options.chapter)
                for epoch in range(epochs):
                    path = os.path.join(training.options.run, chapter_file(training.chapter + 1)) if is_last and epoch == epochs - 1 else ""
                    training.learn(steps, save_path=path, **more)
        if training.options.run:
            training.chapter += 1
            training.store()


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
def transition(n):
    return {"observation": ("f4", (n,)), "action": ("i8", ()), "reward": ("f4", ()), "discount": ("f4", ()), "next_observation": ("f4", (n,))}


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
                       for name, (dtype, shape) in transition(training.task.observations).items()}
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
                             for o, a, r, d, s in zip(*(batch[name] for name in transition(0)), strict=True)]
            errors = learn_q(training.server, "policy", training.last, weights=weights, move_target=training.updates % 100 == 0, max_gradient_norm=10)
            replay.update_priorities(batch, np.abs(errors))
            training.updates += 1
            if training.updates % 32 == 0:
                training.note(returns, judges.rollout("policy", 125))
            if training.is_over:
                return


def apex(training):
    seen = 1 + SAMPLES_PER_INSERT * training.options.envs * training.options.n_steps  # what one insert of an actor allows
    replay = parley.Replay(training.server, "apex", transition(training.task.observations), max_items=100_000, sampler="prioritized", min_size=MIN_SIZE,
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


def train(way, server, options, state=None):
    training = Training(server, options)
    training.restore(state)
    try:
        if not training.is_over:
            WAYS[way](training)
    finally:
        if training.events is not None:
            training.events.close()
    if training.error is not None:
        raise training.error
    return training


def stored(options):
    """What a run of this command has stored; None: it begins."""
    try:
        with open(os.path.join(options.run, "state.json")) as f:
            state = json.load(f)
        command = state["command"]
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as e:
        raise SystemExit(f"--run {options.run}: its state.json is none of a run ({type(e).__name__}: {e}): choose another folder") from e
    if command != options.command:
        raise SystemExit(f"--run {options.run}: it has a run of other options, {state['command']}: choose another folder")
    return state


def take(folder):
    """Locks a run's folder for this process and its daemon, which may live a little longer. Returns the descriptor."""
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"another process uses {folder}: this one waits for its end", file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def is_loss(error, task, process):
    """Whether the daemon or a worker is gone: the error is none of the training."""
    if isinstance(error, Lost) or error.code == "UNAVAILABLE" or task.why_lost() is not None:
        return True
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)  # its connections end before it does
        return True
    return False


def again(options, why):
    """Replaces this process by the same program: all that it has of what was lost goes with it."""
    state = stored(options)
    chapter = 0 if state is None else state["chapter"]
    last, n = map(int, os.environ.get(LOST, "-1 0").split())
    n = n + 1 if last == chapter else 1
    if n > LOSSES:
        raise SystemExit(f"{why}: this is the {n}th loss in chapter {chapter}; the same command goes on from there")
    print(f"{why}: goes on from chapter {chapter}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os.environ[LOST] = f"{chapter} {n}"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def run(options):
    """One training, with a daemon of its own; says how it went."""
    with contextlib.ExitStack() as stack:
        state, locks, why = None, [], None
        if options.run:
            folder = options.run
            os.makedirs(folder, exist_ok=True)
            locks.append(take(folder))
            stack.callback(os.close, locks[0])
            state = stored(options)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
        path, task = os.path.join(folder, "policy.gguf" if state is None else chapter_file(state["chapter"])), options.task
        if state is None:
            head = "duelling" if options.way in ("dqn", "apex") else "gaussian" if task.is_continuous else "softmax"
            parley.policies.create(path, task.observations, task.actions, head=head, kind=options.kind, seed=options.seed, environment=task.name)
        process, address = daemon(options.parleyd, "--model", f"policy={path}", pass_fds=locks)
        try:
            with parley.connect(address) as server:
                task.serve(address)
                training = train(options.way, server, options, state)
                seconds = time.monotonic() - training.start
                if options.out and options.run:
                    shutil.copy(os.path.join(folder, chapter_file(training.chapter)), options.out)
                elif options.out:
                    training.save(f"{folder}/learned.gguf")
                    shutil.copy(f"{folder}/learned.gguf", options.out)
        except (parley.Error, Lost) as e:
            if not is_loss(e, task, process):
                raise
            why = e
        finally:
            process.terminate()
            process.wait()
        if why is not None and options.run:
            again(options, why)
        if why is not None:
            raise SystemExit(f"{why}: begin again; a2c and ppo go on with --run FOLDER")
        print(f"{options.way} {task.name} seed {options.seed}: return {training.mean():.1f} after {training.steps:,} steps, {seconds:.1f} s", flush=True)
        if options.run:
            path = os.path.join(folder, chapter_file(training.chapter))
            with open(path, "rb") as f:
                print(f"{hashlib.sha256(f.read()).hexdigest()}  {path}", flush=True)
    return training


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--env", default="CartPole-v1", help=f"{', '.join(ENVIRONMENTS)}, gymnasium:NAME, FILE.py:NAME, or attached:NAME")
    parser.add_argument("--address", help="the daemon that has an environment attached:NAME")
    parser.add_argument("--parleyd", default="build/release/parleyd")
    parser.add_argument("--envs", type=int, default=16, help="environments of a vector")
    parser.add_argument("--n-steps", type=int, default=32, help="of a rollout")
    parser.add_argument("--actors", type=int, default=4, help="vectors of a3c, impala and apex")
    parser.add_argument("--steps", type=int, default=2_000_000, help="at most so many of all environments")
    parser.add_argument("--kind", choices=["mlp", "lstm"], default="mlp", help="lstm: a policy that remembers; a2c, a3c, ppo, impala")
    parser.add_argument("--until", type=float, help="the mean return of 100 episodes that ends it")
    parser.add_argument("--gamma", type=float, help="the discount; by default the environment's own, or 0.99")
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--reward-scale", type=float)
    parser.add_argument("--run", metavar="FOLDER", default="", help="a2c, ppo: where the run is stored; the same command again goes on with it")
    parser.add_argument("--chapter", type=int, default=0, help="rollouts from one storing to the next; by default 50 with --run")
    parser.add_argument("--tensorboard", metavar="FOLDER", help="where TensorBoard's event files are written, a folder for each training")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many trainings, one after the other, of seeds from --seed on")
    parser.add_argument("--plot", metavar="FILE.svg")
    parser.add_argument("--out", metavar="FILE.gguf", help="the policy that was learned; parleyd serves it")
    options = parser.parse_args()
    if options.run and (options.way not in ("a2c", "ppo") or options.seeds > 1):
        parser.error("--run is for one training by a2c or ppo: the others depend on the order in which threads run")
    if options.chapter < 0 or options.chapter and not options.run:
        parser.error("--chapter is a number of rollouts, and needs --run")
    options.chapter = (options.chapter or 50) if options.run else sys.maxsize
    options.run = options.run and os.path.abspath(options.run)
    options.command = {k: v for k, v in vars(options).items() if k not in ("run", "out", "plot", "tensorboard", "parleyd", "seeds", "address")}
    options.task = Task(options)
    if options.way in ("dqn", "apex") and options.task.is_continuous:
        parser.error(f"{options.way} chooses among actions, those of {options.task.name} are numbers")
    if options.way in ("dqn", "apex") and options.kind == "lstm":
        parser.error(f"{options.way} learns from single steps, which have no history: --kind lstm is for a2c, a3c, ppo and impala")
    trainings = []
    for seed in range(options.seed, options.seed + options.seeds):
        options.seed = seed
        trainings.append(run(options))
    if options.plot:
        draw(options.plot, [t.curve for t in trainings if t.curve], f"{options.way}, {options.env}")
    return 0 if all(t.mean() >= t.until or t.until == math.inf for t in trainings) else 1


if __name__ == "__main__":
    sys.exit(main())
