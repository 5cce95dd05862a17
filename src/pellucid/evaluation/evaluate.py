"""Judge a system: translate, score, compare, and look for what is worth a look."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import split_direction
from pellucid.console.progress import Progress, ProgressStep
from pellucid.errors import InputError
from pellucid.evaluation import length_groups as lengths
from pellucid.evaluation.findings import findings
from pellucid.evaluation.metrics.comet import Comet
from pellucid.evaluation.metrics.sacrebleu import (
    Counts,
    Measure,
    check_tokenizer,
    sacrebleu_measures,
)
from pellucid.evaluation.overlap import Overlap, find_overlap
from pellucid.evaluation.results import Comparison, Evaluation, Judgement, Score
from pellucid.evaluation.significance import Scores, difference, interval, resampled
from pellucid.evaluation.systems import (
    Candidate,
    Given,
    System,
    named_apart,
    open_candidate,
    translate,
)
from pellucid.evaluation.test_set import (
    Lines,
    Material,
    fitting_way,
    read_sides,
    read_two_sided,
    same_length,
)
from pellucid.evaluation.warnings import cautions

SEED = 12345
"""sacreBLEU's, so that its command gives the same intervals and p-values."""


def evaluate(
    model: Given,
    *,
    source: Lines | None = None,
    references: Path | str | Sequence[Lines] = (),
    pairs: Path | str | None = None,
    languages: tuple[str, str] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    against: Sequence[Given] = (),
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
    """Judge a model (its name, folder or `Translator`) or translations (a file, or a list).

    source: a file or a list of sentences. references: a file, or a list with a file or a list of
    sentences for each set of references. pairs and languages: one file with both sides, in place
    of the two. against: other models or translations to compare with. train: files of training
    data, to find what of the test stands in them. resamples: 0 leaves intervals and p-values out.
    chrf_words: 2 for chrF++. ter: False leaves it out (it is slow where lines have hundreds of
    words). comet: a checkpoint. options: any of `DecodingOptions`.

    What is wrong with the call or the files is an `InputError` before anything is translated.
    """
    _check_settings(resamples, seed, chrf_words)
    check_tokenizer(tokenize)
    _check_files([*train, *([pairs] if pairs is not None else [])])
    if pairs is not None and languages is None:
        raise InputError(f"say which languages {pairs} has: --languages FIRST,SECOND")
    asked = (source_language, target_language)
    two_sided = None if pairs is None or languages is None else (Path(pairs), languages)
    material, candidates, way = _opened(
        [model, *against], engine, asked, source, references, two_sided
    )
    measures: list[Measure] = [
        *sacrebleu_measures(
            material.references,
            language=way[1],
            tokenize=tokenize,
            lowercase=lowercase,
            chrf_words=chrf_words,
            ter=ter,
        )
    ]
    if comet is not None:
        measures.append(Comet(Path(comet), material.references[0]))
    overlap = None
    if train:
        known = languages or (way if all(way) else None)
        overlap = find_overlap(material, [Path(file) for file in train], known)
    progress = progress or Progress()
    options = {"beam": beam_size, **options}
    systems = [translate(one, material.sources, way, options, progress) for one in candidates]
    settings = {"tokenize": check_tokenizer(tokenize, way[1]), "lowercase": lowercase}
    settings |= {"chrf_words": chrf_words, "resamples": resamples, "seed": seed}
    if any(one.translator for one in candidates):
        settings |= {"engine": engine, **options}
    step = progress.step("scoring", "systems", len(systems))
    judged, compared = _judged(material, systems, measures, overlap, resamples, seed, step)
    return Evaluation(
        material,
        *way,
        judged,
        compared,
        cautions(material, systems),
        settings,
        datetime.now(UTC).isoformat(timespec="seconds"),
        overlap,
    )


def _opened(
    systems: Sequence[Given],
    engine: str,
    asked: tuple[str | None, str | None],
    source: Lines | None,
    references: Path | str | Sequence[Lines],
    two_sided: tuple[Path, tuple[str, str]] | None,
) -> tuple[Material, list[Candidate], tuple[str, str]]:
    """What to judge on, who is judged, and from which language to which: all that can be wrong."""
    if (two_sided is None) == (source is None):
        raise InputError("give the sentences as --source and --reference, or as --pairs")
    if two_sided is not None and references:
        raise InputError("--pairs has the references in it: leave --reference out")
    if isinstance(references, Path | str):
        references = [references]
    material = None if source is None else read_sides(source, references)
    candidates = named_apart(
        [
            open_candidate(given, engine, "other" if place else "translations")
            for place, given in enumerate(systems)
        ]
    )
    way = _way(candidates, asked, two_sided[1] if two_sided else None)
    if material is None:
        assert two_sided is not None
        material = read_two_sided(*two_sided, way)
    for one in candidates:
        if one.lines is not None:
            same_length(one.name, one.lines, material.source_name, material.sources)
    return material, candidates, way


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


def _way(
    candidates: Sequence[Candidate],
    asked: tuple[str | None, str | None],
    languages: tuple[str, str] | None,
) -> tuple[str, str]:
    """From which language to which; every model must know the way."""
    models = [(one.name, one.translator) for one in candidates if one.translator is not None]
    if not models:
        first, second = languages or ("", "")
        if languages and (asked[0] == second or asked[1] == first):
            first, second = second, first
        return asked[0] or first, asked[1] or second
    first_model = models[0][1]
    way: tuple[str, str] = first_model.direction(*asked)
    if languages is not None and asked == (None, None):
        offered = [split_direction(direction) for direction in first_model.directions]
        way = fitting_way(languages, [way, *offered]) or way
    for name, other in models[1:]:
        try:
            other.direction(*way)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return way[0], way[1]


def _judged(
    material: Material,
    systems: Sequence[System],
    measures: Sequence[Measure],
    overlap: Overlap | None,
    resamples: int,
    seed: int,
    step: ProgressStep,
) -> tuple[list[Judgement], list[Comparison]]:
    judged, compared = [], []
    found = lengths.groups(material.sources)
    drawn: list[dict[str, Scores]] = []
    for system in systems:
        counts = {m.key: m.counts(material.sources, system.texts) for m in measures}
        drawn.append(
            {m.key: resampled(m, counts[m.key], resamples, seed) for m in measures}
            if resamples
            else {}
        )
        judged.append(
            Judgement(
                system,
                {m.key: _score(m, counts[m.key], drawn[-1], resamples, seed) for m in measures},
                [_chrf(measures).score(row) for row in counts["chrf"]],
                lengths.by_length(found, material, system.texts, measures, counts),
                findings(material, system),
                _unseen(measures, counts, overlap),
            )
        )
        step.advance(1)
    for other, others in zip(judged[1:], drawn[1:], strict=True) if resamples else ():
        for key, score in judged[0].scores.items():
            value = score.value - other.scores[key].value
            compared.append(
                Comparison(
                    judged[0].name,
                    other.name,
                    score,
                    difference(
                        value, drawn[0][key], others[key], higher_is_better=score.higher_is_better
                    ),
                    drawn[0][key] - others[key],
                )
            )
    return judged, compared


def _chrf(measures: Sequence[Measure]) -> Measure:
    """What single sentences are judged by: it is never undefined, and BLEU often is nothing."""
    return next(measure for measure in measures if measure.key == "chrf")


def _score(
    measure: Measure, counts: Counts, drawn: dict[str, Scores], resamples: int, seed: int
) -> Score:
    summed = counts.sum(axis=0)
    return Score(
        measure.key,
        measure.name,
        measure.score(summed),
        measure.higher_is_better,
        measure.signature(resamples, seed),
        measure.digits,
        interval(drawn[measure.key]) if drawn else None,
        measure.detail(summed),
    )


def _unseen(
    measures: Sequence[Measure], counts: dict[str, Counts], overlap: Overlap | None
) -> dict[str, float] | None:
    """Scores without the sentences that training data have."""
    if overlap is None:
        return None
    keep = np.ones(len(next(iter(counts.values()))), dtype=bool)
    keep[overlap.similar] = False
    if not keep.any():
        return {}
    return {m.key: m.score(counts[m.key][keep].sum(axis=0)) for m in measures}
