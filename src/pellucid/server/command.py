"""The commands `pellucid serve` and `pellucid serve keys`."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pellucid.console.options import Argument, Option, say
from pellucid.decoding.engine_selection import EngineName
from pellucid.errors import InputError

if TYPE_CHECKING:
    from pellucid.server.settings import ServerSettings

KeyFile = Annotated[
    Path | None,
    Option("--keys", metavar="FILE", help="File of the keys; if unset, one in your home."),
]


def serve(
    model: Annotated[
        list[str] | None,
        Option(metavar="NAME|DIR", help="Model, or folder of models. Repeatable."),
    ] = None,
    host: Annotated[
        str, Option(help="Address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    engine: Annotated[str, Option(metavar="auto|ct2|torch", help="Inference engine.")] = "auto",
    workers: Annotated[int | None, Option(min=1, help="Cores to use; if unset, all.")] = None,
    pivot: Annotated[
        bool,
        Option("--pivot", help="Translate through a third language where no model does directly."),
    ] = False,
    keys: KeyFile = None,
    require_key: Annotated[
        bool, Option("--require-key", help="Refuse requests without an API key.")
    ] = False,
    req_limit: Annotated[
        int,
        Option(min=0, help="Rate limit: texts per minute of a client; 0 for none."),
    ] = 1200,
    char_limit: Annotated[int, Option(min=1, help="Maximum characters of a text.")] = 20_000,
    batch_limit: Annotated[int, Option(min=1, help="Maximum texts of a request.")] = 100,
    beam_size: Annotated[
        int, Option(min=1, max=64, help="Maximum beam size, and alternatives, of a request.")
    ] = 8,
    file_mb: Annotated[
        float, Option(min=0.01, max=1000, help="Maximum megabytes of a file to translate.")
    ] = 10.0,
    timeout: Annotated[
        float, Option(min=0.1, help="Seconds until a translation is cancelled.")
    ] = 60.0,
    root_path: Annotated[
        str, Option(help="Path under which a proxy serves this, e.g. /translate.")
    ] = "",
    proxy: Annotated[
        list[str] | None,
        Option(metavar="ADDRESS", help="Proxy whose X-Forwarded headers are trusted. Repeatable."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        Option(metavar="ORIGIN", help="Origin whose pages may call the API, or *. Repeatable."),
    ] = None,
    graceful_timeout: Annotated[
        float, Option(min=0, help="Seconds that requests have to finish after SIGTERM.")
    ] = 30.0,
    drain: Annotated[
        float, Option(min=0, help='Seconds between "not ready" and closing the port.')
    ] = 1.0,
    log_texts: Annotated[
        bool, Option("--log-texts", help="Write the texts that are translated into the log.")
    ] = False,
) -> None:
    """Serve the web page and the HTTP API.

    Only this machine can reach it, unless --host says otherwise. Limits are on by default;
    docs/serve.md explains how to run it for others.
    """
    from pellucid.server.settings import ServerSettings

    settings = ServerSettings(
        workers=workers,
        pivot=pivot,
        keys=keys,
        require_key=require_key,
        req_limit=req_limit,
        char_limit=char_limit,
        total_char_limit=5 * char_limit,
        batch_limit=batch_limit,
        beam_size=beam_size,
        alternatives=beam_size,
        max_file_bytes=int(file_mb * 1e6),
        timeout=timeout,
        cors=tuple(cors or ()),
        graceful_timeout=graceful_timeout,
        drain=drain,
        log_texts=log_texts,
    )
    _run(settings, model or [], _engine_name(engine), host, port, root_path, proxy or [])


def _run(
    settings: ServerSettings,
    models: list[str],
    engine: EngineName,
    host: str,
    port: int,
    root_path: str,
    proxies: list[str],
) -> None:
    """Load the models and serve until a signal stops the server."""
    port_socket = listen(host, port)
    try:
        _check_keys(settings.keys, settings.require_key)
        if root_path and not root_path.startswith("/"):
            raise InputError(f"--root-path {root_path!r} has to begin with /")
        from pellucid.server.app import build_app, create_state
        from pellucid.server.lifecycle import GracefulServer, uvicorn_config
        from pellucid.server.service.served_models import ModelLoader, ServedModels
        from pellucid.server.service.telemetry import JsonLog
        from pellucid.text.languages import detect

        loader = ModelLoader(models, engine, settings.workers, settings.max_queued)
        state = create_state(ServedModels(loader.load(), pivot=settings.pivot), settings, JsonLog())
        shown, port = f"[{host}]" if ":" in host else host, port_socket.getsockname()[1]
        greeting = f"Pellucid is at http://{shown}:{port}{root_path}/ (Ctrl-C stops it)"
        config = uvicorn_config(
            build_app(state),
            state,
            host=host,
            port=port,
            root_path=root_path,
            proxies=",".join(proxies),
        )
        # Language detection takes a second or two to load: not while the first client waits.
        threading.Thread(target=detect, args=("ready",), daemon=True).start()
        GracefulServer(config, state, loader, greeting).run([port_socket])
        state.log.write("stopped")
    finally:
        port_socket.close()


def listen(host: str, port: int) -> socket.socket:
    """Bind the port, before the models are loaded, so that a taken one is an error at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol given, asyncio sets TCP_NODELAY, so that small responses are not delayed.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, UnicodeError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot listen on {host} port {port} ({reason}): choose another with --port"
        ) from None
    return bound


def _engine_name(name: str) -> EngineName:
    return name  # type: ignore[return-value]  # open_engine says which there are


def _check_keys(file: Path | None, require_key: bool) -> None:
    """Read the keys once, so that a damaged file is an error at the start."""
    from pellucid.server.security.api_keys import ApiKeys, default_file

    keys = ApiKeys(file or default_file())
    if not keys.all() and require_key:
        raise InputError(
            f"--require-key, and there is no key in {keys.file}: pellucid serve keys add NAME"
        )


def add_key(
    name: Annotated[str, Argument(help="Name of the key's owner.")],
    req_limit: Annotated[
        int | None,
        Option(min=0, help="Rate limit in texts per minute, if other than the server's."),
    ] = None,
    keys: KeyFile = None,
) -> None:
    """Create an API key and show it, this once."""
    from pellucid.server.security.api_keys import ApiKeys, default_file

    say(ApiKeys(keys or default_file()).add(name, req_limit))
    say("This is the only time that it is shown; only its hash is stored.", error=True)


def list_keys(keys: KeyFile = None) -> None:
    """List the API keys: name, date and rate limit, not the keys themselves."""
    from pellucid.server.security.api_keys import ApiKeys, default_file

    for key in ApiKeys(keys or default_file()).all():
        limit = "" if key.per_minute is None else f"\t{key.per_minute} per minute"
        say(f"{key.name}\t{key.created}{limit}")


def revoke_key(
    name: Annotated[str, Argument(help="Name of the key.")], keys: KeyFile = None
) -> None:
    """Revoke an API key, at once, also on servers that are running."""
    from pellucid.server.security.api_keys import ApiKeys, default_file

    ApiKeys(keys or default_file()).revoke(name)
