"""Exceptions, with messages for the person who reads them.

Every message says what, where and what to do, in one line. The command line prints it without a
traceback and exits with `exit_code`.
"""

from __future__ import annotations


class PellucidError(Exception):
    """A failure that is not the caller's mistake (a full disk, a damaged file)."""

    exit_code = 1

    on_all_ranks = False
    """Whether all processes of a run raise it together; then only the first one prints it."""


class InputError(PellucidError, ValueError):
    """The call or the input was wrong; the message says how to fix it."""

    exit_code = 2


class ConfigError(InputError):
    """A setting is unknown, missing or impossible."""


class MissingExtraError(InputError, ImportError):
    """A part of Pellucid was used whose optional dependencies are not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'pellucid[{extra}]'")


def nearest(word: str, known: list[str]) -> str:
    """Return a hint with the known word closest to a misspelled one, or with all of them."""
    import difflib  # only here, where something went wrong

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
