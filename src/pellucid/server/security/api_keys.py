"""API keys: shown once when created, stored only as hashes, compared in constant time.

A key is 256 random bits, so it cannot be found from its SHA-256 by trying; salts and slow hashes
are for passwords, which people choose.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pellucid.errors import InputError, PellucidError
from pellucid.storage.files import write_atomic

PREFIX = "plk_"
_NAME = re.compile(r"[\w.@-]{1,64}")


@dataclass(frozen=True)
class ApiKey:
    """What is stored of a key."""

    name: str
    sha256: str
    created: str
    per_minute: int | None = None
    """Rate limit in texts per minute, if other than the server's."""


def default_file() -> Path:
    """Return the file of the keys: PELLUCID_KEYS, or one in the user's configuration folder."""
    given = os.environ.get("PELLUCID_KEYS")
    if given:
        return Path(given).expanduser()
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "pellucid" / "keys.json"


class ApiKeys:
    """The keys in a file. A running server sees changes to it with the next request."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._version: tuple[int, int] | None = None
        self._keys: list[ApiKey] = []

    def all(self) -> list[ApiKey]:
        """Return every key, in the order of creation."""
        try:
            stat = self.file.stat()
        except FileNotFoundError:
            self._version, self._keys = None, []
            return []
        except OSError as error:
            raise PellucidError(f"cannot read the keys in {self.file}: {error.strerror}") from None
        if (version := (stat.st_mtime_ns, stat.st_size)) != self._version:
            try:
                rows = json.loads(self.file.read_text(encoding="utf-8"))
                self._keys = [ApiKey(**row) for row in rows]
            except (OSError, ValueError, TypeError) as error:
                raise PellucidError(f"cannot read the keys in {self.file}: {error}") from None
            self._version = version
        return self._keys

    def find(self, secret: str) -> ApiKey | None:
        """Return the key with this secret, or None. All are compared, so timing reveals nothing."""
        digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        found = None
        for key in self.all():
            if hmac.compare_digest(key.sha256, digest):
                found = key
        return found

    def add(self, name: str, per_minute: int | None = None) -> str:
        """Create a key and return its secret, which cannot be shown again."""
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} is not a name for a key: use letters, digits, . _ @ or -")
        kept = self.all()
        if any(key.name == name for key in kept):
            raise InputError(
                f"there is a key {name!r} already: revoke it first, or choose another name"
            )
        secret = PREFIX + secrets.token_urlsafe(32)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._write([*kept, ApiKey(name, digest, now, per_minute)])
        return secret

    def revoke(self, name: str) -> None:
        """Revoke a key; it is refused from the next request on."""
        kept = self.all()
        if all(key.name != name for key in kept):
            known = ", ".join(key.name for key in kept) or "none"
            raise InputError(f"there is no key {name!r}; there is: {known}")
        self._write([key for key in kept if key.name != name])

    def _write(self, keys: list[ApiKey]) -> None:
        """Replace the file atomically; only its owner may read it."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps([asdict(key) for key in keys], indent=1)
            write_atomic(self.file, text, mode=0o600)
        except OSError as error:
            raise PellucidError(f"cannot write the keys to {self.file}: {error.strerror}") from None
        self._version = None
