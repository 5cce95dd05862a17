"""Opening and writing a bundle, the folder of a model."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid import __version__
from pellucid.bundle.about import about_text
from pellucid.bundle.checking import check_file, check_fit, check_replaceable, read_manifest
from pellucid.bundle.layout import (
    ABOUT,
    CONFIG,
    CT2,
    FORMAT,
    WEIGHTS,
    BundleConfig,
    DamagedBundleError,
    config_text,
    read_config,
    short,
    tied_names,
)
from pellucid.bundle.weights import check_shapes, read_header, read_weights, untied, write_weights
from pellucid.config import ModelConfig
from pellucid.errors import InputError, PellucidError
from pellucid.storage.folder import atomic_folder
from pellucid.tokenizers.base import Subwords, open_subwords

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from pellucid.model import Transformer


@dataclass(frozen=True)
class Bundle:
    """A verified model folder. Open one with `Bundle.open`, create one with `Bundle.write`."""

    folder: Path
    settings: BundleConfig
    manifest: Mapping[str, Any]
    tokenizer: Subwords

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        return self.settings.model

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions the model translates, e.g. ("fr-en", "en-fr")."""
        return self.settings.directions

    @property
    def default_direction(self) -> str:
        """The direction used when the caller names none."""
        return self.settings.default_direction

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of all directions."""
        return self.settings.languages

    @property
    def fingerprint(self) -> str:
        """Hash of the whole bundle: two bundles with the same fingerprint are identical."""
        value: str = self.manifest["sha256"]
        return value

    @cached_property
    def about(self) -> str:
        """The text of MODEL.md, or "" if there is none."""
        path = self.folder / ABOUT
        return path.read_text(encoding="utf-8") if ABOUT in self.manifest["files"] else ""

    @classmethod
    def open(cls, folder: Path | str, *, lazily: bool = False) -> Bundle:
        """Open the bundle in a folder, after comparing the hash of every file.

        `lazily` leaves the weights and ct2/, which are large, unchecked until they are used.
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
        """Whether the bundle contains a CTranslate2 model."""
        return any(name.startswith(f"{CT2}/") for name in self.manifest["files"])

    def ct2(self) -> Path:
        """Return the folder of the CTranslate2 model, after comparing its hashes."""
        for name, expected in self.manifest["files"].items():
            if name.startswith(f"{CT2}/"):
                check_file(self.folder, name, expected)
        return self.folder / CT2

    def weights(self) -> dict[str, np.ndarray]:
        """Read the weights as float32, without PyTorch; tied ones under each name."""
        path = self.folder / WEIGHTS
        check_file(self.folder, WEIGHTS, self.manifest["files"][WEIGHTS])
        weights = read_weights(path)
        for second, first_name in tied_names(self.config).items():
            weights[second] = weights[first_name]
        return weights

    def with_folder(self, name: str, write: Callable[[Path], None]) -> Bundle:
        """Add a subfolder, which `write` creates, or replace it; return the new bundle.

        The bundle on disk is replaced as a whole; if anything fails, it stays as it was.
        """
        kept = [n for n in self.manifest["files"] if not n.startswith(f"{name}/")]
        try:
            with atomic_folder(self.folder) as draft:
                for file in kept:
                    check_file(self.folder, file, self.manifest["files"][file])
                    (draft.path / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(self.folder / file, draft.path / file)
                write(draft.path / name)
                made = (draft.path / name).rglob("*")
                for file in sorted([*kept, *(draft.name_of(path) for path in made)]):
                    draft.add(file)
                draft.write_manifest({"format": FORMAT, "pellucid": __version__})
        except OSError as error:
            reason = error.strerror or short(error)
            raise PellucidError(f"cannot add {name} to {self.folder}: {reason}") from None
        return Bundle.open(self.folder)

    def model(self, device: str = "cpu") -> Transformer:
        """Build the model with its weights, in float32 and in evaluation mode."""
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
        with torch.random.fork_rng(devices=[]):  # initial weights are drawn, then replaced
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
        """Write a model to a folder, then open it, which verifies it.

        The folder appears whole or not at all. An existing bundle is replaced; a folder with
        anything else is an `InputError`. The first of the directions is the default one. `half`
        stores the weights as float16, in half the space. `alignment` is what `decoding.alignment`
        found, `longest` the number of tokens of the longest training sentences. `about` is for
        MODEL.md: a title and further sections by name, or the whole text.
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
        text = about if isinstance(about, str) else about_text(settings, weights, about)
        files: dict[str, bytes | str] = {CONFIG: config_text(settings), ABOUT: text}
        files |= tokenizer.files()
        try:
            with atomic_folder(folder) as draft:
                for name in sorted([*files, WEIGHTS]):
                    if name == WEIGHTS:
                        draft.fill(name, lambda path: write_weights(path, weights, half))
                    else:
                        draft.write(name, files[name])
                draft.write_manifest({"format": FORMAT, "pellucid": __version__})
        except OSError as error:
            reason = error.strerror or short(error)
            raise PellucidError(f"cannot write the model to {folder}: {reason}") from None
        return cls.open(folder)
