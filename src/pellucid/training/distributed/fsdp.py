"""Fully sharded data parallelism: FSDP2.

Each process holds a shard of every layer's weights, gradients and optimizer state, and gathers a
layer only while it is used. It also saves and loads only its own shard.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.nn.modules.module import register_module_parameter_registration_hook

from pellucid.config import ModelConfig
from pellucid.model import Transformer
from pellucid.training.checkpoint.sharded_tensors import Portion, Stored
from pellucid.training.distributed.ddp import DistributedGroup
from pellucid.training.distributed.process_group import clip_grad_norm


class FullyShardedGroup(DistributedGroup):
    """Fully sharded: each process has a shard of every matrix, with a layer as the unit."""

    def build_model(self, config: ModelConfig, *, initialised: bool) -> Transformer:
        """Build a model of which each process keeps its shard on its device.

        Only process 0 ever builds it whole, in the memory of its machine, to draw the initial
        weights; the others get their shards tensor by tensor.
        """
        first = Transformer(config) if initialised and self.rank == 0 else None
        with _meta_parameters():
            model = Transformer(config)
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with self.lost_process_errors():
            self._shard(model)
            model.to_empty(device=self.device)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
            if initialised:
                for name, parameter in model.named_parameters():
                    self._scatter(parameter, None if first is None else first.get_parameter(name))
        return model

    def _shard(self, model: Transformer) -> None:
        """Shard each layer as a unit; the rest (embeddings, final norms) is another unit."""
        # A decoder layer also returns its keys and values, which are views. The warning is about
        # changing them in place, which training does not do.
        warnings.filterwarnings("ignore", ".*returned a view tensor", UserWarning)
        mesh = init_device_mesh(self.device.type, (self.world,))
        for stack in (model.encoder, model.decoder):
            for layer in stack.layers:
                fully_shard(layer, mesh=mesh)
        # Not resharded after the forward pass: the loss needs the weights of the output layer.
        fully_shard(model, mesh=mesh, reshard_after_forward=False)
        register_fsdp_forward_method(model, "states")

    def _scatter(self, parameter: Tensor, whole: Tensor | None) -> None:
        """Give each process its shard of a tensor that only process 0 has."""
        assert isinstance(parameter, DTensor)
        tensor = torch.empty(parameter.shape) if whole is None else whole
        with self.lost_process_errors():
            mesh, placements = parameter.device_mesh, parameter.placements
            parameter.copy_(distribute_tensor(tensor.to(self.device), mesh, placements))

    def wrap(self, objective: nn.Module) -> nn.Module:
        """Return the objective as it is: its model is sharded already."""
        return objective

    @contextmanager
    def gradient_sync(self, wrapped: nn.Module, last: bool) -> Iterator[None]:
        """Context of a forward and backward pass: only the last of a step combines gradients."""
        for module in wrapped.children():
            if isinstance(module, FSDPModule):
                module.set_requires_gradient_sync(last)
        with self.lost_process_errors():
            yield

    def clip_gradients(self, parameters: list[nn.Parameter], max_norm: float) -> Tensor:
        """Clip the gradient norm to `max_norm` (0: no clipping); return it as it was before."""
        with self.lost_process_errors():
            return _unsharded(clip_grad_norm(parameters, max_norm))

    def portion(self, tensors: Mapping[str, Tensor]) -> Portion | None:
        """Return this process's shards; process 0 also saves what is not sharded (step counts)."""
        held, starts = {}, {}
        for name, tensor in tensors.items():
            if isinstance(tensor, DTensor):
                held[name], starts[name] = tensor.to_local(), _box_of(tensor)[0]
            elif self.rank == 0:
                held[name], starts[name] = tensor, [0] * tensor.ndim
        return Portion(held, starts)

    def load_tensors(
        self, stored: Stored, parameters: Mapping[str, nn.Parameter]
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield this process's shard of each tensor; nothing else is read from disk."""
        for name in stored:
            of: Tensor | None = parameters.get(name.partition("/")[0])
            if isinstance(of, DTensor) and stored.shape(name) == list(of.shape):
                shard = DTensor.from_local(
                    stored.part(name, *_box_of(of)).to(of.device),
                    of.device_mesh,
                    of.placements,
                    shape=of.shape,
                    stride=of.stride(),
                )
                yield name, shard
            else:  # scalars
                yield name, stored[name]

    @contextmanager
    def whole_model(self, model: Transformer) -> Iterator[Transformer]:
        """Context with a whole copy of the model, which takes the memory of the weights again."""
        copy = Transformer(model.config).to(self.device)
        with torch.no_grad():
            parameters = dict(model.named_parameters())
            for name, parameter in copy.named_parameters():
                with self.lost_process_errors():
                    parameter.copy_(_unsharded(parameters[name]))
        yield copy


def _box_of(tensor: DTensor) -> tuple[Sequence[int], Sequence[int]]:
    """Return where this process's shard of a tensor begins in the whole, and its shape."""
    shape, start = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    return start, shape


def _unsharded(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(parameter: Tensor | None, tensor: Tensor) -> Tensor:
    """Shard a whole tensor as the parameter is sharded; scalars are returned as they are."""
    if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
        return tensor
    # No communication: each process has the whole tensor and takes its shard.
    return distribute_tensor(
        tensor.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
    )


@contextmanager
def _meta_parameters() -> Iterator[None]:
    """Context in which new modules have parameters without memory (meta); buffers are real."""

    def to_meta(module: nn.Module, name: str, parameter: nn.Parameter) -> nn.Parameter:
        if parameter.is_meta:  # a tied parameter, which is registered twice
            return parameter
        return nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    hook = register_module_parameter_registration_hook(to_meta)  # type: ignore[arg-type]
    try:
        yield
    finally:
        hook.remove()
