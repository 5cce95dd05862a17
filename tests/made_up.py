"""A made-up corpus: English and French sentences from a small grammar, as many as are wanted."""

import random
from functools import cache
from pathlib import Path

from pellucid.config import CorpusConfig, DataConfig, TokenizerConfig
from pellucid.tokenizers.sentencepiece import Tokenizer

WHO = [
    ("The baker", "Le boulanger"), ("My sister", "Ma sœur"), ("A tall child", "Un grand enfant"),
    ("The old captain", "Le vieux capitaine"), ("Nobody", "Personne"), ("Your aunt", "Ta tante"),
    ("The two painters", "Les deux peintres"), ("An engineer", "Une ingénieure"),
]  # fmt: skip
DOES = [
    ("sells", "vend"), ("has forgotten", "a oublié"), ("was looking for", "cherchait"),
    ("will repair", "réparera"), ("does not like", "n’aime pas"), ("carries", "porte"),
    ("is painting", "est en train de peindre"), ("found", "a trouvé"),
]  # fmt: skip
WHAT = [
    ("the green bicycle", "le vélo vert"), ("an umbrella", "un parapluie"),
    ("forty-two letters", "quarante-deux lettres"), ("her café", "son café"),
    ("the lighthouse", "le phare"), ("some pears", "des poires"), ("a map", "une carte"),
    ("what you said yesterday evening", "ce que tu as dit hier soir"),
]  # fmt: skip
WHERE = [
    ("", ""), (" in the garden", " dans le jardin"), (" near the station", " près de la gare"),
    (" before it rains", " avant qu’il ne pleuve"), (" on a Monday", " un lundi"),
    (" while the others are asleep", " pendant que les autres dorment"),
    (" between the bridge and the market", " entre le pont et le marché"),
]  # fmt: skip


def pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs of one to three clauses."""
    generator = random.Random(seed)

    def clause() -> tuple[str, str]:
        parts = [generator.choice(words) for words in (WHO, DOES, WHAT, WHERE)]
        english, french = zip(*parts, strict=True)
        return (
            f"{english[0]} {english[1]} {english[2]}{english[3]}",
            f"{french[0]} {french[1]} {french[2]}{french[3]}",
        )

    made = []
    for _ in range(count):
        clauses = [clause() for _ in range(generator.choice([1, 1, 1, 2, 3]))]
        made.append(
            ("; ".join(c[0] for c in clauses) + "!", " ; ".join(c[1] for c in clauses) + " !")
        )
    return made


def write_tsv(path: Path, count: int, seed: int = 0) -> CorpusConfig:
    """A corpus of so many pairs, all of them different by a number at the end."""
    with path.open("w", encoding="utf-8", newline="") as file:
        for number, (english, french) in enumerate(pairs(min(count, 2000), seed)):
            for again in range(number, count, 2000):
                file.write(f"{english} ({again})\t{french} ({again})\n")
    return CorpusConfig(path=path, languages=("en", "fr"))


def both_ways(*train: CorpusConfig, **more: object) -> DataConfig:
    """Settings for training in both directions."""
    return DataConfig(directions=("fr-en", "en-fr"), train=train, **more)


@cache
def tokenizer(kind: str = "unigram") -> Tokenizer:
    """A small tokenizer for the made-up corpus."""
    texts = [side for pair in pairs(400, seed=1) for side in pair]
    return Tokenizer.train(texts, TokenizerConfig(model_type=kind, vocab_size=420))
