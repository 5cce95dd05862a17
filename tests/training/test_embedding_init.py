"""Embeddings to start from, counted over the pairs."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from pellucid.model import ModelConfig, Transformer
from pellucid.training import embedding_init as embeddings
from pellucid.training.embedding_init import (
    CooccurrenceMatrix,
    cooccurrence_embeddings,
    init_embeddings,
)

VOCAB, WORDS = 64, 20


@dataclass
class Pairs:
    """As much of a split as is counted: word w of one language is 10 + w, of the other 40 + w."""

    pairs: list[tuple[list[int], list[int]]]

    def __len__(self) -> int:
        return len(self.pairs)

    def ids(self, pair: int, side: int) -> np.ndarray:
        return np.array(self.pairs[pair][side], dtype=np.uint16)


def made_up(count: int, seed: int = 0) -> Pairs:
    random = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        words = random.choice(WORDS, size=random.integers(2, 7), replace=False)
        other = random.permutation(words)
        pairs.append(((10 + words).tolist(), (40 + other).tolist()))
    return Pairs(pairs)


def test_the_table_is_what_its_formula_says() -> None:
    split = made_up(60)
    table = CooccurrenceMatrix(split, VOCAB)  # type: ignore[arg-type]
    there = np.zeros((len(split), VOCAB))
    for number, (one, other) in enumerate(split.pairs):
        there[number, [*one, *other]] = 1
    n_j = there.sum(axis=0)
    wanted = there * np.log(len(split) / np.maximum(n_j, 1))
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    assert table.times(torch.eye(VOCAB)).numpy() == pytest.approx(wanted, abs=1e-6)
    assert table.transposed_times(torch.eye(len(split))).numpy() == pytest.approx(
        wanted.T, abs=1e-6
    )


def test_a_word_and_its_translation_start_as_neighbours() -> None:
    found = cooccurrence_embeddings(
        made_up(400),  # type: ignore[arg-type]
        VOCAB,
        16,
        torch.Generator().manual_seed(0),
    )
    nearest = (found[10 : 10 + WORDS] @ found[40 : 40 + WORDS].T).argmax(dim=1)
    assert nearest.tolist() == list(range(WORDS))
    seen = torch.zeros(VOCAB, dtype=torch.bool)
    seen[10 : 10 + WORDS] = seen[40 : 40 + WORDS] = True
    lengths = found.norm(dim=1)
    assert lengths[seen].tolist() == pytest.approx([4.0] * (2 * WORDS), abs=1e-3)
    assert not found[~seen].any()


@pytest.mark.parametrize("tie", ["all", "decoder", "none"])
def test_every_table_of_a_model_gets_them(tie: str) -> None:
    split = made_up(200)
    config = ModelConfig.preset("tiny", vocab_size=VOCAB, norm="pre", tie_embeddings=tie)
    model = Transformer(config)
    init_embeddings(model, split, seed=3)  # type: ignore[arg-type]
    tables = [model.source_embedding.tokens.weight, model.output.weight]
    for table in tables:
        assert table.std().item() == pytest.approx(embeddings.STD, rel=0.1)
        assert len(table.unique(dim=0)) == VOCAB, "no two tokens begin the same"
        nearest = (table[10 : 10 + WORDS] @ table[40 : 40 + WORDS].T).argmax(dim=1)
        assert nearest.tolist() == list(range(WORDS))
    assert (tables[0] is tables[1]) == (tie == "all")
    again = Transformer(config)
    init_embeddings(again, split, seed=3)  # type: ignore[arg-type]
    assert torch.equal(model.output.weight, again.output.weight), "same seed, same numbers"
    source = torch.tensor([[5, 11, 12, 13, 3]])
    logits = model(source, torch.tensor([[2, 41, 42, 43]]))
    loss = torch.nn.functional.cross_entropy(logits[0], torch.tensor([41, 42, 43, 3]))
    assert loss.item() == pytest.approx(np.log(VOCAB), abs=0.6), "the first guesses are even"


def test_no_pairs_to_speak_of_give_no_trouble() -> None:
    for split in (Pairs([([], [])]), Pairs([([10], [40])]), Pairs([([10, 10], [10])] * 3)):
        found = cooccurrence_embeddings(
            split,  # type: ignore[arg-type]
            VOCAB,
            128,
            torch.Generator().manual_seed(0),
        )
        assert torch.isfinite(found).all()
