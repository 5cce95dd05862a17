"""The arithmetic of docs/scale.md: a billion sentences on 100 machines, training on 8 and 64 GPUs.

    python -m benchmarks.scale        with what `python -m benchmarks cluster` measured last

No figure here is measured but those of `cluster`; what is assumed stands at the top, and each
formula in docs/scale.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pellucid.bulk.parts import PART_ROWS
from pellucid.config import ModelConfig
from pellucid.config.settings import FORMER_NAMES
from pellucid.model.flops import BatchShape, forward_flops, step_flops
from pellucid.training.plan.hardware import TABLE
from pellucid.training.plan.training_flops import training_flops

SENTENCES = 1e9
MACHINES, CORES = 100, 32
PRICE = 1.0  # of a machine of 32 cores for an hour
BEAM = 4
STRAGGLER = 1.1  # the slowest of many machines against the mean one
SLOW_CORE = 1.3  # a core while all cores of the machine work, against alone
OVERHEAD = 1.05  # Ray and the files, against plain translation
NVLINK, ETHERNET = 300e9, 25e9  # bytes a second: of a GPU in its machine; of 200 Gbit/s Ethernet
CALL = 50e-6  # seconds to begin one all-reduce
BUCKET = 25e6  # bytes of gradients that DDP sends in one all-reduce
HIDDEN = 0.7  # share of the exchange that goes on while the backward pass computes
BATCH_TOKENS = 25_000  # of each side of a step, the paper's
VOCABULARY = 37_000


def sentence_flops(config: ModelConfig, source: float, target: float, beam: int) -> float:
    """Of one sentence: the encoder once, the decoder a step for each token and hypothesis."""
    S, T = max(1, round(source)), max(1, round(target))
    forward = forward_flops(config, BatchShape(1, S, 1))
    encoder = forward["encoder self-attention"] + forward["encoder feed-forward"]
    return encoder + beam * sum(step_flops(config, length, S) for length in range(1, T + 1))


def bulk(config: ModelConfig, figures: dict[str, Any]) -> dict[str, Any]:
    """Hours and money for a billion sentences, from the processor seconds a sentence here."""
    source, target = figures["source tokens a sentence"], figures["output tokens a sentence"]
    here = figures["processor seconds a sentence, worker"]
    rate = sentence_flops(config, source, target, figures["beam"]) / here
    workers = MACHINES * CORES
    table: dict[str, Any] = {"GFLOP/s of a core, measured": rate / 1e9}
    others = {"base": ModelConfig.preset("base", vocab_size=VOCABULARY)}
    for name, one in {"the measured model": config, **others}.items():
        cost = sentence_flops(one, source, target, BEAM) / rate * SLOW_CORE * OVERHEAD
        seconds = SENTENCES * cost / workers * STRAGGLER + figures["start, seconds"]
        table[name] = {
            "seconds of a core a sentence": cost,
            "hours on 100 machines": seconds / 3600,
            "machine hours": seconds / 3600 * MACHINES,
            "money": seconds / 3600 * MACHINES * PRICE,
            "rows a second": SENTENCES / seconds,
            "parts finished a second": SENTENCES / seconds / PART_ROWS,
        }
    return table


def training(name: str, gpus: int, link: float, batches: int = 1) -> dict[str, float]:
    """One step of the paper's model on A100s with DDP and gradients in float32.

    link: bytes a second at the narrowest place of the ring. batches: how many of the paper's.
    """
    config = ModelConfig.preset(name, vocab_size=VOCABULARY)
    length = 30
    shape = BatchShape(round(batches * BATCH_TOKENS / length), length, length)
    machine = TABLE["a100"]
    compute = training_flops(config, shape) / gpus / (machine.peak * machine.utilisation)
    gradients = 4 * _parameters(config)
    sent = 2 * (gpus - 1) / gpus * gradients
    exchange = sent / link + gradients / BUCKET * CALL
    # Only the backward pass, two thirds of the time, can hide it, and never all of it.
    seen = max(exchange - 2 / 3 * compute, (1 - HIDDEN) * exchange)
    return {
        "parameters": _parameters(config),
        "compute, ms": 1e3 * compute,
        "MB sent by a GPU": sent / 1e6,
        "exchange, ms": 1e3 * exchange,
        "step, ms": 1e3 * (compute + seen),
        "share of the ideal": compute / (compute + seen),
    }


CASES: dict[str, tuple[int, float, int]] = {
    "8 GPUs": (8, NVLINK, 1),
    "64 GPUs, one link a machine": (64, ETHERNET, 1),
    "64 GPUs, a link for each GPU": (64, 8 * ETHERNET, 1),
    "64 GPUs, one link a machine, 8 batches": (64, ETHERNET, 8),
    "64 GPUs, a link for each GPU, 8 batches": (64, 8 * ETHERNET, 8),
}


def _parameters(config: ModelConfig) -> float:
    D, F = config.d_model, config.d_ff
    encoder = config.encoder_layers * (4 * D * D + 2 * D * F)
    decoder = config.decoder_layers * (8 * D * D + 2 * D * F)
    return encoder + decoder + config.vocab_size * D


def main(model: str | None = None, figures: dict[str, Any] | None = None) -> dict[str, Any]:
    if figures is None:
        stored = Path(__file__).parent / "results" / "cluster.json"
        if not stored.exists():
            raise SystemExit("benchmarks: scale needs results/cluster.json: run cluster first")
        result = json.loads(stored.read_text())
        figures = result["figures"]
        config = ModelConfig(
            **{FORMER_NAMES["model"].get(key, key): x for key, x in result["model"].items()}
        )
    else:
        from pellucid.translator.loading import open_bundle

        config = open_bundle(model).config
    found = {
        "bulk": bulk(config, figures),
        "training": {
            f"{name}, {case}": training(name, *given)
            for name in ("base", "big")
            for case, given in CASES.items()
        },
    }
    print(json.dumps(found, indent=1))
    return {"model": config.model_dump(), "scale": found}


if __name__ == "__main__":
    main()
