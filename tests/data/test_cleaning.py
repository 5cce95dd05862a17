"""The policy for bad input: each kind of pair has one verdict, and each is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from pellucid.config import CleaningConfig, CorpusConfig
from pellucid.data.cleaning import (
    EXAMPLES,
    MEANINGS,
    CleaningReport,
    Verdict,
    clean_text,
    is_dropped,
    judge,
    pair_hash,
)
from pellucid.data.corpus import Pair, read_pairs
from pellucid.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain", "plain"),
        ("  ends \t\r\n", "ends"),
        ("a\u2028b\u2029c\x85d\fe\vf\ng\rh\ti", "a b c d e f g h i"),
        ("a \u2028 b", "a b"),
        ("nul\0l and b\x07ell\x7f \x9bescape", "null and bell escape"),
        ("\x1b[31mred", "[31mred"),
        ("a\ufeffb", "ab"),
        ("too    many", "too many"),
        ("Où ça\u202f? «\u00a0Là\u00a0»", "Où ça\u202f? «\u00a0Là\u00a0»"),
        ("👩\u200d🚀 e\u0301 \u200fשלום", "👩\u200d🚀 e\u0301 \u200fשלום"),
        ("\0\x01\u2028", ""),
        ("\u3000\u00a0", ""),
    ],
)
def test_clean_text(text: str, clean: str) -> None:
    assert clean_text(text) == clean
    assert clean_text(clean) == clean


CONFIG = CleaningConfig(max_characters=100, max_words=10, max_ratio=3, ratio_from=20)


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ("a small house", "une petite maison", "kept"),
        ("", "une petite maison", "empty"),
        ("a small house", " \u2028\0\t", "empty"),
        ("a sm\ufffdll house", "une petite maison", "invalid"),
        ("a small house", "une \ufffd maison", "invalid"),
        ("\ufffd", "", "invalid"),
        ("x" * 100, "y" * 100, "kept"),
        ("x" * 100, "y" * 101, "too_long"),
        ("x" * 101, "y" * 100, "too_long"),
        ("x" * 101, "", "empty"),
        ("a " * 10, "b " * 10, "kept"),
        ("a " * 10, "b " * 11, "too_long"),
        ("x" * 20, "y" * 61, "ratio"),
        ("x" * 20, "y" * 60, "kept"),
        ("x" * 61, "y" * 20, "ratio"),
        ("x" * 19, "y", "kept"),
        ("x" * 20, "y", "ratio"),
        ("Paris", " Paris\n", "copy"),
    ],
)
def test_verdicts(first: str, second: str, verdict: str) -> None:
    found, clean = judge(Pair(first, second, 7), CONFIG)
    assert found == verdict
    assert clean == Pair(clean_text(first), clean_text(second), 7)


@pytest.mark.parametrize("problem", ["malformed", "fuzzy", "obsolete", "too_long"])
def test_what_the_reader_found_goes_first(problem: str) -> None:
    assert judge(Pair("", "\ufffd", 1, problem), CONFIG)[0] == problem


def test_what_is_dropped() -> None:
    kept = {v for v in Verdict if not is_dropped(v, CleaningConfig())}
    assert kept == {Verdict.kept, Verdict.copy, Verdict.duplicate}
    strict = CleaningConfig(drop_copies=True, drop_duplicates=True)
    assert {v for v in Verdict if not is_dropped(v, strict)} == {Verdict.kept}
    assert set(MEANINGS) == set(Verdict)


def test_settings_that_cannot_be() -> None:
    for wrong in [{"max_ratio": 0.5}, {"max_words": 0}, {"max_characters": 10**9}]:
        with pytest.raises(ConfigError):
            CleaningConfig(**wrong)


def test_pair_hash_is_the_same_everywhere() -> None:
    # golden: stores and splits on disk depend on it
    assert pair_hash(Pair("a house", "une maison", 1)) == 0xA9F07D4301B597B2
    assert pair_hash(Pair("a house", "une maison", 2)) == pair_hash(
        Pair("a house", "une maison", 9)
    )
    assert pair_hash(Pair("ab", "c", 1)) != pair_hash(Pair("a", "bc", 1))


def test_no_hostile_line_moves_another(tmp_path: Path) -> None:
    hostile = [
        b"",
        b"\r",
        b"\xff\xfe\xfd",
        b"nul\0",
        "line\u2028break".encode(),
        b"\x85",
        b"\x0c",
        b"x" * 5000,
        b"\xef\xbb\xbf",
        b"a\tb",
    ]
    for number, line in enumerate(hostile):
        source = [b"first", line, b"third"]
        (tmp_path / "s").write_bytes(b"\n".join(source))
        (tmp_path / "t").write_bytes(b"premier\ndeux\ntroisieme\n")
        corpus = CorpusConfig(source=tmp_path / "s", target=tmp_path / "t", languages=("en", "fr"))
        kept = [
            (pair.number, pair.first, pair.second)
            for verdict, pair in (judge(pair, CleaningConfig()) for pair in read_pairs(corpus))
            if verdict == Verdict.kept
        ]
        assert kept[0] == (1, "first", "premier"), number
        assert kept[-1] == (3, "third", "troisieme"), number


def report_of(verdicts: list[Verdict], start: int = 1) -> CleaningReport:
    report = CleaningReport(CleaningConfig(drop_copies=True))
    for number, verdict in enumerate(verdicts, start):
        report.add(verdict, Pair(f"text {number}", "texte", number))
    return report


def test_a_report_counts_and_shows_the_first_three() -> None:
    V = Verdict
    verdicts = [V.kept, V.empty, V.empty, V.copy, V.empty, V.duplicate, V.empty, V.kept]
    report = report_of(verdicts)
    assert report.total == 8
    assert report.kept == 3  # the duplicate is counted, but not dropped
    assert [pair.number for pair in report.examples[V.empty]] == [2, 3, 5]
    assert V.kept not in report.examples


def test_merged_reports_are_as_one() -> None:
    verdicts = [list(Verdict)[n * n % 11] for n in range(60)]
    for cut in (0, 1, 17, 59, 60):
        merged = report_of(verdicts[:cut])
        merged.merge(report_of(verdicts[cut:], start=cut + 1))
        assert merged == report_of(verdicts)
    assert all(len(pairs) <= EXAMPLES for pairs in merged.examples.values())


def test_a_report_goes_through_json() -> None:
    report = report_of(list(Verdict) * 5)
    assert CleaningReport.from_dict(json.loads(json.dumps(report.as_dict()))) == report


def test_the_table_is_harmless_and_complete() -> None:
    report = CleaningReport()
    report.add(Verdict.kept, Pair("a", "b", 1))
    report.add(Verdict.ratio, Pair("[red]bold[/red] \x1b[31m \u2028 end", "x" * 500, 1234))
    report.add(Verdict.duplicate, Pair("again", "encore", 5))
    console = Console(width=120, force_terminal=False, color_system=None)
    with console.capture() as captured:
        console.print(report.table("My corpus"))
    text = captured.get()
    assert "My corpus" in text
    assert "1234: [red]bold[/red] [31m end | xxx" in text  # no markup, no escape codes
    assert "\x1b" not in text
    assert "x" * 61 not in text
    assert "duplicate" in text
    assert "counted, and kept" in text
    assert "invalid" not in text  # kinds that did not occur are not listed
    assert "of 3" in text
