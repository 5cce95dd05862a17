"""Bulk translation on Ray: workers are killed at random; nothing is lost, doubled or changed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid.bulk import on_ray
from pellucid.bulk.job import COUNTS
from pellucid.bulk.run_job import run_job, survey
from pellucid.bundle import Bundle
from pellucid.translator import Translator, load
from tests.bulk.files import contents, in_one_process, job_for, sentences, write_json, write_text


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    with on_ray.connected("local", 2):
        yield


def kill_workers(out: Path, stop: threading.Event, killed: list[int]) -> None:
    """Kill workers at random moments, three times in the middle of a part."""
    draw, seen = random.Random(4), set[Path]()
    while not stop.is_set() and len(killed) < 3:
        for path in sorted(out.glob("_pellucid/parts/*/*.try?")):
            if path in seen:
                continue
            seen.add(path)
            time.sleep(draw.uniform(0, 0.05))
            process = json.loads(path.read_text())["process"]
            assert process != os.getpid()
            try:
                os.kill(process, signal.SIGSTOP)
                if not path.with_suffix(".json").exists():
                    killed.append(process)
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


@pytest.mark.usefixtures("_cluster")
def test_workers_killed_at_random(bundle: Bundle, translator: Translator, tmp_path: Path) -> None:
    texts = sentences(230)
    write_text(tmp_path / "in" / "a.txt", texts)
    write_json(tmp_path / "in" / "b.jsonl", [*texts[:130], 7])
    expected = job_for(bundle, tmp_path / "expected")
    alone = in_one_process(expected, translator, tmp_path / "in")

    job = job_for(bundle, tmp_path / "out")
    todo, done = survey(job, [str(tmp_path / "in")])
    stop, killed = threading.Event(), list[int]()
    killer = threading.Thread(target=kill_workers, args=(tmp_path / "out", stop, killed))
    killer.start()
    try:
        said = on_ray.answers(job, todo, bundle, (2, 2), send=False)
        summary = run_job(job, todo, done, said, lambda _: None, on_ray.assemble_remotely)
    finally:
        stop.set()
        killer.join()
    assert killed
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")
    assert summary.rows == alone.rows == 361
    assert summary.counts["again"] >= len(killed)
    same = {*COUNTS, "failures"} - {"again"}
    assert {n: summary.counts[n] for n in same} == {n: alone.counts[n] for n in same}
    todo, done = survey(job, [str(tmp_path / "in")])
    assert (todo, len(done)) == ([], 2)


@pytest.mark.usefixtures("_cluster")
def test_the_model_travels(
    bundle: Bundle, translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that lacks the model writes it from what was sent, once."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sent = on_ray._send(bundle)
    folder = on_ray._receive(str(tmp_path / "nowhere"), bundle.fingerprint, sent)
    assert tmp_path in folder.parents
    assert load(folder, threads=1)("le phare") == translator("le phare")
    assert on_ray._receive(str(tmp_path / "nowhere"), bundle.fingerprint, []) == folder
    assert on_ray._receive(str(bundle.folder), bundle.fingerprint, sent) == bundle.folder


def test_ctrl_c(bundle: Bundle, tmp_path: Path) -> None:
    """The command ends soon and with one line."""
    source, out = write_text(tmp_path / "a.txt", sentences(6000)), tmp_path / "out"
    command = [
        sys.executable, "-m", "pellucid", "translate", "--input", str(source), "-o", str(out),
        "--model", str(bundle.folder), "--beam-size", "1", "--cluster", "local", "--workers", "1",
    ]  # fmt: skip

    def hear() -> None:  # a shell that starts the tests in the background has SIGINT ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=hear) as process:
        try:
            while not list(out.glob("_pellucid/parts/a.txt/*.try0")):
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=120)[1]
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "the same command resumes it" in said
    assert said.count("\n") == 1
    assert not (out / "a.txt").exists()
