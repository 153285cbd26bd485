"""An environment that a daemon has, its own or an attached worker's, as one of gymnasium's in this process."""
import time

import gymnasium
import numpy as np
import parley
from parley.vector import VectorEnv


class Attached(gymnasium.Env):
    """patience: for so many seconds it waits for a daemon, or a worker, that is not there yet."""

    lost = None  # of the class: why some instance's daemon or worker was not reached

    def __init__(self, address, name, patience=0):
        self._server = parley.connect(address)
        self._envs = self._open(name, time.monotonic() + patience)
        self.observation_space, self.action_space = self._envs.single_observation_space, self._envs.single_action_space

    def _open(self, name, end):
        while True:
            try:
                return VectorEnv(self._server, name, 1)
            except parley.Error as e:
                if e.code not in ("NOT_FOUND", "UNAVAILABLE") or time.monotonic() > end:
                    Attached.lost = e
                    raise
            time.sleep(0.05)

    def _first(self, observations):
        return next(iter(gymnasium.vector.utils.iterate(self._envs.observation_space, observations)))

    def _asked(self, ask, *args, **more):
        try:
            return ask(*args, **more)
        except parley.Error as e:
            if e.code == "UNAVAILABLE":
                Attached.lost = e
            raise

    def reset(self, *, seed=None, options=None):
        return self._first(self._asked(self._envs.reset, seed=seed)[0]), {}

    def step(self, action):
        observations, rewards, terminated, truncated, _ = self._asked(self._envs.step, np.asarray(action)[None])
        return self._first(observations), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self):
        self._envs.close()
        self._server.close()
