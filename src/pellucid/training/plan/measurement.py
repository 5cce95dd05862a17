"""A short real measurement: how fast this machine trains this model."""

from __future__ import annotations

import time

from pellucid.config import ModelConfig, Recipe
from pellucid.model.flops import BatchShape
from pellucid.training.plan.hardware import (
    THIS_MACHINE_UTILISATION,
    MatmulSpeed,
    memory_of_this_machine,
    processor_name,
)
from pellucid.training.plan.training_flops import training_flops

ROUNDS = 3
MOST_SECONDS = 6.0


def measured_speed(recipe: Recipe, config: ModelConfig, shape: BatchShape) -> MatmulSpeed:
    """Time a few steps of the real model, on batches of at most about half a second."""
    import torch

    from pellucid.training.devices import peak_for

    device = _device(recipe.training.device)
    name = torch.cuda.get_device_name() if device == "cuda" else processor_name()
    threads = recipe.training.threads or torch.get_num_threads()
    where = f"this machine ({name}" + (f", {threads} threads)" if device == "cpu" else ")")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        peak = peak_for(recipe.training, torch.device(device))
        room = memory_of_this_machine()
        # weights, gradients and two numbers of Adam, and a small batch
        if room is not None and _parameter_bytes(config) * 5 > room // 2:
            rate = peak * THIS_MACHINE_UTILISATION
            how = (
                f"assumed: {THIS_MACHINE_UTILISATION:.0%} of {peak / 1e9:,.0f} GFLOP/s, the "
                "measured rate of matrix products (the model is too large to try here)"
            )
            return MatmulSpeed(where, rate, 0.0, how)
        small = _small(config, shape, peak)
        passes, optimizer = _timed(recipe, config, small, device)
    finally:
        torch.set_num_threads(before)
    rate = training_flops(config, small) / passes
    how = (
        f"measured: steps of {small.sentences} sentences, {rate / 1e9:,.0f} GFLOP/s, "
        f"{rate / peak:.0%} of the rate of matrix products ({peak / 1e9:,.0f})"
    )
    return MatmulSpeed(where, rate, optimizer, how)


def _device(asked: str) -> str:
    import torch

    return "cuda" if asked != "cpu" and torch.cuda.is_available() else "cpu"


def _parameter_bytes(config: ModelConfig) -> int:
    import torch

    from pellucid.model import Transformer

    with torch.device("meta"):
        return 4 * Transformer(config).num_parameters()


def _small(config: ModelConfig, shape: BatchShape, peak: float) -> BatchShape:
    """The batch with fewer sentences, if a step would take more than about half a second."""
    seconds = training_flops(config, shape) / (peak * THIS_MACHINE_UTILISATION)
    sentences = round(shape.sentences * min(1.0, 0.5 / seconds))
    return shape._replace(sentences=max(1, sentences))


def _timed(
    recipe: Recipe, config: ModelConfig, shape: BatchShape, device: str
) -> tuple[float, float]:
    """Seconds of the passes and of the optimizer in a step: the best of some."""
    import torch

    from pellucid.model import Transformer
    from pellucid.training.devices import autocast_for
    from pellucid.training.loss import linear_loss
    from pellucid.training.optim.optimizers import Optimizers

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    B, S, T = shape
    autocast = autocast_for(recipe.training, torch.device(device))
    passes, steps = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Transformer(config).to(device).train()
        optimizers = Optimizers(model, recipe.training)
        source = torch.randint(4, config.vocab_size, (B, S), device=device)
        target = torch.randint(4, config.vocab_size, (B, T), device=device)
        for _ in range(ROUNDS + 1):  # the first one warms up
            start = now()
            with autocast():
                states = model.states(source, target).flatten(0, 1)
                output = model.output
                loss = linear_loss(states, output.weight, output.bias, target.flatten(), 0.1)
            (loss.smoothed / target.numel()).backward()  # type: ignore[no-untyped-call]
            between = now()
            optimizers.step(1e-6)
            optimizers.zero_grad()
            passes.append(between - start)
            steps.append(now() - between)
            if len(passes) > 1 and sum(passes) > MOST_SECONDS:
                break
    return min(passes[1:]), min(steps[1:])
