"""Sentence segmentation that keeps every character.

    "".join(split_sentences(text)) == text            for any string at all

White space belongs to the sentence before it (at the very beginning of a text, to the first
sentence). A line break always ends a sentence, so lines in are lines out. There is nothing to
download and nothing to train: a few rules look at the characters around each full stop, in time
that is linear in the length of the text.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from pellucid.errors import InputError
from pellucid.text import abbreviations

LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

# Full stops that end a sentence without a space after them, and those that need one.
_WIDE = "。！？｡।॥"
_SPACED = ".!?…‼⁇⁈⁉．؟۔\u037e՞։።፧។៕"  # U+037E is the Greek question mark
_LINE = re.compile(rf"\S[^{LINE_BREAKS}]*")
_STOP = re.compile(
    rf"([{_WIDE}{_SPACED}]+)"
    # closing quotes and brackets, also the French one after its space, and notes such as [3]
    r"((?:[\"'”’“»«›‹)\]}）」』】〉》*_]|[ \u00a0\u202f]»(?!\w)|\[\d{1,3}\])*)"
)
_SPACE = re.compile(r"\s*")
_EMOJI = re.compile(
    r"(?:(?:[\U0001f000-\U0001faff\u2600-\u26ff\u2728\u2764\u2b50\u200d\ufe0f]|[:;]-?[)(DP])\s*)+"
)
_OPENING = re.compile(r"[\"'“‘«‹„‚»›(\[{¿¡—–\-•*_#>…\s（「『【]*")
_WORD = re.compile(r"[^\W\d_]+['’]?")
_TOKEN_ENDS = frozenset(" \t\u00a0\u202f\u2009\u3000\u200b([{\"'“‘«‹„‚’—–")
_BULLET = re.compile(r"\s*(?:(?:[-–—•‣◦▪▫●○*+·>]+|\(?\d{1,3}[.)]|[a-zA-Z]\))\s+(?=\S))?")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,3}\.-?)+[^\W\d_]{1,3}")
# What else than digits numbers volumes and sections; a lone A or I is rather a word.
_NUMERAL = re.compile(r"(?:[B-HJ-Z]|[IVXLCDM]{2,})\b(?!['’])|[AI]\b(?=[.,;:)])")
_PAIRS = abbreviations.PAIRS_LEADING | abbreviations.PAIRS_TRAILING | abbreviations.PAIRS_CLOSING
_LOOK_BACK = 40  # characters; a longer word before a full stop is no abbreviation


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence, and the white space and list mark around it.

    Joining `before + core + after` of all segments gives the text back. `core` is the text to
    translate; it is empty only if a text is nothing but white space.
    """

    before: str
    core: str
    after: str


def split_sentences(text: str, language: str | None = None) -> list[str]:
    """Cut a text into sentences; joined, they are the text again.

    `language` ("en", "fr", "de", or with a region, "fr-CA") selects the abbreviations; without it,
    those of all three are known. Other languages are cut by the general rules.
    """
    if not text:
        return []
    rules = _Rules(text, language)
    starts = [start for line in _LINE.finditer(text) for start in rules.starts(*line.span())]
    cuts = [0, *starts[1:], len(text)]
    return [text[a:b] for a, b in pairwise(cuts)]


def segment(text: str, language: str | None = None) -> list[Segment]:
    """Cut a text into sentences, each separate from the white space and list mark around it."""
    return [_apart(sentence) for sentence in split_sentences(text, language)]


def _apart(sentence: str) -> Segment:
    stripped = sentence.rstrip()
    mark = _BULLET.match(stripped)
    begin = mark.end() if mark else 0
    word = _WORD.match(stripped, begin)
    if word and word[0].lower() in abbreviations.COUNTED:  # "3. Mai" is a date, not item 3
        begin = len(stripped) - len(stripped.lstrip())
    return Segment(sentence[:begin], stripped[begin:], sentence[max(begin, len(stripped)) :])


@functools.lru_cache(maxsize=64)  # bounded, as language codes come from requests
def _words_of(language: str | None) -> tuple[frozenset[str], ...]:
    """Return the tables of a language; for None those of all known ones, else English."""
    known = list(abbreviations.TITLES)
    if language is not None:
        known = [language] if language in known else ["en"]
    tables = (
        abbreviations.TITLES,
        abbreviations.LEADING,
        abbreviations.NUMBERED,
        abbreviations.CLOSING,
        abbreviations.STARTERS,
    )
    return tuple(frozenset().union(*(table[name] for name in known)) for table in tables)


