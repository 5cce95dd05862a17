"""A training run from its recipe to its bundle.

RUN/recipe.toml     the whole recipe, as it was used
RUN/data/           the prepared data
RUN/lessons/        what the teachers say of it, if there are any
RUN/checkpoints/    what to go on from
RUN/metrics.jsonl   what was measured, and RUN/events/ for TensorBoard
RUN/attention.json  the attention of one sentence
RUN/report.html     all of it to look at
RUN/bundle/         the model, for `pellucid translate --model RUN/bundle`
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
from pellucid.storage.disk import explained
from pellucid.training import export_bundle as finish
from pellucid.training.callbacks.callback import Callback
from pellucid.training.callbacks.terminal import Lines, Panel, watchers_for
from pellucid.training.checkpoint.checkpoints import Checkpoints
from pellucid.training.devices import autocast_for, compiled_states, device_for
from pellucid.training.distillation import TeacherProbabilities, ask_teachers, kept_lessons
from pellucid.training.distributed.process_group import Alone, ProcessGroup, in_main
from pellucid.training.embedding_init import start_embeddings
from pellucid.training.init_weights import load_start, open_start, pieces_for, start_config
from pellucid.training.loop import Loop, TrainingState, seed_of
from pellucid.training.optim.averaging import MovingAverage
from pellucid.training.optim.optimizers import Optimizers
from pellucid.training.run_report import write_report
from pellucid.training.signals import Signals, StoppedError
from pellucid.training.validate import InterruptedValidationError, Scores, Validation
from pellucid.translator.loading import open_bundle

if TYPE_CHECKING:
    from rich.console import Console

RECIPE, DATA, CHECKPOINTS, BUNDLE = "recipe.toml", "data", "checkpoints", "bundle"
LESSONS = "lessons"


def train(
    recipe: Recipe | Path | str,
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    overrides: Sequence[str] = (),
    console: Console | None = None,
) -> Path:
    """Train a model as a recipe says; the folder of its bundle.

    recipe: a recipe, its TOML file, or the folder of a run to go on with. folder: the run's
    folder; by default runs/ and the name of the recipe's file. resume: go on from the last
    checkpoint in it, or begin if there is none. overrides: "section.key=value" each. console:
    where to show what happens; nothing is shown without. Under torchrun every process calls this.
    """
    recipe, folder = _located(recipe, folder, overrides)
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    device = device_for(recipe.training, int(os.environ.get("LOCAL_RANK", "0")))
    group = _group(recipe, device)
    try:
        # On several machines only those of a process that failed count it as a restart.
        resume = group.any(resume or restarted)
        return _Run(recipe, folder, resume, group, device, console).run()
    except BrokenPipeError:  # nobody reads what is shown any more
        raise
    except OSError as error:
        raise explained(error, "the run's files", folder) from error
    finally:
        group.close()


def _group(recipe: Recipe, device: torch.device) -> ProcessGroup:
    """The processes that torchrun started, or this one alone."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Alone(device)
    if recipe.training.parallel == "fsdp":
        from pellucid.training.distributed.fsdp import FullySharded

        return FullySharded(recipe.training, device)
    from pellucid.training.distributed.ddp import DataParallel

    return DataParallel(recipe.training, device)


