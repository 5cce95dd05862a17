"""Settings as TOML."""

from __future__ import annotations

import json
import re
from typing import Any

from pellucid.config.settings import Settings


def as_toml(settings: Settings | dict[str, Any]) -> str:
    """Settings as TOML that reads back to the same; what is unset is left out."""
    values = settings.model_dump(mode="json") if isinstance(settings, Settings) else settings
    lines: list[str] = []
    _write_table(lines, values, "")
    return "\n".join(lines).lstrip("\n") + "\n"


def _write_table(lines: list[str], values: dict[str, Any], name: str) -> None:
    def is_table(value: Any) -> bool:
        return isinstance(value, dict)

    def is_tables(value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)

    for key, value in values.items():
        if value is not None and not is_table(value) and not is_tables(value):
            lines.append(f"{_toml_key(key)} = {_toml_value(value)}")
    for key, value in values.items():
        inner = f"{name}.{_toml_key(key)}" if name else _toml_key(key)
        if is_table(value):
            lines += ["", f"[{inner}]"]
            _write_table(lines, value, inner)
        elif is_tables(value):
            for one in value:
                lines += ["", f"[[{inner}]]"]
                _write_table(lines, one, inner)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(one) for one in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # TOML writes nan and inf as Python does, and a whole number needs its point
        return repr(value)
    if isinstance(value, str):
        # a JSON string is a TOML string, but for U+007F and surrogates written as pairs
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise TypeError(f"{value!r} has no form in TOML")
