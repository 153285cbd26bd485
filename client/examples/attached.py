"""An environment that a daemon has, its own or an attached worker's, as one of gymnasium's in this process."""
import gymnasium
import numpy as np
import parley
from parley.vector import VectorEnv


class Attached(gymnasium.Env):
    def __init__(self, address, name):
        self._server = parley.connect(address)
        self._envs = VectorEnv(self._server, name, 1)
        self.observation_space, self.action_space = self._envs.single_observation_space, self._envs.single_action_space

    def _first(self, observations):
        return next(iter(gymnasium.vector.utils.iterate(self._envs.observation_space, observations)))

    def reset(self, *, seed=None, options=None):
        return self._first(self._envs.reset(seed=seed)[0]), {}

    def step(self, action):
        observations, rewards, terminated, truncated, _ = self._envs.step(np.asarray(action)[None])
        return self._first(observations), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self):
        self._envs.close()
        self._server.close()
