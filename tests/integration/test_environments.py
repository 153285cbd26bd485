"""The environments beside gymnasium's own: the same states and rewards to 1e-6, step for step, and the same ends.

usage: test_environments.py ENVIRONMENT_TRACE
"""
import random
import subprocess
import sys

import children
import gymnasium
import numpy as np


class GridWorld(gymnasium.Env):
    """Of gymnasium's tutorial "Create a Custom Environment"."""

    def __init__(self, size=5):
        self.size = size
        self._agent_location = np.array([-1, -1], dtype=np.int32)
        self._target_location = np.array([-1, -1], dtype=np.int32)
        self.observation_space = gymnasium.spaces.Dict({
            "agent": gymnasium.spaces.Box(0, size - 1, shape=(2,), dtype=int),
            "target": gymnasium.spaces.Box(0, size - 1, shape=(2,), dtype=int)})
        self.action_space = gymnasium.spaces.Discrete(4)
        self._action_to_direction = {0: np.array([1, 0]), 1: np.array([0, 1]), 2: np.array([-1, 0]), 3: np.array([0, -1])}

    def _get_obs(self):
        return {"agent": self._agent_location, "target": self._target_location}

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._agent_location = self.np_random.integers(0, self.size, size=2, dtype=int)
        self._target_location = self._agent_location
        while np.array_equal(self._target_location, self._agent_location):
            self._target_location = self.np_random.integers(0, self.size, size=2, dtype=int)
        return self._get_obs(), {}

    def step(self, action):
        self._agent_location = np.clip(self._agent_location + self._action_to_direction[action], 0, self.size - 1)
        terminated = np.array_equal(self._agent_location, self._target_location)
        return self._get_obs(), 1 if terminated else 0, terminated, False, {}


gymnasium.register(id="GridWorld-v0", entry_point=GridWorld, max_episode_steps=300)


def balance(chance, observation, is_first):
    """The first episode balances by rule, to reach the cut at 500."""
    return int(observation[2] + 0.5 * observation[3] > 0) if is_first else chance.randrange(2)


def torque(chance, observation, is_first):
    return np.array([chance.uniform(-3, 3)], np.float32)


def walk(chance, observation, is_first):
    """The first episode walks into a corner, or into the target on its way; mostly it is cut."""
    return chance.choice((2, 3)) if is_first else chance.randrange(4)


def state_of(env):
    env = env.unwrapped
    return [*env._agent_location, *env._target_location] if isinstance(env, GridWorld) else env.state


def flat(observation):
    return np.concatenate([observation["agent"], observation["target"]]) if isinstance(observation, dict) else observation


def play(program, name, choose, n_min):
    ours = children.start([program, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(line):
        ours.stdin.write(line + "\n")
        ours.stdin.flush()
        return ours.stdout.readline().split()

    theirs = gymnasium.make(name, disable_env_checker=True)
    chance = random.Random(543)
    n_steps = n_ends = n_cut = 0
    worst = 0.0
    while n_steps < n_min or not n_cut:
        observation = flat(theirs.reset(seed=chance.randrange(2**31))[0])
        assert ask("set " + " ".join(f"{x:.17g}" for x in state_of(theirs))) == ["set"]
        over = False
        while not over:
            action = choose(chance, observation, n_ends == 0)
            observation, reward, terminated, truncated, _ = theirs.step(action)
            observation = flat(observation)
            *seen, r, is_over, is_cut = ask(f"{action.item():.9g}" if isinstance(action, np.ndarray) else str(action))
            assert len(seen) == len(observation)
            worst = max(worst, abs(float(r) - reward) / max(1, abs(reward)), *(abs(float(a) - float(b)) for a, b in zip(seen, observation)))
            assert worst <= 1e-6, (seen, observation, r, reward)
            assert [int(is_over), int(is_cut)] == [terminated, truncated], (is_over, is_cut, terminated, truncated)
            over = terminated or truncated
            n_steps += 1
            n_cut += truncated
        n_ends += 1
    ours.stdin.close()
    assert ours.wait(children.PATIENCE) == 0
    print(f"{name}: {n_steps} steps, {n_ends} episodes, {n_cut} cut, worst difference {worst:.2e}")


for case in (("CartPole-v1", balance, 1000), ("Pendulum-v1", torque, 1000), ("GridWorld-v0", walk, 1000)):
    play(sys.argv[1], *case)
