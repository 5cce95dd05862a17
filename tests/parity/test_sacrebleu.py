"""Scores, signatures, intervals and p-values are those that sacreBLEU gives by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from pellucid.evaluation import evaluate, significance
from pellucid.evaluation.metrics import sacrebleu
from pellucid.evaluation.metrics.bleu import Bleu
from pellucid.evaluation.metrics.chrf import Chrf
from pellucid.evaluation.metrics.corpus_metric import CorpusMetric
from pellucid.evaluation.metrics.ter import Ter
from tests.systems import french_and_english, spoiled

SOURCES, ENGLISH = french_and_english(80)
REFERENCES = [ENGLISH, spoiled(ENGLISH, 0.1, 1), spoiled(ENGLISH, 0.2, 2)]
SYSTEMS = [spoiled(ENGLISH, share, seed) for share, seed in ((0.2, 3), (0.25, 4), (0.6, 5))]


def ours(references: list[list[str]]) -> list[CorpusMetric]:
    return [Bleu(references), Chrf(references), Ter(references)]


def by_hand(count: int, **settings: Any) -> dict[str, Any]:
    """sacreBLEU's metrics with so many references, made as its users make them."""
    lowercase = settings.get("lowercase", False)
    references = REFERENCES[:count]
    return {
        "bleu": BLEU(lowercase=lowercase, tokenize=settings.get("tokenize"), references=references),
        "chrf": CHRF(
            lowercase=lowercase, word_order=settings.get("chrf_words", 0), references=references
        ),
        "ter": TER(references=references),
    }


@pytest.mark.parametrize(
    ("count", "settings"),
    [
        (1, {}),
        (3, {}),
        (1, {"lowercase": True, "chrf_words": 2}),
        (2, {"tokenize": "intl", "chrf_words": 1}),
        (1, {"tokenize": "char"}),
        (2, {"tokenize": "none"}),
        (1, {"tokenize": "zh"}),
    ],
)
def test_scores_and_signatures(count: int, settings: dict[str, Any]) -> None:
    found = evaluate(
        SYSTEMS[0], source=SOURCES, references=REFERENCES[:count], resamples=0, **settings
    )
    for key, metric in by_hand(count, **settings).items():
        score = metric.corpus_score(SYSTEMS[0], None)
        assert found.scores[key].value == pytest.approx(score.score, abs=1e-9)
        assert found.scores[key].signature == str(metric.get_signature())
        assert found.scores[key].interval is None
    bleu = by_hand(count, **settings)["bleu"].corpus_score(SYSTEMS[0], None)
    detail = found.scores["bleu"].to_dict()
    assert detail["precisions"] == pytest.approx(bleu.precisions)
    assert detail["brevity_penalty"] == pytest.approx(bleu.bp)
    assert detail["length_ratio"] == pytest.approx(bleu.ratio)
    chrf = by_hand(count, **settings)["chrf"]
    for place in range(0, len(SOURCES), 9):
        alone = chrf.sentence_score(SYSTEMS[0][place], [r[place] for r in REFERENCES[:count]])
        assert found.systems[0].sentence_chrf[place] == pytest.approx(alone.score, abs=1e-9)


@pytest.mark.parametrize(("count", "seed"), [(1, 12345), (2, 7)])
def test_paired_bootstrap(monkeypatch: pytest.MonkeyPatch, count: int, seed: int) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", str(seed))
    named = [(f"system {place}", texts) for place, texts in enumerate(SYSTEMS)]
    signatures, wanted = PairedTest(named, by_hand(count), None, test_type="bs", n_samples=400)()
    found = evaluate(
        SYSTEMS[0], source=SOURCES, references=REFERENCES[:count], against=SYSTEMS[1:],
        resamples=400, seed=seed,
    )  # fmt: skip
    for key, name in (("bleu", "BLEU"), ("chrf", "chrF2"), ("ter", "TER")):
        results: Any = wanted[name]
        assert found.scores[key].signature == str(signatures[name])
        for judged, result in zip(found.systems, results, strict=True):
            score = judged.scores[key]
            assert score.value == pytest.approx(result.score, abs=1e-9)
            assert score.interval is not None
            # sacreBLEU sums in single precision
            assert score.interval.mean == pytest.approx(result.mean, rel=1e-5)
            assert score.interval.margin == pytest.approx(result.ci, rel=1e-4)
        compared = [one for one in found.comparisons if one.metric.key == key]
        assert [one.difference.p_value for one in compared] == [r.p_value for r in results[1:]]
    assert len({one.difference.p_value for one in found.comparisons}) > 2  # some are in doubt


def test_confidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    found = evaluate(SYSTEMS[1], source=SOURCES, references=REFERENCES[:1], resamples=200, seed=99)
    for key, metric in by_hand(1).items():
        score = metric.corpus_score(SYSTEMS[1], None, n_bootstrap=200)
        interval = found.scores[key].interval
        assert interval is not None
        assert interval.mean == pytest.approx(score._mean, rel=1e-5)
        assert interval.margin == pytest.approx(score._ci, rel=1e-4)
        assert found.scores[key].signature == str(metric.get_signature())


def test_groups_by_length_are_scored_as_if_alone() -> None:
    found = evaluate(SYSTEMS[0], source=SOURCES, references=REFERENCES[:2], resamples=0)
    groups = found.systems[0].by_length
    assert sorted(place for row in groups for place in row.group.indices) == list(range(80))
    assert len(groups) > 2
    for row in groups:
        texts = [SYSTEMS[0][place] for place in row.group.indices]
        references = [[r[place] for place in row.group.indices] for r in REFERENCES[:2]]
        for key, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
            assert row.scores[key] == pytest.approx(
                metric.corpus_score(texts, references).score, abs=1e-9
            )


LINE = st.text(alphabet="ab .,\u00e9\u4e2d1A\u00a0\t", max_size=12)


def test_counts_do_not_depend_on_how_many_are_made_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = [m.statistics([], SYSTEMS[0]) for m in ours(REFERENCES)]
    monkeypatch.setattr(sacrebleu, "BATCH_SENTENCES", 7)
    for metric, statistics in zip(ours(REFERENCES), wanted, strict=True):
        assert (metric.statistics([], SYSTEMS[0]) == statistics).all()


@settings(max_examples=60)
@given(st.lists(st.tuples(LINE, LINE, LINE), min_size=1, max_size=6))
def test_any_lines(rows: list[tuple[str, str, str]]) -> None:
    texts, *references = ([row[side] for row in rows] for side in range(3))
    for mine, theirs in zip(ours(references), (BLEU(), CHRF(), TER()), strict=True):
        statistics = mine.statistics([], texts)
        wanted = theirs.corpus_score(texts, references).score
        assert mine.score(statistics.sum(axis=0)) == pytest.approx(wanted, abs=1e-9)
        assert mine.signature(0, 1) == str(theirs.get_signature())


def test_draws_do_not_depend_on_how_many_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = np.concatenate(list(significance.draw_resamples(37, 100, 5)))
    wanted = np.random.default_rng(5).choice(37, size=(100, 37), replace=True)
    assert (at_once == wanted).all()
    monkeypatch.setattr(significance, "_DRAWS_IN_MEMORY", 200)
    some = list(significance.draw_resamples(37, 100, 5))
    assert len(some) == 20
    assert (np.concatenate(some) == at_once).all()