class _Rules:
    """The rules, for one text and one language."""

    def __init__(self, text: str, language: str | None) -> None:
        self.text = text
        self.language = language.lower().replace("_", "-").split("-")[0] if language else None
        self.titles, self.leading, self.numbered, self.closing, self.starters = _words_of(
            self.language
        )

    def starts(self, start: int, end: int) -> list[int]:
        """Return where sentences begin in one line, which does not begin with a space."""
        text, found = self.text, [start]
        line = text[start:end]
        plain = line == line.lower() and line != line.upper()  # written without any capital
        worded = start  # the current sentence has no word before this position
        for stop in _STOP.finditer(text, start, end):
            after = stop.end()
            if after == end or stop.start() < found[-1]:
                continue
            if not text[after].isspace():
                if stop[1][-1] in _WIDE and not stop[2]:
                    found.append(after)
                    worded = after
                continue
            if worded < stop.start():
                word = _WORD.search(text, worded, stop.start())
                worded = word.start() if word else stop.start()
            if worded == stop.start() and stop[0] == ".":
                continue  # "1." or "2.3." before the words of an item
            following = self._following(after, end)
            if following == end or text[following] in "!?":
                continue
            if self._ends(stop, found[-1], following, end, plain):
                found.append(following)
                worded = following
        return found

    def _following(self, after: int, end: int) -> int:
        """Return where the next sentence would begin: past white space and emoji of this one."""
        space = _SPACE.match(self.text, after, end)
        following = space.end() if space else after
        emoji = _EMOJI.match(self.text, following, end)
        if emoji and (emoji.end() == end or self.text[emoji.end() - 1].isspace()):
            return emoji.end()
        return following

    def _ends(self, stop: re.Match[str], start: int, following: int, end: int, plain: bool) -> bool:
        """Tell whether the full stop `stop` of the sentence from `start` ends it."""
        text, marks, closers = self.text, stop[1], stop[2]
        opening = _OPENING.match(text, following, end)
        first = opening.end() if opening else following
        next_word = _WORD.match(text, first, end)
        lower = (
            bool(next_word) and text[first].islower() and not text[first + 1 : first + 2].isupper()
        )
        if marks[-1] in _WIDE:
            return True
        if marks.strip(".…"):  # a question or an exclamation
            aside = closers[:1] == ")" and text[stop.start() - 1 : stop.start()] == "("
            return not aside and (not lower or (plain and not closers))
        token = self._token(stop.start(), start)
        if marks != ".":  # an ellipsis
            again = next_word is not None and next_word[0].lower() == token.lower()
            return not lower and not again and not text[first : first + 1].isdigit()
        if closers:
            return not lower
        return self._full_stop_ends(stop.start(), start, token, first, next_word, lower, plain)

    def _full_stop_ends(
        self,
        stop: int,
        start: int,
        token: str,
        first: int,
        next_word: re.Match[str] | None,
        lower: bool,
        plain: bool,
    ) -> bool:
        """Tell whether a single full stop at `stop`, after the word `token`, ends a sentence."""
        text, name = self.text, token.lower()
        before = self._token_with_stop_before(stop - len(token), start)
        pair = (before, name)
        if (name in self.titles and token[:1].isupper()) or name in self.leading:
            return False
        if pair in abbreviations.PAIRS_LEADING:
            return False
        short = name in self.closing or name in abbreviations.TRAILING or name in self.numbered
        if lower:
            return plain and not short and len(name) > 1 and not _DOTTED.fullmatch(token)
        if name in abbreviations.TRAILING or pair in abbreviations.PAIRS_TRAILING:
            return True
        if name.isdigit() and len(name) <= 2:
            return not self._ordinal(first, next_word, before)
        digit = text[first : first + 1].isdigit()
        if name in self.numbered or name.endswith("str"):
            if digit or (len(name) > 1 and _NUMERAL.match(text, first)):
                return False
        elif digit:
            return name not in self.closing and not _DOTTED.fullmatch(token)
        if (len(name) == 1 and name.isalpha()) or _DOTTED.fullmatch(token):
            return self._starts(next_word, name, token)
        if name in self.closing or pair in abbreviations.PAIRS_CLOSING:
            return self._starts(next_word, name, token)
        return True

    def _ordinal(self, first: int, next_word: re.Match[str] | None, before: str) -> bool:
        """Tell whether a number before a full stop is an ordinal, as in "3. Mai"."""
        if next_word is None:  # "am 3. 5. 2020"
            date = (
                re.compile(r"\d{1,2}\.|\d{4}\b") if before.isdigit() else re.compile(r"\d{1,2}\.")
            )
            return bool(date.match(self.text, first)) and self.language in (None, "de")
        word = next_word[0].lower()
        if self.language == "de":
            return word not in self.starters
        return self.language is None and word in abbreviations.COUNTED

    def _starts(self, next_word: re.Match[str] | None, name: str, token: str) -> bool:
        """Tell whether a sentence begins after an initial or a closing abbreviation."""
        if next_word is None:
            return len(name) > 1
        word = next_word[0].lower()
        dotted = self.text[next_word.end() : next_word.end() + 1] == "."
        if dotted and (len(word) == 1 or (name, word) in _PAIRS):  # "J. R. R.", "v. Chr."
            return False
        if len(token) == 1 and token.islower():  # a letter as a word: "solve for x. Then"
            return True
        return word in self.starters

    def _token(self, stop: int, start: int) -> str:
        """Return the word that ends at `stop`, without the brackets and quotes before it."""
        begin, least = stop, max(start, stop - _LOOK_BACK)
        while begin > least and self.text[begin - 1] not in _TOKEN_ENDS:
            begin -= 1
        return self.text[begin:stop]

    def _token_with_stop_before(self, position: int, start: int) -> str:
        """Return the word before `position` if it has a full stop ("z" before "B"), lowercased."""
        text = self.text
        while position > start and text[position - 1].isspace():
            position -= 1
        if position > start and text[position - 1] == ".":
            return self._token(position - 1, start).lower()
        word = text[max(start, position - 4) : position].lower().split()
        return word[-1] if word and word[-1] in ("et", "zum") else ""


