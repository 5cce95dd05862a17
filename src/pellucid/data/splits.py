"""Train, valid and test without a sentence in common."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

_NOT_WORD = re.compile(r"\W+")


def normalise(sentence: str) -> str:
    """What makes two sentences "the same": NFKC, lower case, runs of other than word characters
    made one space, stripped."""
    return _NOT_WORD.sub(" ", unicodedata.normalize("NFKC", sentence).lower()).strip()


def sentence_hash(sentence: str) -> str:
    """16 hex digits that stand for a sentence in a list of sentences to leave out."""
    return hashlib.sha256(normalise(sentence).encode()).hexdigest()[:16]


def split_by_sentence(
    pairs: Sequence[tuple[str, str]], shares: Mapping[str, float], largest: int = 100
) -> list[str]:
    """The split of each pair, such that no sentence, on either side, stands in two splits.

    Pairs that share a normalised sentence hang together, and so do those that they share others
    with; each such group goes to one split as a whole, chosen by a hash of its sentences. So no
    pair is lost, and the answer depends neither on the order of the pairs nor on the machine.
    `shares` says what part of the groups goes to each split but "train", which gets the rest, and
    also every group of more than `largest` pairs, which would unbalance the others.
    """
    group_of: dict[str, str] = {}

    def root(sentence: str) -> str:
        while (parent := group_of.setdefault(sentence, sentence)) != sentence:
            group_of[sentence] = group_of[parent]  # shortens the way for the next time
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
    place = int.from_bytes(digest[:8], "big") / 2**64
    for split, share in shares.items():
        if place < share:
            return split
        place -= share
    return "train"
