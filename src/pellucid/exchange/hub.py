"""Public models by name, `ORGANISATION/NAME`, from the Hugging Face hub.

huggingface_hub downloads into its cache, with a progress bar, and resumes a broken download. The
bundle made of it is kept among the user's models and is not downloaded again, so that what was
tried yesterday is what runs today, with or without a network.
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


class HubModel(NamedTuple):
    """The name of a model on the hub."""

    name: str
    revision: str | None
    """A branch, tag or commit; None for the newest."""

    @property
    def folder(self) -> str:
        """Name of its bundle among the user's models."""
        parts = [self.name, *([self.revision] if self.revision else [])]
        return re.sub(r"[^\w.-]", "--", "--".join(parts).replace("/", "--"))


class FetchedModel(NamedTuple):
    """The downloaded files of a model."""

    folder: Path

    @property
    def commit(self) -> str:
        """Their exact revision; the cache keeps each in a folder of that name."""
        return self.folder.name


def parse_name(text: str) -> HubModel | None:
    """Parse `ORGANISATION/NAME` or `ORGANISATION/NAME@REVISION`; None if it is neither."""
    match = _NAME.fullmatch(text)
    return HubModel(match["name"], match["revision"]) if match else None


def install(
    model: HubModel, models: Path, *, directions: Sequence[str] = (), again: bool = False
) -> Bundle:
    """Return the bundle of a hub model in the folder `models`, downloaded if it is not there.

    again: download and import it even if it is there.
    """
    folder = models / model.folder
    if (folder / MANIFEST).is_file() and not again:
        return Bundle.open(folder, lazily=True)
    need_torch()
    found = fetch(model)
    return import_model(
        found.folder, folder, directions=directions, name=model.name, revision=found.commit
    )


def fetch(model: HubModel) -> FetchedModel:
    """Download the files of a model, or find them in the cache if the hub cannot be reached.

    Only one format of the weights is downloaded: safetensors if there is one.
    """
    try:
        import huggingface_hub as hub
    except ImportError:
        raise MissingExtraError("downloading a model by its name", "train") from None

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
    return FetchedModel(Path(path))


def _cached(api: HfApi, model: HubModel) -> FetchedModel | None:
    """Return the files of an earlier download, if it is complete."""
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
    complete = any((Path(path) / name).exists() for name in (SAFETENSORS, BIN))
    return FetchedModel(Path(path)) if complete else None


def _known(model: HubModel, error: Exception) -> PellucidError | None:
    """Return the hub's refusal as our error; None if the error is of another kind."""
    from huggingface_hub import errors

    refusals: list[tuple[type[Exception], Callable[[], str]]] = [
        (
            errors.GatedRepoError,
            lambda: (
                f"{model.name} is a gated model: ask for access on its page, then log in (hf "
                "auth login)"
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


def _offline(model: HubModel, error: Exception) -> PellucidError:
    return PellucidError(
        f"{model.name} is not on this machine and the Hugging Face hub cannot be reached "
        f"({_short(error)}): connect, or copy the model's files here and run pellucid import FOLDER"
    )


def _broken(model: HubModel, error: Exception) -> PellucidError:
    return PellucidError(
        f"the download of {model.name} failed ({_short(error)}): try again, and it resumes where "
        "it stopped"
    )


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
