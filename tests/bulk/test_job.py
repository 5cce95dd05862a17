"""Bulk translation in one process: exactly once, in order, resumable; a bad row stops nothing."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from pellucid.bulk.job import Job
from pellucid.bulk.locations import Location
from pellucid.bulk.messages import messages
from pellucid.bulk.parts import Part
from pellucid.bulk.run_job import survey
from pellucid.bulk.worker import TRIES, Worker
from pellucid.bundle import Bundle
from pellucid.errors import InputError, PellucidError
from pellucid.translator import Translator
from tests.bulk.files import (
    contents,
    in_one_process,
    job_for,
    sentences,
    write_json,
    write_text,
)
from tests.bundles import write_bundle


class Moody:
    """A translator that fails at the word "panne", and dies at the word "mort"."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self.lines: list[str] = []

    def translate_lines(self, lines: Sequence[str], **settings: Any) -> Iterator[str]:
        self.lines += lines
        if any("mort" in line for line in lines):
            os._exit(1)
        if any("panne" in line for line in lines):
            raise RuntimeError("out of order")
        return self._translator.translate_lines(lines, **settings)


def test_as_one_process_would(bundle: Bundle, translator: Translator, tmp_path: Path) -> None:
    """Text is translated as by `pellucid translate`; other files have the same translations."""
    texts = sentences(300)
    expected = list(translator.translate_lines(texts, beam_size=1))
    write_text(tmp_path / "in" / "a.txt", texts)
    write_json(tmp_path / "in" / "b" / "a.jsonl", texts)
    write_text(tmp_path / "in" / "empty.txt", [])
    table = pa.table({"text": texts, "id": range(300)})
    pq.write_table(table, tmp_path / "in" / "c.parquet", row_group_size=70)
    pq.write_table(table.slice(0, 0), tmp_path / "in" / "none.parquet")
    out = tmp_path / "out"
    summary = in_one_process(job_for(bundle, out), translator, tmp_path / "in")
    assert (out / "a.txt").read_bytes() == "\n".join(expected).encode()
    rows = [json.loads(line) for line in (out / "b" / "a.jsonl").read_text().splitlines()]
    assert rows == [{"id": i, "text": text, "more": [i]} for i, text in enumerate(expected)]
    found = pq.read_table(out / "c.parquet")
    assert found.schema.equals(table.schema)
    assert found.to_pydict() == {"text": expected, "id": list(range(300))}
    assert (out / "empty.txt").read_bytes() == b""
    assert pq.read_table(out / "none.parquet").schema.equals(table.schema)
    assert summary.files == 5
    told = summary.as_dict()
    assert told["rows"] == told["this_run"]["rows"] == 900
    assert told["tokens"] > told["rows"]
    assert set(contents(out)) == {"a.txt", "b/a.jsonl", "c.parquet", "empty.txt", "none.parquet"}
    assert not (out / "_pellucid" / "parts").exists()


@pytest.mark.parametrize("stop", [1, 3, 6])
def test_what_is_done_is_never_done_again(
    bundle: Bundle, translator: Translator, tmp_path: Path, stop: int
) -> None:
    texts = sentences(110)
    for name in ("a.txt.gz", "b.txt.gz"):
        (tmp_path / name).write_bytes(gzip.compress("\n".join(texts).encode()))
    job, moody = job_for(bundle, tmp_path / "out"), Moody(translator)
    with pytest.raises(KeyboardInterrupt):
        in_one_process(job, moody, tmp_path / "*.gz", stop=stop)
    summary = in_one_process(job, moody, tmp_path / "*.gz")
    assert sorted(moody.lines) == sorted(texts * 2)
    assert summary.counts["rows"] == 220
    again = in_one_process(job, moody, tmp_path / "*.gz")
    assert len(moody.lines) == 220
    assert (again.rows, again.finished_before, again.counts) == (0, 2, summary.counts)
    whole = job_for(bundle, tmp_path / "whole")
    in_one_process(whole, translator, tmp_path / "*.gz")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    expected = list(translator.translate_lines(texts, beam_size=1))
    assert gzip.decompress((tmp_path / "out" / "a.txt.gz").read_bytes()).decode() == "\n".join(
        expected
    )


