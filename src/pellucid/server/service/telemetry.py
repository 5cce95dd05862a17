"""Logging and metrics: JSON lines, and numbers for Prometheus.

Neither contains a key, a query string or a text; the log has texts only where the operator asked
for them.
"""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class JsonLog:
    """A log of JSON lines. out: standard error, if unset. quiet: write nothing."""

    def __init__(self, out: TextIO | None = None, *, quiet: bool = False) -> None:
        self._out, self._quiet = out, quiet
        self._lock = threading.Lock()

    def write(self, event: str, **fields: Any) -> None:
        """Write one line."""
        if self._quiet:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, **fields}, default=str)
        with self._lock:
            print(line, file=self._out or sys.stderr, flush=True)


class PrometheusMetrics:
    """The metrics of one server, as /metrics gives them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "pellucid_requests", "Requests, by route and status.", ("route", "status"),
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "pellucid_request_seconds", "Latency of requests.", ("route",), buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )  # fmt: skip
        self.in_progress = Gauge(
            "pellucid_requests_in_progress", "Requests in progress.", registry=self.registry
        )
        self.refused = Counter(
            "pellucid_refused", "Refused requests, by reason.", ("reason",), registry=self.registry
        )
        self.characters = Counter(
            "pellucid_characters", "Characters translated, by direction.", ("direction",),
            registry=self.registry,
        )  # fmt: skip
        self.batches = Histogram(
            "pellucid_batch_sentences", "Sentences per batch.", ("model",),
            buckets=BATCH_SIZE_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.queued = Gauge(
            "pellucid_queued_sentences", "Sentences in the queue of a model.", ("model",),
            registry=self.registry,
        )  # fmt: skip
