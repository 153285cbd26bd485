"""Runs gymnasium's environments as observers of a policy that a daemon serves. The policy acts in all environments of a vector with
one batch, and learns from them.

    >>> import parley.gym
    >>> with parley.connect(ADDRESS) as server:
    ...     for e in parley.gym.train("CartPole-v1", server, model="pole", n=4, episodes=2, n_steps=20):
    ...         print(e.episode, e.observers, e.actions)
    1 4 80
    2 4 160
"""
from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
from collections.abc import Iterator
from time import sleep
from typing import Any

import grpc
import gymnasium
import numpy as np
import numpy.typing as npt

from parley import wire
from parley.act import Act, link_of
from parley.channel import Link
from parley.client import Server
from parley.v1 import act_pb2 as pb
from parley.wire import Error, Patience

Array = npt.NDArray[Any]


def policy_shape(envs: Any) -> tuple[int, int]:
    """Returns how many inputs and how many actions a policy needs for these environments."""
    observation, action = envs.single_observation_space, envs.single_action_space
    if not isinstance(observation, gymnasium.spaces.Box):
        raise TypeError(f"the observation space is {observation}: a policy needs a Box")
    if not isinstance(action, gymnasium.spaces.Discrete):
        raise TypeError(f"the action space is {action}: a policy needs a Discrete")
    return int(np.prod(observation.shape)), int(action.n)


def make(env: Any, n: int) -> Any:
    """Makes n environments if env is a name. Otherwise returns env, a vector environment, which must reset itself in the step that ends
    an episode."""
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    if isinstance(env, str):
        env = gymnasium.make_vec(env, num_envs=n, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode})
    if env.metadata.get("autoreset_mode") != mode:
        raise ValueError("the vector environment does not reset itself in the step that ends an episode: make it with autoreset_mode=AutoresetMode.SAME_STEP")
    policy_shape(env)
    return env


class Actor(Act):
    """A policy's sessions for the environments of a vector. Session i has the key (env_ids[i], run + i)."""

    def __init__(self, envs: Any, link: Link, model: str, run: int | None = None) -> None:
        super().__init__(link, model, envs.num_envs, run)
        self.envs = envs
        self.n_inputs, self.n_actions = policy_shape(envs)

    def act(self, observations: Any, rewards: Any = None, done: Any = None) -> dict[str, Array]:
        found = super().act(observations, rewards, done)
        found["action"] = found["action"].reshape(self.n).astype(np.int64)
        if found["action"].max() >= self.n_actions:
            raise ValueError(f"the policy chose action {found['action'].max()}, but the environment has only {self.n_actions} actions")
        return found


@dataclasses.dataclass
class Rollout:
    """The results of steps, [n_steps, n_envs, …] each. done: whether the episode ended with the step. run: the run of the sessions."""

    observations: Array
    actions: Array
    rewards: Array
    done: Array
    outputs: dict[str, Array]
    run: int

    def mean_return(self) -> float:
        """Returns the mean return of the episodes that ended."""
        totals, found = np.zeros(self.rewards.shape[1]), []
        for reward, done in zip(self.rewards, self.done, strict=True):
            totals += reward
            found += totals[done].tolist()
            totals[done] = 0
        return float(np.mean(found)) if found else float("nan")


def run_steps(envs: Any, actor: Actor, n_steps: int, seed: int | None) -> Rollout:
    start = int(getattr(envs.single_action_space, "start", 0))
    observation, _ = envs.reset(seed=seed)
    reward, done = np.zeros(envs.num_envs), np.zeros(envs.num_envs, bool)
    kept: list[tuple[Array, Array, Array]] = []
    outputs = []
    for _ in range(n_steps):
        out = actor.act(observation, reward, done)
        before = np.array(observation)
        observation, reward, terminated, truncated, _ = envs.step(out["action"] + start)
        done = terminated | truncated
        kept.append((before, np.array(reward), np.array(done)))
        outputs.append(out)
    return Rollout(np.stack([k[0] for k in kept]), np.stack([o["action"] for o in outputs]), np.stack([k[1] for k in kept]),
                   np.stack([k[2] for k in kept]), {name: np.stack([o[name] for o in outputs]) for name in outputs[0]}, actor.run)


def rollout(env: Any, server: Server | str, model: str = "", *, n: int = 8, n_steps: int = 500, seed: int | None = None,
            run: int | None = None) -> Rollout:
    """Lets a policy act for n_steps. env: the name of an environment, of which n are made, or a vector environment."""
    envs = make(env, n)
    actor = Actor(envs, link_of(server), model, run)
    try:
        return run_steps(envs, actor, n_steps, seed)
    finally:
        actor.close()
        if envs is not env:
            envs.close()


def rewards_to_go(rewards: Array, done: Array, gamma: float) -> Array:
    """Returns the discounted sum of the rewards from each step to the end of its episode, [n_steps, n_envs]."""
    found, total = np.zeros(rewards.shape, "<f4"), np.zeros(rewards.shape[1])
    for t in range(len(rewards) - 1, -1, -1):
        total = rewards[t] + gamma * np.where(done[t], 0, total)
        found[t] = total
    return found


