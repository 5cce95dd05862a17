"""Contestants in processes of their own that take turns: one works while the others sleep.

A worker is a program that says `{"ready": ...}` on a line, then answers each line of JSON it reads
with a line of JSON, until its input ends. So each contestant has its own packages, threads and
memory, and all meet the same minutes of the machine.
"""

import json
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


class Worker:
    """A contestant's process."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        # A thread that waits for the next turn must not spin on another's processor.
        quiet = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "TOKENIZERS_PARALLELISM": "0"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **quiet}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.about = self._read()["ready"]

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """One turn."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):  # libraries may print too
                return dict(json.loads(line))
        raise SystemExit(f"benchmarks: {self.name} ended before it answered: see above")

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def spread(values: Sequence[float]) -> float:
    """Half the distance between the quartiles, as a share of the median."""
    if len(values) < 4:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / statistics.median(values)
