#!/usr/bin/env python3
"""PPO and SAC beside PyPI's stable-baselines3, on the same environment in one run, in turns: the steps and the processor's seconds until
CartPole-v1's mean return of 100 episodes is 475 (PPO), and the mean return of 20 episodes without exploration after as many steps of
Pendulum-v1 by the same settings (SAC). Beside them the seconds by the clock: where others use the processors, they are what one waits.

    baselines.py BUILD [--seeds 1 2 3] [--steps 3500] [ppo] [sac]      (by a Python with torch 2, stable-baselines3 and grpcio; see baselines.sh)"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [folder for folder in sys.path if os.path.abspath(folder) != HERE]  # which has a gym.py of another kind
EXAMPLES = os.path.join(HERE, "../../client/examples")
MOST_STEPS = 400_000  # of PPO

PPO = """
import sys, numpy as np, torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
torch.set_num_threads(1)
class Until(BaseCallback):
    def _on_step(self):
        done = self.model.ep_info_buffer
        return len(done) < 100 or np.mean([e["r"] for e in done]) < 475
# the settings of its zoo for CartPole-v1
model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 8, seed=int(sys.argv[1])), n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20,
            learning_rate=lambda left: 0.001 * left, clip_range=lambda left: 0.2 * left, seed=int(sys.argv[1]), device="cpu")
model.learn(int(sys.argv[2]), callback=Until())
print(model.num_timesteps, np.mean([e["r"] for e in model.ep_info_buffer]))
"""

SAC = """
import sys, torch, gymnasium
from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
torch.set_num_threads(1)
seed, steps = int(sys.argv[1]), int(sys.argv[2])
model = SAC("MlpPolicy", Monitor(gymnasium.make("Pendulum-v1")), learning_rate=1e-3, learning_starts=1000, batch_size=128, tau=0.05, gamma=0.95,
            policy_kwargs=dict(net_arch=[64, 64]), seed=seed, device="cpu")
model.learn(steps)
env = Monitor(gymnasium.make("Pendulum-v1"))
env.reset(seed=1000 + seed)
print(steps, evaluate_policy(model, env, 20)[0])
"""


def measured(command, **more):
    """Returns what a command printed, the processor's seconds that it and its processes took, and the seconds by the clock."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, **more)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{command}: {done.stderr[-2000:]}")
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - began


def theirs(program, seed, steps):
    done, *seconds = measured([sys.executable, "-c", program, str(seed), str(steps)])
    n, value = done.stdout.split()[-2:]
    return int(n), float(value), *seconds


def our_ppo(build, seed):
    done, *seconds = measured([sys.executable, f"{EXAMPLES}/train.py", "ppo", "--parleyd", f"{build}/parleyd", "--seed", str(seed), "--steps", str(MOST_STEPS)])
    last = re.findall(r"([\d,]+) steps +\d+ episodes +\d+ updates +return +(-?[\d.]+)", done.stderr)[-1]
    return int(last[0].replace(",", "")), float(last[1]), *seconds


def our_sac(build, seeds, steps, folder):
    """All seeds in one pass; the seconds are divided among them."""
    path = os.path.join(folder, "sac.json")
    _, *seconds = measured([sys.executable, f"{EXAMPLES}/algorithms/train.py", "sac", "--parleyd", f"{build}/parleyd", "--seeds", *map(str, seeds), "--steps", str(steps),
                           "--json", path])
    with open(path) as f:
        return [(steps, score, *(s / len(seeds) for s in seconds)) for score in json.load(f)["scores"]]


def tell(what, who, steps, value, processor, clock):
    print(f"{what} {who:17} {steps:8} {value:8.1f} {processor:12.1f} {clock:10.1f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("which", nargs="*", default=["ppo", "sac"])
    p.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    p.add_argument("--steps", type=int, default=3500)
    o = p.parse_intermixed_args()
    import stable_baselines3
    import torch

    print(f"stable-baselines3 {stable_baselines3.__version__}, torch {torch.__version__}; seeds {o.seeds}")
    print(f"{'':30} {'steps':>8} {'return':>8} {'processor s':>12} {'clock s':>10}", flush=True)
    if "ppo" in o.which:
        for seed in o.seeds:
            tell("PPO CartPole", "stable-baselines3", *theirs(PPO, seed, 100_000))
            tell("PPO CartPole", "parley", *our_ppo(o.build, seed))
    if "sac" in o.which:
        with tempfile.TemporaryDirectory() as folder:
            for found in our_sac(o.build, o.seeds, o.steps, folder):
                tell("SAC Pendulum", "parley", *found)
        for seed in o.seeds:
            tell("SAC Pendulum", "stable-baselines3", *theirs(SAC, seed, o.steps))


if __name__ == "__main__":
    main()
