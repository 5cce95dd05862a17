"""Validation: loss, BLEU, chrF and sample translations on held-out pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from pellucid.config import BatchConfig, ValidationConfig, split_direction
from pellucid.data.batches import each_pair_once
from pellucid.data.store import PreparedData
from pellucid.decoding import DecodingOptions, SpecialIds
from pellucid.decoding.engine import special_ids
from pellucid.decoding.torch.engine import TorchEngine
from pellucid.errors import MissingExtraError
from pellucid.model import Transformer
from pellucid.tokenizers.sentencepiece import BOS_ID, EOS_ID, PAD_ID
from pellucid.training.batch_tensors import batch_to_tensors
from pellucid.training.callbacks.callback import Sample
from pellucid.training.distributed.process_group import ProcessGroup
from pellucid.training.loss import linear_loss

SPECIAL = SpecialIds(pad=PAD_ID, start=BOS_ID, end=EOS_ID)

_STOP_CHECK_EVERY = 64  # sentences between two checks of whether the run was asked to stop


class InterruptedValidationError(Exception):
    """The run was asked to stop during a validation."""


class ValidationExample(NamedTuple):
    """A sentence pair in one direction."""

    direction: str
    source_ids: list[int]
    """Source tokens with the language tag and the end symbol."""
    source: str
    reference: str


@dataclass(frozen=True)
class ValidationScores:
    """Loss and scores of one validation."""

    loss: float
    """Cross-entropy in nats per target token, without label smoothing."""
    bleu: float | None
    """Mean over the directions."""
    chrf: float | None
    signatures: dict[str, str]
    by_direction: dict[str, tuple[float, float]]
    """BLEU and chrF of each direction."""
    samples: list[Sample]

    def value(self, metric: str) -> float:
        """Return the early-stopping metric, negated where higher is better."""
        if metric == "loss":
            return self.loss
        score = self.bleu if metric == "bleu" else self.chrf
        assert score is not None
        return -score


class Validation:
    """Validate a model on one split, each time on the same pairs.

    stop: checked from time to time; if it returns True, `InterruptedValidationError` is raised.
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
            _sacrebleu()  # fail now if it is missing, not after hours of training
        self.batches = each_pair_once(prepared, batches, split, rank=group.rank, world=group.world)
        self.config = config
        self.group = group
        self.stop = stop
        self.examples = validation_examples(prepared, split, config.sentences)
        self.tokenizer = prepared.tokenizer

    def run(self, model: Transformer) -> ValidationScores:
        """Validate the model with its current weights; its train or eval mode is kept."""
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                loss = self._loss(model)
            if not self.config.translate:
                return ValidationScores(loss, None, None, {}, {}, [])
            return self._with_scores(loss, self._translations(model))
        finally:
            model.train(training)

    def _loss(self, model: Transformer) -> float:
        device = model.output.weight.device
        plain, tokens = 0.0, 0
        for batch in self.batches.epoch(0):
            if self.stop():
                raise InterruptedValidationError
            source, target_in, positions, targets = batch_to_tensors(batch, device)
            states = model.states(source, target_in)  # (B, T, D)
            rows = states.flatten(0, 1).index_select(0, positions)  # (N, D): no padding
            sums = linear_loss(rows, model.output.weight, model.output.bias, targets)
            plain += sums.plain.item()
            tokens += batch.target_tokens
        plain, all_tokens = self.group.sum(plain, tokens)
        return plain / all_tokens

    def _translations(self, model: Transformer) -> list[str]:
        own = self.examples[self.group.rank :: self.group.world]
        texts: list[str] = []
        engine = TorchEngine(model, special_ids(self.tokenizer))
        options = DecodingOptions(beam_size=self.config.beam_size)
        # longest first: sentences of similar length share a batch, which saves padding
        order = sorted(range(len(own)), key=lambda i: -len(own[i].source_ids))
        found: dict[int, str] = {}
        largest = -(-len(self.examples) // self.group.world)
        for start in range(0, largest, _STOP_CHECK_EVERY):  # equally often in all processes
            if self.stop():
                raise InterruptedValidationError
            part = order[start : start + _STOP_CHECK_EVERY]
            results = engine.translate_ids([own[i].source_ids for i in part], options)
            ids = [result.best.tokens for result in results]
            found |= dict(zip(part, self.tokenizer.decode_batch(ids), strict=True))
        texts = [found[i] for i in range(len(own))]
        by_rank = self.group.gather(texts)
        return [by_rank[i % len(by_rank)][i // len(by_rank)] for i in range(len(self.examples))]

    def _with_scores(self, loss: float, texts: list[str]) -> ValidationScores:
        metrics = _sacrebleu()
        bleu, chrf = metrics.BLEU(), metrics.CHRF()
        by_direction = {}
        for direction in dict.fromkeys(example.direction for example in self.examples):
            rows = [i for i, e in enumerate(self.examples) if e.direction == direction]
            hypotheses = [texts[i] for i in rows]
            references = [[self.examples[i].reference for i in rows]]
            by_direction[direction] = (
                float(bleu.corpus_score(hypotheses, references).score),
                float(chrf.corpus_score(hypotheses, references).score),
            )
        signatures = {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}
        samples = [
            Sample(self.examples[i].source, self.examples[i].reference, texts[i])
            for i in _spread(len(self.examples), self.config.samples)
        ]
        means = [float(np.mean(column)) for column in zip(*by_direction.values(), strict=True)]
        return ValidationScores(loss, means[0], means[1], signatures, by_direction, samples)


def validation_examples(
    prepared: PreparedData, split: str, max_examples: int
) -> list[ValidationExample]:
    """Return pairs of a split in all its directions, evenly spread, at most so many (0: all)."""
    found = list(_all_examples(prepared, split))
    chosen = [found[i] for i in _spread(len(found), max_examples or len(found))]
    tokenizer, pairs = prepared.tokenizer, prepared.splits[split]
    examples = []
    for direction, pair, side in chosen:
        target = split_direction(direction)[1]
        source, reference = (pairs.ids(pair, which).tolist() for which in (side, 1 - side))
        ids = [*tokenizer.tag_ids(target), *source, tokenizer.eos_id]
        texts = tokenizer.decode(source, "source"), tokenizer.decode(reference)
        examples.append(ValidationExample(direction, ids, *texts))
    return examples


def _all_examples(prepared: PreparedData, split: str) -> Iterator[tuple[str, int, int]]:
    for corpus in prepared.splits[split].corpora:
        for direction in prepared.directions:
            source, target = split_direction(direction)
            if {source, target} == set(corpus.languages):
                side = corpus.languages.index(source)
                yield from ((direction, pair, side) for pair in range(corpus.start, corpus.stop))


def _spread(count: int, wanted: int) -> list[int]:
    """Return `wanted` of the numbers below `count`, evenly spread."""
    wanted = min(count, wanted)
    return [(2 * i + 1) * count // (2 * wanted) for i in range(wanted)]


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        raise MissingExtraError("BLEU and chrF in validation", "train") from None
    return metrics
