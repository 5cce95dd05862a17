"""`pellucid plan`, `pellucid train` and `pellucid report`: before, during and after training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pellucid.console.options import Argument, Option, Set, say


def plan(
    recipe: Annotated[Path, Argument(metavar="RECIPE.toml", help="Recipe of the training run.")],
    hardware: Annotated[
        str | None,
        Option(help="Hardware to estimate for, e.g. p100, a100, rtx-4090; else this machine."),
    ] = None,
    count: Annotated[int, Option(min=1, help="Number of these devices.")] = 1,
    price: Annotated[float | None, Option(min=0, help="Price of an hour of all of them.")] = None,
    pairs: Annotated[
        int | None, Option(min=1, help="Number of sentence pairs, if the corpus is not here.")
    ] = None,
    changes: Set = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate what a training run takes: parameters, FLOPs, memory, time and money.

    The model is built and run once as shapes only, so this also checks a recipe that is too large
    for this machine. Without --hardware, a few steps are timed here.
    """
    import json

    from rich.console import Console

    from pellucid.config import load_recipe
    from pellucid.training.plan.estimate import make_plan

    made = make_plan(
        load_recipe(recipe, changes or ()),
        hardware=hardware,
        count=count,
        price=price,
        pairs=pairs,
    )
    if as_json:
        say(json.dumps(made.as_dict(), indent=1))
    else:
        Console().print(made.tables())


def train(
    recipe: Annotated[
        Path, Argument(metavar="RECIPE", help="A recipe (TOML), or the folder of a run.")
    ],
    changes: Set = None,
    resume: Annotated[
        bool, Option("--resume", help="Resume from the last checkpoint, if there is one.")
    ] = False,
    folder: Annotated[
        Path | None,
        Option(metavar="DIR", help="Folder of the run; if unset, runs/ and RECIPE's name."),
    ] = None,
) -> None:
    """Train a model from a recipe.

    The run's folder gets checkpoints, metrics.jsonl, TensorBoard events, report.html and, at the
    end, bundle/: the model, for pellucid translate --model.

    Ctrl-C saves a checkpoint and prints how to resume. A resumed run continues exactly as if it
    had not been stopped:

    pellucid train recipes/toy.toml --set training.steps=500

    pellucid train runs/toy --resume
    """
    from rich.console import Console

    from pellucid.training.run import train as run

    bundle = run(
        recipe,
        folder=folder,
        resume=resume,
        overrides=changes or (),
        console=Console(stderr=True),
    )
    if os.environ.get("RANK", "0") == "0":  # with torchrun, only the main process
        say(bundle)


def report(
    folder: Annotated[Path, Argument(metavar="RUN", help="Folder of a training run.")],
) -> None:
    """Write report.html of a training run, finished or still running."""
    from pellucid.training.run_report import write_report

    say(write_report(folder))
