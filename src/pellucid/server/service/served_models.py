"""The models of a server: which translates what, and how they are replaced while it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pellucid.bundle import MANIFEST, Bundle
from pellucid.config import split_direction
from pellucid.decoding.engine_selection import EngineName, open_engine
from pellucid.errors import InputError, PellucidError, nearest
from pellucid.server.service.inspection_process import InspectionProcess
from pellucid.server.service.queue import BatchingEngine
from pellucid.translator import Translator
from pellucid.translator.directions import Direction
from pellucid.translator.loading import open_bundle


@dataclass(eq=False)
class ServedModel:
    """A model that is served, and how many requests are using it."""

    name: str
    translator: Translator
    inspection: InspectionProcess
    users: int = 0
    retired: bool = False

    @property
    def fingerprint(self) -> str:
        """Return the hash of all files of the model."""
        return self.translator.bundle.fingerprint

    def close(self) -> None:
        """Translate what is queued, then free the model."""
        engine = self.translator.engine
        if isinstance(engine, BatchingEngine):
            engine.close()
        self.inspection.close()


@dataclass(frozen=True)
class TranslationStep:
    """One model and one direction; translating through a third language takes two steps."""

    model: ServedModel
    direction: Direction


@dataclass(frozen=True)
class DirectionTable:
    """The model of each direction; replaced as a whole when models change."""

    models: tuple[ServedModel, ...]
    by_direction: dict[Direction, ServedModel] = field(default_factory=dict)

    @property
    def default(self) -> ServedModel:
        """Return the first model."""
        return self.models[0]

    @property
    def directions(self) -> list[str]:
        """Return the names of all directions, the default one first."""
        first = self.default.translator.bundle.default_direction
        names = [direction.name for direction in self.by_direction]
        return [first, *(name for name in names if name != first)]


class ServedModels:
    """All models of a server. A model in use stays loaded until its last request has ended."""

    def __init__(self, served: Sequence[ServedModel], *, pivot: bool = False) -> None:
        self.pivot = pivot
        self._lock = threading.Lock()
        self._table = _table(served)

    @property
    def table(self) -> DirectionTable:
        """Return the current table."""
        return self._table

    def sources_for(self, target: str) -> list[str]:
        """Return the languages that can be translated into a language."""
        wanted = _code(target)
        return [d.source for d in self.directions() if d.target.lower() == wanted]

    def directions(self) -> list[Direction]:
        """Return every direction, including those through a third language if pivot is on."""
        direct = list(self._table.by_direction)
        if not self.pivot:
            return direct
        pivoted = [
            Direction(first.source, second.target)
            for first in direct
            for second in direct
            if first.target == second.source and first.source != second.target
        ]
        return list(dict.fromkeys([*direct, *pivoted]))

    @contextmanager
    def using(
        self, source: str, target: str, model: str | None = None
    ) -> Iterator[list[TranslationStep]]:
        """Yield the steps from one language to another; their models stay loaded inside."""
        with self._lock:
            steps = self._steps(source, target, model)
            for step in steps:
                step.model.users += 1
        try:
            yield steps
        finally:
            with self._lock:
                for step in steps:
                    step.model.users -= 1
                unused = {s.model for s in steps if s.model.retired and not s.model.users}
            for retired in unused:
                threading.Thread(target=retired.close, daemon=True).start()

    def _steps(self, source: str, target: str, model: str | None) -> list[TranslationStep]:
        table = self._table.by_direction
        if model is not None:
            named = [m for m in self._table.models if m.name == model]
            if not named:
                known = [m.name for m in self._table.models]
                raise InputError(f"there is no model {model!r} here ({nearest(model, known)})")
            return [TranslationStep(named[0], named[0].translator.direction(source, target))]
        for given, codes in (
            (source, {direction.source for direction in table}),
            (target, {direction.target for direction in table}),
        ):
            if _code(given) not in {code.lower() for code in codes}:
                near = nearest(given, sorted(codes))
                raise InputError(f"the language {given!r} is not served here ({near})")
        wanted = _code(source), _code(target)
        for direction, served in table.items():
            if (direction.source.lower(), direction.target.lower()) == wanted:
                return [TranslationStep(served, direction)]
        for first, served in table.items() if self.pivot else ():
            for second, other in table.items():
                if (first.source.lower(), second.target.lower()) == wanted and (
                    first.target == second.source
                ):
                    return [TranslationStep(served, first), TranslationStep(other, second)]
        offered = ", ".join(self._table.directions)
        raise InputError(
            f"no model here translates from {source} to {target}; the directions are {offered}"
        )

    def replace(self, served: Sequence[ServedModel]) -> list[ServedModel]:
        """Serve these models from now on; requests in progress finish with the one they began with.

        Return the replaced models that are not in use, to be closed; the others close themselves.
        """
        table = _table(served)
        with self._lock:
            replaced = [model for model in self._table.models if model not in served]
            self._table = table
            for model in replaced:
                model.retired = True
            return [model for model in replaced if not model.users]

    def close(self) -> None:
        """Close all models."""
        for model in self._table.models:
            model.close()


def _table(served: Sequence[ServedModel]) -> DirectionTable:
    """Give each direction to the first model that offers it."""
    if not served:
        raise InputError("there is no model to serve: name one with --model")
    by_direction: dict[Direction, ServedModel] = {}
    for model in served:
        for name in model.translator.directions:
            by_direction.setdefault(Direction(*split_direction(name)), model)
    return DirectionTable(tuple(served), by_direction)


class ModelLoader:
    """Loads the models that the operator named: bundles, or folders of bundles.

    max_queued: maximum number of sentences in the queue of each.
    """

    def __init__(
        self,
        names: Sequence[str],
        engine: EngineName = "auto",
        workers: int | None = None,
        max_queued: int = 4096,
    ) -> None:
        self.names, self.engine, self.workers = tuple(names), engine, workers
        self.max_queued = max_queued

    def load(self, loaded: Sequence[ServedModel] = ()) -> list[ServedModel]:
        """Load all models; one of `loaded` whose files have not changed is kept."""
        models: list[ServedModel] = []
        try:
            for name in self.names or (None,):
                for bundle in self._bundles(name):
                    models.append(self._load_one(bundle, models, loaded))
        except PellucidError:
            for model in models:
                if model not in loaded:
                    model.close()
            raise
        return models

    def _bundles(self, name: str | None) -> list[Bundle]:
        folder = Path(name).expanduser() if name is not None else None
        if folder is not None and folder.is_dir() and not (folder / MANIFEST).is_file():
            inner = [one for one in sorted(folder.iterdir()) if (one / MANIFEST).is_file()]
            if inner:
                return [open_bundle(one) for one in inner]
        return [open_bundle(name)]

    def _load_one(
        self, bundle: Bundle, before: Sequence[ServedModel], loaded: Sequence[ServedModel]
    ) -> ServedModel:
        name = bundle.folder.name
        if any(model.name == name for model in before):
            name = f"{name}-{len(before) + 1}"
        for model in loaded:
            if model.name == name and model.fingerprint == bundle.fingerprint:
                return model
        # With CTranslate2, torch stays out of this process: beside it, CTranslate2 is slower.
        kind: EngineName = "ct2" if self.engine == "auto" and bundle.has_ct2 else self.engine
        engine = open_engine(bundle, kind, self.workers)
        batching = BatchingEngine(engine, workers=engine.threads, max_queued=self.max_queued)
        return ServedModel(name, Translator(bundle, batching), InspectionProcess(bundle.folder))


def reload(models: ServedModels, loader: ModelLoader) -> tuple[list[str], list[str]]:
    """Load what has changed on disk; return the names of the added and of the removed models.

    If one cannot be loaded, nothing changes, and the error says which.
    """
    before = models.table.models
    after = loader.load(before)
    try:
        unused = models.replace(after)
    except PellucidError:
        for model in after:
            if model not in before:
                model.close()
        raise
    for model in unused:
        model.close()
    added = [model.name for model in after if model not in before]
    return added, [model.name for model in before if model not in after]


def _code(language: str) -> str:
    """Normalize a language code as in directions, in lower case: "pt-BR" is "pt_br"."""
    return language.strip().replace("-", "_").lower()
