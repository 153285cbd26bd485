"""DDPG, TD3, SAC, MADDPG and RAINBOW: each has its networks, says what acts, and learns from batches. train.py beside this has the loop."""
import math

import noise
import numpy as np
import torch
from losses import (deterministic_loss, ddpg_target, expected, joint, maddpg_actor_loss, maddpg_target, rainbow_errors, sac_actor_loss, sac_target, squashed, td,
                    td3_target, worth)
from networks import Rainbow, Squashed, Trained, mlp


class Algorithm:
    """seeds: one for each training of the stack. task: observations, actions (numbers, or choices). remote: what Trained takes beside."""

    agents, ahead, prioritised, is_discrete = 1, 1, False, False
    gamma, tau, lr, batch, hidden = 0.95, 0.05, 1e-3, 128, 64
    delay = 1  # critics' updates to one of the actor

    def __init__(self, task, seeds, options, **remote):
        self.task, self.seeds, self.options, self.remote, self.updates = task, seeds, options, remote, 0
        self.prioritised = options.prioritised
        self.draws = torch.Generator().manual_seed(1000 + seeds[0])
        torch.manual_seed(seeds[0])
        self.make()

    @property
    def k(self):
        return len(self.seeds) * self.agents

    def own(self, which):
        """Seeds of the networks `which`: those of a training do not depend on the others of its stack."""
        return [1_000_000 * which + 1000 * seed + i for seed in self.seeds for i in range(self.agents)]

    def ended(self, over):
        """over: [k, n] of bool, the episodes that ended."""

    def trained(self, module, name, lr=0.0, tau=0.0):
        return Trained(module, lr or self.lr, tau, name=f"{self.options.name}-{name}", **self.remote)

    def normal(self, *shape):
        return torch.randn(shape, generator=self.draws)


class DDPG(Algorithm):
    critics = 1
    noise_kind, noise_scale = "ou", 0.2

    def make(self):
        o, a, h = self.task.observations, self.task.actions, self.hidden
        self.actor = self.trained(mlp(self.own(1), o, h, h, a), "actor", tau=self.tau)
        seeds = [seed for which in range(self.critics) for seed in self.own(2 + which)]
        self.critic = self.trained(mlp(seeds, self.agents * (o + a), h, h, 1), "critic", tau=self.tau)
        kind = noise.KINDS[self.options.noise or self.noise_kind]
        self.noise = kind(self.noise_scale, 17 + self.seeds[0])

    def act(self, seen):
        """Actions to explore by, [k, n, a] in [-1, 1]. Served by the daemon."""
        with torch.no_grad():
            return self.noise.act(Squashed(self.actor.module), torch.from_numpy(seen))

    def ended(self, over):
        self.noise.reset(over)

    def judge(self, seen):
        with torch.no_grad():
            return torch.tanh(self.actor.module(torch.from_numpy(seen)))

    def value(self, seen, action):
        """What the critic gives for the actions taken: [k, n]. Served beside the policy."""
        with torch.no_grad():
            found = worth(self.critic.module, self.seen_by_critic(torch.from_numpy(seen)), self.seen_by_critic(torch.from_numpy(action)))
            return found if found.dim() == 2 else found.amin(0)

    def seen_by_critic(self, x):
        return x

    def target(self, batch):
        return ddpg_target(self.actor.target, self.critic.target, batch)

    def actor_loss(self, batch):
        return deterministic_loss(self.actor.module, self.critic.module, batch["observation"])

    def learn(self, batch):
        """Returns the priorities [k, n]."""
        self.updates += 1
        with torch.no_grad():
            target = self.target(batch)
        loss, priorities = td(self.critic.module, self.seen_by_critic(batch["observation"]), self.seen_by_critic(batch["action"]), target, batch["weight"],
                              self.options.decrease)
        self.critic.step(loss)
        if self.updates % self.delay == 0:
            self.actor.step(self.actor_loss(batch))
            self.actor.follow()
            self.critic.follow()
            self.noise.adapt(Squashed(self.actor.module), batch["observation"])
        return priorities.numpy()


class TD3(DDPG):
    critics, delay = 2, 2
    noise_kind, noise_scale = "normal", 0.1
    smooth, cut = 0.2, 0.5

    def target(self, batch):
        drawn = (self.smooth * self.normal(*batch["action"].shape)).clamp(-self.cut, self.cut)
        return td3_target(self.actor.target, self.critic.target, batch, drawn)


