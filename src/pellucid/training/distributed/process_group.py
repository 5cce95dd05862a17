"""The processes of a run, as the loop sees them. Here: one alone.

Everything that all processes must agree on (token counts, whether to stop, what went wrong) goes
through a `Group`, so that the loop reads the same for one process and for many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from pellucid.config import ModelConfig
from pellucid.errors import PellucidError
from pellucid.model import Transformer
from pellucid.training.checkpoint.sharded_tensors import Portion, Stored

Result = TypeVar("Result")


class ProcessGroup(Protocol):
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

    def built(self, config: ModelConfig, *, drawn: bool) -> Transformer:
        """A new model, as this process holds it; drawn: with first weights, else with any."""

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective with its gradients combined over the processes."""

    def accumulating(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Around a forward and backward pass: only the last one of a step combines gradients."""

    def gradient_norm(self, parameters: list[nn.Parameter], clip: float) -> Tensor:
        """The length of the whole gradient; a longer one than `clip` is shortened to it."""

    def portion(self, tensors: Mapping[str, Tensor]) -> Portion | None:
        """Of the tensors, what is this process's to save; None if nothing is."""

    def loaded(
        self, stored: Stored, parameters: Mapping[str, nn.Parameter]
    ) -> Iterator[tuple[str, Tensor]]:
        """Saved tensors by name, one after the other, each as this process holds it.

        Their names are those of parameters, or go on with "/" and what it is of the parameter.
        """

    def plain(self, model: Transformer) -> AbstractContextManager[Transformer]:
        """The model in one piece, with which a process may do what it likes."""

    def close(self) -> None:
        """The end of the run."""


def in_main(
    group: ProcessGroup, work: Callable[[], Result], *, patient: bool = False
) -> Result | None:
    """Do something in process 0, while the others wait (and get None); patient: for days.

    If it fails there with a `PellucidError`, that is raised in all of them.
    """
    result, error = _tried(work) if group.rank == 0 else (None, None)
    _raise_first([group.from_main(_told(error), patient=patient)], error)
    return result


def in_all(group: ProcessGroup, work: Callable[[], Result]) -> list[Result]:
    """Do something in every process; what came of it (plain data), in their order.

    If it fails in some with a `PellucidError`, that of the first of them is raised in all.
    """
    result, error = _tried(work)
    results, failures = zip(*group.gathered([result, _told(error)]), strict=True)
    _raise_first(failures, error)
    return list(results)


def _tried(work: Callable[[], Result]) -> tuple[Result | None, PellucidError | None]:
    try:
        return work(), None
    except PellucidError as problem:
        return None, problem


def _told(error: PellucidError | None) -> dict[str, Any] | None:
    """An error as plain data."""
    return None if error is None else {"text": str(error), "exit_code": error.exit_code}


def _raise_first(failures: Iterable[dict[str, Any] | None], own: PellucidError | None) -> None:
    """Raise what some process told, if one did: in each process, so that one of them prints it."""
    failure = next((told for told in failures if told is not None), None)
    if failure is not None:
        error = own if _told(own) == failure and own is not None else PellucidError(failure["text"])
        error.exit_code, error.everywhere = failure["exit_code"], True
        raise error


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

    def built(self, config: ModelConfig, *, drawn: bool) -> Transformer:
        """A model on the device."""
        return Transformer(config).to(self.device)

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective as it is."""
        return objective

    def accumulating(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Nothing to combine."""
        return nullcontext()

    def gradient_norm(self, parameters: list[nn.Parameter], clip: float) -> Tensor:
        """The length of the gradient, which is shortened to `clip` unless that is 0."""
        return clipped(parameters, clip)

    def portion(self, tensors: Mapping[str, Tensor]) -> Portion | None:
        """All of them."""
        return Portion(tensors)

    def loaded(
        self, stored: Stored, parameters: Mapping[str, nn.Parameter]
    ) -> Iterator[tuple[str, Tensor]]:
        """Each tensor."""
        return iter(stored.items())

    def plain(self, model: Transformer) -> AbstractContextManager[Transformer]:
        """The model."""
        return nullcontext(model)

    def close(self) -> None:
        """Nothing to end."""
