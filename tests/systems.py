"""Made-up systems for evaluation: the references of the made-up corpus, spoiled to a degree."""

import random

from tests.made_up import pairs


def spoiled(lines: list[str], share: float, seed: int) -> list[str]:
    """Lines in which about this share of the words is dropped, doubled, swapped or another."""
    generator = random.Random(seed)
    every = [word for line in lines for word in line.split()]
    made = []
    for line in lines:
        words: list[str] = []
        for word in line.split():
            if generator.random() >= share:
                words.append(word)
                continue
            kind = generator.randrange(4)
            if kind == 0:
                words += [word, word]
            elif kind == 1:
                words.append(generator.choice(every))
            elif kind == 2:
                words.insert(max(0, len(words) - 1), word)
        made.append(" ".join(words))
    return made


def french_and_english(count: int = 60, seed: int = 3) -> tuple[list[str], list[str]]:
    """French sources and English references."""
    found = pairs(count, seed)
    return [french for _, french in found], [english for english, _ in found]
