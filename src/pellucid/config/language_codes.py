"""Language codes and translation directions."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from pellucid.errors import ConfigError

_LANGUAGE = r"[A-Za-z]{2,8}(_[A-Za-z0-9]{1,8})*"
Language = Annotated[str, Field(pattern=f"^{_LANGUAGE}$")]


def split_direction(direction: str) -> tuple[str, str]:
    """Return the source and the target language of a direction: "fr-en" is ("fr", "en")."""
    source, dash, target = direction.partition("-")
    if not (dash and re.fullmatch(_LANGUAGE, source) and re.fullmatch(_LANGUAGE, target)):
        raise ConfigError(
            f"direction {direction!r} is not two language codes: write it like 'fr-en' "
            "(a region follows an underscore: 'pt_BR-en')"
        )
    return source, target
