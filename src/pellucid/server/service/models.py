"""The models of a server: which way goes through which, and how they come and go while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pellucid.bundle import MANIFEST, Bundle
from pellucid.config import split_direction
from pellucid.decoding.engine_selection import EngineName, open_engine
from pellucid.errors import InputError, PellucidError, nearest
from pellucid.server.service.batching import BatchingEngine
from pellucid.server.service.inspect_process import Looks
from pellucid.translator import Translator
from pellucid.translator.directions import Direction
from pellucid.translator.loading import open_bundle

Opened = Callable[[Bundle], Translator]


@dataclass(eq=False)
class Served:
    """A model that is served, and how many requests are with it."""

    name: str
    translator: Translator
    looks: Looks
    users: int = 0
    retired: bool = False

    @property
    def fingerprint(self) -> str:
        """Stands for every byte of the model."""
        return self.translator.bundle.fingerprint

    def close(self) -> None:
        """Finish what is waiting, and let go of everything."""
        engine = self.translator.engine
        if isinstance(engine, BatchingEngine):
            engine.close()
        self.looks.close()


@dataclass(frozen=True)
class RouteStep:
    """One model, one direction."""

    model: Served
    way: Direction


@dataclass(frozen=True)
class Table:
    """Which directions there are; replaced as a whole when models change."""

    models: tuple[Served, ...]
    ways: dict[Direction, Served] = field(default_factory=dict)

    @property
    def default(self) -> Served:
        """The first model."""
        return self.models[0]

    @property
    def directions(self) -> list[str]:
        """All of them, the default one first."""
        first = self.default.translator.bundle.default_direction
        names = [way.name for way in self.ways]
        return [first, *(name for name in names if name != first)]


class Models:
    """Models behind one table. What is looked up stays loaded until it is given back."""

    def __init__(self, served: Sequence[Served], *, pivot: bool = False) -> None:
        self.pivot = pivot
        self._lock = threading.Lock()
        self._table = self._made(served)

    @property
    def table(self) -> Table:
        """What there is now."""
        return self._table

    def _made(self, served: Sequence[Served]) -> Table:
        """The first model that offers a direction serves it."""
        if not served:
            raise InputError("there is no model to serve: name one with --model")
        ways: dict[Direction, Served] = {}
        for model in served:
            for name in model.translator.directions:
                ways.setdefault(Direction(*split_direction(name)), model)
        return Table(tuple(served), ways)

    def sources_for(self, target: str) -> list[str]:
        """The languages from which one can be reached."""
        wanted = _code(target)
        return [w.source for w in self.reachable() if w.target.lower() == wanted]

    def reachable(self) -> list[Direction]:
        """Every direction, those through a third language included where that is allowed."""
        ways = list(self._table.ways)
        if not self.pivot:
            return ways
        through = dict.fromkeys(
            Direction(a.source, b.target)
            for a in ways
            for b in ways
            if a.target == b.source and a.source != b.target
        )
        return list(dict.fromkeys([*ways, *through]))

    @contextmanager
    def using(
        self, source: str, target: str, model: str | None = None
    ) -> Iterator[list[RouteStep]]:
        """The steps from one language to another. Their models stay until this is left."""
        with self._lock:
            steps = self._route(source, target, model)
            for step in steps:
                step.model.users += 1
        try:
            yield steps
        finally:
            with self._lock:
                for step in steps:
                    step.model.users -= 1
                over = {s.model for s in steps if s.model.retired and not s.model.users}
            for gone in over:
                threading.Thread(target=gone.close, daemon=True).start()

    def _route(self, source: str, target: str, model: str | None) -> list[RouteStep]:
        ways = self._table.ways
        if model is not None:
            named = [m for m in self._table.models if m.name == model]
            if not named:
                known = [m.name for m in self._table.models]
                raise InputError(f"there is no model {model!r} here ({nearest(model, known)})")
            return [RouteStep(named[0], named[0].translator.direction(source, target))]
        for given, codes in (
            (source, {w.source for w in ways}),
            (target, {w.target for w in ways}),
        ):
            if _code(given) not in {code.lower() for code in codes}:
                near = nearest(given, sorted(codes))
                raise InputError(f"the language {given!r} is not served here ({near})")
        wanted = _code(source), _code(target)
        for way, served in ways.items():
            if (way.source.lower(), way.target.lower()) == wanted:
                return [RouteStep(served, way)]
        for first, served in ways.items() if self.pivot else ():
            for second, other in ways.items():
                if (first.source.lower(), second.target.lower()) == wanted and (
                    first.target == second.source
                ):
                    return [RouteStep(served, first), RouteStep(other, second)]
        offers = ", ".join(self._table.directions)
        raise InputError(f"there is no way from {source} to {target} here; there is {offers}")

    def replace(self, served: Sequence[Served]) -> list[Served]:
        """Serve these from now on. What is under way is finished by the model it began with.

        Models that nobody uses any more are returned for closing; the others close themselves.
        """
        table = self._made(served)
        with self._lock:
            gone = [model for model in self._table.models if model not in served]
            self._table = table
            for model in gone:
                model.retired = True
            return [model for model in gone if not model.users]

    def close(self) -> None:
        """Let go of all models."""
        for model in self._table.models:
            model.close()


class Library:
    """Opens what the operator named: bundles, or folders of bundles, which may change."""

    def __init__(
        self,
        names: Sequence[str],
        engine: EngineName = "auto",
        workers: int | None = None,
        most: int = 4096,
    ) -> None:
        self.names, self.engine, self.workers, self.most = tuple(names), engine, workers, most

    def opened(self, kept: Sequence[Served] = ()) -> list[Served]:
        """All models, opened; one that is as it was is taken from `kept`."""
        found: list[Served] = []
        try:
            for name in self.names or (None,):
                for bundle in self._bundles(name):
                    found.append(self._one(bundle, found, kept))
        except PellucidError:
            for model in found:
                if model not in kept:
                    model.close()
            raise
        return found

    def _one(self, bundle: Bundle, before: Sequence[Served], kept: Sequence[Served]) -> Served:
        title = bundle.folder.name
        if any(model.name == title for model in before):
            title = f"{title}-{len(before) + 1}"
        for model in kept:
            if model.name == title and model.fingerprint == bundle.fingerprint:
                return model
        return self._served(title, bundle)

    def _bundles(self, name: str | None) -> list[Bundle]:
        folder = Path(name).expanduser() if name is not None else None
        if folder is not None and folder.is_dir() and not (folder / MANIFEST).is_file():
            inner = [one for one in sorted(folder.iterdir()) if (one / MANIFEST).is_file()]
            if inner:
                return [open_bundle(one) for one in inner]
        return [open_bundle(name)]

    def _served(self, title: str, bundle: Bundle) -> Served:
        # With CTranslate2, torch stays out of this process: beside it, CTranslate2 is slower.
        name: EngineName = "ct2" if self.engine == "auto" and bundle.has_ct2 else self.engine
        engine = open_engine(bundle, name, self.workers)
        workers = getattr(engine, "threads", 1)
        batching = BatchingEngine(engine, workers=workers, most=self.most)
        return Served(title, Translator(bundle, batching), Looks(bundle.folder))


def reload(models: Models, library: Library) -> tuple[list[str], list[str]]:
    """Open again what has changed on disk; the names of models that came and that went.

    If any cannot be opened, all stays as it was, and the error says which.
    """
    before = models.table.models
    after = library.opened(before)
    try:
        idle = models.replace(after)
    except PellucidError:
        for model in after:
            if model not in before:
                model.close()
        raise
    for model in idle:
        model.close()
    came = [model.name for model in after if model not in before]
    return came, [model.name for model in before if model not in after]


def _code(language: str) -> str:
    """A language code as directions write it, in lower case: "pt-BR" is "pt_br"."""
    return language.strip().replace("-", "_").lower()
