"""A model on disk: a folder that holds all that translating needs, each file checked by its hash.

    manifest.json          size and sha256 of every file, and of the manifest itself
    config.toml            the model's shape, its languages and directions
    weights.safetensors    the weights, matrices that are tied stored once
    tokenizer.model        the tokenizer
    MODEL.md               what the model is, for a person
    ct2/                   the same model for CTranslate2, where it can be expressed

A bundle is opened as data, never as code: nothing is unpickled, and no file outside the folder is
read. Opening one needs no PyTorch; only `Bundle.model` does.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from pellucid import __version__
from pellucid.config import ModelConfig, Settings, as_toml, split_direction
from pellucid.errors import InputError, PellucidError
from pellucid.text.store import file_hash, manifest_hash, sync_folder
from pellucid.text.tokenizer import PAD_ID, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid.model import Transformer

FORMAT = 1
MANIFEST = "manifest.json"
CONFIG = "config.toml"
WEIGHTS = "weights.safetensors"
TOKENIZER = "tokenizer.model"
ABOUT = "MODEL.md"
CT2 = "ct2"
NEEDED = (CONFIG, WEIGHTS, TOKENIZER)

_LARGEST_MANIFEST = 1 << 20
_LARGEST_HEADER = 16 << 20
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_BYTES_OF = {"F32": 4, "F16": 2, "BF16": 2}


class DamagedBundleError(PellucidError):
    """A bundle is half there, changed, or not what it says it is."""


class BundleConfig(Settings):
    """What config.toml holds."""

    format: int = FORMAT
    """Version of the layout."""

    pellucid: str = __version__
    """Version of Pellucid that wrote it."""

    directions: tuple[str, ...] = Field(min_length=1)
    """Which ways the model translates, e.g. ["fr-en", "en-fr"]."""

    default_direction: str
    """Which way it translates when nobody says."""

    alignment: tuple[int, int] | None = None
    """The decoder layer and head whose cross-attention says best which source token an output
    token comes from, where that was measured."""

    model: ModelConfig
    """The shape of the model."""

    @model_validator(mode="after")
    def _directions_fit(self) -> Self:
        for direction in self.directions:
            split_direction(direction)
        if self.default_direction not in self.directions:
            raise ValueError(
                f"default_direction = {self.default_direction!r} is not one of the directions"
            )
        return self

    @property
    def languages(self) -> tuple[str, ...]:
        """Every language of the directions, in order of appearance."""
        names = (name for direction in self.directions for name in split_direction(direction))
        return tuple(dict.fromkeys(names))


def tied_names(config: ModelConfig) -> dict[str, str]:
    """Weights that are another one under a second name: the second name to the first."""
    first = "target_embedding.tokens.weight"
    if config.tie == "none":
        return {}
    tied = {"output.weight": first}
    return {"source_embedding.tokens.weight": first, **tied} if config.tie == "all" else tied


@dataclass(frozen=True)
class Bundle:
    """A whole, checked model folder. Open one with `Bundle.open`, make one with `Bundle.write`."""

    folder: Path
    settings: BundleConfig
    manifest: Mapping[str, Any]
    tokenizer: Tokenizer

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
        manifest = _read_manifest(folder)
        for name, expected in manifest["files"].items():
            if not (lazily and (name == WEIGHTS or name.startswith(f"{CT2}/"))):
                _check_file(folder, name, expected)
        if not lazily:
            _read_header(folder / WEIGHTS)
        settings = _read_config(folder / CONFIG)
        try:
            tokenizer = Tokenizer.load(folder / TOKENIZER)
        except InputError as error:
            raise DamagedBundleError(str(error)) from None
        _check_fit(folder, settings, tokenizer)
        return cls(folder, settings, manifest, tokenizer)

    @property
    def has_ct2(self) -> bool:
        """Whether it can be run by CTranslate2 as it is."""
        return any(name.startswith(f"{CT2}/") for name in self.manifest["files"])

    def ct2(self) -> Path:
        """The folder for CTranslate2, its hashes compared."""
        for name, expected in self.manifest["files"].items():
            if name.startswith(f"{CT2}/"):
                _check_file(self.folder, name, expected)
        return self.folder / CT2

    def weights(self) -> dict[str, np.ndarray]:
        """The weights by name as float32, tied ones under each of their names; without PyTorch."""
        path = self.folder / WEIGHTS
        _check_file(self.folder, WEIGHTS, self.manifest["files"][WEIGHTS])
        header = _read_header(path)
        data = np.memmap(path, dtype=np.uint8, mode="r")
        start = 8 + int.from_bytes(data[:8].tobytes(), "little")
        weights = {}
        for name, tensor in header.items():
            first, last = tensor["data_offsets"]
            raw = np.array(data[start + first : start + last])  # a copy begins at a round address
            if tensor["dtype"] == "BF16":  # the upper half of a float32
                numbers = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                numbers = raw.view({"F32": "<f4", "F16": "<f2"}[tensor["dtype"]])
            weights[name] = numbers.astype(np.float32).reshape(tensor["shape"])
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
                _check_file(self.folder, file, self.manifest["files"][file])
                (draft / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.folder / file, draft / file)
            write(draft / name)
            made = [p.relative_to(draft).as_posix() for p in sorted((draft / name).rglob("*"))]
            _finish_draft(draft, sorted([*kept, *made]))
            _swap_in(draft, self.folder.absolute())
        except OSError as error:
            reason = error.strerror or _short(error)
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
        _check_file(self.folder, WEIGHTS, self.manifest["files"][WEIGHTS])
        header = _read_header(path)
        if self.config.encoder_layers + self.config.decoder_layers > len(header):
            raise DamagedBundleError(f"{path} has too few weights for the layers of {CONFIG}")
        _check_shapes(self.config, {n: tuple(t["shape"]) for n, t in header.items()}, str(path))
        try:
            weights = load_file(path, device=device)
        except (SafetensorError, OSError) as error:
            raise DamagedBundleError(f"{path} cannot be read: {_short(error)}") from None
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
        tokenizer: Tokenizer,
        *,
        directions: Sequence[str],
        about: Mapping[str, Any],
        half: bool = False,
        alignment: tuple[int, int] | None = None,
    ) -> Bundle:
        """Write a model to a folder, and open it again, which checks it.

        All of it is there or none: it is written beside the folder, and then renamed. A bundle
        that is there already is replaced; a folder with anything else is not touched. The first
        of the directions is the default one. `half` stores the weights as float16, in half the
        room. `alignment` is what `decoding.alignment` found. `about` is for MODEL.md: a title and
        whatever else a person should know, by name.
        """
        folder = Path(folder).absolute()
        settings = BundleConfig(
            directions=tuple(directions),
            default_direction=directions[0],
            alignment=alignment,
            model=config,
        )
        _check_fit(folder, settings, tokenizer)
        _check_replaceable(folder)
        weights = _untied(config, state_dict)
        _check_shapes(config, {name: tuple(t.shape) for name, t in weights.items()}, "the weights")
        draft = folder.parent / f".{folder.name}.writing-{secrets.token_hex(4)}"
        try:
            draft.mkdir(parents=True)
            _write_text(draft / CONFIG, _config_text(settings))
            _write_text(draft / ABOUT, _about_text(settings, weights, about))
            _write_bytes(draft / TOKENIZER, tokenizer.model)
            _write_weights(draft / WEIGHTS, weights, half)
            _finish_draft(draft, sorted((*NEEDED, ABOUT)))
            _swap_in(draft, folder)
        except OSError as error:
            reason = error.strerror or _short(error)
            raise PellucidError(f"cannot write the model to {folder}: {reason}") from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return cls.open(folder)


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.exists():
        raise InputError(f"no model in {folder}: it has no {MANIFEST}")
    _check_plain(path)
    if path.stat().st_size > _LARGEST_MANIFEST:
        raise DamagedBundleError(f"{path} is too large to be a manifest")
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedBundleError(f"{path} cannot be read: {_short(error)}") from None
    if not isinstance(manifest, dict) or manifest_hash(manifest) != manifest.get("sha256"):
        raise DamagedBundleError(f"{path} is damaged (its hash differs): get the model again")
    if manifest.get("format") != FORMAT:
        raise DamagedBundleError(
            f"{path} has format {manifest.get('format')!r}, and this version reads {FORMAT}"
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(_is_entry(entry) for entry in files.values()):
        raise DamagedBundleError(f"{path} does not list its files with size and hash")
    for name in files:
        if len(name) > 200 or not all(_NAME.fullmatch(part) for part in name.split("/")):
            raise DamagedBundleError(f"{path} names a file outside its folder: {name[:80]!r}")
    for name in NEEDED:
        if name not in files:
            raise DamagedBundleError(f"{path} lists no {name}: the model is not whole")
    return manifest


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("sha256"), str)
    )


def _check_plain(path: Path) -> None:
    """Refuse links, pipes and devices: a bundle is made of plain files."""
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise DamagedBundleError(f"{path} cannot be read: {error.strerror}") from None
    if stat.S_ISLNK(mode):
        raise DamagedBundleError(f"{path} is a link, and a model holds none: copy the file itself")
    if not stat.S_ISREG(mode):
        raise DamagedBundleError(f"{path} is not a plain file")


def _check_file(folder: Path, name: str, expected: dict[str, Any]) -> None:
    path = folder / name
    for parent in path.relative_to(folder).parents:
        if parent != Path() and (folder / parent).is_symlink():
            raise DamagedBundleError(f"{folder / parent} is a link, and a model holds none")
    _check_plain(path)
    try:
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise DamagedBundleError(
                f"{path} is damaged (it has {size:,} bytes instead of {expected['bytes']:,}): "
                "get the model again"
            )
        if file_hash(path) != expected["sha256"]:
            raise DamagedBundleError(f"{path} is damaged (its hash differs): get the model again")
    except OSError as error:
        raise DamagedBundleError(f"{path} cannot be read: {error.strerror}") from None


def _read_header(path: Path) -> dict[str, dict[str, Any]]:
    """The table of tensors of a safetensors file, checked: it fills the file exactly.

    The safetensors library checks the same once more; this is so that a wrong file is refused
    before that library (or PyTorch) is there at all.
    """
    wrong = f"{path} is not a safetensors file"
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_LARGEST_HEADER, path.stat().st_size - 8):
                raise DamagedBundleError(f"{wrong}: its header cannot be right")
            header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise DamagedBundleError(f"{wrong}: its header is no table")
        header.pop("__metadata__", None)
        ends = 0
        for tensor in sorted(header.values(), key=lambda tensor: tensor["data_offsets"]):
            start, stop = tensor["data_offsets"]
            shape = tensor["shape"]
            if not all(isinstance(n, int) and n >= 0 for n in (start, stop, *shape)):
                raise DamagedBundleError(f"{wrong}: a shape or an offset is no number")
            if start != ends or stop - start != math.prod(shape) * _BYTES_OF[tensor["dtype"]]:
                raise DamagedBundleError(f"{wrong}: its tensors do not fill it")
            ends = stop
        if ends != path.stat().st_size - 8 - length:
            raise DamagedBundleError(f"{wrong}: its tensors do not fill it")
    except (OSError, ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise DamagedBundleError(f"{wrong}: {_short(error)}") from None
    return header


def _read_config(path: Path) -> BundleConfig:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return BundleConfig(**values)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DamagedBundleError(f"{path} cannot be used: {_short(error)}") from None


def _check_fit(folder: Path, settings: BundleConfig, tokenizer: Tokenizer) -> None:
    config = settings.model
    for what, size in (
        ("vocab_size", config.vocab_size),
        ("source_vocab_size", config.source_vocab_size or config.vocab_size),
    ):
        if size != tokenizer.vocab_size:
            raise DamagedBundleError(
                f"{folder}: the model's {what} is {size}, and the tokenizer has "
                f"{tokenizer.vocab_size} pieces: they do not belong together"
            )
    if config.pad_id != PAD_ID:
        raise DamagedBundleError(f"{folder}: pad_id is {config.pad_id}, the tokenizer's {PAD_ID}")
    for direction in settings.directions:
        target = split_direction(direction)[1]
        if target not in tokenizer.languages:
            raise DamagedBundleError(
                f"{folder}: the tokenizer has no tag for {target!r}, which {direction!r} needs"
            )


def _check_shapes(config: ModelConfig, given: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Refuse weights that are not exactly those of the config, before room is made for them."""
    import torch

    from pellucid.model import Transformer

    try:
        with torch.device("meta"):
            shapes = {n: tuple(t.shape) for n, t in Transformer(config).state_dict().items()}
    except (RuntimeError, OverflowError, MemoryError) as error:
        raise DamagedBundleError(f"{where}: no such model: {_short(error)}") from None
    for second in tied_names(config):
        del shapes[second]
    for name in shapes:
        if name not in given:
            raise DamagedBundleError(f"{where} lacks {name!r}, which the config's model has")
        if given[name] != shapes[name]:
            raise DamagedBundleError(
                f"{where}: {name!r} has shape {list(given[name])}, and the config's model has "
                f"{list(shapes[name])}"
            )
    for name in given:
        if name not in shapes:
            raise DamagedBundleError(f"{where} has {name!r}, which the config's model has not")


