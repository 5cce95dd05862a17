"""Documents: what is text in each format, what stays, and what is refused."""

import time
from pathlib import Path

import polib
import pytest
import srt
from lxml import etree

from pellucid.errors import InputError
from pellucid.text.documents import kind_of, open_document, placeholders, protect, protected
from pellucid.text.documents import spans as spans_module
from pellucid.text.documents.spans import broken

PLAIN = "Bonjour à tous.\n\n   Une ligne en retrait.  \n\t\n12:30\n- Un point\nFin"
MARKDOWN = """---
title: Notes
---
# Le *grand* titre {#titre}

Un **mot** avec `du code`, [un lien](http://a.b/c_d "infobulle")
sur deux lignes \\*sans gras\\* &amp; voir https://a.b/e_f.

> Une citation
> qui continue

- [ ] une tâche
1. Voir [ref] et [cette page][] puis ![une image](i.png "non").

| nom | valeur |
|-----|-------:|
| un  | `x`    |

```python
bonjour = "non traduit"
```

<div>bloc html</div>

    code en retrait

[ref]: http://r
[cette page]: http://s
"""
PAGE = """<!DOCTYPE html>
<html lang="fr"><head><meta charset="utf-8"><title>Ma page</title>
<meta name="description" content="Une page &amp; rien"><meta name="robots" content="all">
<style>p { color: red }</style></head>
<body><!-- un commentaire --><h1>Le <em>grand</em> titre</h1>
<p>Un texte &lt;court&gt; sur
   deux lignes&nbsp;</p>
<p translate="no">Marque <b>déposée</b></p><p class="x notranslate">non</p>
<pre>code</pre><p>Tapez <code>ls</code> ici.<img src="a.png" alt='une "image"' title=bulle>
<input placeholder="votre nom" aria-label="nom"><textarea>brouillon</textarea>
<script>if (a < b) { alert("<p>non</p>") }</script>
<svg><title>non</title><text>non</text></svg>
</body></html>
"""
SUBTITLES = """1
00:00:01,000 --> 00:00:02,500 X1:40 X2:600
<i>Il pleut sur la ville
depuis ce matin.</i>

2
00:00:03,000 --> 00:00:04,000
- Tu viens ?
- Non.

3
00:00:05,000 --> 00:00:06,000
{\\an8}♪ La la la ♪
"""
CATALOGUE = r"""# A comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n > 1);\n"

#. for the greeting
#: src/a.c:5
#, c-format
msgid "Hello %s, \"friend\"\n"
msgstr ""

#, fuzzy, c-format
#| msgid "Old"
msgid ""
"Two\n"
"lines"
msgstr "Ancien"

msgctxt "menu"
msgid "One file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

msgid "Done"
msgstr "Fini"

#~ msgid "Obsolete"
#~ msgstr "Vieux"
"""
MEMORY = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header srclang="en-US" note="a > b"/>
  <body>
    <tu tuid="1">
      <tuv xml:lang="en-US">
        <seg>A <bpt i="1">&lt;b&gt;</bpt>big<ept i="1">&lt;/b&gt;</ept> dog &amp; a cat</seg>
      </tuv>
    </tu>
    <tu><tuv xml:lang="en-US"><seg>Done</seg></tuv><tuv xml:lang="fr"><seg>Fini</seg></tuv></tu>
    <tu><tuv xml:lang="en-US"><seg>Empty</seg></tuv><tuv xml:lang="fr-CA"><seg/></tuv></tu>
    <tu><tuv xml:lang="de"><seg>Nur Deutsch</seg></tuv></tu>
  </body>
