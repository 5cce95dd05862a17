"""A matrix of files as they come, and as an enemy would make them."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import polib
import pytest
import zstandard

from pellucid.config import CorpusConfig, DataConfig, split_direction
from pellucid.data.corpus import Pair, mixing_shares, read_pairs
from pellucid.errors import ConfigError, InputError, PellucidError
from pellucid.storage.lines import LINE_LIMIT, read_lines

EN_FR = ("en", "fr")
Rows = list[tuple[str, str, str]]


def one_file(path: Path, content: bytes | str, **settings: object) -> CorpusConfig:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return CorpusConfig(path=path, languages=EN_FR, **settings)


def two_files(folder: Path, source: bytes, target: bytes) -> CorpusConfig:
    (folder / "a.en").write_bytes(source)
    (folder / "a.fr").write_bytes(target)
    return CorpusConfig(source=folder / "a.en", target=folder / "a.fr", languages=EN_FR)


def rows(corpus: CorpusConfig) -> Rows:
    pairs = list(read_pairs(corpus))
    assert [pair.number for pair in pairs] == list(range(1, len(pairs) + 1))
    return [(pair.first, pair.second, pair.problem) for pair in pairs]


# Lines. What matters is that line 3 is line 3 on both sides.

SEPARATORS = ["\u2028", "\u2029", "\x85", "\f", "\v", "\x1c", "\x1d", "\x1e", "\r", "\0"]


@pytest.mark.parametrize("separator", SEPARATORS, ids=lambda s: f"U+{ord(s):04X}")
def test_only_a_line_feed_ends_a_line(tmp_path: Path, separator: str) -> None:
    source = f"one\ntwo{separator}halves\nthree\n".encode()
    corpus = two_files(tmp_path, source, b"un\ndeux\ntrois\n")
    expected = [("one", "un", ""), (f"two{separator}halves", "deux", ""), ("three", "trois", "")]
    assert rows(corpus) == expected
    corpus = one_file(tmp_path / "a.tsv", f"two{separator}halves\tdeux\nthree\ttrois\n")
    assert rows(corpus) == expected[1:]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\r\r\nb", ["a\r", "b"]),
        (b"\xef\xbb\xbfa\nb", ["a", "b"]),
        (b"\xef\xbb\xbf", [""]),
        (b"a\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        (b"a\n\xff\xfe\nb", ["a", "\ufffd\ufffd", "b"]),
        (b"a\n\xc3\nb", ["a", "\ufffd", "b"]),
        (b"\xed\xa0\x80\n", ["\ufffd\ufffd\ufffd"]),
    ],
)
def test_lines(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    file = tmp_path / "text"
    file.write_bytes(content)
    assert list(read_lines(file)) == lines


@pytest.mark.parametrize("extra", [-1, 0, 1, LINE_LIMIT, 3 * LINE_LIMIT + 7])
def test_an_endless_line_is_passed_over_and_the_next_is_not(tmp_path: Path, extra: int) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"a\n" + b"x" * (LINE_LIMIT + extra - 1) + b"\nb\n")
    first, long, last = read_lines(file)
    assert (first, last) == ("a", "b")
    assert (long is None) == (extra > 0)
    corpus = two_files(tmp_path, file.read_bytes(), b"un\ndeux\ntrois\n")
    assert rows(corpus)[1][2] == ("too_long" if extra > 0 else "")
    assert rows(corpus)[2] == ("b", "trois", "")


def test_utf16_is_named(tmp_path: Path) -> None:
    corpus = one_file(tmp_path / "a.tsv", "yes\toui\n".encode("utf-16"))
    with pytest.raises(InputError, match=r"a\.tsv is UTF-16: save it as UTF-8"):
        rows(corpus)


# Two files, one of them longer.


@pytest.mark.parametrize(
    ("source", "target", "counts"),
    [
        (b"a\nb\nc\n", b"a\nb\n", ("3", "2")),
        (b"a\nb\n", b"a\nb\nc\n", ("2", "3")),
        (b"a\nb\n", b"a\nb\n\n", ("2", "3")),
        (b"a\nb", b"a", ("2", "1")),
        (b"", b"a", ("0", "1")),
        (b"a\n", b"", ("1", "0")),
        (b"\n", b"", ("1", "0")),
        (b"a\n" * 5000, b"a\n", ("5,000", "1")),
    ],
)
def test_different_line_counts_are_refused(
    tmp_path: Path, source: bytes, target: bytes, counts: tuple[str, str]
) -> None:
    corpus = two_files(tmp_path, source, target)
    with pytest.raises(InputError) as caught:
        rows(corpus)
    for name, count in zip(("a.en", "a.fr"), counts, strict=True):
        assert f"{name} has {count}" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "target"), [(b"a\nb\n", b"c\nd"), (b"a\nb", b"c\r\nd\r\n"), (b"", b"")]
)
def test_the_last_line_feed_does_not_count(tmp_path: Path, source: bytes, target: bytes) -> None:
    expected = [("a", "c", ""), ("b", "d", "")] if source else []
    assert rows(two_files(tmp_path, source, target)) == expected


def test_different_counts_are_refused_when_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(b"a\nb\n"))
    (tmp_path / "a.fr.zst").write_bytes(zstandard.compress(b"a\n"))
    corpus = CorpusConfig(
        source=tmp_path / "a.en.gz", target=tmp_path / "a.fr.zst", languages=EN_FR
    )
    with pytest.raises(InputError, match=r"gz has 2 lines and .*zst has 1"):
        rows(corpus)


# Compression.

BODY = b"".join(b"line %d\tligne %d\n" % (n, n) for n in range(20_000))
PACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_files_read_like_plain_ones(tmp_path: Path, suffix: str) -> None:
    plain = rows(one_file(tmp_path / "a.tsv", BODY))
    assert len(plain) == 20_000
    packed = PACK[suffix](BODY)
    assert rows(one_file(tmp_path / f"a.tsv{suffix}", packed)) == plain
    # by content, whatever the name
    assert rows(one_file(tmp_path / "named-plain.tsv", packed)) == plain
    # files that were joined, as `cat a.gz b.gz` does
    half = BODY.index(b"\n", len(BODY) // 2) + 1
    joined = PACK[suffix](BODY[:half]) + PACK[suffix](BODY[half:])
    assert rows(one_file(tmp_path / f"joined.tsv{suffix}", joined)) == plain


def damaged(packed: bytes) -> dict[str, bytes]:
    middle = len(packed) // 2
    return {
        "cut in the middle": packed[:middle],
        "cut by one byte": packed[:-1],
        "empty": b"",
        "not compressed": b"plain\tplat\n",
        "flipped": packed[:middle] + bytes([packed[middle] ^ 0xFF]) + packed[middle + 1 :],
        "rubbish after the end": packed + b"rubbish",
    }


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("how", damaged(b"xxxx"))
def test_damaged_archives_are_noticed(tmp_path: Path, suffix: str, how: str) -> None:
    # zstd frames have a checksum only if asked; without one a flipped byte may pass
    compress = zstandard.ZstdCompressor(write_checksum=True).compress
    packed = gzip.compress(BODY) if suffix == ".gz" else compress(BODY)
    corpus = one_file(tmp_path / f"a.tsv{suffix}", damaged(packed)[how])
    with pytest.raises(PellucidError) as caught:
        rows(corpus)
    assert f"a.tsv{suffix}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["none.tsv", "none.jsonl", "none.tmx", "none.po", "none.mo"])
def test_a_missing_file_is_the_callers_mistake(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"there is no file .*none"):
        rows(CorpusConfig(path=tmp_path / name, languages=EN_FR))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        rows(CorpusConfig(path=tmp_path / "a.tsv", languages=EN_FR))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file(tmp_path: Path) -> None:
    corpus = one_file(tmp_path / "a.tsv", "a\tb\n")
    (tmp_path / "a.tsv").chmod(0)
    with pytest.raises(InputError, match="cannot be read"):
        rows(corpus)


def test_a_pipe_can_be_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.tsv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(b"a\tb\n"),))
    writer.start()
    assert rows(CorpusConfig(path=pipe, languages=EN_FR)) == [("a", "b", "")]
    writer.join()


def test_a_name_that_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="set format"):
        rows(one_file(tmp_path / "corpus.gz", gzip.compress(b"a\tb\n")))
    corpus = one_file(tmp_path / "corpus.gz", gzip.compress(b"a\tb\n"), format="tsv")
    assert rows(corpus) == [("a", "b", "")]


# Tab-separated.


def test_wrong_columns_are_marked_and_shift_nothing(tmp_path: Path) -> None:
    content = "yes\toui\nno tab\n\na\tb\tc\n \t \nno\tnon"
    assert rows(one_file(tmp_path / "a.tsv", content)) == [
        ("yes", "oui", ""),
        ("no tab", "", "malformed"),
        ("", "", ""),
        ("a\tb\tc", "", "malformed"),
        (" ", " ", ""),
        ("no", "non", ""),
    ]


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    content = "1\toui\tyes\tsource\n2\tnon\n3\tpeut-être\tmaybe\n"
    assert rows(one_file(tmp_path / "a.tsv", content, columns=(3, 2))) == [
        ("yes", "oui", ""),
        ("2\tnon", "", "malformed"),
        ("maybe", "peut-être", ""),
    ]


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("a\tb\tc\nd\te\tf\n", None, r"line 1 has 3: .*set columns"),
        ("\nfirst, second\n", None, r"line 2 has 1: 'first, second'"),
        ("a\tb\n", (1, 3), "no line has 3 columns"),
    ],
)
def test_a_file_of_wrong_columns_only(
    tmp_path: Path, content: str, columns: tuple[int, int] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        rows(one_file(tmp_path / "a.tsv", content, columns=columns))


# JSON lines.


def test_json_lines(tmp_path: Path) -> None:
    lines = [
        '{"en": "yes", "fr": "oui"}',
        '{"translation": {"fr": "non", "en": "no"}, "id": 7}',
        "",
        '{"en": "alone"}',
        '{"en": null, "fr": "rien"}',
        '{"en": 5, "fr": "cinq"}',
        '{"en": "cut',
        '["en", "fr"]',
        '{"en": "half \\ud83d", "fr": "demi"}',
        '{"en": "a\\nb\\u0000", "fr": "c\\td"}',
        "[" * 100_000,
        '{"en": ' + "9" * 5000 + ', "fr": "x"}',
    ]
    content = "\ufeff" + "\n".join(lines)
    read = rows(one_file(tmp_path / "a.jsonl", content))
    malformed = [number for number, (*_, problem) in enumerate(read) if problem]
    assert malformed == [3, 5, 6, 7, 10, 11]
    assert {problem for *_, problem in read} == {"", "malformed"}
    assert read[0] == ("yes", "oui", "")
    assert read[1] == ("no", "non", "")
    assert read[4] == ("", "rien", "")
    assert read[8] == ("half \ufffd", "demi", "")
    assert read[9] == ("a\nb\0", "c\td", "")


def test_json_keys(tmp_path: Path) -> None:
    corpus = one_file(tmp_path / "a.jsonl", '{"src": "yes", "tgt": "oui"}', keys=("src", "tgt"))
    assert rows(corpus) == [("yes", "oui", "")]
    with pytest.raises(InputError, match=r"'en' and 'fr'.*set keys"):
        rows(one_file(tmp_path / "a.jsonl", '{"src": "yes", "tgt": "oui"}'))


def test_a_json_array_is_not_json_lines(tmp_path: Path) -> None:
    content = json.dumps([{"en": "yes", "fr": "oui"}], indent=1)
    with pytest.raises(InputError, match="has no sentence pair in it"):
        rows(one_file(tmp_path / "a.jsonl", content))


# Translation memories.


def tmx(*units: str, head: str = "") -> str:
    body = "\n".join(f"<tu>{unit}</tu>" for unit in units)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>{head}<tmx version="1.4">'
        f'<header srclang="en"/><body>{body}</body></tmx>'
    )


def tuv(language: str, segment: str, attribute: str = "xml:lang") -> str:
    return f'<tuv {attribute}="{language}"><seg>{segment}</seg></tuv>'


def test_tmx_units(tmp_path: Path) -> None:
    content = tmx(
        tuv("EN-us", "yes") + tuv("fr", "oui"),
        "<prop>x</prop>" + tuv("fr_FR", "non", "lang") + tuv("en", "no", "lang"),
        tuv("en", "alone"),
        tuv("en-GB", "colour") + tuv("en", "color") + tuv("fr-CA", "couleur"),
        tuv("en", "<bpt i='1'>&lt;b&gt;</bpt>bold<ept i='1'>&lt;/b&gt;</ept> <hi>face</hi>")
        + tuv("fr", "gras<!-- or not -->se<?pi?>"),
        tuv("eng", "not English by this name") + tuv("fr", "x"),
        tuv("en", "a\nb") + tuv("fr", "&amp; &#233;"),
        tuv("en", "") + tuv("fr", "vide"),
    )
    assert rows(one_file(tmp_path / "a.tmx", content)) == [
        ("yes", "oui", ""),
        ("no", "non", ""),
        ("alone", "", "malformed"),
        ("color", "couleur", ""),
        ("bold face", "grasse", ""),
        ("", "x", "malformed"),
        ("a\nb", "& é", ""),
        ("", "vide", ""),
    ]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "iso-8859-1"])
def test_tmx_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    declared = encoding.removesuffix("-sig")
    content = tmx(tuv("en", "summer") + tuv("fr", "été")).replace("UTF-8", declared)
    corpus = one_file(tmp_path / "a.tmx", content.encode(encoding))
    assert rows(corpus) == [("summer", "été", "")]


def test_tmx_with_a_namespace_and_compressed(tmp_path: Path) -> None:
    content = tmx(tuv("en", "yes") + tuv("fr", "oui")).replace("<tmx", '<tmx xmlns="urn:tmx"')
    corpus = one_file(tmp_path / "a.tmx.gz", gzip.compress(content.encode()))
    assert rows(corpus) == [("yes", "oui", "")]


def test_a_language_that_the_tmx_lacks(tmp_path: Path) -> None:
    content = tmx(tuv("en", "yes") + tuv("de-AT", "ja"))
    with pytest.raises(InputError, match=r"a\.tmx has no fr: its languages are de-AT, en"):
        rows(one_file(tmp_path / "a.tmx", content))
    content = tmx(tuv("en", "yes") + tuv("de", "ja"), tuv("fr", "oui") + tuv("de", "ja"))
    with pytest.raises(InputError, match="no unit with both en and fr"):
        rows(one_file(tmp_path / "a.tmx", content))


@pytest.mark.parametrize("depth", [2, 11])
def test_a_billion_laughs_do_not_expand(tmp_path: Path, depth: int) -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, depth + 1))
    head = f'<!DOCTYPE tmx [<!ENTITY l0 "ha">{laughs}]>'
    first = tuv("en", f"&l{depth};") + tuv("fr", "ah")
    corpus = one_file(tmp_path / "a.tmx", tmx(first, tuv("en", "a") + tuv("fr", "b"), head=head))
    read = None
    with contextlib.suppress(InputError):  # newer versions of libxml2 refuse the whole file
        read = rows(corpus)
    assert read in (None, [("", "ah", "malformed"), ("a", "b", "")])


def test_entities_do_not_read_other_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    head = f'<!DOCTYPE tmx [<!ENTITY s SYSTEM "{(tmp_path / "secret").as_uri()}">]>'
    content = tmx(tuv("en", "&s;") + tuv("fr", "b"), tuv("en", "a") + tuv("fr", "b"), head=head)
    assert rows(one_file(tmp_path / "a.tmx", content))[0] == ("", "b", "malformed")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not XML",
        tmx(tuv("en", "a") + tuv("fr", "b"))[:-30].encode(),
        tmx(tuv("en", "a&#0;") + tuv("fr", "b")).encode(),
        tmx(tuv("en", "a") + tuv("fr", "\x01")).encode(),
        tmx(tuv("en", "a") + tuv("fr", "caf\xe9")).encode("latin-1"),
        tmx(tuv("en", "<x>" * 5000 + "</x>" * 5000) + tuv("fr", "b")).encode(),
    ],
    ids=["empty", "text", "cut", "NUL", "control", "bad bytes", "deep"],
)
def test_broken_xml_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match=r"a\.tmx is not well-formed XML") as caught:
        rows(one_file(tmp_path / "a.tmx", content))
    assert "\n" not in str(caught.value)


# Catalogues.

PO = r"""# a comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: fr\n"
"Plural-Forms: nplurals=2; plural=(n > 1);\n"

