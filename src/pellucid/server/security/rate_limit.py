"""How much one client may ask for: so many texts a minute, in bursts of some."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

MOST_CLIENTS = 10_000


@dataclass
class Bucket:
    """Fills up steadily; each text takes one out."""

    level: float
    seen: float


class RateLimit:
    """A bucket for each client, by its key or address. The longest unseen ones are forgotten.

    per_minute: 0 for no limit. burst: how many may come at once.
    """

    def __init__(self, per_minute: float, burst: float | None = None) -> None:
        self.per_minute = per_minute
        self.burst = burst if burst is not None else max(1.0, per_minute / 6)
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def wait(
        self,
        client: str,
        per_minute: float | None = None,
        now: float | None = None,
        cost: int = 1,
    ) -> float:
        """Seconds until this client may ask; 0 lets it in, and counts.

        cost: for how many texts. More than a burst are let in when the bucket is full, and leave
        it owing.
        """
        rate = (self.per_minute if per_minute is None else per_minute) / 60
        if rate <= 0:
            return 0.0
        burst = max(1.0, self.burst if per_minute is None else rate * 10)
        now = time.monotonic() if now is None else now
        with self._lock:
            bucket = self._buckets.pop(client, None) or Bucket(burst, now)
            level = min(burst, bucket.level + (now - bucket.seen) * rate)
            needed = min(cost, burst)
            allowed = level >= needed - 1e-9
            self._buckets[client] = Bucket(level - cost * allowed, now)
            while len(self._buckets) > MOST_CLIENTS:
                self._buckets.popitem(last=False)
        return 0.0 if allowed else (needed - level) / rate
