"""What is not text survives any translation, for any document."""

import io
from html.parser import HTMLParser
from itertools import pairwise

import polib
import srt
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lxml import etree
from markdown_it import MarkdownIt
from markdown_it.token import Token

from pellucid.errors import InputError
from pellucid.text.documents import open_document, placeholders, protect, protected

ANY = st.text(st.characters(codec="utf-8"), max_size=120)


def thick(*pieces: str) -> st.SearchStrategy[str]:
    """Texts thick with what a reader of the format looks at."""
    return st.lists(st.one_of(st.sampled_from(pieces), ANY), max_size=25).map("".join)


WORDS = ("mot", "deux mots", "é", "A. B", " ", "\n", "\r\n", "\t", "\ufeff", "\u2028", "😀", "12")
MARKDOWN = thick(
    *WORDS, "# ", "> ", "- ", "1. ", "\n\n", "**", "*", "_", "`", "```\n", "[", "](", ")", "![",
    "]", "[mot]: u\n", "[mot]", "[]", "<b>", "<http://a.b>", "| ", "|", "|--|\n", "\\", "&amp;",
    "~~", "    ", "---\n", "===\n", "  \n", "http://a_b.c", "<div>\n", "- [ ] ", "[^1]", "{#a}",
)  # fmt: skip
HTML = thick(
    *WORDS, "<p>", "</p>", "<b>", "</b>", "<br>", "<", ">", "&amp;", "&lt;", "&", "&nbsp;", "<!--",
    "-->", "<script>", "</script>", "<code>", "</code>", "<img alt='", "<a title=", '"', "'", "/>",
    "<p translate=no>", "<title>", "</title>", "<![CDATA[", "]]>", "<?", "</", "<svg>", "</svg>",
)  # fmt: skip
TIMES = "00:00:01,000 --> 00:00:02,000"
SRT = thick(
    *WORDS, f"1\n{TIMES}\n", f"\r\n\r\n2\r\n{TIMES} X1:1\r\n", "<i>", "</i>", "- ", "♪", "{\\an8}"
)


@settings(deadline=None, max_examples=300)
@given(st.one_of(ANY, thick(*WORDS)), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_plain_text_comes_back(text: str, encoding: str) -> None:
    assume("\x00" not in text and not text.startswith("\ufeff"))
    data = text.encode(encoding)
    document = open_document(data, "txt")
    assert document.rebuilt(document.texts()) == data


@settings(deadline=None, max_examples=400)
@given(MARKDOWN)
def test_markdown_comes_back(text: str) -> None:
    assume("\x00" not in text)
    data = text.encode()
    document = open_document(data, "md")
    assert document.rebuilt(document.texts()) == data
    assert len(document.groups()) == len(document.texts())


@settings(deadline=None, max_examples=400)
@given(HTML)
def test_html_comes_back(text: str) -> None:
    assume("\x00" not in text)
    data = text.encode()
    document = open_document(data, "html")
    assert document.rebuilt(document.texts()) == data
    assert all(text and text == text.strip() for text in document.texts())


@settings(deadline=None, max_examples=300)
@given(SRT)
def test_subtitles_come_back(text: str) -> None:
    assume("\x00" not in text)
    data = text.encode()
    try:
        document = open_document(data, "srt")
    except InputError:
        assert TIMES not in text
        return
    assert document.rebuilt(document.texts()) == data


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.sampled_from(["txt", "md", "html", "srt", "po", "tmx"]))
def test_bytes_are_read_or_refused_in_one_line(data: bytes, kind: str) -> None:
    problem = ""
    try:
        document = open_document(data, kind, target="fr")
        document.rebuilt(document.texts())
    except InputError as error:
        problem = str(error)
    assert len(problem.splitlines()) <= 1


# Translations of any kind, hostile ones included.
HOSTILE = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=()), max_size=30),
    st.sampled_from(
        ["<script>", "</p>", "**", "# a", "- a", "1. a", "a\nb", "[a](b)", '"', "`", "-->"]
    ),
)


