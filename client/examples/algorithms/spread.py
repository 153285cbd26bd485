"""Two agents in a plane are to stand on two landmarks, each on one, as in "simple spread" of the multi-agent particle environments (Lowe et
al., 2017). Both get the same reward: minus the distance from each landmark to its nearest agent, less 1 while they touch."""
import gymnasium
import numpy as np

AGENTS, STEPS, RADIUS = 2, 25, 0.15


class Spread(gymnasium.Env):
    """The observation has what each agent sees, one after the other: its speed and place, the landmarks and the other agent as seen from it,
    10 numbers. An action has two numbers for each agent, a force, from -1 to 1."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (AGENTS * 10,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (AGENTS * 2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.landmarks = self.np_random.uniform(-1, 1, (2, AGENTS, 2))
        self.speed, self.steps = np.zeros((AGENTS, 2)), 0
        return self._seen(), {}

    def _seen(self):
        each = [(self.speed[i], self.at[i], (self.landmarks - self.at[i]).ravel(), self.at[1 - i] - self.at[i]) for i in range(AGENTS)]
        return np.concatenate([part for parts in each for part in parts]).astype(np.float32)

    def step(self, action):
        force = np.clip(np.reshape(action, (AGENTS, 2)), -1, 1)
        self.speed = 0.75 * self.speed + 0.5 * force * 0.2
        self.at = self.at + self.speed
        self.steps += 1
        distances = np.linalg.norm(self.landmarks[:, None] - self.at[None], axis=-1)
        reward = -distances.min(1).sum() - float(np.linalg.norm(self.at[0] - self.at[1]) < 2 * RADIUS)
        return self._seen(), float(reward), False, self.steps == STEPS, {}
