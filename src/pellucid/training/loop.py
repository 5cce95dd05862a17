"""The training loop. `Loop.run` reads from top to bottom; the rest are its steps.

A step takes some batches (`accumulate` of them), adds up their gradients as if they were one
batch, and changes the weights once. Every random number of a step comes from the recipe's seed,
the step's number and the process's rank, so a resumed run goes on exactly as if nothing happened.
"""

from __future__ import annotations

import hashlib
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
from pellucid.training.callbacks.callback import Callback, StepReport, ValidationReport, perplexity
from pellucid.training.checkpoint.checkpoints import Checkpoint, Checkpoints
from pellucid.training.checkpoint.sharded_tensors import Stored
from pellucid.training.devices import peak_for
from pellucid.training.distillation import TeacherProbabilities
from pellucid.training.distributed.process_group import ProcessGroup
from pellucid.training.loss import Taught, TokenLoss, linear_loss
from pellucid.training.optim.averaging import MovingAverage
from pellucid.training.optim.optimizers import Optimizers
from pellucid.training.optim.schedule import peak_learning_rate, rate_share
from pellucid.training.plan.training_flops import training_flops
from pellucid.training.signals import Signals, StoppedError
from pellucid.training.validate import InterruptedValidationError, Scores, Validation, tensors_of

MEASURE_AFTER = 20.0  # seconds of training, before the machine's peak is measured


def seed_of(seed: int, *parts: int | str) -> int:
    """A seed of 63 bits that depends on all its parts."""
    text = "/".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


class NotANumberError(PellucidError):
    """A loss or gradient is nan or infinite."""

    everywhere = True


