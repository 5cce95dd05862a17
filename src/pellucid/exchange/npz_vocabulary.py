"""The vocabularies of Marian's own format: YAML (a piece and its id a line), or SentencePiece."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.errors import InputError, PellucidError
from pellucid.exchange.foreign import ForeignFileError, read_bytes
from pellucid.tokenizers.marian import (
    SOURCE_SPM,
    SPECIAL,
    TARGET_SPM,
    TARGET_VOCAB,
    VOCAB,
    MarianTokenizer,
)

_PAD, _END, _UNKNOWN = "<pad>", "</s>", "<unk>"


@dataclass(frozen=True)
class Vocabularies:
    """The pieces of both sides, padded to the same size, with the pad symbol last."""

    tokenizer: MarianTokenizer
    counts: dict[str, int]
    """Number of pieces in Marian's files, by side."""
    shared: bool
    """Whether both sides have the same vocabulary."""
    pad: int

    @property
    def size(self) -> int:
        """Number of ids, of each side."""
        return self.pad + 1

    def count(self, side: str) -> int:
        """Return the number of pieces of a side, without the padding."""
        return self.counts[side]


def read_vocabularies(folder: Path, listed: Any) -> Vocabularies:
    """Read the vocabularies that decoder.yml lists, or that are in the folder."""
    paths = _files(folder, listed)
    tables = [read_ids(path) for path in paths]
    source, target = tables[0], tables[-1]
    shared = source == target
    pad = max(len(source), len(target))
    for path, ids in zip(paths, tables, strict=True):
        if sorted(ids.values()) != list(range(len(ids))):
            raise ForeignFileError(f"{path} does not have each id from 0 to {len(ids) - 1} once")
        for piece in (_END, _UNKNOWN):
            if piece not in ids or ids[piece] != source[piece]:
                raise ForeignFileError(
                    f"{path} has no {piece}, or with another id than the other side"
                )
        if _PAD in ids:
            raise ForeignFileError(f"{path} has a piece {_PAD}, which Marian does without: refused")
    special = {"pad": pad, "start": pad, "end": source[_END], "unknown": source[_UNKNOWN]}
    files = {
        SPECIAL: (json.dumps(special) + "\n").encode(),
        VOCAB: _filled(source, pad),
        SOURCE_SPM: _pieces_file(folder, SOURCE_SPM, paths[0]),
        TARGET_SPM: _pieces_file(folder, TARGET_SPM, paths[-1]),
    }
    if not shared:
        files[TARGET_VOCAB] = _filled(target, pad)
    try:
        tokenizer = MarianTokenizer(files)
    except PellucidError as error:
        raise ForeignFileError(f"{folder}: {error}") from None
    return Vocabularies(tokenizer, {"source": len(source), "target": len(target)}, shared, pad)


def _files(folder: Path, listed: Any) -> list[Path]:
    """Return the vocabularies of source and target; a shared one is listed once or twice."""
    if isinstance(listed, list) and listed:
        return [folder / Path(str(name)).name for name in (listed[0], listed[-1])]
    found = [p for p in sorted(folder.glob("*.yml")) if "vocab" in p.name]
    found = found or sorted(folder.glob("*vocab*.spm"))
    if len(found) == 2:
        found.sort(key=lambda path: "src" not in path.name and "source" not in path.name)
    if not 1 <= len(found) <= 2:
        raise InputError(
            f"{folder} has {len(found)} vocabularies (*vocab*.yml): name them in decoder.yml "
            "(vocabs), the source's first"
        )
    return found


def read_ids(path: Path) -> dict[str, int]:
    """Read each piece of a vocabulary with its id."""
    if path.suffix == ".spm":
        return _sentencepiece_ids(path)
    import yaml  # type: ignore[import-untyped]

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every scalar stays text
    try:
        value = yaml.load(read_bytes(path), Loader=loader)
        return {str(piece): int(token) for piece, token in value.items()}
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error).split("\n")[0]
        raise ForeignFileError(f"{path} is not a vocabulary in YAML: {reason}") from None


def _sentencepiece_ids(path: Path) -> dict[str, int]:
    import sentencepiece

    sentencepiece.set_min_log_level(3)
    try:
        model: Any = sentencepiece.SentencePieceProcessor(model_proto=read_bytes(path))
    except RuntimeError:
        raise ForeignFileError(f"{path} is not a SentencePiece model") from None
    return {model.id_to_piece(token): token for token in range(model.get_piece_size())}


def _pieces_file(folder: Path, name: str, vocabulary: Path) -> bytes:
    """Read the SentencePiece model of a side: a file of its own, or the vocabulary itself."""
    return read_bytes(vocabulary if vocabulary.suffix == ".spm" else folder / name)


def _filled(ids: dict[str, int], pad: int) -> bytes:
    """Return vocab.json of a side: padded to the longer one, with the pad symbol after it."""
    full = dict(ids)
    for token in range(len(ids), pad):
        full[f"<unused {token}>"] = token
    full[_PAD] = pad
    return json.dumps(full, ensure_ascii=False, indent=1).encode()
