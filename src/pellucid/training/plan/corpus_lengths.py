"""Sentence lengths of a recipe's corpora in tokens, measured on a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from pellucid.config import CorpusConfig, Recipe, split_direction
from pellucid.data.buckets import SOURCE_EXTRA, TARGET_EXTRA
from pellucid.data.cleaning import clean_pairs
from pellucid.data.corpus import Pair, read_pairs
from pellucid.errors import InputError
from pellucid.tokenizers.sentencepiece import Tokenizer, reservoir
from pellucid.translator.loading import open_bundle

SAMPLE = 4000  # pairs that are tokenized
MAX_PAIRS = 5_000_000  # a longer corpus is not read to its end
ASSUMED_TOKENS = 28.0  # per sentence of WMT14 news, with a vocabulary of about 37,000
_SMALLEST_VOCABULARY = 400


@dataclass(frozen=True)
class CorpusLengths:
    """Lengths of a typical batch in tokens, special tokens included.

    Batches have a token budget (`batches.max_tokens`), so long sentences make up more of the
    batches than short ones: `source` and `target` are means over tokens, `longest` is the mean
    over sentences.
    """

    source: float
    target: float
    longest: float
    """Mean of the longer of the two sides, which is what counts towards the budget."""

    examples: int | None
    """Examples per epoch: pairs times directions. None if not known."""

    assumed: tuple[str, ...] = ()


def measure_lengths(recipe: Recipe, pairs: int | None = None) -> CorpusLengths:
    """Measure lengths on a tokenized sample of the corpora; assume them if a file is missing."""
    directions = [split_direction(direction) for direction in recipe.data.directions]
    missing = [path for corpus in recipe.data.train for path in _paths(corpus) if not path.exists()]
    if missing:
        return _assumed(recipe, pairs, f"{missing[0]} is missing")
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
            reverse = corpus.languages.index(source) == 1
            sampled += [(p.second, p.first) if reverse else (p.first, p.second) for p in some]
    if not sampled:
        raise InputError(
            "the training corpora have no pairs left after cleaning: see `pellucid data`"
        )
    model = recipe.init_from or recipe.tokenizer.from_model
    tokenizer = open_bundle(model).tokenizer if model else _quick_tokenizer(sampled, recipe)
    sources, targets = (
        np.array([len(row) for row in tokenizer.encode_batch(list(side))], float)
        for side in zip(*sampled, strict=True)
    )
    sources, targets = sources + SOURCE_EXTRA, targets + TARGET_EXTRA
    longest = np.maximum(sources, targets)
    trained = "" if model else ", with a tokenizer trained on them"
    assumed = [f"lengths are those of {len(sampled):,} sampled sentences{trained}"]
    if more:
        assumed.append(f"a corpus has more than {MAX_PAIRS:,} pairs; the rest is not counted")
    if pairs is not None:
        counted, assumed = (
            pairs * len(directions),
            [*assumed, f"{pairs:,} pairs, as given by --pairs"],
        )
    return CorpusLengths(
        source=float((sources * longest).sum() / longest.sum()),
        target=float((targets * longest).sum() / longest.sum()),
        longest=float(longest.mean()),
        examples=counted,
        assumed=tuple(assumed),
    )


class _Counter:
    """The pairs of a corpus that pass cleaning, counted while they are read."""

    def __init__(self, corpus: CorpusConfig, recipe: Recipe) -> None:
        self.corpus, self.cleaning = corpus, recipe.data.cleaning
        self.count = 0
        self.cut_short = False

    def __iter__(self) -> Iterator[Pair]:
        pairs = read_pairs(self.corpus)
        for pair in clean_pairs(islice(pairs, MAX_PAIRS), self.cleaning):
            self.count += 1
            yield pair
        self.cut_short = next(pairs, None) is not None


def _paths(corpus: CorpusConfig) -> list[Path]:
    return [path for path in (corpus.path, corpus.source, corpus.target) if path is not None]


def _quick_tokenizer(sampled: list[tuple[str, str]], recipe: Recipe) -> Tokenizer:
    """Train the recipe's tokenizer on the sample, with a smaller vocabulary if it is too little."""
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


def _assumed(recipe: Recipe, pairs: int | None, why: str) -> CorpusLengths:
    longest = min(ASSUMED_TOKENS, recipe.batches.max_tokens)
    assumed = [f"{why}: sentences of {longest:.0f} tokens are assumed"]
    if pairs is None:
        assumed.append("the number of pairs is not known (give it with --pairs)")
    else:
        assumed.append(f"{pairs:,} pairs, as given by --pairs")
    examples = None if pairs is None else pairs * len(recipe.data.directions)
    return CorpusLengths(longest, longest, longest, examples, tuple(assumed))
