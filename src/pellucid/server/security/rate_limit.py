"""Rate limits: texts per minute of each client, with bursts."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

MAX_CLIENTS = 10_000


@dataclass
class TokenBucket:
    """A token bucket: it fills up at a steady rate, and each text takes one token."""

    tokens: float
    updated: float


class RateLimiter:
    """A token bucket for each client, by its key or address.

    When there are too many, those that were not seen for the longest time are forgotten.
    per_minute: 0 for no limit. burst: size of a bucket.
    """

    def __init__(self, per_minute: float, burst: float | None = None) -> None:
        self.per_minute = per_minute
        self.burst = burst if burst is not None else max(1.0, per_minute / 6)
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._lock = threading.Lock()

    def acquire(
        self,
        client: str,
        per_minute: float | None = None,
        now: float | None = None,
        cost: int = 1,
    ) -> float:
        """Take tokens for a request; return 0, or the seconds to wait, without taking any.

        cost: number of texts. One of more than a burst is accepted when the bucket is full, which
        then goes below zero.
        """
        rate = (self.per_minute if per_minute is None else per_minute) / 60
        if rate <= 0:
            return 0.0
        burst = max(1.0, self.burst if per_minute is None else rate * 10)
        now = time.monotonic() if now is None else now
        with self._lock:
            bucket = self._buckets.pop(client, None) or TokenBucket(burst, now)
            tokens = min(burst, bucket.tokens + (now - bucket.updated) * rate)
            needed = min(cost, burst)
            allowed = tokens >= needed - 1e-9
            self._buckets[client] = TokenBucket(tokens - cost * allowed, now)
            while len(self._buckets) > MAX_CLIENTS:
                self._buckets.popitem(last=False)
        return 0.0 if allowed else (needed - tokens) / rate
