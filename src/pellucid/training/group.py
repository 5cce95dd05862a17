"""The processes of a run, as the loop sees them. Here: one alone.

Everything that all processes must agree on (token counts, whether to stop, what went wrong) goes
through a `Group`, so that the loop reads the same for one process and for many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from pellucid.errors import PellucidError
from pellucid.model import Transformer

Result = TypeVar("Result")


class Group(Protocol):
    """What the loop needs of the processes that train together."""

    rank: int
    world: int

    gradient_factor: float
    """What a loss is multiplied by so that gradients, as the group combines them, are sums over
    the processes (a group that averages them needs `world`)."""

    def sum(self, *numbers: float) -> list[float]:
        """Each number, summed over the processes."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""

    def from_main(self, value: Any, *, patient: bool = False) -> Any:
        """The value (plain data) that process 0 has; patient: however long it needs for it."""

    def gathered(self, value: Any) -> list[Any]:
        """The values (plain data) of all processes, in their order."""

    def barrier(self) -> None:
        """Wait until all are here."""

    def placed(self, model: Transformer) -> Transformer:
        """A new model, as this process holds it; before anything takes hold of its parameters."""

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective with its gradients combined over the processes."""

    def accumulating(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Around a forward and backward pass: only the last one of a step combines gradients."""

    def gradient_norm(self, parameters: list[nn.Parameter], clip: float) -> Tensor:
        """The length of the whole gradient; a longer one than `clip` is shortened to it."""

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors in one piece each, for process 0 to save."""

    def cut(
        self, tensors: Mapping[str, Tensor], parameters: Mapping[str, nn.Parameter]
    ) -> dict[str, Tensor]:
        """Of tensors that `whole` gave, what this process holds.

        Their names are those of parameters, or go on with "/" and what it is of the parameter.
        """

    def plain(self, model: Transformer) -> AbstractContextManager[Transformer]:
        """The model in one piece, with which a process may do what it likes."""

    def close(self) -> None:
        """The end of the run."""


def in_main(group: Group, work: Callable[[], Result], *, patient: bool = False) -> Result | None:
    """Do something in process 0, while the others wait (and get None); patient: for days.

    If it fails there with a `PellucidError`, that is raised in all of them.
    """
    result, error, failure = None, None, None
    if group.rank == 0:
        try:
            result = work()
        except PellucidError as problem:
            error, failure = problem, {"text": str(problem), "exit_code": problem.exit_code}
            error.everywhere = True
    failure = group.from_main(failure, patient=patient)
    if error is not None:
        raise error
    if failure is not None:
        error = PellucidError(failure["text"])
        error.exit_code, error.everywhere = failure["exit_code"], True
        raise error
    return result


def clipped(parameters: list[nn.Parameter], clip: float) -> Tensor:
    """The length of the gradient, which is shortened to `clip` unless that is 0."""
    return torch.nn.utils.clip_grad_norm_(parameters, clip or float("inf"))


class Alone:
    """One process."""

    rank = 0
    world = 1
    gradient_factor = 1.0

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device

    def sum(self, *numbers: float) -> list[float]:
        """The numbers."""
        return list(numbers)

    def any(self, flag: bool) -> bool:
        """The flag."""
        return flag

    def from_main(self, value: Any, *, patient: bool = False) -> Any:
        """The value."""
        return value

    def gathered(self, value: Any) -> list[Any]:
        """The one value."""
        return [value]

    def barrier(self) -> None:
        """Nobody to wait for."""

    def placed(self, model: Transformer) -> Transformer:
        """The model on the device."""
        return model.to(self.device)

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective as it is."""
        return objective

    def accumulating(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Nothing to combine."""
        return nullcontext()

    def gradient_norm(self, parameters: list[nn.Parameter], clip: float) -> Tensor:
        """The length of the gradient, which is shortened to `clip` unless that is 0."""
        return clipped(parameters, clip)

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors."""
        return dict(tensors)

    def cut(
        self, tensors: Mapping[str, Tensor], parameters: Mapping[str, nn.Parameter]
    ) -> dict[str, Tensor]:
        """The tensors."""
        return dict(tensors)

    def plain(self, model: Transformer) -> AbstractContextManager[Transformer]:
        """The model."""
        return nullcontext(model)

    def close(self) -> None:
        """Nothing to end."""
