"""A batch as tensors on a device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.data.batches import Batch


class BatchTensors(NamedTuple):
    """The inputs of the model and the targets of the loss."""

    source: Tensor
    """(B, S) source tokens."""

    target_in: Tensor
    """(B, T) decoder input for teacher forcing: the target, shifted right by one position."""

    positions: Tensor
    """(N,) indices of the real target tokens, without padding, in the flattened (B · T)."""

    targets: Tensor
    """(N,) tokens to predict at these positions."""


def batch_to_tensors(batch: Batch, device: torch.device) -> BatchTensors:
    """Copy a batch to the device and leave padding out of the targets.

    An empty batch becomes one sentence without targets: its loss is a sum over no tokens, so a
    process that has run out of batches can still take part in a distributed step.
    """
    if len(batch):
        source, target_in, target_out = batch.source, batch.target_in, batch.target_out
    else:
        token = 1 if batch.pad_id == 0 else 0  # any token but padding
        source, target_in, target_out = (np.array([[t]]) for t in (token, token, batch.pad_id))
    flat = target_out.reshape(-1)  # (B, T) to (B · T)
    positions = np.flatnonzero(flat != batch.pad_id)
    return BatchTensors(
        *(
            torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)
            for array in (source, target_in, positions, flat[positions])
        )
    )