def _untied(config: ModelConfig, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights, tied ones once."""
    import torch

    weights = dict(state_dict)
    for second, first in tied_names(config).items():
        copy = weights.pop(second, None)
        if copy is not None and first in weights and not torch.equal(copy, weights[first]):
            raise PellucidError(f"{second!r} and {first!r} are tied but differ: nothing is written")
    return weights


def _check_replaceable(folder: Path) -> None:
    if not (folder.exists() or folder.is_symlink()):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise InputError(f"{folder} is in the way of the model: choose another place")
    if any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} holds something that is not a model: choose another folder")


def _write_bytes(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_text(path: Path, text: str) -> None:
    _write_bytes(path, text.encode())


def _write_weights(path: Path, weights: Mapping[str, Tensor], half: bool) -> None:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    dtype = torch.float16 if half else torch.float32
    largest = torch.finfo(dtype).max
    ready = {}
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all() or tensor.abs().max() > largest:
            raise PellucidError(f"{name!r} has numbers that {dtype} cannot hold: nothing written")
        ready[name] = tensor.detach().to("cpu", dtype).contiguous()
    try:
        save_file(ready, path)
    except SafetensorError as error:
        raise OSError(str(error)) from None
    # safetensors makes a file for its owner alone; it should be as open as the others
    path.chmod(stat.S_IMODE((path.parent / CONFIG).stat().st_mode))
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _finish_draft(draft: Path, names: Sequence[str]) -> None:
    """Write the manifest of these files, and see that all of it has reached the disk."""
    for name in names:
        with (draft / name).open("rb+") as file:
            os.fsync(file.fileno())
    files = {name: _described(draft / name) for name in names}
    manifest = {"format": FORMAT, "pellucid": __version__, "files": files}
    manifest["sha256"] = manifest_hash(manifest)
    _write_text(draft / MANIFEST, json.dumps(manifest, indent=1))
    sync_folder(draft)


def _described(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": file_hash(path)}


def _swap_in(draft: Path, folder: Path) -> None:
    """Put the finished folder in its place. An old one is moved aside first, and then removed."""
    old = folder.parent / f".{folder.name}.old-{secrets.token_hex(4)}"
    if folder.exists():
        os.rename(folder, old)
    try:
        os.rename(draft, folder)
    except OSError:
        if old.exists():
            os.rename(old, folder)
        raise
    try:
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _config_text(settings: BundleConfig) -> str:
    intro = (
        "# A translation model of Pellucid. What stands here belongs to weights.safetensors.\n\n"
    )
    return intro + as_toml(settings)


def _about_text(
    settings: BundleConfig, weights: Mapping[str, Tensor], about: Mapping[str, Any]
) -> str:
    """MODEL.md: a title, what the model is, and all that `about` tells."""
    rest = dict(about)
    title = _one_line(rest.pop("title", "") or f"Translation: {', '.join(settings.directions)}")
    count = sum(tensor.numel() for tensor in weights.values())
    lines = [f"# {title}", ""]
    lines += [
        f"A Transformer of {count:,} parameters made with Pellucid {settings.pellucid}. "
        f"It translates {', '.join(settings.directions)}; if nobody says which way, "
        f"{settings.default_direction}.",
        "",
        "```",
        "pellucid translate --model THIS_FOLDER TEXT",
        "```",
    ]
    for name, value in rest.items():
        lines += ["", f"## {_one_line(name).replace('_', ' ').capitalize()}", "", *_told(value)]
    return "\n".join(lines) + "\n"


def _told(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        rows = [f"| {_cell(key)} | {_cell(item)} |" for key, item in value.items()]
        return ["| | |", "|---|---|", *rows]
    if isinstance(value, list | tuple):
        return [f"- {_one_line(item)}" for item in value]
    return [str(value)]


def _cell(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return _one_line(text).replace("|", "\\|")


def _one_line(text: Any) -> str:
    return " ".join(str(text).split())


def _short(error: BaseException) -> str:
    return _one_line(error)[:160] or type(error).__name__
