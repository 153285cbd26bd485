"""The programs that `parley bench cartpole` is measured against: PyTorch's tutorial "Implementing Batch RPC Processing Using
Asynchronous Executions", on PyTorch's own RPC, with the environment in plain Python (gymnasium's equations) and states cloned
before a batch is computed. Runs of both take turns; seconds are the tutorial's, from starting the processes to their end.

    tutorial.py BUILD [--world W] [--pairs N] [--mode batch,nobatch] [--rpc unary,stream,python,vector] [--json]

python: the observers are processes in Python, with this file's environment, which ask the daemon's policy for each action. vector: the same
environments in one process, which asks for all actions at once. Both need a Python with grpcio, too (tests/support/torch.sh), and batches.

Needs a Python with torch and torch.distributed.rpc: on Debian, apt-get install --no-install-recommends python3-torch, and run
it by /usr/bin/python3. Prints how many times as fast parley is, the median of the pairs with the least and the greatest."""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

EPISODES, STEPS, SEED = 10, 500, 543


class CartPole:
    """CartPole-v1, as gymnasium computes it."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def reset(self):
        self.state = [self.random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action):
        x, v, angle, spin = self.state
        sin, cos = math.sin(angle), math.cos(angle)
        temp = ((10.0 if action == 1 else -10.0) + 0.05 * spin * spin * sin) / 1.1
        spin_rate = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        rate = temp - 0.05 * spin_rate * cos / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * rate, angle + 0.02 * spin, spin + 0.02 * spin_rate]
        return self.state, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * 2 * math.pi / 360


class Observer:
    def __init__(self, batch):
        from torch.distributed import rpc

        self.id = rpc.get_worker_info().id - 1
        self.env = CartPole(SEED)
        self.batch = batch

    def run_episode(self, agent_rref, n_steps):
        import torch

        state, episode_reward, start = self.env.reset(), STEPS, 0
        rewards = torch.zeros(n_steps)
        for step in range(n_steps):
            agent = agent_rref.rpc_sync()
            action = (agent.select_action_batch if self.batch else agent.select_action)(self.id, torch.tensor(state))
            state, done = self.env.step(int(action))
            rewards[step] = 1.0
            if done or step + 1 >= n_steps:
                total = 0.0
                for i in range(step, start - 1, -1):
                    total = float(rewards[i]) + total
                    rewards[i] = total
                if start == 0:
                    episode_reward = min(episode_reward, step + 1)
                start = step + 1
                state = self.env.reset()
        return [rewards, episode_reward]


class Agent:
    def __init__(self, world, batch):
        import torch
        from torch.distributed import rpc

        torch.manual_seed(SEED)
        self.n, self.batch = world - 1, batch
        self.observers = [rpc.remote(f"observer{i}", Observer, args=(batch,)) for i in range(1, world)]
        self.self_rref = rpc.RRef(self)
        self.policy = torch.nn.Sequential(torch.nn.Linear(4, 128), torch.nn.Dropout(p=0.6), torch.nn.ReLU(), torch.nn.Linear(128, 2))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-2)
        self.lock = threading.Lock()
        self.states, self.pending = torch.zeros(self.n, 1, 4), self.n
        self.future = torch.futures.Future()
        self.saved = [] if batch else [[] for _ in range(self.n)]
        self.running_reward = 0.0

    def sample(self, states):
        import torch

        chances = torch.distributions.Categorical(torch.softmax(self.policy(states), dim=-1))
        actions = chances.sample()
        return actions, chances.log_prob(actions)

    def select_action(self, observer, state):
        action, log_prob = self.sample(state.unsqueeze(0))
        self.saved[observer].append(log_prob)
        return action.item()

    def select_action_batch(self, observer, state):
        import torch

        self.states[observer].copy_(state)
        future_action = self.future.then(lambda f: f.wait()[observer].item())
        with self.lock:
            self.pending -= 1
            if self.pending == 0:
                self.pending = self.n
                actions, log_probs = self.sample(self.states.clone())
                self.saved.append(log_probs.t()[0])
                future, self.future = self.future, torch.futures.Future()
                future.set_result(actions)
        return future_action

    def run_episode(self):
        import torch

        began = time.perf_counter()
        futures = [o.rpc_async().run_episode(self.self_rref, STEPS) for o in self.observers]
        results = [f.wait() for f in futures]
        self.rollout_s = time.perf_counter() - began
        rewards = torch.stack([r for r, _ in results]).t()
        log_probs = torch.stack(self.saved) if self.batch else torch.stack([torch.stack(p) for p in self.saved]).squeeze(-1).t()
        loss = torch.sum(-log_probs * rewards) / self.n
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.saved = [] if self.batch else [[] for _ in range(self.n)]
        reward = sum(r for _, r in results) / self.n
        self.running_reward = 0.5 * reward + 0.5 * self.running_reward


def process(rank, world, batch, meeting, out):
    import torch
    from torch.distributed import rpc

    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=600, init_method=f"file://{meeting}", num_worker_threads=16)
    if batch: # callers look at the mark, too
        Agent.select_action_batch = rpc.functions.async_execution(Agent.select_action_batch)
    rpc.init_rpc("agent" if rank == 0 else f"observer{rank}", rank=rank, world_size=world, rpc_backend_options=options)
    if rank == 0:
        agent, rollout_s = Agent(world, batch), 0.0
        for _ in range(EPISODES):
            agent.run_episode()
            rollout_s += agent.rollout_s
        out.put((rollout_s, agent.running_reward))
    rpc.shutdown()


def tutorial(world, batch):
    """Seconds: all, and of the episodes."""
    import torch.multiprocessing as mp

    os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo", GLOG_minloglevel="2")
    with tempfile.TemporaryDirectory() as folder:
        out = mp.get_context("spawn").SimpleQueue()
        began = time.perf_counter()
        mp.spawn(process, args=(world, batch, os.path.join(folder, "meeting"), out), nprocs=world, join=True)
        return time.perf_counter() - began, out.get()[0]


def ours(build, world, mode, rpc):
    done = subprocess.run([os.path.join(build, "parley"), "bench", "cartpole", "--world", str(world), "--mode", mode, "--rpc", rpc,
                           "--episodes", str(EPISODES), "--steps", str(STEPS), "--seed", str(SEED), "--reps", "1", "--json"],
                          check=True, stdout=subprocess.PIPE, text=True)
    row = json.loads(done.stdout)
    return row["wall_s"], row["rollout_s"]


def steps_of(env, act, n_steps):
    """An episode of Observer's in each of some environments. act: an Act of as many sessions."""
    n, states = len(env), [e.reset() for e in env]
    returns, rewards, done, first, start = [[0.0] * n_steps for _ in env], [0.0] * n, [False] * n, [n_steps] * n, [0] * n
    for step in range(n_steps):
        actions = act.act(states, rewards, done)["action"].reshape(n)
        for i in range(n):
            states[i], done[i] = env[i].step(int(actions[i]))
            rewards[i] = 1.0
            if done[i] or step + 1 == n_steps:
                returns[i][start[i]:step + 1] = range(step + 1 - start[i], 0, -1)
                first[i] = min(first[i], step + 1) if start[i] == 0 else first[i]
                states[i], start[i] = env[i].reset(), step + 1
    return returns, first


