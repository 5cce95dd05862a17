"""Splits into train, valid and test that have no sentence in common."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

_NOT_WORD = re.compile(r"\W+")


def normalise(sentence: str) -> str:
    """Return the form in which sentences are compared: NFKC, lower case, each run of other
    than word characters replaced by a space, stripped."""
    return _NOT_WORD.sub(" ", unicodedata.normalize("NFKC", sentence).lower()).strip()


def sentence_hash(sentence: str) -> str:
    """Return the hash of a sentence in lists of excluded sentences: 16 hex digits."""
    return hashlib.sha256(normalise(sentence).encode()).hexdigest()[:16]


def split_by_sentence(
    pairs: Sequence[tuple[str, str]], shares: Mapping[str, float], largest: int = 100
) -> list[str]:
    """Return the split of each pair, so that no sentence, on either side, is in two splits.

    Pairs that share a normalised sentence are connected; each connected group goes to one split as
    a whole, chosen by a hash of its smallest sentence. So no pair is lost, and the result depends
    neither on the order of the pairs nor on the machine. `shares` is the fraction of the groups for
    each split other than "train". Train gets the rest, and every group of more than `largest`
    pairs, which would unbalance the other splits.
    """
    group_of: dict[str, str] = {}

    def root(sentence: str) -> str:
        while (parent := group_of.setdefault(sentence, sentence)) != sentence:
            group_of[sentence] = group_of[parent]  # path compression
            sentence = parent
        return sentence

    sides = [(normalise(first), normalise(second)) for first, second in pairs]
    for first, second in sides:
        one, other = sorted((root(first), root(second)))
        group_of[other] = one  # the root of a group is thus its smallest sentence

    sizes = Counter(root(first) for first, _ in sides)
    splits = {
        group: "train" if size > largest else _choose(group, shares)
        for group, size in sizes.items()
    }
    return [splits[root(first)] for first, _ in sides]


def _choose(group: str, shares: Mapping[str, float]) -> str:
    digest = hashlib.sha256(b"split\n" + group.encode()).digest()
    draw = int.from_bytes(digest[:8], "big") / 2**64
    for split, share in shares.items():
        if draw < share:
            return split
        draw -= share
    return "train"
