"""Gettext catalogues (.po, .mo): a pair per entry, two for an entry with plural forms."""

from __future__ import annotations

import gettext
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polib  # type: ignore[import-untyped]

from pellucid.data.formats import Record
from pellucid.errors import InputError
from pellucid.storage.lines import open_bytes

SIZE_LIMIT = 256 << 20
"""Maximum size: polib reads a whole catalogue into memory. The largest in use have some 10 MB."""

_CHARSET = re.compile(rb"charset=([A-Za-z0-9_.:-]+)")

# polib splits lines as str.splitlines does; one of these inside a message would break it.
_LINE_BREAKS = str.maketrans(dict.fromkeys("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", " "))

_MANY = 5
"""The number whose plural form is taken for msgid_plural."""


def read_po_pairs(path: Path, languages: tuple[str, str]) -> Iterator[Record]:
    """Read a record from each entry, msgid first; two from an entry with plural forms.

    The header is not an entry. An untranslated entry has an empty second side; "fuzzy" and
    "obsolete" are recorded as problems. An entry with plurals gives msgid with the form for 1, and
    msgid_plural with the form for 5 (only the latter if the language has a single form). A msgid
    that occurs twice, in two contexts or by mistake, gives two records.
    """
    content = _content(path)
    catalogue = _parse(path, content)
    _check_language(path, catalogue.metadata.get("Language", ""), languages)
    plural = _plural_rule(catalogue.metadata.get("Plural-Forms", ""))
    for entry in catalogue:
        problem = "obsolete" if entry.obsolete else "fuzzy" if "fuzzy" in entry.flags else ""
        if not entry.msgid_plural:
            yield entry.msgid, entry.msgstr, problem
            continue
        forms = {int(index): form for index, form in entry.msgstr_plural.items()}
        one, many = plural(1), plural(_MANY)
        if one != many:
            yield entry.msgid, forms.get(one, ""), problem
        yield entry.msgid_plural, forms.get(many, ""), problem


def _content(path: Path) -> bytes:
    with open_bytes(path) as file:
        content = file.read(SIZE_LIMIT + 1)
    if len(content) > SIZE_LIMIT:
        raise InputError(f"{path} has more than {SIZE_LIMIT >> 20} MB: convert it to .tsv")
    return content


def _parse(path: Path, content: bytes) -> Any:
    """Parse with polib. Bytes of a .po file that are invalid in its charset become U+FFFD."""
    charset = _CHARSET.search(content)
    encoding = charset[1].decode("ascii") if charset else "utf-8"
    if encoding.upper() == "CHARSET":  # the placeholder in a template
        encoding = "utf-8"
    try:
        if content[:4] in (b"\xde\x12\x04\x95", b"\x95\x04\x12\xde"):
            return polib.mofile(content, encoding=encoding)
        if b"\0" in content:
            raise ValueError("it is binary, but not a .mo file")
        text = content.decode(encoding, "replace").removeprefix("\ufeff")
        # The leading line feed keeps polib from taking the content for a file name.
        text = "\n" + text.replace("\r\n", "\n").translate(_LINE_BREAKS)
        return polib.pofile(text, encoding=encoding)
    except (OSError, ValueError, LookupError, AttributeError, TypeError, struct.error) as error:
        line = re.search(r"\(line (\d+)\)(.*)\Z", str(error), re.DOTALL)
        why = f"line {int(line[1]) - 1}{line[2]}" if line else str(error)[:80] or "its structure"
        raise InputError(f"{path} is not a valid catalogue ({why}): check it with msgfmt") from None


def _plural_rule(header: str) -> Callable[[int], int]:
    """Return the catalogue's rule: from a number to the index of its plural form."""
    expression = re.search(r"plural\s*=\s*([^;]+)", header)
    if expression:
        try:
            rule: Callable[[int], int] = gettext.c2py(expression[1])
            rule(1), rule(_MANY)
        except (ValueError, ZeroDivisionError, RecursionError):
            pass
        else:
            return rule
    return lambda n: 0 if n == 1 else 1


def _check_language(path: Path, given: str, languages: tuple[str, str]) -> None:
    """Refuse a catalogue that translates into the first language: the two are swapped."""
    first, second, given = (
        re.split("[-_@]", code.strip().lower())[0] for code in (*languages, given)
    )
    if given and given == first != second:
        raise InputError(
            f"{path} translates into {given}, so its second side is {given}: "
            f'write languages = ["{languages[1]}", "{languages[0]}"]'
        )
