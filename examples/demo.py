"""`make demo`: train a tiny Transformer before your eyes, translate with it, look inside.

The made-up language pair: digit words, translated by reversing their order.
"""

import sys
import time

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from examples.toy import (
    END,
    START,
    TASKS,
    VOCABULARY,
    examples,
    padded,
    small_model,
    train,
    translate,
)
from pellucid.model import Trace, Transformer

STEPS = 600
SHADES = " ░▒▓█"


def learn(console: Console, unseen: list[list[int]]) -> Transformer:
    """Train with a progress bar, or with plain lines where the output is not a terminal."""
    torch.manual_seed(1)
    torch.set_num_threads(1)  # tensors this small gain nothing from more
    model = small_model()
    console.print(
        f"A Transformer with {model.num_parameters():,} parameters learns to say digits backwards."
    )
    columns = ("{task.description}", BarColumn(), TextColumn("loss {task.fields[loss]:.3f}"))
    started = time.monotonic()
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("training", total=STEPS, loss=float("nan"))

        def watch(step: int, loss: float) -> None:
            progress.update(bar, advance=1, loss=loss)
            if not console.is_terminal and (step + 1) % 150 == 0:
                print(f"step {step + 1} of {STEPS}, loss {loss:.4f}", flush=True)

        train(model, TASKS["reverse"], steps=STEPS, unseen=unseen, watch=watch)
    console.print(f"trained in {time.monotonic() - started:.0f} seconds\n")
    return model


def words(ids: list[int]) -> str:
    """Token ids as words."""
    return " ".join(VOCABULARY[i] for i in ids)


def show_translations(console: Console, model: Transformer, unseen: list[list[int]]) -> int:
    """A few sentences it has never seen, and how many of all of them are right."""
    answers = translate(model, unseen)
    right = [a == TASKS["reverse"](s) for s, a in zip(unseen, answers, strict=True)]
    table = Table("source", "translation", "", title="sentences it has never seen", min_width=80)
    for source, answer, ok in list(zip(unseen, answers, right, strict=True))[:5]:
        table.add_row(words(source), words(answer), "[green]right" if ok else "[red]wrong")
    console.print(table)
    console.print(f"right: {sum(right)} of {len(right)}\n")
    return sum(right)


def show_attention(console: Console, model: Transformer, source: list[int]) -> None:
    """One map of cross-attention: which source words each word was written from."""
    target = translate(model, [source])[0]
    trace = Trace(only=["decoder.*.cross.weights"])
    with torch.no_grad():
        model(padded([source]), torch.tensor([[START, *target]]), trace=trace)
    # the head whose looks are most decided is the one that is easiest to read
    maps = torch.cat([trace[name][0] for name in trace])  # (layers · H, T, S)
    best = int(maps.max(dim=-1).values.mean(dim=-1).argmax())
    layer, head = divmod(best, model.config.heads)
    console.print(f"Where the decoder looks in the source (layer {layer + 1}, head {head + 1}):\n")
    wide = max(len(VOCABULARY[i]) for i in source) + 1
    console.print(Text(" " * 12 + "".join(VOCABULARY[i].rjust(wide) for i in source)))
    for row, token in zip(maps[best], [*target, END], strict=True):
        line = Text(f"{VOCABULARY[token]:>10}  ")
        for weight in row.tolist():
            shade = SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)]
            line.append(" " * (wide - 4) + shade * 4, style="cyan")
        line.append(f"   {row.max():.2f} on {VOCABULARY[source[int(row.argmax())]]}", style="dim")
        console.print(line)
    console.print("\nEach row is a word that was written; the shade is how much it looked there.")


def main() -> int:
    """Run the demo; the exit code says whether it learned."""
    console = Console()
    unseen = [row for row in examples(300, torch.Generator().manual_seed(99)) if len(row) > 3]
    model = learn(console, unseen)
    right = show_translations(console, model, unseen)
    show_attention(console, model, next(row for row in unseen if len(set(row)) == len(row) > 5))
    return 0 if right >= 0.95 * len(unseen) else 1


if __name__ == "__main__":
    sys.exit(main())
