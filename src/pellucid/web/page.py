"""The page: its HTML, its import map, its content security policy, and the page as one file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

VENDORED = {
    "preact": "vendor/preact.mjs",
    "preact/hooks": "vendor/preact-hooks.mjs",
    "htm": "vendor/htm.mjs",
    "@preact/signals": "vendor/signals.mjs",
    "@preact/signals-core": "vendor/signals-core.mjs",
}

IMPORT_MAP = re.compile(r"\s*\{\{import map\}\}\s*")
"""Place of the import map, with the formatter's line breaks around it: the policy allows the
element by the hash of everything in it."""

OFFLINE_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'\">"
)
"""Content security policy of the page as one file: what it contains, and nothing else."""


def static() -> Traversable:
    """Return the folder of the page's files."""
    return files("pellucid.web").joinpath("static")


def import_map(base: str) -> str:
    """Return the import map: vendored modules by their names, ours under `page/`."""
    places = {name: f"{base}{path}" for name, path in VENDORED.items()}
    return json.dumps({"imports": {**places, "page/": base}}, separators=(",", ":"))


@cache
def index(root: str = "") -> str:
    """Return the page's HTML. root: path under which a proxy serves it, if not /."""
    base = f"{root}/static/"
    text = static().joinpath("index.html").read_text(encoding="utf-8")
    return IMPORT_MAP.sub(lambda _: import_map(base), text).replace("{{base}}", base)


@cache
def content_security_policy(root: str = "") -> str:
    """Return the policy: only this server's files, and the inline import map by its hash."""
    digest = hashlib.sha256(import_map(f"{root}/static/").encode()).digest()
    allowed = base64.b64encode(digest).decode()
    return (
        f"default-src 'self'; script-src 'self' 'sha256-{allowed}'; img-src 'self' data: blob:; "
        "style-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def offline_page(trace_json: str) -> str:
    """Return the page as one file that works without a server, with one trace in it."""
    modules = {}
    for name, path in [*VENDORED.items(), *((f"page/{p}", p) for p in _modules(static()))]:
        source = static().joinpath(path).read_bytes()
        modules[name] = "data:text/javascript;base64," + base64.b64encode(source).decode()
    text = static().joinpath("index.html").read_text(encoding="utf-8")
    style = static().joinpath("style.css").read_text(encoding="utf-8")
    link = '<link rel="stylesheet" href="{{base}}style.css" />'
    start = '<script type="module" src="{{base}}app.js"></script>'
    assert link in text
    assert start in text
    trace = trace_json.replace("<", "\\u003c")  # so that no text can end the script element
    imports = json.dumps({"imports": modules}, separators=(",", ":"))
    return (
        IMPORT_MAP.sub(lambda _: imports, text)
        .replace(link, f"{OFFLINE_POLICY}\n<style>\n{style}</style>")
        .replace(
            start,
            f'<script type="application/json" id="carried">{trace}</script>\n'
            '<script type="module">import "page/app.js";</script>',
        )
    )


def _modules(folder: Traversable, path: str = "") -> list[str]:
    found = []
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir() and entry.name != "vendor":
            found += _modules(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".js"):
            found.append(path + entry.name)
    return found
