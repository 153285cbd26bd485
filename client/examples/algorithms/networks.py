"""The networks of the algorithms, each a stack of k that begin as k networks of their own seeds, and what trains them."""
import copy

import numpy as np
import torch
from parley import Params
from parley.optim import RemoteOptimizer
from parley.stack import Stack


def mlp(seeds, *sizes):
    """A stack of perceptrons, one for each seed, of these sizes."""
    networks = []
    for seed in seeds:
        torch.manual_seed(seed)
        layers = []
        for i in range(len(sizes) - 1):
            layers += [torch.nn.Linear(sizes[i], sizes[i + 1]), torch.nn.ReLU()]
        networks.append(torch.nn.Sequential(*layers[:-1]))
    return Stack(networks)


class Squashed(torch.nn.Module):
    """An actor's actions: tanh of what its network returns."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return torch.tanh(self.network(x))


class NoisyLinear(torch.nn.Module):
    """k layers whose weights have factorised noise (Fortunato et al., 2018), drawn anew by draw(); without noise in evaluation mode."""

    def __init__(self, seeds, n_in, n_out, sigma=0.5, is_noisy=True):
        super().__init__()
        self.n_in, self.n_out, self.is_noisy = n_in, n_out, is_noisy
        self.generators = [np.random.default_rng(seed) for seed in seeds]
        bound = n_in ** -0.5
        self.weight = torch.nn.Parameter(self.drawn(lambda g: g.uniform(-bound, bound, (n_out, n_in))))
        self.bias = torch.nn.Parameter(self.drawn(lambda g: g.uniform(-bound, bound, (1, n_out))))
        if is_noisy:
            self.weight_sigma = torch.nn.Parameter(torch.full_like(self.weight, sigma * bound))
            self.bias_sigma = torch.nn.Parameter(torch.full_like(self.bias, sigma * bound))
        self.draw()

    def drawn(self, one):
        return torch.from_numpy(np.stack([one(g) for g in self.generators]).astype("f4"))

    def draw(self):
        def f(n):
            x = self.drawn(lambda g: g.standard_normal(n))
            return x.sign() * x.abs().sqrt()

        if self.is_noisy:
            self.noise = f(self.n_out), f(self.n_in)

    def forward(self, x):
        weight, bias = self.weight, self.bias
        if self.is_noisy and self.training:
            out, into = self.noise
            weight = weight + self.weight_sigma * (out[:, :, None] * into[:, None])
            bias = bias + self.bias_sigma * out[:, None]
        return torch.baddbmm(bias, x, weight.transpose(1, 2))


class Rainbow(torch.nn.Module):
    """k networks that return [k, n, actions, atoms]: logarithms of probabilities, or with one atom values."""

    def __init__(self, seeds, observations, actions, atoms, hidden=64, is_duelling=True, is_noisy=True):
        super().__init__()
        self.n, self.actions, self.atoms, self.is_duelling = len(seeds), actions, atoms, is_duelling
        self.body = mlp(seeds, observations, hidden, hidden)
        self.advantage = NoisyLinear([2 * s + 1 for s in seeds], hidden, actions * atoms, is_noisy=is_noisy)
        self.value = NoisyLinear([2 * s + 2 for s in seeds], hidden, atoms, is_noisy=is_noisy) if is_duelling else None

    def draw(self):
        """New noise."""
        for layer in self.advantage, self.value:
            if layer is not None:
                layer.draw()

    def forward(self, x):
        h = torch.relu(self.body(x))
        out = self.advantage(h).unflatten(-1, (self.actions, self.atoms))
        if self.value is not None:
            out = self.value(h)[:, :, None] + out - out.mean(2, keepdim=True)
        return out if self.atoms == 1 else out.log_softmax(-1)


class Trained:
    """A network and its optimiser, Adam, with a target network that follows it where tau is above 0. In this process; or with a server in
    the daemon, as the parameter sets NAME and NAME-target: it takes the steps, and one call moves the target."""

    def __init__(self, module, lr, tau=0.0, server=None, name=""):
        self.module, self.tau, self.server, self.name = module, tau, server, name
        self.parameters = list(module.parameters())
        self.target = copy.deepcopy(module).requires_grad_(False)
        if server is None:
            self.optimizer = torch.optim.Adam(self.parameters, lr)
            return
        self.optimizer, self.params = RemoteOptimizer(self.parameters, server, name, kind="adam", lr=lr), Params(server)
        if tau:
            self.params.follow(f"{name}-target", name)

    def step(self, loss):
        """Minimises the sum of the losses."""
        for p, g in zip(self.parameters, torch.autograd.grad(loss.sum(), self.parameters), strict=True):
            p.grad = g
        self.optimizer.step()

    def follow(self):
        """Moves the target by tau towards the network."""
        with torch.no_grad():
            if self.server is None:
                for t, p in zip(self.target.parameters(), self.parameters, strict=True):
                    t.lerp_(p, self.tau)
                return
            self.params.follow(f"{self.name}-target", self.name, self.tau)
            values, at = torch.from_numpy(self.params.pull(f"{self.name}-target")[0]), 0
            for t in self.target.parameters():
                t.copy_(values[at:at + t.numel()].view_as(t))
                at += t.numel()
