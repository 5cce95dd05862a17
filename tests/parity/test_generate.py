"""The same weights and penalties give the outputs of Hugging Face's `generate`.

How their options map onto ours (max_length counts the start symbol there and not here):

- num_beams, num_return_sequences: beam_size, n_best.
- length_penalty p: length_normalization = "average", length_penalty = p. Their length counts the
  end symbol and not the start, like ours.
- early_stopping True: stop = "full" with patience 1. "never": "proven".
- max_length n: max_length = n - 1, with max_length_ratio and _extra out of the way.
- min_length n: min_length = n: theirs counts the start symbol but bans the end until then.
- no_repeat_ngram_size, bad_words_ids of one token: no_repeat_ngram_size, suppress_tokens.

What differs: we never put out the pad or the start symbol (so pad is a bad word there), their
n-grams count the start symbol (which is never put out, so it makes no difference), and greedy
search has no score there (`compute_transition_scores` gives the parts).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import MarianMTModel

from pellucid.decoding import DecodingOptions, Result, SpecialIds
from pellucid.decoding.torch.engine import run
from pellucid.model import Transformer
from tests.parity.marian import from_marian, generated, random_marian

VOCAB, LONGEST, SENTENCES = 40, 12, 6
# Seed, spread of the weights, bias of the end symbol: outputs of many lengths, ended and cut.
MODELS = [(0, 0.1, 1.5), (2, 0.1, 0.5), (3, 0.1, 1.5), (3, 0.3, 2.5)]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pair(
    seed: int, spread: float, end_bias: float
) -> tuple[MarianMTModel, Transformer, list[list[int]]]:
    torch.manual_seed(seed)
    peer = random_marian(vocab=VOCAB, width=24, inner=40, heads=2, layers=(2, 2), init_std=spread)
    peer.final_logits_bias *= 0.5
    peer.final_logits_bias[0, 0] = end_bias
    sources = [
        [*torch.randint(1, VOCAB - 1, (int(n),)).tolist(), 0] for n in torch.randint(1, 9, (6,))
    ]
    return peer, from_marian(peer), sources


def ours(
    model: Transformer, sources: list[list[int]], beams: int, n: int, **settings: Any
) -> list[Result]:
    options = DecodingOptions(
        beam_size=beams,
        n_best=n,
        max_length=LONGEST,
        max_length_extra=1000,
        patience=1.0,
        **settings,
    )
    return run(model, SpecialIds(VOCAB - 1, VOCAB - 1, 0), sources, options)


def check(found: list[Result], wanted: list[list[tuple[list[int], float]]], greedy: bool) -> int:
    """Tokens and scores equal; gives back how many sentences were compared."""
    compared = 0
    for result, hypotheses in zip(found, wanted, strict=True):
        if result.near_tie:
            continue
        compared += 1
        assert [list(h.tokens) for h in result.hypotheses] == [tokens for tokens, _ in hypotheses]
        for h, (_, score) in zip(result.hypotheses, hypotheses, strict=True):
            mine = h.log_probability if greedy else h.score
            assert mine == pytest.approx(score, abs=1e-4)
    return compared


ALPHAS = (0.0, 0.6, 2.0)
STOPS = [("full", True), ("proven", "never")]


@pytest.mark.parametrize(
    ("beams", "stop"), [(1, STOPS[0]), *((beams, stop) for beams in (2, 4, 5) for stop in STOPS)]
)
def test_generate(beams: int, stop: tuple[str, Any]) -> None:
    compared, ends = 0, set()
    for settings in MODELS:
        peer, model, sources = pair(*settings)
        for alpha in ALPHAS:
            n = min(beams, 3)
            beam_only = {} if beams == 1 else {"length_penalty": alpha, "early_stopping": stop[1]}
            wanted = generated(peer, sources, beams, n, LONGEST, **beam_only)
            found = ours(
                model,
                sources,
                beams,
                n,
                length_normalization="average",
                length_penalty=alpha,
                stop=stop[0],
            )
            compared += check(found, wanted, beams == 1)
            ends |= {(h.ended, h.length) for r in found for h in r.hypotheses}
    # About one in eight is a near-tie: random weights tell tokens apart by little.
    assert compared > 0.8 * len(ALPHAS) * len(MODELS) * SENTENCES
    assert len(ends) > 5, ends  # outputs of many lengths, ended and cut


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ({"min_length": 6}, {"min_length": 6}),
        ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),
        ({"suppress_tokens": set(range(1, 20))}, {"bad_words_ids": [[t] for t in range(1, 20)]}),
    ],
)
def test_generate_with_rules(beams: int, mine: dict[str, Any], other: dict[str, Any]) -> None:
    compared = changed = 0
    for settings in MODELS:
        peer, model, sources = pair(*settings)
        beam_only = {} if beams == 1 else {"length_penalty": 1.0, "early_stopping": True}
        wanted = generated(peer, sources, beams, 1, LONGEST, **beam_only, **other)
        found = ours(model, sources, beams, 1, **mine)
        compared += check(found, wanted, beams == 1)
        free = ours(model, sources, beams, 1)
        changed += sum(a.best.tokens != b.best.tokens for a, b in zip(found, free, strict=True))
    assert compared > 0.8 * len(MODELS) * SENTENCES
    assert changed  # the rule made a difference