class Observers:
    """The environments of a vector. Each is attached to the daemon as an observer; they run their episodes together."""

    def __init__(self, envs: Any, link: Link, model: str) -> None:
        self.envs, self.link, self.actor = envs, link, Actor(envs, link, model)
        self.failure: BaseException | None = None
        method = link.channel.stream_stream("/parley.v1.Act/Attach", pb.ActAttachRequest.SerializeToString, pb.ActAttachResponse.FromString)
        self.answers: list[queue.SimpleQueue[pb.ActAttachRequest | None]] = []
        self.calls: list[Any] = []
        self.is_closing = False
        try:
            for i, env_id in enumerate(self.actor.env_ids):
                answers: queue.SimpleQueue[pb.ActAttachRequest | None] = queue.SimpleQueue()
                answers.put(pb.ActAttachRequest(offer=pb.ActOffer(model=model, env_id=env_id, run_id=self.actor.run + i, environment="gymnasium")))
                self.answers.append(answers)
                self.calls.append(method(iter(answers.get, None), metadata=link.metadata))
        except BaseException:  # interrupted: an observer that stays would be given episodes, and never run them
            self.close()
            raise

    def attach(self) -> None:
        """Waits until the daemon has accepted all observers, in the rows from 0 on, which are those that a training takes."""
        try:
            self.actor.rows = [next(call).accepted.row for call in self.calls]
        except grpc.RpcError as e:
            raise self.link.error_of(e) from None
        if sorted(self.actor.rows) != list(range(len(self.calls))):
            raise Error("UNAVAILABLE", f"other observers are attached to the policy '{self.actor.model}': these have the rows {self.actor.rows} of a batch")

    def episodes(self, on_failure: Any) -> None:
        """Runs the episodes that the daemon asks for, until close()."""
        try:
            while True:
                orders = [next(call).run for call in self.calls]
                steps = run_steps(self.envs, self.actor, orders[0].n_steps, orders[0].seed % (1 << 31))
                returns = rewards_to_go(steps.rewards, steps.done, orders[0].gamma)
                for i, order in enumerate(orders):
                    ends = np.flatnonzero(steps.done[:, i])
                    first = steps.rewards[:ends[0] + 1 if len(ends) else None, i].sum()
                    self.answers[i].put(pb.ActAttachRequest(
                        result=pb.ActEpisodeResult(episode=order.episode, returns=returns[:, i].tolist(), reward=float(first))))
        except BaseException as e:  # passed on to the thread that waits for the training
            if not self.is_closing:
                self.failure = self.link.error_of(e) if isinstance(e, grpc.RpcError) else e
                on_failure()

    def close(self) -> None:
        self.is_closing = True
        wire.wholly(self._end)

    def _end(self) -> None:
        for answers in self.answers:
            answers.put(None)
        for call in self.calls:
            call.cancel()
        self.actor.close()


def attached(envs: Any, link: Link, model: str) -> Observers:
    """Returns observers in the rows from 0 on. The error is temporary if others are attached, as those of a training that has just been
    interrupted are until the daemon knows."""
    observers = Observers(envs, link, model)
    try:
        observers.attach()
        return observers
    except BaseException:
        observers.close()
        raise


def train(env: Any, server: Server | str, model: str = "", *, n: int = 8, episodes: int = 100, n_steps: int = 500, gamma: float = 0.99,
          learning_rate: float = 0.01, normalise: bool = True, seed: int = 1, until: float = 0.0, save_path: str = "") -> Iterator[pb.ActTrainEvent]:
    """Trains a policy with REINFORCE in n environments. After each episode (n_steps in every environment) it yields an event with
    mean_reward and running_reward. Training ends when the running reward reaches `until` (0: no such limit). save_path: see
    ActTrainRequest. While other observers are attached to the policy, or it is being trained, it waits, for the connection's patience.
    Whatever ends it early, Ctrl-C too, ends the training at the daemon."""
    envs, link = make(env, n), link_of(server)
    observers: Observers | None = None
    thread: threading.Thread | None = None
    call: Any = None

    def end() -> None:
        if call is not None:
            call.cancel()
        if observers is not None:
            observers.close()
            while thread is not None and thread.is_alive():
                thread.join(0.05)
                observers.close()  # the thread may have opened a stream of actions meanwhile
            with contextlib.suppress(Error):  # the daemon is gone
                link.once("Act/Configure", pb.ActConfigureRequest(model=model, mode=pb.ACT_MODE_AUTO), pb.ActConfigureResponse)
        if envs is not env:
            envs.close()

    try:
        observers = link.retried(lambda: attached(envs, link, model))
        lockstep = pb.ActConfigureRequest(model=model, mode=pb.ACT_MODE_LOCKSTEP, n=envs.num_envs)
        link.call("Act/Configure", lockstep, pb.ActConfigureResponse)
        request = pb.ActTrainRequest(model=model, observers=envs.num_envs, episodes=episodes, n_steps=n_steps, gamma=gamma,
                                     learning_rate=learning_rate, normalise=normalise, seed=seed, until=until, save_path=save_path)
        call = link.stream("Act/Train", request, pb.ActTrainEvent)
        thread = threading.Thread(target=observers.episodes, args=(lambda: call.cancel(),), daemon=True)
        thread.start()
        patience = Patience(link.patience)
        while True:
            try:
                yield from call
                return
            except grpc.RpcError as e:
                error = link.error_of(e)
            if observers.failure is not None:
                raise observers.failure
            if error.reason != "MODEL_IN_TRAINING":
                raise error
            try:
                delay = patience.wait_after(Error("UNAVAILABLE", error.message))
            except Error:
                raise error from None
            sleep(delay)
            call = link.stream("Act/Train", request, pb.ActTrainEvent)
    finally:
        wire.wholly(end)
