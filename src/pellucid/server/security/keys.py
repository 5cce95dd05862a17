"""API keys: shown once when made, kept only as hashes, compared in constant time.

A key is 256 random bits, so a plain SHA-256 of it cannot be guessed backwards; salt and slow hashes
are for passwords, which people choose.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pellucid.errors import InputError, PellucidError

PREFIX = "plk_"
_NAME = re.compile(r"[\w.@-]{1,64}")


@dataclass(frozen=True)
class Key:
    """What is kept of a key."""

    name: str
    sha256: str
    created: str
    per_minute: int | None = None
    """Requests a minute, where it differs from the server's."""


def default_file() -> Path:
    """Where keys are kept: PELLUCID_KEYS, or a file in the user's configuration folder."""
    given = os.environ.get("PELLUCID_KEYS")
    if given:
        return Path(given).expanduser()
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "pellucid" / "keys.json"


class Keys:
    """The keys in a file. A running server sees changes of it at the next request."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._seen: tuple[int, int] | None = None
        self._keys: list[Key] = []

    def all(self) -> list[Key]:
        """Every key, in the order they were made."""
        try:
            stat = self.file.stat()
        except FileNotFoundError:
            self._seen, self._keys = None, []
            return []
        except OSError as error:
            raise PellucidError(f"cannot read the keys in {self.file}: {error.strerror}") from None
        if (seen := (stat.st_mtime_ns, stat.st_size)) != self._seen:
            try:
                rows = json.loads(self.file.read_text(encoding="utf-8"))
                self._keys = [Key(**row) for row in rows]
            except (OSError, ValueError, TypeError) as error:
                raise PellucidError(f"cannot read the keys in {self.file}: {error}") from None
            self._seen = seen
        return self._keys

    def find(self, given: str) -> Key | None:
        """The key that this is. Every kept one is compared, so time tells nothing."""
        digest = hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()
        found = None
        for key in self.all():
            if hmac.compare_digest(key.sha256, digest):
                found = key
        return found

    def add(self, name: str, per_minute: int | None = None) -> str:
        """A new key. It is returned here and never again."""
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} is no name for a key: use letters, digits, . _ @ or -")
        kept = self.all()
        if any(key.name == name for key in kept):
            raise InputError(f"there is a key {name!r} already: revoke it first, or choose a name")
        secret = PREFIX + secrets.token_urlsafe(32)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._write([*kept, Key(name, digest, now, per_minute)])
        return secret

    def revoke(self, name: str) -> None:
        """Take a key away; it is refused from the next request on."""
        kept = self.all()
        if all(key.name != name for key in kept):
            known = ", ".join(key.name for key in kept) or "none"
            raise InputError(f"there is no key {name!r}; there is: {known}")
        self._write([key for key in kept if key.name != name])

    def _write(self, keys: list[Key]) -> None:
        """All of the new file or all of the old one; only its owner may read it."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            draft, name = tempfile.mkstemp(dir=self.file.parent, prefix=".keys-")
            with os.fdopen(draft, "w", encoding="utf-8") as file:
                json.dump([asdict(key) for key in keys], file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.file)
        except OSError as error:
            raise PellucidError(f"cannot write the keys to {self.file}: {error.strerror}") from None
        self._seen = None
