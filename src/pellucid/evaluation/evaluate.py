"""Evaluate systems: translate, score, compare, and find sentences worth a look."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import split_direction
from pellucid.console.progress import Progress, ProgressStep
from pellucid.errors import InputError
from pellucid.evaluation.findings import findings
from pellucid.evaluation.length_groups import group_by_length, score_by_length
from pellucid.evaluation.metrics.bleu import Bleu, bleu_tokenizer
from pellucid.evaluation.metrics.chrf import Chrf
from pellucid.evaluation.metrics.comet import Comet
from pellucid.evaluation.metrics.corpus_metric import CorpusMetric, Statistics
from pellucid.evaluation.metrics.ter import Ter
from pellucid.evaluation.overlap import Overlap, find_overlap
from pellucid.evaluation.results import Comparison, Evaluation, Score, SystemEvaluation
from pellucid.evaluation.significance import (
    ResampledScores,
    interval,
    paired_difference,
    resample_scores,
)
from pellucid.evaluation.systems import (
    OpenedSystem,
    SystemOutput,
    SystemSpec,
    open_system,
    translate,
    with_unique_names,
)
from pellucid.evaluation.test_set import (
    EvaluationSet,
    Lines,
    check_same_length,
    matching_direction,
    read_pairs_file,
    read_sides,
)
from pellucid.evaluation.warnings import find_warnings

SEED = 12345
"""sacreBLEU's default, so that its command gives the same intervals and p-values."""


