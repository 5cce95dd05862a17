"""Averages of weights over time, which translate better than the last weights alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

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


def mean_of(files: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights in some safetensors files, one file in memory at a time.

    Sums are in float64, so that the order of the files makes no difference that lasts.
    """
    from safetensors.torch import load_file

    if not files:
        raise InputError("no checkpoint to average: save at least one")
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for file in files:
        weights = load_file(file)
        if total and weights.keys() != total.keys():
            raise InputError(f"{file} has other weights than {files[0]}: they cannot be averaged")
        for name, tensor in weights.items():
            kinds[name] = tensor.dtype
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(files)).to(kinds[name]) for name, tensor in total.items()}
