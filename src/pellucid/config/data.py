"""What a model learns from: corpora, their cleaning, the tokenizer, the batches."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from pellucid.config.language_codes import Language, split_direction
from pellucid.config.settings import Settings

CorpusFormat = Literal["auto", "tsv", "parallel", "jsonl", "tmx", "po"]


class CorpusConfig(Settings):
    """Sentence pairs on disk: one file with both sides (`path`) or one file a side (`source`,
    `target`). Compression (.gz, .zst) is recognised by itself."""

    path: Path | None = None
    """One file that holds both sides: .tsv, .jsonl or .tmx (each also .gz or .zst), .po or .mo."""

    source: Path | None = None
    """The file with the first language, a sentence a line, where each side has a file."""

    target: Path | None = None
    """The file with the second language; its line N translates line N of `source`."""

    languages: tuple[Language, Language]
    """The languages of the first and the second side, e.g. ["en", "fr"]. They say what is in the
    files, not which way to translate: that is `directions`."""

    format: CorpusFormat = "auto"
    """What the file is; auto goes by the name."""

    columns: tuple[PositiveInt, PositiveInt] | None = None
    """Which columns of a tab-separated file hold the two sides, counted from 1. Unset, the file
    must have exactly two; set, further columns are ignored."""

    keys: tuple[str, str] | None = None
    """Which keys of a JSON line hold the two sides. Unset: the language codes, at the top or under
    "translation"."""

    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """How often a pair of this corpus is seen, relative to a pair of a corpus with weight 1."""

    @model_validator(mode="after")
    def _files_fit(self) -> Self:
        if self.path is not None and (self.source is not None or self.target is not None):
            raise ValueError(
                f"corpus {self.path} has path and also source or target: give one file with both "
                "sides (path), or two parallel files (source and target)"
            )
        if self.path is None and (self.source is None or self.target is None):
            raise ValueError(
                "a corpus needs its files: give path (one file with both sides), or source and "
                "target (two parallel files)"
            )
        if (self.path is None) != (self.format == "parallel") and self.format != "auto":
            raise ValueError(
                f"format = {self.format!r} does not fit: 'parallel' goes with source and target, "
                "the other formats with path"
            )
        if self.languages[0] == self.languages[1]:
            raise ValueError(
                f"languages = {list(self.languages)} are the same: name the language of each side"
            )
        return self


class CleaningConfig(Settings):
    """Which sentence pairs are left out of training. Whatever is left out is counted."""

    max_characters: int = Field(default=2000, ge=1, le=100_000)
    """A pair with a longer side than this many characters is dropped."""

    max_words: int = Field(default=300, ge=1)
    """A pair with a side of more words than this (by white space) is dropped."""

    max_ratio: float = Field(default=6.0, ge=1)
    """A pair is dropped if one side has more than this many times the characters of the other.
    Chinese needs about a third of the characters of English, so mind the languages."""

    ratio_from: int = Field(default=50, ge=0)
    """The ratio is judged only where the longer side has at least this many characters: among
    short ones ("Ok." and "C'est d'accord pour moi.") it says nothing."""

    drop_copies: bool = False
    """Drop pairs whose two sides are the same text. They are counted in any case."""

    drop_duplicates: bool = False
    """Drop pairs that stood before, both sides exactly. They are counted in any case."""


class DataConfig(Settings):
    """What a model is trained and judged on."""

    directions: tuple[str, ...] = Field(min_length=1)
    """Which ways to translate, e.g. ["fr-en", "en-fr"]: one model learns them all, told apart by
    a tag for the target language."""

    train: tuple[CorpusConfig, ...] = Field(min_length=1)
    """Corpora to learn from."""

    valid: tuple[CorpusConfig, ...] = ()
    """Corpora that say during training how good the model is; it does not learn from them."""

    test: tuple[CorpusConfig, ...] = ()
    """Corpora for the report at the end."""

    cleaning: CleaningConfig = CleaningConfig()
    """Which pairs to leave out."""

    temperature: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """Flattens the mix of corpora of different size: a corpus of n pairs is drawn in proportion to
    weight * n ** (1 / temperature). 1 (or unset) is as they come; about 5 helps small corpora."""

    @model_validator(mode="after")
    def _directions_fit(self) -> Self:
        if len(set(self.directions)) != len(self.directions):
            raise ValueError(f"directions = {list(self.directions)} has one twice: remove it")
        there = {frozenset(corpus.languages) for corpus in self.train}
        for direction in self.directions:
            if frozenset(split_direction(direction)) not in there:
                have = ", ".join(sorted("-".join(sorted(pair)) for pair in there))
                raise ValueError(
                    f"no training corpus has both languages of direction {direction!r} "
                    f"(there is: {have}): add one to train, or remove the direction"
                )
        return self


class TokenizerConfig(Settings):
    """How text is cut into pieces."""

    from_model: str | None = None
    """A model, as a folder or a name, whose pieces to take in place of new ones; then nothing else
    is set in this section. Models that are trained on different texts, and are to teach one
    another, need the same pieces."""

    model_type: Literal["unigram", "bpe"] = "unigram"
    """The most probable pieces (unigram), or byte-pair merges (bpe)."""

    vocab_size: int = Field(default=8000, ge=264, le=1_000_000)
    """Number of pieces, with the special ones and the 256 bytes."""

    character_coverage: float = Field(default=0.9995, gt=0, le=1)
    """Share of the characters of the text that get a piece of their own; rarer ones are spelled
    in bytes."""

    split_digits: bool = False
    """Cut numbers into single digits."""

    input_sentence_size: int = Field(default=200_000, ge=1)
    """Learn the pieces from at most this many sentences, drawn at random. The unigram model needs
    2 to 3 KB of memory for each of a hundred characters."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    """Decides which sentences are drawn."""

    @model_validator(mode="after")
    def _pieces_are_decided_once(self) -> Self:
        usual = type(self).model_fields
        for key in self.model_fields_set - {"like"} if self.from_model is not None else ():
            if getattr(self, key) != usual[key].default:
                raise ValueError(f"{key} is that of the model that like names: leave it out")
        return self


class BatchConfig(Settings):
    """How sentence pairs are put together for a training step."""

    max_tokens: int = Field(default=4096, ge=8)
    """A batch holds at most this many tokens on each side, padding included: sentences times the
    longest of them, source or target."""

    bucket_size: int = Field(default=1_000_000, ge=1)
    """Sentences are grouped by length among this many drawn at random. Fewer give more random
    batches, more give less padding."""

    prefetch: int = Field(default=8, ge=0)
    """Batches made ahead in the background; 0 makes each when it is asked for."""

    subword_regularization: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Cut words into pieces at random, anew each epoch. For a unigram tokenizer, how much to keep
    to the best cut (0.1 to 0.5 is usual); for bpe, the share of merges left out (0.1 is usual)."""

    subword_side: Literal["both", "source"] = "both"
    """Which side subword_sampling cuts. With distillation.teachers only "source" can be, for their
    answers are about the target's pieces as they are."""

    source_noise: float = Field(default=0.0, ge=0, le=1)
    """The share of the sources that are read as if typed in a hurry, other ones each epoch: small
    letters, no mark at the end, accents left off, a slip in a word. So the model learns to forgive
    that; 0.1 is enough."""

    def samples(self, side: Literal["source", "target"]) -> bool:
        """Whether the words of this side are cut at random."""
        return self.subword_regularization is not None and self.subword_side in ("both", side)
