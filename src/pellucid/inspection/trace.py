"""Everything that happened for one sentence: every tensor by name, the search, the cache.

A trace is data (numpy arrays and plain values): it needs no PyTorch once it is made, and is saved
and loaded as one file.
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

FORMAT = 1
LARGEST_FILE = 1 << 30
_UNREADABLE = (KeyError, ValueError, TypeError, AttributeError, RecursionError)

Kind = Literal["encoder", "decoder", "cross"]
_PLACES: dict[str, str] = {
    "encoder": "encoder.{}.self",
    "decoder": "decoder.{}.self",
    "cross": "decoder.{}.cross",
}


class Token(NamedTuple):
    """A token as a person reads it."""

    id: int
    piece: str


class Tokens(NamedTuple):
    """The two sides of a sentence, special symbols included, as the model sees them."""

    source: tuple[Token, ...]
    """With the tag of the target language and the end symbol."""
    target: tuple[Token, ...]
    """What the decoder reads: the start symbol, then the output."""
    answers: tuple[Token, ...]
    """What it answers at each place: the output, then the end symbol, or where the output was cut
    the most likely next token."""


class Round(NamedTuple):
    """One round of the search: how long hypotheses are after it, and what became of each way."""

    length: int
    candidates: tuple[Candidate, ...]


class Ended(NamedTuple):
    """A hypothesis that ended."""

    tokens: tuple[int, ...]
    length: int
    log_probability: float
    score: float
    ended: str
    text: str


class CacheRow(NamedTuple):
    """The decoder's memory after a round."""

    length: int
    rows: int
    """Hypotheses that have a row."""
    own_bytes: int
    """Keys and values of the output so far, all layers."""
    cross_bytes: int
    """Keys and values of the source, computed once."""
    parents: tuple[int, ...]
    """Which row of the round before each row goes on from."""
    products: int
    """Multiply-adds of this round with the cache."""
    products_without: int
    """Those of reading the whole output again, as it would be without a cache."""


class LensGuess(NamedTuple):
    """What the model would say at a place if it stopped after a layer."""

    token: Token
    probability: float


@dataclass(frozen=True)
class Trace(Mapping[str, np.ndarray]):
    """What happened inside for one sentence; `Translator.look` makes one.

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
    hypotheses: tuple[Ended, ...] = field(repr=False)
    """Those that ended, best first; the first is the answer."""
    cache: tuple[CacheRow, ...] = field(repr=False)
    model: Mapping[str, Any] = field(repr=False)
    """The shape of the model."""
    options: Mapping[str, Any] = field(repr=False)
    """How it was searched."""
    lens: tuple[tuple[tuple[LensGuess, ...], ...], ...] = field(repr=False, default=())
    """By decoder layer, then by place: the best guesses after that layer."""
    pieces: Mapping[int, str] = field(repr=False, default_factory=dict)
    """The piece of every token id that appears anywhere in the search."""
    changed: tuple[str, ...] = ()
    """What was changed in the model or the sentence for a what-if, in words."""

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
        """The names of the tensors that match a pattern, in the order of computation."""
        return [name for name in self.tensors if fnmatchcase(name, pattern)]

    @property
    def bytes(self) -> int:
        """Memory of the tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def attention(
        self,
        kind: Kind = "cross",
        layer: int | Literal["mean"] = -1,
        head: int | Literal["mean"] = "mean",
    ) -> np.ndarray:
        """Attention weights (from, to): rows are those who look, and each row sums to 1.

        kind: "encoder" (source to source), "decoder" (output to output, masked) or "cross" (output
        to source). layer: counted from 0, negative from the top, or "mean". head: one, or "mean".
        """
        if kind not in _PLACES:
            raise InputError(f"no attention {kind!r}: choose encoder, decoder or cross")
        side = "encoder" if kind == "encoder" else "decoder"
        depth = int(self.model[f"{side}_layers"])
        layers = list(range(depth)) if layer == "mean" else [_counted(layer, depth, "layer")]
        maps = [self[_PLACES[kind].format(number) + ".weights"] for number in layers]
        if head != "mean":
            number = _counted(head, maps[0].shape[0], "head")
            maps = [weights[number : number + 1] for weights in maps]
        mean: np.ndarray = np.mean([weights.mean(axis=0) for weights in maps], axis=0)
        return mean

    def save(self, path: Path | str) -> None:
        """Write all of it to one file (safetensors, with the rest as JSON in its header)."""
        from safetensors.numpy import save_file

        about = {"format": FORMAT, **_plain(self)}
        tensors = {name: np.ascontiguousarray(tensor) for name, tensor in self.tensors.items()}
        save_file(tensors, path, metadata={"pellucid trace": json.dumps(about)})

    @classmethod
    def load(cls, path: Path | str) -> Trace:
        """A trace that was saved."""
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
            return cls(tensors=tensors, **_read(about))
        except (SafetensorError, *_UNREADABLE) as error:
            reason = " ".join(str(error).split())[:120]
            raise InputError(f"{path} is not a trace of Pellucid: {reason}") from None

    def as_dict(self, tensors: bool | Sequence[str] = False) -> dict[str, Any]:
        """Plain values, ready for JSON; with the tensors that match some patterns, or all."""
        patterns = ["*"] if tensors is True else tensors or []
        found = _plain(self)
        shapes = {name: list(self[name].shape) for name in found.pop("order")}
        wanted = [n for n in self.tensors if any(fnmatchcase(n, p) for p in patterns)]
        return {**found, "shapes": shapes, "tensors": {n: self[n].tolist() for n in wanted}}

    def _repr_html_(self) -> str:
        """The cross-attention as a picture, for notebooks."""
        from pellucid.inspection.figures import attention_svg

        return attention_svg(self)


def _counted(number: int, count: int, what: str) -> int:
    if not -count <= number < count:
        raise InputError(f"no {what} {number}: there are {count}, 0 to {count - 1}")
    return number % count


def _plain(trace: Trace) -> dict[str, Any]:
    """All but the tensors as plain values, and the order of the tensors."""
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


def _read(about: dict[str, Any]) -> dict[str, Any]:
    """The fields of a trace from their plain values, each checked against its type."""
    types = get_type_hints(Trace)
    del types["tensors"]
    if about.keys() != types.keys():
        raise ValueError(f"it should have {', '.join(types)}")
    return {name: TypeAdapter(types[name]).validate_python(about[name]) for name in types}
