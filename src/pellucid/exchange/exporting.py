"""Export a bundle to another format, or as a smaller bundle to give away."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pellucid.bundle import Bundle
from pellucid.config import split_direction
from pellucid.decoding.ct2.conversion import add_ct2, why_not_ct2, write_ct2
from pellucid.errors import InputError, PellucidError
from pellucid.exchange import hugging_face
from pellucid.exchange.foreign import need_torch
from pellucid.exchange.hugging_face_weights import to_hugging_face
from pellucid.storage.folder import atomic_folder
from pellucid.tokenizers.base import Subwords
from pellucid.tokenizers.marian import SOURCE_SPM, SPECIAL, TARGET_SPM, TARGET_VOCAB, VOCAB
from pellucid.tokenizers.marian import MarianTokenizer as Marian
from pellucid.tokenizers.sentencepiece import Tokenizer

FORMATS = ("ctranslate2", "huggingface", "pellucid")
QUANTIZATIONS = ("int8", "int8_float32", "int16", "float16", "float32")


def export_model(
    bundle: Bundle,
    folder: Path | str,
    form: str = "ctranslate2",
    quantization: str = "int8",
    about: str | None = None,
) -> Path:
    """Write a bundle's model to a new folder, in another format or as a smaller bundle.

    form: "ctranslate2", "huggingface" for transformers, or "pellucid": a bundle whose weights are
    stored in half precision. quantization: of the matrices for CTranslate2 (float32: none). about:
    text of its README.md (a bundle's MODEL.md), to replace the model's own. A setting that the
    format cannot express is an `InputError` that names it. The folder is written completely or not
    at all.
    """
    folder = Path(folder).absolute()
    if form not in FORMATS:
        raise InputError(f"unknown format {form!r}: choose {', '.join(FORMATS)}")
    if quantization not in QUANTIZATIONS:
        raise InputError(f"unknown quantization {quantization!r}: {', '.join(QUANTIZATIONS)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already: choose a new folder")
    about = bundle.about if about is None else about
    if form == "pellucid":
        return _write_bundle(bundle, folder, quantization, about)
    write: Callable[[Bundle, Path], None]
    if form == "huggingface":
        need_torch()
        why, write = hugging_face.obstacle(bundle.config), _write_hugging_face
    else:
        why, write = why_not_ct2(bundle.config), _ctranslate2(quantization)
    if why is not None:
        raise InputError(f"this model cannot be exported as {form}: {why}")
    try:
        with atomic_folder(folder) as draft:
            write(bundle, draft.path)
            if about:
                draft.write("README.md", about)
    except OSError as error:
        reason = error.strerror or error
        raise PellucidError(f"cannot write the model to {folder}: {reason}") from None
    return folder


def _write_bundle(bundle: Bundle, folder: Path, quantization: str, about: str) -> Path:
    need_torch()
    import torch

    written = Bundle.write(
        folder,
        bundle.config,
        {name: torch.from_numpy(array) for name, array in bundle.weights().items()},
        bundle.tokenizer,
        directions=sorted(bundle.directions, key=lambda d: d != bundle.default_direction),
        about=about,
        half=True,
        alignment=bundle.settings.alignment,
        longest=bundle.settings.longest,
    )
    return add_ct2(written, None if quantization == "float32" else quantization).folder


def _ctranslate2(quantization: str) -> Callable[[Bundle, Path], None]:
    def write(bundle: Bundle, draft: Path) -> None:
        made = draft / "model"
        write_ct2(bundle, made, None if quantization == "float32" else quantization)
        for file in sorted(made.iterdir()):
            file.rename(draft / file.name)
        made.rmdir()
        for name, data in bundle.tokenizer.files().items():
            (draft / name).write_bytes(data)

    return write


def _write_hugging_face(bundle: Bundle, draft: Path) -> None:
    import torch
    from safetensors.torch import save_file

    tokenizer, config = bundle.tokenizer, bundle.config
    special = {"pad": tokenizer.pad_id, "start": tokenizer.bos_id, "end": tokenizer.eos_id}
    ours = {name: torch.from_numpy(array) for name, array in bundle.weights().items()}
    theirs = to_hugging_face(config, ours)
    save_file(theirs, draft / hugging_face.SAFETENSORS, metadata={"format": "pt"})
    _write_json(draft / hugging_face.CONFIG, hugging_face.settings_for(config, special))
    _write_json(
        draft / "generation_config.json",
        {
            "pad_token_id": special["pad"],
            "decoder_start_token_id": special["start"],
            "eos_token_id": special["end"],
            "forced_eos_token_id": special["end"],
            "bad_words_ids": [[token] for token in sorted({special["pad"], special["start"]})],
            "max_length": config.max_length,
            "num_beams": 4,
        },
    )
    separate = config.tie_embeddings != "all"
    for name, data in marian_files(tokenizer, separate).items():
        (draft / name).write_bytes(data)
    source, target = split_direction(bundle.default_direction)
    _write_json(
        draft / hugging_face.TOKENIZER_CONFIG,
        {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": source,
            "target_lang": target,
            "separate_vocabs": separate,
            "model_max_length": config.max_length,
            "unk_token": tokenizer.piece(tokenizer.unk_id),
            "eos_token": tokenizer.piece(tokenizer.eos_id),
            "pad_token": tokenizer.piece(tokenizer.pad_id),
        },
    )


def marian_files(tokenizer: Subwords, separate: bool) -> Mapping[str, bytes]:
    """Return the files of transformers' MarianTokenizer, where our tag <2fr> is >>fr<<."""
    if isinstance(tokenizer, Marian):
        files = {name: data for name, data in tokenizer.files().items() if name != SPECIAL}
    elif isinstance(tokenizer, Tokenizer):
        tags = {tokenizer.tag_id(language): language for language in tokenizer.languages}
        ids = {
            f">>{tags[token]}<<" if token in tags else tokenizer.piece(token): token
            for token in range(tokenizer.vocab_size)
        }
        if len(ids) != tokenizer.vocab_size:
            raise InputError(
                "a piece of the vocabulary is spelled like a language tag: they would be confused"
            )
        vocabulary = json.dumps(ids, ensure_ascii=False, indent=1).encode()
        files = {SOURCE_SPM: tokenizer.model, TARGET_SPM: tokenizer.model, VOCAB: vocabulary}
    else:
        raise TypeError(f"no way to write {type(tokenizer).__name__}")
    return {TARGET_VOCAB: files[VOCAB], **files} if separate else files


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
