"""Marian's own format: weights and settings in a .npz, a vocabulary in YAML.

Marian has many architectures in one format. The plain Transformer is ours; any other is refused by
name, and so is a weight that is left over in the end, so that no variant slips through.

Two details of Marian that later copies of its models lost are kept: the wavelengths of the position
encodings reach 10000 exactly at the last dimension, and the norms have an epsilon of 1e-6.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.errors import ConfigError, InputError
from pellucid.exchange.foreign import ForeignFileError, ForeignModel, read_bytes
from pellucid.exchange.npz_vocabulary import Vocabularies, read_vocabularies

if TYPE_CHECKING:
    from torch import Tensor

DECODER = "decoder.yml"
_SETTINGS = "special:model.yml"
_PAD_LOGIT = -10_000.0  # a probability of 0, in float16 too

_MUST_BE = {
    "type": ("transformer", "its type is {}, and only a transformer is the model of the paper"),
    "transformer-decoder-autoreg": (
        "self-attention",
        "its decoder has {} in place of self-attention (rnn is an SSRU, as in fast students)",
    ),
    "transformer-ffn-depth": (2, "its feed-forward layers have a depth of {}"),
}
_MUST_BE_OFF = (
    "transformer-no-projection",
    "transformer-train-position-embeddings",
    "transformer-train-positions",
    "transformer-disable-position",
    "transformer-tied-layers",
    "transformer-no-bias",
    "transformer-no-affine",
    "transformer-pool",
    "right-left",
    "ulr",
    "lemma-dim-emb",
)
_OUTPUT = ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W")
_ACTIVATIONS = {"relu": "relu", "swish": "silu"}  # Marian's gelu is another approximation
# preprocess, postprocess, postprocess-top: d dropout, a add, n norm
_NORMS: dict[tuple[str, ...], str] = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}


def is_npz(folder: Path) -> bool:
    """Whether a folder looks like a model in this format."""
    return any(folder.glob("*.npz"))


def read_npz(folder: Path) -> ForeignModel:
    """Read the model in a folder: one .npz, its vocabularies, source.spm and target.spm."""
    listed = _listed(folder)
    path = _weights_file(folder, listed.get("models"))
    arrays, settings = _read_arrays(path)
    words = read_vocabularies(folder, listed.get("vocabs"))
    config = _model_config(settings, arrays, words, path)
    weights = _Converter(config, arrays, words, path).weights()
    about = {"format": f"Marian {settings.get('version', '')}".strip()}
    return ForeignModel(config, weights, words.tokenizer, about=about)


def _listed(folder: Path) -> dict[str, Any]:
    """Read decoder.yml, which names the model and its vocabularies, if there is one."""
    if not (folder / DECODER).is_file():
        return {}
    value = read_yaml(read_bytes(folder / DECODER), str(folder / DECODER))
    return value if isinstance(value, dict) else {}


def read_yaml(data: bytes, where: str) -> Any:
    """Read YAML as plain data."""
    import yaml  # type: ignore[import-untyped]

    try:
        return yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ForeignFileError(f"{where} is not YAML: {str(error).split(chr(10))[0]}") from None


def _weights_file(folder: Path, listed: Any) -> Path:
    if isinstance(listed, list) and len(listed) > 1:
        raise InputError(f"{folder / DECODER} names {len(listed)} models, an ensemble: refused")
    if isinstance(listed, list) and listed:
        path = folder / Path(str(listed[0])).name
        if path.is_file():
            return path
    found = sorted(folder.glob("*.npz"))
    if len(found) != 1:
        raise InputError(
            f"{folder} has {len(found)} .npz files: leave one, or name it in {DECODER} (models)"
        )
    return found[0]


def _read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the weights as float32, and the settings in the same file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        if "Object arrays" in str(error):
            raise ForeignFileError(
                f"{path} holds Python objects, and loading them could run arbitrary code: refused"
            ) from None
        raise ForeignFileError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if _SETTINGS not in arrays:
        raise ForeignFileError(f"{path} has no {_SETTINGS}: it is not a model of Marian")
    text = arrays.pop(_SETTINGS).tobytes().rstrip(b"\0")
    settings = read_yaml(text, f"{path}: {_SETTINGS}")
    if not isinstance(settings, dict):
        raise ForeignFileError(f"{path}: {_SETTINGS} is not a table of settings")
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            raise InputError(
                f"{path}: {name!r} is stored as {array.dtype}: only models in float32 or float16 "
                "can be imported, not quantised ones"
            )
    return {n: a.astype(np.float32) for n, a in arrays.items()}, settings


def _model_config(
    settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray], words: Vocabularies, path: Path
) -> ModelConfig:
    """Translate the settings to our config; an `InputError` says which variant is refused."""

    def refuse(why: str) -> InputError:
        return InputError(f"{path} cannot be imported: {why}")

    for name, (wanted, why) in _MUST_BE.items():
        value = settings.get(name, wanted)
        if value != wanted:
            raise refuse(why.format(repr(value)))
    for name in _MUST_BE_OFF:
        if settings.get(name):
            raise refuse(f"{name} is on ({settings[name]!r})")
    for name in ("transformer-decoder-dim-ffn", "transformer-decoder-ffn-depth"):
        if settings.get(name) not in (None, 0, settings.get(name.replace("decoder-", ""))):
            raise refuse(f"{name} differs from the encoder's")
    activation = settings.get("transformer-ffn-activation", "swish")
    if activation not in _ACTIVATIONS:
        raise refuse(f"its activation is {activation!r}, and there are {list(_ACTIVATIONS)}")
    norms = [settings.get(f"transformer-{p}", "") or "" for p in ("preprocess", "postprocess")]
    norms.append(settings.get("transformer-postprocess-top", "") or "")
    if tuple(norms) not in _NORMS:
        raise refuse(f"its norms are at {norms}, and neither before nor after all sub-layers")
    try:
        d_model = int(settings["dim-emb"])
        half = max(d_model // 2, 2)
        shape: dict[str, Any] = {
            "vocab_size": words.size,
            "source_vocab_size": None if words.shared else words.size,
            "pad_id": words.pad,
            "d_model": d_model,
            "d_ff": int(settings["transformer-dim-ffn"]),
            "num_heads": int(settings["transformer-heads"]),
            "encoder_layers": int(settings["enc-depth"]),
            "decoder_layers": int(settings["dec-depth"]),
            "norm": _NORMS[tuple(norms)],
            "norm_epsilon": 1e-6,
            "activation": _ACTIVATIONS[activation],
            "position_layout": "halves",
            "position_base": 10000.0 ** (half / (half - 1)),
            "output_bias": True,
            "tie_embeddings": _tying(arrays),
            "embedding_norm": "n" in str(settings.get("transformer-postprocess-emb", "d")),
        }
        return ModelConfig(**shape)
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise ForeignFileError(f"{path}: its settings cannot be used: {error}") from None


def _tying(arrays: Mapping[str, np.ndarray]) -> str:
    if any(name in arrays for name in _OUTPUT):
        return "none"
    return "all" if "Wemb" in arrays else "decoder"


class _Converter:
    """Converts Marian's weights to ours. Its matrices are (in, out): ours are transposed."""

    def __init__(
        self,
        config: ModelConfig,
        arrays: Mapping[str, np.ndarray],
        words: Vocabularies,
        path: Path,
    ) -> None:
        self.config, self.rest, self.words, self.path = config, dict(arrays), words, path

    def weights(self) -> dict[str, Tensor]:
        """Convert all weights; every one of Marian's must be known."""
        import torch

        made = self._vocabulary()
        for side, count in (
            ("encoder", self.config.encoder_layers),
            ("decoder", self.config.decoder_layers),
        ):
            for number in range(count):
                made |= self._layer(side, number)
            if self.config.norm == "pre":
                made |= self._norm(f"{side}.norm", f"{side}_top")
            if self.config.embedding_norm:
                ours = "source" if side == "encoder" else "target"
                made |= self._norm(f"{ours}_embedding.norm", f"{side}_emb")
        if self.rest:
            raise InputError(
                f"{self.path} cannot be imported: it has {min(self.rest)!r}, which is no part of a "
                "plain Transformer"
            )
        return {n: torch.from_numpy(np.ascontiguousarray(a)) for n, a in made.items()}

    def _take(self, name: str) -> np.ndarray:
        if name not in self.rest:
            raise ForeignFileError(
                f"{self.path} lacks {name!r}: it is not the model of its settings"
            )
        return self.rest.pop(name)

    def _vocabulary(self) -> dict[str, np.ndarray]:
        """Convert embeddings and output, with a zero row for the pad symbol, which Marian lacks.

        Marian starts a sentence with no embedding at all, which is what the zero row does.
        """
        names = {"source": "encoder_Wemb", "target": "decoder_Wemb"}
        made: dict[str, np.ndarray] = {}
        shared = self.rest.pop("Wemb", None)
        for side, name in names.items():
            table = self._take(name) if shared is None else shared
            made[f"{side}_embedding.tokens.weight"] = self._filled(table, name, side)
        if self.config.tie_embeddings == "none":
            upright, transposed = _OUTPUT
            table = self._take(upright) if upright in self.rest else self._take(transposed).T
            made["output.weight"] = self._filled(table, upright, "target")
        else:
            made["output.weight"] = made["target_embedding.tokens.weight"]
        bias = np.full(self.words.size, _PAD_LOGIT, np.float32)
        count = self.words.count("target")
        given = self.rest.pop("decoder_ff_logit_out_b", np.zeros(count, np.float32)).reshape(-1)
        if len(given) != count:
            raise ForeignFileError(f"{self.path}: {len(given)} biases for {count} pieces")
        bias[:count] = given
        made["output.bias"] = bias
        return made

    def _filled(self, table: np.ndarray, name: str, side: str) -> np.ndarray:
        count = self.words.count(side)
        if table.ndim != 2 or len(table) != count:
            raise ForeignFileError(
                f"{self.path}: {name} has shape {list(table.shape)}, and its vocabulary {count} "
                "pieces: they do not belong together"
            )
        missing = np.zeros((self.words.size - count, table.shape[1]), np.float32)
        return np.concatenate([table, missing])

    def _layer(self, side: str, number: int) -> dict[str, np.ndarray]:
        ours, theirs = f"{side}.layers.{number}", f"{side}_l{number + 1}"
        norm = "norm_after" if self.config.norm == "post" else "norm_before"
        made: dict[str, np.ndarray] = {}
        attentions = [("attention", "self")] + ([("cross", "context")] if side == "decoder" else [])
        for mine, other in attentions:
            scope = f"{theirs}_{other}"
            parts = [self._take(f"{scope}_W{p}").T for p in "qkv"]
            biases = [self._take(f"{scope}_b{p}").reshape(-1) for p in "qkv"]
            made[f"{ours}.{mine}.in_weight"] = np.concatenate(parts)
            made[f"{ours}.{mine}.in_bias"] = np.concatenate(biases)
            made |= self._linear(f"{ours}.{mine}.out", f"{scope}_{{}}o")
            made |= self._norm(f"{ours}.{mine}_add_norm.{norm}", f"{scope}_Wo")
        made |= self._linear(f"{ours}.feed_forward.inner", f"{theirs}_ffn_{{}}1")
        made |= self._linear(f"{ours}.feed_forward.outer", f"{theirs}_ffn_{{}}2")
        return made | self._norm(f"{ours}.feed_forward_add_norm.{norm}", f"{theirs}_ffn_ffn")

    def _linear(self, ours: str, theirs: str) -> dict[str, np.ndarray]:
        return {
            f"{ours}.weight": self._take(theirs.format("W")).T,
            f"{ours}.bias": self._take(theirs.format("b")).reshape(-1),
        }

    def _norm(self, ours: str, theirs: str) -> dict[str, np.ndarray]:
        end = "_pre" if f"{theirs}_ln_scale_pre" in self.rest else ""
        return {
            f"{ours}.weight": self._take(f"{theirs}_ln_scale{end}").reshape(-1),
            f"{ours}.bias": self._take(f"{theirs}_ln_bias{end}").reshape(-1),
        }
