"""What the experiments share: a seeded toy run on one thread, and how a result is written down."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from examples.toy import PAD, START, Task, examples, padded, small_model, train
from pellucid.model import Transformer

FOLDER = Path(__file__).parent
TITLE = re.compile(r'<text class="title".*?</text>')
STYLE = """
svg.chart { color-scheme: light dark; --ink: #1c2330; --soft: #5d6675; --rule: #d9dce2;
  --c1: #2f6fb5; --c2: #d1662b; --c3: #2e8b6a; --c4: #8a5fb0; --c5: #a3812a; }
@media (prefers-color-scheme: dark) { svg.chart { --ink: #e6e8ec; --soft: #9aa3b0;
  --rule: #3a414d; --c1: #6aa9e8; --c2: #f0965f; --c3: #5cc9a0; --c4: #c09be6; --c5: #d9b65a; } }
svg.chart text { font-family: system-ui, "DejaVu Sans", sans-serif; }
svg.chart .title { font-size: 13px; font-weight: 600; fill: var(--ink); }
svg.chart .tick { font-size: 11px; fill: var(--soft); }
svg.chart .grid { stroke: var(--rule); fill: none; }
svg.chart .axis { stroke: var(--soft); fill: none; }
svg.chart .line { stroke: var(--c); stroke-width: 2; fill: none; stroke-linejoin: round; }
svg.chart .band { fill: var(--c); opacity: 0.18; stroke: none; }
svg.chart .bar { fill: var(--c); opacity: 0.85; }
svg.chart .dot { fill: none; stroke: var(--c); stroke-width: 2; }
"""


def save(
    name: str,
    chart: str,
    numbers: dict[str, object],
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
) -> None:
    """Write NAME.svg, a picture that stands alone, and NAME.json: the numbers, and a table of them.

    The page takes both from there when it is built (`{{ experiment NAME }}`).
    """
    chart = TITLE.sub("", chart)  # the page says it below, where it has room beside no legend
    opening, rest = chart.split(">", 1)
    own = f'{opening} xmlns="http://www.w3.org/2000/svg"><style>{STYLE}</style>{rest}\n'
    (FOLDER / f"{name}.svg").write_text(own, encoding="utf-8", newline="\n")
    shown = {"columns": list(columns), "rows": [list(row) for row in rows]}
    text = json.dumps({**numbers, "table": shown}, indent=1) + "\n"
    (FOLDER / f"{name}.json").write_text(text, encoding="utf-8", newline="\n")
    print(text)


def trained(
    task: Task, *, steps: int, seed: int, batch_size: int = 48, **changes: object
) -> tuple[Transformer, list[float]]:
    """A toy model that has learned a task for so many steps, and the loss of each step."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = small_model(**changes)
    losses: list[float] = []
    train(
        model,
        task,
        steps=steps,
        batch_size=batch_size,
        warmup_steps=steps // 6,
        max_grad_norm=float("inf"),  # no clipping: the numbers of the page were made without
        held_out=held_out(),
        seed=seed,
        on_step=lambda step, loss: losses.append(loss),
    )
    return model, losses


def held_out(count: int = 200) -> list[list[int]]:
    """Sequences of four to eight digits that no run learns from."""
    drawn = examples(2 * count, torch.Generator().manual_seed(99))
    return [row for row in drawn if len(row) > 3][:count]


@torch.inference_mode()
def tokens_right(model: Transformer, task: Task, rows: Sequence[Sequence[int]]) -> float:
    """The share of target tokens that are the model's first choice after the right ones before."""
    targets = [task(row) for row in rows]
    guesses = model(padded(rows), padded([[START, *row] for row in targets])).argmax(dim=-1)
    labels = padded([[*row, 2] for row in targets])
    real = labels != PAD
    return float((guesses == labels)[real].float().mean())


def smooth(losses: Sequence[float], width: int = 10) -> list[tuple[float, float]]:
    """Means of so many steps in a row, at the step where they end."""
    ends = range(width, len(losses) + 1, width)
    return [(float(end), sum(losses[end - width : end]) / width) for end in ends]


def share(found: Sequence[Sequence[int]], right: Callable[[int], Sequence[int]]) -> float:
    """How many outputs are exactly right, 0 to 1."""
    return sum(list(one) == list(right(place)) for place, one in enumerate(found)) / len(found)
