"""What can go wrong, in words for the person who reads it.

Every message says what, where and what to do, in one line. The command line prints it without a
traceback and ends with `exit_code`.
"""

from __future__ import annotations


class PellucidError(Exception):
    """Something failed that is not the caller's mistake (a full disk, a damaged file)."""

    exit_code = 1

    everywhere = False
    """Whether all processes of a run raise it together; then only the first one prints it."""


class InputError(PellucidError, ValueError):
    """The call or the input was wrong, and the message says how to put it right."""

    exit_code = 2


class ConfigError(InputError):
    """A setting is unknown, missing or impossible."""


class MissingExtraError(InputError, ImportError):
    """A part of Pellucid was used whose dependencies are not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'pellucid[{extra}]'")


def nearest(word: str, known: list[str]) -> str:
    """A hint that names the known word closest to a misspelled one, or lists them all."""
    import difflib  # only here, where something went wrong

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
