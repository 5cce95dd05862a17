"""How good a model is on pairs that it does not learn from: loss, BLEU, chrF, samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.config import BatchConfig, ValidationConfig, split_direction
from pellucid.data.batches import Batch, each_pair_once
from pellucid.data.store import PreparedData
from pellucid.decoding import DecodingOptions, SpecialIds
from pellucid.decoding.engine import special_ids
from pellucid.decoding.torch.engine import TorchEngine
from pellucid.errors import MissingExtraError
from pellucid.model import Transformer
from pellucid.tokenizers.sentencepiece import BOS_ID, EOS_ID, PAD_ID
from pellucid.training.callbacks.callback import Sample
from pellucid.training.distributed.process_group import ProcessGroup
from pellucid.training.loss import linear_loss

SPECIAL = SpecialIds(pad=PAD_ID, start=BOS_ID, end=EOS_ID)

_TOGETHER = 64  # sentences between two looks at whether to stop


class InterruptedValidationError(Exception):
    """Somebody wants the run to stop while a validation is under way."""


class Tensors(NamedTuple):
    """A batch as the model takes it."""

    source: Tensor
    """(B, S)"""
    target_in: Tensor
    """(B, T)"""
    places: Tensor
    """(N,) where in the flattened (B · T) positions real target tokens stand."""
    targets: Tensor
    """(N,) the tokens to be answered there."""


def tensors_of(batch: Batch, device: torch.device) -> Tensors:
    """A batch on the device.

    An empty one becomes one sentence without a target: the loss is a sum over no tokens, and a
    process that has nothing to add can still take its part in the step.
    """
    if len(batch):
        source, target_in, target_out = batch.source, batch.target_in, batch.target_out
    else:
        token = 1 if batch.pad_id == 0 else 0  # any but padding
        source, target_in, target_out = (np.array([[t]]) for t in (token, token, batch.pad_id))
    flat = target_out.reshape(-1)
    places = np.flatnonzero(flat != batch.pad_id)
    return Tensors(
        *(
            torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)
            for array in (source, target_in, places, flat[places])
        )
    )


class Example(NamedTuple):
    """A pair in one direction."""

    direction: str
    source_ids: list[int]
    """With the tag and the end."""
    source: str
    reference: str


@dataclass(frozen=True)
class Scores:
    """What a validation found."""

    loss: float
    """Nats a target token, without smoothing."""
    bleu: float | None
    """The mean over the directions."""
    chrf: float | None
    signatures: dict[str, str]
    by_direction: dict[str, tuple[float, float]]
    """BLEU and chrF of each direction."""
    samples: list[Sample]

    def value(self, metric: str) -> float:
        """The score that says what is best, turned so that lower is better."""
        if metric == "loss":
            return self.loss
        score = self.bleu if metric == "bleu" else self.chrf
        assert score is not None
        return -score


class Validation:
    """Judges a model on one split; the same pairs each time.

    stop: looked at from time to time; when it says so, `InterruptedValidationError` is raised.
    """

    def __init__(
        self,
        prepared: PreparedData,
        batches: BatchConfig,
        config: ValidationConfig,
        group: ProcessGroup,
        split: str = "valid",
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        if config.translate:
            _sacrebleu()  # now, and not after the first hours of training
        self.batches = each_pair_once(prepared, batches, split, rank=group.rank, world=group.world)
        self.config = config
        self.group = group
        self.stop = stop
        self.examples = examples_of(prepared, split, config.sentences)
        self.tokenizer = prepared.tokenizer

    def run(self, model: Transformer) -> Scores:
        """Judge the model as it is; it is left in the mode it was in."""
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                loss = self._loss(model)
            if not self.config.translate:
                return Scores(loss, None, None, {}, {}, [])
            return self._scored(loss, self._translations(model))
        finally:
            model.train(training)

    def _loss(self, model: Transformer) -> float:
        device = model.output.weight.device
        plain, tokens = 0.0, 0
        for batch in self.batches.epoch(0):
            if self.stop():
                raise InterruptedValidationError
            source, target_in, places, targets = tensors_of(batch, device)
            states = model.states(source, target_in).flatten(0, 1).index_select(0, places)
            sums = linear_loss(states, model.output.weight, model.output.bias, targets)
            plain += sums.plain.item()
            tokens += batch.target_tokens
        plain, all_tokens = self.group.sum(plain, tokens)
        return plain / all_tokens

    def _translations(self, model: Transformer) -> list[str]:
        own = self.examples[self.group.rank :: self.group.world]
        texts: list[str] = []
        engine = TorchEngine(model, special_ids(self.tokenizer))
        options = DecodingOptions(beam_size=self.config.beam_size)
        # long ones together, so that little of a batch is padding
        order = sorted(range(len(own)), key=lambda i: -len(own[i].source_ids))
        found: dict[int, str] = {}
        largest = -(-len(self.examples) // self.group.world)
        for start in range(0, largest, _TOGETHER):  # all processes look as often
            if self.stop():
                raise InterruptedValidationError
            some = order[start : start + _TOGETHER]
            results = engine.translate_ids([own[i].source_ids for i in some], options)
            ids = [result.best.tokens for result in results]
            found |= dict(zip(some, self.tokenizer.decode_batch(ids), strict=True))
        texts = [found[i] for i in range(len(own))]
        shares = self.group.gathered(texts)
        return [shares[i % len(shares)][i // len(shares)] for i in range(len(self.examples))]

    def _scored(self, loss: float, texts: list[str]) -> Scores:
        metrics = _sacrebleu()
        bleu, chrf = metrics.BLEU(), metrics.CHRF()
        by_direction = {}
        for direction in dict.fromkeys(example.direction for example in self.examples):
            rows = [i for i, e in enumerate(self.examples) if e.direction == direction]
            given = [texts[i] for i in rows]
            references = [[self.examples[i].reference for i in rows]]
            by_direction[direction] = (
                float(bleu.corpus_score(given, references).score),
                float(chrf.corpus_score(given, references).score),
            )
        signatures = {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}
        samples = [
            Sample(self.examples[i].source, self.examples[i].reference, texts[i])
            for i in _spread(len(self.examples), self.config.samples)
        ]
        means = [float(np.mean(column)) for column in zip(*by_direction.values(), strict=True)]
        return Scores(loss, means[0], means[1], signatures, by_direction, samples)


def examples_of(prepared: PreparedData, split: str, most: int) -> list[Example]:
    """Pairs of a split in every direction it serves, evenly spread, at most `most` (0: all)."""
    found = list(_all_examples(prepared, split))
    chosen = [found[i] for i in _spread(len(found), most or len(found))]
    tokenizer, pairs = prepared.tokenizer, prepared.splits[split]
    made = []
    for direction, pair, side in chosen:
        target = split_direction(direction)[1]
        source, reference = (pairs.ids(pair, which).tolist() for which in (side, 1 - side))
        ids = [*tokenizer.tag_ids(target), *source, tokenizer.eos_id]
        texts = tokenizer.decode(source, "source"), tokenizer.decode(reference)
        made.append(Example(direction, ids, *texts))
    return made


def _all_examples(prepared: PreparedData, split: str) -> Iterator[tuple[str, int, int]]:
    for corpus in prepared.splits[split].corpora:
        for direction in prepared.directions:
            source, target = split_direction(direction)
            if {source, target} == set(corpus.languages):
                side = corpus.languages.index(source)
                yield from ((direction, pair, side) for pair in range(corpus.start, corpus.stop))


def _spread(count: int, wanted: int) -> list[int]:
    """`wanted` of the numbers below `count`, evenly spread."""
    wanted = min(count, wanted)
    return [(2 * i + 1) * count // (2 * wanted) for i in range(wanted)]


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        raise MissingExtraError("BLEU and chrF in validation", "train") from None
    return metrics
