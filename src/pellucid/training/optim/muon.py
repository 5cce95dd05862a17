"""Muon: momentum whose every direction is made equally long.

The update of a matrix is its momentum M = U Σ Vᵀ with all singular values pushed towards 1, about
U Vᵀ, by a few steps of a Newton-Schulz iteration that needs nothing but matrix products (Jordan
and others, 2024). It fits matrices that stand between two vectors, so not embeddings or norms.

Four steps do what five of the usual ones do: each has its own polynomial, the best for what the
steps before it have left (Amsel and others, "The Polar Express", 2025), and the first one gets
its matrix scaled by a close bound on its largest singular value.

The iteration runs in float32, or in bfloat16 where a run computes in that and the machine has
units for it: a CPU without them emulates it about twenty times slower. Matrices of one shape are
iterated together, as one batch of products.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Polynomial = tuple[float, float, float]

POLYNOMIALS: tuple[Polynomial, ...] = (
    (8.2171, -23.5654, 17.3154),
    (3.9701, -2.9423, 0.5587),
    (3.3396, -2.5043, 0.5118),
    (2.3193, -1.6856, 0.4206),
)
"""a, b and c of a x + b x³ + c x⁵. One after the other they take every singular value from 0.004
to 1 to between 0.87 and 1.13, and smaller ones to 250 times what they are."""

MARGIN = 1.02
"""In bfloat16 each step but the last takes its matrix for so much longer than it is. The steep ends
of the polynomials would make of a singular value that rounding has put above the range of the next
one's a far larger one (100 and more were seen)."""

TINY = 1e-7
WIDE = 2  # a matrix with at least so many columns to a row is iterated on its small side


def orthogonalised(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """About U Vᵀ of each matrix U Σ Vᵀ in a batch `(n, rows, columns)`, in `dtype`."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    X = matrices.to(dtype)
    if tall:  # the small side's square is the cheaper one
        X = X.mT
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp(min=TINY)
    A = torch.bmm(X, X.mT)
    # √‖X Xᵀ‖ bounds the largest singular value too, and far closer than ‖X‖ does.
    bound = A.norm(dim=(-2, -1), keepdim=True).sqrt().clamp(min=TINY)
    X, A = X / bound, A / bound.square()
    if dtype == torch.float32 and X.shape[-1] >= WIDE * X.shape[-2]:
        X = _two_steps(X, A, *POLYNOMIALS[:2])
        X = _two_steps(X, torch.bmm(X, X.mT), *POLYNOMIALS[2:])
    else:
        margin = 1.0 if dtype == torch.float32 else MARGIN
        for number, (a, b, c) in enumerate(POLYNOMIALS):
            if number < len(POLYNOMIALS) - 1:
                a, b, c = a / margin, b / margin**3, c / margin**5
            if number:
                A = torch.bmm(X, X.mT)
            B = torch.baddbmm(A, A, A, beta=b, alpha=c)  # b A + c A²
            X = torch.baddbmm(X, B, X, beta=a)  # a X + (b A + c A²) X
    return X.mT if tall else X


def _two_steps(X: Tensor, A: Tensor, first: Polynomial, second: Polynomial) -> Tensor:
    """Two steps as one product S R X, where R = a I + b A + c A² and S the same of R A R.

    All but two products are then of the small side. Not for more steps: the rounding of S R grows
    with what it does to the smallest singular values, and falls on the largest too.
    """
    R = _step(A, first)
    S = _step(torch.bmm(torch.bmm(R, A), R), second)
    return torch.bmm(torch.bmm(S, R), X)


def _step(A: Tensor, polynomial: Polynomial) -> Tensor:
    a, b, c = polynomial
    R = torch.baddbmm(A, A, A, beta=b, alpha=c)
    R.diagonal(dim1=-2, dim2=-1).add_(a)
    return R


class Blocks(NamedTuple):
    """How a parameter is cut into the matrices that are iterated, each on its own.

    A parameter in which W_Q, W_K and W_V stand below each other is a matrix for each of their
    heads, for a head works with its own rows and knows nothing of the others; and so is W_O, in
    which heads stand side by side. That is also far cheaper than to iterate on them whole.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def of(self, whole: Tensor) -> list[Tensor]:
        """The blocks, as views."""
        bands = torch.split(whole, list(self.rows))
        return [block for band in bands for block in torch.split(band, list(self.columns), 1)]


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay.

    parameters: matrices, each with the blocks that it is made of. dtype: of the iteration.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[nn.Parameter, Blocks]],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        pairs = list(parameters)
        for parameter, blocks in pairs:
            if tuple(parameter.shape) != (sum(blocks.rows), sum(blocks.columns)):
                raise ValueError(f"{tuple(parameter.shape)} is not made of {blocks}")
        self.blocks, self.dtype = dict(pairs), dtype
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([parameter for parameter, _ in pairs], options)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Change every matrix by its update; `closure` is not used."""
        for group in self.param_groups:
            updates: dict[tuple[torch.Size, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
            cut: list[tuple[Tensor, Tensor]] = []
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                changed, direction = parameter, self._direction(parameter, group["momentum"])
                if hasattr(direction, "full_tensor"):
                    # This process has a share of the matrix (FSDP), and the iteration needs all
                    # of it: each process makes the whole change and takes its share of that.
                    direction = direction.full_tensor()
                    changed = torch.zeros_like(direction)
                    cut.append((parameter, changed))
                blocks, width = self.blocks[parameter], parameter.shape[1]
                parts = (blocks.of(whole) for whole in (changed, direction))
                for matrix, update in zip(*parts, strict=True):
                    updates[matrix.shape, width].append((matrix, update))
            for (shape, width), pairs in updates.items():
                # A tall matrix has as many singular values as a wide one but more outputs to move.
                length = group["lr"] * max(1.0, shape[0] / width) ** 0.5
                self._change(pairs, length, group["lr"] * group["weight_decay"])
            for parameter, change in cut:
                from pellucid.training.distributed.fsdp import share_of

                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(share_of(parameter, change))

    def _direction(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """The gradient with momentum, looking one step ahead (Nesterov)."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(state["momentum"], momentum)

    def _change(self, pairs: list[tuple[Tensor, Tensor]], length: float, decay: float) -> None:
        """Shrink matrices by `decay`, and move each by its update made `length` long."""
        matrices = [matrix for matrix, _ in pairs]
        stacked = torch.stack([update for _, update in pairs])
        changes = orthogonalised(stacked, self.dtype).to(stacked.dtype)
        if decay:
            torch._foreach_mul_(matrices, 1 - decay)
        torch._foreach_add_(matrices, list(changes.unbind()), alpha=-length)
