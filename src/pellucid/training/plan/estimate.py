"""Estimate a run before it starts: parameters, FLOPs, memory, time and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pellucid.config import ModelConfig, Recipe
from pellucid.console.machine import total_memory
from pellucid.errors import InputError
from pellucid.model.flops import BatchShape, forward_flops
from pellucid.training.init_weights import planned_config
from pellucid.training.loss import CHUNK_NUMBERS
from pellucid.training.plan.corpus_lengths import CorpusLengths, measure_lengths
from pellucid.training.plan.hardware import ExpectedSpeed, Hardware, find_hardware
from pellucid.training.plan.measurement import measure_speed
from pellucid.training.plan.training_flops import (
    PAPER,
    PaperRun,
    paper_cost,
    six_nd,
    training_flops,
)

if TYPE_CHECKING:
    from rich.console import Group

    from pellucid.model import Transformer


@dataclass(frozen=True)
class TrainingPlan:
    """The numbers that `pellucid plan` prints."""

    title: str
    parameters: int
    parameters_by_part: Mapping[str, int]
    batch: BatchShape
    batches_per_step: int
    """Over all processes, gradient accumulation included."""

    forward_by_part: Mapping[str, int]
    """FLOPs of a forward pass over one batch."""

    flops_per_step: int
    steps: int | None
    epochs: float | None
    steps_per_epoch: float | None
    memory: Mapping[str, int]
    """Bytes on one device."""

    memory_there: int | None
    speed: ExpectedSpeed
    price_per_hour: float | None
    paper: PaperRun | None
    assumed: tuple[str, ...] = field(default=())
    """Assumptions behind the numbers, in words."""

    @property
    def tokens_per_step(self) -> int:
        """Source and target tokens per step, padding included."""
        return self.batch.tokens * self.batches_per_step

    @property
    def seconds_per_step(self) -> float:
        """Expected duration of a step."""
        return self.flops_per_step / self.speed.flops_per_second + self.speed.optimizer_seconds

    @property
    def seconds(self) -> float | None:
        """Expected duration of the run, without validation."""
        return None if self.steps is None else self.steps * self.seconds_per_step

    @property
    def flops(self) -> int | None:
        """FLOPs of the whole run."""
        return None if self.steps is None else self.steps * self.flops_per_step

    @property
    def six_nd_per_step(self) -> float:
        """FLOPs by the usual estimate, with the tokens of both sides."""
        return six_nd(self.parameters, self.tokens_per_step)

    @property
    def cost(self) -> float | None:
        """Cost of the run, in the currency of the price."""
        if self.price_per_hour is None or self.seconds is None:
            return None
        return self.price_per_hour * self.seconds / 3600

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, for `--json`."""
        paper = self.paper
        return {
            "title": self.title,
            "parameters": self.parameters,
            "parameters_by_part": dict(self.parameters_by_part),
            "batch": self.batch._asdict(),
            "batches_per_step": self.batches_per_step,
            "tokens_per_step": self.tokens_per_step,
            "forward_flops_by_part": dict(self.forward_by_part),
            "flops_per_step": self.flops_per_step,
            "six_nd_per_step": self.six_nd_per_step,
            "steps": self.steps,
            "epochs": self.epochs,
            "steps_per_epoch": self.steps_per_epoch,
            "flops": self.flops,
            "memory_bytes": dict(self.memory),
            "memory_total_bytes": sum(self.memory.values()),
            "memory_there_bytes": self.memory_there,
            "hardware": self.speed.where,
            "flops_per_second": self.speed.flops_per_second,
            "speed_is": self.speed.how,
            "seconds_per_step": self.seconds_per_step,
            "seconds": self.seconds,
            "price_per_hour": self.price_per_hour,
            "cost": self.cost,
            "paper": None
            if paper is None
            else {"cost": paper.cost, "by_its_method": paper_cost(paper.hours)},
            "assumed": list(self.assumed),
        }

    def tables(self) -> Group:
        """Return the plan as tables for a terminal."""
        from pellucid.training.plan.plan_tables import tables

        return tables(self)


def make_plan(
    recipe: Recipe,
    *,
    hardware: str | None = None,
    count: int = 1,
    price: float | None = None,
    pairs: int | None = None,
) -> TrainingPlan:
    """Plan a run on this machine (measured in a few seconds), or on `count` named devices.

    Builds the model and runs one batch through it as shapes only, so a recipe that could not run
    is refused here. price: per hour, for all devices together. pairs: number of sentence pairs,
    for a corpus that is not on this machine.
    """
    if count < 1:
        raise InputError(f"count = {count}: there must be at least one")
    machine = None if hardware is None else find_hardware(hardware)
    lengths = measure_lengths(recipe, pairs)
    config = planned_config(recipe)
    shape = batch_shape(recipe, lengths)
    model, activations = dry_run(config, shape)
    batches = recipe.training.gradient_accumulation_steps * count
    per_step = batches * training_flops(config, shape)
    parameters = model.num_parameters()
    if machine is None:
        speed = measure_speed(recipe, config, shape)
    else:
        speed = _named_speed(machine, count)
    per_epoch = None
    if lengths.examples is not None:
        per_epoch = lengths.examples * lengths.longest / recipe.batches.max_tokens / batches
    seconds_per_step = per_step / speed.flops_per_second + speed.optimizer_seconds
    steps = _steps(recipe, per_epoch, seconds_per_step)
    epochs = None if steps is None or not per_epoch else steps / per_epoch
    return TrainingPlan(
        title=recipe.title,
        parameters=parameters,
        parameters_by_part=_by_part(model),
        batch=shape,
        batches_per_step=batches,
        forward_by_part=forward_flops(config, shape),
        flops_per_step=per_step,
        steps=steps,
        epochs=epochs,
        steps_per_epoch=per_epoch,
        memory=_memory(recipe, config, model, shape, activations, machine, count),
        memory_there=_available_memory(machine),
        speed=speed,
        price_per_hour=price,
        paper=_of_the_paper(recipe, steps),
        assumed=lengths.assumed,
    )