def evaluate(
    model: SystemSpec,
    *,
    source: Lines | None = None,
    references: Path | str | Sequence[Lines] = (),
    pairs: Path | str | None = None,
    languages: tuple[str, str] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    against: Sequence[SystemSpec] = (),
    train: Sequence[Path | str] = (),
    beam_size: int = 4,
    engine: str = "auto",
    tokenize: str | None = None,
    lowercase: bool = False,
    chrf_words: int = 0,
    ter: bool = True,
    resamples: int = 1000,
    seed: int = SEED,
    comet: Path | str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Evaluation:
    """Evaluate a model (its name, folder or `Translator`) or translations (a file, or a list).

    source: a file or a list of sentences. references: a file, or a list with a file or a list of
    sentences for each set of references. pairs and languages: one file with both sides, in place
    of the two. against: other models or translations to compare with. train: files of training
    data, which are searched for sentences of the test. resamples: bootstrap resamples; 0 for no
    intervals and p-values. chrf_words: 2 for chrF++. ter: False to skip TER (it is slow for lines
    of hundreds of words). comet: a checkpoint. options: any of `DecodingOptions`.

    A mistake in the call or in the files is an `InputError` before anything is translated.
    """
    _check_settings(resamples, seed, chrf_words)
    bleu_tokenizer(tokenize)
    _check_files([*train, *([pairs] if pairs is not None else [])])
    if pairs is not None and languages is None:
        raise InputError(f"say which languages {pairs} has: --languages FIRST,SECOND")
    asked = (source_language, target_language)
    two_sided = None if pairs is None or languages is None else (Path(pairs), languages)
    test_set, opened, direction = _open(
        [model, *against], engine, asked, source, references, two_sided
    )
    refs, language = test_set.references, direction[1]
    metrics: list[CorpusMetric] = [
        Bleu(refs, language=language, tokenize=tokenize, lowercase=lowercase),
        Chrf(refs, words=chrf_words, lowercase=lowercase),
    ]
    if ter:
        metrics.append(Ter(refs, language=language))
    if comet is not None:
        metrics.append(Comet(Path(comet), refs[0]))
    overlap = None
    if train:
        known = languages or (direction if all(direction) else None)
        overlap = find_overlap(test_set, [Path(file) for file in train], known)
    progress = progress or Progress()
    options = {"beam_size": beam_size, **options}
    outputs = [translate(one, test_set.sources, direction, options, progress) for one in opened]
    settings = {"tokenize": bleu_tokenizer(tokenize, language), "lowercase": lowercase}
    settings |= {"chrf_words": chrf_words, "resamples": resamples, "seed": seed}
    if any(one.translator for one in opened):
        settings |= {"engine": engine, **options}
    step = progress.step("scoring", "systems", len(outputs))
    systems, comparisons = _score_all(test_set, outputs, metrics, overlap, resamples, seed, step)
    return Evaluation(
        test_set,
        *direction,
        systems,
        comparisons,
        find_warnings(test_set, outputs),
        settings,
        datetime.now(UTC).isoformat(timespec="seconds"),
        overlap,
    )


def _open(
    systems: Sequence[SystemSpec],
    engine: str,
    asked: tuple[str | None, str | None],
    source: Lines | None,
    references: Path | str | Sequence[Lines],
    two_sided: tuple[Path, tuple[str, str]] | None,
) -> tuple[EvaluationSet, list[OpenedSystem], tuple[str, str]]:
    """Open the test set and the systems and choose the direction: everything that can be wrong."""
    if (two_sided is None) == (source is None):
        raise InputError("give the sentences as --source and --reference, or as --pairs")
    if two_sided is not None and references:
        raise InputError("--pairs has the references in it: leave --reference out")
    if isinstance(references, Path | str):
        references = [references]
    test_set = None if source is None else read_sides(source, references)
    opened = with_unique_names(
        [
            open_system(spec, engine, "other" if number else "translations")
            for number, spec in enumerate(systems)
        ]
    )
    direction = _direction(opened, asked, two_sided[1] if two_sided else None)
    if test_set is None:
        assert two_sided is not None
        test_set = read_pairs_file(*two_sided, direction)
    for one in opened:
        if one.lines is not None:
            check_same_length(one.name, one.lines, test_set.source_name, test_set.sources)
    return test_set, opened, direction


def _check_settings(resamples: int, seed: int, chrf_words: int) -> None:
    if resamples != 0 and resamples < 40:
        raise InputError(f"{resamples} resamples are too few: take 1000, or 0 for none")
    if seed < 1:
        raise InputError(f"the seed must be 1 or more, and it is {seed}")
    if not 0 <= chrf_words <= 2:
        raise InputError(f"chrf_words is 0 (chrF), 1 or 2 (chrF++), and it is {chrf_words}")


def _check_files(files: Sequence[Path | str]) -> None:
    for file in files:
        if Path(file).is_dir():
            raise InputError(f"{file} is a folder: name a file in it")
        if not Path(file).is_file():
            raise InputError(f"there is no file {file}: check the name")


def _direction(
    opened: Sequence[OpenedSystem],
    asked: tuple[str | None, str | None],
    languages: tuple[str, str] | None,
) -> tuple[str, str]:
    """Choose the translation direction, which every model must offer."""
    models = [(one.name, one.translator) for one in opened if one.translator is not None]
    if not models:
        first, second = languages or ("", "")
        if languages and (asked[0] == second or asked[1] == first):
            first, second = second, first
        return asked[0] or first, asked[1] or second
    first_model = models[0][1]
    direction: tuple[str, str] = first_model.direction(*asked)
    if languages is not None and asked == (None, None):
        offered = [split_direction(direction) for direction in first_model.directions]
        direction = matching_direction(languages, [direction, *offered]) or direction
    for name, other in models[1:]:
        try:
            other.direction(*direction)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return direction[0], direction[1]


def _score_all(
    test_set: EvaluationSet,
    outputs: Sequence[SystemOutput],
    metrics: Sequence[CorpusMetric],
    overlap: Overlap | None,
    resamples: int,
    seed: int,
    step: ProgressStep,
) -> tuple[list[SystemEvaluation], list[Comparison]]:
    """Score every system, and compare the first with each other one."""
    systems = []
    groups = group_by_length(test_set.sources)
    resampled: list[dict[str, ResampledScores]] = []
    for output in outputs:
        statistics = {m.key: m.statistics(test_set.sources, output.texts) for m in metrics}
        resampled.append(
            {m.key: resample_scores(m, statistics[m.key], resamples, seed) for m in metrics}
            if resamples
            else {}
        )
        scores = {
            m.key: _score(m, statistics[m.key], resampled[-1], resamples, seed) for m in metrics
        }
        systems.append(
            SystemEvaluation(
                output,
                scores,
                [_chrf(metrics).score(row) for row in statistics["chrf"]],
                score_by_length(groups, test_set, output.texts, metrics, statistics),
                findings(test_set, output),
                _unseen(metrics, statistics, overlap),
            )
        )
        step.advance(1)
    comparisons = [
        _compare(systems[0], other, key, resampled[0][key], scores[key])
        for other, scores in zip(systems[1:], resampled[1:], strict=True)
        if resamples
        for key in systems[0].scores
    ]
    return systems, comparisons


def _compare(
    system: SystemEvaluation,
    other: SystemEvaluation,
    key: str,
    ours: ResampledScores,
    theirs: ResampledScores,
) -> Comparison:
    score = system.scores[key]
    difference = paired_difference(
        score.value - other.scores[key].value,
        ours,
        theirs,
        higher_is_better=score.higher_is_better,
    )
    return Comparison(system.name, other.name, score, difference, ours - theirs)


def _chrf(metrics: Sequence[CorpusMetric]) -> CorpusMetric:
    """The metric of single sentences: chrF is always defined, and sentence BLEU is mostly 0."""
    return next(metric for metric in metrics if metric.key == "chrf")


def _score(
    metric: CorpusMetric,
    statistics: Statistics,
    resampled: dict[str, ResampledScores],
    resamples: int,
    seed: int,
) -> Score:
    summed = statistics.sum(axis=0)
    return Score(
        metric.key,
        metric.name,
        metric.score(summed),
        metric.higher_is_better,
        metric.signature(resamples, seed),
        metric.digits,
        interval(resampled[metric.key]) if resampled else None,
        metric.detail(summed),
    )


def _unseen(
    metrics: Sequence[CorpusMetric],
    statistics: dict[str, Statistics],
    overlap: Overlap | None,
) -> dict[str, float] | None:
    """Score the test set without the sentences that are in the training data."""
    if overlap is None:
        return None
    keep = np.ones(len(next(iter(statistics.values()))), dtype=bool)
    keep[overlap.similar] = False
    if not keep.any():
        return {}
    return {m.key: m.score(statistics[m.key][keep].sum(axis=0)) for m in metrics}
