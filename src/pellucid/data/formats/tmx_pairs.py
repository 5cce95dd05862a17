"""Translation memories (TMX): a pair per translation unit, read as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lxml import etree  # type: ignore[import-untyped]

from pellucid.data.formats import Record
from pellucid.errors import InputError
from pellucid.storage.lines import open_bytes

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"

# Inline elements that contain markup of other programs, not words (TMX 1.4, section 3.3).
_CODES = ("bpt", "ept", "it", "ph", "ut")


def read_tmx_pairs(path: Path, languages: tuple[str, str]) -> Iterator[Record]:
    """Read a record from each unit (tu); a unit without a variant in both languages is "malformed".

    Languages match in any case and with any region: "en" matches en, EN, en-US. If several
    variants of a unit match, the exact one is used, or else the first. A language that no unit has,
    or a file without a unit that has both, is an `InputError` at the end.
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
        raise InputError(_no_pair_message(path, languages, seen))


def matches(wanted: str, given: str) -> bool:
    """Return whether a language code is the wanted one, possibly with a region."""
    wanted, given = (code.lower().replace("_", "-") for code in (wanted, given))
    return given == wanted or given.startswith(wanted + "-")


def _units(path: Path) -> Iterator[etree._Element]:
    with open_bytes(path) as file:
        try:
            # Entities are not expanded and nothing is fetched: a hostile file does no harm.
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
                # Free the elements already read, so that memory stays constant.
                unit.clear()
                parent = unit.getparent()
                while parent is not None and unit.getprevious() is not None:
                    del parent[0]
        except etree.XMLSyntaxError as error:
            raise InputError(f"{path} is not well-formed XML ({error.msg}): fix it") from None


def _segment(variants: list[tuple[str, etree._Element]], language: str) -> str | None:
    """Return the text in a language, or None if the unit has no plain text in it."""
    matching = [(code, variant) for code, variant in variants if matches(language, code)]
    matching.sort(key=lambda item: len(item[0]) != len(language))  # stable: exact ones first
    segment = matching[0][1].find("{*}seg") if matching else None
    return None if segment is None else _plain_text(segment)


def _plain_text(element: etree._Element) -> str | None:
    """Return the text of a segment without inline codes; None if it contains an entity."""
    parts = [element.text or ""]
    for child in element:
        if not isinstance(child.tag, str):  # an entity that was not expanded
            return None
        if etree.QName(child).localname not in _CODES:
            inner = _plain_text(child)
            if inner is None:
                return None
            parts.append(inner)
        parts.append(child.tail or "")
    return "".join(parts)


def _no_pair_message(path: Path, languages: tuple[str, str], seen: set[str]) -> str:
    have = ", ".join(sorted(seen)[:20]) or "not given"
    missing = [one for one in languages if not any(matches(one, code) for code in seen)]
    if missing:
        return f"{path} has no {' and no '.join(missing)}: its languages are {have}"
    return (
        f"{path} has no unit with both {languages[0]} and {languages[1]}: its languages are {have}"
    )
