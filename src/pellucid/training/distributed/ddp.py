"""Distributed training (torchrun) over torch.distributed, and data parallelism (DDP).

With DDP each process has the whole model, and their gradients are combined; with FSDP2 (fsdp.py)
each has a shard of it. Either way the loss of a step is divided by the target tokens of all
processes, so n processes take the same step as one process over the same n batches.

Numbers that the processes agree on travel through gloo, on the CPU; gradients through gloo or,
between GPUs, NCCL. Plain data travels as JSON: nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from pellucid.config import ModelConfig, TrainingConfig
from pellucid.errors import InputError, PellucidError
from pellucid.model import Transformer
from pellucid.tokenizers.sentencepiece import BOS_ID, EOS_ID
from pellucid.training.checkpoint.sharded_tensors import Portion, Stored
from pellucid.training.distributed.process_group import clip_grad_norm

_PATIENCE = timedelta(days=7)  # while process 0 prepares a large corpus
_SMALL = 1024  # bytes: a value up to this size is sent together with its length

_LOST = ("gloo", "NCCL", "Connection closed", "Connection reset", "Timed out", "timed out")
"""Words in the errors of torch.distributed when another process is gone; they have no type."""


class LostProcessError(PellucidError):
    """Another process of the run ended or does not answer."""

    def __init__(self, rank: int, timeout: float) -> None:
        super().__init__(
            f"process {rank} lost another one, which failed, was killed, or did not answer for "
            f"{timeout:g} seconds (training.timeout): look for its own error; resume from the last "
            "checkpoint with --resume"
        )


class DistributedGroup:
    """What DDP and FSDP have in common: rendezvous, and communication of plain data."""

    def __init__(self, config: TrainingConfig, device: torch.device) -> None:
        if config.device.startswith("cuda:") or device.type == "mps":
            raise InputError(
                f"training.device = {config.device!r} is one device, and these are several "
                "processes: set 'cuda' (each takes its own), 'cpu' or 'auto'"
            )
        self.timeout = config.timeout
        self.device = device
        if device.type == "cuda":
            torch.cuda.set_device(device)
        timeout = timedelta(seconds=config.timeout)
        with self.lost_process_errors():
            store, rank, world = next(rendezvous("env://", timeout=timeout))
            store.set_timeout(timeout)
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                timeout=timeout,
                store=PrefixStore(restart_prefix(), store),
                rank=rank,
                world_size=world,
            )
            self.rank, self.world = dist.get_rank(), dist.get_world_size()
            self._patient = dist.new_group(backend="gloo", timeout=_PATIENCE)
        # DDP and FSDP both average gradients over the processes.
        self.gradient_factor = float(self.world)

    def sum(self, *numbers: float) -> list[float]:
        """Sum each number over the processes."""
        return self._all_reduce(torch.tensor(numbers, dtype=torch.float64), dist.ReduceOp.SUM)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return bool(self._all_reduce(torch.tensor([int(flag)]), dist.ReduceOp.MAX)[0])

    def _all_reduce(self, tensor: Tensor, operation: Any) -> list[Any]:
        with self.lost_process_errors():
            dist.all_reduce(tensor, operation)
        return tensor.tolist()

    def broadcast(self, value: Any, *, patient: bool = False) -> Any:
        """Return process 0's value (plain data)."""
        body = json.dumps(value).encode() if self.rank == 0 else b""
        group = self._patient if patient else None
        first = _bytes_tensor(len(body).to_bytes(8, "little") + body[:_SMALL], 8 + _SMALL)
        with self.lost_process_errors():
            dist.broadcast(first, 0, group=group)
            data = first.numpy().tobytes()
            size = int.from_bytes(data[:8], "little")
            if size <= _SMALL:
                return json.loads(data[8 : 8 + size])
            whole = _bytes_tensor(body, size)
            dist.broadcast(whole, 0, group=group)
        return json.loads(whole.numpy().tobytes())

    def gather(self, value: Any) -> list[Any]:
        """Return the values (plain data) of all processes, by rank."""
        body = json.dumps(value).encode()
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        with self.lost_process_errors():
            dist.all_gather(sizes, torch.tensor([len(body)]))
            longest = max(int(size) for size in sizes)
            parts = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.world)]
            dist.all_gather(parts, _bytes_tensor(body, longest))
        return [
            json.loads(part.numpy().tobytes()[: int(size)])
            for part, size in zip(parts, sizes, strict=True)
        ]

    def barrier(self) -> None:
        """Wait for all processes."""
        self.any(False)

    def close(self) -> None:
        """Leave the group; processes that still wait for this one get an error."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def lost_process_errors(self) -> Iterator[None]:
        """Context that turns the errors of a lost process into one line; others pass unchanged."""
        try:
            yield
        except PellucidError:
            raise
        except RuntimeError as error:
            if isinstance(error, dist.DistError) or any(part in str(error) for part in _LOST):
                raise LostProcessError(int(os.environ["RANK"]), self.timeout) from error
            raise


class DataParallelGroup(DistributedGroup):
    """Data parallelism: each process has the whole model (DistributedDataParallel)."""

    def build_model(self, config: ModelConfig, *, initialised: bool) -> Transformer:
        """Build a model on the device."""
        return Transformer(config).to(self.device)

    def wrap(self, objective: nn.Module) -> nn.Module:
        """Wrap the objective so that its gradients are averaged over the processes."""
        with self.lost_process_errors():
            with warnings.catch_warnings():
                # The tables of positions grow with the longest sentence that a process has seen,
                # so they must not be broadcast. Newer PyTorch has another name for the option.
                warnings.simplefilter("ignore", FutureWarning)
                wrapped = DistributedDataParallel(
                    objective, broadcast_buffers=False, gradient_as_bucket_view=True
                )
            # After its first backward pass DDP sorts the gradients into new buckets, and with
            # three or more processes the buckets decide the order of each sum. So that a resumed
            # run is bitwise equal to an uninterrupted one, that first pass runs here, over no
            # tokens.
            nothing = torch.zeros(0, dtype=torch.int64, device=self.device)
            source, target = (torch.tensor([[i]], device=self.device) for i in (EOS_ID, BOS_ID))
            wrapped(source, target, nothing, nothing).smoothed.backward()
            wrapped.zero_grad()
        return wrapped

    def gradient_sync(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Context of a forward and backward pass: only the last of a step combines gradients."""
        assert isinstance(wrapped, DistributedDataParallel)
        return self.lost_process_errors() if last else wrapped.no_sync()

    def clip_gradients(self, parameters: list[nn.Parameter], max_norm: float) -> Tensor:
        """Clip the gradient norm to `max_norm` (0: no clipping); return it as it was before."""
        return clip_grad_norm(parameters, max_norm)

    def portion(self, tensors: Mapping[str, Tensor]) -> Portion | None:
        """Return all tensors in process 0, as every process has the same."""
        return Portion(tensors) if self.rank == 0 else None

    def load_tensors(
        self, stored: Stored, parameters: Mapping[str, nn.Parameter]
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield each tensor whole."""
        return iter(stored.items())

    def whole_model(self, model: Transformer) -> AbstractContextManager[Transformer]:
        """Return the model itself."""
        return nullcontext(model)


def restart_prefix() -> str:
    """Return a key prefix for torchrun's store that differs between restarts.

    torchrun gives restarted processes the store of those before them, which still holds the old
    addresses. On several machines each torchrun counts its own restarts, so the count cannot be
    used there; but torchrun can be told to make a new store each time.
    """
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        return f"pellucid/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if shared and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        raise InputError(
            "torchrun on several machines can restart processes (--max-restarts) only with "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: set it in torchrun's environment everywhere"
        )
    return "pellucid"


def _bytes_tensor(data: bytes, size: int) -> Tensor:
    return torch.frombuffer(bytearray(data.ljust(size, b"\0")), dtype=torch.uint8)
