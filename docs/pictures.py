"""The pictures of the book, made by `pellucid look` from the embedded model.

    python -m docs.pictures                     all of them, into docs/book/pictures
    python -m docs.pictures --model runs/x/bundle -o /tmp/pictures --screenshot

A page whose picture is missing cannot be built. --screenshot adds screenshot.png, the page itself
as Chromium shows it, for the README.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE / "book" / "pictures"
MODEL = HERE.parent / "src" / "pellucid" / "models" / "fr-en"
SENTENCE = "Le vieux capitaine regarde la mer parce qu'il attend un bateau."
SHORT = "Elle n'a jamais vu la mer."


@dataclass(frozen=True)
class Picture:
    """What a picture shows, and the options of `pellucid look` that make it."""

    caption: str
    options: tuple[str, ...] = ()
    text: str = SENTENCE


PICTURES = {
    "positions": Picture(
        "The position vectors of a sentence: a row for each position, a column for each number.",
        ("--what", "positions"),
    ),
    "self": Picture(
        "Self-attention in the encoder: each row is a token, the darker a cell the more it takes.",
        ("--kind", "encoder", "--layer", "1", "--head", "1"),
    ),
    "heads": Picture(
        "Another head of the same layer looks elsewhere.",
        ("--kind", "encoder", "--layer", "1", "--head", "2"),
    ),
    "masked": Picture(
        "Self-attention in the decoder: above the diagonal lies the future, which is hidden.",
        ("--kind", "decoder", "--layer", "1", "--head", "1"),
    ),
    "cross": Picture("Cross-attention: where the decoder looks when it writes a token."),
    "encoder-top": Picture(
        "The last encoder layer, the mean of its heads.",
        ("--kind", "encoder", "--layer", "-1", "--head", "mean"),
    ),
    "greedy": Picture(
        "A greedy search: one way is kept in each round.",
        ("--what", "beam", "--beam-size", "1"),
        SHORT,
    ),
    "beam": Picture(
        "A beam of 2: two ways are kept in each round.",
        ("--what", "beam", "--beam-size", "2"),
        SHORT,
    ),
}


def make(name: str, model: Path, folder: Path) -> None:
    """One picture, by the command that a reader would type."""
    picture = PICTURES[name]
    arguments = [picture.text, "-o", str(folder / f"{name}.svg"), "--model", str(model)]
    command = [sys.executable, "-m", "pellucid", "look", *arguments, *picture.options]
    subprocess.run(command, check=True)


def screenshot(model: Path, file: Path) -> None:
    """The page with the sentence translated and looked into, as Chromium shows it."""
    from playwright.sync_api import sync_playwright

    from tests.web.serving import Server, browser_here

    with Server(model) as server, sync_playwright() as playwright:
        browser: Any = playwright.chromium.launch(
            executable_path=browser_here(), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1200, "height": 1180}, device_scale_factor=1.5)
        page.goto(f"{server.address}/#q={SENTENCE}&panel=attention&kind=cross")
        page.locator("#panel[aria-busy=false] h2").wait_for(state="attached", timeout=60_000)
        page.screenshot(path=str(file))
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("-o", "--output", type=Path, default=FOLDER)
    parser.add_argument("--screenshot", action="store_true")
    chosen = parser.parse_args()
    if not chosen.model.exists():
        sys.exit(f"there is no model at {chosen.model}: name one with --model")
    chosen.output.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        make(name, chosen.model, chosen.output)
    if chosen.screenshot:
        screenshot(chosen.model, chosen.output / "screenshot.png")


if __name__ == "__main__":
    main()
