"""Sentences that nobody wrote, put together from parts of those that somebody did.

A walk begins as one sentence does and goes on as it does; after each word it may change over to
any other sentence that has the same two words there, and it ends where it comes to an end. "The
old cat sleeps on the mat" and "A dog sleeps on the warm stones" make "The old cat sleeps on the
warm stones". Wherever one looks, three words in a row stand so in the corpus: in a small corpus
of one kind most walks are sentences that could have been in it, and the others are near.

Nobody has translated them; they are for models that can (`training.inventing`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

CONTEXT = 2
"""Words that two sentences must share where a walk changes over."""

CHANGE = 0.3
"""How often it does, where it can: about three times in a sentence of ten words. A sentence itself
may be among the choices."""

LONGEST = 100
"""Words after which a walk is given up: it may go in circles."""

TRIES = 10
"""Walks for each sentence that is wanted; a corpus with little in common has few new ones."""


def recombined(sentences: Sequence[str], count: int, seed: int) -> list[str]:
    """Up to `count` different sentences that are none of the given ones; the same for a seed.

    Words are what stands between spaces, so a language that is written without has none of these.
    """
    words = [sentence.split() for sentence in sentences]
    words = [some for some in words if len(some) > CONTEXT]
    meetings: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for number, some in enumerate(words):
        for place in range(CONTEXT, len(some)):
            meetings[tuple(some[place - CONTEXT : place])].append((number, place))
    generator = random.Random(seed)
    known = {" ".join(sentence.split()) for sentence in sentences}
    found: list[str] = []
    for _ in range(TRIES * count if words else 0):
        if len(found) == count:
            break
        walk = _walk(words, meetings, generator)
        if walk is not None and walk not in known:
            known.add(walk)
            found.append(walk)
    return found


def _walk(
    words: Sequence[Sequence[str]],
    meetings: dict[tuple[str, ...], list[tuple[int, int]]],
    generator: random.Random,
) -> str | None:
    number, place = generator.randrange(len(words)), CONTEXT
    made = list(words[number][:CONTEXT])
    while place < len(words[number]):
        if generator.random() < CHANGE:
            number, place = generator.choice(meetings[tuple(made[-CONTEXT:])])
        made.append(words[number][place])
        place += 1
        if len(made) > LONGEST:
            return None
    return " ".join(made)
