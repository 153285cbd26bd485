"""An agent that chooses the actions of all observers in one batch, after the second program of PyTorch's tutorial "Implementing Batch RPC
Processing Using Asynchronous Executions". An observer's call returns a future of its action, which the last observer's call settles.

usage: batch_cartpole.py [ADDRESS]      a daemon's; needs gymnasium"""
import threading

import gymnasium
import numpy as np
from common import run

from parley.parallel import Future, World, wait_all

N_OBSERVERS, N_EPISODES, N_STEPS = 3, 2, 50
GAMMA, LEARNING_RATE = 1.0, 0.01


class Observer:
    """Has an environment of its own, and asks the agent for each action."""

    def __init__(self, number, group):
        self.number, self.group, self.env = number, group, gymnasium.make("CartPole-v1")

    def run_episode(self, n_steps):
        state, rewards, first, start = self.env.reset(seed=543)[0], np.zeros(n_steps), 0, 0
        for step in range(n_steps):
            action = self.group.registered_sync("select_action", (self.number, state))
            state, rewards[step], terminated, truncated, _ = self.env.step(action)
            if terminated or truncated or step == n_steps - 1:
                first = first or step + 1
                for t in range(step - 1, start - 1, -1):
                    rewards[t] += GAMMA * rewards[t + 1]
                state, start = self.env.reset()[0], step + 1
        return rewards, first


class Agent:
    """A softmax policy that is linear in the state."""

    def __init__(self):
        self.weights, self.draw = np.zeros((4, 2)), np.random.default_rng(1)
        self.lock, self.future_actions = threading.Lock(), Future()
        self.states, self.pending, self.n_batches = np.zeros((N_OBSERVERS, 4)), N_OBSERVERS, 0
        self.gradients = []  # of the logarithms of the actions' probabilities, [N_OBSERVERS, 4, 2] for each step

    def select_action(self, number, state):
        with self.lock:
            self.states[number] = state
            mine = self.future_actions.then(lambda actions: int(actions.wait()[number]))
            self.pending -= 1
            if self.pending == 0:
                self.pending, waiting, self.future_actions = N_OBSERVERS, self.future_actions, Future()
                waiting.set_result(self.act())
        return mine

    def act(self):
        scores = np.exp(self.states @ self.weights)
        p = scores / scores.sum(1, keepdims=True)
        actions = (self.draw.random(N_OBSERVERS) > p[:, 0]).astype(int)
        self.gradients.append(self.states[:, :, None] * (np.eye(2)[actions] - p)[:, None, :])
        self.n_batches += 1
        return actions

    def learn(self, rewards):
        """rewards: [N_OBSERVERS, N_STEPS], those still to come at each step."""
        self.weights += LEARNING_RATE * np.einsum("tnij,nt->ij", np.array(self.gradients), rewards) / N_OBSERVERS / N_STEPS
        self.gradients = []


def main(rank, address, secret):
    names = ["agent", *(f"observer{i}" for i in range(N_OBSERVERS))]
    with World(names[rank], rank, len(names), address=address, secret=secret, rpc_threads=1) as world, world.create_rpc_group("group", names) as group:
        if rank == 0:
            agent = Agent()
            group.register("select_action", agent.select_action)
        else:
            observer = Observer(rank - 1, group)
            group.register(f"run_episode{rank - 1}", observer.run_episode)
        group.barrier()
        if rank == 0:
            running = 0.0
            for episode in range(1, 1 + N_EPISODES):
                done = wait_all(group.registered_async(f"run_episode{i}", (N_STEPS,)) for i in range(N_OBSERVERS))
                agent.learn(np.stack([rewards for rewards, _ in done]))
                last = float(np.mean([first for _, first in done]))
                running = 0.5 * last + 0.5 * running
                print(f"Episode {episode}: last reward {last:.1f}, running reward {running:.1f}, {agent.n_batches} batches of {N_OBSERVERS}\n", end="", flush=True)
        group.barrier()


if __name__ == "__main__":
    run(main, 1 + N_OBSERVERS)
