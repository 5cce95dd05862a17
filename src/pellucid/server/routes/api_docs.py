"""The page at /docs: every route, from /openapi.json; without scripts and without a CDN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pellucid.drawing.report_page import page, section
from pellucid.drawing.svg import escaped

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The page may load its own style and nothing else."""


def api_docs(description: dict[str, Any], root: str = "") -> str:
    """Make the HTML page for an OpenAPI description."""
    intro = (
        f"<p>{escaped(description['info'].get('description', ''))} For programs: "
        f'<a href="{escaped(root)}/openapi.json">openapi.json</a>.</p>'
    )
    parts = [f"<h1>{escaped(description['info']['title'])}</h1>", intro]
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            content = "".join(_route(description, route))
            parts.append(section(f"{method.upper()} {path}", content))
    return page(f"{description['info']['title']}: the API", parts)


def _route(description: dict[str, Any], route: dict[str, Any]) -> Iterator[str]:
    for paragraph in route.get("description", "").split("\n\n"):
        yield f"<p>{escaped(paragraph)}</p>"
    fields = [
        (p["name"], p["schema"], p.get("required", False)) for p in route.get("parameters", ())
    ]
    content = route.get("requestBody", {}).get("content", {})
    if content:
        yield f"<p>Body: {escaped(' or '.join(content))}</p>"
        schema = _resolved(description, next(iter(content.values()))["schema"])
        needed = schema.get("required", ())
        fields += [(n, s, n in needed) for n, s in schema.get("properties", {}).items()]
    if fields:
        rows = "".join(_row(description, *one) for one in fields)
        yield f"<table><tr><th>field</th><th>type</th><th>meaning</th></tr>{rows}</table>"
    rows = "".join(
        f"<tr><td>{escaped(status)}</td><td>{escaped(answer.get('description', ''))}</td></tr>"
        for status, answer in route["responses"].items()
    )
    yield f"<table><tr><th>response</th><th></th></tr>{rows}</table>"


def _row(description: dict[str, Any], name: str, schema: dict[str, Any], needed: bool) -> str:
    kind = _kind(description, schema) + ("" if needed else ", optional")
    if schema.get("default") not in (None, "", []):
        kind += f" ({schema['default']})"
    meaning = schema.get("description", "")
    return (
        f"<tr><td><code>{escaped(name)}</code></td><td>{escaped(kind)}</td>"
        f"<td>{escaped(meaning)}</td></tr>"
    )


def _kind(description: dict[str, Any], schema: dict[str, Any]) -> str:
    """Describe the type of a field."""
    schema = _resolved(description, schema)
    if "anyOf" in schema:
        kinds = [_kind(description, one) for one in schema["anyOf"]]
        return " or ".join(kind for kind in kinds if kind != "null")
    if "enum" in schema:
        return " or ".join(str(one) for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(description, schema.get('items', {}))}"
    bounds = [
        f"{word} {schema[key]}"
        for key, word in (("minimum", "from"), ("maximum", "to"), ("maxLength", "up to"))
        if key in schema
    ]
    return " ".join([schema.get("type", "any"), *bounds])


def _resolved(description: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = description["components"]["schemas"][name] if name else schema
    return found
