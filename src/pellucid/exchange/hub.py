"""A public model by its name, `ORGANISATION/NAME`, from the Hugging Face hub.

huggingface_hub does the fetching: with a progress bar, going on where a broken download stopped,
into its cache. The bundle made of it is kept among the user's models and is not fetched again, so
what was tried yesterday is what runs today, with or without a network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pellucid.bundle import MANIFEST, Bundle
from pellucid.errors import InputError, MissingExtraError, PellucidError
from pellucid.exchange.foreign import need_torch
from pellucid.exchange.hugging_face import BIN, CONFIG, SAFETENSORS, TOKENIZER_CONFIG
from pellucid.exchange.importing import import_model
from pellucid.tokenizers.marian import SOURCE_SPM, TARGET_SPM, TARGET_VOCAB, VOCAB

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_NAME = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?")
_SMALL = (CONFIG, TOKENIZER_CONFIG, SOURCE_SPM, TARGET_SPM, VOCAB, TARGET_VOCAB, "README.md")


class Named(NamedTuple):
    """A model of the hub."""

    name: str
    revision: str | None
    """A branch, tag or commit; None for the newest."""

    @property
    def folder(self) -> str:
        """What its bundle is called among the user's models."""
        parts = [self.name, *([self.revision] if self.revision else [])]
        return re.sub(r"[^\w.-]", "--", "--".join(parts).replace("/", "--"))


class Fetched(NamedTuple):
    """The files of a model on this machine."""

    folder: Path

    @property
    def commit(self) -> str:
        """The exact revision they are; the cache keeps each in a folder of that name."""
        return self.folder.name


def parse_name(text: str) -> Named | None:
    """`ORGANISATION/NAME`, with or without `@REVISION`; None for what is not written like that."""
    match = _NAME.fullmatch(text)
    return Named(match["name"], match["revision"]) if match else None


def install(
    model: Named, place: Path, *, directions: Sequence[str] = (), again: bool = False
) -> Bundle:
    """The bundle of a model of the hub in the folder of the user's models; fetched if need be.

    again: fetch and import it also if it is there.
    """
    folder = place / model.folder
    if (folder / MANIFEST).is_file() and not again:
        return Bundle.open(folder, lazily=True)
    need_torch()
    found = fetch(model)
    return import_model(
        found.folder, folder, directions=directions, name=model.name, revision=found.commit
    )


def fetch(model: Named) -> Fetched:
    """The files of a model, from the hub or from the cache of earlier fetches.

    Weights are fetched once: as safetensors where there are such.
    """
    try:
        import huggingface_hub as hub
    except ImportError:
        raise MissingExtraError("fetching a model by its name", "train") from None

    api = hub.HfApi()
    try:
        info = api.model_info(model.name, revision=model.revision)
    except Exception as error:
        known = _known(model, error)
        if known is not None:
            raise known from None
        found = _cached(api, model)
        if found is None:
            raise _offline(model, error) from None
        return found
    have = {sibling.rfilename for sibling in info.siblings or ()}
    weights = next((name for name in (SAFETENSORS, BIN) if name in have), None)
    if weights is None or CONFIG not in have:
        raise InputError(
            f"{model.name} holds no model that can be imported: it has neither {SAFETENSORS} nor "
            f"{BIN} beside {CONFIG}"
        )
    try:
        path = api.snapshot_download(
            model.name, revision=model.revision, allow_patterns=[*_SMALL, weights]
        )
    except Exception as error:
        raise _known(model, error) or _broken(model, error) from None
    return Fetched(Path(path))


def _cached(api: HfApi, model: Named) -> Fetched | None:
    """What an earlier fetch left, if it is whole."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        path = api.snapshot_download(
            model.name,
            revision=model.revision,
            local_files_only=True,
            allow_patterns=[CONFIG],
        )
    except LocalEntryNotFoundError:
        return None
    whole = any((Path(path) / name).exists() for name in (SAFETENSORS, BIN))
    return Fetched(Path(path)) if whole else None


def _known(model: Named, error: Exception) -> PellucidError | None:
    """What the hub said, in words for a person; None where it said nothing."""
    from huggingface_hub import errors

    refusals: list[tuple[type[Exception], Callable[[], str]]] = [
        (
            errors.GatedRepoError,
            lambda: (
                f"{model.name} is only for those whom its makers let in: ask on its page, then "
                "log in (hf auth login)"
            ),
        ),
        (
            errors.RevisionNotFoundError,
            lambda: f"{model.name} has no revision {model.revision!r}: check the name after the @",
        ),
        (
            errors.RepositoryNotFoundError,
            lambda: f"the Hugging Face hub has no public model {model.name!r}: check the name",
        ),
    ]
    for kind, words in refusals:
        if isinstance(error, kind):
            return InputError(words())
    return None


def _offline(model: Named, error: Exception) -> PellucidError:
    return PellucidError(
        f"{model.name} is not on this machine and the Hugging Face hub cannot be reached "
        f"({_short(error)}): connect, or copy the model's files here and run pellucid import FOLDER"
    )


def _broken(model: Named, error: Exception) -> PellucidError:
    return PellucidError(
        f"fetching {model.name} broke off ({_short(error)}): try again, and it goes on where it "
        "stopped"
    )


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
