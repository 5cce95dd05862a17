"""Averages of weights over time, which translate better than the last weights alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from pellucid.errors import InputError


class MovingAverage:
    """An exponential moving average: after each step, average += (1 - decay) (weights - average).

    While the run is young the decay is lower, (1 + step) / (10 + step), so that the first weights
    are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {
            name: parameter.detach().clone() for name, parameter in model.named_parameters()
        }

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after a step (counted from 1)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        parameters = dict(model.named_parameters())
        torch._foreach_lerp_(
            list(self.weights.values()), [parameters[name] for name in self.weights], 1 - decay
        )

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Go on from a saved average."""
        for name, tensor in self.weights.items():
            tensor.copy_(weights[name])


class _Mean(Mapping[str, Tensor]):
    """The mean of some weights, made for one tensor at a time.

    Sums are in float64, so that the order of the weights makes no difference that lasts.
    """

    def __init__(self, weights: Sequence[Mapping[str, Tensor]]) -> None:
        self.weights = weights

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights[0])

    def __len__(self) -> int:
        return len(self.weights[0])

    def __getitem__(self, name: str) -> Tensor:
        first, *others = (weights[name] for weights in self.weights)
        total = first.double()
        for tensor in others:
            total = total + tensor.double()
        return (total / len(self.weights)).to(first.dtype)


def mean_of(weights: Sequence[Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    """The mean of the weights of some checkpoints, of which one tensor is in memory at a time."""
    if not weights:
        raise InputError("no checkpoint to average: save at least one")
    if any(some.keys() != weights[0].keys() for some in weights):
        raise InputError("a checkpoint has other weights than the first: they cannot be averaged")
    return _Mean(weights)