def observe(address, n):
    """n observers of the daemon's policy."""
    import queue

    import parley
    from parley.act import Act
    from parley.v1 import act_pb2

    with parley.connect(address) as server, Act(server, "pole", n) as act:
        attach = act.link.channel.stream_stream("/parley.v1.Act/Attach", act_pb2.ActAttachRequest.SerializeToString, act_pb2.ActAttachResponse.FromString)
        answers = [queue.SimpleQueue() for _ in range(n)]
        calls = [attach(iter(a.get, None), metadata=act.link.metadata) for a in answers]
        for i in range(n):
            answers[i].put(act_pb2.ActAttachRequest(offer=act_pb2.ActOffer(model="pole", env_id=act.env_ids[i], run_id=act.run + i, environment="CartPole-v1")))
        act.rows, env = [next(c).accepted.row for c in calls], [CartPole(SEED) for _ in range(n)]
        for _ in range(EPISODES):
            orders = [next(c).run for c in calls]
            returns, first = steps_of(env, act, orders[0].n_steps)
            for i in range(n):
                answers[i].put(act_pb2.ActAttachRequest(result=act_pb2.ActEpisodeResult(episode=orders[i].episode, returns=returns[i], reward=first[i])))
        for c in calls:
            c.cancel()


def in_python(build, n, n_processes):
    """Seconds: all, and of the episodes."""
    sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
    import children
    import parley
    from parley.act import Act
    from parley.v1 import act_pb2

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        policy = os.path.join(folder, "pole.gguf")
        children.run([os.path.join(build, "parley"), "policy", "new", policy, "--environment", "CartPole-v1", "--hidden", "128", "--dropout", "0.6"],
                     check=True, stdout=subprocess.DEVNULL)
        with children.Daemon(os.path.join(build, "parleyd"), "--model", f"pole={policy}") as daemon, parley.connect(daemon.address) as server, Act(server, "pole") as act:
            observers = [children.start([sys.executable, __file__, build, "--observe", daemon.address, str(n // n_processes)]) for _ in range(n_processes)]
            act.configure("lockstep", n=n)
            request = act_pb2.ActTrainRequest(model="pole", observers=n, episodes=EPISODES, n_steps=STEPS, seed=SEED)
            events = list(act.link.stream("Act/Train", request, act_pb2.ActTrainEvent))
            assert [o.wait() for o in observers] == [0] * n_processes and events[-1].actions == EPISODES * STEPS * n, events[-1]
    return time.perf_counter() - began, sum(e.rollout_us for e in events) / 1e6


def main():
    if "--observe" in sys.argv:
        sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
        observe(sys.argv[3], int(sys.argv[4]))
        return
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build")
    options.add_argument("--world", type=int, default=11)
    options.add_argument("--pairs", type=int, default=3)
    options.add_argument("--mode", default="batch,nobatch")
    options.add_argument("--rpc", default="unary,stream")
    options.add_argument("--json", action="store_true")
    o = options.parse_args()
    try:
        import torch.distributed.rpc  # noqa: F401
    except ImportError as e:
        sys.exit(f"tutorial.py: {e}; on Debian: apt-get install --no-install-recommends python3-torch, and /usr/bin/python3 {sys.argv[0]}")
    if {"python", "vector"} & set(o.rpc.split(",")) and o.mode != "batch":
        options.error("--rpc python and vector are measured in batches alone: add --mode batch")
    found = []
    for mode in o.mode.split(","):
        theirs, mine = [], {rpc: [] for rpc in o.rpc.split(",")}
        for _ in range(o.pairs):
            for rpc in mine:
                is_python = rpc in ("python", "vector")
                mine[rpc].append(in_python(o.build, o.world - 1, 1 if rpc == "vector" else o.world - 1) if is_python else ours(o.build, o.world, mode, rpc))
            theirs.append(tutorial(o.world, mode == "batch"))
        for rpc, runs in mine.items():
            ratios = [t[0] / m[0] for t, m in zip(theirs, runs)]
            row = {"world": o.world, "mode": mode, "rpc": rpc, "wall_s": statistics.median(m[0] for m in runs),
                   "torch_wall_s": statistics.median(t[0] for t in theirs), "rollout_s": statistics.median(m[1] for m in runs),
                   "torch_rollout_s": statistics.median(t[1] for t in theirs), "ratio": statistics.median(ratios),
                   "least": min(ratios), "greatest": max(ratios)}
            found.append(row)
            if not o.json:
                print("world {world} {mode} {rpc}: {wall_s:.2f} s, PyTorch {torch_wall_s:.1f} s: {ratio:.1f} x ({least:.1f}-{greatest:.1f}); "
                      "episodes {rollout_s:.2f} s, {torch_rollout_s:.1f} s".format(**row), flush=True)
    if o.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