@settings(deadline=None, max_examples=200)
@given(thick(*WORDS), st.data())
def test_lines_in_are_lines_out(text: str, data: st.DataObject) -> None:
    assume("\x00" not in text)
    document = open_document(text.encode(), "txt")
    texts = document.texts()
    translations = data.draw(st.lists(HOSTILE, min_size=len(texts), max_size=len(texts)))
    result = document.rebuilt(translations).decode()
    assert len(result.splitlines()) == len(text.splitlines())


TRANSLATED = ("alt", "title", "placeholder", "aria-label", "content")


class Tags(HTMLParser):
    """The markup of a page, without its text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.seen: list[object] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, [(k, v if k not in TRANSLATED else "") for k, v in attrs]))

    def handle_endtag(self, tag: str) -> None:
        self.seen.append(tag)

    def handle_comment(self, data: str) -> None:
        self.seen.append(("comment", data))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            self.seen.append(("raw", data))


def tags(page: str) -> list[object]:
    parser = Tags()
    parser.feed(page)
    parser.close()
    return parser.seen


PAGES = st.lists(
    st.sampled_from([
        "<p>", "</p>", "<b>", "</b>", "<i class=x>", "</i>", " un ", "deux mots ", "a &lt; b ",
        "\n", "<img alt='une image' src=a>", "<a title=mot href='/x'>", "</a>", "<!-- non -->",
        "<script>if (a < b) c()</script>", "<style>p {}</style>", "<code>", "</code>", "a < b ",
        "<br/>",
    ]),
    max_size=25,
).map("".join)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(PAGES, st.data())
def test_no_translation_can_change_the_tags_of_a_page(page: str, data: st.DataObject) -> None:
    document = open_document(page.encode(), "html")
    texts = document.texts()
    translations = data.draw(st.lists(HOSTILE, min_size=len(texts), max_size=len(texts)))
    result = document.rebuilt(translations).decode()
    assert tags(result) == tags(page)


def shape(tokens: list[Token]) -> list[object]:
    """What a Markdown document is made of, without its words and soft line breaks."""
    seen: list[object] = []
    for token in tokens:
        if token.type in ("text", "softbreak", "text_special"):
            continue
        code = token.content if token.type in ("fence", "code_block", "code_inline") else ""
        attributes = {key: value for key, value in token.attrs.items() if key != "alt"}
        seen.append((token.type, code, attributes, shape(token.children or [])))
    return seen


BLOCKS = st.lists(
    st.sampled_from([
        "# Un titre\n\n", "Un *mot* fort et **deux mots** là.\n\n", "> une citation\n> longue\n\n",
        "- un\n- deux `code` trois\n\n", '1. un [lien](http://a.b "t") ici\n\n', "Titre\n===\n\n",
        "```\ncode\n```\n\n", "| un | deux |\n|--|--|\n| trois | [ref] |\n\n", "***\n\n",
        "Voir [ref], [autre mot][] ou ![alt](i.png) et <http://c.d>.\nDeux  \nlignes\\\nici.\n\n",
        "- a\n\n  b c\n  d e\n\n", "    code\n\n", "Un ~~mot~~ et \\*rien\\* &amp; tout\n\n",
        "<div>\nmot\n</div>\n\n", "- [ ] une tâche\n- [x] autre\n\n", "un\ndeux\ntrois\nquatre\n\n",
    ]),
    max_size=10,
).map(lambda blocks: "".join(blocks) + "[ref]: http://r\n[autre mot]: http://s\n")  # fmt: skip
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


@settings(deadline=None, max_examples=300)
@given(BLOCKS, st.data())
def test_no_translation_can_change_the_shape_of_markdown(text: str, data: st.DataObject) -> None:
    document = open_document(text.encode(), "md")
    texts = document.texts()
    translations = data.draw(st.lists(HOSTILE, min_size=len(texts), max_size=len(texts)))
    result = document.rebuilt(translations).decode()
    assert shape(PARSER.parse(result)) == shape(PARSER.parse(text))


@settings(deadline=None, max_examples=200)
@given(st.lists(HOSTILE, min_size=3, max_size=3))
def test_no_translation_can_change_times(translations: list[str]) -> None:
    text = f"1\n{TIMES} X1:2\n<i>un mot</i>\n\n2\n{TIMES}\n- deux\n- trois\n\n"
    document = open_document(text.encode(), "srt")
    result = document.rebuilt(translations).decode()
    before, after = list(srt.parse(text)), list(srt.parse(result))
    assert [(c.index, c.start, c.end, c.proprietary) for c in before] == [
        (c.index, c.start, c.end, c.proprietary) for c in after
    ]


WRITABLE = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=40)


@settings(deadline=None, max_examples=200)
@given(st.lists(WRITABLE, min_size=1, max_size=5, unique=True), st.data())
def test_catalogues_hold_what_was_put_in(messages: list[str], data: st.DataObject) -> None:
    catalogue = polib.POFile()
    for message in messages:
        catalogue.append(polib.POEntry(msgid=message, occurrences=[("a.c", "1")]))
    text = str(catalogue)
    # polib does not escape these, and reads lines by them
    assume(not set(text) & set("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x07\x08"))
    document = open_document(text.encode(), "po")
    texts = document.texts()
    assert document.rebuilt([""] * len(texts)) == text.encode()
    asked = [message for message in messages if any(c.isalpha() for c in message)]
    assert texts == [message.strip() for message in asked]
    translations = data.draw(st.lists(WRITABLE, min_size=len(texts), max_size=len(texts)))
    assume(not set("".join(translations)) & set("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x07\x08"))
    result = polib.pofile(document.rebuilt(translations).decode())
    assert [entry.msgid for entry in result] == [entry.msgid for entry in polib.pofile(text)]
    filled = {entry.msgid: entry.msgstr for entry in result}
    for message, translation in zip(asked, translations, strict=True):
        assert filled[message].strip() == translation.strip()


@settings(deadline=None, max_examples=200)
@given(st.lists(WRITABLE, min_size=1, max_size=4), st.data())
def test_memories_hold_what_was_put_in(sources: list[str], data: st.DataObject) -> None:
    allowed = [
        "".join(c for c in text if c.isprintable() or c in "\t\n\u00a0") or "mot"
        for text in sources
    ]
    root = etree.Element("tmx", version="1.4")
    etree.SubElement(root, "header", srclang="en")
    body = etree.SubElement(root, "body")
    for text in allowed:
        variant = etree.SubElement(etree.SubElement(body, "tu"), "tuv", lang="en")
        etree.SubElement(variant, "seg").text = text
    raw = etree.tostring(root, encoding="utf-8", xml_declaration=True)
    document = open_document(raw, "tmx", target="fr")
    texts = document.texts()
    asked = [text for text in allowed if any(c.isalpha() for c in text)]
    assert texts == [text.strip() for text in asked]
    assert document.rebuilt([""] * len(texts)) == raw
    translations = data.draw(st.lists(HOSTILE, min_size=len(texts), max_size=len(texts)))
    result = etree.parse(io.BytesIO(document.rebuilt(translations)))
    assert len(result.findall(".//tu")) == len(sources)
    written = [v for v in result.iter("tuv") if v.get("{http://www.w3.org/XML/1998/namespace}lang")]
    assert len(written) == sum(1 for translation in translations if translation.strip())


PIECES = thick(
    "http://a.b/c",
    "x@y.zz",
    "%s",
    "{n}",
    "%(a)d",
    "`c`",
    "5 kg",
    "😀",
    "⟦0⟧",
    "⟦",
    "⟧",
    "<b>",
    "a/b.txt",
)


@settings(deadline=None, max_examples=300)
@given(PIECES)
def test_marks_are_replaced_by_their_pieces(text: str) -> None:
    protection = protect(text)
    assert protection.restored(protection.text) == text
    assert protection.missing(protection.text) == []
    spans = protected(text)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    assert placeholders(text) == sorted(placeholders(text))
