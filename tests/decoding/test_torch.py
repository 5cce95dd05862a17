"""The torch engine on hostile and unusual input."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from pellucid.decoding import DecodingOptions, SpecialIds
from pellucid.decoding.steps import run_to_end
from pellucid.decoding.torch.engine import TorchEngine, batches, run
from pellucid.decoding.torch.linear import Linear
from pellucid.decoding.torch.predictor import best
from pellucid.decoding.torch.step_decoder import StepDecoder
from pellucid.errors import InputError
from pellucid.model import Cache, ModelConfig, Transformer

SPECIAL = SpecialIds(pad=0, start=1, end=2)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def engine(**changes: object) -> TorchEngine:
    torch.manual_seed(3)
    settings = {"vocab_size": 11, "d_model": 8, "d_ff": 16, "num_heads": 2}
    settings |= {"encoder_layers": 1, "decoder_layers": 2, "output_bias": True}
    model = Transformer(ModelConfig(**{**settings, **changes}))
    torch.nn.init.normal_(model.output.bias)
    return TorchEngine(model, SPECIAL)


def test_nothing_in_nothing_out() -> None:
    assert engine().translate_ids([], DecodingOptions()) == []
    results = engine().translate_ids([[], [5, 6]], DecodingOptions(n_best=2))
    empty = results[0].best
    assert (empty.tokens, empty.ended, empty.length, empty.score) == ((), "empty", 0, 0.0)
    assert results[1].best.length > 0


@pytest.mark.parametrize("beam", [1, 4])
def test_shortest_limits(beam: int) -> None:
    none = engine().translate_ids([[5]], DecodingOptions(beam_size=beam, max_length=0))[0].best
    assert (none.tokens, none.ended) == ((), "length")
    one = engine().translate_ids([[5]], DecodingOptions(beam_size=beam, max_length=1))[0].best
    assert one.length == 1


def test_everything_forbidden_is_blocked_not_a_hang() -> None:
    for beam in (1, 3):
        options = DecodingOptions(beam_size=beam, suppress_tokens=frozenset(range(11)))
        assert engine().translate_ids([[5]], options)[0].best.ended == "blocked"
    options = DecodingOptions(sample=True, suppress_tokens=frozenset(range(11)))
    assert engine().translate_ids([[5]], options)[0].best.ended == "blocked"


def test_a_long_line() -> None:
    long = [3 + i % 8 for i in range(3000)]
    result = engine().translate_ids([[4], long], DecodingOptions(beam_size=2, max_length=20))
    assert all(r.best.length <= 20 for r in result)
    learned = engine(position_encoding="learned", max_length=16)
    assert learned.translate_ids([[4] * 3], DecodingOptions())[0].best.length <= 16
    with pytest.raises(InputError, match="learned positions"):
        learned.translate_ids([long], DecodingOptions())


def test_wrong_ids_are_refused_before_any_work() -> None:
    with pytest.raises(InputError, match="source 1: token id 11"):
        engine().translate_ids([[4], [11]], DecodingOptions())


def test_one_symbol_for_start_and_end() -> None:
    """Some models start with the end symbol; it must still be able to end."""
    torch.manual_seed(0)
    model = engine().model
    with torch.no_grad():
        model.output.bias[2] = 50.0
    same = TorchEngine(model, SpecialIds(pad=0, start=2, end=2))
    assert same.translate_ids([[5]], DecodingOptions())[0].best.ended == "eos"


def test_attention() -> None:
    sources = [[5, 6, 7], [4], []]
    options = DecodingOptions(attention=True, n_best=3, max_length=6)
    for source, result in zip(sources, engine().translate_ids(sources, options), strict=True):
        for h in result.hypotheses:
            if not source:
                assert h.attention is None
                continue
            assert h.attention is not None
            assert h.attention.shape == (h.length, len(source))
            np.testing.assert_allclose(h.attention.sum(axis=1), 1.0, atol=1e-5)
    heads = [
        engine().translate_ids(
            sources[:1], options.changed(attention_layer=0, attention_head=head)
        )[0]
        for head in (0, 1)
    ]
    assert not np.allclose(heads[0].best.attention, heads[1].best.attention)


def test_looking_at_steps_leaves_gradients_on() -> None:
    steps = engine().steps([[5, 6]], DecodingOptions(max_length=4))
    next(steps)
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


def test_watch_shows_more_and_changes_nothing() -> None:
    plain = engine().translate_ids([[5, 6]], DecodingOptions(max_length=5))
    watched = DecodingOptions(max_length=5, record_candidates=9)
    assert engine().translate_ids([[5, 6]], watched) == plain
    step = next(engine().steps([[5, 6]], watched.changed(beam_size=1)))
    assert len(step.candidates(0)) == 9


def test_topk_breaks_ties_by_id() -> None:
    scores = torch.zeros(2, 1000)
    scores[1, 700:] = 1.0
    values, tokens = best(scores, 3)
    assert tokens.tolist() == [[0, 1, 2], [700, 701, 702]]
    assert values.tolist() == [[0.0] * 3, [1.0] * 3]


@pytest.mark.parametrize("width", [64_000, 20_011])
def test_topk_over_a_large_vocabulary_is_a_stable_sort(width: int) -> None:
    scores = torch.randn(5, width)
    scores[0, 7:width:50] = 9.0  # ties over many blocks
    scores[1, -3:] = 10.0  # in the last block, which may be short
    scores[2, 100:109] = torch.arange(9.0) + 10  # the best in one block
    values, tokens = best(scores, 9)
    wanted, ids = scores.sort(dim=1, descending=True, stable=True)
    assert values.tolist() == wanted[:, :9].tolist()
    assert tokens.tolist() == ids[:, :9].tolist()


def test_the_best_two_break_ties_by_id_and_leave_the_scores() -> None:
    low = -torch.inf
    scores = torch.tensor(
        [[1.0, 3, 3, 2], [3, 1, 3, 3], [low, low, 5, low], [4, low, low, low], [low] * 4]
    )
    before = scores.clone()
    values, tokens = best(scores, 2)
    assert tokens.tolist() == [[1, 2], [0, 2], [2, 0], [0, 1], [0, 1]]
    assert values.tolist() == [[3, 3], [3, 3], [5, low], [4, low], [low, low]]
    assert torch.equal(scores, before)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 40])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(8, 20), (20, 8), (64, Linear.LARGE // 64)])
def test_the_fast_linear_layer_is_the_linear_layer(
    rows: int, bias: bool, shape: tuple[int, int]
) -> None:
    layer, x = torch.nn.Linear(*shape, bias=bias), torch.randn(rows, shape[0])
    with torch.inference_mode():
        fast = Linear(layer.weight, layer.bias)
        torch.testing.assert_close(fast(x), layer(x))
        torch.testing.assert_close(fast(x, torch.empty(rows, shape[1])), layer(x))


@pytest.mark.parametrize(
    "changes",
    [{}, {"num_kv_heads": 1, "attention_bias": False}, {"position_encoding": "rotary"}],
    ids=["plain", "grouped", "rotary"],
)
def test_a_short_source_is_absorbed_and_nothing_changes(changes: dict[str, object]) -> None:
    model = engine(**changes).model
    steps = StepDecoder(model)
    with torch.inference_mode():
        cache = model.start(model.encode(torch.tensor([[5, 6, 7, 8]])))
        short, plain = (steps.start(Cache(cache.layers)) for _ in range(2))
        assert short.absorbed is not None
        plain.absorbed = None
        for tokens in torch.tensor([[1, 1], [4, 6], [3, 9]]):
            torch.testing.assert_close(steps(tokens, short), steps(tokens, plain))
        long = model.start(model.encode(torch.tensor([[5, 6, 7, 8, 9]])))
        assert steps.start(Cache(long.layers)).absorbed is None


@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions(beam_size=1, max_length=9),
        DecodingOptions(beam_size=1, max_length=9, min_length=3),
        DecodingOptions(sample=True, n_best=3, max_length=9),
    ],
    ids=["greedy", "not too short", "sampled"],
)
def test_results_are_the_same_whether_anyone_looks_or_not(options: DecodingOptions) -> None:
    sources, prefixes = [[5, 6], [7, 3, 4], [8]], [[4], [], [3, 5]]
    _, watched = run_to_end(engine().steps(sources, options, prefixes))
    model = engine().model
    assert run(model, SPECIAL, sources, options, prefixes) == watched


def test_threads_may_share_an_engine() -> None:
    shared, options = engine(), DecodingOptions(max_length=8, n_best=2)
    sources = [[3 + (i + j) % 8 for j in range(1 + i % 5)] for i in range(12)]
    wanted = [shared.translate_ids([s], options)[0] for s in sources]
    found: dict[int, object] = {}

    def work(i: int) -> None:
        found[i] = shared.translate_ids([sources[i]], options)[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(sources))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(len(sources))] == wanted


def test_scores_of_given_outputs() -> None:
    one = engine()
    result = one.translate_ids([[5, 6], [7]], DecodingOptions(min_length=2, max_length=6))
    scores = one.score_ids([[5, 6], [7]], [r.best.tokens for r in result])
    for r, forced in zip(result, scores, strict=True):
        np.testing.assert_allclose(
            forced.log_probabilities[: r.best.length],
            r.best.token_log_probabilities,
            atol=1e-5,
        )


def test_batches_hold_each_sentence_once() -> None:
    lengths = [3, 50, 1, 0, 7, 7, 2]
    made = list(batches(lengths, 14))
    assert sorted(i for batch in made for i in batch) == list(range(len(lengths)))
    assert made[0] == [1]  # longer than the budget: alone
    for batch in made[1:]:
        assert len(batch) * max(lengths[i] for i in batch) <= 14
    assert list(batches([4, 4], 0)) == [[0], [1]]
