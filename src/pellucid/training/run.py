"""A training run, from its recipe to its bundle.

RUN/recipe.toml             the whole recipe, as it was used
RUN/data/                   the prepared data
RUN/teacher-probabilities/  with distillation: the teachers' probabilities for the training pairs
RUN/checkpoints/            to resume from
RUN/metrics.jsonl           the measurements, and RUN/events/ for TensorBoard
RUN/attention.json          the attention of one sentence
RUN/report.html             the report
RUN/bundle/                 the model, for `pellucid translate --model RUN/bundle`
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.bundle import Bundle
from pellucid.config import (
    Recipe,
    as_toml,
    load_recipe,
    recipe_differences,
)
from pellucid.data.batches import Batches
from pellucid.data.prepare import prepare
from pellucid.data.store import PreparedData
from pellucid.errors import ConfigError, InputError, PellucidError
from pellucid.model import Transformer
from pellucid.storage.files import write_atomic
from pellucid.training.callbacks.callback import Callback
from pellucid.training.callbacks.live_panel import LivePanel
from pellucid.training.callbacks.terminal import PlainLog, default_callbacks
from pellucid.training.checkpoint.checkpoints import Checkpoints, cannot_write
from pellucid.training.devices import (
    autocast_for,
    compiled_states,
    device_for,
    precision_note,
)
from pellucid.training.distillation import (
    TeacherProbabilities,
    store_teacher_probabilities,
    stored_key,
)
from pellucid.training.distributed.process_group import ProcessGroup, SingleProcess, in_main
from pellucid.training.embedding_init import init_embeddings
from pellucid.training.export_bundle import (
    ATTENTION,
    interpolate_initial,
    load_into,
    result_weights,
    write_attention,
    write_bundle,
)
from pellucid.training.init_weights import (
    initial_config,
    load_initial_weights,
    open_initial_model,
    tokenizer_for,
)
from pellucid.training.loop import Loop
from pellucid.training.optim.averaging import MovingAverage
from pellucid.training.optim.optimizers import Optimizers
from pellucid.training.run_report import write_report
from pellucid.training.signals import Signals, TrainingStoppedError
from pellucid.training.training_state import TrainingState, derive_seed
from pellucid.training.validate import InterruptedValidationError, Validation, ValidationScores
from pellucid.translator.loading import open_bundle

if TYPE_CHECKING:
    from rich.console import Console

RECIPE, DATA, CHECKPOINTS, BUNDLE = "recipe.toml", "data", "checkpoints", "bundle"
TEACHER_PROBABILITIES = "teacher-probabilities"


def train(
    recipe: Recipe | Path | str,
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    overrides: Sequence[str] = (),
    console: Console | None = None,
) -> Path:
    """Train a model by a recipe; return the folder of its bundle.

    recipe: a recipe, its TOML file, or the folder of a run to resume. folder: the run's folder;
    by default runs/ and the name of the recipe's file. resume: continue from the last checkpoint
    in it, or start if there is none. overrides: "section.key=value" each. console: where to show
    progress; without one nothing is shown. Under torchrun every process calls this.
    """
    recipe, folder = _locate(recipe, folder, overrides)
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    device = device_for(recipe.training, int(os.environ.get("LOCAL_RANK", "0")))
    group = _process_group(recipe, device)
    try:
        # On several machines only those of a process that failed count it as a restart.
        resume = group.any(resume or restarted)
        return _Run(recipe, folder, resume, group, device, console).run()
    except BrokenPipeError:  # the reader of our output is gone
        raise
    except OSError as error:
        raise cannot_write(error, "the run's files", folder) from error
    finally:
        group.close()


def _process_group(recipe: Recipe, device: torch.device) -> ProcessGroup:
    """Join the processes that torchrun started, or be the only one."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return SingleProcess(device)
    if recipe.training.parallel == "fsdp":
        from pellucid.training.distributed.fsdp import FullyShardedGroup

        return FullyShardedGroup(recipe.training, device)
    from pellucid.training.distributed.ddp import DataParallelGroup

    return DataParallelGroup(recipe.training, device)


