"""With positions and without: reversing needs the order of the source, sorting does not.

python -m docs.experiments.no_positions
"""

from docs.experiments.results import held_out, save, share, trained
from examples.toy import TASKS, translate
from pellucid.drawing.bars import Series, bar_chart

STEPS, SEED = 240, 1
KINDS = ("sinusoidal", "none")
NAMES = ("reverse", "sort")


def main() -> None:
    rows = held_out()
    numbers: dict[str, dict[str, dict[str, float]]] = {}
    for name in NAMES:
        task = TASKS[name]
        numbers[name] = {}
        for kind in KINDS:
            model, losses = trained(task, steps=STEPS, seed=SEED, position_encoding=kind)
            found = translate(model, rows)
            bags = [sorted(one) for one in found]
            numbers[name][kind] = {
                "right": share(found, lambda at, task=task: task(rows[at])),
                "right_digits_in_any_order": share(bags, lambda at: sorted(rows[at])),
                "last_20_losses": sum(losses[-20:]) / 20,
            }
            print(name, kind, numbers[name][kind], flush=True)
    bars = [
        Series(
            {"sinusoidal": "positions", "none": "no positions"}[kind],
            [100 * numbers[name][kind]["right"] for name in NAMES],
            place + 1,
        )
        for place, kind in enumerate(KINDS)
    ]
    about = {"steps": STEPS, "seed": SEED, "batch": 48, "layers": "2 + 2", "sequences": len(rows)}
    picture = bar_chart("Unseen sequences that came out right, per cent", NAMES, bars, "task")
    columns = ["task", "positions", "right", "right digits in any order"]
    shown = [
        [name, kind, f"{found['right']:.0%}", f"{found['right_digits_in_any_order']:.0%}"]
        for name, kinds in numbers.items()
        for kind, found in kinds.items()
    ]
    save("no_positions", picture, {"about": about, "tasks": numbers}, columns, shown)


if __name__ == "__main__":
    main()
