"""Translation directions: what was asked for, checked against what a model offers."""

from __future__ import annotations

from typing import NamedTuple

from pellucid.bundle import BundleConfig
from pellucid.config import split_direction
from pellucid.errors import InputError, nearest


class Direction(NamedTuple):
    """A source and a target language."""

    source: str
    target: str

    @property
    def name(self) -> str:
        """As bundles and recipes write it: "fr-en"."""
        return f"{self.source}-{self.target}"


def choose_direction(settings: BundleConfig, source: str | None, target: str | None) -> Direction:
    """Return the direction that is meant, or raise an InputError with those of the model.

    One language is enough where it decides; without any, it is the model's default direction.
    """
    offers = f"it translates {', '.join(settings.directions)}"
    default = Direction(*split_direction(settings.default_direction))
    offered = [Direction(*split_direction(direction)) for direction in settings.directions]
    wanted = [_code(source), _code(target)]
    known = sorted({code for pair in offered for code in pair})
    for given, name in ((source, wanted[0]), (target, wanted[1])):
        if name is not None and name not in {code.lower() for code in known}:
            near = nearest(str(given), known)
            raise InputError(f"this model does not know the language {given!r} ({near}); {offers}")
    for pair in (default, *offered):
        if all(w is None or w == code.lower() for w, code in zip(wanted, pair, strict=True)):
            return pair
    asked = [f"from {source}"] * bool(source) + [f"into {target}"] * bool(target)
    raise InputError(f"this model does not translate {' '.join(asked)}: {offers}")


def _code(language: str | None) -> str | None:
    """Return a language code as directions write it, in lower case: "pt-BR" is "pt_br"."""
    return None if language is None else language.strip().replace("-", "_").lower()
