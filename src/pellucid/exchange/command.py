"""`pellucid import` and `pellucid export`: models from and for other toolkits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pellucid.console.options import Argument, Option, say
from pellucid.errors import InputError


def import_(
    model: Annotated[
        str,
        Argument(metavar="NAME|DIR", help="ORGANISATION/NAME or NAME@REVISION, or a folder."),
    ],
    output: Annotated[
        Path | None,
        Option("-o", "--output", help="New folder; if unset, among your models."),
    ] = None,
    directions: Annotated[
        list[str] | None,
        Option(
            "--direction",
            metavar="FROM-TO",
            help="Translation direction of the model, e.g. fr-en. Repeatable.",
        ),
    ] = None,
) -> None:
    """Import a public model: OPUS-MT and other Marian models.

    From the Hugging Face hub by name, or from a folder that holds config.json, the weights
    (model.safetensors or pytorch_model.bin), source.spm, target.spm and vocab.json; or Marian's
    own .npz with its vocabulary.

    pellucid import Helsinki-NLP/opus-mt-fr-en
    """
    from pellucid.exchange import hub
    from pellucid.exchange.importing import import_model
    from pellucid.translator.loading import user_folder

    path, models, directions = Path(model).expanduser(), user_folder(), directions or []
    named = None if path.is_dir() else hub.parse_name(model)
    if path.is_dir():
        folder = output or models / path.absolute().name
        bundle = import_model(path, folder, directions=directions)
    elif named is None:
        raise InputError(
            f"no folder {model!r}, and not the name of a public model, which is written like "
            "Helsinki-NLP/opus-mt-fr-en"
        )
    elif output is None:
        bundle = hub.install(named, models, directions=directions, again=True)
    else:
        found = hub.fetch(named)
        bundle = import_model(
            found.folder, output, directions=directions, name=named.name, revision=found.commit
        )
    say(f"{bundle.folder}\t{', '.join(bundle.directions)}")


def export(
    model: Annotated[str, Argument(metavar="NAME|DIR", help="Model to export.")],
    output: Annotated[Path, Option("-o", "--output", help="New folder.")],
    form: Annotated[
        str, Option("--format", metavar="ctranslate2|huggingface|pellucid", help="Output format.")
    ] = "ctranslate2",
    quantization: Annotated[
        str, Option(help="For CTranslate2: int8, int8_float32, int16, float16 or float32.")
    ] = "int8",
    about: Annotated[
        Path | None, Option(help="File for the model's README.md; if unset, its MODEL.md.")
    ] = None,
) -> None:
    """Export a model to CTranslate2 or Hugging Face, or as a smaller bundle to give away.

    huggingface is a folder for transformers' MarianMTModel, where the model's shape is Marian's;
    pellucid is a bundle whose weights are stored in half precision.
    """
    from pellucid.exchange.exporting import export_model
    from pellucid.translator.loading import open_bundle

    bundle, text = open_bundle(model), None
    if about is not None:
        try:
            text = about.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {about}: {error}") from None
    say(export_model(bundle, output, form, quantization, text))
