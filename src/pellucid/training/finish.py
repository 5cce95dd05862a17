"""The end of a run: the weights that are kept, as a bundle, and the attention of one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pellucid import __version__
from pellucid.bundle import Bundle
from pellucid.config import Recipe
from pellucid.decoding import DecodingOptions
from pellucid.decoding.forced import force_decode
from pellucid.decoding.torch_engine import TorchEngine
from pellucid.model import Transformer
from pellucid.text.store import Prepared
from pellucid.training.averaging import mean_of
from pellucid.training.checkpoint import AVERAGE, MODEL, Checkpoints
from pellucid.training.loop import Best
from pellucid.training.validate import SPECIAL, Example, Scores

ATTENTION = "attention.json"
_LONGEST = 40  # tokens of the sentence whose attention is shown


class ResultWeights(NamedTuple):
    """The weights that a run is to end with."""

    weights: dict[str, Tensor]
    what: str
    """Which they are, in words."""
    judged: int | None
    """The step whose validation judged just these weights, if one did."""


def result_weights(recipe: Recipe, checkpoints: Checkpoints, best: Best | None) -> ResultWeights:
    """The weights that the recipe wants as the result."""
    from safetensors.torch import load_file

    steps = checkpoints.steps()
    wanted = recipe.training.result
    if wanted == "auto":
        if recipe.training.average:
            wanted = "average"
        else:
            wanted = "best" if best is not None and best.step in steps else "last"
    if wanted == "average":
        chosen = steps[-recipe.training.average :]
        files = [checkpoints.path(step) / MODEL for step in chosen]
        what = f"the mean of {len(chosen)} checkpoints, the last of step {steps[-1]}"
        return ResultWeights(mean_of(files), what, None)
    step = best.step if wanted == "best" and best is not None and best.step in steps else steps[-1]
    folder = checkpoints.path(step)
    averaged = (folder / AVERAGE).exists()
    # Validation judged the moving average, where there is one: that is what was best.
    if wanted != "last" and averaged:
        what = f"the moving average at step {step}"
        return ResultWeights(load_file(folder / AVERAGE), what, step)
    name = "the best validation" if wanted == "best" and best is not None else "the end"
    what = f"the weights of {name}, step {step}"
    return ResultWeights(load_file(folder / MODEL), what, None if averaged else step)


def load_into(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Give a model these weights."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def write_bundle(
    folder: Path,
    recipe: Recipe,
    model: Transformer,
    prepared: Prepared,
    *,
    weights: str,
    steps: int,
    target_tokens: int,
    scores: Mapping[str, Scores],
) -> Bundle:
    """The bundle of a run, with what a person should know of it."""
    about: dict[str, Any] = {
        "title": recipe.title,
        "training": {
            "weights": weights,
            "steps": steps,
            "target tokens seen": target_tokens,
            "training pairs": len(prepared.splits["train"]),
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
    return Bundle.write(
        folder,
        model.config,
        model.state_dict(),
        prepared.tokenizer,
        directions=prepared.directions,
        about=about,
    )


def write_attention(
    path: Path, model: Transformer, prepared: Prepared, examples: list[Example]
) -> None:
    """The cross-attention of the last layer, head by head, for one sentence of the validation."""
    fitting = [e for e in examples if len(e.source_ids) <= _LONGEST]
    if not fitting:
        return
    example = max(fitting, key=lambda e: min(len(e.source_ids), 16))
    engine = TorchEngine(model, SPECIAL)
    result = engine.translate_ids([example.source_ids], DecodingOptions(beam=1))[0]
    target = list(result.best.tokens)[:_LONGEST]
    heads = []
    for head in range(model.config.heads):
        forced = force_decode(
            model, SPECIAL, [example.source_ids], [target], attention=True, head=head
        )[0]
        assert forced.attention is not None
        heads.append([[round(float(w), 4) for w in row] for row in forced.attention])
    pieces = prepared.tokenizer.pieces
    found = {
        "direction": example.direction,
        "source": [pieces[token].piece for token in example.source_ids],
        "target": [pieces[token].piece for token in [*target, SPECIAL.end]],
        "layer": model.config.decoder_layers,
        "heads": heads,
    }
    path.write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")
