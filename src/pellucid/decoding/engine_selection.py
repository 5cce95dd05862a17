"""Choice of the engine for a bundle: CTranslate2 where it can, PyTorch where it must."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pellucid.bundle import Bundle
from pellucid.decoding.ct2.conversion import vocabularies
from pellucid.decoding.ct2.engine import Ct2Engine
from pellucid.decoding.engine import Engine, SpecialIds, special_ids
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.steps import Result
from pellucid.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from pellucid.decoding.torch.engine import TorchEngine
    from pellucid.model import Transformer

EngineName = Literal["auto", "ct2", "torch"]


def open_engine(bundle: Bundle, name: EngineName = "auto", threads: int | None = None) -> Engine:
    """Open the engine for a bundle.

    auto: ct2 if the bundle has it, with torch for the options that ct2 lacks. threads: batches
    that ct2 decodes at the same time (default: one for each core).
    """
    if name == "torch":
        return open_torch(bundle)
    if name not in ("auto", "ct2"):
        raise InputError(f"unknown engine {name!r}: choose auto, ct2 or torch")
    if bundle.has_ct2:
        ct2 = open_ct2(bundle, threads)
        return ct2 if name == "ct2" else AutoEngine(bundle, ct2)
    if name == "auto":
        return open_torch(bundle)
    from pellucid.decoding.ct2.specification import obstacle

    reason = obstacle(bundle.config) or f"{bundle.folder} has no folder ct2"
    raise InputError(f"the ct2 engine cannot run this model ({reason}): use the torch engine")


def open_ct2(bundle: Bundle, threads: int | None = None) -> Ct2Engine:
    """Open CTranslate2 with the bundle's folder ct2."""
    pieces, source_pieces = vocabularies(bundle.tokenizer)
    return Ct2Engine(
        bundle.ct2(),
        bundle.config,
        special_ids(bundle.tokenizer),
        pieces,
        source_pieces=source_pieces,
        alignment=bundle.settings.alignment_head,
        threads=threads,
    )


def open_torch(bundle: Bundle) -> TorchEngine:
    """Open PyTorch with the bundle's weights."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError("the torch engine", "train") from None
    from pellucid.decoding.torch.engine import TorchEngine

    return TorchEngine(bundle.model(), special_ids(bundle.tokenizer))


class AutoEngine:
    """ct2, with torch for the options that ct2 lacks; torch is loaded when first needed."""

    def __init__(self, bundle: Bundle, ct2: Ct2Engine) -> None:
        self._bundle, self._ct2 = bundle, ct2
        self._torch: TorchEngine | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The engine that computes a plain translation; see `Engine`."""
        return self._ct2.name

    @property
    def device(self) -> str:
        """Where it computes."""
        return self._ct2.device

    @property
    def threads(self) -> int:
        """How many batches ct2 decodes at the same time."""
        return self._ct2.threads

    @property
    def special(self) -> SpecialIds:
        """Ids of the special tokens."""
        return self._ct2.special

    @property
    def model(self) -> Transformer:
        """The model in PyTorch, loaded when first asked for."""
        return self._reference().model

    def _reference(self) -> TorchEngine:
        """Return the torch engine of the same bundle, opened once."""
        with self._lock:
            if self._torch is None:
                self._torch = open_torch(self._bundle)
            return self._torch

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[Result]:
        """Return one result for each source, in order; see `Engine`."""
        if self._ct2.obstacle(options, sources) is None:
            return self._ct2.translate_ids(sources, options, prefixes)
        return self._reference().translate_ids(sources, options, prefixes)

    def next_tokens(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        count: int,
    ) -> list[list[tuple[int, float]]]:
        """Return the `count` most probable tokens after each prefix and their log-probabilities."""
        return self._ct2.next_tokens(sources, prefixes, count)
