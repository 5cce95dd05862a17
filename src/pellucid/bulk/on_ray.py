"""A job on Ray: tasks read the files, actors translate the parts, with Ray Data in between.

Ray Data holds readers back while workers have enough to do (backpressure), adds workers while there
is work and machines, restarts a worker when one dies, and gives its part to another.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, cast

from pellucid.bulk.job import InputFile, Job, assemble
from pellucid.bulk.locations import Location
from pellucid.bulk.messages import Answer, FileNote, answer, messages
from pellucid.bulk.parts import Part
from pellucid.bulk.worker import Worker
from pellucid.bundle import MANIFEST, Bundle
from pellucid.decoding.engine_selection import EngineName
from pellucid.errors import InputError, MissingExtraError, PellucidError
from pellucid.storage.folder import atomic_folder
from pellucid.translator.loading import load

# Bytes of Ray's object store, for parts in transit: in all, and for each worker.
_STORE = 200 << 20
_STORE_PER_WORKER = 64 << 20


@contextmanager
def connected(address: str, workers: int | None) -> Iterator[int]:
    """Connect to Ray, started on this machine ("local") or at an address; yield its cores.

    An existing connection is used, and stays.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # dying workers are expected
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtraError("--cluster", "cluster") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if ray.is_initialized():
        yield _cores()
        return
    with redirect_stdout(sys.stderr):  # where Ray reports workers that died
        _start(address, workers)
        try:
            yield _cores()
        finally:
            ray.shutdown()


def _start(address: str, workers: int | None) -> None:
    import ray

    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        with _silenced():
            if address == "local":
                cores = workers or len(os.sched_getaffinity(0))
                ray.init(
                    address="local",
                    num_cpus=cores,
                    include_dashboard=False,
                    object_store_memory=_STORE + cores * _STORE_PER_WORKER,
                    **quiet,
                )
            else:
                ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"no Ray cluster at {address}: {reason}") from None


@contextmanager
def _silenced() -> Iterator[None]:
    """Silence what Ray's processes write to standard error as they start; errors are raised."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _cores() -> int:
    import ray

    resources: Any = ray.cluster_resources
    return max(1, int(resources().get("CPU", 1)))


def answers(
    job: Job, inputs: Sequence[InputFile], bundle: Bundle, workers: tuple[int, int], send: bool
) -> Iterator[Answer]:
    """Translate the files on the connected Ray; yield the answers as they come.

    workers: minimum and maximum. send: send the model along, for machines that lack it.
    """
    import ray
    from ray.data import ActorPoolStrategy, DataContext, TaskPoolStrategy

    least, most = workers
    context = DataContext.get_current()
    before = (context.target_max_block_size, context.enable_progress_bars)
    # Each part is a block of its own, so that it can go to any worker.
    context.target_max_block_size, context.enable_progress_bars = 1, False
    context.print_on_execution_start = False
    try:
        items = [{"index": number} for number in range(len(inputs))]
        data: Any = ray.data.from_items(items, override_num_blocks=len(items))
        data = data.map_batches(
            _Read(job, list(inputs)),
            batch_size=1,
            batch_format="pyarrow",
            compute=TaskPoolStrategy(size=min(len(items), max(2, math.ceil(most / 16)))),
            num_cpus=0,  # it waits most of the time, and must not take the place of a worker
        )
        data = data.map_batches(
            _RayWorker,
            fn_constructor_args=(job, str(bundle.folder), _send(bundle) if send else []),
            batch_size=1,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(min_size=least, max_size=most, initial_size=least),
            num_cpus=1,
        )
        for table in data.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for encoded in table.column("answer").to_pylist():
                yield json.loads(encoded)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1][:300]
        raise PellucidError(f"the cluster failed ({reason}): the same command resumes") from None
    finally:
        context.target_max_block_size, context.enable_progress_bars = before


def assemble_remotely(job: Job, file: str, location: Location) -> dict[str, Any]:
    """Assemble a file in a Ray task, on any machine."""
    import ray

    task: Any = ray.remote(num_cpus=0)(assemble)
    return cast("dict[str, Any]", ray.get(task.remote(job, file, location)))


class _Read:
    """Reads files in a task of Ray Data."""

    def __init__(self, job: Job, inputs: list[InputFile]) -> None:
        self._job, self._inputs = job, inputs

    def __call__(self, items: Any) -> Iterator[Any]:
        import pyarrow as pa  # type: ignore[import-untyped]

        for index in items.column("index").to_pylist():
            for message in messages(self._job, self._inputs[index]):
                if isinstance(message, Part):
                    about, note, payload = message.about(), "", message.payload
                else:
                    about, note, payload = "", json.dumps(message.answer), b""
                yield pa.table(
                    {
                        "about": [about],
                        "note": [note],
                        "payload": pa.array([payload], pa.large_binary()),
                    }
                )


class _RayWorker:
    """A worker as an actor of Ray Data, with one translator of one thread."""

    def __init__(self, job: Job, folder: str, sent: list[Any]) -> None:
        self._failure: Answer | None = None
        try:
            found = _receive(folder, job.options.model, sent)
            engine = cast("EngineName", job.options.engine)
            self._worker = Worker(job, load(found, engine, threads=1))
        except PellucidError as error:
            # Ray would retry an error here again and again.
            self._failure = {"stop": str(error), "code": error.exit_code}

    def __call__(self, batch: Any) -> Any:
        import pyarrow as pa

        answers = []
        for row in batch.to_pylist():
            note = FileNote(json.loads(row["note"])) if row["note"] else None
            message = note or Part.of(row["about"], row["payload"])
            answers.append(self._failure or answer(self._worker, message))
        return pa.table({"answer": [json.dumps(one) for one in answers]})


def _send(bundle: Bundle) -> list[Any]:
    """Put the model's files into Ray's object store, from which each machine fetches them once."""
    import numpy as np
    import ray

    files = {}
    for name in (*bundle.manifest["files"], MANIFEST):
        files[name] = np.fromfile(bundle.folder / name, dtype=np.uint8)
    return [ray.put(files)]  # in a list, so that only those who need it fetch it


def _receive(folder: str, fingerprint: str, sent: list[Any]) -> Path:
    """Return the model's folder on this machine: where it was, or written from what was sent."""
    if _is_model(Path(folder), fingerprint):
        return Path(folder)
    cached = Path(tempfile.gettempdir()) / f"pellucid-{os.getuid()}" / fingerprint[:24]
    if not _is_model(cached, fingerprint):
        if not sent:
            raise PellucidError(f"{folder} is not, or no longer, the model of this job")
        import ray

        cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if cached.parent.stat().st_uid != os.getuid():
            raise PellucidError(f"{cached.parent} belongs to somebody else: remove it")
        try:
            with atomic_folder(cached) as draft:
                for name, data in ray.get(sent[0]).items():
                    (draft.path / name).parent.mkdir(parents=True, exist_ok=True)
                    draft.write(name, data)
        except OSError:
            if not _is_model(cached, fingerprint):  # else another worker was faster
                raise
    return cached


def _is_model(folder: Path, fingerprint: str) -> bool:
    try:
        return Bundle.open(folder, lazily=True).fingerprint == fingerprint
    except PellucidError:
        return False