class SAC(DDPG):
    critics, first_temperature = 2, 0.1

    def make(self):
        o, a, h = self.task.observations, self.task.actions, self.hidden
        self.actor = self.trained(mlp(self.own(1), o, h, h, 2 * a), "actor")
        self.critic = self.trained(mlp(self.own(2) + self.own(3), o + a, h, h, 1), "critic", tau=self.tau)
        temperature = torch.nn.Module()
        temperature.log = torch.nn.Parameter(torch.full((self.k,), math.log(self.first_temperature)))
        self.temperature = self.trained(temperature, "temperature")

    def act(self, seen):
        seen = torch.from_numpy(seen)
        with torch.no_grad():
            return squashed(self.actor.module, seen, self.normal(*seen.shape[:2], self.task.actions))[0]

    def ended(self, over):
        pass

    def judge(self, seen):
        with torch.no_grad():
            return torch.tanh(self.actor.module(torch.from_numpy(seen)).chunk(2, -1)[0])

    def learn(self, batch):
        self.updates += 1
        shape = batch["action"].shape
        temperature = self.temperature.module.log.detach().exp()
        with torch.no_grad():
            target = sac_target(self.actor.module, self.critic.target, batch, temperature, self.normal(*shape))
        loss, priorities = td(self.critic.module, batch["observation"], batch["action"], target, batch["weight"], self.options.decrease)
        self.critic.step(loss)
        loss, logp = sac_actor_loss(self.actor.module, self.critic.module, batch["observation"], temperature, self.normal(*shape))
        self.actor.step(loss)
        # the entropy wanted: minus the number of actions
        self.temperature.step(-(self.temperature.module.log.exp() * (logp - self.task.actions)))
        self.critic.follow()
        return priorities.numpy()


class MADDPG(DDPG):
    """Actors that see what their agent sees; critics that see all."""

    noise_kind, noise_scale, gamma, agents = "normal", 0.2, 0.95, 2

    def seen_by_critic(self, x):
        return joint(x, self.agents)

    def target(self, batch):
        return maddpg_target(self.actor.target, self.critic.target, batch, self.agents)

    def actor_loss(self, batch):
        return maddpg_actor_loss(self.actor.module, self.critic.module, batch, self.agents)


class RAINBOW(Algorithm):
    """Its six parts, each of which can be left out (options.without): double, duelling, n-step, prioritised, noisy, distributional."""

    PARTS = "double", "duelling", "n-step", "prioritised", "noisy", "distributional"
    is_discrete, gamma, lr, batch, move_every = True, 0.99, 1e-3, 64, 100
    low, high, n_atoms = 0.0, 100.0, 51
    decay = 4000  # of epsilon, in acts, without noisy layers

    def make(self):
        self.has = {part: part not in self.options.without for part in self.PARTS}
        self.ahead, self.prioritised = 3 if self.has["n-step"] else 1, self.has["prioritised"]
        self.atoms = torch.linspace(self.low, self.high, self.n_atoms) if self.has["distributional"] else torch.zeros(1)
        network = Rainbow(self.own(1), self.task.observations, self.task.actions, len(self.atoms), self.hidden, self.has["duelling"], self.has["noisy"])
        self.network, self.acts = self.trained(network, "values", tau=1.0), 0
        self.chance = np.random.default_rng(self.seeds[0])

    def values(self, seen):
        with torch.no_grad():
            return expected(self.network.module(torch.from_numpy(seen)), self.atoms).numpy()

    def act(self, seen):
        """Values of the actions; noise is in the network, or a part of the rows takes any action."""
        self.network.module.draw()
        self.acts += 1
        values = self.values(seen)
        if not self.has["noisy"]:
            epsilon = max(0.02, 1 - self.acts / (0.3 * self.decay))
            random = self.chance.random(values.shape[:2]) < epsilon
            values = np.where(random[..., None], self.chance.random(values.shape), values)
        return values

    def judge(self, seen):
        self.network.module.eval()
        values = self.values(seen)
        self.network.module.train()
        return values

    def learn(self, batch):
        """Returns the priorities [k, n]."""
        self.updates += 1
        self.network.module.draw()
        self.network.target.draw()
        errors = rainbow_errors(self.network.module, self.network.target, batch, self.atoms, self.has["double"])
        self.network.step((batch["weight"] * errors).mean(-1))
        if self.updates % self.move_every == 0:
            self.network.follow()
        return errors.detach().numpy()


ALGORITHMS = {"ddpg": DDPG, "td3": TD3, "sac": SAC, "maddpg": MADDPG, "rainbow": RAINBOW}
