"""One head against many: the same width and the same number of parameters, cut in 1, 2, 4 or 8.

python -m docs.experiments.heads
"""

from docs.experiments.results import held_out, save, share, smooth, trained
from examples.toy import TASKS, translate
from pellucid.drawing.svg import Curve, line_chart

STEPS, SEED = 240, 1
HEADS = (1, 2, 4, 8)


def main() -> None:
    task, sequences = TASKS["reverse"], held_out()
    curves, numbers = [], {}
    for place, heads in enumerate(HEADS):
        model, losses = trained(
            task, steps=STEPS, seed=SEED, num_heads=heads, encoder_layers=1, decoder_layers=1
        )
        right = share(translate(model, sequences), lambda at: task(sequences[at]))
        numbers[heads] = {"last_20_losses": sum(losses[-20:]) / 20, "right": right}
        name = f"{heads} head" + "s" * (heads > 1)
        curves.append(Curve(name, smooth(losses), place + 1))
        print(heads, numbers[heads], flush=True)
    about = {"task": "reverse", "steps": STEPS, "seed": SEED, "batch": 48, "layers": "1 + 1"}
    picture = line_chart("Loss while learning to reverse digits", curves, "step", from_zero=True)
    rows = [[n, f"{x['last_20_losses']:.3f}", f"{x['right']:.0%}"] for n, x in numbers.items()]
    columns = ["heads", "loss, mean of the last 20 steps", "unseen sequences right"]
    save("heads", picture, {"about": about, "heads": numbers}, columns, rows)


if __name__ == "__main__":
    main()
