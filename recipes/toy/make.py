"""Makes the toy corpus: `python recipes/toy/make.py`. The files that it writes are kept in git.

Sentences come from a small grammar with what makes translation more than looking words up:
French puts most adjectives after the noun, agrees in gender and number, and counts differently
(ninety-two is quatre-vingt-douze). No sentence stands in two of the files.
"""

import random
from collections.abc import Iterator
from pathlib import Path

SIZES = {"train": 2000, "valid": 100, "test": 100}

# English, French, plural?
WHO = [
    ("The baker", "Le boulanger", False),
    ("My sister", "Ma sœur", False),
    ("A tall child", "Un grand enfant", False),
    ("The old captain", "Le vieux capitaine", False),
    ("Your aunt", "Ta tante", False),
    ("The painters", "Les peintres", True),
    ("Our neighbours", "Nos voisins", True),
    ("Two students", "Deux étudiants", True),
]
# English and French, each for one and for several
DOES = [
    ("sells", "sell", "vend", "vendent"),
    ("carries", "carry", "porte", "portent"),
    ("looks for", "look for", "cherche", "cherchent"),
    ("does not like", "do not like", "n'aime pas", "n'aiment pas"),
    ("has found", "have found", "a trouvé", "ont trouvé"),
    ("will repair", "will repair", "réparera", "répareront"),
    ("counts", "count", "compte", "comptent"),
]
# English, French, feminine?
WHAT = [
    ("apples", "pommes", True),
    ("bicycles", "vélos", False),
    ("letters", "lettres", True),
    ("umbrellas", "parapluies", False),
    ("chairs", "chaises", True),
    ("books", "livres", False),
    ("doors", "portes", True),
    ("hats", "chapeaux", False),
]
# English, French masculine and feminine plural; they stand after the noun
HOW = [
    ("green", "verts", "vertes"),
    ("black", "noirs", "noires"),
    ("heavy", "lourds", "lourdes"),
    ("round", "ronds", "rondes"),
    ("broken", "cassés", "cassées"),
    ("red", "rouges", "rouges"),
]
WHERE = [
    ("", ""),
    (" in the garden", " dans le jardin"),
    (" near the station", " près de la gare"),
    (" on Monday", " lundi"),
    (" before it rains", " avant qu'il ne pleuve"),
    (" behind the school", " derrière l'école"),
]

ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
]  # fmt: skip
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
UNITS = [
    "zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze",
    "douze", "treize", "quatorze", "quinze", "seize", "dix-sept", "dix-huit", "dix-neuf",
]  # fmt: skip
DIZAINES = ["vingt", "trente", "quarante", "cinquante", "soixante"]


def english(number: int) -> str:
    """A number from 0 to 99 in words."""
    if number < 20:
        return ONES[number]
    ten, one = divmod(number, 10)
    return TENS[ten - 2] + (f"-{ONES[one]}" if one else "")


def french(number: int) -> str:
    """A number from 0 to 99 in words."""
    if number < 20:
        return UNITS[number]
    if number >= 80:
        return "quatre-vingt" + (f"-{UNITS[number - 80]}" if number > 80 else "s")
    ten, one = divmod(number, 10)
    if ten == 7:
        ten, one = 6, one + 10
    joint = " et " if one in (1, 11) else "-"
    return DIZAINES[ten - 2] + (f"{joint}{UNITS[one]}" if one else "")


def sentences(seed: int = 7) -> Iterator[tuple[str, str]]:
    """Pairs without end, each of them once."""
    generator = random.Random(seed)
    seen = set()
    while True:
        who, does, what, how, where = map(generator.choice, (WHO, DOES, WHAT, HOW, WHERE))
        number = generator.randrange(2, 100)
        if number > 20 and number % 10 == 1:
            continue  # vingt et une: the one number that agrees
        verb = (does[1], does[3]) if who[2] else (does[0], does[2])
        adjective = how[2] if what[2] else how[1]
        pair = (
            f"{who[0]} {verb[0]} {english(number)} {how[0]} {what[0]}{where[0]}.",
            f"{who[1]} {verb[1]} {french(number)} {what[1]} {adjective}{where[1]}.",
        )
        if pair not in seen:
            seen.add(pair)
            yield pair


def files() -> dict[str, str]:
    """The content of each file, by its name."""
    source = sentences()
    return {
        f"{name}.tsv": "".join("\t".join(next(source)) + "\n" for _ in range(size))
        for name, size in SIZES.items()
    }


if __name__ == "__main__":
    for name, content in files().items():
        (Path(__file__).parent / name).write_text(content, encoding="utf-8", newline="\n")
