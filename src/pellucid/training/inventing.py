"""More to learn from teachers: sentences that nobody wrote, translated by them.

Teachers know the training pairs, much of them by heart, so there they say little more than the
pairs do; of sentences that they have not seen they may have more to say. Those can be had for
nothing: put together from parts of the training sentences (`text.recombined`). The teachers
translate them, each its share of them and word by word the most probable, and are then asked about
them as about any other pair (`teaching`), so that at every place the mean of all of them is
learned and a slip of the one that translated weighs little.

They stand in the run's folder as corpora like any other, a file for each direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.bundle import Bundle
from pellucid.config import CorpusConfig, Recipe, split_direction
from pellucid.decoding.engines import open_engine
from pellucid.errors import InputError
from pellucid.text.cleaning import fit_pairs
from pellucid.text.corpus import read_pairs
from pellucid.text.progress import Progress
from pellucid.text.recombined import recombined
from pellucid.text.tokenizer import reservoir
from pellucid.translator.translator import Translator

if TYPE_CHECKING:
    from rich.console import Console

MOST_SENTENCES = 200_000
"""Sentences of a direction that others are put together from, drawn at random."""

MOST_INVENTED = 1_000_000
"""Sentences that are put together for a direction: they are held in memory."""


def invented(
    recipe: Recipe, teachers: Sequence[Bundle], folder: Path, console: Console | None = None
) -> tuple[CorpusConfig, ...]:
    """The corpora of a recipe's `training.inventing`: made by these teachers, or as they are there.

    teachers: none, if the run has begun; then what it was begun with is used.
    """
    corpora = tuple(
        CorpusConfig(path=folder / f"{direction}.tsv", languages=split_direction(direction))
        for direction in recipe.data.directions
    )
    if teachers:
        folder.mkdir(parents=True, exist_ok=True)
        with Progress(console) as progress:
            for corpus in corpora:
                _write(recipe, corpus, teachers, progress)
    return corpora


def _write(
    recipe: Recipe, corpus: CorpusConfig, teachers: Sequence[Bundle], progress: Progress
) -> None:
    assert corpus.path is not None
    source, target = corpus.languages
    pairs = 0

    def sentences() -> Iterator[str]:
        nonlocal pairs
        for sentence in _sources(recipe, source, target):
            pairs += 1
            yield sentence

    seed, way = recipe.training.seed, f"{source}-{target}"
    sample = reservoir(sentences(), MOST_SENTENCES, seed)
    wanted = min(round(pairs * recipe.training.inventing), MOST_INVENTED)
    made = recombined(sample, wanted, seed)
    if not made:
        raise InputError(
            f"training.inventing: no new sentence can be put together from those of {way}, which "
            "share no two words in a row (or have no spaces between words): leave it out"
        )
    fewer = f" (of {wanted:,} that were wanted: they have few words in common)"
    progress.say(
        f"{way}: {len(made):,} sentences put together from parts of others"
        + (fewer if len(made) < wanted else "")
    )
    step = progress.step(f"translating them, {way}", "sentences", total=len(made))
    draft = corpus.path.with_suffix(".writing")
    with draft.open("w", encoding="utf-8", newline="\n") as file:
        for number, bundle in enumerate(teachers):
            share = made[number :: len(teachers)]
            translator = Translator(bundle, open_engine(bundle))
            texts = translator.translate_lines(share, source, target, beam=1)
            for sentence, text in zip(share, texts, strict=True):
                file.write(f"{sentence}\t{' '.join(text.split())}\n")
                step.advance(1)
    draft.replace(corpus.path)


def _sources(recipe: Recipe, source: str, target: str) -> Iterator[str]:
    """The source sides of the training pairs of a direction that are fit to learn from."""
    for corpus in recipe.data.train:
        if set(corpus.languages) != {source, target}:
            continue
        turned = corpus.languages[0] == target
        for pair in fit_pairs(read_pairs(corpus), recipe.data.cleaning):
            yield pair.second if turned else pair.first
