"""Measure how fast this machine trains a model, in a few seconds."""

from __future__ import annotations

import time

from pellucid.config import ModelConfig, Recipe
from pellucid.console.machine import processor_name, total_memory
from pellucid.model.flops import BatchShape
from pellucid.training.plan.hardware import THIS_MACHINE_UTILISATION, ExpectedSpeed
from pellucid.training.plan.training_flops import training_flops

ROUNDS = 3
MAX_SECONDS = 6.0


def measure_speed(recipe: Recipe, config: ModelConfig, shape: BatchShape) -> ExpectedSpeed:
    """Time a few training steps of the real model, with batches of at most about half a second."""
    import torch

    from pellucid.training.devices import peak_flops

    device = _device(recipe.training.device)
    name = torch.cuda.get_device_name() if device == "cuda" else processor_name()
    threads = recipe.training.threads or torch.get_num_threads()
    where = f"this machine ({name}" + (f", {threads} threads)" if device == "cpu" else ")")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        peak = peak_flops(recipe.training, torch.device(device))
        memory = total_memory()
        # weights, gradients, the two moments of Adam, and a small batch
        if memory is not None and _parameter_bytes(config) * 5 > memory // 2:
            rate = peak * THIS_MACHINE_UTILISATION
            how = (
                f"assumed: {THIS_MACHINE_UTILISATION:.0%} of {peak / 1e9:,.0f} GFLOP/s, the "
                "measured rate of matrix products (the model is too large to measure here)"
            )
            return ExpectedSpeed(where, rate, 0.0, how)
        reduced = _small_batch(config, shape, peak)
        passes, optimizer = _time_steps(recipe, config, reduced, device)
    finally:
        torch.set_num_threads(before)
    rate = training_flops(config, reduced) / passes
    how = (
        f"measured: steps of {reduced.sentences} sentences, {rate / 1e9:,.0f} GFLOP/s, "
        f"{rate / peak:.0%} of the rate of matrix products ({peak / 1e9:,.0f})"
    )
    return ExpectedSpeed(where, rate, optimizer, how)


def _device(asked: str) -> str:
    import torch

    return "cuda" if asked != "cpu" and torch.cuda.is_available() else "cpu"


def _parameter_bytes(config: ModelConfig) -> int:
    import torch

    from pellucid.model import Transformer

    with torch.device("meta"):
        return 4 * Transformer(config).num_parameters()


def _small_batch(config: ModelConfig, shape: BatchShape, peak: float) -> BatchShape:
    """Reduce the sentences of a batch whose step would take more than about half a second."""
    seconds = training_flops(config, shape) / (peak * THIS_MACHINE_UTILISATION)
    sentences = round(shape.sentences * min(1.0, 0.5 / seconds))
    return shape._replace(sentences=max(1, sentences))


def _time_steps(
    recipe: Recipe, config: ModelConfig, shape: BatchShape, device: str
) -> tuple[float, float]:
    """Return the seconds of forward and backward passes and of the update: the best of several."""
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
        for _ in range(ROUNDS + 1):  # the first is a warm-up
            start = now()
            with autocast():
                states = model.states(source, target).flatten(0, 1)  # (B · T, D)
                output = model.output
                loss = linear_loss(states, output.weight, output.bias, target.flatten(), 0.1)
            (loss.smoothed / target.numel()).backward()  # type: ignore[no-untyped-call]
            passes_done = now()
            optimizers.step(1e-6)
            optimizers.zero_grad()
            passes.append(passes_done - start)
            steps.append(now() - passes_done)
            if len(passes) > 1 and sum(passes) > MAX_SECONDS:
                break
    return min(passes[1:]), min(steps[1:])
