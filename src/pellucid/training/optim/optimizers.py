"""Which parameter is changed by which rule, and the rules' memory as plain tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from pellucid.config import TrainingConfig
from pellucid.errors import PellucidError
from pellucid.model import MultiHeadAttention, Transformer
from pellucid.model.layers import FeedForward
from pellucid.training.devices import has_fast_bf16
from pellucid.training.optim.muon import Blocks, Muon
from pellucid.training.optim.schedule import peak_learning_rate


def inner_matrices(model: nn.Module) -> dict[str, Blocks]:
    """The matrices between two hidden vectors, by the parameter's name, and the blocks of each.

    The heads of an attention are matrices of their own to Muon, and so are W₁ and the gate of a
    feed-forward layer, which stand in one parameter.
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
    """One or two optimizers that step together.

    Their state can be read and written as tensors with flat names, "<parameter>/<what>", so that
    nothing has to be pickled.
    """

    def __init__(self, model: Transformer, config: TrainingConfig) -> None:
        self.names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
        rate = peak_learning_rate(config, model.config.d_model)
        matrices = inner_matrices(model) if config.optimizer == "muon" else {}
        decayed: list[nn.Parameter] = []
        plain: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if name not in matrices:
                (decayed if parameter.ndim >= 2 else plain).append(parameter)
        groups = [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        rule = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
        self.all: list[torch.optim.Optimizer] = [
            rule(
                [group for group in groups if group["params"]],
                lr=rate,
                betas=config.betas,
                eps=config.epsilon,
                fused=all(p.device.type in ("cpu", "cuda") for p in self.names),
            )
        ]
        if matrices:
            parameters = dict(model.named_parameters())
            half = has_fast_bf16(config, model.output.weight.device)
            self.all.append(
                Muon(
                    [(parameters[name], blocks) for name, blocks in matrices.items()],
                    lr=config.muon_learning_rate,
                    momentum=config.muon_momentum,
                    weight_decay=config.weight_decay,
                    dtype=torch.bfloat16 if half else torch.float32,
                )
            )
        self._highest = [[group["lr"] for group in one.param_groups] for one in self.all]

    def step(self, share: float) -> None:
        """Change the weights, at a share of the highest rates."""
        for optimizer, rates in zip(self.all, self._highest, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * share
            optimizer.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for optimizer in self.all:
            optimizer.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """The state of all, by flat names."""
        return {
            f"{self.names[parameter]}/{what}": tensor
            for optimizer in self.all
            for parameter, state in optimizer.state.items()
            for what, tensor in state.items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over a state that `tensors` gave."""
        wanted: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            of, _, what = name.rpartition("/")
            wanted.setdefault(of, {})[what] = tensor
        for optimizer in self.all:
            for parameter in self._parameters(optimizer):
                name = self.names[parameter]
                state = wanted.pop(name, None)
                optimizer.state[parameter] = {
                    what: self._placed(name, what, tensor, parameter)
                    for what, tensor in (state or {}).items()
                }
        if wanted:
            raise PellucidError(
                f"the saved optimizer has a state for {next(iter(wanted))}, which this model does "
                "not have: the checkpoint belongs to another model"
            )

    def _placed(self, name: str, what: str, tensor: Tensor, parameter: nn.Parameter) -> Tensor:
        if tensor.ndim and tensor.shape != parameter.shape:
            raise PellucidError(
                f"the saved optimizer's {what} of {name} has the shape {tuple(tensor.shape)} in "
                f"place of {tuple(parameter.shape)}: the checkpoint belongs to another model"
            )
        return tensor.to(parameter.device, copy=True)

    @staticmethod
    def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
        for group in optimizer.param_groups:
            yield from group["params"]