def batch_shape(recipe: Recipe, lengths: CorpusLengths) -> BatchShape:
    """Return the batch that fills the recipe's token budget at the data's typical lengths."""
    source, target = max(1, round(lengths.source)), max(1, round(lengths.target))
    return BatchShape(max(1, recipe.batches.max_tokens // max(source, target)), source, target)


def dry_run(config: ModelConfig, shape: BatchShape) -> tuple[Transformer, int]:
    """Run one forward and backward pass on the meta device, which has shapes but no data.

    Returns the model and the bytes of activations that the forward pass keeps for the backward.
    """
    import torch

    from pellucid.model import Transformer

    B, S, T = shape
    kept: dict[int, Any] = {}
    with torch.device("meta"):
        model = Transformer(config)
        weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in weights:
                kept[storage._cdata] = storage
            return tensor

        source, target = (torch.ones(B, length, dtype=torch.long) for length in (S, T))
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            states = model.states(source, target)
        assert states.shape == (B, T, config.d_model)
        logits = model.output(states)
        assert logits.shape == (B, T, config.vocab_size)
        logits.sum().backward()
    no_grad = [name for name, p in model.named_parameters() if p.grad is None]
    assert not no_grad, f"no gradient reaches {no_grad}"
    return model, sum(storage.nbytes() for storage in kept.values())


def _named_speed(machine: Hardware, count: int) -> ExpectedSpeed:
    each = f"{count} x {machine.name}" if count > 1 else machine.name
    note = f" ({machine.note})" if machine.note else ""
    return ExpectedSpeed(
        where=each,
        flops_per_second=count * machine.peak * machine.utilisation,
        optimizer_seconds=0.0,
        how=(
            f"assumed: {machine.utilisation:.0%} of the data sheet's "
            f"{machine.peak / 1e12:,.4g} TFLOP/s in {machine.precision}{note}"
        ),
    )


def _steps(recipe: Recipe, per_epoch: float | None, seconds_per_step: float) -> int | None:
    """Return the steps of the run: whichever of steps, epochs and minutes ends it first."""
    training = recipe.training
    ends: list[float] = []
    if training.steps is not None:
        ends.append(training.steps)
    if training.epochs is not None and per_epoch is not None:
        ends.append(training.epochs * per_epoch)
    if training.minutes is not None:
        ends.append(training.minutes * 60 / seconds_per_step)
    return max(1, round(min(ends))) if ends else None


def _by_part(model: Transformer) -> dict[str, int]:
    """Count the parameters of each part; a tied one counts where it first occurs."""
    seen: set[int] = set()
    parts = {}
    for name, module in (
        ("embeddings", (model.source_embedding, model.target_embedding)),
        ("encoder", (model.encoder,)),
        ("decoder", (model.decoder,)),
        ("output, where not tied", (model.output,)),
    ):
        fresh = [p for one in module for p in one.parameters() if id(p) not in seen]
        fresh = list({id(p): p for p in fresh}.values())
        seen |= {id(p) for p in fresh}
        parts[name] = sum(p.numel() for p in fresh)
    return parts


def _memory(
    recipe: Recipe,
    config: ModelConfig,
    model: Transformer,
    shape: BatchShape,
    activations: int,
    machine: Hardware | None,
    count: int,
) -> dict[str, int]:
    """Estimate the bytes of each part. Weights and optimizer are float32, with autocast too."""
    parameters = model.num_parameters()
    shards = count if recipe.training.parallel == "fsdp" else 1
    training = recipe.training
    state = 8 * parameters
    if training.optimizer == "muon":
        from pellucid.training.optim.optimizers import inner_matrices

        named = dict(model.named_parameters())
        inner = sum(named[name].numel() for name in inner_matrices(model))
        state = 4 * inner + 8 * (parameters - inner)
    if machine is not None and machine.precision != "float32":
        activations //= 2
    elif machine is None:
        activations += _attention_weights(config, shape)
    logits = 4 * min(CHUNK_NUMBERS, shape.sentences * shape.target * config.vocab_size)
    each = 4 * parameters // shards
    return {
        "weights": each,
        "gradients": each,
        f"optimizer ({training.optimizer})": state // shards,
        **({"moving average": each} if training.ema_decay is not None else {}),
        "activations": activations,
        "logits (a chunk at a time)": 2 * logits,
    }


def _attention_weights(config: ModelConfig, shape: BatchShape) -> int:
    """Return twice the bytes of the attention weights, where the fused kernel is not used (CPU)."""
    B, S, T = shape
    if min(S, T) >= 32 and not config.attention_dropout:
        return 0
    scores = config.encoder_layers * S * S + config.decoder_layers * (T * T + T * S)
    return 2 * 4 * B * config.num_heads * scores


def _available_memory(machine: Hardware | None) -> int | None:
    return total_memory() if machine is None else machine.memory


def _of_the_paper(recipe: Recipe, steps: int | None) -> PaperRun | None:
    """Return the paper's run that a recipe repeats, if it does."""
    run = PAPER.get(recipe.model.preset)
    return run if run is not None and steps == run.steps else None
