"""Two made-up languages: each word has one translation, and the order of words differs.

In the first, an adjective stands before its noun and the verb in the middle; in the second, an
adjective follows its noun, and adverb and verb stand at the end.
"""

import random
from itertools import product
from pathlib import Path

NOUNS, ADJECTIVES, VERBS, ADVERBS = 16, 8, 8, 4


def _words(count: int, ending: str, generator: random.Random) -> list[str]:
    syllables = ["".join(pair) for pair in product("bdfgklmnprst", "aeiou")]
    found: set[str] = set()
    while len(found) < count:
        found.add("".join(generator.choices(syllables, k=2)) + ending)
    return sorted(found)


def _lexicon() -> tuple[list[list[str]], list[list[str]]]:
    """The words of both languages: nouns, adjectives, verbs, adverbs. They are always the same."""
    generator = random.Random(4)
    kinds = [(NOUNS, "o"), (ADJECTIVES, "a"), (VERBS, "as"), (ADVERBS, "e")]
    first = [_words(size, ending, generator) for size, ending in kinds]
    second = [_words(size, ending[::-1] + "n", generator) for size, ending in kinds]
    return first, second


def dictionary() -> dict[str, str]:
    """The translation of each word."""
    first, second = _lexicon()
    return {
        mine: other
        for kind, others in zip(first, second, strict=True)
        for mine, other in zip(kind, others, strict=True)
    }


def sentences(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Different sentence pairs, in random order."""
    first, second = _lexicon()
    generator = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        subject, thing = generator.sample(range(NOUNS), 2)
        of_subject, of_thing = (generator.choice([None, *range(ADJECTIVES)]) for _ in range(2))
        verb, adverb = generator.randrange(VERBS), generator.choice([None, *range(ADVERBS)])

        def phrase(words: list[list[str]], noun: int, adjective: int | None) -> list[str]:
            return [words[0][noun], *([] if adjective is None else [words[1][adjective]])]

        one = [*phrase(first, subject, of_subject)[::-1], first[2][verb]]
        one += phrase(first, thing, of_thing)[::-1]
        two = phrase(second, subject, of_subject) + phrase(second, thing, of_thing)
        if adverb is not None:
            one.append(first[3][adverb])
            two.append(second[3][adverb])
        two.append(second[2][verb])
        found[" ".join(one) + "."] = " ".join(two) + "."
    return list(found.items())


def write(path: Path, pairs: list[tuple[str, str]]) -> None:
    """A tab-separated corpus."""
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
