"""Looking inside: a trace is what the model computed, whatever its shape and however searched."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from pellucid.decoding import DecodingOptions
from pellucid.decoding.engine import special_ids
from pellucid.decoding.steps import Fate, Result
from pellucid.decoding.torch.engine import run
from pellucid.errors import InputError
from pellucid.inspection.trace import Trace
from pellucid.inspection.tracing import AblatedHead, look_inside, without_heads
from pellucid.model import TensorTrace, Transformer
from pellucid.model.positions import RotaryPositions
from tests.bundles import random_model
from tests.made_up import tokenizer

TEXT = "The tall baker has forgotten an umbrella near the lighthouse!"
WORDS = tokenizer()
SPECIAL = special_ids(WORDS)
SHAPES: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "modern": {
        "norm": "pre",
        "norm_type": "rms",
        "position_encoding": "rotary",
        "activation": "swiglu",
        "num_kv_heads": 2,
        "qk_norm": "self",
        "attention_bias": False,
    },
    "halves": {
        "norm": "pre",
        "position_layout": "halves",
        "tie_embeddings": "none",
        "encoder_layers": 3,
    },
    "sandwich": {"norm": "sandwich", "position_encoding": "none", "embedding_norm": True},
    "learned": {"position_encoding": "learned", "activation": "gelu", "scale_embedding": False},
}
shapes = pytest.mark.parametrize("shape", SHAPES)


@cache
def model(shape: str = "the paper's") -> Transformer:
    return random_model(WORDS.vocab_size, **SHAPES[shape])


@cache
def looked(shape: str = "the paper's", **options: Any) -> Trace:
    return look(shape, **options)


def look(shape: str = "the paper's", *, text: str = TEXT, **more: Any) -> Trace:
    changes = {name: more.pop(name) for name in ("prefix", "without", "off") if name in more}
    options = DecodingOptions(**{"max_length": 9, **more})
    return look_inside(model(shape), WORDS, SPECIAL, text, "en-fr", options, **changes)


def answered(shape: str, ids: list[int], prefix: tuple[int, ...] = (), **options: Any) -> Result:
    settings = DecodingOptions(**{"max_length": 9, **options})
    return run(model(shape), SPECIAL, [ids], settings, [list(prefix)] if prefix else None)[0]


def encoded(text: str = TEXT) -> list[int]:
    return WORDS.encode(text, target_language="fr")


# What is recorded.


@shapes
def test_tensors_are_the_models_own(shape: str) -> None:
    trace = looked(shape)
    recorded = TensorTrace()
    source = torch.tensor([[token.id for token in trace.tokens.source]])
    target = torch.tensor([[token.id for token in trace.tokens.target]])
    with torch.inference_mode():
        logits = model(shape)(source, target, trace=recorded)
    assert [name for name in trace if name in recorded] == list(recorded)
    for name in recorded:
        whole = recorded[name].numpy()
        expected = whole if name.endswith(".positions") else whole[0]
        np.testing.assert_array_equal(trace[name], expected, err_msg=name)
    np.testing.assert_array_equal(trace["logits"], logits[0].numpy())


@shapes
def test_the_heads_and_the_bias_add_up_to_the_output(shape: str) -> None:
    trace = looked(shape)
    for name in trace.names("*.head_outputs"):
        part = name.removesuffix(".head_outputs")
        bias = trace.get(f"{part}.output_bias", 0.0)
        summed = trace[name].sum(axis=0) + bias
        np.testing.assert_allclose(summed, trace[f"{part}.output"], atol=1e-5, err_msg=part)
    assert bool(trace.names("*.output_bias")) == model(shape).config.attention_bias


@shapes
def test_growth_tells_what_each_sublayer_adds(shape: str) -> None:
    trace = looked(shape)
    for stack, inside in (
        ("encoder", ("self", "feed_forward")),
        ("decoder", ("self", "cross", "feed_forward")),
    ):
        growth = trace[f"{stack}.growth"]
        layers = trace.model[f"{stack}_layers"]
        parts = [f"{stack}.{n}.{part}" for n in range(layers) for part in inside]
        assert growth.shape == (len(parts), len(trace[f"{stack}.0.state"]), 4)
        for row, part in zip(growth, parts, strict=True):
            before, added = trace[f"{part}.residual_before"], trace[f"{part}.residual_added"]
            np.testing.assert_allclose(row[:, 0], np.sqrt((before**2).sum(-1)), rtol=1e-4)
            np.testing.assert_allclose(row[:, 1], np.sqrt((added**2).sum(-1)), rtol=1e-4)
            apart = np.sqrt(((before - added) ** 2).sum(-1))  # the law of cosines
            cosine = (row[:, 0] ** 2 + row[:, 1] ** 2 - apart**2) / (2 * row[:, 0] * row[:, 1])
            np.testing.assert_allclose(row[:, 3], cosine, atol=1e-3)


def test_rotary_angles_are_those_that_turn_the_queries() -> None:
    config = model("modern").config
    angles = looked("modern")["rotary.angles"]
    rotary = RotaryPositions(config.head_dim, base=config.rope_theta, layout="interleaved")
    pairs = torch.zeros(1, 1, len(angles), config.head_dim)
    pairs[..., 0::2] = 1.0  # each pair is (1, 0), so turned it is (cos, sin)
    turned = rotary(pairs)[0, 0].numpy()
    np.testing.assert_allclose(turned[:, 0::2], np.cos(angles), atol=1e-6)
    np.testing.assert_allclose(turned[:, 1::2], np.sin(angles), atol=1e-6)
    assert "rotary.angles" not in looked()


def test_names_are_searched_and_a_wrong_one_is_told() -> None:
    trace = looked()
    assert trace.names("*.cross.weights") == [f"decoder.{n}.cross.weights" for n in range(2)]
    assert len(trace) == len(list(trace)) == len(trace.names())
    assert trace.bytes == sum(trace[name].nbytes for name in trace)
    with pytest.raises(KeyError, match=r"e\.g\..*weights"):
        trace["decoder.7.weights"]


# What attention() gives.


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_attention_is_the_weights(kind: Any) -> None:
    trace = looked("halves")
    place = "decoder.{}.cross" if kind == "cross" else kind + ".{}.self"
    depth = 3 if kind == "encoder" else 2
    layers = [trace[place.format(n) + ".weights"] for n in range(depth)]
    for layer in (*range(depth), -1):
        for head in (0, 3, -2):
            np.testing.assert_array_equal(
                trace.attention(kind, layer, head), layers[layer][head].astype(np.float32)
            )
        np.testing.assert_allclose(
            trace.attention(kind, layer), layers[layer].mean(0), rtol=1e-6, atol=1e-7
        )
    whole = trace.attention(kind, "mean")
    np.testing.assert_allclose(whole, np.mean(layers, axis=(0, 1)), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(whole.sum(-1), 1.0, rtol=1e-5)


def test_attention_refuses_what_is_not_there() -> None:
    trace = looked()
    for call in (("sideways",), ("cross", 2), ("cross", -3), ("cross", 0, 4)):
        with pytest.raises(InputError):
            trace.attention(*call)


# The search.


@shapes
@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 1},
        {"beam_size": 2},
        {"beam_size": 4},
        {"sample": True, "seed": 3, "temperature": 1.5},
    ],
    ids=["greedy", "beam 2", "beam 4", "sampling"],
)
@pytest.mark.parametrize("prefix", [(), tuple(WORDS.encode("Le phare")[:2])], ids=["", "prefix"])
def test_the_answer_is_the_engines(
    shape: str, options: dict[str, Any], prefix: tuple[int, ...]
) -> None:
    trace = look(shape, prefix=prefix, **options)
    best = answered(shape, encoded(), prefix, **options).best
    first = trace.hypotheses[0]
    assert first.tokens == best.tokens
    assert first.tokens[: len(prefix)] == prefix
    assert first.score == pytest.approx(best.score, abs=1e-5)
    assert trace.text == first.text == WORDS.decode(best.tokens)
    assert [t.id for t in trace.tokens.target] == [SPECIAL.start, *best.tokens]
    assert [t.id for t in trace.tokens.answers[:-1]] == list(best.tokens)
    if best.ended == "eos":
        assert trace.tokens.answers[-1].id == SPECIAL.end
    else:  # it was cut: what it would have said next
        assert trace.tokens.answers[-1].id == trace["logits"][-1].argmax()
    for one in trace.beam:
        assert {c.token for c in one.candidates} <= trace.pieces.keys()


def test_scores_of_the_search_are_the_logits_of_the_trace() -> None:
    trace = looked(beam_size=1)
    logs = torch.from_numpy(trace["logits"]).log_softmax(-1)
    for place, one in enumerate(trace.beam):
        kept = next(c for c in one.candidates if c.fate is not Fate.PRUNED)
        assert kept.log_probability == pytest.approx(logs[place, kept.token].item(), abs=1e-4)
    for place, row in enumerate(torch.from_numpy(trace["logits"]).topk(20).indices.tolist()):
        assert set(row) <= trace.pieces.keys(), place


@shapes
def test_the_cache_has_the_size_of_its_keys_and_values(shape: str) -> None:
    trace, config = looked(shape, beam_size=4), model(shape).config
    row = 2 * 4 * (config.num_kv_heads or config.num_heads) * config.head_dim
    row *= config.decoder_layers
    source = len(trace.tokens.source)
    assert len(trace.cache) == len(trace.beam)
    for place, (now, step) in enumerate(zip(trace.cache, trace.beam, strict=True)):
        assert now.length == step.length == place + 1
        assert now.own_bytes == row * now.rows * now.length
        assert now.cross_bytes == row * source
        assert len(now.parents) == now.rows
        assert now.products <= now.products_without
    kept = [[c.parent for c in one.candidates if c.fate is Fate.KEPT] for one in trace.beam]
    assert [list(now.parents) for now in trace.cache[1:]] == kept[: len(trace.cache) - 1]
    each = [now.products_without / now.rows for now in trace.cache]
    assert each == sorted(set(each))
    assert [now.products / now.rows for now in trace.cache] == sorted(
        now.products / now.rows for now in trace.cache
    )


def test_a_prefix_is_read_into_the_cache_at_once() -> None:
    prefix = tuple(WORDS.encode("Le phare"))
    trace = look(prefix=prefix, beam_size=2)
    assert trace.cache[0].length == trace.beam[0].length == len(prefix) + 1
    assert trace.cache[0].rows == 1


@shapes
def test_the_lens_after_the_last_layer_is_the_output(shape: str) -> None:
    trace = looked(shape)
    best = torch.from_numpy(trace["logits"]).softmax(-1).topk(5)
    assert len(trace.lens) == trace.model["decoder_layers"]
    for place, guesses in enumerate(trace.lens[-1]):
        assert [guess.token.id for guess in guesses] == best.indices[place].tolist()
        assert [g.probability for g in guesses] == pytest.approx(best.values[place].tolist())
        assert all(g.token.piece == WORDS.piece(g.token.id) for g in guesses)


# What if.


@pytest.mark.parametrize("shape", ["the paper's", "modern"])
@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_a_head_that_is_off_adds_nothing(shape: str, kind: str) -> None:
    whole, ids, written = model(shape), encoded(), [SPECIAL.start, 40, 41, 42]
    call = (torch.tensor([ids]), torch.tensor([written]))
    before = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    K, head = whole.config.head_dim, 2

    def silence(_: Any, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        joined = inputs[0].clone()
        joined[..., head * K : (head + 1) * K] = 0
        return (joined,)

    layer: Any = (whole.encoder if kind == "encoder" else whole.decoder).layers[1]
    attention = layer.cross if kind == "cross" else layer.attention
    with torch.inference_mode():
        off = without_heads(whole, [AblatedHead(kind, 1, head)])(*call)
        hook = attention.out.register_forward_pre_hook(silence)
        expected = whole(*call)
        hook.remove()
        unchanged = whole(*call)
    torch.testing.assert_close(off, expected)
    assert not torch.allclose(off, unchanged, atol=1e-4)
    assert all(torch.equal(before[name], tensor) for name, tensor in whole.state_dict().items())


def test_a_head_that_is_off_is_told_and_shown() -> None:
    trace = look(off=[AblatedHead("cross", 0, 3)])
    assert trace.changed == ("cross attention, layer 1, head 4 switched off",)
    assert not trace["decoder.0.cross.head_outputs"][3].any()
    assert trace["decoder.0.cross.head_outputs"][2].any()
    for switch in (
        AblatedHead("cross", 2, 0),
        AblatedHead("cross", 0, 4),
        AblatedHead("sideways", 0, 0),
    ):
        with pytest.raises(InputError):
            look(off=[switch])


def test_source_tokens_can_be_taken_out() -> None:
    ids = encoded()
    trace = look(without=[2, 5, 2])
    left = [token for place, token in enumerate(ids) if place not in (2, 5)]
    assert [t.id for t in trace.tokens.source] == left
    assert trace.hypotheses[0].tokens == answered("the paper's", left).best.tokens
    assert len(trace.changed) == 2
    for place in (-1, 0, len(ids) - 1, len(ids)):  # the tag and the end stay
        with pytest.raises(InputError, match="cannot be taken out"):
            look(without=[place])


@shapes
def test_an_output_of_nothing(shape: str) -> None:
    trace = look(shape, max_length=1, suppress_tokens=range(SPECIAL.end + 1, WORDS.vocab_size))
    assert trace.text == ""
    assert len(trace.tokens.target) == len(trace.tokens.answers) == 1
    assert trace["decoder.0.cross.weights"].shape[1] == 1
    for name in trace.names("target.positions"):
        assert trace[name].shape == (1, model(shape).config.d_model)


@pytest.mark.parametrize("text", ["", " \n"])
def test_no_sentence_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="write a sentence"):
        look(text=text)


def test_a_prefix_that_fills_the_output() -> None:
    prefix = tuple(encoded()[1:4])
    trace = look(prefix=prefix, max_length=3)
    assert trace.hypotheses[0].tokens == prefix
    assert len(trace.tokens.target) == 4
    assert len(trace.cache) == len(trace.beam)


def test_a_sentence_that_is_too_long_is_refused() -> None:
    with pytest.raises(InputError, match="at most 256"):
        look(text="a lighthouse and " * 200)


# Saved and loaded.


@pytest.mark.parametrize(
    "options", [{"beam_size": 4}, {"sample": True}, {"max_length": 1}], ids=str
)
def test_saved_and_loaded_it_is_the_same(tmp_path: Path, options: dict[str, Any]) -> None:
    trace = look("modern", off=[AblatedHead("encoder", 1, 1)], **options)
    trace.save(tmp_path / "one.trace")
    again = Trace.load(tmp_path / "one.trace")
    for entry in fields(Trace):
        if entry.name != "tensors":
            assert getattr(again, entry.name) == getattr(trace, entry.name), entry.name
    assert list(again) == list(trace)
    for name in trace:
        assert again[name].dtype == trace[name].dtype
        np.testing.assert_array_equal(again[name], trace[name])


def test_as_json_it_has_everything_but_the_large_tensors() -> None:
    trace = looked()
    plain = json.loads(json.dumps(trace.as_dict()))
    assert plain["tensors"] == {}
    assert plain["shapes"] == {name: list(trace[name].shape) for name in trace}
    chosen = trace.as_dict(["*.cross.weights"])["tensors"]
    assert list(chosen) == trace.names("*.cross.weights")
    np.testing.assert_allclose(chosen["decoder.1.cross.weights"], trace["decoder.1.cross.weights"])


def test_a_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    looked().save(whole)
    data = whole.read_bytes()
    for size in [0, 1, 7, 8, 9, 200, len(data) // 2, len(data) - 1]:
        cut.write_bytes(data[:size])
        with pytest.raises(InputError, match="not a trace"):
            Trace.load(cut)
    with pytest.raises(InputError, match="no trace at"):
        Trace.load(tmp_path / "missing")


def _about() -> dict[str, Any]:
    plain = looked().as_dict()
    shapes_of = plain.pop("shapes")
    del plain["tensors"]
    return json.loads(json.dumps({"format": 2, "order": list(shapes_of)[:1], **plain}))


HOSTILE: list[Any] = [
    [],
    "text",
    {"format": 2},
    {**_about(), "format": 3},
    {**_about(), "order": ["not there"]},
    {**_about(), "order": 5},
    {**_about(), "more": 1},
    *({**_about(), name: None} for name in ("source", "tokens", "beam", "pieces", "model")),
    {**_about(), "tokens": [[], []]},
    {**_about(), "tokens": [[["five", "x"]], [], []]},
    {**_about(), "beam": [{"length": 1, "candidates": [[0, 1, 2, 3]]}]},
    {**_about(), "beam": [{"length": 1, "candidates": [[0, 1, 2, 3, 4, 77]]}]},
    {**_about(), "pieces": {"x": "y"}},
    {**_about(), "lens": [[[["a", 1.0]]]]},
]


@pytest.mark.parametrize("about", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_file_is_refused(tmp_path: Path, about: Any) -> None:
    path = tmp_path / "hostile"
    name = next(iter(looked()))
    save_file({name: looked()[name]}, path, metadata={"pellucid trace": json.dumps(about)})
    with pytest.raises(InputError):
        Trace.load(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    save_file({"x": np.zeros(2)}, path)
    with pytest.raises(InputError, match="not a trace"):
        Trace.load(path)
    deep = "[" * 100_000
    save_file({"x": np.zeros(2)}, path, metadata={"pellucid trace": deep})
    with pytest.raises(InputError, match="not a trace"):
        Trace.load(path)
