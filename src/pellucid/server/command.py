"""What `pellucid serve` and `pellucid serve keys` do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from pathlib import Path

from pellucid.decoding.engine_selection import EngineName
from pellucid.errors import InputError
from pellucid.server.security.keys import Keys, default_file
from pellucid.server.settings import ServerSettings


def serve(
    models: Sequence[str],
    host: str,
    port: int,
    engine: EngineName = "auto",
    settings: ServerSettings | None = None,
    *,
    root_path: str = "",
    proxies: Sequence[str] = (),
) -> None:
    """Serve the page and the API for some models until somebody stops it."""
    settings = settings or ServerSettings()
    listening = listen(host, port)
    try:
        _check_keys(settings)
        if root_path and not root_path.startswith("/"):
            raise InputError(f"--root-path {root_path!r} has to begin with /")
        from pellucid.server.app import app_for, service_for
        from pellucid.server.lifecycle import Running, config_for
        from pellucid.server.service.models import Library, Models
        from pellucid.server.service.telemetry import Log
        from pellucid.text.languages import detect

        library = Library(models, engine, settings.workers, settings.waiting)
        served = Models(library.opened(), pivot=settings.pivot)
        service = service_for(served, settings, Log())
        config = config_for(
            app_for(service),
            service,
            host=host,
            port=port,
            root_path=root_path,
            proxies=",".join(proxies),
        )
        shown, port = f"[{host}]" if ":" in host else host, listening.getsockname()[1]
        # Its model takes a second or two to unpack: not while the first client waits.
        threading.Thread(target=detect, args=("ready",), daemon=True).start()
        greeting = f"Pellucid is at http://{shown}:{port}{root_path}/ (Ctrl-C stops it)"
        Running(config, service, library, greeting).run([listening])
        service.log.write("stopped")
    finally:
        listening.close()


def listen(host: str, port: int) -> socket.socket:
    """Take the port before the models are loaded, and say so if it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, for asyncio lets small answers go at once only where it is.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except (OSError, UnicodeError, OverflowError) as error:
        made.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot listen on {host} port {port} ({reason}): choose another with --port"
        ) from None
    return made


def _check_keys(settings: ServerSettings) -> None:
    keys = Keys(settings.keys or default_file())
    if not keys.all() and settings.require_key:
        raise InputError(
            f"--require-key, and there is no key in {keys.file}: pellucid serve keys add NAME"
        )


def add_key(name: str, per_minute: int | None, file: Path | None) -> str:
    """Make a key; it is shown once."""
    return Keys(file or default_file()).add(name, per_minute)


def revoke_key(name: str, file: Path | None) -> None:
    """Take a key away; running servers refuse it from the next request on."""
    Keys(file or default_file()).revoke(name)


def listed_keys(file: Path | None) -> list[str]:
    """A line for each key: its name, when it was made, its own rate."""
    kept = Keys(file or default_file()).all()
    rates = (f"\t{key.per_minute} a minute" if key.per_minute is not None else "" for key in kept)
    return [f"{key.name}\t{key.created}{rate}" for key, rate in zip(kept, rates, strict=True)]
