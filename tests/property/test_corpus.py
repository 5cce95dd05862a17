"""Whatever the text: written in any format and read back, each pair is in its place."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

import polib
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pellucid.config import CleaningConfig, CorpusConfig
from pellucid.data.cleaning import CleaningReport, Verdict, clean_text, is_dropped, judge, pair_hash
from pellucid.data.corpus import Pair, mixing_shares, read_pairs
from pellucid.data.splits import normalise, split_by_sentence
from pellucid.errors import PellucidError

LANGUAGES = ("en", "fr")
Texts = list[tuple[str, str]]

# Any character that UTF-8 can hold, with the troublesome ones often.
characters = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from(
        list("\0\t\v\f\r\x1c\x1d\x1e\x85\u2028\u2029\ufeff\u00a0\u202f\u200d\"'\\<&[ ")
    ),
)
# Formats of lines cannot hold a line feed in a sentence (and the tab only where it is no column).
text = st.text(characters, max_size=12)
line = text.map(lambda t: t.replace("\n", "").removesuffix("\r").removeprefix("\ufeff"))
cell = line.map(lambda t: t.replace("\t", ""))
# XML has no control characters but three, and no U+FFFE and U+FFFF.
xml = text.map(
    lambda t: "".join(c for c in t if c in "\t\n" or (c >= " " and c not in "\ufffe\uffff"))
)


def as_tsv(folder: Path, pairs: Texts) -> CorpusConfig:
    file = folder / "corpus.tsv"
    file.write_bytes("".join(f"{a}\t{b}\n" for a, b in pairs).encode())
    return CorpusConfig(path=file, languages=LANGUAGES)


def as_compressed_tsv(folder: Path, pairs: Texts) -> CorpusConfig:
    file = folder / "corpus.tsv.zst"
    file.write_bytes(zstandard.compress("".join(f"{a}\t{b}\r\n" for a, b in pairs).encode()))
    return CorpusConfig(path=file, languages=LANGUAGES)


def as_parallel(folder: Path, pairs: Texts) -> CorpusConfig:
    source, target = folder / "corpus.en", folder / "corpus.fr.gz"
    source.write_bytes("".join(f"{a}\n" for a, _ in pairs).encode())
    target.write_bytes(gzip.compress("".join(f"{b}\n" for _, b in pairs).encode()))
    return CorpusConfig(source=source, target=target, languages=LANGUAGES)


def as_jsonl(folder: Path, pairs: Texts) -> CorpusConfig:
    file = folder / "corpus.jsonl"
    lines = [json.dumps({"en": a, "fr": b}, ensure_ascii=len(a) % 2 == 0) for a, b in pairs]
    file.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return CorpusConfig(path=file, languages=LANGUAGES)


def as_tmx(folder: Path, pairs: Texts) -> CorpusConfig:
    file = folder / "corpus.tmx"
    units = [
        f'<tu><tuv xml:lang="en"><seg>{escape(a)}</seg></tuv>'
        f'<tuv xml:lang="FR-fr"><seg>{escape(b)}</seg></tuv></tu>'
        for a, b in pairs
    ]
    file.write_bytes(f"<tmx><body>{''.join(units)}</body></tmx>".encode())
    return CorpusConfig(path=file, languages=LANGUAGES)


def as_po(folder: Path, pairs: Texts) -> CorpusConfig:
    file = folder / "corpus.po"
    entries = [f'msgid "{polib.escape(a)}"\nmsgstr "{polib.escape(b)}"\n' for a, b in pairs]
    header = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    file.write_bytes("\n".join([header, *entries]).encode())
    return CorpusConfig(path=file, languages=LANGUAGES)


FORMATS: dict[str, tuple[Callable[[Path, Texts], CorpusConfig], st.SearchStrategy[str]]] = {
    "tsv": (as_tsv, cell),
    "tsv.zst": (as_compressed_tsv, cell),
    "parallel": (as_parallel, line),
    "jsonl": (as_jsonl, text),
    "tmx": (as_tmx, xml),
    # an entry without msgid is the header; polib cannot hold a raw NUL
    "po": (as_po, text.map(lambda t: "x" + t.replace("\0", ""))),
}


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60)
@given(data=st.data())
def test_pairs_are_preserved(name: str, data: st.DataObject) -> None:
    write, sentences = FORMATS[name]
    pairs = data.draw(st.lists(st.tuples(sentences, sentences), max_size=6))
    with tempfile.TemporaryDirectory() as folder:
        read = list(read_pairs(write(Path(folder), pairs)))
    assert [pair.number for pair in read] == list(range(1, len(pairs) + 1))
    clean = [(clean_text(pair.first), clean_text(pair.second)) for pair in read]
    assert clean == [(clean_text(a), clean_text(b)) for a, b in pairs]


@settings(max_examples=100)
@given(
    st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=8),
    st.integers(-2, 2),
)
@example([b"a"], 1)
@example([b""], -1)
def test_any_bytes_keep_their_line(lines: list[bytes], more: int) -> None:
    """Arbitrary bytes on one side never move the other side; a different count never passes."""
    count = max(0, len(lines) + more)
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "s", Path(name) / "t"
        # the words before each line keep it from looking compressed, or UTF-16
        source.write_bytes(b"".join(b"s%d " % n + line + b"\n" for n, line in enumerate(lines)))
        target.write_bytes(b"".join(b"t%d\n" % n for n in range(count)))
        corpus = CorpusConfig(source=source, target=target, languages=LANGUAGES)
        if count != len(lines):
            with pytest.raises(PellucidError, match=f"has {len(lines)} lines and .* has {count}"):
                list(read_pairs(corpus))
            return
        for pair in read_pairs(corpus):
            assert pair.first.startswith(f"s{pair.number - 1} ")
            assert pair.second == f"t{pair.number - 1}"


@pytest.mark.parametrize("suffix", [".tsv", ".tsv.gz", ".jsonl", ".tmx", ".po", ".mo"])
@settings(max_examples=60)
@given(content=st.one_of(st.binary(max_size=60), st.text(characters, max_size=60).map(str.encode)))
def test_rubbish_is_read_or_refused_in_one_line(suffix: str, content: bytes) -> None:
    magic = {".tsv.gz": b"\x1f\x8b\x08\0", ".mo": b"\xde\x12\x04\x95\0\0\0\0", ".po": b'msgid "'}
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / f"a{suffix}"
        file.write_bytes(magic.get(suffix, b"") + content)
        try:
            for pair in read_pairs(CorpusConfig(path=file, languages=LANGUAGES)):
                judge(pair, CleaningConfig())
                (pair.first + pair.second).encode()  # nothing that UTF-8 cannot hold
        except PellucidError as error:
            assert "\n" not in str(error)  # noqa: PT017  (it need not be refused)


@given(text)
def test_clean_text_is_clean(sentence: str) -> None:
    clean = clean_text(sentence)
    assert clean_text(clean) == clean
    assert len(clean.splitlines()) <= 1
    assert clean == clean.strip()
    assert "\t" not in clean
    assert "\0" not in clean
    assert "  " not in clean
    # nothing but control characters and white space is ever lost
    keep = [c for c in sentence if c.isprintable() and c != " "]
    assert [c for c in clean if c.isprintable() and c != " "] == keep


@given(text, text, st.integers(1, 10**9))
def test_judging_is_stable(first: str, second: str, number: int) -> None:
    config = CleaningConfig(max_characters=20, max_words=4, max_ratio=2, ratio_from=5)
    verdict, clean = judge(Pair(first, second, number), config)
    assert judge(clean, config) == (verdict, clean)
    assert clean.number == number
    assert 0 <= pair_hash(clean) < 2**64
    # the order of the sides does not matter
    assert judge(Pair(second, first, number), config)[0] == verdict


@given(st.lists(st.tuples(st.sampled_from(list(Verdict)), text, text)))
def test_each_pair_is_counted_once(items: list[tuple[Verdict, str, str]]) -> None:
    report = CleaningReport()
    for number, (verdict, first, second) in enumerate(items, 1):
        report.add(verdict, Pair(first, second, number))
    assert report.total == len(items)
    assert report.kept == sum(not is_dropped(verdict, report.config) for verdict, *_ in items)
    assert CleaningReport.from_dict(json.loads(json.dumps(report.as_dict()))) == report


@given(
    st.lists(st.tuples(st.integers(0, 10**12), st.floats(1e-3, 1e3)), min_size=1),
    st.one_of(st.none(), st.floats(1, 100)),
)
def test_shares_sum_to_one(corpora: list[tuple[int, float]], temperature: float | None) -> None:
    sizes, weights = [size for size, _ in corpora], [weight for _, weight in corpora]
    if not any(sizes):
        sizes[0] = 1
    shares = mixing_shares(sizes, weights, temperature)
    assert sum(shares) == pytest.approx(1)
    assert [share > 0 for share in shares] == [size > 0 for size in sizes]


words = st.sampled_from(
    ["Oui.", "oui", "Non !", "yes", "Yes?", "no", "été", "e\u0301te\u0301", "a"]
)


@given(st.lists(st.tuples(words, words), max_size=30), st.randoms(use_true_random=False))
def test_no_sentence_stands_in_two_splits(pairs: Texts, random: object) -> None:
    shares = {"test": 0.3, "valid": 0.3}
    splits = split_by_sentence(pairs, shares)
    places: dict[str, set[str]] = {}
    for pair, split in zip(pairs, splits, strict=True):
        for sentence in pair:
            places.setdefault(normalise(sentence), set()).add(split)
    assert all(len(found) == 1 for found in places.values())
    shuffled = list(zip(pairs, splits, strict=True))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert split_by_sentence([pair for pair, _ in shuffled], shares) == [s for _, s in shuffled]
