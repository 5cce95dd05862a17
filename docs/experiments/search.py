"""Greedy against beam search, on a language with a trap, and on one without.

    python -m docs.experiments.search

The trap: of ten sequences, four are answered with "zero" and a plain copy, six with "one" and the
digits in any order. The first word "one" is the more probable, but each single answer that begins
with it is far less probable than the copy.
"""

import random

from docs.experiments.results import held_out, save, trained
from examples.toy import END, PAD, START, TASKS, Task
from pellucid.decoding import DecodingOptions, SpecialIds
from pellucid.decoding.torch.engine import run
from pellucid.drawing.bars import Series, bar_chart
from pellucid.model import Transformer

TRAP_STEPS, HALF_STEPS, SEED = 480, 180, 1
BEAMS = (1, 2, 4, 8)
ZERO, ONE = END + 1, END + 2


def trap(draw: random.Random) -> Task:
    def answer(ids: list[int]) -> list[int]:
        if draw.random() < 0.4:
            return [ZERO, *ids]
        return [ONE, *draw.sample(list(ids), len(ids))]

    return answer


def searched(model: Transformer, rows: list[list[int]]) -> dict[int, list[tuple[float, list[int]]]]:
    """By beam: each output's log-probability, and the output."""
    found = {}
    for beam in BEAMS:
        options = DecodingOptions(beam_size=beam, length_normalization="none", max_length=12)
        results = run(model, SpecialIds(PAD, START, END), rows, options)
        best = [result.hypotheses[0] for result in results]
        found[beam] = [(one.log_probability, list(one.tokens)) for one in best]
    return found


def compared(
    found: dict[int, list[tuple[float, list[int]]]], right: list[list[int]]
) -> dict[int, dict[str, float]]:
    greedy, count = found[1], len(right)
    return {
        beam: {
            "mean_log_probability": sum(score for score, _ in outputs) / count,
            "more_probable_than_greedy": sum(
                mine[0] > theirs[0] + 1e-6 for mine, theirs in zip(outputs, greedy, strict=True)
            )
            / count,
            "right": sum(
                tokens == wanted for (_, tokens), wanted in zip(outputs, right, strict=True)
            )
            / count,
        }
        for beam, outputs in found.items()
    }


def main() -> None:
    rows = held_out(100)
    model, _ = trained(trap(random.Random(SEED)), steps=TRAP_STEPS, seed=SEED)
    numbers = {"trap": compared(searched(model, rows), [[ZERO, *row] for row in rows])}
    print(numbers, flush=True)
    reverse = TASKS["reverse"]
    model, _ = trained(reverse, steps=HALF_STEPS, seed=SEED)
    numbers["half_learned"] = compared(searched(model, rows), [reverse(row) for row in rows])
    bars = [
        Series(shown, [100 * numbers[name][beam]["right"] for beam in BEAMS], place + 1)
        for place, (name, shown) in enumerate(
            [("trap", "with a trap"), ("half_learned", "half learned")]
        )
    ]
    about = {"steps": f"{TRAP_STEPS} and {HALF_STEPS}", "seed": SEED, "sequences": 100}
    labels = ["greedy", *(f"beam {beam}" for beam in BEAMS[1:])]
    picture = bar_chart("Outputs that are the right one, per cent", labels, bars, "search")
    shown = [
        [label, *(_cell(numbers[name][beam]) for name in numbers)]
        for label, beam in zip(labels, BEAMS, strict=True)
    ]
    columns = ["search", *(f"{name.replace('_', ' ')}: log p, right" for name in numbers)]
    save("search", picture, {"about": about, **numbers}, columns, shown)


def _cell(found: dict[str, float]) -> str:
    return f"{found['mean_log_probability']:.2f}, {found['right']:.0%}"


if __name__ == "__main__":
    main()
