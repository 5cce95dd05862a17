"""What `pellucid serve` does."""

from __future__ import annotations

import socket
import sys

from pellucid.decoding.engines import EngineName
from pellucid.errors import InputError
from pellucid.translator import Translator, load


def serve(model: str | None, host: str, port: int, engine: EngineName = "auto") -> None:
    """Serve the page and the API for a model until somebody stops it."""
    _check_free(host, port)
    translator = load(model, engine)
    import uvicorn

    from pellucid.server.app import create_app
    from pellucid.server.batching import BatchingEngine
    from pellucid.server.looking import Looks

    batching = BatchingEngine(translator.engine)
    app = create_app(Translator(translator.bundle, batching), Looks(translator.bundle.folder))
    shown = f"[{host}]" if ":" in host else host
    print(f"Pellucid is at http://{shown}:{port}/ (Ctrl-C stops it)", file=sys.stderr)
    try:
        uvicorn.run(app, host=host, port=port, log_level="warning", server_header=False)
    finally:
        batching.close()


def _check_free(host: str, port: int) -> None:
    """Say so before the model is loaded, if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except (OSError, UnicodeError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"cannot listen on {host} port {port} ({reason}): choose another with --port"
            ) from None
