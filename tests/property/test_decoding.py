"""Searches over tiny random models of every variant: equal, exact, within their limits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.decoding import DecodingOptions, Fate, Hypothesis, Result, SpecialIds
from pellucid.decoding.options import penalty
from pellucid.decoding.search.beam import beam_search
from pellucid.decoding.steps import run_to_end
from pellucid.decoding.torch.engine import TorchEngine, plan_for, run, search
from pellucid.decoding.torch.predictor import TorchPredictor
from pellucid.model import Transformer
from tests.property.strategies import models

SPECIAL = SpecialIds(pad=0, start=1, end=2)
TOLERANCE = 1e-5


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors of some hundred numbers only lose by being shared out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass
class Case:
    model: Transformer
    sources: list[list[int]]
    prefixes: list[list[int]]


def shake(model: Transformer, end_bias: float, seed: int) -> Transformer:
    """Logits that differ enough to choose by, and ends that come at various lengths."""
    generator = torch.Generator().manual_seed(seed)
    model.output.bias.copy_(torch.randn(model.output.bias.shape, generator=generator))
    model.output.bias[SPECIAL.end] = end_bias
    return model


@st.composite
def cases(draw: st.DrawFn, vocab: tuple[int, int] = (5, 12), sentences: int = 4) -> Case:
    size = draw(st.integers(*vocab))
    model = draw(models(vocab_size=size, output_bias=True))
    shake(model, draw(st.sampled_from([-0.5, 0.5, 1.0, 1.5])), draw(st.integers(0, 999)))
    token = st.integers(3, size - 1)
    count = draw(st.integers(1, sentences))
    sources = draw(
        st.lists(st.lists(token, min_size=1, max_size=7), min_size=count, max_size=count)
    )
    prefixes = draw(
        st.lists(
            st.one_of(st.just([]), st.lists(token, max_size=4)), min_size=count, max_size=count
        )
    )
    return Case(model, sources, prefixes)


@st.composite
def settings_of_search(draw: st.DrawFn, **fixed: Any) -> DecodingOptions:
    """Any options of greedy and beam search, short outputs."""
    beam = draw(st.integers(1, 5))
    values = {
        "beam_size": beam,
        "n_best": draw(st.integers(1, beam)),
        "length_normalization": draw(st.sampled_from(["none", "gnmt", "average"])),
        "length_penalty": draw(st.sampled_from([-0.7, 0.0, 0.6, 1.0, 1.7])),
        "max_length": draw(st.integers(1, 9)),
        "min_length": 0,
        "stop": draw(st.sampled_from(["full", "proven"])),
        "patience": draw(st.sampled_from([0.5, 1.0, 2.0])),
    }
    values["min_length"] = draw(st.integers(0, min(3, values["max_length"])))
    return DecodingOptions(**{**values, **fixed})


@st.composite
def penalised(draw: st.DrawFn) -> DecodingOptions:
    """The same, sometimes without repeated n-grams or with suppressed tokens."""
    return draw(settings_of_search()).changed(
        no_repeat_ngram_size=draw(st.sampled_from([0, 1, 2])),
        suppress_tokens=draw(st.frozensets(st.integers(3, 4), max_size=1)),
    )


def same(a: list[Result], b: list[Result], tolerance: float = TOLERANCE) -> None:
    """Equal tokens and scores, save where a result says that rounding may have decided."""
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        if one.near_tie or other.near_tie:
            continue
        assert [(h.tokens, h.ended) for h in one.hypotheses] == [
            (h.tokens, h.ended) for h in other.hypotheses
        ]
        for mine, yours in zip(one.hypotheses, other.hypotheses, strict=True):
            assert mine.score == pytest.approx(yours.score, abs=tolerance)
            assert mine.token_log_probabilities == pytest.approx(
                yours.token_log_probabilities, abs=tolerance
            )


def teacher_forced(model: Transformer, source: list[int], h: Hypothesis) -> list[float]:
    """Log-probabilities of a hypothesis by the whole model at once, without cache or search."""
    written = [*h.tokens, SPECIAL.end][: h.length]
    read = [SPECIAL.start, *written][: h.length]
    with torch.no_grad():
        logits = model(torch.tensor([source]), torch.tensor([read]))
    logs = logits[0].double().log_softmax(-1)
    return [logs[i, token].item() for i, token in enumerate(written)]


@given(cases(), penalised())
@settings(max_examples=60)
def test_with_cache_is_without_cache(case: Case, options: DecodingOptions) -> None:
    """The KV cache changes nothing: same tokens and scores as computing all positions anew.

    In double precision, as in `test_scores_are_teacher_forced`.
    """
    case.model.double()
    cached = run(case.model, SPECIAL, case.sources, options, case.prefixes)
    plain = options.changed(use_cache=False)
    same(cached, run(case.model, SPECIAL, case.sources, plain, case.prefixes))


def every_output(model: Transformer, source: list[int], length: int) -> list[tuple[tuple, float]]:
    """All outputs up to a length, ended or cut, each with its log-probability; no search."""
    tokens = [t for t in range(model.config.vocab_size) if t not in (0, 1, 2)]
    outputs = [
        (*body, SPECIAL.end) for n in range(length) for body in itertools.product(tokens, repeat=n)
    ]
    outputs += list(itertools.product(tokens, repeat=length))
    read = torch.full((len(outputs), length), SPECIAL.pad)
    for row, output in enumerate(outputs):
        read[row, : len(output)] = torch.tensor([SPECIAL.start, *output[:-1]])
    with torch.no_grad():
        logs = model(torch.tensor([source] * len(outputs)), read).double().log_softmax(-1)
    return [
        (output, sum(logs[row, i, token].item() for i, token in enumerate(output)))
        for row, output in enumerate(outputs)
    ]


@given(
    cases(vocab=(5, 6), sentences=2),
    st.sampled_from(["none", "gnmt", "average"]),
    st.sampled_from([-0.7, 0.6, 1.0, 1.7]),
    st.integers(1, 4),
    st.booleans(),
)
@settings(max_examples=40)
def test_wide_enough_is_exhaustive(
    case: Case, kind: str, alpha: float, length: int, early_exit: bool
) -> None:
    """A beam wide enough finds exactly the n best of all possible outputs, in their order."""
    options = DecodingOptions(
        beam_size=150,
        n_best=10,
        length_normalization=kind,
        length_penalty=alpha,
        max_length=length,
        stop="proven",
        early_exit=early_exit,
    )
    for source, result in zip(
        case.sources, run(case.model, SPECIAL, case.sources, options), strict=True
    ):
        scored = [
            (total / penalty(options.length_normalization, alpha, len(output)), output)
            for output, total in every_output(case.model, source, length)
        ]
        wanted = sorted(scored, reverse=True)[:10]
        assert [h.score for h in result.hypotheses] == pytest.approx(
            [score for score, _ in wanted], abs=TOLERANCE
        )
        if not result.near_tie:
            found = [
                (*h.tokens, SPECIAL.end) if h.ended == "eos" else h.tokens
                for h in result.hypotheses
            ]
            assert found == [output for _, output in wanted]


def beam_of_one(case: Case, options: DecodingOptions) -> list[Result]:
    """Beam search itself with one beam; `run` would use greedy search."""
    sources, prefixes = case.sources, case.prefixes
    task = plan_for(case.model, SPECIAL, sources, options, prefixes, None)
    predictor = TorchPredictor(case.model, SPECIAL, sources, options)
    steps = beam_search(task, np.arange(len(sources)), predictor)
    results = run_to_end(steps)[1]
    return [results[i] for i in range(len(sources))]


@given(cases(), penalised())
@settings(max_examples=60)
def test_beam_one_is_greedy(case: Case, options: DecodingOptions) -> None:
    """Beam search with a beam of 1 gives what greedy search gives."""
    options = options.changed(beam_size=1, n_best=1, stop="full", patience=1.0)
    same(run(case.model, SPECIAL, case.sources, options, case.prefixes), beam_of_one(case, options))


@given(cases(), settings_of_search(), st.booleans())
@settings(max_examples=60)
def test_scores_are_teacher_forced(case: Case, options: DecodingOptions, sample: bool) -> None:
    """Scores are the model's own, for each length penalty, and for sampled outputs too.

    In double precision: the norms of a model 4 numbers wide can blow up float32's rounding beyond
    the tolerance, and it is the search that is tested here.
    """
    case.model.double()
    if sample:
        options = options.changed(sample=True, beam_size=1, temperature=1.5)
    for source, result in zip(
        case.sources, run(case.model, SPECIAL, case.sources, options, case.prefixes), strict=True
    ):
        for h in result.hypotheses:
            forced = teacher_forced(case.model, source, h)
            assert h.token_log_probabilities == pytest.approx(forced, abs=TOLERANCE)
            total = sum(forced)
            assert h.log_probability == pytest.approx(total, abs=TOLERANCE)
            divisor = penalty(options.length_normalization, options.length_penalty, h.length)
            assert h.score == pytest.approx(total / divisor, abs=TOLERANCE)


@given(cases(), penalised(), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=40)
def test_batch_mates_do_not_matter(
    case: Case, options: DecodingOptions, random: Any, sample: bool
) -> None:
    """Same results alone, together, in another order, in small batches."""
    if sample:
        options = options.changed(sample=True, beam_size=1, top_p=0.9)
    together = run(case.model, SPECIAL, case.sources, options, case.prefixes)
    alone = [
        run(case.model, SPECIAL, [source], options, [prefix], keys=[key])[0]
        for key, (source, prefix) in enumerate(zip(case.sources, case.prefixes, strict=True))
    ]
    same(together, alone)
    order = list(range(len(case.sources)))
    random.shuffle(order)
    shuffled = run(
        case.model,
        SPECIAL,
        [case.sources[i] for i in order],
        options,
        [case.prefixes[i] for i in order],
        keys=order,
    )
    same([together[i] for i in order], shuffled)
    engine = TorchEngine(case.model, SPECIAL, batch_tokens=12)
    same(together, engine.translate_ids(case.sources, options, case.prefixes))


@given(cases(), penalised())
@settings(max_examples=60)
def test_outputs_obey(case: Case, options: DecodingOptions) -> None:
    """Prefix kept, nothing suppressed, lengths within limits, n-best sorted and distinct."""
    results = run(case.model, SPECIAL, case.sources, options, case.prefixes)
    never = {SPECIAL.pad, SPECIAL.start, SPECIAL.end, *options.suppress_tokens}
    for source, prefix, result in zip(case.sources, case.prefixes, results, strict=True):
        limit = max(options.limit(len(source)), len(prefix))
        assert 1 <= len(result.hypotheses) <= options.n_best
        scores = [h.score for h in result.hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({(h.tokens, h.ended) for h in result.hypotheses}) == len(scores)
        assert result.prefix_length == len(prefix)
        for h in result.hypotheses:
            assert h.tokens[: len(prefix)] == tuple(prefix)
            assert not never.intersection(h.tokens[len(prefix) :])
            assert h.length <= limit
            assert h.length == len(h.tokens) + (h.ended == "eos")
            if h.ended == "eos":
                assert h.length >= min(options.min_length, limit)
            elif h.ended == "length":
                assert h.length == limit
            n = options.no_repeat_ngram_size
            if n and not prefix:
                grams = [h.tokens[i : i + n] for i in range(len(h.tokens) - n + 1)]
                assert len(set(grams)) == len(grams)


@given(cases(), penalised())
@settings(max_examples=80)
def test_early_exit_changes_nothing(case: Case, options: DecodingOptions) -> None:
    quick = run(case.model, SPECIAL, case.sources, options, case.prefixes)
    slow = options.changed(early_exit=False)
    same(quick, run(case.model, SPECIAL, case.sources, slow, case.prefixes))


@given(cases(), penalised())
@settings(max_examples=40)
def test_steps_tell_the_whole_story(case: Case, options: DecodingOptions) -> None:
    """The results can be rebuilt from the steps alone, as the page's tree does."""
    steps, results = run_to_end(search(case.model, SPECIAL, case.sources, options, case.prefixes))
    live: dict[int, list[tuple[int, ...]]] = {i: [()] for i in range(len(case.sources))}
    finished: dict[int, set[tuple[int, ...]]] = {i: set() for i in range(len(case.sources))}
    first = min(len(p) for p in case.prefixes)
    prefilled = steps[0].length - 1
    assert prefilled <= first
    for i, prefix in enumerate(case.prefixes):
        live[i] = [tuple(prefix[:prefilled])]
    done: list[int] = []
    for step in steps:
        assert not set(done) & set(step.sentences.tolist())
        for sentence in step.sentences.tolist():
            extended = []
            for c in step.candidates(sentence):
                tokens = (*live[sentence][c.parent], c.token)
                assert len(tokens) == step.length
                if c.fate == Fate.KEPT:
                    extended.append(tokens)
                elif c.fate == Fate.FINISHED:
                    finished[sentence].add(tokens)
            live[sentence] = extended
        done += step.done
    assert sorted(done) == list(range(len(case.sources)))
    for sentence, result in enumerate(results):
        for h in result.hypotheses:
            if h.ended != "blocked":
                tokens = (*h.tokens, SPECIAL.end) if h.ended == "eos" else h.tokens
                assert tokens in finished[sentence]
