"""What the server tells its operator: a line of JSON for each event, and numbers for Prometheus.

Neither has a text, a key or a query in it; a text only where the operator asked for it.
"""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Log:
    """Lines of JSON. out: standard error, unless given; None as `out` of `quiet` writes nothing."""

    def __init__(self, out: TextIO | None = None, *, quiet: bool = False) -> None:
        self._out, self._quiet = out, quiet
        self._lock = threading.Lock()

    def write(self, event: str, **facts: Any) -> None:
        """One line."""
        if self._quiet:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, **facts}, default=str)
        with self._lock:
            print(line, file=self._out or sys.stderr, flush=True)


class Metrics:
    """The numbers at /metrics, of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "pellucid_requests", "Requests, by route and status.", ("route", "status"),
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "pellucid_request_seconds", "How long requests took.", ("route",), buckets=SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self.under_way = Gauge(
            "pellucid_requests_under_way", "Requests not yet answered.", registry=self.registry
        )
        self.refused = Counter(
            "pellucid_refused", "Requests refused, by reason.", ("reason",), registry=self.registry
        )
        self.characters = Counter(
            "pellucid_characters", "Characters translated, by direction.", ("direction",),
            registry=self.registry,
        )  # fmt: skip
        self.batches = Histogram(
            "pellucid_batch_sentences", "Sentences that were decoded together.", ("model",),
            buckets=SIZES, registry=self.registry,
        )  # fmt: skip
        self.waiting = Gauge(
            "pellucid_waiting_sentences", "Sentences that wait for a model.", ("model",),
            registry=self.registry,
        )  # fmt: skip
