"""Translation memories (TMX), read unit by unit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lxml import etree  # type: ignore[import-untyped]

from pellucid.errors import InputError
from pellucid.storage.lines import open_bytes

if TYPE_CHECKING:
    from pellucid.data.corpus import Record

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"

# Inline elements that hold the markup of another program, not words (TMX 1.4, section 3.3).
_CODES = ("bpt", "ept", "it", "ph", "ut")


def read_tmx(path: Path, languages: tuple[str, str]) -> Iterator[Record]:
    """A record for each unit (tu). One that lacks a variant in either language is "malformed".

    Languages match whatever their case and with any region: "en" finds en, EN, en-US. Where a unit
    has several, the one spelled exactly so is taken, or else the first. If a language is nowhere
    in the file, or no unit has both, that is an `InputError` at the end.
    """
    seen: set[str] = set()
    units = found = 0
    for unit in _units(path):
        units += 1
        variants = [
            ((variant.get(_XML_LANG) or variant.get("lang") or "").strip(), variant)
            for variant in unit.iterchildren("{*}tuv")
        ]
        seen.update(language for language, _ in variants if language)
        first, second = (_segment(variants, language) for language in languages)
        if first is None or second is None:
            yield first or "", second or "", "malformed"
        else:
            found += 1
            yield first, second, ""
    if units and not found:
        raise InputError(_nothing_found(path, languages, seen))


def matches(wanted: str, given: str) -> bool:
    """Whether a language code is the wanted one, or the wanted one with a region added."""
    wanted, given = (code.lower().replace("_", "-") for code in (wanted, given))
    return given == wanted or given.startswith(wanted + "-")


def _units(path: Path) -> Iterator[etree._Element]:
    with open_bytes(path) as file:
        try:
            # No entity is expanded and nothing is fetched, so a hostile file can do no harm.
            for _, unit in etree.iterparse(
                file,
                events=("end",),
                tag="{*}tu",
                resolve_entities=False,
                no_network=True,
                load_dtd=False,
                huge_tree=False,
                remove_comments=True,
                remove_pis=True,
            ):
                yield unit
                # Forget what was read: the unit, and what stood before it.
                unit.clear()
                parent = unit.getparent()
                while parent is not None and unit.getprevious() is not None:
                    del parent[0]
        except etree.XMLSyntaxError as error:
            raise InputError(f"{path} is not well-formed XML ({error.msg}): mend it") from None


def _segment(variants: list[tuple[str, etree._Element]], language: str) -> str | None:
    """The text in a language, or None if the unit does not have it (or not as plain text)."""
    fitting = [(code, variant) for code, variant in variants if matches(language, code)]
    fitting.sort(key=lambda item: len(item[0]) != len(language))  # stable: exact ones first
    segment = fitting[0][1].find("{*}seg") if fitting else None
    return None if segment is None else _words(segment)


def _words(element: etree._Element) -> str | None:
    """The text of a segment without the codes of other programs; None if an entity is in it."""
    parts = [element.text or ""]
    for child in element:
        if not isinstance(child.tag, str):  # an entity that was not expanded
            return None
        if etree.QName(child).localname not in _CODES:
            inner = _words(child)
            if inner is None:
                return None
            parts.append(inner)
        parts.append(child.tail or "")
    return "".join(parts)


def _nothing_found(path: Path, languages: tuple[str, str], seen: set[str]) -> str:
    have = ", ".join(sorted(seen)[:20]) or "none that are named"
    missing = [one for one in languages if not any(matches(one, code) for code in seen)]
    if missing:
        return f"{path} has no {' and no '.join(missing)}: its languages are {have}"
    return (
        f"{path} has no unit with both {languages[0]} and {languages[1]}: its languages are {have}"
    )
