"""Many small networks of one shape, computed in one pass.

    >>> import torch
    >>> from parley.stack import Stack
    >>> networks = [torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)) for _ in range(5)]
    >>> stack = Stack(networks)
    >>> stack(torch.zeros(5, 7, 3)).shape  # 7 rows for each of the five
    torch.Size([5, 7, 2])
    >>> bool(torch.allclose(stack(torch.ones(5, 7, 3))[4], networks[4](torch.ones(7, 3))))
    True

A small network costs the time of its calls, not that of its products: a pass of a stack takes about as long as that of one network. It is for
the agents of MADDPG, twin critics, ensembles, and several seeds of one training. parley.Policy serves one (`stack=`). This module needs torch."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from parley.wire import Invalid

Base: Any = torch.nn.Module

# What has no parameters and computes each number, or each row, alone.
ELEMENTWISE = (torch.nn.Identity, torch.nn.ReLU, torch.nn.LeakyReLU, torch.nn.ELU, torch.nn.GELU, torch.nn.SiLU, torch.nn.Tanh, torch.nn.Sigmoid, torch.nn.Softplus)


class StackedLinear(Base):  # type: ignore[misc]
    """k layers torch.nn.Linear of one shape. weight: [k, out, in], bias: [k, 1, out] or None. Takes [k, n, in], returns [k, n, out]."""

    def __init__(self, layers: Sequence[Any]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        has_bias = layers[0].bias is not None
        self.bias = torch.nn.Parameter(torch.stack([layer.bias.detach() for layer in layers])[:, None]) if has_bias else None

    def forward(self, x: Any) -> Any:
        if self.bias is None:
            return torch.bmm(x, self.weight.transpose(1, 2))
        return torch.baddbmm(self.bias, x, self.weight.transpose(1, 2))

    def one(self, i: int) -> Any:
        """Returns a copy of layer i."""
        made = torch.nn.Linear(self.weight.shape[2], self.weight.shape[1], self.bias is not None)
        with torch.no_grad():
            made.weight.copy_(self.weight[i])
            if self.bias is not None:
                made.bias.copy_(self.bias[i, 0])
        return made


class Stack(Base):  # type: ignore[misc]
    """k networks as one. networks: k of torch.nn.Sequential (or k of torch.nn.Linear), which have the same layers: Linear of the same sizes, and activations.
    Takes [k, n, in], returns [k, n, out]. The parameters begin as copies of the networks'."""

    def __init__(self, networks: Sequence[Any]) -> None:
        super().__init__()
        if not networks:
            raise Invalid("networks", "is empty: pass at least one network")
        each = [list(network) if isinstance(network, torch.nn.Sequential) else [network] for network in networks]
        self.n = len(each)
        self.layers = torch.nn.ModuleList()
        for i, layers in enumerate(each):
            if len(layers) != len(each[0]):
                raise Invalid(f"networks[{i}]", f"has {len(layers)} layers, but networks[0] has {len(each[0])}")
        for at, stacked in enumerate(zip(*each, strict=True)):
            self.layers.append(self._stacked(at, stacked))

    @staticmethod
    def _stacked(at: int, layers: Sequence[Any]) -> Any:
        first = layers[0]
        is_linear = type(first) is torch.nn.Linear
        if not is_linear and type(first) not in ELEMENTWISE:
            known = ", ".join(kind.__name__ for kind in (torch.nn.Linear, *ELEMENTWISE))
            raise Invalid(f"networks[0][{at}]", f"is a {type(first).__name__}, a stack has layers of {known}")
        for i, layer in enumerate(layers):
            if repr(layer) != repr(first) or type(layer) is not type(first):
                raise Invalid(f"networks[{i}][{at}]", f"is {layer}, but networks[0][{at}] is {first}: they must have one shape")
        return StackedLinear(layers) if is_linear else copy.deepcopy(first)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def one(self, i: int) -> Any:
        """Returns a copy of network i, a torch.nn.Sequential."""
        return torch.nn.Sequential(*(layer.one(i) if isinstance(layer, StackedLinear) else copy.deepcopy(layer) for layer in self.layers))
