"""Weight averaging, which translates better than the last weights: EMA and checkpoint averaging."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from pellucid.errors import InputError


class MovingAverage:
    """Exponential moving average (EMA) of the weights.

    After each step, average += (1 - decay) (weights - average). Early in the run the decay is
    lower, (1 + step) / (10 + step), so that the initial weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {
            name: parameter.detach().clone() for name, parameter in model.named_parameters()
        }

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Update the average with the weights after a step (counted from 1)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        parameters = dict(model.named_parameters())
        torch._foreach_lerp_(
            list(self.weights.values()), [parameters[name] for name in self.weights], 1 - decay
        )

    @contextmanager
    def applied_to(self, model: nn.Module) -> Iterator[None]:
        """Context in which the model has the averaged weights; afterwards it has its own again."""
        parameters = dict(model.named_parameters())
        own = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        try:
            _copy_weights(self.weights, parameters)
            yield
        finally:
            _copy_weights(own, parameters)

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Restore a saved average."""
        for name, tensor in self.weights.items():
            tensor.copy_(weights[name])


@torch.no_grad()
def _copy_weights(weights: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
    for name, parameter in parameters.items():
        parameter.copy_(weights[name])


class _Mean(Mapping[str, Tensor]):
    """The mean of several checkpoints' weights, computed one tensor at a time.

    Sums are in float64, so that the order of the checkpoints does not show after rounding.
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


def average_weights(weights: Sequence[Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    """Average the weights of checkpoints; only one tensor at a time is in memory."""
    if not weights:
        raise InputError("no checkpoint to average: save at least one")
    if any(some.keys() != weights[0].keys() for some in weights):
        raise InputError("a checkpoint has other weights than the first: they cannot be averaged")
    return _Mean(weights)
