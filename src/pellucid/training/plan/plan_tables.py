"""Tables of a training plan for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pellucid.console.formatting import format_duration
from pellucid.training.plan.training_flops import PAPER_GPUS, PAPER_RATE, PaperRun, paper_cost

if TYPE_CHECKING:
    from pellucid.training.plan.estimate import TrainingPlan


def tables(plan: TrainingPlan) -> Group:
    """Return the tables of a plan and its assumptions."""
    parts: list[Table | Text] = [_model(plan), Text(), _memory(plan), Text(), _run(plan)]
    if plan.paper is not None:
        parts += [Text(), _paper(plan, plan.paper)]
    if plan.assumed:
        parts += [Text(), *(Text(f"assumed: {line}", style="dim") for line in plan.assumed)]
    return Group(*parts)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", no_wrap=index > 0)
    return table


def _model(plan: TrainingPlan) -> Table:
    table = _table(
        f"Model and one batch: {plan.batch.sentences:,} sentences of {plan.batch.source} and "
        f"{plan.batch.target} tokens",
        "part",
        "parameters",
        "FLOPs, forward",
        "share",
    )
    total = sum(plan.forward_by_part.values())
    for name, count in plan.parameters_by_part.items():
        if name == "embeddings":
            table.add_row("embeddings", f"{count:,}", "", "")
            continue
        stack = name.partition(",")[0]
        table.add_row(name, f"{count:,}", "", "")
        for part, flops in plan.forward_by_part.items():
            if part.startswith(stack):
                table.add_row(f"  {part}", "", f"{flops:.2e}", f"{flops / total:.0%}")
    table.add_section()
    table.add_row("total", f"{plan.parameters:,}", f"{total:.2e}", "")
    return table


def _memory(plan: TrainingPlan) -> Table:
    table = _table("Memory on one device", "part", "MB")
    for name, size in plan.memory.items():
        table.add_row(name, f"{size / 1e6:,.0f}")
    total = sum(plan.memory.values())
    table.add_section()
    table.add_row("total, estimated", f"{total / 1e6:,.0f}")
    if plan.memory_there is not None:
        fits = "it fits" if total < 0.9 * plan.memory_there else "it does NOT fit"
        table.add_row(f"available ({fits})", f"{plan.memory_there / 1e6:,.0f}")
    return table


def _run(plan: TrainingPlan) -> Table:
    table = Table(title="The run", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column("")
    unknown = "not known: the recipe has epochs, and the number of pairs is missing"
    table.add_row("steps", unknown if plan.steps is None else f"{plan.steps:,}")
    if plan.epochs is not None and plan.steps_per_epoch is not None:
        table.add_row("epochs", f"{plan.epochs:,.1f} of {plan.steps_per_epoch:,.0f} steps")
    table.add_row(
        "tokens per step", f"{plan.tokens_per_step:,} source and target, padding included"
    )
    table.add_row(
        "FLOPs per step",
        f"{plan.flops_per_step:.2e} (6ND with the tokens of both sides: "
        f"{plan.six_nd_per_step:.2e}, {plan.six_nd_per_step / plan.flops_per_step:.1f} times that)",
    )
    if plan.flops is not None:
        table.add_row("FLOPs, total", f"{plan.flops:.2e}")
    table.add_row("device", plan.speed.where)
    table.add_row("speed", plan.speed.how)
    optimizer = plan.speed.optimizer_seconds
    of_it = f", {optimizer:.2g} s of it for the optimizer" if optimizer else ""
    table.add_row("time per step", f"{plan.seconds_per_step:.2g} s{of_it}")
    if plan.seconds is not None:
        table.add_row("time, total", f"{format_duration(plan.seconds)}, without validation")
    if plan.cost is not None:
        table.add_row("cost", f"{plan.cost:,.2f} at {plan.price_per_hour:,.2f} per hour")
    return table


def _paper(plan: TrainingPlan, paper: PaperRun) -> Text:
    cost = paper_cost(paper.hours)
    lines = [
        f"The paper's training cost is {paper.cost:.1e} FLOPs. Its method counts what the machines "
        f"could do in the time, {paper.hours:.0f} h x {PAPER_GPUS} GPUs x "
        f"{PAPER_RATE / 1e12:.1f} TFLOP/s = {cost:.2e}."
    ]
    if plan.flops is not None:
        lines.append(
            f"The matrix products of this recipe are {plan.flops:.1e} FLOPs, "
            f"{plan.flops / cost:.0%} of it; 6ND would say "
            f"{plan.six_nd_per_step * (plan.steps or 0):.1e}."
        )
    return Text(" ".join(lines))