class Objective(nn.Module):
    """The model with its loss: what is differentiated, and what many processes wrap.

    states: the function that gives the decoder's states, if not simply the model's.
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
        places: Tensor,
        targets: Tensor,
        taught: Taught | None = None,
    ) -> TokenLoss:
        """Sums of the losses of the real target tokens; see `validate.Tensors`."""
        states = self.states(source, target_in)  # (B, T, D)
        rows = states.flatten(0, 1).index_select(0, places)  # (N, D): no padding
        output = self.model.output
        return linear_loss(rows, output.weight, output.bias, targets, self.smoothing, taught)


@dataclass
class Best:
    """The best validation so far."""

    metric: str
    value: float
    """Turned so that lower is better."""
    step: int
    loss: float
    bleu: float | None
    chrf: float | None


@dataclass
class TrainingState:
    """Where a run is: with weights and optimizer, all that is needed to go on."""

    step: int = 0
    epoch: float = 0.0
    target_tokens: int = 0
    seconds: float = 0.0
    best: Best | None = None
    stale: int = 0
    """Validations since the best one."""
    validated: int = 0
    """The step of the last validation."""
    owes_validation: bool = False
    """Whether the validation of this step was interrupted, and has to be done first."""
    epoch_ended: bool = False
    """Whether this step was the last of its epoch."""


@dataclass
class Loop:
    """Everything a run consists of, and how it goes on until it ends."""

    recipe: Recipe
    model: Transformer
    optimizers: Optimizers
    batches: Batches
    validation: Validation | None
    checkpoints: Checkpoints
    watchers: Sequence[Callback]
    group: ProcessGroup
    signals: Signals
    average: MovingAverage | None = None
    lessons: TeacherProbabilities | None = None
    compiled: Callable[[Tensor, Tensor], Tensor] | None = None
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    place: TrainingState = field(default_factory=TrainingState)

    def __post_init__(self) -> None:
        training = self.recipe.training
        self.device = self.model.output.weight.device
        self.parameters = list(self.model.parameters())
        self.objective = self.group.wrap(
            Objective(self.model, training.label_smoothing, self.compiled)
        )
        self.highest = peak_learning_rate(training, self.model.config.d_model)
        self.total_steps = self._total_steps()
        self.judged: dict[int, Scores] = {}
        """The last validation and the best one of this start, by their steps."""
        self._saved = self.place.step
        self._saved_at = time.monotonic()
        self._peak: float | None = None
        self._epoch_batches: tuple[int, int] = (-1, 1)

    def run(self) -> str:
        """Train until something ends it; why it ended.

        A signal saves the run and raises `StoppedError`; a loss that is no number raises
        `PellucidError` before it can touch the weights.
        """
        self.model.train()
        if self.place.owes_validation:
            self._validate()
        stream = self._steps(self.batches.stream())
        while (reason := self._reason_to_end()) is None:
            self._stop_if_asked()
            began = time.monotonic()
            batches = next(stream)
            waited = time.monotonic() - began
            report = self._step(batches, began, waited)
            for watcher in self.watchers:
                watcher.stepped(report)
            if self._validation_due():
                self._validate()
            if self._save_due():
                self._save()
        if self.validation is not None and self.place.validated != self.place.step:
            self._validate()
        self._stop_if_asked()
        self._save()
        return reason

    # One step

    def _steps(self, stream: Iterator[Batch]) -> Iterator[list[Batch]]:
        """The batches of each step: `accumulate` of them, fewer at the end of an epoch."""
        some: list[Batch] = []
        for batch in stream:
            some.append(batch)
            if batch.last or len(some) == self.recipe.training.gradient_accumulation_steps:
                yield some
                some = []

    def _step(self, batches: list[Batch], began: float, waited: float) -> StepReport:
        step = self.place.step + 1
        training = self.recipe.training
        torch.manual_seed(seed_of(training.seed, "step", step, self.group.rank))
        own_tokens = sum(batch.target_tokens for batch in batches)
        tokens = self.group.sum(own_tokens)[0]
        self.optimizers.zero_grad()
        plain, smoothed = [], []
        for number, batch in enumerate(batches, 1):
            with self.group.accumulating(self.objective, last=number == len(batches)):
                with self.autocast():
                    taught = None if self.lessons is None else self.lessons.of(batch, self.device)
                    sums = self.objective(*tensors_of(batch, self.device), taught)
                (sums.smoothed * (self.group.gradient_factor / tokens)).backward()
            plain.append(sums.plain.item())
            smoothed.append(sums.smoothed.item())
        norm = self.group.gradient_norm(self.parameters, training.max_grad_norm).item()
        self._check_finite(step, batches, plain, norm)
        share = rate_share(training, step, self.total_steps)
        self.optimizers.step(share)
        if self.average is not None:
            self.average.update(self.model, step)
        loss, smoothed_loss = self.group.sum(sum(plain), sum(smoothed))
        self._advance(step, batches[-1], int(tokens), time.monotonic() - began)
        return StepReport(
            step=step,
            total_steps=self.total_steps,
            epoch=self.place.epoch,
            loss=loss / tokens,
            smoothed_loss=smoothed_loss / tokens,
            learning_rate=self.highest * share,
            grad_norm=norm,
            target_tokens=int(tokens),
            seconds=(seconds := time.monotonic() - began),
            waited=waited,
            flops_share=self._flops_share(batches, seconds),
        )

    def _check_finite(
        self, step: int, batches: list[Batch], losses: list[float], norm: float
    ) -> None:
        """Stop all processes, before the weights are touched, if anything is no number."""
        wrong = [b for b, loss in zip(batches, losses, strict=True) if not math.isfinite(loss)]
        if not self.group.any(bool(wrong) or not math.isfinite(norm)):
            return
        numbers = self.batches.split.numbers
        own = [
            f"batch {batch.index} of epoch {batch.epoch}, with the pairs "
            + ", ".join(str(numbers[pair]) for pair in batch.pairs[:20])
            + (f" and {len(batch) - 20} more" if len(batch) > 20 else "")
            for batch in wrong
        ]
        named = [name for names in self.group.gathered(own) for name in names]
        if not named:  # each loss is a number, and only a gradient is not
            named = [f"batches {batches[0].index} to {batches[-1].index} of epoch "
                     f"{batches[0].epoch}, in the gradient"]  # fmt: skip
        kept = self.checkpoints.steps()
        where = f"{self.checkpoints.path(kept[-1])} is kept" if kept else "none was saved yet"
        raise NotANumberError(
            f"the loss is no longer a number at step {step} ({'; '.join(named)}): training stopped "
            f"before it could spoil the weights; the last checkpoint {where}; look at these pairs, "
            "or lower the rate and start again"
        )

    def _advance(self, step: int, last: Batch, tokens: int, seconds: float) -> None:
        place = self.place
        if self._epoch_batches[0] != last.epoch:
            self._epoch_batches = (last.epoch, self.batches.steps(last.epoch) * self.group.world)
        done = 1.0 if last.last else min(1.0, (last.index + 1) / self._epoch_batches[1])
        place.step = step
        place.epoch = last.epoch + done
        place.epoch_ended = last.last
        place.target_tokens += tokens
        place.seconds += seconds
        place.owes_validation = False

    def _flops_share(self, batches: list[Batch], seconds: float) -> float | None:
        """The share of the machine's peak that a step used, measured once a run has gone on."""
        if self.place.seconds < MEASURE_AFTER or seconds <= 0:
            return None
        if self._peak is None:
            self._peak = peak_for(self.recipe.training, self.device)
        shapes = (BatchShape(len(b), b.source.shape[1], b.target_in.shape[1]) for b in batches)
        flops = sum(training_flops(self.model.config, shape) for shape in shapes)
        return flops / seconds / self._peak if self._peak else None

    # What happens between steps

    def _total_steps(self) -> int | None:
        """The steps of the whole run: as set, or by the epochs, counted as long as the first."""
        training = self.recipe.training
        ends = [] if training.steps is None else [training.steps]
        if training.epochs is not None:
            per_epoch = -(-self.batches.steps(0) // training.gradient_accumulation_steps)
            ends.append(max(1, round(training.epochs * per_epoch)))
        return min(ends, default=None)

    def _reason_to_end(self) -> str | None:
        minutes, patience = self.recipe.training.minutes, self.recipe.early_stopping.patience
        if self.total_steps is not None and self.place.step >= self.total_steps:
            return f"done: {self.place.step} steps"
        if patience is not None and self.place.stale >= patience:
            return f"stopped early: {self.place.stale} validations without a better one"
        if minutes is not None:
            over = self.place.step > 0 and self.place.seconds >= 60 * minutes
            if self.group.from_main(over):
                return f"done: {minutes:g} minutes"
        return None

    def _validation_due(self) -> bool:
        if self.validation is None:
            return False
        every = self.recipe.validation.every
        return self.place.step % every == 0 if every else self.place.epoch_ended

    def _validate(self) -> None:
        assert self.validation is not None
        began = time.monotonic()
        place, metric = self.place, self.recipe.early_stopping.metric
        try:
            with Averaged(self.model, self.average), self.group.plain(self.model) as model:
                scores = self.validation.run(model)
        except InterruptedValidationError:
            place.owes_validation = True
            return
        best = self._is_best(scores)
        if best:
            value = scores.value(metric)
            place.best = Best(metric, value, place.step, scores.loss, scores.bleu, scores.chrf)
            place.stale = 0
        else:
            place.stale += 1
        place.validated, place.owes_validation = place.step, False
        kept = place.best.step if place.best is not None else None
        self.judged = {step: seen for step, seen in self.judged.items() if step == kept}
        self.judged[place.step] = scores
        seconds = time.monotonic() - began
        place.seconds += seconds
        report = ValidationReport(
            step=place.step,
            epoch=place.epoch,
            loss=scores.loss,
            perplexity=perplexity(scores.loss),
            bleu=scores.bleu,
            chrf=scores.chrf,
            signatures=scores.signatures,
            samples=scores.samples,
            best=best,
            seconds=seconds,
        )
        for watcher in self.watchers:
            watcher.validated(report)
            if len(scores.by_direction) > 1:
                watcher.said(
                    "by direction: "
                    + "; ".join(
                        f"{direction} BLEU {bleu:.1f}, chrF {chrf:.1f}"
                        for direction, (bleu, chrf) in scores.by_direction.items()
                    )
                )
        # What is best must be on the disk before something worse replaces it.
        if self.recipe.checkpoints.every is None or (best and self.recipe.checkpoints.keep_best):
            self._save()

    def _is_best(self, scores: Scores) -> bool:
        metric = self.recipe.early_stopping.metric
        value, best = scores.value(metric), self.place.best
        if not math.isfinite(value):
            return False
        if best is None or best.metric != metric:
            return True
        return value < best.value - self.recipe.early_stopping.min_delta

    def _planned(self) -> bool:
        """Whether the recipe wants a checkpoint of this step, whatever clock and signals say."""
        every = self.recipe.checkpoints.every
        if every is not None:
            return self.place.step % every == 0
        return self.place.epoch_ended if self.validation is None else self._validation_due()

    def _save_due(self) -> bool:
        # Where validations plan them, they also save them, unless they are interrupted.
        by_itself = self.recipe.checkpoints.every is not None or self.validation is None
        if by_itself and self._planned():
            return True
        minutes = self.recipe.checkpoints.minutes
        late = minutes and time.monotonic() - self._saved_at >= 60 * minutes
        return bool(self.group.from_main(bool(late)))

    def _save(self) -> None:
        """A checkpoint of this step, unless there is one."""
        place = self.place
        if place.step == self._saved:
            return
        checkpoint = Checkpoint[Mapping[str, Tensor]](
            dict(self.model.named_parameters()),
            self.optimizers.tensors(),
            None if self.average is None else self.average.weights,
            {
                "place": asdict(place),
                "planned": self._planned(),
                "data": self.batches.state(),
                "threads": torch.get_num_threads(),
                "processes": self.group.world,
                "versions": {"pellucid": __version__, "torch": torch.__version__},
            },
        )
        keep = self.recipe.checkpoints.keep_best and place.best is not None
        best = place.best.step if keep and place.best is not None else None
        path = self.checkpoints.save(place.step, checkpoint, best, self.group)
        for watcher in self.watchers:
            watcher.saved(path)
        self._saved, self._saved_at = place.step, time.monotonic()

    def _stop_if_asked(self) -> None:
        """After a signal to any process: save, and end with what to do to go on."""
        if not self.group.any(self.signals.asked is not None):
            return
        self._save()
        raise StoppedError(
            max(self.group.gathered(self.signals.asked or 0)),
            self.place.step,
            self.checkpoints.folder.parent,
        )

    def restore(self, checkpoint: Checkpoint[Stored]) -> None:
        """Go on from a checkpoint."""
        parameters = dict(self.model.named_parameters())
        if parameters.keys() != checkpoint.model.keys():
            raise PellucidError("the checkpoint belongs to another model: its weights differ")
        with torch.no_grad():
            for name, tensor in self.group.loaded(checkpoint.model, parameters):
                parameters[name].copy_(tensor)
        self.optimizers.restore(dict(self.group.loaded(checkpoint.optimizer, parameters)))
        if self.average is not None and checkpoint.average is not None:
            self.average.restore(dict(self.group.loaded(checkpoint.average, parameters)))
        values = dict(checkpoint.state["place"])
        values["best"] = Best(**values["best"]) if values["best"] else None
        self.place = TrainingState(**values)
        self.batches.restore(checkpoint.state["data"])
        self._saved = self.place.step


class Averaged:
    """While it is entered, a model has the moving average's weights (if there is one)."""

    def __init__(self, model: nn.Module, average: MovingAverage | None) -> None:
        self.model = model
        self.average = average
        self.own: dict[str, Tensor] = {}

    @torch.no_grad()
    def __enter__(self) -> None:
        if self.average is not None:
            for name, parameter in self.model.named_parameters():
                self.own[name] = parameter.clone()
                parameter.copy_(self.average.weights[name])

    @torch.no_grad()
    def __exit__(self, *_: object) -> None:
        for name, parameter in self.model.named_parameters():
            if name in self.own:
                parameter.copy_(self.own[name])
