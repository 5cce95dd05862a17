"""The optimizers: which parameter is updated by which, and their state as plain tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from pellucid.config import TrainingConfig
from pellucid.errors import PellucidError
from pellucid.model import MultiHeadAttention, Transformer
from pellucid.model.layers import FeedForward
from pellucid.training.devices import uses_bf16
from pellucid.training.optim.muon import Blocks, Muon
from pellucid.training.optim.schedule import peak_learning_rate


def inner_matrices(model: nn.Module) -> dict[str, Blocks]:
    """Return the matrices that Muon updates, by parameter name, with the blocks of each.

    These are the matrices inside the layers. To Muon each attention head is a matrix of its own,
    and so are W₁ and the gate of a feed-forward layer, which share one parameter.
    """
    found = {}
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        if isinstance(module, MultiHeadAttention):
            K, (width, inner) = module.head_dim, module.out.weight.shape
            heads = len(module.in_weight) // K
            found[f"{prefix}in_weight"] = Blocks((K,) * heads, (width,))
            found[f"{prefix}out.weight"] = Blocks((width,), (K,) * (inner // K))
        elif isinstance(module, FeedForward):
            parts, (width, inner) = 2 if module.gated else 1, module.outer.weight.shape
            found[f"{prefix}inner.weight"] = Blocks((inner,) * parts, (width,))
            found[f"{prefix}outer.weight"] = Blocks((width,), (inner,))
    return found


class Optimizers:
    """One or two optimizers that step together: Adam or AdamW, and Muon.

    Their state is read and written as tensors with flat names, "<parameter>/<what>", so that
    nothing has to be pickled.
    """

    def __init__(self, model: Transformer, config: TrainingConfig) -> None:
        self.names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
        learning_rate = peak_learning_rate(config, model.config.d_model)
        matrices = inner_matrices(model) if config.optimizer == "muon" else {}
        decayed: list[nn.Parameter] = []
        not_decayed: list[nn.Parameter] = []  # biases and norms
        for name, parameter in model.named_parameters():
            if name not in matrices:
                (decayed if parameter.ndim >= 2 else not_decayed).append(parameter)
        groups = [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": not_decayed, "weight_decay": 0.0},
        ]
        adam = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
        self.all: list[torch.optim.Optimizer] = [
            adam(
                [group for group in groups if group["params"]],
                lr=learning_rate,
                betas=config.betas,
                eps=config.epsilon,
                fused=all(p.device.type in ("cpu", "cuda") for p in self.names),
            )
        ]
        if matrices:
            parameters = dict(model.named_parameters())
            bf16 = uses_bf16(config, model.output.weight.device)
            self.all.append(
                Muon(
                    [(parameters[name], blocks) for name, blocks in matrices.items()],
                    lr=config.muon_learning_rate,
                    momentum=config.muon_momentum,
                    weight_decay=config.weight_decay,
                    dtype=torch.bfloat16 if bf16 else torch.float32,
                )
            )
        self._peak_rates = [[group["lr"] for group in o.param_groups] for o in self.all]

    def step(self, lr_factor: float) -> None:
        """Update the weights, with the learning rates at this fraction of their peaks."""
        for optimizer, peaks in zip(self.all, self._peak_rates, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * lr_factor
            optimizer.step()

    def zero_grad(self) -> None:
        """Clear the gradients."""
        for optimizer in self.all:
            optimizer.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state of all optimizers by flat names."""
        return {
            f"{self.names[parameter]}/{what}": tensor
            for optimizer in self.all
            for parameter, state in optimizer.state.items()
            for what, tensor in state.items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore a state that `tensors` returned."""
        wanted: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            parameter_name, _, what = name.rpartition("/")
            wanted.setdefault(parameter_name, {})[what] = tensor
        for optimizer in self.all:
            for parameter in self._parameters(optimizer):
                name = self.names[parameter]
                state = wanted.pop(name, None)
                optimizer.state[parameter] = {
                    what: self._checked(name, what, tensor, parameter)
                    for what, tensor in (state or {}).items()
                }
        if wanted:
            raise PellucidError(
                f"the saved optimizer has a state for {next(iter(wanted))}, which this model does "
                "not have: the checkpoint belongs to another model"
            )

    def _checked(self, name: str, what: str, tensor: Tensor, parameter: nn.Parameter) -> Tensor:
        if tensor.ndim and tensor.shape != parameter.shape:
            raise PellucidError(
                f"the saved optimizer's {what} of {name} has the shape {tuple(tensor.shape)} "
                f"instead of {tuple(parameter.shape)}: the checkpoint belongs to another model"
            )
        return tensor.to(parameter.device, copy=True)

    @staticmethod
    def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
        for group in optimizer.param_groups:
            yield from group["params"]
