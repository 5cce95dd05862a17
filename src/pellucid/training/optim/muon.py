"""Muon: momentum, orthogonalised.

The update of a matrix is its momentum M = U Σ Vᵀ with all singular values pushed towards 1, about
U Vᵀ, by a few steps of a Newton-Schulz iteration that needs only matrix products (Jordan and
others, 2024). It is for matrices that map one hidden vector to another, not for embeddings or
norms.

Four steps do what five of the usual ones do: each has its own polynomial, the best for what the
steps before it have left (Amsel and others, "The Polar Express", 2025), and the first step scales
its matrix by a close bound on the largest singular value.

The iteration runs in float32, or in bfloat16 where the run computes in bf16. Matrices of the same
shape are iterated together, as one batch of products.
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
"""a, b and c of a x + b x³ + c x⁵. Applied in turn, they take every singular value between 0.004
and 1 to between 0.87 and 1.13, and multiply smaller ones by 250."""

MARGIN = 1.02
"""Safety factor in bfloat16: each step but the last treats its matrix as larger by this factor. If
rounding puts a singular value above the range of the next polynomial, its steep end would turn it
into a far larger one (100 and more were seen)."""

TINY = 1e-7
WIDE = 2  # a matrix with at least this many columns per row is iterated on its small side


def orthogonalised(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Turn each matrix U Σ Vᵀ of a batch `(n, rows, columns)` into about U Vᵀ, in `dtype`."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    X = matrices.to(dtype)
    if tall:  # the square of the small side is cheaper
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
    """Do two steps as one product S R X, where R = a I + b A + c A², and S the same of R A R.

    Then all but two products have the size of the small side. More steps cannot be joined: the
    rounding error of S R grows with its effect on the smallest singular values and also hits the
    largest.
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
    """How a parameter is divided into matrices that are orthogonalised separately.

    The parameter that stacks W_Q, W_K and W_V has one block for each of their heads, as a head
    works with its own rows, independently of the others; so does W_O, with the heads side by
    side. It is also far cheaper than iterating on the whole matrix.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def of(self, whole: Tensor) -> list[Tensor]:
        """Return the blocks of a matrix as views."""
        bands = torch.split(whole, list(self.rows))
        return [block for band in bands for block in torch.split(band, list(self.columns), 1)]


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay.

    parameters: matrices, each with its blocks. dtype: precision of the iteration.
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
        """Update every matrix; `closure` is not used."""
        for group in self.param_groups:
            updates: dict[tuple[torch.Size, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
            sharded: list[tuple[Tensor, Tensor]] = []
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                changed, direction = parameter, self._direction(parameter, group["momentum"])
                if hasattr(direction, "full_tensor"):
                    # This process has a shard of the matrix (FSDP), but the iteration needs the
                    # whole: each process computes the whole update and takes its shard of it.
                    direction = direction.full_tensor()
                    changed = torch.zeros_like(direction)
                    sharded.append((parameter, changed))
                blocks, width = self.blocks[parameter], parameter.shape[1]
                parts = (blocks.of(whole) for whole in (changed, direction))
                for matrix, update in zip(*parts, strict=True):
                    updates[matrix.shape, width].append((matrix, update))
            for (shape, width), pairs in updates.items():
                # A tall matrix has as many singular values as a wide one, but more outputs.
                length = group["lr"] * max(1.0, shape[0] / width) ** 0.5
                self._change(pairs, length, group["lr"] * group["weight_decay"])
            for parameter, change in sharded:
                from pellucid.training.distributed.fsdp import shard_like

                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(shard_like(parameter, change))

    def _direction(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """Return the gradient with Nesterov momentum."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(state["momentum"], momentum)

    def _change(self, pairs: list[tuple[Tensor, Tensor]], length: float, decay: float) -> None:
        """Shrink matrices by `decay`, and add each one's orthogonalised update times `length`."""
        matrices = [matrix for matrix, _ in pairs]
        stacked = torch.stack([update for _, update in pairs])
        changes = orthogonalised(stacked, self.dtype).to(stacked.dtype)
        if decay:
            torch._foreach_mul_(matrices, 1 - decay)
        torch._foreach_add_(matrices, list(changes.unbind()), alpha=-length)
