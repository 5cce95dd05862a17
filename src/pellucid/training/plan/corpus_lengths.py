"""How long the sentences of a recipe's corpora are in tokens, by a quick look at them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from pellucid.config import CorpusConfig, Recipe, split_direction
from pellucid.data.buckets import SOURCE_EXTRA, TARGET_EXTRA
from pellucid.data.cleaning import fit_pairs
from pellucid.data.corpus import Pair, read_pairs
from pellucid.errors import InputError
from pellucid.tokenizers.sentencepiece import Tokenizer, reservoir
from pellucid.translator.loading import open_bundle

SAMPLE = 4000  # pairs that are cut into tokens
MOST_PAIRS = 5_000_000  # a longer corpus is not read to its end
ASSUMED_TOKENS = 28.0  # a sentence of WMT14 news, in pieces of a vocabulary of about 37,000
_SMALLEST_VOCABULARY = 400


@dataclass(frozen=True)
class Lengths:
    """The typical batch's lengths, special tokens included.

    Batches hold a budget of tokens, so a long sentence takes a larger share of them than a short
    one: `source` and `target` are means over tokens, `longest` is the mean over sentences.
    """

    source: float
    target: float
    longest: float
    """Mean of the longer of the two sides, which is what the budget is charged with."""

    examples: int | None
    """Pairs times the directions they are read in: an epoch. None where nobody knows."""

    assumed: tuple[str, ...] = ()


def look_at_data(recipe: Recipe, pairs: int | None = None) -> Lengths:
    """Read the training corpora, cut a sample into tokens, and measure; or assume, and say so."""
    directions = [split_direction(direction) for direction in recipe.data.directions]
    missing = [path for corpus in recipe.data.train for path in _paths(corpus) if not path.exists()]
    if missing:
        return _assumed(recipe, pairs, f"{missing[0]} is not there")
    counted = 0
    sampled: list[tuple[str, str]] = []
    share = max(1, SAMPLE // len(recipe.data.train))
    more = False
    for corpus in recipe.data.train:
        ways = [way for way in directions if set(way) == set(corpus.languages)]
        kept = _Counter(corpus, recipe)
        some = reservoir(kept, share, seed=0)
        counted += kept.count * len(ways)
        more = more or kept.cut_short
        for source, _ in ways:
            turned = corpus.languages.index(source) == 1
            sampled += [(p.second, p.first) if turned else (p.first, p.second) for p in some]
    if not sampled:
        raise InputError("the training corpora have no pair to learn from: see `pellucid data`")
    taken = recipe.init_from or recipe.tokenizer.from_model
    tokenizer = open_bundle(taken).tokenizer if taken else _quick_tokenizer(sampled, recipe)
    sources, targets = (
        np.array([len(row) for row in tokenizer.encode_batch(list(side))], float)
        for side in zip(*sampled, strict=True)
    )
    sources, targets = sources + SOURCE_EXTRA, targets + TARGET_EXTRA
    longest = np.maximum(sources, targets)
    learned = "" if taken else ", with a vocabulary learned from them"
    assumed = [f"lengths are of {len(sampled):,} sentences{learned}"]
    if more:
        assumed.append(f"a corpus has more than {MOST_PAIRS:,} pairs; the rest is not counted")
    if pairs is not None:
        counted, assumed = pairs * len(directions), [*assumed, f"{pairs:,} pairs, as you say"]
    return Lengths(
        source=float((sources * longest).sum() / longest.sum()),
        target=float((targets * longest).sum() / longest.sum()),
        longest=float(longest.mean()),
        examples=counted,
        assumed=tuple(assumed),
    )


class _Counter:
    """The pairs of a corpus that are fit to learn from, counted on the way."""

    def __init__(self, corpus: CorpusConfig, recipe: Recipe) -> None:
        self.corpus, self.cleaning = corpus, recipe.data.cleaning
        self.count = 0
        self.cut_short = False

    def __iter__(self) -> Iterator[Pair]:
        pairs = read_pairs(self.corpus)
        for pair in fit_pairs(islice(pairs, MOST_PAIRS), self.cleaning):
            self.count += 1
            yield pair
        self.cut_short = next(pairs, None) is not None


def _paths(corpus: CorpusConfig) -> list[Path]:
    return [path for path in (corpus.path, corpus.source, corpus.target) if path is not None]


def _quick_tokenizer(sampled: list[tuple[str, str]], recipe: Recipe) -> Tokenizer:
    """The recipe's tokenizer, learned from the sample, smaller if the sample cannot fill it."""
    texts = [text for pair in sampled for text in pair]
    languages = sorted({name for way in recipe.data.directions for name in split_direction(way)})
    settings = recipe.tokenizer
    while True:
        try:
            return Tokenizer.train(texts, settings, languages)
        except InputError:
            smaller = settings.vocab_size // 2
            if smaller < _SMALLEST_VOCABULARY:
                raise
            settings = settings.changed(vocab_size=smaller)


def _assumed(recipe: Recipe, pairs: int | None, why: str) -> Lengths:
    longest = min(ASSUMED_TOKENS, recipe.batches.max_tokens)
    told = [f"{why}: sentences of {longest:.0f} tokens are assumed"]
    if pairs is None:
        told.append("how many pairs there are is not known (say it with --pairs)")
    else:
        told.append(f"{pairs:,} pairs, as you say")
    examples = None if pairs is None else pairs * len(recipe.data.directions)
    return Lengths(longest, longest, longest, examples, tuple(told))
