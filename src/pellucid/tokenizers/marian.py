"""The tokenizer of Marian models (OPUS-MT): a SentencePiece model for each side, with its own ids.

SentencePiece only segments; the ids of the pieces are in vocab.json, for both sides or for the
source alone, with those of the target in target_vocab.json. A model for several target languages
reads a tag, `>>fra<<`, before the source.

Unlike `Tokenizer`, it can lose text: SentencePiece normalizes it (spaces, compatibility
characters), and a character without a piece becomes the unknown token. What a person types never
becomes a tag or a special token.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pellucid.config import Settings
from pellucid.errors import ConfigError, InputError, PellucidError
from pellucid.tokenizers.base import Side

SPECIAL = "special.json"
SOURCE_SPM, TARGET_SPM = "source.spm", "target.spm"
VOCAB, TARGET_VOCAB = "vocab.json", "target_vocab.json"
FILES = (SPECIAL, SOURCE_SPM, TARGET_SPM, VOCAB, TARGET_VOCAB)

_TAG = re.compile(r">>([A-Za-z]{2,8}(?:_[A-Za-z0-9]{1,8})*)<<")
_SURROGATE = re.compile("[\ud800-\udfff]")


class SpecialTokens(Settings):
    """Ids of the special tokens, as stored in special.json."""

    pad: int
    """Padding token."""
    start: int
    """Start token, the first input of the decoder; in Marian models it is the padding token."""
    end: int
    """End token of a sequence."""
    unknown: int
    """Unknown token: replaces what has no piece."""


class MarianTokenizer:
    """Two SentencePiece models with their ids. `files` are the bytes of each file, by name."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = dict(files)
        ids = _read_ids(self._files, VOCAB)
        target = _read_ids(self._files, TARGET_VOCAB) if TARGET_VOCAB in self._files else ids
        self._pieces: dict[Side, list[str]] = {
            "source": sorted(ids, key=ids.__getitem__),
            "target": sorted(target, key=target.__getitem__),
        }
        self._processors: dict[Side, Any] = {
            "source": _processor(self._files, SOURCE_SPM),
            "target": _processor(self._files, TARGET_SPM),
        }
        self.special = self._read_special()
        self._special_ids = set(self.special.model_dump().values())
        self._tags = {match[1]: ids[piece] for piece in ids if (match := _TAG.fullmatch(piece))}
        # Text stays text: a piece that looks like a special token becomes the unknown token.
        reserved = self._special_ids | set(self._tags.values())
        self._ids: dict[Side, dict[str, int]] = {
            "source": {piece: token for piece, token in ids.items() if token not in reserved},
            "target": {p: token for p, token in target.items() if token not in self._special_ids},
        }

    @classmethod
    def load(cls, folder: Path, names: Collection[str] = FILES) -> Self:
        """Load the tokenizer from a folder; only these files are read."""
        found = [name for name in FILES if name in names and (folder / name).exists()]
        try:
            return cls({name: (folder / name).read_bytes() for name in found})
        except OSError as error:
            raise InputError(f"cannot read the tokenizer in {folder}: {error.strerror}") from None
        except PellucidError as error:
            raise PellucidError(f"{folder}: {error}") from None

    def files(self) -> Mapping[str, bytes]:
        """Return the files of the tokenizer, as they were read."""
        return dict(self._files)

    @property
    def sha256(self) -> str:
        """Hash of the tokenizer: with the same hash, the result is the same."""
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in self._files.items()}
        return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()

    @property
    def pad_id(self) -> int:
        """Padding token."""
        return self.special.pad

    @property
    def unk_id(self) -> int:
        """Unknown token: replaces what has no piece."""
        return self.special.unknown

    @property
    def bos_id(self) -> int:
        """Start token, the first input of the decoder."""
        return self.special.start

    @property
    def eos_id(self) -> int:
        """End token of a sequence, on both sides."""
        return self.special.end

    @property
    def vocab_size(self) -> int:
        """Number of ids on the target side."""
        return len(self._pieces["target"])

    @property
    def source_vocab_size(self) -> int:
        """Number of ids on the source side."""
        return len(self._pieces["source"])

    @property
    def separate(self) -> bool:
        """Whether each side has its own ids."""
        return TARGET_VOCAB in self._files

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that have a tag; none if there is only one target language."""
        return tuple(self._tags)

    @property
    def lead(self) -> int:
        """Number of ids before the words in a source sequence."""
        return 1 if self._tags else 0

    def tag_ids(self, language: str) -> list[int]:
        """Return the tag of a target language, if the model has tags."""
        if not self._tags:
            return []
        if language not in self._tags:
            available = ", ".join(self._tags)
            raise InputError(
                f"this tokenizer has no tag for language {language!r}: it has {available}"
            )
        return [self._tags[language]]

    def piece(self, token: int, side: Side = "target") -> str:
        """Return a piece as SentencePiece writes it."""
        return self._pieces[side][token]

    def vocabulary(self, side: Side = "target") -> Sequence[str]:
        """Return all pieces of a side, in the order of their ids."""
        return self._pieces[side]

    def encode(
        self, text: str, *, target_language: str | None = None, side: Side = "source"
    ) -> list[int]:
        """Return the ids of a text; with `target_language`, the whole source sequence."""
        return self.encode_batch([text], target_language=target_language, side=side)[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        target_language: str | None = None,
        side: Side = "source",
        threads: int = 1,
    ) -> list[list[int]]:
        """Encode many texts at once, in order."""
        clean = [_SURROGATE.sub("\ufffd", text) for text in texts]
        segmented = self._processors[side].encode(clean, out_type=str, num_threads=threads)
        ids, unknown = self._ids[side], self.special.unknown
        rows = [[ids.get(piece, unknown) for piece in pieces] for pieces in segmented]
        if target_language is None:
            return rows
        tag = self.tag_ids(target_language)
        return [[*tag, *row, self.special.end] for row in rows]

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        """Return the text of some ids; special tokens are skipped."""
        size = len(self._pieces[side])
        pieces = []
        for token in map(int, ids):
            if not 0 <= token < size:
                raise InputError(f"token id {token} is outside the vocabulary of {size}")
            if token not in self._special_ids:
                pieces.append(self._pieces[side][token])
        text: str = self._processors[side].decode_pieces(pieces)
        return text.replace("\u2581", " ").strip()

    def decode_batch(self, batch: Sequence[Sequence[int]], side: Side = "target") -> list[str]:
        """Decode many sequences at once, in order."""
        return [self.decode(ids, side) for ids in batch]

    def sample(self, text: str, seed: int, strength: float) -> list[int]:
        """Raise an error: SentencePiece's own sampling is not reproducible."""
        raise InputError(
            "the tokenizer of an imported model has no subword regularization: leave "
            "batches.subword_regularization out"
        )

    def _read_special(self) -> SpecialTokens:
        try:
            special = SpecialTokens(**json.loads(self._files[SPECIAL]))
        except (KeyError, ValueError, TypeError, RecursionError, ConfigError) as error:
            raise PellucidError(f"{SPECIAL} does not name the special ids: {error}") from None
        for name, token in special.model_dump().items():
            if not 0 <= token < min(self.vocab_size, self.source_vocab_size):
                raise PellucidError(f"{SPECIAL}: {name} = {token} is outside the vocabulary")
        return special


