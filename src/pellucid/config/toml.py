"""Settings written as TOML."""

from __future__ import annotations

from typing import Any

from pellucid.config.settings import Settings


def as_toml(settings: Settings | dict[str, Any]) -> str:
    """Return settings as TOML that reads back to the same settings, without those unset."""
    import tomli_w

    values = settings.model_dump(mode="json") if isinstance(settings, Settings) else settings
    return tomli_w.dumps(_without_unset(values))


def _without_unset(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_unset(one) for key, one in value.items() if one is not None}
    return [_without_unset(one) for one in value] if isinstance(value, list | tuple) else value
