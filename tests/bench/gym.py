"""Policies that parley.gym trains to gymnasium's thresholds: the running reward over time, then the mean return of 100 episodes
and more that the trained policy acts in.

    gym.py BUILD MODEL [--only ENVIRONMENT] [--minutes M]"""
import argparse
import os
import sys
import tempfile
import time

import gymnasium
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
import parley  # noqa: E402
import parley.gym  # noqa: E402

import children  # noqa: E402

SEED = 1
# until: better than gymnasium's threshold by a margin, since the reward in training is of few episodes.
KINDS = {
    "CartPole-v1": {"until": 490.0, "n": 8, "n_steps": 500, "gamma": 0.99, "learning_rate": 0.01},
    "Acrobot-v1": {"until": -90.0, "n": 16, "n_steps": 1000, "gamma": 0.99, "learning_rate": 0.005},
}


def learn(build, name, kind, minutes):
    threshold = gymnasium.spec(name).reward_threshold
    with tempfile.TemporaryDirectory() as folder:
        policy = os.path.join(folder, "policy.gguf")
        envs = parley.gym.make(name, kind["n"])
        children.run([os.path.join(build, "tests/integration/write_policy"), policy, *map(str, parley.gym.policy_shape(envs))], check=True)
        with children.Daemon(os.path.join(build, "parleyd"), "--model", f"policy={policy}") as daemon, parley.connect(daemon.address) as server:
            start, next_line = time.monotonic(), 0.0
            episodes = parley.gym.train(envs, server, "policy", episodes=100000, seed=SEED, **{k: v for k, v in kind.items() if k not in ("n",)})
            for e in episodes:
                seconds = time.monotonic() - start
                if seconds >= next_line or kind["until"] <= e.running_reward:
                    print(f"{name}: {seconds:6.1f} s, {e.actions:8d} steps, running reward {e.running_reward:7.1f}", flush=True)
                    next_line = seconds + 5
                if seconds > 60 * minutes:
                    break
            episodes.close()
            seconds = time.monotonic() - start
            totals = []
            while len(totals) < 100:
                steps = parley.gym.rollout(envs, server, "policy", n_steps=2000, seed=1000 + len(totals))
                for i in range(steps.rewards.shape[1]):
                    ends = np.flatnonzero(steps.done[:, i])
                    totals += [part.sum() for part in np.split(steps.rewards[:, i], ends + 1)[:-1]]
        envs.close()
    mean = float(np.mean(totals))
    print(f"{name}: trained for {seconds:.0f} s; {len(totals)} episodes return {mean:.1f}, the threshold is {threshold}", flush=True)
    return mean >= threshold


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build")
    options.add_argument("model")
    options.add_argument("--only", default=",".join(KINDS))
    options.add_argument("--minutes", type=float, default=10)
    o = options.parse_args()
    if not all([learn(o.build, name, KINDS[name], o.minutes) for name in o.only.split(",")]):
        sys.exit("a threshold was not reached")


main()
