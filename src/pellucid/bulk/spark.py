"""Bulk translation as a function for Spark's `mapInPandas`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pellucid.bulk.rows import Outcome, RowFailure
from pellucid.bulk.worker import translated
from pellucid.decoding.engine_selection import EngineName
from pellucid.errors import InputError
from pellucid.translator.loading import load
from pellucid.translator.translation_report import TranslationReport
from pellucid.translator.translator import Translator

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


def spark_translate(
    model: str | Path,
    *,
    column: str,
    into: str | None = None,
    reason: str | None = None,
    source: str | None = None,
    target: str | None = None,
    beam_size: int = 4,
    engine: str = "auto",
    threads: int = 1,
) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Return a function for `DataFrame.mapInPandas` that translates a column of strings.

    frame.mapInPandas(spark_translate("/models/fr-en", column="text", into="english"),
                      schema="id long, text string, english string")

    model: a name or a folder that each machine has, or a folder that was given to
    `sparkContext.addFile(folder, recursive=True)`. It is loaded once in each of Spark's Python
    processes, with `threads` cores, when the first rows come. into: the column for the translation;
    if unset, it replaces the text. A row that cannot be translated gets no translation (null), and
    the reason in the column that `reason` names. Other columns and the order of rows are kept.
    """
    if not column:
        raise InputError("spark_translate needs column: the name of the column to translate")
    name = str(model)
    settings = {"source": source, "target": target, "beam_size": beam_size}

    def translate(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd

        for frame in frames:
            translator = _loaded(name, engine, threads)
            made = translated(
                translator, [_text(v) for v in frame[column]], settings, TranslationReport()
            )
            new = {into or column: [m if isinstance(m, str) else None for m in made]}
            if reason is not None:
                new[reason] = [m.reason if isinstance(m, RowFailure) else None for m in made]
            # dtype object, in which None stays None
            yield frame.assign(
                **{key: pd.Series(values, frame.index, object) for key, values in new.items()}
            )

    return translate


def _text(value: Any) -> Outcome:
    if isinstance(value, str):
        return value
    if value is None or value != value:  # NaN, which pandas writes for a null
        return None
    return RowFailure("not text", f"{type(value).__name__} and not a string")


@cache
def _loaded(model: str, engine: str, threads: int) -> Translator:
    """Load a translator once per process."""
    if not Path(model).is_dir():
        try:
            from pyspark import SparkFiles  # type: ignore[import-not-found,unused-ignore]

            added = Path(SparkFiles.get(Path(model).name))
        except (ImportError, AttributeError, TypeError, AssertionError):
            added = Path(model)
        model = str(added) if added.is_dir() else model
    return load(model, cast(EngineName, engine), threads=threads)