def test_a_part_that_another_run_made_is_taken(
    bundle: Bundle, translator: Translator, tmp_path: Path
) -> None:
    """A worker that died after its work was done and before it could say so."""
    write_text(tmp_path / "a.txt", sentences(40))
    job, moody = job_for(bundle, tmp_path / "out"), Moody(translator)
    ((wanted,), _) = survey(job, [str(tmp_path / "a.txt")])
    part = next(m for m in messages(job, wanted) if isinstance(m, Part))
    first = Worker(job, moody).work(part)
    assert Worker(job, moody).work(part) == first
    assert len(moody.lines) == first["rows"]


def test_another_job_is_refused(bundle: Bundle, translator: Translator, tmp_path: Path) -> None:
    source = write_text(tmp_path / "a.txt", sentences(40))
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        in_one_process(job_for(bundle, out), translator, source, stop=1)
    other = write_bundle(tmp_path / "other", d_model=16)
    for changed, said in [
        (job_for(bundle, out, beam_size=2), r"another beam_size \(1, now 2\)"),
        (job_for(other, out), "another model"),
        (job_for(bundle, out, into="new"), "another into"),
    ]:
        with pytest.raises(InputError, match=said):
            in_one_process(changed, translator, source)
    in_one_process(job_for(bundle, out), translator, source)


def test_another_input_is_refused(bundle: Bundle, translator: Translator, tmp_path: Path) -> None:
    texts = sentences(150)
    source, out = write_text(tmp_path / "a.txt", texts), tmp_path / "out"
    job = job_for(bundle, out)
    for stop in (2, None):  # a part is done; all is done
        if stop:
            with pytest.raises(KeyboardInterrupt):
                in_one_process(job, translator, source, stop=stop)
        else:
            in_one_process(job, translator, source)
        for other in (["Un phare", *texts[1:]], texts[:20], [texts[0].swapcase(), *texts[1:]]):
            write_text(source, other)
            with pytest.raises(InputError, match="has changed since"):
                in_one_process(job, translator, source)
        write_text(source, texts)  # with another time, and the same content
    assert in_one_process(job, translator, source).finished_before == 1
    write_text(tmp_path / "b.txt", texts[:30])  # more files may come
    assert in_one_process(job, translator, tmp_path / "*.txt").rows == 30


def test_places_that_are_taken(bundle: Bundle, translator: Translator, tmp_path: Path) -> None:
    source = write_text(tmp_path / "in" / "a.txt", ["un phare"])
    write_text(tmp_path / "out" / "a.txt", ["mine"])
    with pytest.raises(InputError, match="not of this job"):
        in_one_process(job_for(bundle, tmp_path / "out"), translator, source)
    with pytest.raises(InputError, match="would be overwritten"):
        in_one_process(job_for(bundle, tmp_path / "in"), translator, source)
    other = write_text(tmp_path / "more" / "a.txt", ["deux phares"])
    with pytest.raises(InputError, match=r"would both become a\.txt"):
        in_one_process(job_for(bundle, tmp_path / "new"), translator, source, other)
    assert (tmp_path / "out" / "a.txt").read_text() == "mine"
    with pytest.raises(PellucidError, match="install the same everywhere"):
        Worker(replace(job_for(bundle, tmp_path / "out"), version="0"), translator)
    with pytest.raises(PellucidError, match="that all machines share"):
        Worker(job_for(bundle, tmp_path / "elsewhere"), translator)


def test_poisoned_rows(bundle: Bundle, translator: Translator, tmp_path: Path) -> None:
    """They go to a side file with their reasons; the others are translated."""
    texts: list[Any] = sentences(100)
    texts[5], texts[70], texts[71], texts[80] = "une panne", 7, None, "la panne\ud800"
    source = write_json(tmp_path / "a.jsonl", texts)
    with source.open("a") as file:
        file.write('{"id": 100, "text": \n\n{"id": 101}\n')
    out = tmp_path / "out"
    summary = in_one_process(job_for(bundle, out), Moody(translator), source)
    kinds = {"no text": 1, "not JSON": 1, "not text": 1, "not translated": 2}
    assert summary.counts["failures"] == kinds
    assert (summary.rows, summary.counts["invalid"]) == (103, 1)
    side = [json.loads(line) for line in (out / "_failures" / "a.jsonl.jsonl").open()]
    assert [row["row"] for row in side] == [6, 71, 81, 101, 103]
    lines = source.read_text().split("\n")
    assert [row["data"] for row in side] == [lines[row["row"] - 1] for row in side]
    assert side[0]["reason"] == "RuntimeError: out of order"
    kept = [json.loads(line) for line in (out / "a.jsonl").read_text().splitlines() if line]
    assert [row["id"] for row in kept] == [n for n in range(100) if n not in (5, 70, 80)]
    assert kept[69]["text"] is None
    lines = write_text(tmp_path / "b.txt", ["un", "une panne", "42"])
    in_one_process(job_for(bundle, tmp_path / "lines"), Moody(translator), lines)
    assert (tmp_path / "lines" / "b.txt").read_text().split("\n")[1:] == ["", "42"]


