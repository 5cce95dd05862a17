"""Where the fused attention pays and where the readable formula does; see `fused_pays`."""

import os
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.measure import paired_ratio, race
from pellucid.model.attention import attend, attend_fused, fused_pays

HEADS, WIDTH, TOKENS = 4, 64, 2000


def inputs(rows: int, queries: int, keys: int, *, grad: bool) -> tuple[Tensor, ...]:
    """q, k, v laid out as the projections leave them, and a padding mask."""
    q = torch.randn(rows, queries, HEADS, WIDTH).transpose(1, 2).requires_grad_(grad)
    k, v = (torch.randn(rows, keys, HEADS, WIDTH).transpose(1, 2) for _ in range(2))
    mask = torch.ones(rows, 1, 1, keys, dtype=torch.bool)
    mask[0, ..., -1] = keys == 1
    return q, k.requires_grad_(grad), v.requires_grad_(grad), mask


def contest(rows: int, queries: int, keys: int, *, train: bool, rate: float, rounds: int) -> dict:
    q, k, v, mask = inputs(rows, queries, keys, grad=train)
    gradient = torch.randn(q.shape)

    def run(path: Callable[..., Tensor]) -> Callable[[], None]:
        def training() -> None:
            path(q, k, v, mask, dropout_rate=rate).backward(gradient)

        @torch.inference_mode()
        def inference() -> None:
            path(q, k, v, mask)

        return training if train else inference

    timings = race({"readable": run(attend), "fused": run(attend_fused)}, rounds=rounds)
    return {
        "rows": rows,
        "queries": queries,
        "keys": keys,
        "training": train,
        "dropout": rate,
        "fused_times_faster": paired_ratio(timings["readable"], timings["fused"]),
        "chosen": "fused" if fused_pays(q, k, rate) else "readable",
    }


def main() -> dict[str, object]:
    rounds = int(os.environ.get("ROUNDS", "15"))
    results = []
    for length in (8, 15, 30, 60, 120, 250):
        rows = TOKENS // length
        for train, rate in ((True, 0.0), (True, 0.1), (False, 0.0)):
            results.append(contest(rows, length, length, train=train, rate=rate, rounds=rounds))
    for rows, keys in ((1, 15), (4, 15), (32, 20), (128, 20), (128, 60)):  # one decoding step
        results.append(contest(rows, 1, keys, train=False, rate=0.0, rounds=5 * rounds))
    rows = [
        [
            str(r["rows"]), str(r["queries"]), str(r["keys"]),
            f"training, dropout {r['dropout']}" if r["training"] else "inference",
            f"{r['fused_times_faster']:.2f}x", r["chosen"],
        ]
        for r in results
    ]  # fmt: skip
    columns = ["sentences", "queries", "keys", "work", "fused is faster by", "chosen"]
    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    return {
        "title": "Attention: the fused kernel and the readable formula",
        "table": {"columns": columns, "rows": rows},
        "note": f"4 heads of 64 numbers, {torch.get_num_threads()} threads, {rounds} rounds.",
        "results": results,
    }
