"""The ct2 engine gives the torch engine's answers, for every variant it can express."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from examples import toy
from pellucid.decoding import DecodingOptions, Result, SpecialIds
from pellucid.decoding.ct2.engine import Ct2Engine
from pellucid.decoding.ct2.specification import LONGEST, _sinusoidal, export, obstacle
from pellucid.decoding.torch.engine import TorchEngine
from pellucid.errors import InputError
from pellucid.model import ModelConfig, Transformer
from pellucid.model.positions import sinusoidal_table

VOCAB = 60
PIECES = [f"piece {token}" for token in range(VOCAB)]
SPECIAL = SpecialIds(pad=0, start=2, end=3)
TOLERANCE = 1e-4

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre": {"norm": "pre"},
    "sandwich": {"norm": "sandwich"},
    "sandwich, rms": {"norm": "sandwich", "norm_type": "rms"},
    "rms": {"norm": "pre", "norm_type": "rms"},
    "post, rms": {"norm_type": "rms", "activation": "silu"},
    "gelu": {"activation": "gelu"},
    "gelu_tanh": {"activation": "gelu_tanh", "norm": "pre"},
    "swiglu": {"activation": "swiglu", "norm": "pre", "norm_type": "rms"},
    "geglu": {"activation": "geglu"},
    "geglu_tanh": {"activation": "geglu_tanh", "feed_forward_bias": False},
    "halves": {"position_layout": "halves"},
    "another base": {"position_base": 500.0},
    "learned": {"position_encoding": "learned", "max_length": 64},
    "rotary": {"position_encoding": "rotary", "norm": "pre"},
    "rotary, halves": {"position_encoding": "rotary", "position_layout": "halves"},
    "rotary, another theta": {"position_encoding": "rotary", "rope_theta": 500.0},
    "none": {"position_encoding": "none"},
    "grouped": {"num_heads": 4, "num_kv_heads": 2},
    "multi-query": {"num_heads": 4, "num_kv_heads": 1, "norm": "pre"},
    "qk_norm": {"qk_norm": "self", "norm": "pre"},
    "no bias": {"attention_bias": False, "feed_forward_bias": False},
    "tie decoder": {"tie_embeddings": "decoder"},
    "tie none": {"tie_embeddings": "none", "scale_embedding": False},
    "embedding_norm": {"embedding_norm": True},
    "modern": {
        "norm": "pre", "norm_type": "rms", "activation": "swiglu", "position_encoding": "rotary",
        "num_heads": 4, "num_kv_heads": 2, "qk_norm": "self", "attention_bias": False,
        "feed_forward_bias": False,
    },
}  # fmt: skip
SENTENCES = 24  # of each variant: more than 500 in all


@dataclass(frozen=True)
class Pair:
    torch: TorchEngine
    ct2: Ct2Engine


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def random_model(seed: int = 0, **changes: Any) -> Transformer:
    """A model whose outputs end sooner or later, and never hold the pad or the start symbol."""
    torch.manual_seed(seed)
    settings = {"vocab_size": VOCAB, "d_model": 32, "d_ff": 48, "num_heads": 4}
    settings |= {"encoder_layers": 2, "decoder_layers": 2, "output_bias": True}
    model = Transformer(ModelConfig(**{**settings, **changes})).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.normal_(mean=1.0 if "norm" in name else 0.0, std=0.2)
    model.output.bias[[SPECIAL.pad, SPECIAL.start]] = -40.0
    model.output.bias[SPECIAL.end] = 1.5
    return model


def exported(
    model: Transformer,
    folder: Path,
    alignment: tuple[int, int | None] = (-1, None),
    quantization: str | None = None,
    special: SpecialIds = SPECIAL,
    **more: Any,
) -> Ct2Engine:
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    pieces = PIECES[: model.config.vocab_size]
    export(
        model.config, weights, folder, pieces=pieces, special=special, unknown=1,
        quantization=quantization, alignment=alignment,
    )  # fmt: skip
    return Ct2Engine(folder, model.config, special, pieces, alignment=alignment, threads=1, **more)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def make(name: str) -> Pair:
        model = random_model(**VARIANTS[name])
        folder = tmp_path_factory.mktemp("ct2") / "model"
        return Pair(TorchEngine(model, SPECIAL), exported(model, folder))

    return make


def sources(count: int, seed: int = 0, longest: int = 14) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, longest, count)
    return [[*draw.integers(4, VOCAB, n).tolist(), SPECIAL.end] for n in lengths]


def same(ours: list[Result], theirs: list[Result], tolerance: float = TOLERANCE) -> int:
    """How many results were compared in full: those without a near-tie, which must be equal."""
    compared = 0
    for mine, yours in zip(ours, theirs, strict=True):
        if mine.near_tie:
            continue
        compared += 1
        assert [h.tokens for h in mine.hypotheses] == [h.tokens for h in yours.hypotheses]
        assert [h.ended for h in mine.hypotheses] == [h.ended for h in yours.hypotheses]
        for a, b in zip(mine.hypotheses, yours.hypotheses, strict=True):
            assert a.length == b.length
            assert a.score == pytest.approx(b.score, abs=tolerance)
            assert a.log_probability == pytest.approx(b.log_probability, abs=10 * tolerance)
    return compared


OPTIONS = [
    DecodingOptions(beam_size=1, max_length_extra=8),
    DecodingOptions(beam_size=4, n_best=4, max_length_extra=8),
    DecodingOptions(beam_size=3, length_penalty=0.6, max_length_extra=3),
    DecodingOptions(beam_size=4, length_normalization="none", max_length_extra=8),
]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant(pair: Any, name: str) -> None:
    engines = pair(name)
    rows = sources(SENTENCES, seed=len(name))
    compared = 0
    for options in OPTIONS:
        mine = engines.torch.translate_ids(rows, options)
        compared += same(mine, engines.ct2.translate_ids(rows, options))
    assert compared > 0.8 * len(OPTIONS) * SENTENCES  # near-ties are the exception
    assert SENTENCES * len(VARIANTS) >= 500


@pytest.mark.parametrize("name", ["paper", "modern", "learned"])
@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions(beam_size=4, n_best=3, patience=2.0, max_length_extra=6),
        DecodingOptions(beam_size=2, length_penalty=1.7, max_length=5),
        DecodingOptions(beam_size=5, length_penalty=-0.5, n_best=2, max_length_extra=0),
        DecodingOptions(beam_size=2, max_length_ratio=2.0, max_length_extra=0),
        DecodingOptions(beam_size=2, max_length=1),
        DecodingOptions(beam_size=2, max_length=0),
    ],
)
def test_options(pair: Any, name: str, options: DecodingOptions) -> None:
    rows = [[], *sources(30, seed=5)]
    engines = pair(name)
    assert same(
        engines.torch.translate_ids(rows, options), engines.ct2.translate_ids(rows, options)
    )


@pytest.mark.parametrize("name", ["paper", "rotary"])
def test_forced_prefixes(pair: Any, name: str) -> None:
    rows = sources(40, seed=6)
    draw = np.random.default_rng(1)
    prefixes = [draw.integers(4, VOCAB, n % 4).tolist() for n in range(len(rows))]
    options = DecodingOptions(beam_size=4, n_best=2, max_length_extra=6)
    mine = pair(name).torch.translate_ids(rows, options, prefixes)
    yours = pair(name).ct2.translate_ids(rows, options, prefixes)
    assert same(mine, yours) > 30
    for prefix, result in zip(prefixes, yours, strict=True):
        assert result.prefix_length == len(prefix)
        assert all(list(h.tokens[: len(prefix)]) == prefix for h in result.hypotheses)


def test_the_scores_of_restricted_searches_are_the_models_own(pair: Any) -> None:
    """CTranslate2 shares out the probability of what it may not produce; we read it again."""
    rows = sources(40, seed=7)
    engines = pair("paper")
    for options in (
        DecodingOptions(suppress_tokens=frozenset(range(10, 30)), max_length_extra=6),
        DecodingOptions(min_length=6, max_length_extra=6),
        DecodingOptions(no_repeat_ngram_size=2, max_length_extra=6),
    ):
        for source, result in zip(rows, engines.ct2.translate_ids(rows, options), strict=True):
            h = result.best
            assert not options.suppress_tokens.intersection(h.tokens)
            assert h.length >= min(options.min_length, options.limit(len(source)))
            pairs = list(zip(h.tokens, h.tokens[1:], strict=False))
            assert not options.no_repeat_ngram_size or len(set(pairs)) == len(pairs)
            logs = engines.torch.score_ids([source], [h.tokens])[0].log_probabilities[: h.length]
            assert h.log_probability == pytest.approx(logs.sum(), abs=TOLERANCE)
            assert h.score == pytest.approx(logs.sum() / h.length, abs=TOLERANCE)


def test_token_log_probabilities(pair: Any) -> None:
    rows = sources(20, seed=8)
    options = DecodingOptions(n_best=2, max_length_extra=6, token_log_probabilities=True)
    engines = pair("swiglu")
    for source, result in zip(rows, engines.ct2.translate_ids(rows, options), strict=True):
        for h in result.hypotheses:
            wanted = engines.torch.score_ids([source], [h.tokens])[0].log_probabilities
            assert h.token_log_probabilities == pytest.approx(wanted[: h.length], abs=TOLERANCE)


def test_greedy_search_knows_no_near_ties(pair: Any) -> None:
    """It has one output, so there is nothing to compare, also where sentences have other limits."""
    options = DecodingOptions(beam_size=1, max_length_extra=6)
    for result in pair("paper").ct2.translate_ids(sources(30, seed=12), options):
        assert len(result.hypotheses) == 1
        assert result.near_tie is None


def test_next_tokens(pair: Any) -> None:
    engines = pair("pre")
    rows, prefixes = sources(6, seed=9), [[], [5], [6, 7], [8, 9, 10], [], [11]]
    mine = engines.torch.next_tokens(rows, prefixes, 5)
    yours = engines.ct2.next_tokens(rows, prefixes, 5)
    for a, b in zip(mine, yours, strict=True):
        assert [token for token, _ in a] == [token for token, _ in b]
        assert [log for _, log in a] == pytest.approx([log for _, log in b], abs=TOLERANCE)


@pytest.mark.parametrize("shape", [{}, {"num_kv_heads": 2}, {"num_kv_heads": 1}])
@pytest.mark.parametrize("alignment", [(-1, None), (0, None), (0, 0), (1, 2), (0, 3)])
def test_attention(
    tmp_path: Path, shape: dict[str, int], alignment: tuple[int, int | None]
) -> None:
    """Also where sentences of a batch have different lengths, of any head and of their mean."""
    model = random_model(**shape)
    engine = exported(model, tmp_path / "model", alignment)
    layer, head = alignment
    options = DecodingOptions(
        n_best=2, max_length_extra=4, attention=True, attention_layer=layer, attention_head=head
    )
    rows = sources(12, seed=3)
    mine = TorchEngine(model, SPECIAL).translate_ids(rows, options)
    yours = engine.translate_ids(rows, options)
    same(mine, yours)
    for a, b in zip(mine, yours, strict=True):
        for x, y in zip(a.hypotheses, b.hypotheses, strict=True):
            if not a.near_tie:
                np.testing.assert_allclose(x.attention, y.attention, atol=TOLERANCE)
    with pytest.raises(InputError, match="attention_layer"):
        engine.translate_ids(rows, options.changed(attention_layer=1, attention_head=1))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sample": True}, "sample"),
        ({"length_normalization": "gnmt"}, "gnmt"),
        ({"stop": "proven"}, "stop"),
        ({"record_candidates": 3}, "record_candidates"),
        ({"use_cache": False}, "use_cache"),
        ({"patience": 0.5}, "patience"),
    ],
)
def test_what_it_cannot_do_names_the_torch_engine(pair: Any, changes: Any, named: str) -> None:
    with pytest.raises(InputError, match=f"{named}.*use the torch engine"):
        pair("paper").ct2.translate_ids([[5, 3]], DecodingOptions(**changes))


def test_hostile_input(pair: Any) -> None:
    engine = pair("paper").ct2
    assert engine.translate_ids([], DecodingOptions()) == []
    empty = engine.translate_ids([[]], DecodingOptions())[0].best
    assert (empty.tokens, empty.ended, empty.score) == ((), "empty", 0.0)
    with pytest.raises(InputError, match=r"1200 tokens for 1024 positions.*torch engine"):
        engine.translate_ids([[5] * 1200], DecodingOptions())
    with pytest.raises(InputError, match=r"source 1: nothing but the end.*torch engine"):
        engine.translate_ids([[5], [SPECIAL.end]], DecodingOptions())
    with pytest.raises(InputError, match="source 0: token id 60"):
        engine.translate_ids([[60]], DecodingOptions())
    everything = DecodingOptions(suppress_tokens=frozenset(range(VOCAB)))
    assert engine.translate_ids([[5, 3]], everything)[0].best.ended == "blocked"
    at_the_end = [[5] * LONGEST, [7] * 1000]
    for result in engine.translate_ids(at_the_end, DecodingOptions(max_length=3)):
        assert result.best.length <= 3
    unending = DecodingOptions(
        suppress_tokens=frozenset({SPECIAL.end}), beam_size=1, max_length_extra=2000
    )
    assert engine.translate_ids([[5, 3]], unending)[0].best.length == LONGEST - 1


def test_special_symbols_never_come_out(tmp_path: Path) -> None:
    model = random_model()
    model.output.bias[[SPECIAL.pad, SPECIAL.start]] = 1.0
    rows, options = sources(30), DecodingOptions(n_best=2, max_length_extra=4)
    for result in exported(model, tmp_path / "model").translate_ids(rows, options):
        for h in result.hypotheses:
            assert not {SPECIAL.pad, SPECIAL.start}.intersection(h.tokens)


def test_batch_mates_do_not_matter(pair: Any) -> None:
    rows = sources(60, seed=11)
    options = DecodingOptions(beam_size=3, n_best=2, max_length_extra=3)
    engine = pair("pre").ct2
    together = engine.translate_ids(rows, options)
    alone = [engine.translate_ids([row], options)[0] for row in rows]
    ties = [r.near_tie for r in pair("pre").torch.translate_ids(rows, options)]
    for tie, a, b in zip(ties, together, alone, strict=True):
        if not tie:
            assert [h.tokens for h in a.hypotheses] == [h.tokens for h in b.hypotheses]


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("width", [2, 32, 512])
def test_the_table_of_positions_is_the_models(layout: Any, width: int) -> None:
    config = ModelConfig(vocab_size=9, d_model=width, num_heads=1, position_layout=layout)
    ours = sinusoidal_table(LONGEST, width, base=config.position_base, layout=layout)
    np.testing.assert_allclose(_sinusoidal(config), ours.numpy(), atol=1e-7)


@pytest.mark.parametrize("changes", [{"activation": "relu2"}, {"qk_norm": "all"}])
def test_what_it_cannot_express_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = random_model(**changes)
    assert obstacle(model.config) is not None
    with pytest.raises(InputError, match="torch engine"):
        exported(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_int8_translates_as_well_as_fp32(tmp_path: Path) -> None:
    """On a trained model: as many right within 1%, and nearly all outputs equal."""
    torch.manual_seed(0)
    model = toy.small_model()
    toy.train(model, toy.TASKS["reverse"], steps=600)
    model.requires_grad_(False)
    special = SpecialIds(toy.PAD, toy.START, toy.END)
    rows = toy.examples(600, torch.Generator().manual_seed(99))
    options = DecodingOptions(beam_size=2)
    outputs = {}
    for kind in (None, "int8"):
        engine = exported(model, tmp_path / f"{kind}", quantization=kind, special=special)
        outputs[kind] = [list(r.best.tokens) for r in engine.translate_ids(rows, options)]
    reference = [
        None if r.near_tie else list(r.best.tokens)
        for r in TorchEngine(model, special).translate_ids(rows, options)
    ]
    right = {
        kind: np.mean([out == row[::-1] for out, row in zip(found, rows, strict=True)])
        for kind, found in outputs.items()
    }
    equal = np.mean([a == b for a, b in zip(outputs[None], outputs["int8"], strict=True)])
    print(f"right: {right}, int8 equals fp32: {equal:.3f}")
    assert all(b is None or a == b for a, b in zip(outputs[None], reference, strict=True))
    assert reference.count(None) < 6
    assert right[None] > 0.9
    assert right["int8"] >= right[None] - 0.01
    assert equal >= 0.97
