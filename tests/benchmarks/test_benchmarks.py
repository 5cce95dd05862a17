"""The tables of docs/benchmarks.md are those of the results; peers' batches lose no sentence."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import names
from benchmarks.peers.plain import batches_of, load_rows, save_rows
from benchmarks.quality import moses_like
from benchmarks.time_to_quality import minutes_to
from docs.benchmark_tables import END, PAGE, tables, updated


def test_the_tables_in_the_docs_are_those_of_the_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert updated(page) == page, "run: python -m docs.benchmark_tables"


def test_a_result_becomes_a_table_and_a_missed_goal_stays_in_it(tmp_path: Path) -> None:
    result = {
        "machine": {"date": "2026-01-02T03:04:05", "processor": "some", "cores": 2, "torch": "2",
                    "matmul_gflops": 9.5, "load": 0.1},
        "title": "Speed",
        "table": {"columns": ["who", "rate"], "rows": [["a | b", "12"]]},
        "goals": {"at least 2x": 1.5, "never measured": None},
        "note": "Made up.",
    }  # fmt: skip
    (tmp_path / "speed.json").write_text(json.dumps(result))
    (tmp_path / "other.json").write_text(json.dumps({"machine": {}, "figures": 1}))
    made = tables(tmp_path)
    assert "| a \\| b | 12 |" in made
    assert "at least 2x. Reached: 1.50." in made
    assert "never measured. Reached: not measured." in made
    assert made.count("###") == 1
    assert updated(f"before{END}", tmp_path).count(made) == 1


def test_every_page_of_the_docs_names_a_benchmark_that_is_there() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = {line.split()[3] for line in page.splitlines() if line.startswith("python -m bench")}
    assert named
    assert named <= set(names())


@pytest.mark.parametrize("tokens", [12, 40, 1000])
def test_a_plain_loops_batches_hold_every_sentence_once(tmp_path: Path, tokens: int) -> None:
    draw = np.random.default_rng(0)
    rows = []
    for number in range(200):
        target = draw.integers(4, 99, draw.integers(1, 10))
        source = np.array([number + 4, *draw.integers(4, 99, draw.integers(0, 10)), 3])
        rows.append((source, np.array([2, *target]), np.array([*target, 3])))
    save_rows(str(tmp_path / "rows.npz"), rows)
    batches = batches_of(load_rows(str(tmp_path / "rows.npz")), tokens, seed=1)
    for batch in batches:
        assert len(batch[0]) == 1 or max(side.size for side in batch) <= tokens
    found = [
        tuple(side[side != 0].tolist() for side in row)
        for batch in batches
        for row in zip(*batch, strict=True)
    ]
    assert sorted(found) == sorted(tuple(side.tolist() for side in row) for row in rows)


def test_minutes_to_a_score_lie_on_the_line_between_two_points() -> None:
    points = [{"minutes": 4.0, "test": 20.0}, {"minutes": 2.0, "test": 10.0}]
    assert minutes_to(15.0, points) == pytest.approx(3.0)
    assert minutes_to(5.0, points) == pytest.approx(1.0)
    assert minutes_to(21.0, points) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Ein Hund, der schläft.", "ein hund , der schläft ."),
        ("Ein gelb-rotes Boot mit 1,5 Tonnen.", "ein gelb-rotes boot mit 1,5 tonnen ."),
        ("Auf dem Schild steht „Halt!“", "auf dem schild steht &quot; halt ! &quot;"),
        ("Brot, Käse usw. auf einem Tisch.", "brot , käse usw. auf einem tisch ."),
        ("Es regnet. Er wartet ...", "es regnet . er wartet ..."),
        ("Oma's Garten", "oma &apos; s garten"),
    ],
)
def test_german_is_tokenised_as_the_corpus_is(line: str, expected: str) -> None:
    assert moses_like(line) == expected
