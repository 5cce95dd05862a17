"""Import a foreign model as a bundle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pellucid.bundle import MANIFEST, Bundle
from pellucid.config import split_direction
from pellucid.decoding.ct2.conversion import add_ct2
from pellucid.errors import ConfigError, InputError
from pellucid.exchange.foreign import ForeignModel, need_torch
from pellucid.exchange.hugging_face import is_hugging_face, read_hugging_face
from pellucid.exchange.npz import is_npz, read_npz

_NAMED = re.compile(r"([A-Za-z_]+)-([A-Za-z_]+)$")


def import_model(
    source: Path | str,
    folder: Path | str,
    *,
    directions: Sequence[str] = (),
    name: str | None = None,
    revision: str | None = None,
    quantization: str | None = "int8",
) -> Bundle:
    """Make a bundle of the model in a folder, ready for both engines.

    source: a folder in Hugging Face's format, or with Marian's own .npz. directions: translation
    directions, the default one first; if unset, the model's files or its name must tell. name,
    revision: for MODEL.md. quantization: of ct2/; None for float32.
    """
    source = Path(source)
    if not source.is_dir():
        raise InputError(f"no model at {source}: it is not a folder")
    if (source / MANIFEST).is_file():
        raise InputError(f"{source} is a model of Pellucid already: use it as it is")
    need_torch()
    if is_hugging_face(source):
        foreign = read_hugging_face(source)
    elif is_npz(source):
        foreign = read_npz(source)
    else:
        raise InputError(
            f"{source} holds no model that can be imported: a config.json (Hugging Face) or a .npz "
            "(Marian) is needed"
        )
    name = name or source.absolute().name
    all_directions = directions_of(foreign, name, directions)
    check_fits(foreign)
    about = {
        "title": name,
        "origin": {
            "imported from": name,
            **({"revision": revision} if revision else {}),
            **_licence(source),
            **foreign.about,
        },
    }
    bundle = Bundle.write(
        folder,
        foreign.config,
        foreign.weights,
        foreign.tokenizer,
        directions=all_directions,
        about=about,
    )
    return add_ct2(bundle, quantization)


def check_fits(foreign: ForeignModel) -> None:
    """Raise an error if the vocabulary is not the model's."""
    config, tokenizer = foreign.config, foreign.tokenizer
    for side, pieces, size in (
        ("target", tokenizer.vocab_size, config.vocab_size),
        ("source", tokenizer.source_vocab_size, config.source_vocab_size or config.vocab_size),
    ):
        if pieces != size:
            raise InputError(
                f"the vocabulary has {pieces} pieces on the {side} side, and the model {size}: "
                "they do not belong together"
            )


def directions_of(foreign: ForeignModel, name: str, given: Sequence[str] = ()) -> tuple[str, ...]:
    """Return a model's translation directions, the default one first."""
    languages = foreign.tokenizer.languages
    if given:
        for direction in given:
            foreign.tokenizer.tag_ids(split_direction(direction)[1])
        return tuple(dict.fromkeys(given))
    named = _NAMED.search(name)
    source = _language(foreign.source) or (named and _language(named[1]))
    target = _language(foreign.target) or (named and _language(named[2]))
    if source and languages:
        first = [language for language in languages if language == target]
        return tuple(f"{source}-{language}" for language in dict.fromkeys([*first, *languages]))
    if source and target:
        return (f"{source}-{target}",)
    raise InputError(
        f"nothing in {name} says which way it translates: say it with --direction, e.g. fr-en"
    )


def _language(code: str | None) -> str | None:
    """Return a language code as directions write it; None if it is not one."""
    if code is None:
        return None
    code = code.replace("-", "_")
    try:
        split_direction(f"{code}-{code}")
    except ConfigError:
        return None
    return code


def _licence(folder: Path) -> dict[str, str]:
    """Read the licence from the head of the model card."""
    path = folder / "README.md"
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", errors="replace") as file:
        head = file.read(20_000).partition("\n---")[0]
    found = re.search(r"^license: *([\w.+-]+)", head, re.MULTILINE)
    return {"licence": found[1]} if found else {}