msgid "yes"
msgstr "oui"

msgctxt "menu"
msgid "yes"
msgstr "valider"

msgid "yes"
msgstr "oui"

#, fuzzy
msgid "no"
msgstr "nom"

msgid "untranslated"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d fichier"
msgstr[1] "%d fichiers"

msgid ""
"two\n"
"\"lines\"\t\\"
msgstr ""
"deux\n"
"«lignes»"

#~ msgid "gone"
#~ msgstr "parti"
"""


def test_po_entries(tmp_path: Path) -> None:
    expected = [
        ("yes", "oui", ""),
        ("yes", "valider", ""),
        ("yes", "oui", ""),
        ("no", "nom", "fuzzy"),
        ("untranslated", "", ""),
        ("%d file", "%d fichier", ""),
        ("%d files", "%d fichiers", ""),
        ('two\n"lines"\t\\', "deux\n«lignes»", ""),
        ("gone", "parti", "obsolete"),
    ]
    assert rows(one_file(tmp_path / "a.po", PO)) == expected
    assert rows(one_file(tmp_path / "b.po", "\ufeff" + PO.replace("\n", "\r\n"))) == expected
    assert rows(one_file(tmp_path / "c.po.gz", gzip.compress(PO.encode()))) == expected


def test_mo_entries(tmp_path: Path) -> None:
    catalogue = polib.pofile(PO)
    catalogue.save_as_mofile(str(tmp_path / "a.mo"))
    read = rows(CorpusConfig(path=tmp_path / "a.mo", languages=EN_FR))
    assert ("yes", "valider", "") in read
    assert ("%d files", "%d fichiers", "") in read
    assert not {"no", "untranslated", "gone"} & {first for first, *_ in read}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("nplurals=1; plural=0;", [("%d days", "A")]),
        ("nplurals=2; plural=(n != 1);", [("%d day", "A"), ("%d days", "B")]),
        (
            "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);",
            [("%d day", "A"), ("%d days", "C")],
        ),
        ("nplurals=2; plural=(n == 1);", [("%d day", "B"), ("%d days", "A")]),
        ("nplurals=2; plural=__import__('os');", [("%d day", "A"), ("%d days", "B")]),
        ("nplurals=2; plural=n/0;", [("%d day", "A"), ("%d days", "B")]),
        ("nplurals=9; plural=n+70;", [("%d day", ""), ("%d days", "")]),
        ("", [("%d day", "A"), ("%d days", "B")]),
    ],
)
def test_plural_forms(tmp_path: Path, rule: str, expected: list[tuple[str, str]]) -> None:
    content = (
        f'msgid ""\nmsgstr ""\n"Plural-Forms: {rule}\\n"\n\n'
        'msgid "%d day"\nmsgid_plural "%d days"\nmsgstr[0] "A"\nmsgstr[1] "B"\nmsgstr[2] "C"\n'
    )
    read = rows(one_file(tmp_path / "a.po", content))
    assert read == [(first, second, "") for first, second in expected]


def test_po_with_bad_bytes_loses_that_entry_only(tmp_path: Path) -> None:
    content = b'msgid "a"\nmsgstr "\xe9t\xe9"\n\nmsgid "b"\nmsgstr "c\xe2\x80\xa8d\x0ce"\n'
    read = rows(one_file(tmp_path / "a.po", content))
    assert "\ufffd" in read[0][1]
    assert read[1] == ("b", "c d e", "")


def test_po_in_its_own_charset(tmp_path: Path) -> None:
    content = PO.replace("UTF-8", "ISO-8859-1").encode("iso-8859-1")
    assert rows(one_file(tmp_path / "a.po", content))[7][1] == "deux\n«lignes»"


def test_po_the_wrong_way_round(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text(PO, encoding="utf-8")
    corpus = CorpusConfig(path=tmp_path / "a.po", languages=("fr", "en"))
    with pytest.raises(InputError, match=r'write languages = \["en", "fr"\]'):
        rows(corpus)


MO_HEAD = struct.pack("<III", 0x950412DE, 0, 1000)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.po", b'msgid "a" b"\nmsgstr "c"\n'),
        ("a.po", b"<html></html>"),
        ("a.po", b'msgstr "first"\n'),
        ("a.po", b'"Content-Type: text/plain; charset=klingon\\n"\n'),
        ("a.po", b"\0\1\2"),
        ("a.mo", b"\0\1\2"),
        ("a.mo", MO_HEAD),
        ("a.mo", MO_HEAD + b"\xff" * 64),
    ],
)
def test_broken_catalogues_are_one_clear_line(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(InputError, match="is not a valid catalogue") as caught:
        rows(one_file(tmp_path / name, content))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


# Memory, mixing, settings.


PEAK = """
import sys
from pathlib import Path
from pellucid.config import CorpusConfig
from pellucid.data.corpus import read_pairs
corpus = CorpusConfig(path=Path(sys.argv[1]), languages=("en", "fr"))
print(sum(1 for _ in read_pairs(corpus)))
status = Path("/proc/self/status").read_text()
print(status.split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's account")
@pytest.mark.parametrize("kind", ["tsv", "tmx"])
def test_reading_needs_no_more_memory_for_more_lines(tmp_path: Path, kind: str) -> None:
    line = "a short line of text\tune courte ligne de texte\n"
    unit = f"<tu>{tuv('en', 'a short text')}{tuv('fr', 'un texte court')}</tu>\n"
    peaks = []
    for count in (1_000, 30_000):
        file = tmp_path / f"{count}.{kind}"
        body = line * count if kind == "tsv" else f"<tmx><body>{unit * count}</body></tmx>"
        file.write_text(body)
        run = subprocess.run(
            [sys.executable, "-c", PEAK, str(file)], capture_output=True, text=True, check=True
        )
        read, peak = map(int, run.stdout.split())
        assert read == count
        peaks.append(peak)
    # held as objects, the larger one would need some 10 MB (tsv) or 50 MB (tmx)
    assert peaks[1] - peaks[0] < 2_000


def test_mixing_shares() -> None:
    assert mixing_shares([100, 300], [1, 1]) == pytest.approx([0.25, 0.75])
    assert mixing_shares([100, 300], [3, 1]) == pytest.approx([0.5, 0.5])
    assert mixing_shares([100, 10_000], [1, 1], 2) == pytest.approx([1 / 11, 10 / 11])
    assert mixing_shares([1, 10**9], [1, 1], 1e6) == pytest.approx([0.5, 0.5], abs=1e-4)
    assert mixing_shares([0, 5], [1, 1], 5) == [0, 1]
    with pytest.raises(InputError, match="nothing to draw"):
        mixing_shares([0, 0], [1, 1])
    with pytest.raises(InputError, match="2 corpora and 1 weights"):
        mixing_shares([1, 2], [1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "a corpus needs its files"),
        ({"path": "a.tsv", "source": "b"}, "has path and also source"),
        ({"source": "a"}, "a corpus needs its files"),
        ({"path": "a.tsv", "format": "parallel"}, "'parallel' goes with source and target"),
        ({"source": "a", "target": "b", "format": "tsv"}, "the other formats with path"),
        ({"path": "a.tsv", "languages": ("en", "en")}, "are the same"),
        ({"path": "a.tsv", "languages": ("en", "f-r")}, "languages.1"),
        ({"path": "a.tsv", "columns": (0, 1)}, "columns.0"),
        ({"path": "a.tsv", "weight": 0}, "weight"),
        ({"path": "a.tsv", "wieght": 1}, "did you mean 'weight'"),
    ],
)
def test_corpus_settings_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CorpusConfig(**{"languages": EN_FR, **settings})


def test_data_settings() -> None:
    corpus = CorpusConfig(path=Path("a.tsv"), languages=EN_FR)
    both = DataConfig(directions=("fr-en", "en-fr"), train=(corpus,))
    assert [split_direction(d) for d in both.directions] == [("fr", "en"), ("en", "fr")]
    assert split_direction("pt_BR-en") == ("pt_BR", "en")
    for directions, message in [
        (("fr-de",), "no training corpus has both languages of direction 'fr-de'"),
        (("fren",), "not two language codes"),
        (("en-fr", "en-fr"), "twice"),
        ((), "directions"),
    ]:
        with pytest.raises(ConfigError, match=message):
            DataConfig(directions=directions, train=(corpus,))


def test_pairs_are_small_and_cannot_be_changed() -> None:
    pair = Pair("a", "b", 1)
    with pytest.raises(AttributeError):
        pair.number = 2  # type: ignore[misc]