def _located(
    recipe: Recipe | Path | str, folder: Path | str | None, overrides: Sequence[str]
) -> tuple[Recipe, Path]:
    """The recipe, read and changed, and the folder of its run."""
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
    """The parts of a run, put together."""

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
        self.watchers: list[Callback] = (
            watchers_for(folder, self.console) if group.rank == 0 else []
        )
        keep, average = recipe.checkpoints.keep, recipe.training.average_checkpoints
        self.checkpoints = Checkpoints(folder / CHECKPOINTS, keep, average, self.say)
        self.signals = Signals()
        self.start: Bundle | None = None
        self.teachers: list[Bundle] = []
        """Those that are still to be asked, in process 0."""
        self.lessons: str | None = None
        """The key of what they have said, once they were asked, in process 0."""

    def say(self, line: str) -> None:
        """Tell a person something, also before the watchers have started."""
        if self.console is not None:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def run(self) -> Path:
        """All of it."""
        in_main(self.group, self._claim_folder)
        self.start = open_start(self.recipe, self.group)
        in_main(self.group, self._open_teachers, patient=True)
        prepared = self._prepared()
        resumed = self._last_step()
        checkpoint = None if resumed is None else self.checkpoints.load(resumed)
        self._set_threads(None if checkpoint is None else checkpoint.state["threads"])
        lessons = self._lessons(prepared)
        loop = self._loop(prepared, lessons, drawn=checkpoint is None)
        if checkpoint is not None:
            loop.restore(checkpoint)
        for watcher in self.watchers:
            watcher.started(
                self.recipe, loop.model.num_parameters(), prepared.report, resumed_from=resumed
            )
        try:
            with self.signals:
                reason = loop.run()
                summary = self._finish(loop, prepared, reason)
        except InterruptedValidationError:
            asked = max(self.group.gathered(self.signals.asked or 0))
            stopped = StoppedError(asked, loop.place.step, self.folder)
            self._end("stopped", loop)
            raise stopped from None
        except BaseException as error:
            asked_for = isinstance(error, StoppedError | KeyboardInterrupt)
            self._end("stopped" if asked_for else "failed", loop)
            raise
        for watcher in self.watchers:
            watcher.finished(summary)
        in_main(self.group, lambda: write_report(self.folder))
        return self.folder / BUNDLE

    def _end(self, how: str, loop: Loop) -> None:
        """Tell the watchers of an end before time; a person gets the error's own line."""
        for watcher in self.watchers:
            seen = isinstance(watcher, Lines | Panel)
            with contextlib.suppress(PellucidError, OSError):
                watcher.finished({} if seen else {"ended": how, "steps": loop.place.step})

    def _claim_folder(self) -> None:
        """Make the folder this run's: it must be new, or be resumed with a recipe that fits."""
        path = self.folder / RECIPE
        begun = bool(self.checkpoints.steps())
        if begun and not self.resume:
            raise InputError(
                f"{self.folder} holds a run that has begun: go on with --resume, or choose "
                "another place with --folder"
            )
        if self.resume and begun and path.is_file():
            self._check_changes(load_recipe(path))
        elif self.resume and not begun:
            self.say(f"nothing to resume in {self.folder}: starting from the beginning")
        text = as_toml(self.recipe)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{RECIPE}.writing")
            draft.write_text(text, encoding="utf-8")
            os.replace(draft, path)
        except OSError as error:
            raise explained(error, "the recipe", self.folder) from None

    def _check_changes(self, old: Recipe) -> None:
        changes = recipe_differences(old, self.recipe)

        def listed(may: bool) -> str:
            return ", ".join(
                f"{c.key} ({c.old!r} to {c.new!r})" for c in changes if c.may_change == may
            )

        if listed(may=False):
            also = f"; these may change: {listed(may=True)}" if listed(may=True) else ""
            raise ConfigError(
                f"the recipe is not that of the run in {self.folder}: these must not change when "
                f"it is resumed: {listed(may=False)}{also}; put them back, or start anew with "
                "--folder"
            )
        if changes:
            self.say(f"resuming with changes: {listed(may=True)}")

    def _prepared(self) -> PreparedData:
        """The data, made or found by process 0 and opened by all."""
        folder = self.folder / DATA

        def made() -> PreparedData:
            pieces = pieces_for(self.recipe, self.start)
            return prepare(self.recipe.data, pieces, folder, console=self.console)

        prepared = in_main(self.group, made, patient=True)
        return prepared or PreparedData.open(folder, verify=False)

    def _begun(self) -> bool:
        """Whether this goes on with a run that has a checkpoint."""
        return self.resume and bool(self.checkpoints.steps())

    def _last_step(self) -> int | None:
        """The step to go on from, or None for a new run."""

        def found() -> int | None:
            if not self._begun():
                return None
            step = self.checkpoints.last_whole()
            if step is None:
                raise PellucidError(
                    f"every checkpoint in {self.checkpoints.folder} is damaged: nothing to go on "
                    "from; move them away to start anew"
                )
            return step

        last: int | None = self.group.from_main(in_main(self.group, found))
        return last

    def _set_threads(self, before: int | None) -> None:
        """As the recipe says; or as the run began, so that it goes on with the same bits."""
        threads = self.recipe.training.threads or before
        if threads is not None:
            torch.set_num_threads(threads)

    def _open_teachers(self) -> None:
        """Before anything takes time: one may be missing. A run that has begun has asked them."""
        if self._begun():
            self.lessons = kept_lessons(self.folder / LESSONS)
        if self.lessons is None:
            self.teachers = [open_bundle(name) for name in self.recipe.distillation.teachers]

    def _lessons(self, prepared: PreparedData) -> TeacherProbabilities | None:
        """What the teachers say, if there are any: asked by process 0, opened by all."""
        if not self.recipe.distillation.teachers:
            return None
        folder, console = self.folder / LESSONS, self.console

        def asked() -> str | None:
            if self.lessons is not None:
                return self.lessons
            autocast = autocast_for(self.recipe.training, self.device)
            return ask_teachers(
                self.teachers, prepared, folder, self.device, autocast=autocast, console=console
            )

        key = self.group.from_main(in_main(self.group, asked, patient=True))
        return TeacherProbabilities.open(folder, key, prepared, self.recipe.distillation.weight)

    def _loop(
        self, prepared: PreparedData, lessons: TeacherProbabilities | None, *, drawn: bool
    ) -> Loop:
        recipe, training = self.recipe, self.recipe.training
        torch.manual_seed(seed_of(training.seed, "weights"))
        if self.start is None:
            config = recipe.model.config(prepared.tokenizer.vocab_size)
        else:
            config = start_config(recipe, self.start)
        model = self.group.built(config, drawn=drawn)
        counted = 0.0
        if self.start is not None and drawn:
            load_start(model, self.start, self.group)
        elif training.embedding_init == "cooccurrence" and drawn:
            self.say("counting which words stand together, for the first embeddings")
            seed, began = seed_of(training.seed, "embeddings"), time.monotonic()
            start_embeddings(model, prepared.splits["train"], seed)
            counted = time.monotonic() - began
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
            self.watchers,
            self.group,
            self.signals,
            average=None
            if training.ema_decay is None
            else MovingAverage(model, training.ema_decay),
            lessons=lessons,
            compiled=self._compiled(model),
            autocast=autocast_for(training, self.device),
            place=TrainingState(seconds=counted),  # it is training too
        )

    def _compiled(self, model: Transformer) -> Callable[[Tensor, Tensor], Tensor] | None:
        training = self.recipe.training
        if self.group.world > 1 and training.parallel == "fsdp":
            if training.compile == "on":
                self.say("training.compile = 'on' goes with parallel = 'copies': going on without")
            return None
        return compiled_states(model, training, self.say)

    def _validation(self, prepared: PreparedData, split: str) -> Validation | None:
        if split not in prepared.splits:
            return None
        config = self.recipe.validation
        if split == "test":
            config = config.changed(sentences=0, translate=True)

        def stop() -> bool:
            return self.group.any(self.signals.asked is not None)

        return Validation(prepared, self.recipe.batches, config, self.group, split, stop)

    def _finish(self, loop: Loop, prepared: PreparedData, reason: str) -> dict[str, Any]:
        """Choose the weights, judge them, and write the bundle."""
        result = finish.result_weights(self.recipe, self.checkpoints, loop.place.best)
        share = self.recipe.training.init_interpolation
        if share and (start := open_start(self.recipe, self.group)) is not None:
            result = finish.with_start(result, start, share)
        with self.group.plain(loop.model) as model:
            finish.load_into(model, result.weights)
            model.eval()
            scores: dict[str, Scores] = {}
            if loop.validation is not None:
                found = loop.judged.get(result.judged or 0)
                scores["valid"] = found or loop.validation.run(model)
            test = self._validation(prepared, "test")
            if test is not None:
                scores["test"] = test.run(model)
            in_main(self.group, lambda: self._write(loop, model, prepared, result.what, scores))
        summary: dict[str, Any] = {
            "ended": reason,
            "steps": loop.place.step,
            "epochs": loop.place.epoch,
            "weights": result.what,
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
        scores: dict[str, Scores],
    ) -> None:
        """The files of the result."""
        finish.write_bundle(
            self.folder / BUNDLE,
            self.recipe,
            model,
            prepared,
            weights=weights,
            steps=loop.place.step,
            target_tokens=loop.place.target_tokens,
            scores=scores,
            say=self.say,
        )
        if loop.validation is not None:
            path = self.folder / finish.ATTENTION
            finish.write_attention(path, model, prepared, loop.validation.examples)