# Where to cut an over-long sentence, best first; the cut is after the match.
_CUTS = [
    re.compile(r"[;；؛。！？!?…]+[\"'”’»)\]]*\s*"),
    re.compile(r"[:：](?:\s+|(?<=：))"),
    re.compile(r"[,،](?:\s+)|[，、]\s*|\)\s+|\s[—–-]\s"),
    re.compile(
        r"\s+(?=(?:and|or|but|because|which|that|while|et|ou|mais|car|donc|qui|que|parce|und|oder"
        r"|aber|weil|dass|wenn|denn)\s)",
        re.IGNORECASE,
    ),
    re.compile(r"\s+"),
]


def split_long(sentence: str, limit: int, length: Callable[[str], int] = len) -> list[str]:
    """Cut a sentence that is longer than `limit` into parts that are not; joined, they are it.

    The cut is after a semicolon, else a colon, a comma, before a conjunction, at a space, and if
    there is none between any two visible characters. `length` measures a part: characters by
    default, or a tokenizer's count. Only a single visible character (a letter with its diacritics,
    a joined emoji) may remain longer than the limit.
    """
    if limit < 1:
        raise InputError(f"limit = {limit} leaves no room for any text: give at least 1")
    parts: list[str] = []
    start, guess = 0, limit
    while start < len(sentence):
        end = _fitting(sentence, start, limit, length, guess)
        if end < len(sentence):
            guess = max(end - start, 1)
            end = _best_cut(sentence, start, end)
            while end - start > 1 and length(sentence[start:end]) > limit:
                smaller = _visible(sentence, start, end - 1)  # a shorter text may measure longer
                if smaller >= end:
                    break
                end = smaller
        parts.append(sentence[start:end])
        start = end
    return parts


def _fitting(text: str, start: int, limit: int, length: Callable[[str], int], guess: int) -> int:
    """Find about the last end for which the text from `start` fits, by doubling and bisection."""
    low, high = start, min(start + guess, len(text))
    while length(text[start:high]) <= limit:
        if high == len(text):
            return high
        low, high = high, min(start + 2 * (high - start), len(text))
    while high - low > 1:
        middle = (low + high) // 2
        if length(text[start:middle]) <= limit:
            low = middle
        else:
            high = middle
    return low


def _best_cut(text: str, start: int, end: int) -> int:
    """Return the best position to cut at or before `end`, not in the first half of the part."""
    earliest = start + (end - start) // 2
    for pattern in _CUTS:
        last = 0
        for match in pattern.finditer(text, earliest, min(end + 1, len(text))):
            if earliest < match.end() <= end and not _joined(text, match.end()):
                last = match.end()
        if last:
            return last
    return _visible(text, start, end)


def _visible(text: str, start: int, position: int) -> int:
    """Return the nearest position at or before `position` between two visible characters."""
    place = position
    while place > start and _joined(text, place):
        place -= 1
    if place > start:
        return place
    place = max(position, start + 1)
    while place < len(text) and _joined(text, place):
        place += 1
    return place


def _joined(text: str, place: int) -> bool:
    """Tell whether the characters around a position are displayed as one."""
    if not 0 < place < len(text):
        return False
    left, right = text[place - 1], text[place]
    if "\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff":
        return True
    if left == "\u200d" or right == "\u200d" or (left == "\r" and right == "\n"):
        return True
    if unicodedata.category(right)[0] == "M" or "\U0001f3fb" <= right <= "\U0001f3ff":
        return True
    if "\U000e0020" <= right <= "\U000e007f":
        return True
    if _is_flag(left) and _is_flag(right):
        begin = place
        while begin > 0 and place - begin < 200 and _is_flag(text[begin - 1]):
            begin -= 1
        return (place - begin) % 2 == 1
    return "\u1160" <= right <= "\u11ff"  # vowels and finals of a Hangul syllable


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
