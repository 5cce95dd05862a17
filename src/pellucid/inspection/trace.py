"""The trace of one sentence: every tensor by name, the search, the KV cache.

A trace is data (numpy arrays and plain values): it needs no PyTorch once it is made, and is saved
to and loaded from one file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_type_hints

import numpy as np
from pydantic import TypeAdapter

from pellucid.decoding.steps import Candidate
from pellucid.errors import InputError

FORMAT = 2
LARGEST_FILE = 1 << 30
_UNREADABLE = (KeyError, ValueError, TypeError, AttributeError, RecursionError)

Kind = Literal["encoder", "decoder", "cross"]
_TENSORS: dict[str, str] = {
    "encoder": "encoder.{}.self",
    "decoder": "decoder.{}.self",
    "cross": "decoder.{}.cross",
}


class Token(NamedTuple):
    """A token id and its piece."""

    id: int
    piece: str


class Tokens(NamedTuple):
    """Source and target of a sentence with their special tokens, as the model reads them."""

    source: tuple[Token, ...]
    """With the tag of the target language and the end token."""
    target: tuple[Token, ...]
    """Decoder input: the start token, then the output."""
    answers: tuple[Token, ...]
    """Predicted token at each position: the output, then the end token, or where the output was cut
    the most probable next token."""


class Round(NamedTuple):
    """One round of the search: the length of the hypotheses after it, and its candidates."""

    length: int
    candidates: tuple[Candidate, ...]


class FinishedHypothesis(NamedTuple):
    """A finished hypothesis with its text."""

    tokens: tuple[int, ...]
    length: int
    log_probability: float
    score: float
    ended: str
    text: str


class CacheRow(NamedTuple):
    """The KV cache after a round of the search."""

    length: int
    rows: int
    """Number of hypotheses, each with a row."""
    own_bytes: int
    """Bytes of the self-attention keys and values, all layers."""
    cross_bytes: int
    """Bytes of the cross-attention keys and values, computed once."""
    parents: tuple[int, ...]
    """Row of the round before that each row continues."""
    products: int
    """Multiply-adds of this round with the cache."""
    products_without: int
    """Multiply-adds without a cache, which computes all positions again."""


class LensGuess(NamedTuple):
    """A token that the model would predict if it stopped after a layer (logit lens)."""

    token: Token
    probability: float


@dataclass(frozen=True)
class Trace(Mapping[str, np.ndarray]):
    """What happened inside the model for one sentence; `Translator.look` makes one.

    `trace["decoder.2.cross.weights"]` is a tensor by name (`trace.names("*.weights")` lists them),
    without the batch dimension: an attention map is (H, T, S).
    """

    source: str
    text: str
    direction: str
    tokens: Tokens
    tensors: Mapping[str, np.ndarray] = field(repr=False)
    beam: tuple[Round, ...] = field(repr=False)
    """The rounds of the search."""
    hypotheses: tuple[FinishedHypothesis, ...] = field(repr=False)
    """Finished hypotheses, best first; the first is the output."""
    cache: tuple[CacheRow, ...] = field(repr=False)
    model: Mapping[str, Any] = field(repr=False)
    """Configuration of the model."""
    options: Mapping[str, Any] = field(repr=False)
    """Decoding options."""
    lens: tuple[tuple[tuple[LensGuess, ...], ...], ...] = field(repr=False, default=())
    """By decoder layer, then by position: the best guesses after that layer."""
    pieces: Mapping[int, str] = field(repr=False, default_factory=dict)
    """Piece of every token id that occurs in the search."""
    changed: tuple[str, ...] = ()
    """Changes to the model or the sentence for a what-if, in words."""

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self.tensors[name]
        except KeyError:
            close = [n for n in self.tensors if n.split(".")[-1] == name.split(".")[-1]]
            hint = f"e.g. {close[0]!r}" if close else "see trace.names()"
            raise KeyError(f"no tensor {name!r} in this trace: {hint}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def names(self, pattern: str = "*") -> list[str]:
        """Return the names of the tensors that match a pattern, in the order of computation."""
        return [name for name in self.tensors if fnmatchcase(name, pattern)]

    @property
    def bytes(self) -> int:
        """Size of all tensors in memory."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def attention(
        self,
        kind: Kind = "cross",
        layer: int | Literal["mean"] = -1,
        head: int | Literal["mean"] = "mean",
    ) -> np.ndarray:
        """Return attention weights (queries, keys); each row sums to 1.

        kind: "encoder" (source to source), "decoder" (target to target, masked) or "cross" (target
        to source). layer: counted from 0, negative from the top, or "mean". head: one, or "mean".
        """
        if kind not in _TENSORS:
            raise InputError(f"no attention {kind!r}: choose encoder, decoder or cross")
        side = "encoder" if kind == "encoder" else "decoder"
        depth = int(self.model[f"{side}_layers"])
        layers = list(range(depth)) if layer == "mean" else [_counted(layer, depth, "layer")]
        maps = [self[_TENSORS[kind].format(number) + ".weights"] for number in layers]
        if head != "mean":
            number = _counted(head, maps[0].shape[0], "head")
            maps = [weights[number : number + 1] for weights in maps]
        mean: np.ndarray = np.mean([weights.mean(axis=0) for weights in maps], axis=0)
        return mean

    def save(self, path: Path | str) -> None:
        """Write the trace to one file (safetensors, with the rest as JSON in its header)."""
        from safetensors.numpy import save_file

        about = {"format": FORMAT, **_plain_values(self)}
        tensors = {name: np.ascontiguousarray(tensor) for name, tensor in self.tensors.items()}
        save_file(tensors, path, metadata={"pellucid trace": json.dumps(about)})

    @classmethod
    def load(cls, path: Path | str) -> Trace:
        """Load a trace that was saved."""
        from safetensors import SafetensorError, safe_open

        path = Path(path)
        if not path.is_file():
            raise InputError(f"no trace at {path}: check the path")
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path} is too large to be a trace")
        try:
            with safe_open(path, framework="numpy") as file:
                about = json.loads((file.metadata() or {})["pellucid trace"])
                if about.pop("format") != FORMAT:
                    raise InputError(f"{path} is a trace of another version of Pellucid")
                tensors = {name: file.get_tensor(name) for name in about.pop("order")}
            return cls(tensors=tensors, **_fields(about))
        except (SafetensorError, *_UNREADABLE) as error:
            reason = " ".join(str(error).split())[:120]
            raise InputError(f"{path} is not a trace of Pellucid: {reason}") from None

    def as_dict(self, tensors: bool | Sequence[str] = False) -> dict[str, Any]:
        """Return plain values, ready for JSON; tensors: patterns of names to include, or True."""
        patterns = ["*"] if tensors is True else tensors or []
        found = _plain_values(self)
        shapes = {name: list(self[name].shape) for name in found.pop("order")}
        wanted = [n for n in self.tensors if any(fnmatchcase(n, p) for p in patterns)]
        return {**found, "shapes": shapes, "tensors": {n: self[n].tolist() for n in wanted}}

    def _repr_html_(self) -> str:
        """Return the cross-attention as a picture, for notebooks."""
        from pellucid.inspection.figures import attention_svg

        return attention_svg(self)


def _counted(number: int, count: int, what: str) -> int:
    if not -count <= number < count:
        raise InputError(f"no {what} {number}: there are {count}, 0 to {count - 1}")
    return number % count


def _plain_values(trace: Trace) -> dict[str, Any]:
    """Return all but the tensors as plain values, and the order of the tensors."""
    found: dict[str, Any] = {"order": list(trace.tensors)}
    for entry in fields(trace):
        if entry.name != "tensors":
            value = getattr(trace, entry.name)
            found[entry.name] = dict(value) if isinstance(value, Mapping) else value
    found["beam"] = [
        {"length": one.length, "candidates": [[*c[:5], int(c.fate)] for c in one.candidates]}
        for one in trace.beam
    ]
    return found


def _fields(about: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a trace from plain values, each checked against its type."""
    types = get_type_hints(Trace)
    del types["tensors"]
    if about.keys() != types.keys():
        raise ValueError(f"it should have {', '.join(types)}")
    return {name: TypeAdapter(types[name]).validate_python(about[name]) for name in types}