def _locate(
    recipe: Recipe | Path | str, folder: Path | str | None, overrides: Sequence[str]
) -> tuple[Recipe, Path]:
    """Return the recipe with its overrides, and the folder of its run."""
    if isinstance(recipe, Recipe):
        if overrides:
            raise InputError("overrides go with a recipe's file: change the Recipe itself")
        if folder is None:
            raise InputError("a Recipe without a file needs a folder for its run")
        return recipe, Path(folder)
    path = Path(recipe)
    if path.is_dir():
        if not (path / RECIPE).is_file():
            raise InputError(f"{path} is no training run: it has no {RECIPE}")
        path = path / RECIPE
    of_a_run = path.name == RECIPE and (path.parent / DATA).is_dir()
    if folder is None:
        folder = path.parent if of_a_run else Path("runs") / path.stem
    return load_recipe(path, overrides), Path(folder)


class _Run:
    """The parts of a run, put together; `run` calls the other methods in order."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        resume: bool,
        group: ProcessGroup,
        device: torch.device,
        console: Console | None,
    ) -> None:
        self.recipe = recipe
        self.folder = folder
        self.resume = resume
        self.group = group
        self.device = device
        self.console = console if group.rank == 0 else None
        self.callbacks: list[Callback] = (
            default_callbacks(folder, self.console) if group.rank == 0 else []
        )
        keep, average = recipe.checkpoints.keep, recipe.training.average_checkpoints
        self.checkpoints = Checkpoints(folder / CHECKPOINTS, keep, average, self.say)
        self.signals = Signals()
        self.initial: Bundle | None = None
        """The model that fine-tuning starts from."""
        self.teachers: list[Bundle] = []
        """In process 0: the teachers, if their probabilities are not stored yet."""
        self.teacher_key: str | None = None
        """In process 0: the key of their probabilities, if they are stored."""

    def say(self, line: str) -> None:
        """Print a line for the user, also before the callbacks have started."""
        if self.console is not None:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def run(self) -> Path:
        """Prepare, train and write the bundle; return its folder."""
        in_main(self.group, self._claim_folder)
        self.initial = open_initial_model(self.recipe, self.group)
        in_main(self.group, self._open_teachers, patient=True)
        note = precision_note(self.recipe.training, self.device)
        if note is not None:
            self.say(note)
        prepared = self._prepare_data()
        resumed = self._last_step()
        checkpoint = None if resumed is None else self.checkpoints.load(resumed)
        self._set_threads(None if checkpoint is None else checkpoint.state["threads"])
        teacher_probabilities = self._teacher_probabilities(prepared)
        loop = self._loop(prepared, teacher_probabilities, initialised=checkpoint is None)
        if checkpoint is not None:
            loop.restore(checkpoint)
        for callback in self.callbacks:
            callback.on_start(
                self.recipe, loop.model.num_parameters(), prepared.report, resumed_from=resumed
            )
        try:
            with self.signals:
                reason = loop.run()
                summary = self._finish(loop, prepared, reason)
        except InterruptedValidationError:
            signal_number = max(self.group.gather(self.signals.received or 0))
            stopped = TrainingStoppedError(signal_number, loop.state.step, self.folder)
            self._end("stopped", loop)
            raise stopped from None
        except BaseException as error:
            asked_for = isinstance(error, TrainingStoppedError | KeyboardInterrupt)
            self._end("stopped" if asked_for else "failed", loop)
            raise
        for callback in self.callbacks:
            callback.on_end(summary)
        in_main(self.group, lambda: write_report(self.folder))
        return self.folder / BUNDLE

    def _end(self, how: str, loop: Loop) -> None:
        """Tell the callbacks about an early end; on the console the error has its own line."""
        for callback in self.callbacks:
            on_console = isinstance(callback, PlainLog | LivePanel)
            with contextlib.suppress(PellucidError, OSError):
                callback.on_end({} if on_console else {"ended": how, "steps": loop.state.step})

    def _claim_folder(self) -> None:
        """Claim the run's folder: it must be new, or be resumed with a matching recipe."""
        path = self.folder / RECIPE
        begun = bool(self.checkpoints.steps())
        if begun and not self.resume:
            raise InputError(
                f"{self.folder} already holds a run: continue it with --resume, or choose another "
                "folder with --folder"
            )
        if self.resume and begun and path.is_file():
            self._check_changes(load_recipe(path))
        elif self.resume and not begun:
            self.say(f"nothing to resume in {self.folder}: starting a new run")
        text = as_toml(self.recipe)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)
        except OSError as error:
            raise cannot_write(error, "the recipe", self.folder) from None

    def _check_changes(self, old: Recipe) -> None:
        changes = recipe_differences(old, self.recipe)

        def listed(allowed: bool) -> str:
            return ", ".join(
                f"{c.key} ({c.old!r} to {c.new!r})" for c in changes if c.may_change == allowed
            )

        if listed(allowed=False):
            also = f"; these may change: {listed(allowed=True)}" if listed(allowed=True) else ""
            raise ConfigError(
                f"the recipe is not that of the run in {self.folder}: these must not change when "
                f"it is resumed: {listed(allowed=False)}{also}; set them back, or start a new run "
                "with --folder"
            )
        if changes:
            self.say(f"resuming with changes: {listed(allowed=True)}")

    def _prepare_data(self) -> PreparedData:
        """Prepare the data in process 0, unless that was done, and open it in all."""
        folder = self.folder / DATA

        def work() -> PreparedData:
            tokenizer = tokenizer_for(self.recipe, self.initial)
            return prepare(self.recipe.data, tokenizer, folder, console=self.console)

        prepared = in_main(self.group, work, patient=True)
        return prepared or PreparedData.open(folder, verify=False)

    def _is_resumed(self) -> bool:
        """Return whether this resumes a run that has a checkpoint."""
        return self.resume and bool(self.checkpoints.steps())

    def _last_step(self) -> int | None:
        """Return the step to resume from, or None for a new run."""

        def find() -> int | None:
            if not self._is_resumed():
                return None
            step = self.checkpoints.last_whole()
            if step is None:
                raise PellucidError(
                    f"every checkpoint in {self.checkpoints.folder} is damaged: nothing to resume "
                    "from; move them away to start a new run"
                )
            return step

        last: int | None = self.group.broadcast(in_main(self.group, find))
        return last

    def _set_threads(self, before: int | None) -> None:
        """Use the recipe's threads, or those the run began with, so that the bits stay the same."""
        threads = self.recipe.training.threads or before
        if threads is not None:
            torch.set_num_threads(threads)

    def _open_teachers(self) -> None:
        """Open the teachers first of all, as one may be missing; a resumed run needs none."""
        if self._is_resumed():
            self.teacher_key = stored_key(self.folder / TEACHER_PROBABILITIES)
        if self.teacher_key is None:
            self.teachers = [open_bundle(name) for name in self.recipe.distillation.teachers]

    def _teacher_probabilities(self, prepared: PreparedData) -> TeacherProbabilities | None:
        """With distillation: compute the teachers' probabilities in process 0, open them in all."""
        distillation = self.recipe.distillation
        if not distillation.teachers:
            return None
        folder, console = self.folder / TEACHER_PROBABILITIES, self.console

        def compute() -> str | None:
            if self.teacher_key is not None:
                return self.teacher_key
            autocast = autocast_for(self.recipe.training, self.device)
            return store_teacher_probabilities(
                self.teachers, prepared, folder, self.device, autocast=autocast, console=console
            )

        key = self.group.broadcast(in_main(self.group, compute, patient=True))
        return TeacherProbabilities.open(folder, key, prepared, distillation.weight)

    def _model(self, prepared: PreparedData, *, initialised: bool) -> tuple[Transformer, float]:
        """Build the model; initialised: with its initial weights, not those of a checkpoint.

        Also returns the seconds that co-occurrence counting took, as they are training time too.
        """
        training = self.recipe.training
        torch.manual_seed(derive_seed(training.seed, "weights"))
        if self.initial is None:
            config = self.recipe.model.config(prepared.tokenizer.vocab_size)
        else:
            config = initial_config(self.recipe, self.initial)
        model = self.group.build_model(config, initialised=initialised)
        if self.initial is not None and initialised:
            load_initial_weights(model, self.initial, self.group)
        elif training.embedding_init == "cooccurrence" and initialised:
            self.say("counting word co-occurrence for the initial embeddings")
            seed, began = derive_seed(training.seed, "embeddings"), time.monotonic()
            init_embeddings(model, prepared.splits["train"], seed)
            return model, time.monotonic() - began
        return model, 0.0

    def _loop(
        self,
        prepared: PreparedData,
        teacher_probabilities: TeacherProbabilities | None,
        *,
        initialised: bool,
    ) -> Loop:
        recipe, training = self.recipe, self.recipe.training
        model, seconds = self._model(prepared, initialised=initialised)
        ema = None if training.ema_decay is None else MovingAverage(model, training.ema_decay)
        batches = Batches(
            prepared,
            recipe.batches,
            seed=training.seed,
            rank=self.group.rank,
            world=self.group.world,
        )
        return Loop(
            recipe,
            model,
            Optimizers(model, training),
            batches,
            self._validation(prepared, "valid"),
            self.checkpoints,
            self.callbacks,
            self.group,
            self.signals,
            ema=ema,
            teacher_probabilities=teacher_probabilities,
            compiled=self._compiled(model),
            autocast=autocast_for(training, self.device),
            state=TrainingState(seconds=seconds),
        )

    def _compiled(self, model: Transformer) -> Callable[[Tensor, Tensor], Tensor] | None:
        training = self.recipe.training
        if self.group.world > 1 and training.parallel == "fsdp":
            if training.compile == "on":
                self.say("training.compile = 'on' needs parallel = 'ddp': continuing uncompiled")
            return None
        return compiled_states(model, training, self.say)

    def _validation(self, prepared: PreparedData, split: str) -> Validation | None:
        if split not in prepared.splits:
            return None
        config = self.recipe.validation
        if split == "test":
            config = config.changed(sentences=0, translate=True)

        def stop() -> bool:
            return self.group.any(self.signals.received is not None)

        return Validation(prepared, self.recipe.batches, config, self.group, split, stop)

    def _finish(self, loop: Loop, prepared: PreparedData, reason: str) -> dict[str, Any]:
        """Choose the weights, evaluate them and write the bundle; return the run's summary."""
        result = result_weights(self.recipe, self.checkpoints, loop.state.best)
        fraction = self.recipe.training.init_interpolation
        if fraction and (initial := open_initial_model(self.recipe, self.group)) is not None:
            result = interpolate_initial(result, initial, fraction)
        with self.group.whole_model(loop.model) as model:
            load_into(model, result.weights)
            model.eval()
            scores: dict[str, ValidationScores] = {}
            if loop.validation is not None:
                found = loop.scores.get(result.validated_step or 0)
                scores["valid"] = found or loop.validation.run(model)
            test = self._validation(prepared, "test")
            if test is not None:
                scores["test"] = test.run(model)
            in_main(
                self.group, lambda: self._write(loop, model, prepared, result.description, scores)
            )
        summary: dict[str, Any] = {
            "ended": reason,
            "steps": loop.state.step,
            "epochs": loop.state.epoch,
            "weights": result.description,
        }
        for split, found in scores.items():
            summary[f"{split} loss"] = found.loss
            summary[f"{split} BLEU"] = found.bleu
            summary[f"{split} chrF"] = found.chrf
        summary["bundle"] = str(self.folder / BUNDLE)
        return summary

    def _write(
        self,
        loop: Loop,
        model: Transformer,
        prepared: PreparedData,
        weights: str,
        scores: dict[str, ValidationScores],
    ) -> None:
        """Write the bundle and the attention of one sentence."""
        write_bundle(
            self.folder / BUNDLE,
            self.recipe,
            model,
            prepared,
            weights=weights,
            steps=loop.state.step,
            target_tokens=loop.state.target_tokens,
            scores=scores,
            say=self.say,
        )
        if loop.validation is not None:
            path = self.folder / ATTENTION
            write_attention(path, model, prepared, loop.validation.examples)
