"""Many processes (torchrun), over torch.distributed.

`Copies` gives each process the whole model and sums their gradients (DDP); `shards.Shards` gives
each a share of it (FSDP2). Either way the loss of a step is divided by the tokens of all
processes, so that n processes take the step that one process takes over the same n batches.

Numbers that the processes agree on travel through gloo, from processor to processor; gradients
through gloo or, between GPUs, NCCL. Plain data travels as JSON: nothing is ever unpickled.
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
from pellucid.training.distributed.process_group import clipped

_PATIENCE = timedelta(days=7)  # for process 0, while it prepares a large corpus
_SMALL = 1024  # bytes of a value that travels together with its length

_LOST = ("gloo", "NCCL", "Connection closed", "Connection reset", "Timed out", "timed out")
"""What errors of torch.distributed say when another process is gone; they have no type."""


class LostProcessError(PellucidError):
    """Another process of the run ended, or does not answer."""

    def __init__(self, rank: int, timeout: float) -> None:
        super().__init__(
            f"process {rank} lost another one, which failed, was killed, or did not answer for "
            f"{timeout:g} seconds (training.timeout): look for its own error; go on from the last "
            "checkpoint with --resume"
        )


class Processes:
    """What both kinds of groups have in common: who is there, and agreeing on things."""

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
        with self.answered():
            store, rank, world = next(rendezvous("env://", timeout=timeout))
            store.set_timeout(timeout)
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                timeout=timeout,
                store=PrefixStore(attempt(), store),
                rank=rank,
                world_size=world,
            )
            self.rank, self.world = dist.get_rank(), dist.get_world_size()
            self._patient = dist.new_group(backend="gloo", timeout=_PATIENCE)
        # Both kinds average gradients over the processes.
        self.gradient_factor = float(self.world)

    def sum(self, *numbers: float) -> list[float]:
        """Each number, summed over the processes."""
        return self._reduced(torch.tensor(numbers, dtype=torch.float64), dist.ReduceOp.SUM)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return bool(self._reduced(torch.tensor([int(flag)]), dist.ReduceOp.MAX)[0])

    def _reduced(self, tensor: Tensor, how: Any) -> list[Any]:
        with self.answered():
            dist.all_reduce(tensor, how)
        return tensor.tolist()

    def from_main(self, value: Any, *, patient: bool = False) -> Any:
        """The value (plain data) that process 0 has."""
        body = json.dumps(value).encode() if self.rank == 0 else b""
        group = self._patient if patient else None
        first = _bytes_tensor(len(body).to_bytes(8, "little") + body[:_SMALL], 8 + _SMALL)
        with self.answered():
            dist.broadcast(first, 0, group=group)
            data = first.numpy().tobytes()
            size = int.from_bytes(data[:8], "little")
            if size <= _SMALL:
                return json.loads(data[8 : 8 + size])
            whole = _bytes_tensor(body, size)
            dist.broadcast(whole, 0, group=group)
        return json.loads(whole.numpy().tobytes())

    def gathered(self, value: Any) -> list[Any]:
        """The values (plain data) of all processes, in their order."""
        body = json.dumps(value).encode()
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        with self.answered():
            dist.all_gather(sizes, torch.tensor([len(body)]))
            longest = max(int(size) for size in sizes)
            parts = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.world)]
            dist.all_gather(parts, _bytes_tensor(body, longest))
        return [
            json.loads(part.numpy().tobytes()[: int(size)])
            for part, size in zip(parts, sizes, strict=True)
        ]

    def barrier(self) -> None:
        """Wait until all are here."""
        self.any(False)

    def close(self) -> None:
        """Leave the group; the others notice if they still wait for this process."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Say in one line that another process is gone; other errors pass as they are."""
        try:
            yield
        except PellucidError:
            raise
        except RuntimeError as error:
            if isinstance(error, dist.DistError) or any(part in str(error) for part in _LOST):
                raise LostProcessError(int(os.environ["RANK"]), self.timeout) from error
            raise


class DataParallel(Processes):
    """Each process has the whole model: DistributedDataParallel."""

    def built(self, config: ModelConfig, *, drawn: bool) -> Transformer:
        """A model on the device."""
        return Transformer(config).to(self.device)

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective with its gradients averaged over the processes."""
        with self.answered():
            with warnings.catch_warnings():
                # Tables of positions grow with the longest sentence that a process has seen, so
                # they must not be exchanged. Newer versions of PyTorch have another name for it.
                warnings.simplefilter("ignore", FutureWarning)
                wrapped = DistributedDataParallel(
                    objective, broadcast_buffers=False, gradient_as_bucket_view=True
                )
            # After its first backward pass DDP sorts gradients anew into buckets, and with three
            # or more processes the buckets decide the order of each sum. So that a resumed run
            # has the bits of an uninterrupted one, that first pass is made here, over no tokens.
            nothing = torch.zeros(0, dtype=torch.int64, device=self.device)
            source, target = (torch.tensor([[i]], device=self.device) for i in (EOS_ID, BOS_ID))
            wrapped(source, target, nothing, nothing).smoothed.backward()
            wrapped.zero_grad()
        return wrapped

    def accumulating(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Around a forward and backward pass: only the last one of a step combines gradients."""
        assert isinstance(wrapped, DistributedDataParallel)
        return self.answered() if last else wrapped.no_sync()

    def gradient_norm(self, parameters: list[nn.Parameter], clip: float) -> Tensor:
        """The length of the whole gradient; a longer one than `clip` is shortened to it."""
        return clipped(parameters, clip)

    def portion(self, tensors: Mapping[str, Tensor]) -> Portion | None:
        """All of them, in process 0: each process has them whole."""
        return Portion(tensors) if self.rank == 0 else None

    def loaded(
        self, stored: Stored, parameters: Mapping[str, nn.Parameter]
    ) -> Iterator[tuple[str, Tensor]]:
        """Each tensor: each process needs it whole."""
        return iter(stored.items())

    def plain(self, model: Transformer) -> AbstractContextManager[Transformer]:
        """The model itself."""
        return nullcontext(model)


def attempt() -> str:
    """Keeps apart what processes write before and after torchrun restarts them.

    torchrun gives a restarted group the store of the old one, in which the addresses of processes
    that are gone still stand. On several machines each torchrun counts its own restarts, so the
    count is of no use there; but torchrun can be told to make a new store each time.
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
