"""The training loop. `Loop.run` reads from top to bottom; the other methods are its steps.

An optimizer step takes `gradient_accumulation_steps` batches, adds up their gradients as if they
were one batch, clips the gradient and updates the weights once. The random numbers of a step
depend only on the recipe's seed, the step and the process's rank, so a resumed run continues
exactly as if it had not been interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pellucid import __version__
from pellucid.config import Recipe
from pellucid.data.batches import Batch, Batches
from pellucid.errors import PellucidError
from pellucid.model import Transformer
from pellucid.model.flops import BatchShape
from pellucid.training.batch_tensors import batch_to_tensors
from pellucid.training.callbacks.callback import Callback, StepReport, ValidationReport, perplexity
from pellucid.training.checkpoint.checkpoints import Checkpoint, Checkpoints
from pellucid.training.checkpoint.sharded_tensors import Stored
from pellucid.training.devices import peak_flops
from pellucid.training.distillation import TeacherProbabilities
from pellucid.training.distributed.process_group import ProcessGroup
from pellucid.training.loss import SoftTargets, TokenLoss, linear_loss
from pellucid.training.optim.averaging import MovingAverage
from pellucid.training.optim.optimizers import Optimizers
from pellucid.training.optim.schedule import learning_rate_factor, peak_learning_rate
from pellucid.training.plan.training_flops import training_flops
from pellucid.training.signals import Signals, TrainingStoppedError
from pellucid.training.training_state import BestValidation, TrainingState, derive_seed
from pellucid.training.validate import InterruptedValidationError, Validation, ValidationScores

MFU_AFTER = 20.0  # seconds of training before the machine's peak FLOP/s is measured


class NonFiniteLossError(PellucidError):
    """A loss or gradient is NaN or infinite."""

    on_all_ranks = True


class Objective(nn.Module):
    """The model together with its loss: what is differentiated, and what DDP wraps.

    states: function for the decoder's states, if not the model's own (a compiled one).
    """

    def __init__(
        self,
        model: Transformer,
        smoothing: float,
        states: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.states = states or model.states

    def forward(
        self,
        source: Tensor,
        target_in: Tensor,
        positions: Tensor,
        targets: Tensor,
        soft_targets: SoftTargets | None = None,
    ) -> TokenLoss:
        """Sum the losses of the real target tokens; for the arguments see `BatchTensors`."""
        states = self.states(source, target_in)  # (B, T, D)
        rows = states.flatten(0, 1).index_select(0, positions)  # (N, D): no padding
        output = self.model.output
        return linear_loss(rows, output.weight, output.bias, targets, self.smoothing, soft_targets)


@dataclass
class Loop:
    """All parts of a run, and the loop that trains until the run ends."""

    recipe: Recipe
    model: Transformer
    optimizers: Optimizers
    batches: Batches
    validation: Validation | None
    checkpoints: Checkpoints
    callbacks: Sequence[Callback]
    group: ProcessGroup
    signals: Signals
    ema: MovingAverage | None = None
    teacher_probabilities: TeacherProbabilities | None = None
    compiled: Callable[[Tensor, Tensor], Tensor] | None = None
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    state: TrainingState = field(default_factory=TrainingState)

    def __post_init__(self) -> None:
        training = self.recipe.training
        self.device = self.model.output.weight.device
        self.parameters = list(self.model.parameters())
        self.objective = self.group.wrap(
            Objective(self.model, training.label_smoothing, self.compiled)
        )
        self.peak_learning_rate = peak_learning_rate(training, self.model.config.d_model)
        self.total_steps = self._total_steps()
        self.scores: dict[int, ValidationScores] = {}
        """The last and the best validation since this start, by step."""
        self._saved_step = self.state.step
        self._saved_at = time.monotonic()
        self._peak_flops: float | None = None
        self._epoch_batches: tuple[int, int] = (-1, 1)
        """An epoch's number, and its batches over all processes."""

    def run(self) -> str:
        """Train until the run ends; return why it ended.

        On a signal, saves a checkpoint and raises `TrainingStoppedError`. If the loss becomes NaN
        or infinite, raises `NonFiniteLossError` before the weights are updated.
        """
        self.model.train()
        if self.state.validation_pending:
            self._validate()
        step_batches = self._step_batches(self.batches.stream())
        while (reason := self._end_reason()) is None:
            self._stop_if_asked()
            began = time.monotonic()
            batches = next(step_batches)
            waited = time.monotonic() - began
            report = self._step(batches, began, waited)
            for callback in self.callbacks:
                callback.on_step(report)
            if self._validation_due():
                self._validate()
            if self._save_due():
                self._save()
        if self.validation is not None and self.state.validated_step != self.state.step:
            self._validate()
        self._stop_if_asked()
        self._save()
        return reason

    # One optimizer step

    def _step_batches(self, stream: Iterator[Batch]) -> Iterator[list[Batch]]:
        """Group batches for gradient accumulation; the last group of an epoch may be smaller."""
        batches: list[Batch] = []
        for batch in stream:
            batches.append(batch)
            full = len(batches) == self.recipe.training.gradient_accumulation_steps
            if full or batch.last:
                yield batches
                batches = []

    def _step(self, batches: list[Batch], began: float, waited: float) -> StepReport:
        step, training = self.state.step + 1, self.recipe.training
        torch.manual_seed(derive_seed(training.seed, "step", step, self.group.rank))  # dropout
        (tokens,) = self.group.sum(sum(batch.target_tokens for batch in batches))

        # Gradient accumulation. Each loss is a sum over tokens, divided by the tokens of the whole
        # step, on all processes: a mean of means would give short batches too much weight.
        self.optimizers.zero_grad()
        losses, smoothed_losses = [], []
        for number, batch in enumerate(batches, 1):
            with self.group.gradient_sync(self.objective, last=number == len(batches)):
                with self.autocast():  # mixed precision: bf16 products, fp32 weights
                    tensors = batch_to_tensors(batch, self.device)
                    sums = self.objective(*tensors, self._soft_targets(batch))
                (sums.smoothed * (self.group.gradient_factor / tokens)).backward()
            losses.append(sums.plain.item())
            smoothed_losses.append(sums.smoothed.item())

        # Gradient clipping
        grad_norm = self.group.clip_gradients(self.parameters, training.max_grad_norm).item()
        self._check_finite(step, batches, losses, grad_norm)

        # Update of the weights
        lr_factor = learning_rate_factor(training, step, self.total_steps)
        self.optimizers.step(lr_factor)
        if self.ema is not None:
            self.ema.update(self.model, step)

        loss, smoothed_loss = self.group.sum(sum(losses), sum(smoothed_losses))
        self._advance(step, batches[-1], int(tokens), time.monotonic() - began)
        return StepReport(
            step=step,
            total_steps=self.total_steps,
            epoch=self.state.epoch,
            loss=loss / tokens,
            smoothed_loss=smoothed_loss / tokens,
            learning_rate=self.peak_learning_rate * lr_factor,
            grad_norm=grad_norm,
            target_tokens=int(tokens),
            seconds=(seconds := time.monotonic() - began),
            waited=waited,
            mfu=self._mfu(batches, seconds),
        )

    def _soft_targets(self, batch: Batch) -> SoftTargets | None:
        if self.teacher_probabilities is None:
            return None
        return self.teacher_probabilities.soft_targets(batch, self.device)

    def _check_finite(
        self, step: int, batches: list[Batch], losses: list[float], grad_norm: float
    ) -> None:
        """Stop all processes before the update if a loss or the gradient is NaN or infinite."""
        bad = [b for b, loss in zip(batches, losses, strict=True) if not math.isfinite(loss)]
        if not self.group.any(bool(bad) or not math.isfinite(grad_norm)):
            return
        numbers = self.batches.split.numbers
        own = [
            f"batch {batch.index} of epoch {batch.epoch}, with the pairs "
            + ", ".join(str(numbers[pair]) for pair in batch.pairs[:20])
            + (f" and {len(batch) - 20} more" if len(batch) > 20 else "")
            for batch in bad
        ]
        named = [name for names in self.group.gather(own) for name in names]
        if not named:  # every loss is finite, only a gradient is not
            named = [f"batches {batches[0].index} to {batches[-1].index} of epoch "
                     f"{batches[0].epoch}, in the gradient"]  # fmt: skip
        kept = self.checkpoints.steps()
        where = f"{self.checkpoints.path(kept[-1])} is kept" if kept else "none was saved yet"
        raise NonFiniteLossError(
            f"the loss is NaN or infinite at step {step} ({'; '.join(named)}): training stopped "
            f"before the weights were updated; the last checkpoint: {where}; look at these pairs, "
            "or lower the learning rate and start again"
        )

    def _advance(self, step: int, last: Batch, tokens: int, seconds: float) -> None:
        state = self.state
        if self._epoch_batches[0] != last.epoch:
            self._epoch_batches = (last.epoch, self.batches.steps(last.epoch) * self.group.world)
        done = 1.0 if last.last else min(1.0, (last.index + 1) / self._epoch_batches[1])
        state.step = step
        state.epoch = last.epoch + done
        state.epoch_ended = last.last
        state.target_tokens += tokens
        state.seconds += seconds
        state.validation_pending = False

    def _mfu(self, batches: list[Batch], seconds: float) -> float | None:
        """Return the model FLOPs utilization of a step, once the run has lasted a while."""
        if self.state.seconds < MFU_AFTER or seconds <= 0:
            return None
        if self._peak_flops is None:
            self._peak_flops = peak_flops(self.recipe.training, self.device)
        shapes = (BatchShape(len(b), b.source.shape[1], b.target_in.shape[1]) for b in batches)
        flops = sum(training_flops(self.model.config, shape) for shape in shapes)
        return flops / seconds / self._peak_flops if self._peak_flops else None

    # The end of the run

    def _total_steps(self) -> int | None:
        """Return the steps of the run: as set, or by epochs as long as the first."""
        training = self.recipe.training
        ends = [] if training.steps is None else [training.steps]
        if training.epochs is not None:
            per_epoch = -(-self.batches.steps(0) // training.gradient_accumulation_steps)
            ends.append(max(1, round(training.epochs * per_epoch)))
        return min(ends, default=None)

    def _end_reason(self) -> str | None:
        state, patience = self.state, self.recipe.early_stopping.patience
        if self.total_steps is not None and state.step >= self.total_steps:
            return f"done: {state.step} steps"
        if patience is not None and state.validations_since_best >= patience:
            return f"stopped early: {state.validations_since_best} validations without improvement"
        minutes = self.recipe.training.minutes
        if minutes is not None:
            over = state.step > 0 and state.seconds >= 60 * minutes
            if self.group.broadcast(over):  # process 0's clock decides for all
                return f"done: {minutes:g} minutes"
        return None

    def _stop_if_asked(self) -> None:
        """After a signal to any process, save a checkpoint and raise."""
        if not self.group.any(self.signals.received is not None):
            return
        self._save()
        raise TrainingStoppedError(
            max(self.group.gather(self.signals.received or 0)),
            self.state.step,
            self.checkpoints.folder.parent,
        )

    # Validation

    def _validation_due(self) -> bool:
        if self.validation is None:
            return False
        every = self.recipe.validation.every
        return self.state.step % every == 0 if every else self.state.epoch_ended

    def _validate(self) -> None:
        assert self.validation is not None
        began = time.monotonic()
        state = self.state
        averaged = nullcontext() if self.ema is None else self.ema.applied_to(self.model)
        try:
            with averaged, self.group.whole_model(self.model) as model:
                scores = self.validation.run(model)
        except InterruptedValidationError:
            state.validation_pending = True
            return
        is_best = self._is_best(scores)
        if is_best:
            metric = self.recipe.early_stopping.metric
            state.best = BestValidation(
                metric, scores.value(metric), state.step, scores.loss, scores.bleu, scores.chrf
            )
        state.validations_since_best = 0 if is_best else state.validations_since_best + 1
        state.validated_step, state.validation_pending = state.step, False
        best_step = state.best.step if state.best is not None else None
        self.scores = {step: old for step, old in self.scores.items() if step == best_step}
        self.scores[state.step] = scores
        seconds = time.monotonic() - began
        state.seconds += seconds
        self._report_validation(scores, is_best, seconds)
        # The best weights must be on disk before worse ones replace them.
        if self.recipe.checkpoints.every is None or (is_best and self.recipe.checkpoints.keep_best):
            self._save()

    def _is_best(self, scores: ValidationScores) -> bool:
        metric = self.recipe.early_stopping.metric
        value, best = scores.value(metric), self.state.best
        if not math.isfinite(value):
            return False
        if best is None or best.metric != metric:
            return True
        return value < best.value - self.recipe.early_stopping.min_delta

    def _report_validation(self, scores: ValidationScores, best: bool, seconds: float) -> None:
        report = ValidationReport(
            step=self.state.step,
            epoch=self.state.epoch,
            loss=scores.loss,
            perplexity=perplexity(scores.loss),
            bleu=scores.bleu,
            chrf=scores.chrf,
            signatures=scores.signatures,
            samples=scores.samples,
            best=best,
            seconds=seconds,
        )
        by_direction = "; ".join(
            f"{direction} BLEU {bleu:.1f}, chrF {chrf:.1f}"
            for direction, (bleu, chrf) in scores.by_direction.items()
        )
        for callback in self.callbacks:
            callback.on_validation(report)
            if len(scores.by_direction) > 1:
                callback.on_message(f"by direction: {by_direction}")

    # Checkpoints

    def _save_is_planned(self) -> bool:
        """Return whether the recipe plans a checkpoint at this step, whatever clock and signals."""
        every = self.recipe.checkpoints.every
        if every is not None:
            return self.state.step % every == 0
        return self.state.epoch_ended if self.validation is None else self._validation_due()

    def _save_due(self) -> bool:
        # Checkpoints that go with validations are saved there, unless a validation is interrupted.
        saves_here = self.recipe.checkpoints.every is not None or self.validation is None
        if saves_here and self._save_is_planned():
            return True
        minutes = self.recipe.checkpoints.minutes
        late = minutes and time.monotonic() - self._saved_at >= 60 * minutes
        return bool(self.group.broadcast(bool(late)))

    def _save(self) -> None:
        """Save a checkpoint of this step, unless there is one."""
        state = self.state
        if state.step == self._saved_step:
            return
        checkpoint = Checkpoint[Mapping[str, Tensor]](
            dict(self.model.named_parameters()),
            self.optimizers.tensors(),
            None if self.ema is None else self.ema.weights,
            {
                "training": asdict(state),
                "planned": self._save_is_planned(),
                "data": self.batches.state(),
                "threads": torch.get_num_threads(),
                "processes": self.group.world,
                "versions": {"pellucid": __version__, "torch": torch.__version__},
            },
        )
        keep_best = self.recipe.checkpoints.keep_best and state.best is not None
        best_step = state.best.step if keep_best and state.best is not None else None
        path = self.checkpoints.save(state.step, checkpoint, best_step, self.group)
        for callback in self.callbacks:
            callback.on_save(path)
        self._saved_step, self._saved_at = state.step, time.monotonic()

    def restore(self, checkpoint: Checkpoint[Stored]) -> None:
        """Resume from a checkpoint."""
        parameters = dict(self.model.named_parameters())
        if parameters.keys() != checkpoint.model.keys():
            raise PellucidError("the checkpoint belongs to another model: its weights differ")
        with torch.no_grad():
            for name, tensor in self.group.load_tensors(checkpoint.model, parameters):
                parameters[name].copy_(tensor)
        self.optimizers.restore(dict(self.group.load_tensors(checkpoint.optimizer, parameters)))
        if self.ema is not None and checkpoint.average is not None:
            self.ema.restore(dict(self.group.load_tensors(checkpoint.average, parameters)))
        self.state = TrainingState.from_dict(checkpoint.state["training"])
        self.batches.restore(checkpoint.state["data"])
        self._saved_step = self.state.step
