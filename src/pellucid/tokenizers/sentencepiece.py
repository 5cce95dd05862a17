"""The SentencePiece tokenizer: text to token ids and back, without loss.

It is set up so that `decode(encode(text)) == text` for every text: nothing is normalized, every
space is kept, and a character without a piece is encoded in bytes (byte fallback). The one
exception is half a surrogate pair, which is not text; it is read as U+FFFD.

What a person types never becomes a special token: "</s>" or "<2fr>" in a text is plain text.
"""

from __future__ import annotations

import hashlib
import io
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import exp, floor, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pellucid.errors import InputError, PellucidError
from pellucid.tokenizers.base import Side
from pellucid.tokenizers.subword_regularization import SPACE, BpeDropout, UnigramSampler

if TYPE_CHECKING:
    from pellucid.config import TokenizerConfig

FILE = "tokenizer.model"
PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3

Item = TypeVar("Item")
PieceKind = Literal["special", "tag", "byte", "text"]

_TAG = re.compile(r"<2(\w+)>")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONGEST_LINE = 1 << 20  # bytes; SentencePiece silently skips longer lines


@dataclass(frozen=True, slots=True)
class Piece:
    """A row of the piece table."""

    id: int
    piece: str
    """The piece as SentencePiece writes it; a space is U+2581."""

    score: float
    """Natural-log probability (unigram), or minus the rank of the merge (BPE)."""

    kind: PieceKind

    @property
    def readable(self) -> str:
        """The piece for people to read: a space is ␣, a byte is shown with its ASCII character."""
        if self.kind != "byte":
            return self.piece.replace(SPACE, "␣")
        value = int(self.piece[3:5], 16)
        return f"byte {value:02X}" + (f" {chr(value)}" if 0x20 < value < 0x7F else "")


FEW = 32
"""Fewer sequences than this are decoded one by one, without starting threads."""


