"""The end of a run: choose the weights, write them as a bundle, and record one attention map."""

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
from pellucid.decoding.alignment import MEAN, AlignedPair, BestHead, find_alignment
from pellucid.decoding.ct2.conversion import add_ct2, why_not_ct2
from pellucid.decoding.engine import special_ids
from pellucid.decoding.forced import read_attention
from pellucid.decoding.torch.engine import TorchEngine
from pellucid.model import Transformer
from pellucid.storage.files import write_atomic
from pellucid.training.checkpoint.checkpoints import Checkpoints
from pellucid.training.optim.averaging import average_weights
from pellucid.training.training_state import BestValidation
from pellucid.training.validate import ValidationExample, ValidationScores, validation_examples

ATTENTION = "attention.json"
_MAX_TOKENS = 40  # of a sentence whose attention is used
_ALIGNMENT_PAIRS = 150  # sentence pairs to find the best alignment head with


class ResultWeights(NamedTuple):
    """The weights that a run ends with."""

    weights: Mapping[str, Tensor]
    """Read from disk when they are used, one tensor after the other."""
    description: str
    """Which weights they are, in words."""
    validated_step: int | None
    """Step whose validation measured exactly these weights, if there is one."""


def result_weights(
    recipe: Recipe, checkpoints: Checkpoints, best: BestValidation | None
) -> ResultWeights:
    """Choose the weights of the bundle, as `training.result` says."""
    steps = checkpoints.steps()
    wanted = recipe.training.result
    if wanted == "auto":
        if recipe.training.average_checkpoints:
            wanted = "average"
        else:
            wanted = "best" if best is not None and best.step in steps else "last"
    if wanted == "average":
        chosen = checkpoints.to_average()
        description = f"the mean of {len(chosen)} checkpoints, the last of step {steps[-1]}"
        mean = average_weights([checkpoints.load(step).model for step in chosen])
        return ResultWeights(mean, description, None)
    step = best.step if wanted == "best" and best is not None and best.step in steps else steps[-1]
    saved = checkpoints.load(step)
    # With an EMA, validation measured the averaged weights, so they are the best ones.
    if wanted != "last" and saved.average is not None:
        return ResultWeights(saved.average, f"the moving average at step {step}", step)
    name = "the best validation" if wanted == "best" and best is not None else "the end"
    description = f"the weights of {name}, step {step}"
    return ResultWeights(saved.model, description, step if saved.average is None else None)


def interpolate_initial(result: ResultWeights, initial: Bundle, fraction: float) -> ResultWeights:
    """Interpolate the weights before fine-tuning into the result."""
    before = initial.weights()
    mixed = {
        name: tensor.lerp(torch.from_numpy(before[name]).to(tensor), fraction)
        for name, tensor in result.weights.items()
    }
    description = f"{result.description}, with {fraction:.0%} of the weights that it started from"
    return ResultWeights(mixed, description, None)


def load_into(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model."""
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
    scores: Mapping[str, ValidationScores],
    say: Callable[[str], None] = lambda line: None,
) -> Bundle:
    """Write the bundle of a run, for both engines, with its facts and scores in MODEL.md.

    say: gets a line about why the bundle has no ct2/, if it has none.
    """
    alignment = best_alignment_head(model, prepared)
    teachers = recipe.distillation.teachers
    about: dict[str, Any] = {
        "title": recipe.title,
        "training": {
            **({"started from": recipe.init_from} if recipe.init_from else {}),
            **({"teachers": len(teachers)} if teachers else {}),
            "weights": weights,
            "steps": steps,
            "target tokens seen": target_tokens,
            "training pairs": len(prepared.splits["train"]),
            "alignment": _alignment_text(alignment),
            "pellucid": __version__,
        },
    }
    for split, found in scores.items():
        rows: dict[str, Any] = {"loss (nats per token)": f"{found.loss:.4f}"}
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
        alignment=None if alignment is None else (alignment.layer, alignment.head),
        longest=longest_trained(prepared),
    )
    reason = why_not_ct2(model.config)
    if reason is not None:
        say(f"the bundle has no ct2/, so it translates with PyTorch: {reason}")
    return add_ct2(bundle)


def longest_trained(prepared: PreparedData) -> int:
    """Return the length in tokens that only one training sentence in a thousand exceeds."""
    train = prepared.splits["train"]
    lengths = np.concatenate([train.lengths(0), train.lengths(1)])
    return max(1, int(np.quantile(lengths, 0.999)))


def best_alignment_head(model: Transformer, prepared: PreparedData) -> BestHead | None:
    """Find the cross-attention head that aligns words best, on validation pairs."""
    if "valid" not in prepared.splits:
        return None
    examples = validation_examples(prepared, "valid", _ALIGNMENT_PAIRS)
    tokenizer = prepared.tokenizer
    targets = tokenizer.encode_batch([example.reference for example in examples], side="target")
    pairs = [
        AlignedPair(e.source_ids, t, words=slice(tokenizer.lead, -1))
        for e, t in zip(examples, targets, strict=True)
    ]
    short = [p for p in pairs if max(len(p.source), len(p.target)) <= _MAX_TOKENS and p.target]
    return find_alignment(model, special_ids(tokenizer), short)


def _alignment_text(best: BestHead | None) -> str:
    """Describe the alignment head for MODEL.md, counted from 1."""
    if best is None:
        return "not measured: the mean of the last decoder layer's heads"
    heads = "the mean of its heads" if best.head == MEAN else f"head {best.head + 1}"
    return (
        f"decoder layer {best.layer + 1}, {heads}: right for {best.accuracy:.0%} of "
        f"{best.tokens:,} tokens whose source is clear"
    )


def write_attention(
    path: Path, model: Transformer, prepared: PreparedData, examples: list[ValidationExample]
) -> None:
    """Write the last layer's cross-attention, head by head, for one validation sentence."""
    fitting = [e for e in examples if len(e.source_ids) <= _MAX_TOKENS]
    if not fitting:
        return
    example = max(fitting, key=lambda e: min(len(e.source_ids), 16))
    tokenizer, special = prepared.tokenizer, special_ids(prepared.tokenizer)
    engine = TorchEngine(model, special)
    result = engine.translate_ids([example.source_ids], DecodingOptions(beam_size=1))[0]
    target = list(result.best.tokens)[:_MAX_TOKENS]
    last = read_attention(model, special, [example.source_ids], [target])[0][-1]
    heads = [[[round(float(w), 4) for w in row] for row in head] for head in last]
    found = {
        "direction": example.direction,
        "source": [tokenizer.piece(token, "source") for token in example.source_ids],
        "target": [tokenizer.piece(token) for token in [*target, special.end]],
        "layer": model.config.decoder_layers,
        "heads": heads,
    }
    write_atomic(path, json.dumps(found, ensure_ascii=False) + "\n")