</tmx>
"""
TEXTS = {
    "txt": (PLAIN, ["Bonjour à tous.", "Une ligne en retrait.", "- Un point", "Fin"]),
    "md": (
        MARKDOWN,
        [
            *("Le", "grand", "titre", "Un", "mot", "avec", "un lien"),
            "sur deux lignes *sans gras* & voir",
            *("Une citation qui continue", "une tâche", "Voir", "ref", "et", "cette page", "puis"),
            *("une image", "nom", "valeur", "un"),
        ],
    ),
    "html": (
        PAGE,
        [
            *("Ma page", "Une page & rien", "Le", "grand", "titre"),
            *("Un texte <court> sur deux lignes", "Tapez", "ici.", 'une "image"', "bulle"),
            *("votre nom", "nom"),
        ],
    ),
    "srt": (
        SUBTITLES,
        ["Il pleut sur la ville depuis ce matin.", "Tu viens ?", "Non.", "La la la"],
    ),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_what_is_text(kind: str) -> None:
    source, expected = TEXTS[kind]
    assert open_document(source.encode(), kind).texts() == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("kind", TEXTS)
def test_a_document_comes_back_byte_for_byte(kind: str, encoding: str, end: str) -> None:
    source, expected = TEXTS[kind]
    data = source.replace("\n", end).encode(encoding)
    document = open_document(data, kind)
    assert document.texts() == expected
    assert document.rebuilt(document.texts()) == data
    assert document.rebuilt([""] * len(expected)) == data  # no translation, no change


def shouted(data: bytes, kind: str, **options: str | bool) -> str:
    document = open_document(data, kind, **options)  # type: ignore[arg-type]
    return document.rebuilt([text.upper() for text in document.texts()]).decode()


def test_plain_text_keeps_its_spacing() -> None:
    expected = "BONJOUR À TOUS.\n\n   UNE LIGNE EN RETRAIT.  \n\t\n12:30\n- UN POINT\nFIN"
    assert shouted(PLAIN.encode(), "txt") == expected


def test_markdown_keeps_its_marks() -> None:
    result = shouted(MARKDOWN.encode(), "md")
    for kept in [
        "---\ntitle: Notes\n---\n# LE *GRAND* TITRE {#titre}\n",
        'UN **MOT** AVEC `du code`, [UN LIEN](http://a.b/c_d "infobulle")\n',
        "SUR DEUX LIGNES \\*SANS GRAS\\* & VOIR https://a.b/e_f.\n",
        "> UNE CITATION\n> QUI CONTINUE\n",
        "- [ ] UNE TÂCHE\n",
        '1. VOIR [REF][ref] ET [CETTE PAGE][cette page] PUIS ![UNE IMAGE](i.png "non").\n',
        "| NOM | VALEUR |\n|-----|-------:|\n| UN  | `x`    |\n",
        MARKDOWN[MARKDOWN.index("```python") :],
    ]:
        assert kept in result


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("Mot", "a * b * c", "a \\* b \\* c"),
        ("Mot", "# no heading", "\\# no heading"),
        ("Mot", "1. no list", "1\\. no list"),
        ("Mot", "snake_case stays", "snake_case stays"),
        ("Mot", "_no_ emphasis", "\\_no\\_ emphasis"),
        ("Mot", "<script>", "\\<script>"),
        ("Mot![a](b)", "Oh!", "Oh!![a](b)"),
        ("Mot[a](b)", "Oh!", "Oh\\![a](b)"),
        ("Mot", "two\nlines", "two lines"),
        ("> un mot\n> deux", "one", "> one"),
        ("un\ndeux trois", "a bb ccc dd", "a bb\nccc dd"),
    ],
)
def test_markdown_reads_a_translation_as_words(
    source: str, translation: str, expected: str
) -> None:
    document = open_document(source.encode(), "md")
    rest = document.texts()[1:]
    assert document.rebuilt([translation, *rest]).decode() == expected


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("_un_, deux", ["un", "deux"]),
        ("_un_ ; deux", ["un", "deux"]),
        ("un (_deux_) trois", ["un", "deux", "trois"]),
        ("un:`x`-deux", ["un", "deux"]),
        ("(un) deux", ["(un) deux"]),
        ("...un", ["...un"]),
        ("_un_ (deux) trois", ["un", "(deux) trois"]),
        ("un $x_i + 2$ deux", ["un", "deux"]),
        ("de $5 à $6", ["de $5 à $6"]),
        ("$$\nabc\n$$", []),
        ("un\n: deux", ["un", "deux"]),
        ("> [!NOTE]\n> un", ["un"]),
        ("un :tada: [^1]\n\n[^1]: deux mots", ["un", "deux mots"]),
        (":::tip\nun\n:::", ["un"]),
        ("!!! note\n\nun {{ x }} deux", ["un", "deux"]),
    ],
)
def test_punctuation_at_a_mark_stays(source: str, texts: list[str]) -> None:
    document = open_document(source.encode(), "md")
    assert document.texts() == texts
    expected = source
    for text in texts:
        expected = expected.replace(text, text.upper())
    assert document.rebuilt([text.upper() for text in texts]).decode() == expected


def test_html_keeps_its_tags_and_names_the_new_language() -> None:
    result = shouted(PAGE.encode(), "html", target="en")
    for kept in [
        '<html lang="en"><head><meta charset="utf-8"><title>MA PAGE</title>',
        '<meta name="description" content="UNE PAGE &amp; RIEN"><meta name="robots" content="all">',
        "<!-- un commentaire --><h1>LE <em>GRAND</em> TITRE</h1>",
        "<p>UN TEXTE &lt;COURT&gt;\n   SUR DEUX LIGNES&nbsp;</p>",
        '<p translate="no">Marque <b>déposée</b></p><p class="x notranslate">non</p>',
        "<pre>code</pre><p>TAPEZ <code>ls</code> ICI.",
        """<img src="a.png" alt='UNE "IMAGE"' title="BULLE">""",
        '<input placeholder="VOTRE NOM" aria-label="NOM"><textarea>brouillon</textarea>',
        PAGE[PAGE.index("<script>") :],
    ]:
        assert kept in result


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<p>un<p>deux", ["un", "deux"]),
        ("<p translate=no>un<p>deux", ["deux"]),
        ("<div translate=no>un<p translate=yes>deux</p>trois</div>quatre", ["deux", "quatre"]),
        ("<code>un</p>deux</code>trois", ["trois"]),
        ("<div><code>un</div>deux", ["deux"]),
        ("un <b>deux</i> trois", ["un", "deux", "trois"]),
        ("a < b et c > d", ["a < b et c > d"]),
        ("un<!-- <p>deux -->trois", ["un", "trois"]),
        ("un<script>deux", ["un"]),
        ("un<a title='deux", ["un"]),
        ('un<a b=">" title=deux>trois</a>', ["un", "deux", "trois"]),
        ("<TITLE>un</TITLE><SCRIPT>x</SCRIPT>deux", ["un", "deux"]),
        ("&eacute;t&eacute; &amp;amp;", ["été &amp;"]),
        ("un<br>deux", ["un", "deux"]),
        ("<?xml version='1.0'?><html><code/>un</html>", ["un"]),
    ],
)
def test_broken_html_survives(page: str, texts: list[str]) -> None:
    document = open_document(page.encode(), "html")
    assert document.texts() == texts
    assert document.rebuilt(texts) == page.encode()


def test_groups_tell_which_texts_are_one_paragraph() -> None:
    page = "<p>Un <b>mot</b> fort</p><p>Deux<img alt=mots></p>"
    assert open_document(page.encode(), "html").groups() == [0, 0, 0, 1, 2]
    assert open_document(b"Un *mot* fort\n\n- deux\n- trois", "md").groups() == [0, 0, 0, 1, 2]


def test_a_page_in_another_encoding_gets_references() -> None:
    page = b"<meta charset=iso-8859-1><p>cafe</p>"
    document = open_document(page, "html")
    assert document.rebuilt(["café"]) == b"<meta charset=iso-8859-1><p>caf&#233;</p>"


def test_subtitles_keep_times_and_tags() -> None:
    document = open_document(SUBTITLES.encode(), "srt")
    result = document.rebuilt(
        ["It has rained in town since this morning.", "Coming?", "No.", "Li li"]
    )
    before, after = list(srt.parse(SUBTITLES)), list(srt.parse(result.decode()))
    assert [(c.index, c.start, c.end, c.proprietary) for c in before] == [
        (c.index, c.start, c.end, c.proprietary) for c in after
    ]
    assert [c.content for c in after] == [
        "<i>It has rained in town\nsince this morning.</i>",
        "- Coming?\n- No.",
        "{\\an8}♪ Li li ♪",
    ]


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        ("one two three four", 2, ["one two", "three four"]),
        ("a b c", 3, ["a", "b", "c"]),
        ("one", 3, ["one"]),
        ("a verylongword b", 2, ["a verylongword", "b"]),
        ("下雨了带伞吧", 2, ["下雨了", "带伞吧"]),
        ("one two", 1, ["one two"]),
    ],
)
def test_lines_are_balanced(text: str, lines: int, expected: list[str]) -> None:
    assert broken(text, lines) == expected


def filled(overwrite: bool = False) -> tuple[list[str], polib.POFile, str]:
    document = open_document(CATALOGUE.encode(), "po", overwrite=overwrite)
    texts = document.texts()
    result = document.rebuilt([f"«{text}»" for text in texts]).decode()
    return texts, polib.pofile(result), result


def test_a_catalogue_is_filled_where_it_is_empty() -> None:
    texts, catalogue, result = filled()
    assert texts == ['Hello %s, "friend"', "Two\nlines", "One file", "%d files"]
    hello, two, plural, done, obsolete = catalogue
    assert hello.msgstr == '«Hello %s, "friend"»\n'
    assert hello.comment == "for the greeting"
    assert (two.msgstr, two.flags) == ("«Two\nlines»", ["c-format"])
    assert plural.msgstr_plural == {0: "«One file»", 1: "«%d files»"}
    assert (done.msgstr, obsolete.msgstr, obsolete.obsolete) == ("Fini", "Vieux", True)
    assert result.startswith(CATALOGUE[: CATALOGUE.index("msgstr", 120)][:100])
    assert "#| msgid" not in result
    again = open_document(result.encode(), "po")
    assert again.texts() == []


def test_a_catalogue_without_translations_stays() -> None:
    document = open_document(CATALOGUE.encode(), "po")
    assert document.rebuilt([""] * 4) == CATALOGUE.encode()
    assert filled(overwrite=True)[0][-1] == "Done"


def test_a_lost_placeholder_makes_an_entry_fuzzy() -> None:
    document = open_document(CATALOGUE.encode(), "po")
    result = polib.pofile(document.rebuilt(["Salut", "Deux", "Un fichier", "%d fichiers"]).decode())
    assert [entry.fuzzy for entry in result] == [True, False, False, False, False]
    assert result[0].flags == ["c-format", "fuzzy"]


def test_a_template_is_said_to_be_utf_8() -> None:
    text = CATALOGUE.replace("charset=UTF-8", "charset=CHARSET")
    document = open_document(text.encode(), "po")
    assert "charset=UTF-8" in document.rebuilt(["é %s"] + [""] * 3).decode()
    assert document.rebuilt([""] * 4) == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        'msgstr "a"',
        'msgid "a"\nmsgid_plural "b',
        'msgid "a"\nmsgstr ""\nmsgstr ""',
        '"a"',
    ],
)
def test_what_is_no_catalogue_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a catalogue at line"):
        open_document(text.encode(), "po")


LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def segments(data: bytes, language: str) -> list[str]:
    tree = etree.fromstring(data)
    return [
        "".join(seg.itertext())
        for variant in tree.iter("tuv")
        if variant.get(LANGUAGE) == language
        for seg in variant.iter("seg")
    ]


def test_a_memory_gets_the_target_language() -> None:
    document = open_document(MEMORY.encode(), "tmx", target="fr")
    assert document.texts() == ["A", "big", "dog & a cat", "Empty"]
    assert document.groups() == [0, 0, 0, 1]
    assert document.rebuilt([""] * 4) == MEMORY.encode()
    result = document.rebuilt(["Un", "gros", "chien & <chat>", "Vide"])
    assert segments(result, "fr") == ["Un <b>gros</b> chien & <chat>", "Fini"]
    assert segments(result, "fr-CA") == ["Vide"]
    assert segments(result, "en-US") == segments(MEMORY.encode(), "en-US")
    added = (
        '      <tuv xml:lang="fr">\n        <seg>Un <bpt i="1">&lt;b&gt;</bpt>gros'
        '<ept i="1">&lt;/b&gt;</ept> chien &amp; &lt;chat&gt;</seg>\n      </tuv>\n'
    )
    there = '<tuv xml:lang="fr-CA"><seg/>'
    expected = MEMORY.replace(there, there.replace("<seg/>", "<seg>Vide</seg>"))
    assert result.decode().replace(added, "") == expected
    assert result.decode() != expected


def test_a_memory_is_translated_again_when_asked() -> None:
    document = open_document(MEMORY.encode(), "tmx", target="fr", overwrite=True)
    assert document.texts() == ["A", "big", "dog & a cat", "Done", "Empty"]
    result = document.rebuilt(["", "", "", "Terminé", ""])
    assert segments(result, "fr") == ["Terminé"]
    german = open_document(MEMORY.encode("utf-16"), "tmx", source="de", target="it")
    assert german.texts() == ["Nur Deutsch"]


BILLION = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><tmx><header srclang="en"/></tmx>'
OUTSIDE = '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/hostname">]><tmx>&a;</tmx>'


@pytest.mark.parametrize(
    ("data", "kind", "problem"),
    [
        (b"\xff\xfe\x00\x00a", "txt", "UTF-32"),
        (b"caf\xe9", "txt", "not text in UTF-8 .byte 3."),
        (b"\xff\xfe\x00\xd8", "txt", "not text in UTF-16"),
        (b"a\x00b", "md", "NUL"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "html", "not text in UTF-8"),
        (b"\xed\xa0\x80", "html", "not text in UTF-8"),
        (b"hello", "srt", "no cue with times"),
        (b"<tmx>", "tmx", "not XML at line 1"),
        (b"<html></html>", "tmx", "no <tmx>"),
        (b"<tmx><header/></tmx>", "tmx", "does not name its source language"),
        (BILLION.encode(), "tmx", "declares the entity 'a'"),
        (OUTSIDE.encode(), "tmx", "declares the entity 'a'"),
        ('<?xml version="1.0" encoding="latin-1"?><tmx>é</tmx>'.encode(), "tmx", "does not name"),
        (b"a", "docx", "use txt, text, md, markdown, html, htm, xhtml, srt, po, pot, tmx"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(data: bytes, kind: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        open_document(data, kind, target="fr")
    assert "\n" not in str(caught.value)


def test_a_document_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_module, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="at most 10 are read"):
        open_document(b"01234567890", "txt")


def test_kinds_are_known_by_name() -> None:
    assert [kind_of(n) for n in ["a.TXT", "b/c.md", "x.htm", "y.pot", "srt"]] == [
        *("txt", "md", "html", "po", "srt")
    ]
    with pytest.raises(InputError, match="kind or its file name"):
        open_document(b"")
    with pytest.raises(InputError, match="which language is to be added"):
        open_document(MEMORY.encode(), name="a.tmx")


@pytest.mark.parametrize("kind", ["txt", "md", "html", "srt", "po", "tmx"])
def test_as_many_translations_as_texts(kind: str) -> None:
    sources = {k: source for k, (source, _) in TEXTS.items()} | {"po": CATALOGUE, "tmx": MEMORY}
    document = open_document(sources[kind].encode(), kind, target="fr")
    with pytest.raises(InputError, match=rf"0 given as translations for {len(document.texts())}"):
        document.rebuilt([])
    with pytest.raises(InputError, match="one string given"):
        document.rebuilt("x" * len(document.texts()))


DEEP = {
    "md": ["> ", ">", "- ", "[", "![", "*a", "**a ", "`", "<a ", "&a", "| a ", "[a](", "~~a"],
    "html": [
        "<b>",
        "<div>",
        "<p>a",
        "<",
        "<a b='",
        "<!--",
        "&",
        "</i>",
        "<svg>",
        "<b></i>",
        "<title>",
    ],
    "tmx": [],
}


@pytest.mark.parametrize(
    ("kind", "unit"), [(k, unit) for k, units in DEEP.items() for unit in units]
)
def test_ten_thousand_marks_deep(kind: str, unit: str) -> None:
    data = (unit * 10_000 + "fin").encode()
    start = time.process_time()
    document = open_document(data, kind)
    assert document.rebuilt(document.texts()) == data
    assert time.process_time() - start < 20


def test_a_memory_ten_thousand_elements_deep() -> None:
    inner = "<hi>" * 10_000 + "mot" + "</hi>" * 10_000
    data = f'<tmx><header srclang="en"/><tu><tuv lang="en"><seg>{inner}</seg></tuv></tu></tmx>'
    document = open_document(data.encode(), "tmx", target="fr")
    assert document.texts() == ["mot"]
    assert b"word" in document.rebuilt(["word"])


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Voir https://a.b/c_(d), puis www.e.f.", ["https://a.b/c_(d)", "www.e.f"]),
        ("Écrire à x.y+z@jardin.example.", ["x.y+z@jardin.example"]),
        ("Il reste 5 kg, 100 % et 3,5 €.", ["5 kg", "100 %", "3,5 €"]),
        ("Lire ~/notes/a.txt ou README.md.", ["~/notes/a.txt", "README.md"]),
        ("Ouvrir C:\\dossier\\a.b et /usr/bin/ls", ["C:\\dossier\\a.b", "/usr/bin/ls"]),
        ("Taper `ls -l` ou --beam=4", ["`ls -l`", "--beam=4"]),
        (
            "%s a %(n)d {x} {0:.2f} ${y} %1$s %%",
            ["%s", "%(n)d", "{x}", "{0:.2f}", "${y}", "%1$s", "%%"],
        ),
        ("Oui 😀 et 👩\u200d🚀 🇫🇷", ["😀", "👩\u200d🚀", "🇫🇷"]),
        ("un <b>mot</b> &amp; deux", ["<b>", "</b>", "&amp;"]),
        ("100 % de gens, 50% sûrs, et/ou rien", ["100 %", "50%"]),
        ("Il est 5 heures et demie.", []),
        ("a.b", []),
    ],
)
def test_pieces_that_are_the_same_in_every_language(text: str, pieces: list[str]) -> None:
    assert [text[piece.start : piece.end] for piece in protected(text)] == pieces
    protection = protect(text)
    assert protection.pieces == tuple(pieces)
    assert protection.restored(protection.text) == text
    assert protection.missing("") == pieces


def test_marks_survive_being_moved() -> None:
    protection = protect("Envoie %s à x@y.example")
    assert protection.text == "Envoie ⟦0⟧ à ⟦1⟧"
    assert protection.restored("Send to ⟦1⟧ the ⟦ 0 ⟧") == "Send to x@y.example the %s"
    assert protection.missing("Send ⟦0⟧") == ["x@y.example"]
    assert protection.restored("⟦7⟧") == "⟦7⟧"


def test_placeholders_are_compared_without_their_order() -> None:
    assert placeholders("%(a)s and {b}") == placeholders("{b} und %(a)s")
    assert placeholders("100 % sure") == placeholders("nothing") == []


def test_documents_do_not_need_what_is_heavy() -> None:
    source = Path(spans_module.__file__).parent
    for file in source.glob("*.py"):
        assert "import torch" not in file.read_text(encoding="utf-8")
