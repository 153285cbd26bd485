"""Exploration: what is added to actions in [-1, 1], or to the parameters that compute them. Each draws from its own generator.

    Normal(0.1), Uniform(0.3)          independent draws
    OrnsteinUhlenbeck(0.2, theta=0.15)  draws that depend on the one before, which begin anew with an episode (reset)
    Parameters(0.2)                     a perturbed copy of the actor acts; what the copy's actions differ by adapts to the deviation wanted
                                        (Plappert et al., 2018)"""
import copy

import torch


class Noise:
    def __init__(self, scale, seed=0):
        self.scale, self.draws = scale, torch.Generator().manual_seed(seed)

    def act(self, actor, observations):
        """The actions [k, n, a] of an actor for observations [k, n, o], with noise."""
        action = actor(observations)
        return (action + self.noise(action.shape)).clamp(-1, 1)

    def noise(self, shape):
        return self.scale * torch.randn(shape, generator=self.draws)

    def reset(self, over):
        """over: [k, n] of bool, the episodes that ended."""

    def adapt(self, actor, observations):
        """After so many updates, with observations of a batch."""


class Normal(Noise):
    pass


class Uniform(Noise):
    def noise(self, shape):
        return self.scale * (2 * torch.rand(shape, generator=self.draws) - 1)


class OrnsteinUhlenbeck(Noise):
    def __init__(self, scale, seed=0, theta=0.15):
        super().__init__(scale, seed)
        self.theta, self.at = theta, None

    def noise(self, shape):
        if self.at is None:
            self.at = torch.zeros(shape)
        self.at = self.at - self.theta * self.at + self.scale * torch.randn(shape, generator=self.draws)
        return self.at

    def reset(self, over):
        if self.at is not None:
            self.at[over] = 0


class Parameters(Noise):
    """scale: the deviation of actions that is wanted; deviation: that of the parameters, one for each of k networks."""

    def __init__(self, scale, seed=0):
        super().__init__(scale, seed)
        self.deviation, self.perturbed = None, None

    def act(self, actor, observations):
        if self.perturbed is None:
            self.deviation = torch.full((len(observations),), float(self.scale))
            self.perturb(actor)
        return self.perturbed(observations).clamp(-1, 1)

    def perturb(self, actor):
        self.perturbed = copy.deepcopy(actor)
        with torch.no_grad():
            for p in self.perturbed.parameters():
                p += self.deviation.view(-1, 1, 1) * torch.randn(p.shape, generator=self.draws)

    def adapt(self, actor, observations):
        """Perturbs anew, more where the actions differed by less than wanted, else less."""
        if self.perturbed is None:
            return
        with torch.no_grad():
            distance = ((self.perturbed(observations) - actor(observations)) ** 2).mean((1, 2)).sqrt()
        self.deviation = torch.where(distance < self.scale, self.deviation * 1.01, self.deviation / 1.01)
        self.perturb(actor)


KINDS = {"normal": Normal, "uniform": Uniform, "ou": OrnsteinUhlenbeck, "parameters": Parameters}
