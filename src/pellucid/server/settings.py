"""Settings of the server: limits per request, limits over all requests, timeouts, access."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from pellucid.config import Settings


class ServerSettings(Settings):
    """Settings of the server. The defaults are meant for an open network."""

    # Limits of one request; beyond them it is refused at once with 413 or 422.
    char_limit: int = Field(default=20_000, ge=1, le=10_000_000)
    """Maximum characters of one text."""

    total_char_limit: int = Field(default=100_000, ge=1, le=10_000_000)
    """Maximum characters of all texts of one request."""

    batch_limit: int = Field(default=100, ge=1, le=100_000)
    """Maximum texts of one request."""

    beam_size: int = Field(default=8, ge=1, le=64)
    """Maximum beam size that a request may ask for."""

    alternatives: int = Field(default=8, ge=0, le=64)
    """Maximum number of alternative translations that a request may ask for."""

    file_char_limit: int = Field(default=1_000_000, ge=1, le=1_000_000_000)
    """Maximum characters of the text of a file."""

    max_body_bytes: int = Field(default=2_000_000, ge=1000, le=1_000_000_000)
    """Maximum size of a request body in bytes."""

    max_file_bytes: int = Field(default=10_000_000, ge=1000, le=1_000_000_000)
    """Maximum size of a file to translate in bytes."""

    # Limits over all requests; beyond them a request is refused with 503 and Retry-After.
    max_requests: int = Field(default=512, ge=1, le=100_000)
    """Maximum requests in progress."""

    max_connections: int = Field(default=2048, ge=1, le=100_000)
    """Maximum open connections; further ones are closed."""

    max_queued: int = Field(default=4096, ge=1, le=1_000_000)
    """Maximum sentences in the queue of a model."""

    max_held_bytes: int = Field(default=64_000_000, ge=1000, le=64_000_000_000)
    """Maximum bytes of all request bodies in memory."""

    max_inspections: int = Field(default=8, ge=1, le=1000)
    """Maximum requests that look inside, or wait to."""

    req_limit: int = Field(default=1200, ge=0, le=10_000_000)
    """Rate limit: texts per minute of a client without a key, by its address; 0 for no limit. A
    sixth of it may come in one burst."""

    # Timeouts.
    timeout: float = Field(default=60.0, gt=0, le=86_400)
    """Seconds until a translation is cancelled."""

    file_timeout: float = Field(default=600.0, gt=0, le=86_400)
    """Seconds until the translation of a file is cancelled."""

    client_timeout: float = Field(default=20.0, gt=0, le=3600)
    """Seconds that a client may take to send its headers, to send its body, or to receive a part of
    the response."""

    graceful_timeout: float = Field(default=30.0, ge=0, le=3600)
    """Seconds that requests in progress have to finish when the server shuts down."""

    drain: float = Field(default=1.0, ge=0, le=600)
    """Seconds between reporting "not ready" and closing the port, for a load balancer to notice."""

    # Models, access and logging.
    workers: int | None = Field(default=None, ge=1, le=1024)
    """Batches decoded in parallel, one core each; unset, all cores."""

    pivot: bool = False
    """Translate through a third language where no model translates directly."""

    keys: Path | None = None
    """File of the API keys; see `pellucid serve keys`."""

    require_key: bool = False
    """Refuse requests without an API key."""

    cors: tuple[str, ...] = ()
    """Origins whose pages may call this server, or "*" for all; never with credentials."""

    log_texts: bool = False
    """Write the texts that were translated into the log."""
