"""Trained on 1 to 8 digits, asked for up to 16: sinusoidal, learned and rotary positions.

python -m docs.experiments.lengths
"""

import torch

from docs.experiments.results import save, tokens_right, trained
from examples.toy import END, TASKS, VOCABULARY
from pellucid.drawing.svg import Curve, line_chart

STEPS, SEED, EACH = 360, 1, 100
KINDS = ("sinusoidal", "learned", "rotary")
LENGTHS = (2, 4, 6, 7, 8, 9, 10, 11, 12, 14, 16)


def of_length(length: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(length)
    drawn = torch.randint(END + 1, len(VOCABULARY), (EACH, length), generator=generator)
    return drawn.tolist()


def main() -> None:
    task = TASKS["reverse"]
    numbers, curves = {}, []
    for place, kind in enumerate(KINDS):
        model, losses = trained(task, steps=STEPS, seed=SEED, position_encoding=kind)
        found = {length: tokens_right(model, task, of_length(length)) for length in LENGTHS}
        numbers[kind] = {"last_20_losses": sum(losses[-20:]) / 20, "tokens_right": found}
        points = [(float(length), 100 * right) for length, right in found.items()]
        curves.append(Curve(kind, points, place + 1, dots=True))
        print(kind, numbers[kind], flush=True)
    about = {"task": "reverse", "steps": STEPS, "seed": SEED, "batch": 48, "trained_up_to": 8}
    title = "Tokens right, per cent; trained on up to 8 digits"
    save(
        "lengths",
        line_chart(title, curves, "digits in the sequence", from_zero=True),
        {"about": about, "positions": numbers},
        ["positions", *(f"{length} digits" for length in LENGTHS)],
        [[k, *(f"{x:.0%}" for x in n["tokens_right"].values())] for k, n in numbers.items()],
    )


if __name__ == "__main__":
    main()
