"""Settings of corpora, cleaning, tokenizer and batches."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from pellucid.config.language_codes import Language, split_direction
from pellucid.config.settings import Settings

CorpusFormat = Literal["auto", "tsv", "parallel", "jsonl", "tmx", "po"]


class CorpusConfig(Settings):
    """A parallel corpus on disk: one file with both sides (`path`) or one file per side (`source`,
    `target`). Compression (gzip, zstd) is detected."""

    path: Path | None = None
    """One file with both sides: .tsv, .jsonl, .tmx, .po or .mo, each also as .gz or .zst."""

    source: Path | None = None
    """With one file per side: the file of the first language, one sentence per line."""

    target: Path | None = None
    """With one file per side: the file of the second language. Its line N translates line N of
    `source`."""

    languages: tuple[Language, Language]
    """Languages of the first and the second side, e.g. ["en", "fr"]: what the files contain. Which
    way to translate is `directions`."""

    format: CorpusFormat = "auto"
    """File format; auto: by the file name."""

    columns: tuple[PositiveInt, PositiveInt] | None = None
    """Columns of the two sides in a tab-separated file, counted from 1; other columns are ignored.
    Unset, the file must have exactly two columns."""

    keys: tuple[str, str] | None = None
    """Keys of the two sides in a JSON line. Unset: the language codes, at the top level or inside
    "translation"."""

    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Sampling weight: how often a pair of this corpus is seen, relative to weight 1."""

    @model_validator(mode="after")
    def _check_files(self) -> Self:
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
    """Filters for sentence pairs. The cleaning report counts what is dropped."""

    max_characters: int = Field(default=2000, ge=1, le=100_000)
    """Drop a pair if a side has more characters than this."""

    max_words: int = Field(default=300, ge=1)
    """Drop a pair if a side has more words (separated by white space) than this."""

    max_ratio: float = Field(default=6.0, ge=1)
    """Maximum length ratio: drop a pair if one side has more than this many times the characters of
    the other. Choose it for the languages: Chinese needs about a third of English's characters."""

    ratio_from: int = Field(default=50, ge=0)
    """Minimum number of characters of the longer side for max_ratio to apply: the ratio of short
    sentences ("Ok." and "C'est d'accord pour moi.") says nothing."""

    drop_copies: bool = False
    """Drop pairs whose two sides are identical. They are counted in any case."""

    drop_duplicates: bool = False
    """Drop exact duplicates of earlier pairs. They are counted in any case."""


class DataConfig(Settings):
    """Training, validation and test data."""

    directions: tuple[str, ...] = Field(min_length=1)
    """Translation directions, e.g. ["fr-en", "en-fr"]. One model learns all of them; a tag before
    the source names the target language."""

    train: tuple[CorpusConfig, ...] = Field(min_length=1)
    """Training corpora."""

    valid: tuple[CorpusConfig, ...] = ()
    """Validation corpora, on which the model is measured during training."""

    test: tuple[CorpusConfig, ...] = ()
    """Test corpora, for the report at the end."""

    cleaning: CleaningConfig = CleaningConfig()
    """Filters for sentence pairs."""

    temperature: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """Sampling temperature over corpora: a corpus of n pairs is sampled in proportion to
    weight * n ** (1 / temperature). 1 (or unset) is proportional to size; about 5 helps small
    corpora."""

    @model_validator(mode="after")
    def _check_directions(self) -> Self:
        if len(set(self.directions)) != len(self.directions):
            raise ValueError(f"directions = {list(self.directions)} contains one twice: remove it")
        available = {frozenset(corpus.languages) for corpus in self.train}
        for direction in self.directions:
            if frozenset(split_direction(direction)) not in available:
                have = ", ".join(sorted("-".join(sorted(pair)) for pair in available))
                raise ValueError(
                    f"no training corpus has both languages of direction {direction!r} "
                    f"(there is: {have}): add one to train, or remove the direction"
                )
        return self


class TokenizerConfig(Settings):
    """Subword tokenizer (SentencePiece)."""

    section: ClassVar[str] = "tokenizer"

    from_model: str | None = None
    """Use the tokenizer of this model (a folder or a name) instead of training one; then nothing
    else may be set in this section. Teacher and student need the same vocabulary, also when they
    are trained on different texts."""

    model_type: Literal["unigram", "bpe"] = "unigram"
    """Unigram language model or byte-pair encoding (BPE)."""

    vocab_size: int = Field(default=8000, ge=264, le=1_000_000)
    """Vocabulary size, including the special tokens and the 256 bytes."""

    character_coverage: float = Field(default=0.9995, gt=0, le=1)
    """Fraction of the characters in the text that the vocabulary covers; rarer characters are
    encoded as bytes (byte fallback)."""

    split_digits: bool = False
    """Split numbers into single digits."""

    input_sentence_size: int = Field(default=200_000, ge=1)
    """Maximum number of sentences, sampled at random, to train the tokenizer on. The unigram model
    needs 2 to 3 KB of memory for a sentence of a hundred characters."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    """Random seed of that sample."""

    @model_validator(mode="after")
    def _check_from_model(self) -> Self:
        fields = type(self).model_fields
        for key in self.model_fields_set - {"from_model"} if self.from_model is not None else ():
            if getattr(self, key) != fields[key].default:
                raise ValueError(f"{key} comes from the model that from_model names: leave it out")
        return self


class BatchConfig(Settings):
    """Batching, subword regularization and source noise."""

    section: ClassVar[str] = "batches"

    max_tokens: int = Field(default=4096, ge=8)
    """Maximum number of tokens in a batch on each side, padding included: number of sentences times
    the length of the longest, source or target."""

    bucket_size: int = Field(default=1_000_000, ge=1)
    """Number of randomly drawn examples that are sorted by length together. A smaller number gives
    more random batches, a larger one less padding."""

    prefetch: int = Field(default=8, ge=0)
    """Number of batches to prepare ahead in a background thread; 0 for none."""

    subword_regularization: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Subword regularization: segment words at random, anew each epoch. For a unigram tokenizer,
    the inverse temperature alpha (0.1 to 0.5 is usual; larger is closer to the best segmentation);
    for BPE, the dropout rate of merges (BPE-dropout; 0.1 is usual)."""

    subword_side: Literal["both", "source"] = "both"
    """Which side subword_regularization applies to. With distillation.teachers it has to be
    "source": they score the target tokens in one fixed segmentation."""

    source_noise: float = Field(default=0.0, ge=0, le=1)
    """Fraction of the source sentences to corrupt, different ones each epoch, so that the model
    becomes robust to careless typing: lower case, no final punctuation, missing accents, a typo in
    a word. 0.1 is enough."""

    def samples(self, side: Literal["source", "target"]) -> bool:
        """Return whether this side is segmented at random."""
        return self.subword_regularization is not None and self.subword_side in ("both", side)
