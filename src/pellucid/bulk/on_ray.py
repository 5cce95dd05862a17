"""A job on Ray: files are read by tasks, parts translated by actors, with Ray Data in between.

Ray Data holds readers back while workers have enough to do, adds workers while there is work and
machines, starts a worker again when one dies, and gives its part to another.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, cast

from pellucid.bulk.job import Input, Job, assemble
from pellucid.bulk.messages import Answer, Note, answer, messages
from pellucid.bulk.parts import Part
from pellucid.bulk.places import Location
from pellucid.bulk.worker import Worker
from pellucid.bundle import MANIFEST, Bundle
from pellucid.decoding.engine_selection import EngineName
from pellucid.errors import InputError, MissingExtraError, PellucidError
from pellucid.translator.loading import load

_STORE = 200 << 20  # bytes for parts on their way, and
_STORE_A_WORKER = 64 << 20


@contextmanager
def connected(address: str, workers: int | None) -> Iterator[int]:
    """Ray, started on this machine ("local") or found at an address; how many cores it has.

    A connection that is there already is used, and left as it is.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to Ray's makers
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # dying workers are no news here
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtraError("--cluster", "cluster") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if ray.is_initialized():
        yield _cores()
        return
    with redirect_stdout(sys.stderr):  # where Ray tells of workers that died
        _start(address, workers)
        try:
            yield _cores()
        finally:
            ray.shutdown()


def _start(address: str, workers: int | None) -> None:
    import ray

    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        with _hushed():
            if address == "local":
                cores = workers or len(os.sched_getaffinity(0))
                ray.init(
                    address="local",
                    num_cpus=cores,
                    include_dashboard=False,
                    object_store_memory=_STORE + cores * _STORE_A_WORKER,
                    **quiet,
                )
            else:
                ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"no Ray cluster at {address}: {reason}") from None


@contextmanager
def _hushed() -> Iterator[None]:
    """Without what Ray's processes write to standard error as they start; errors are raised."""
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
    job: Job, inputs: Sequence[Input], bundle: Bundle, workers: tuple[int, int], send: bool
) -> Iterator[Answer]:
    """Translate the files on the Ray that is connected; what came of parts, as it comes.

    workers: the fewest and the most. send: send the model along, for machines that lack it.
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
        items = [{"place": number} for number in range(len(inputs))]
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
            fn_constructor_args=(job, str(bundle.folder), _sent(bundle) if send else []),
            batch_size=1,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(min_size=least, max_size=most, initial_size=least),
            num_cpus=1,
        )
        for table in data.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for said in table.column("answer").to_pylist():
                yield json.loads(said)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1][:300]
        raise PellucidError(f"the cluster failed ({reason}): the same command goes on") from None
    finally:
        context.target_max_block_size, context.enable_progress_bars = before


def assemble_there(job: Job, file: str, place: Location) -> dict[str, Any]:
    """Put a file together on whichever machine has room."""
    import ray

    task: Any = ray.remote(num_cpus=0)(assemble)
    return cast("dict[str, Any]", ray.get(task.remote(job, file, place)))


class _Read:
    """Reads files in a task of Ray Data."""

    def __init__(self, job: Job, inputs: list[Input]) -> None:
        self._job, self._inputs = job, inputs

    def __call__(self, items: Any) -> Iterator[Any]:
        import pyarrow as pa  # type: ignore[import-untyped]

        for place in items.column("place").to_pylist():
            for message in messages(self._job, self._inputs[place]):
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
    """A worker as an actor of Ray Data: it holds one translator, of one thread."""

    def __init__(self, job: Job, folder: str, sent: list[Any]) -> None:
        self._trouble: Answer | None = None
        try:
            found = _received(folder, job.options.model, sent)
            engine = cast("EngineName", job.options.engine)
            self._worker = Worker(job, load(found, engine, threads=1))
        except PellucidError as error:
            # An error here would be tried again and again by Ray.
            self._trouble = {"stop": str(error), "code": error.exit_code}

    def __call__(self, batch: Any) -> Any:
        import pyarrow as pa

        said = []
        for row in batch.to_pylist():
            note = Note(json.loads(row["note"])) if row["note"] else None
            message = note or Part.of(row["about"], row["payload"])
            said.append(self._trouble or answer(self._worker, message))
        return pa.table({"answer": [json.dumps(one) for one in said]})


def _sent(bundle: Bundle) -> list[Any]:
    """The model's files in Ray's object store, from where each machine fetches them once."""
    import numpy as np
    import ray

    files = {}
    for name in (*bundle.manifest["files"], MANIFEST):
        files[name] = np.fromfile(bundle.folder / name, dtype=np.uint8)
    return [ray.put(files)]  # in a list, so that it is fetched by who needs it


def _received(folder: str, fingerprint: str, sent: list[Any]) -> Path:
    """The folder of the model on this machine: where it was, or written from what was sent."""
    if _is_model(Path(folder), fingerprint):
        return Path(folder)
    place = Path(tempfile.gettempdir()) / f"pellucid-{os.getuid()}" / fingerprint[:24]
    if not _is_model(place, fingerprint):
        if not sent:
            raise PellucidError(f"{folder} is not, or no longer, the model of this job")
        import ray

        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.parent.stat().st_uid != os.getuid():
            raise PellucidError(f"{place.parent} belongs to somebody else: remove it")
        draft = Path(tempfile.mkdtemp(dir=place.parent))
        for name, data in ray.get(sent[0]).items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / name).write_bytes(data)
        try:
            draft.rename(place)
        except OSError:  # another worker was faster
            shutil.rmtree(draft)
    return place


def _is_model(folder: Path, fingerprint: str) -> bool:
    try:
        return Bundle.open(folder, lazily=True).fingerprint == fingerprint
    except PellucidError:
        return False
