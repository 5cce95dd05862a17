"""The end of a run: the weights that are kept, as a bundle, and the attention of one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid import __version__
from pellucid.bundle import Bundle
from pellucid.config import Recipe
from pellucid.data.store import PreparedData
from pellucid.decoding import DecodingOptions
from pellucid.decoding.alignment import MEAN, AlignedPair, Measured, find_alignment
from pellucid.decoding.ct2.conversion import add_ct2, why_not_ct2
from pellucid.decoding.engine import special_ids
from pellucid.decoding.forced import read_attention
from pellucid.decoding.torch.engine import TorchEngine
from pellucid.model import Transformer
from pellucid.training.checkpoint.checkpoints import Checkpoints
from pellucid.training.loop import Best
from pellucid.training.optim.averaging import mean_of
from pellucid.training.validate import Example, Scores, examples_of

ATTENTION = "attention.json"
_LONGEST = 40  # tokens of a sentence whose attention is looked at
_PAIRS = 150  # sentence pairs that the place of the alignment is looked for with


class ResultWeights(NamedTuple):
    """The weights that a run is to end with."""

    weights: Mapping[str, Tensor]
    """Read from the disk when they are asked for, one after the other."""
    what: str
    """Which they are, in words."""
    judged: int | None
    """The step whose validation judged just these weights, if one did."""


def result_weights(recipe: Recipe, checkpoints: Checkpoints, best: Best | None) -> ResultWeights:
    """The weights that the recipe wants as the result."""
    steps = checkpoints.steps()
    wanted = recipe.training.result
    if wanted == "auto":
        if recipe.training.average_checkpoints:
            wanted = "average"
        else:
            wanted = "best" if best is not None and best.step in steps else "last"
    if wanted == "average":
        chosen = checkpoints.to_average()
        what = f"the mean of {len(chosen)} checkpoints, the last of step {steps[-1]}"
        mean = mean_of([checkpoints.load(step).model for step in chosen])
        return ResultWeights(mean, what, None)
    step = best.step if wanted == "best" and best is not None and best.step in steps else steps[-1]
    saved = checkpoints.load(step)
    # Validation judged the moving average, where there is one: that is what was best.
    if wanted != "last" and saved.average is not None:
        return ResultWeights(saved.average, f"the moving average at step {step}", step)
    name = "the best validation" if wanted == "best" and best is not None else "the end"
    what = f"the weights of {name}, step {step}"
    return ResultWeights(saved.model, what, step if saved.average is None else None)


def with_start(result: ResultWeights, start: Bundle, share: float) -> ResultWeights:
    """The result with a share of the weights that the run started from."""
    before = start.weights()
    mixed = {
        name: tensor.lerp(torch.from_numpy(before[name]).to(tensor), share)
        for name, tensor in result.weights.items()
    }
    what = f"{result.what}, with {share:.0%} of the weights that it started from"
    return ResultWeights(mixed, what, None)


def load_into(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Give a model these weights."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def write_bundle(
    folder: Path,
    recipe: Recipe,
    model: Transformer,
    prepared: PreparedData,
    *,
    weights: str,
    steps: int,
    target_tokens: int,
    scores: Mapping[str, Scores],
    say: Callable[[str], None] = lambda line: None,
) -> Bundle:
    """The bundle of a run, for both engines, with what a person should know of it.

    say: is told why the bundle has no ct2/, if it has none.
    """
    place = measured_alignment(model, prepared)
    taught = recipe.training
    about: dict[str, Any] = {
        "title": recipe.title,
        "training": {
            **({"started from": recipe.init_from} if recipe.init_from else {}),
            **({"teachers": len(taught.teachers)} if taught.teachers else {}),
            "weights": weights,
            "steps": steps,
            "target tokens seen": target_tokens,
            "training pairs": len(prepared.splits["train"]),
            "alignment": _told(place),
            "pellucid": __version__,
        },
    }
    for split, found in scores.items():
        rows: dict[str, Any] = {"loss (nats a token)": f"{found.loss:.4f}"}
        for direction, (bleu, chrf) in found.by_direction.items():
            rows[f"BLEU {direction}"] = f"{bleu:.2f}"
            rows[f"chrF {direction}"] = f"{chrf:.2f}"
        rows |= {f"signature of {name}": text for name, text in found.signatures.items()}
        about[f"quality on {split}"] = rows
    bundle = Bundle.write(
        folder,
        model.config,
        model.state_dict(),
        prepared.tokenizer,
        directions=prepared.directions,
        about=about,
        alignment=None if place is None else (place.layer, place.head),
        longest=longest_learned(prepared),
    )
    reason = why_not_ct2(model.config)
    if reason is not None:
        say(f"the bundle has no ct2/, so it translates with PyTorch: {reason}")
    return add_ct2(bundle)


def longest_learned(prepared: PreparedData) -> int:
    """The tokens of the longest sentences of the training data, but for one in a thousand."""
    train = prepared.splits["train"]
    lengths = np.concatenate([train.lengths(0), train.lengths(1)])
    return max(1, int(np.quantile(lengths, 0.999)))


def measured_alignment(model: Transformer, prepared: PreparedData) -> Measured | None:
    """Which attention says where a word comes from, found on pairs of the validation."""
    if "valid" not in prepared.splits:
        return None
    examples = examples_of(prepared, "valid", _PAIRS)
    words = prepared.tokenizer
    targets = words.encode_batch([example.reference for example in examples], side="target")
    pairs = [
        AlignedPair(e.source_ids, t, words=slice(words.lead, -1))
        for e, t in zip(examples, targets, strict=True)
    ]
    short = [p for p in pairs if max(len(p.source), len(p.target)) <= _LONGEST and p.target]
    return find_alignment(model, special_ids(words), short)


def _told(place: Measured | None) -> str:
    """The place of the alignment for MODEL.md, counted from 1."""
    if place is None:
        return "not measured: the mean of the last decoder layer's heads"
    heads = "the mean of its heads" if place.head == MEAN else f"head {place.head + 1}"
    return (
        f"decoder layer {place.layer + 1}, {heads}: right for {place.accuracy:.0%} of "
        f"{place.tokens:,} tokens whose source is clear"
    )


def write_attention(
    path: Path, model: Transformer, prepared: PreparedData, examples: list[Example]
) -> None:
    """The cross-attention of the last layer, head by head, for one sentence of the validation."""
    fitting = [e for e in examples if len(e.source_ids) <= _LONGEST]
    if not fitting:
        return
    example = max(fitting, key=lambda e: min(len(e.source_ids), 16))
    words, special = prepared.tokenizer, special_ids(prepared.tokenizer)
    engine = TorchEngine(model, special)
    result = engine.translate_ids([example.source_ids], DecodingOptions(beam_size=1))[0]
    target = list(result.best.tokens)[:_LONGEST]
    last = read_attention(model, special, [example.source_ids], [target])[0][-1]
    heads = [[[round(float(w), 4) for w in row] for row in head] for head in last]
    found = {
        "direction": example.direction,
        "source": [words.piece(token, "source") for token in example.source_ids],
        "target": [words.piece(token) for token in [*target, special.end]],
        "layer": model.config.decoder_layers,
        "heads": heads,
    }
    path.write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")
