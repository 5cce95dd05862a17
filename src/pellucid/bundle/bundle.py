"""A model on disk, opened and written as a whole."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.bundle.about import about_text
from pellucid.bundle.checking import check_file, check_fit, check_replaceable, read_manifest
from pellucid.bundle.layout import (
    ABOUT,
    CONFIG,
    CT2,
    NEEDED,
    WEIGHTS,
    BundleConfig,
    DamagedBundleError,
    config_text,
    read_config,
    short,
    tied_names,
)
from pellucid.bundle.weights import check_shapes, read_header, read_weights, untied, write_weights
from pellucid.bundle.writing import finish_draft, swap_in, write_bytes, write_text
from pellucid.config import ModelConfig
from pellucid.errors import InputError, PellucidError
from pellucid.tokenizers.base import Subwords, open_subwords

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from pellucid.model import Transformer


@dataclass(frozen=True)
class Bundle:
    """A whole, checked model folder. Open one with `Bundle.open`, make one with `Bundle.write`."""

    folder: Path
    settings: BundleConfig
    manifest: Mapping[str, Any]
    tokenizer: Subwords

    @property
    def config(self) -> ModelConfig:
        """The shape of the model."""
        return self.settings.model

    @property
    def directions(self) -> tuple[str, ...]:
        """Which ways the model translates."""
        return self.settings.directions

    @property
    def default_direction(self) -> str:
        """Which way it translates when nobody says."""
        return self.settings.default_direction

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages it knows."""
        return self.settings.languages

    @property
    def fingerprint(self) -> str:
        """Stands for every byte of it: two bundles with the same one are equal."""
        value: str = self.manifest["sha256"]
        return value

    @cached_property
    def about(self) -> str:
        """MODEL.md, or nothing where there is none."""
        path = self.folder / ABOUT
        return path.read_text(encoding="utf-8") if ABOUT in self.manifest["files"] else ""

    @classmethod
    def open(cls, folder: Path | str, *, lazily: bool = False) -> Bundle:
        """The bundle in a folder, every file read once and its hash compared.

        `lazily` leaves the weights and ct2/, which are large, until they are used.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise InputError(f"no model at {folder}: it is not a folder")
        manifest = read_manifest(folder)
        for name, expected in manifest["files"].items():
            if not (lazily and (name == WEIGHTS or name.startswith(f"{CT2}/"))):
                check_file(folder, name, expected)
        if not lazily:
            read_header(folder / WEIGHTS)
        settings = read_config(folder / CONFIG)
        try:
            tokenizer = open_subwords(folder, manifest["files"])
        except InputError as error:
            raise DamagedBundleError(str(error)) from None
        check_fit(folder, settings, tokenizer)
        return cls(folder, settings, manifest, tokenizer)

    @property
    def has_ct2(self) -> bool:
        """Whether it can be run by CTranslate2 as it is."""
        return any(name.startswith(f"{CT2}/") for name in self.manifest["files"])

    def ct2(self) -> Path:
        """The folder for CTranslate2, its hashes compared."""
        for name, expected in self.manifest["files"].items():
            if name.startswith(f"{CT2}/"):
                check_file(self.folder, name, expected)
        return self.folder / CT2

    def weights(self) -> dict[str, np.ndarray]:
        """The weights by name as float32, tied ones under each of their names; without PyTorch."""
        path = self.folder / WEIGHTS
        check_file(self.folder, WEIGHTS, self.manifest["files"][WEIGHTS])
        weights = read_weights(path)
        for second, first_name in tied_names(self.config).items():
            weights[second] = weights[first_name]
        return weights

    def with_folder(self, name: str, write: Callable[[Path], None]) -> Bundle:
        """The same bundle with one more folder (or another in its place), which `write` makes.

        The bundle on disk is replaced as a whole; if anything fails, it stays as it was.
        """
        draft = self.folder.parent / f".{self.folder.name}.writing-{secrets.token_hex(4)}"
        kept = [n for n in self.manifest["files"] if not n.startswith(f"{name}/")]
        try:
            for file in kept:
                check_file(self.folder, file, self.manifest["files"][file])
                (draft / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.folder / file, draft / file)
            write(draft / name)
            made = [p.relative_to(draft).as_posix() for p in sorted((draft / name).rglob("*"))]
            finish_draft(draft, sorted([*kept, *made]))
            swap_in(draft, self.folder.absolute())
        except OSError as error:
            reason = error.strerror or short(error)
            raise PellucidError(f"cannot add {name} to {self.folder}: {reason}") from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return Bundle.open(self.folder)

    def model(self, device: str = "cpu") -> Transformer:
        """The model with its weights, in float32 and ready to translate (`eval`)."""
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        from pellucid.model import Transformer

        path = self.folder / WEIGHTS
        check_file(self.folder, WEIGHTS, self.manifest["files"][WEIGHTS])
        shapes = read_header(path)
        if self.config.encoder_layers + self.config.decoder_layers > len(shapes):
            raise DamagedBundleError(f"{path} has too few weights for the layers of {CONFIG}")
        check_shapes(self.config, shapes, str(path))
        try:
            weights = load_file(path, device=device)
        except (SafetensorError, OSError) as error:
            raise DamagedBundleError(f"{path} cannot be read: {short(error)}") from None
        with torch.random.fork_rng(devices=[]):  # first weights, drawn and thrown away
            model = Transformer(self.config)
        for second, first in tied_names(self.config).items():
            weights[second] = weights[first]
        model.load_state_dict(weights)
        return model.to(device).eval()

    @classmethod
    def write(
        cls,
        folder: Path | str,
        config: ModelConfig,
        state_dict: Mapping[str, Tensor],
        tokenizer: Subwords,
        *,
        directions: Sequence[str],
        about: Mapping[str, Any] | str,
        half: bool = False,
        alignment: tuple[int, int] | None = None,
        longest: int | None = None,
    ) -> Bundle:
        """Write a model to a folder, and open it again, which checks it.

        All of it is there or none: it is written beside the folder, and then renamed. A bundle
        that is there already is replaced; a folder with anything else is not touched. The first
        of the directions is the default one. `half` stores the weights as float16, in half the
        room. `alignment` is what `decoding.alignment` found, `longest` the tokens of the longest
        sentences that were learned from. `about` is for MODEL.md: a title and whatever else a
        person should know, by name; or its text.
        """
        folder = Path(folder).absolute()
        settings = BundleConfig(
            directions=tuple(directions),
            default_direction=directions[0],
            alignment=alignment,
            longest=longest,
            model=config,
        )
        check_fit(folder, settings, tokenizer)
        check_replaceable(folder)
        weights = untied(config, state_dict)
        check_shapes(config, {name: tuple(t.shape) for name, t in weights.items()}, "the weights")
        draft = folder.parent / f".{folder.name}.writing-{secrets.token_hex(4)}"
        try:
            draft.mkdir(parents=True)
            write_text(draft / CONFIG, config_text(settings))
            text = about if isinstance(about, str) else about_text(settings, weights, about)
            write_text(draft / ABOUT, text)
            for name, data in tokenizer.files().items():
                write_bytes(draft / name, data)
            write_weights(draft / WEIGHTS, weights, half)
            finish_draft(draft, sorted((*NEEDED, *tokenizer.files(), ABOUT)))
            swap_in(draft, folder)
        except OSError as error:
            reason = error.strerror or short(error)
            raise PellucidError(f"cannot write the model to {folder}: {reason}") from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return cls.open(folder)
