"""Every setting of the server: what is allowed, how much at once, how long."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from pellucid.config import Settings


class ServerSettings(Settings):
    """How a server behaves. The defaults are meant for an open network."""

    # How much one request may ask for; beyond it, 413 or 422 at once.
    char_limit: int = Field(default=20_000, ge=1, le=10_000_000)
    """Characters of one text."""

    total_char_limit: int = Field(default=100_000, ge=1, le=10_000_000)
    """Characters of all texts of one request."""

    batch_limit: int = Field(default=100, ge=1, le=100_000)
    """Texts of one request."""

    beam_size: int = Field(default=8, ge=1, le=64)
    """The widest search that may be asked for."""

    alternatives: int = Field(default=8, ge=0, le=64)
    """The most other translations that may be asked for."""

    file_characters: int = Field(default=1_000_000, ge=1, le=1_000_000_000)
    """Characters of the text of a file."""

    body: int = Field(default=2_000_000, ge=1000, le=1_000_000_000)
    """Bytes of a request."""

    file: int = Field(default=10_000_000, ge=1000, le=1_000_000_000)
    """Bytes of a file to translate."""

    # How much is taken on at the same time; beyond it, 503 with Retry-After.
    requests: int = Field(default=512, ge=1, le=100_000)
    """Requests under way."""

    connections: int = Field(default=2048, ge=1, le=100_000)
    """Open connections; further ones are closed."""

    waiting: int = Field(default=4096, ge=1, le=1_000_000)
    """Sentences that wait for a model."""

    held: int = Field(default=64_000_000, ge=1000, le=64_000_000_000)
    """Bytes of all requests under way."""

    looks: int = Field(default=8, ge=1, le=1000)
    """Looks inside that wait for each other."""

    req_limit: int = Field(default=1200, ge=0, le=10_000_000)
    """Texts a minute for a client without a key, by its address; 0 for any number. A sixth of it
    may come at once."""

    # How long things may take.
    seconds: float = Field(default=60.0, gt=0, le=86_400)
    """Until a translation is given up."""

    file_seconds: float = Field(default=600.0, gt=0, le=86_400)
    """Until the translation of a file is given up."""

    patience: float = Field(default=20.0, gt=0, le=3600)
    """Seconds for a client to send its headers, its body, and to take a part of the answer."""

    grace: float = Field(default=30.0, ge=0, le=3600)
    """Seconds for requests under way when the server is told to stop."""

    drain: float = Field(default=1.0, ge=0, le=600)
    """Seconds between "not ready" and the end of listening, for a balancer to notice."""

    # What else.
    workers: int | None = Field(default=None, ge=1, le=1024)
    """Batches decoded side by side, a core each; None for all cores."""

    pivot: bool = False
    """Whether to translate through a third language where no model goes straight."""

    keys: Path | None = None
    """The file with the API keys; see `pellucid serve keys`."""

    require_key: bool = False
    """Whether requests without a key are refused."""

    cors: tuple[str, ...] = ()
    """Origins whose pages may ask this server, or "*" for all; never with credentials."""

    log_texts: bool = False
    """Whether the log has the texts that were translated."""
