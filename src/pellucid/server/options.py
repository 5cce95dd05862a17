"""The commands `pellucid serve` and `pellucid serve keys`: their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pellucid.cli.parser import Argument, Option, say

KeyFile = Annotated[
    Path | None,
    Option("--keys", help="The file with the keys; by default one in your home."),
]


def serve(
    model: Annotated[
        list[str] | None,
        Option(
            metavar="NAME|DIR",
            help="Which model, or a folder of models; give it several times for several.",
        ),
    ] = None,
    host: Annotated[
        str, Option(help="Where to listen; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    engine: Annotated[str, Option(metavar="auto|ct2|torch", help="What runs it.")] = "auto",
    workers: Annotated[
        int | None, Option(min=1, help="Cores to translate with; by default all.")
    ] = None,
    pivot: Annotated[
        bool, Option("--pivot", help="Go through a third language where no model does.")
    ] = False,
    keys: KeyFile = None,
    require_key: Annotated[
        bool, Option("--require-key", help="Refuse requests without an API key.")
    ] = False,
    per_minute: Annotated[
        int,
        Option(min=0, help="Texts a minute of one client; 0: any."),
    ] = 1200,
    characters: Annotated[int, Option(min=1, help="Characters of one text.")] = 20_000,
    texts: Annotated[int, Option(min=1, help="Texts of one request.")] = 100,
    beam: Annotated[int, Option(min=1, max=64, help="The widest search.")] = 8,
    file_mb: Annotated[
        float,
        Option(min=0.01, max=1000, help="A file to translate."),
    ] = 10.0,
    seconds: Annotated[float, Option(min=0.1, help="Until a text is given up.")] = 60.0,
    root_path: Annotated[str, Option(help="Where a proxy has it, e.g. /tr.")] = "",
    proxy: Annotated[
        list[str] | None,
        Option(
            metavar="ADDRESS",
            help="A proxy whose X-Forwarded headers are believed.",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        Option(metavar="ORIGIN", help="Whose pages may ask, or *."),
    ] = None,
    grace: Annotated[
        float,
        Option(min=0, help="Seconds to finish after SIGTERM."),
    ] = 30.0,
    drain: Annotated[
        float,
        Option(min=0, help='Seconds from "not ready" to closed.'),
    ] = 1.0,
    log_texts: Annotated[
        bool, Option("--log-texts", help="Write what is translated into the log.")
    ] = False,
) -> None:
    """Serve the web page, with everything that happens inside, and the HTTP API.

    For this machine only, unless --host says otherwise. Limits are on; docs/serve.md tells how to
    run it for others.
    """
    from pellucid.server.command import serve as run_serve
    from pellucid.server.settings import ServerSettings

    settings = ServerSettings(
        workers=workers,
        pivot=pivot,
        keys=keys,
        require_key=require_key,
        req_limit=per_minute,
        char_limit=characters,
        total_char_limit=max(characters, 5 * characters),
        batch_limit=texts,
        beam_size=beam,
        alternatives=beam,
        file=int(file_mb * 1e6),
        seconds=seconds,
        cors=tuple(cors or ()),
        grace=grace,
        drain=drain,
        log_texts=log_texts,
    )
    run_serve(
        model or [],
        host,
        port,
        engine,  # type: ignore[arg-type]
        settings,
        root_path=root_path,
        proxies=proxy or (),
    )


def add_key(
    name: Annotated[str, Argument(help="Whose key it is.")],
    per_minute: Annotated[
        int | None, Option(min=0, help="Texts a minute, if other than the server's.")
    ] = None,
    keys: KeyFile = None,
) -> None:
    """Make a key and show it, this once."""
    from pellucid.server.command import add_key as add

    say(add(name, per_minute, keys))
    say("This is the only time that it is shown; only its hash is kept.", error=True)


def list_keys(keys: KeyFile = None) -> None:
    """Show whose keys there are; not the keys."""
    from pellucid.server.command import listed_keys

    for line in listed_keys(keys):
        say(line)


def revoke_key(name: Annotated[str, Argument(help="Whose key.")], keys: KeyFile = None) -> None:
    """Take a key away, at once, also from servers that run."""
    from pellucid.server.command import revoke_key as revoke

    revoke(name, keys)
