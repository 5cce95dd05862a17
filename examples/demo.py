"""`make demo`: the model that comes with Pellucid translates, and shows where it looked."""

from __future__ import annotations

import sys
from math import exp
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

import pellucid
from pellucid.errors import PellucidError
from pellucid.inspection.figures import shown
from pellucid.translator import Translator

SENTENCES = {
    ("fr", "en"): [
        "Je suis étudiant.",
        "Merci beaucoup pour votre aide !",
        "Où est la gare, s'il vous plaît ?",
        "Elle n'a jamais vu la mer.",
    ],
    ("en", "fr"): [
        "I am a student.",
        "The animal didn't cross the street because it was too tired.",
        "What time do we leave tomorrow?",
        "My brother has lost his keys again.",
    ],
}
LOOKED_AT = "Je ne comprends pas pourquoi il est parti."
PAGE = Path("look.html")
SHADES = " ░▒▓█"


def show_translations(console: Console, translator: Translator) -> None:
    """Sentences both ways, each with how sure the model was."""
    for (source, target), texts in SENTENCES.items():
        table = Table(f"[bold]{source}", f"[bold]{target}", "sure", width=80)
        for text, found in zip(
            texts, translator.translate(texts, source=source, target=target), strict=True
        ):
            table.add_row(text, found.text, f"{exp(found.score):.0%}")
        console.print(table)


def show_attention(console: Console, translator: Translator) -> None:
    """The alignment of a sentence, and the map of attention that it was read from."""
    (found,) = translator.translate([LOOKED_AT], source="fr", target="en", attention=True)
    sentence = found.sentences[0]
    assert sentence.alignment is not None
    assert sentence.attention is not None
    read, written = (
        [shown(piece) for piece in pieces]
        for pieces in (sentence.source_tokens, sentence.best.tokens)
    )
    console.print(f"\n{LOOKED_AT}  →  [bold]{found.text}[/bold]\n")
    links = (f"{word} ← {read[at]}" for word, at in zip(written, sentence.alignment, strict=True))
    console.print(Text(f"Which word comes from which: {', '.join(links)}", style="dim"))
    console.print("\nHow much the decoder looked at each source token for each that it wrote:\n")
    left = max(map(len, written))
    wide = max(5, min(10, (78 - left) // len(read)))  # for a terminal of 80 columns
    heads = (word if len(word) < wide else f"{word[: wide - 2]}…" for word in read)
    console.print(
        Text(" " * (left + 2) + "".join(head.rjust(wide) for head in heads), style="bold")
    )
    for word, row in zip(written, sentence.attention, strict=True):
        line = Text(f"{word:>{left}}  ")
        for weight in row:
            shade = SHADES[min(round(weight * 2 * (len(SHADES) - 1)), len(SHADES) - 1)]
            line.append(" " * (wide - 4) + shade * 4, style="cyan")
        console.print(line)


def write_page(console: Console, translator: Translator) -> None:
    """The interactive panels for that sentence, in one file."""
    from pellucid.inspection.command import look

    look(LOOKED_AT, PAGE, source="fr", target="en", model=str(translator.bundle.folder))
    console.print(
        f"\nEverything that happened inside is in [bold]{PAGE}[/bold]: open it in a browser."
    )


def main() -> int:
    """Run the demo."""
    console = Console()
    try:
        translator = pellucid.load()
        show_translations(console, translator)
        show_attention(console, translator)
        write_page(console, translator)
    except PellucidError as error:
        console.print(f"[red]{error}")
        return error.exit_code
    console.print(
        "\nWhat to try next:\n"
        '  .venv/bin/pellucid translate --to fr "Where is the station?"\n'
        "  .venv/bin/pellucid serve                   # the page: translate, look inside\n"
        "  .venv/bin/pellucid train recipes/toy.toml  # a model of your own, in a minute"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