def _read_ids(files: Mapping[str, bytes], name: str) -> dict[str, int]:
    """Read a vocabulary: each piece with its id, every id from 0 exactly once."""
    try:
        ids = json.loads(files[name])
    except KeyError:
        raise PellucidError(f"there is no {name}: the tokenizer is incomplete") from None
    except (ValueError, RecursionError) as error:
        raise PellucidError(f"{name} is not JSON: {error}") from None
    if not isinstance(ids, dict) or not all(type(i) is int for i in ids.values()):
        raise PellucidError(f"{name} is not a table of pieces and ids")
    if not ids or sorted(ids.values()) != list(range(len(ids))):
        raise PellucidError(f"{name} does not have each id from 0 to {len(ids) - 1} once")
    return ids


def _processor(files: Mapping[str, bytes], name: str) -> Any:
    import sentencepiece

    if name not in files:
        raise PellucidError(f"there is no {name}: the tokenizer is incomplete")
    sentencepiece.set_min_log_level(3)  # the error below reports a wrong file, not its log
    wrong = f"{name} is not a SentencePiece model: the file is damaged"
    try:
        processor: Any = sentencepiece.SentencePieceProcessor(model_proto=files[name])
        if processor.get_piece_size() and processor.is_unknown(processor.unk_id()):
            return processor
    except RuntimeError:
        raise PellucidError(wrong) from None
    raise PellucidError(wrong)  # SentencePiece accepts an empty file
