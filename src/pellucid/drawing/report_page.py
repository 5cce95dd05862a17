"""A self-contained page: no scripts, nothing fetched, for light, dark and print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from pellucid import __version__
from pellucid.drawing.svg import escaped
from pellucid.errors import PellucidError
from pellucid.storage.files import write_atomic


def page(title: str, sections: Iterable[str], style: str = "") -> str:
    """Return a page. sections: HTML, empty ones are left out. style: CSS besides the common one."""
    common = files("pellucid.drawing").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escaped(title)}</title>\n<style>\n{common}{style}</style>\n</head>\n<body>\n"
        "<main>\n"
        + "\n".join(part for part in sections if part)
        + f"\n<footer>Written by Pellucid {escaped(__version__)}.</footer>\n"
        "</main>\n</body>\n</html>\n"
    )


def section(heading: str, content: str, kind: str = "") -> str:
    """Return a section with its heading; nothing if there is no content."""
    if not content:
        return ""
    inner = f'<div class="{kind}">{content}</div>' if kind else content
    return f"<section><h2>{escaped(heading)}</h2>{inner}</section>"


def cards(facts: Iterable[tuple[str, str, str]]) -> str:
    """Return cards with the main facts: a value, its name and a note each."""
    shown = "".join(
        f'<div class="card"><b>{escaped(value)}</b><span>{escaped(name)}</span>'
        f"<small>{escaped(note)}</small></div>"
        for value, name, note in facts
    )
    return f'<div class="cards">{shown}</div>'


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()
) -> str:
    """Return a table; `numbers` are the columns, from 0, that are aligned right."""
    right = set(numbers)

    def cells(tag: str, row: Sequence[object]) -> str:
        return "".join(
            f"<{tag}{' class=number' if column in right else ''}>{escaped(cell)}</{tag}>"
            for column, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def write_page(path: Path, text: str) -> None:
    """Write a page atomically, so that a failure leaves no half of one."""
    try:
        write_atomic(path, text)
    except OSError as error:
        raise PellucidError(f"cannot write {path}: {error.strerror}") from error