class Tokenizer:
    """A trained SentencePiece tokenizer; `Tokenizer.train` and `Tokenizer.load` make one."""

    pad_id, unk_id, bos_id, eos_id = PAD_ID, UNK_ID, BOS_ID, EOS_ID
    lead = 1  # the tag

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        sentencepiece.set_min_log_level(3)  # the error below reports a wrong file, not its log
        try:
            self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise PellucidError("this is not a SentencePiece model: the file is damaged") from None
        self._model = model
        self._tags = self._read_layout()

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        config: TokenizerConfig | None = None,
        languages: Sequence[str] = ("en", "fr"),
    ) -> Tokenizer:
        """Train a tokenizer on a sample of at most `config.input_sentence_size` texts.

        The same texts and settings give the same bytes. Each of `languages` gets a tag, `<2en>`,
        which names the target language to the model.
        """
        import sentencepiece

        from pellucid.config import TokenizerConfig

        config = config or TokenizerConfig()
        sample = reservoir((t for t in texts if t), config.input_sentence_size, config.seed)
        if not sample:
            raise InputError("no text to train a tokenizer on: the corpus is empty")
        model = io.BytesIO()
        sentencepiece.set_min_log_level(3)
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(_SURROGATE.sub("\ufffd", text) for text in sample),
                model_writer=model,
                model_type=config.model_type,
                vocab_size=config.vocab_size,
                character_coverage=config.character_coverage,
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                control_symbols=[f"<2{language}>" for language in languages],
                byte_fallback=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                add_dummy_prefix=True,
                split_digits=config.split_digits,
                max_sentence_length=_LONGEST_LINE,
                shuffle_input_sentence=False,
                num_threads=1,  # the unigram model's scores depend on the number of threads
                minloglevel=3,
            )
        except RuntimeError as error:
            raise _explained(error, config) from None
        return cls(model.getvalue())

    @classmethod
    def load(cls, source: Path | str | bytes) -> Tokenizer:
        """Load a tokenizer from its file, or from the bytes of that file."""
        if isinstance(source, bytes):
            return cls(source)
        try:
            model = Path(source).read_bytes()
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"cannot read the tokenizer {source}: {reason}") from None
        try:
            return cls(model)
        except PellucidError as error:
            raise PellucidError(f"{source}: {error}") from None

    def save(self, path: Path | str) -> None:
        """Write the tokenizer to a file."""
        Path(path).write_bytes(self._model)

    @property
    def model(self) -> bytes:
        """The SentencePiece model, as stored in the file."""
        return self._model

    def files(self) -> Mapping[str, bytes]:
        """Return the file of the tokenizer."""
        return {FILE: self._model}

    @property
    def sha256(self) -> str:
        """Hash of the tokenizer: with the same hash, the result is the same."""
        return hashlib.sha256(self._model).hexdigest()

    @property
    def vocab_size(self) -> int:
        """Number of ids, including special tokens."""
        return int(self._processor.get_piece_size())

    @property
    def source_vocab_size(self) -> int:
        """Number of ids on the source side: both sides share the vocabulary."""
        return self.vocab_size

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that have a tag."""
        return tuple(self._tags)

    def tag_id(self, language: str) -> int:
        """Return the id of the tag `<2xx>`, which names the target language before the source."""
        if language not in self._tags:
            available = ", ".join(self._tags) or "none"
            raise InputError(
                f"this tokenizer has no tag for language {language!r}: it has {available}"
            )
        return self._tags[language]

    def tag_ids(self, language: str) -> list[int]:
        """Return the ids before the words in a source sequence: the tag."""
        return [self.tag_id(language)]

    def piece(self, token: int, side: Side = "target") -> str:
        """Return a piece as SentencePiece writes it; `pieces` has all, with more about each."""
        return str(self._processor.id_to_piece(token))

    @cached_property
    def _vocabulary(self) -> list[str]:
        found: list[str] = self._processor.id_to_piece(list(range(self.vocab_size)))
        return found

    def vocabulary(self, side: Side = "target") -> Sequence[str]:
        """Return all pieces as SentencePiece writes them; both sides have the same."""
        return self._vocabulary

    def encode(
        self, text: str, *, target_language: str | None = None, side: Side = "source"
    ) -> list[int]:
        """Return the ids of a text, without special tokens.

        With `target_language`, return the whole source sequence: tag, pieces, end token
        (`<2fr> ... </s>`). Both sides share the vocabulary, so `side` makes no difference.
        """
        ids = self.encode_batch([text])[0]
        return ids if target_language is None else [self.tag_id(target_language), *ids, EOS_ID]

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        target_language: str | None = None,
        side: Side = "source",
        threads: int = 1,
    ) -> list[list[int]]:
        """Encode many texts at once, in order."""
        texts = list(texts)
        try:
            ids: list[list[int]] = self._processor.encode(texts, num_threads=threads)
        except (RuntimeError, TypeError, UnicodeEncodeError):  # half a surrogate pair
            texts = [_SURROGATE.sub("\ufffd", text) for text in texts]
            ids = self._processor.encode(texts, num_threads=threads)
        for index, text in enumerate(texts):
            if SPACE in text:
                shielded, placeholder = self._shield(text)
                ids[index] = _unshield(self._processor.encode(shielded), placeholder, self._bytes)
        if target_language is not None:
            tag = self.tag_id(target_language)
            return [[tag, *row, EOS_ID] for row in ids]
        return ids

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        """Return the text of some ids; special tokens are skipped."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]], side: Side = "target") -> list[str]:
        """Decode many sequences at once, in order."""
        rows = [[int(token) for token in ids] for ids in batch]
        size = self.vocab_size
        for token in chain.from_iterable(rows):
            if not 0 <= token < size:
                raise InputError(f"token id {token} is outside the vocabulary of {size}")
        if len(rows) < FEW:  # starting SentencePiece's threads would take longer
            return [self._processor.decode(row) if row else "" for row in rows]
        texts: list[str] = self._processor.decode(rows)
        return texts

    def sample(self, text: str, seed: int, strength: float) -> list[int]:
        """Return the ids of a random segmentation; the same seed gives the same one on any machine.

        For a unigram model `strength` is alpha: 0 samples all segmentations uniformly, and a larger
        value stays closer to the best one (0.1 to 0.5 is usual). For BPE it is the dropout rate of
        merges (0.1 is usual; 0 is the plain encoding).
        """
        if not text:
            return []
        text = _SURROGATE.sub("\ufffd", text)
        placeholder = ""
        if SPACE in text:
            text, placeholder = self._shield(text)
        prepared = SPACE + text.replace(" ", SPACE)
        ids = self._sampler.sample(prepared, strength, random.Random(seed))
        return _unshield(ids, placeholder, self._bytes) if placeholder else ids

    @property
    def model_type(self) -> Literal["unigram", "bpe"]:
        """Unigram language model or byte-pair encoding."""
        # BPE scores are the ranks of the merges: whole numbers 0, -1, -2, ...
        whole = all(row.score == int(row.score) for row in self.pieces if row.kind == "text")
        return "bpe" if whole else "unigram"

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The piece table, in the order of the ids."""
        processor = self._processor

        def kind(token: int) -> PieceKind:
            if processor.is_byte(token):
                return "byte"
            if processor.is_control(token) or processor.is_unknown(token):
                return "tag" if _TAG.fullmatch(processor.id_to_piece(token)) else "special"
            return "text"

        return tuple(
            Piece(token, processor.id_to_piece(token), processor.get_score(token), kind(token))
            for token in range(self.vocab_size)
        )

    @cached_property
    def _bytes(self) -> int:
        """The id of byte 0; the other 255 follow it."""
        return int(self._processor.piece_to_id("<0x00>"))

    @cached_property
    def _sampler(self) -> UnigramSampler | BpeDropout:
        scores = {row.piece: (row.id, row.score) for row in self.pieces if row.kind == "text"}
        if self.model_type == "bpe":
            return BpeDropout(scores, self._bytes)
        return UnigramSampler(scores, self._bytes)

    def _read_layout(self) -> dict[str, int]:
        """Return the tags by language, after checking that the model has the expected layout."""
        p = self._processor
        special = (p.pad_id(), p.unk_id(), p.bos_id(), p.eos_id())
        zero = p.piece_to_id("<0x00>")
        has_bytes = all(p.piece_to_id(f"<0x{value:02X}>") == zero + value for value in range(256))
        if special != (PAD_ID, UNK_ID, BOS_ID, EOS_ID) or not has_bytes or not p.is_byte(zero):
            raise PellucidError(
                "this SentencePiece model was not made by Pellucid: its special ids are (pad, unk, "
                f"bos, eos) = {special} instead of (0, 1, 2, 3), or it has no byte pieces"
            )
        tags = {}
        token = EOS_ID + 1
        while p.is_control(token) and (match := _TAG.fullmatch(p.id_to_piece(token))):
            tags[match[1]] = token
            token += 1
        return tags

    def _shield(self, text: str) -> tuple[str, str]:
        """Replace U+2581, which SentencePiece takes for a space, by a placeholder: a character that
        is neither in the text nor in any piece. Return the text and the placeholder."""
        for code in chain(range(0xE000, 0xF900), range(0xF0000, 0xFFFFE)):
            placeholder = chr(code)
            if placeholder not in text and placeholder not in self._letters:
                return text.replace(SPACE, placeholder), placeholder
        raise InputError("a text with every private-use character of Unicode cannot be encoded")

    @cached_property
    def _letters(self) -> frozenset[str]:
        return frozenset(chain.from_iterable(row.piece for row in self.pieces))


def _unshield(ids: list[int], placeholder: str, first_byte: int) -> list[int]:
    """Return the ids with the bytes of the placeholder replaced by those of U+2581."""
    old = [first_byte + byte for byte in placeholder.encode()]
    new = [first_byte + byte for byte in SPACE.encode()]
    result: list[int] = []
    position = 0
    while position < len(ids):
        # UTF-8 is self-synchronizing: no false match
        if ids[position : position + len(old)] == old:
            result += new
            position += len(old)
        else:
            result.append(ids[position])
            position += 1
    return result


def reservoir(items: Iterable[Item], size: int, seed: int) -> list[Item]:
    """Return a uniform random sample of at most `size` items, in one pass (Li's algorithm L)."""
    generator = random.Random(seed)
    sample: list[Item] = []
    weight, skip = 1.0, 0
    for index, item in enumerate(items):
        if index < size:
            sample.append(item)
        elif index == skip:
            sample[generator.randrange(size)] = item
        else:
            continue
        if index >= size - 1:
            weight *= exp(log(1.0 - generator.random()) / size)
            skip = index + 1 + floor(log(1.0 - generator.random()) / log(1.0 - weight))
    return sample


def _explained(error: RuntimeError, config: TokenizerConfig) -> InputError:
    """Return SentencePiece's error as one that says what to change."""
    message = str(error)
    if found := re.search(r"too high .*<= (\d+)", message):
        return InputError(
            f"vocab_size = {config.vocab_size} is too large for this corpus: set it to "
            f"{found[1]} or less"
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return InputError(
            f"vocab_size = {config.vocab_size} is too small for the characters and bytes: set it "
            f"to {int(found[1]) + 1} or more, or lower character_coverage"
        )
    if "sentences_.empty()" in message:
        return InputError("no text to train a tokenizer on: the corpus is empty")
    return InputError(
        f"cannot train a {config.model_type} tokenizer of {config.vocab_size} pieces: {message}"
    )
