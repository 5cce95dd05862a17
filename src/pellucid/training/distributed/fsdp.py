"""Many processes that share one model: FSDP2.

Each holds a share of every layer's weights, gradients and optimizer state, and gathers a layer only
while it is used. It also saves its own share only, and loads no more.
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
from pellucid.training.distributed.ddp import Processes
from pellucid.training.distributed.process_group import clipped


class FullySharded(Processes):
    """Each process has a share of every matrix: FSDP2, a layer at a time."""

    def built(self, config: ModelConfig, *, drawn: bool) -> Transformer:
        """A model of which each process keeps its share on its device.

        Nobody makes it whole but process 0, to draw the first weights in the memory of its machine;
        the others get their shares of them tensor by tensor.
        """
        first = Transformer(config) if drawn and self.rank == 0 else None
        with _weightless():
            model = Transformer(config)
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with self.answered():
            self._cut(model)
            model.to_empty(device=self.device)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
            if drawn:
                for name, parameter in model.named_parameters():
                    self._deal(parameter, None if first is None else first.get_parameter(name))
        return model

    def _cut(self, model: Transformer) -> None:
        """Layer by layer; what is in no layer (the embeddings, the final norms) is another unit."""
        # A decoder layer also returns its keys and values, which are views. The warning is about
        # changing them in place, which training does not.
        warnings.filterwarnings("ignore", ".*returned a view tensor", UserWarning)
        mesh = init_device_mesh(self.device.type, (self.world,))
        for stack in (model.encoder, model.decoder):
            for layer in stack.layers:
                fully_shard(layer, mesh=mesh)
        # Not cut again after the forward pass: the loss needs the output's weights then.
        fully_shard(model, mesh=mesh, reshard_after_forward=False)
        register_fsdp_forward_method(model, "states")

    def _deal(self, parameter: Tensor, whole: Tensor | None) -> None:
        """Give each process its share of a tensor, which only process 0 has."""
        assert isinstance(parameter, DTensor)
        tensor = torch.empty(parameter.shape) if whole is None else whole
        with self.answered():
            mesh, placements = parameter.device_mesh, parameter.placements
            parameter.copy_(distribute_tensor(tensor.to(self.device), mesh, placements))

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective as it is: the model in it is cut already."""
        return objective

    @contextmanager
    def accumulating(self, wrapped: nn.Module, last: bool) -> Iterator[None]:
        """Around a forward and backward pass: only the last one of a step combines gradients."""
        for module in wrapped.children():
            if isinstance(module, FSDPModule):
                module.set_requires_gradient_sync(last)
        with self.answered():
            yield

    def gradient_norm(self, parameters: list[nn.Parameter], clip: float) -> Tensor:
        """The length of the whole gradient; a longer one than `clip` is shortened to it."""
        with self.answered():
            return _in_one_piece(clipped(parameters, clip))

    def portion(self, tensors: Mapping[str, Tensor]) -> Portion | None:
        """What this process holds; what all hold alike (counts of steps) is process 0's to save."""
        held, starts = {}, {}
        for name, tensor in tensors.items():
            if isinstance(tensor, DTensor):
                held[name], starts[name] = tensor.to_local(), _box_of(tensor)[0]
            elif self.rank == 0:
                held[name], starts[name] = tensor, [0] * tensor.ndim
        return Portion(held, starts)

    def loaded(
        self, stored: Stored, parameters: Mapping[str, nn.Parameter]
    ) -> Iterator[tuple[str, Tensor]]:
        """This process's share of each tensor, as its parameter is cut; nothing else is read."""
        for name in stored:
            of: Tensor | None = parameters.get(name.partition("/")[0])
            if isinstance(of, DTensor) and stored.shape(name) == list(of.shape):
                share = DTensor.from_local(
                    stored.part(name, *_box_of(of)).to(of.device),
                    of.device_mesh,
                    of.placements,
                    shape=of.shape,
                    stride=of.stride(),
                )
                yield name, share
            else:  # numbers without shape
                yield name, stored[name]

    @contextmanager
    def plain(self, model: Transformer) -> Iterator[Transformer]:
        """A copy in one piece. It costs the memory of the weights, but no gradients."""
        copy = Transformer(model.config).to(self.device)
        with torch.no_grad():
            pieces = dict(model.named_parameters())
            for name, parameter in copy.named_parameters():
                with self.answered():
                    parameter.copy_(_in_one_piece(pieces[name]))
        yield copy


def _box_of(tensor: DTensor) -> tuple[Sequence[int], Sequence[int]]:
    """What this process holds of a tensor: where it begins in the whole, and its shape."""
    shape, start = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    return start, shape


def _in_one_piece(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def share_of(parameter: Tensor | None, tensor: Tensor) -> Tensor:
    """A whole tensor as this process holds the parameter; numbers without shape stay."""
    if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
        return tensor
    # No process sends anything: each has the whole and takes its share.
    return distribute_tensor(
        tensor.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
    )


@contextmanager
def _weightless() -> Iterator[None]:
    """While it is entered, new modules have parameters without memory; their buffers are real."""

    def without(module: nn.Module, name: str, parameter: nn.Parameter) -> nn.Parameter:
        if parameter.is_meta:  # a tied one, which comes twice
            return parameter
        return nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    hook = register_module_parameter_registration_hook(without)  # type: ignore[arg-type]
    try:
        yield
    finally:
        hook.remove()