def test_a_file_that_cannot_be_read_does_not_stop_the_others(
    bundle: Bundle, translator: Translator, tmp_path: Path
) -> None:
    write_text(tmp_path / "in" / "b.txt", ["un phare"])
    good = gzip.compress("\n".join(sentences(200)).encode())
    (tmp_path / "in" / "a.txt.gz").write_bytes(good[:-50])
    job = job_for(bundle, tmp_path / "out")
    with pytest.raises(PellucidError, match=r"a\.txt\.gz is damaged") as caught:
        in_one_process(job, translator, tmp_path / "in")
    assert caught.value.exit_code == 1
    assert set(contents(tmp_path / "out")) == {"b.txt"}
    (tmp_path / "in" / "a.txt.gz").write_bytes(good)
    summary = in_one_process(job, translator, tmp_path / "in")
    assert (summary.files, summary.finished_before) == (2, 1)


def _work(job: Job, wanted: Any, translator: Any) -> None:
    for message in messages(job, wanted):
        if isinstance(message, Part):
            Worker(job, translator).work(message)


def test_a_row_that_kills_its_worker(
    bundle: Bundle, translator: Translator, tmp_path: Path
) -> None:
    """After some workers have died over a part, its rows are tried one at a time."""
    texts = sentences(20)
    texts[4], texts[11] = "la mort", "encore mort"
    source = write_text(tmp_path / "a.txt", texts)
    job = job_for(bundle, tmp_path / "out")
    ((wanted,), _) = survey(job, [str(source)])
    forked = multiprocessing.get_context("fork")
    codes = []
    while not codes or codes[-1]:
        assert len(codes) < 10
        # CTranslate2 has threads, which a fork does not have: the child loads its own.
        child = forked.Process(target=_load_and_work, args=(job, wanted, bundle.folder))
        child.start()
        child.join(120)
        codes.append(child.exitcode)
    assert codes == [1] * (TRIES + 2) + [0]
    in_one_process(job, translator, source)
    made = (tmp_path / "out" / "a.txt").read_text().split("\n")
    assert [row for row in range(20) if texts[row] and not made[row]] == [4, 11]
    side = (tmp_path / "out" / "_failures" / "a.txt.jsonl").read_text().splitlines()
    assert [(json.loads(s)["row"], json.loads(s)["kind"]) for s in side] == [
        (5, "crash"),
        (12, "crash"),
    ]


def _load_and_work(job: Job, wanted: Any, folder: Path) -> None:
    from pellucid.translator import load

    _work(job, wanted, Moody(load(folder, threads=1)))


def test_other_file_systems(bundle: Bundle, translator: Translator, tmp_path: Path) -> None:
    import fsspec

    texts = sentences(90)
    source = write_text(tmp_path / "in" / "a.txt", texts)
    in_one_process(job_for(bundle, tmp_path / "out"), translator, source)
    expected = contents(tmp_path / "out")["a.txt"]

    memory = fsspec.filesystem("memory")
    memory.pipe("/in/a.txt", source.read_bytes())
    with pytest.raises(KeyboardInterrupt):
        in_one_process(job_for(bundle, "memory://out"), translator, "memory://in/*.txt", stop=1)
    in_one_process(job_for(bundle, "memory://out"), translator, "memory://in/*.txt")
    assert memory.cat("/out/a.txt") == expected
    assert not [name for name in memory.find("/out") if "tmp" in name]

    (tmp_path / "tree").mkdir()
    tree = Location(SubTreeFileSystem(str(tmp_path / "tree"), LocalFileSystem()), "out")
    in_one_process(job_for(bundle, tree), translator, source.as_uri())
    assert contents(tmp_path / "tree" / "out")["a.txt"] == expected
    with pytest.raises(InputError, match="cannot open nowhere://x"):
        Location.of("nowhere://x")
