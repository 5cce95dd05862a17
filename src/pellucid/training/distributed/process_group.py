"""The process group of a run, as the training loop sees it, and that of a single process.

Everything that the processes must agree on (token counts, whether to stop, errors) goes through
a `ProcessGroup`, so that the loop is the same for one process and for many.
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
    """What the training loop needs of the processes that train together."""

    rank: int
    world: int

    gradient_factor: float
    """Factor on the loss that makes the combined gradients sums over the processes (`world` where
    the group averages them)."""

    def sum(self, *numbers: float) -> list[float]:
        """Sum each number over the processes."""

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""

    def broadcast(self, value: Any, *, patient: bool = False) -> Any:
        """Return process 0's value (plain data); patient: wait for it without the usual timeout."""

    def gather(self, value: Any) -> list[Any]:
        """Return the values (plain data) of all processes, by rank."""

    def barrier(self) -> None:
        """Wait for all processes."""

    def build_model(self, config: ModelConfig, *, initialised: bool) -> Transformer:
        """Build a model as this process holds it; initialised: with initial weights, else any."""

    def wrap(self, objective: nn.Module) -> nn.Module:
        """Wrap the objective so that its gradients are combined over the processes."""

    def gradient_sync(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Context of a forward and backward pass: only the last of a step combines gradients."""

    def clip_gradients(self, parameters: list[nn.Parameter], max_norm: float) -> Tensor:
        """Clip the gradient norm to `max_norm` (0: no clipping); return it as it was before."""

    def portion(self, tensors: Mapping[str, Tensor]) -> Portion | None:
        """Return the part of the tensors that this process saves; None if it saves nothing."""

    def load_tensors(
        self, stored: Stored, parameters: Mapping[str, nn.Parameter]
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield saved tensors by name, each as this process holds it.

        A name is that of a parameter, or "<parameter>/<what>" for its optimizer state.
        """

    def whole_model(self, model: Transformer) -> AbstractContextManager[Transformer]:
        """Context with the whole model, which this process may use independently of the others."""

    def close(self) -> None:
        """End the run's process group."""


def in_main(
    group: ProcessGroup, work: Callable[[], Result], *, patient: bool = False
) -> Result | None:
    """Run a function in process 0 while the others wait and get None; patient: for days.

    If it fails with a `PellucidError`, that error is raised in all processes.
    """
    result, error = _attempt(work) if group.rank == 0 else (None, None)
    _raise_first([group.broadcast(_error_data(error), patient=patient)], error)
    return result


def in_all(group: ProcessGroup, work: Callable[[], Result]) -> list[Result]:
    """Run a function in every process; return the results (plain data) by rank.

    If it fails in some with a `PellucidError`, the error of the first of them is raised in all.
    """
    result, error = _attempt(work)
    results, failures = zip(*group.gather([result, _error_data(error)]), strict=True)
    _raise_first(failures, error)
    return list(results)


def _attempt(work: Callable[[], Result]) -> tuple[Result | None, PellucidError | None]:
    try:
        return work(), None
    except PellucidError as problem:
        return None, problem


def _error_data(error: PellucidError | None) -> dict[str, Any] | None:
    """Return an error as plain data."""
    return None if error is None else {"text": str(error), "exit_code": error.exit_code}


def _raise_first(failures: Iterable[dict[str, Any] | None], own: PellucidError | None) -> None:
    """Raise the first failure, if there is one, in every process, so that one of them prints it."""
    failure = next((data for data in failures if data is not None), None)
    if failure is not None:
        error = (
            own
            if _error_data(own) == failure and own is not None
            else PellucidError(failure["text"])
        )
        error.exit_code, error.on_all_ranks = failure["exit_code"], True
        raise error


def clip_grad_norm(parameters: list[nn.Parameter], max_norm: float) -> Tensor:
    """Clip the gradient norm to `max_norm` (0: no clipping); return it as it was before."""
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm or float("inf"))


class SingleProcess:
    """A run of one process."""

    rank = 0
    world = 1
    gradient_factor = 1.0

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device

    def sum(self, *numbers: float) -> list[float]:
        """Return the numbers."""
        return list(numbers)

    def any(self, flag: bool) -> bool:
        """Return the flag."""
        return flag

    def broadcast(self, value: Any, *, patient: bool = False) -> Any:
        """Return the value."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return the one value."""
        return [value]

    def barrier(self) -> None:
        """Return at once."""

    def build_model(self, config: ModelConfig, *, initialised: bool) -> Transformer:
        """Build a model on the device."""
        return Transformer(config).to(self.device)

    def wrap(self, objective: nn.Module) -> nn.Module:
        """Return the objective as it is."""
        return objective

    def gradient_sync(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Return an empty context: there is nothing to combine."""
        return nullcontext()

    def clip_gradients(self, parameters: list[nn.Parameter], max_norm: float) -> Tensor:
        """Clip the gradient norm to `max_norm` (0: no clipping); return it as it was before."""
        return clip_grad_norm(parameters, max_norm)

    def portion(self, tensors: Mapping[str, Tensor]) -> Portion | None:
        """Return all tensors."""
        return Portion(tensors)

    def load_tensors(
        self, stored: Stored, parameters: Mapping[str, nn.Parameter]
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield each tensor."""
        return iter(stored.items())

    def whole_model(self, model: Transformer) -> AbstractContextManager[Transformer]:
        """Return the model."""
        return nullcontext(model)

    def close(self) -> None:
        """Do nothing."""
