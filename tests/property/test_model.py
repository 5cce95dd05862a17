"""What must hold for every variant of the whole model."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pellucid.model import Cache, TensorTrace, Transformer
from tests.property.strategies import VOCAB, batches, models

SETTINGS = settings(max_examples=300 if settings().max_examples > 100 else 40)
Batch = tuple[Tensor, Tensor]


@SETTINGS
@given(models(), batches(), st.data())
def test_the_future_changes_nothing(model: Transformer, batch: Batch, data: st.DataObject) -> None:
    source, target = batch
    position = data.draw(st.integers(0, target.shape[1] - 1))
    changed = target.clone()
    changed[:, position:] = torch.randint(1, VOCAB, changed[:, position:].shape)
    before, after = model(source, target), model(source, changed)
    assert torch.equal(before[:, :position], after[:, :position])


@SETTINGS
@given(models(), batches(), st.integers(0, 4), st.integers(0, 4))
def test_padding_changes_nothing(
    model: Transformer, batch: Batch, more_source: int, more_target: int
) -> None:
    source, target = batch
    model = model.double()  # so that only rounding far below 1e-6 remains

    def padded(ids: Tensor, more: int) -> Tensor:
        return torch.cat([ids, torch.zeros(ids.shape[0], more, dtype=torch.long)], dim=1)

    plain = model(source, target)
    more = model(padded(source, more_source), padded(target, more_target))
    real = target != 0
    torch.testing.assert_close(plain[real], more[:, : target.shape[1]][real], atol=1e-9, rtol=0)

    # Each sentence alone, with no padding at all, gives what it gives in the batch.
    for row in range(source.shape[0]):
        own_source = source[row][source[row] != 0][None]
        own_target = target[row][target[row] != 0][None]
        alone = model(own_source, own_target)[0]
        torch.testing.assert_close(alone, plain[row][real[row]], atol=1e-9, rtol=0)


@SETTINGS
@given(models(), batches())
def test_padding_changes_nothing_in_single_precision(model: Transformer, batch: Batch) -> None:
    source, target = batch
    wider = torch.cat([source, torch.zeros(source.shape[0], 5, dtype=torch.long)], dim=1)
    real = target != 0
    plain, padded = model(source, target)[real], model(wider, target)[real]
    scale = max(1.0, plain.abs().max().item())
    torch.testing.assert_close(plain / scale, padded / scale, atol=2e-6, rtol=0)


@SETTINGS
@given(models(), batches(), st.data())
def test_cache_equals_full_pass(model: Transformer, batch: Batch, data: st.DataObject) -> None:
    """Decoding in pieces of any length, one token at a time included, is the full pass."""
    source, target = batch
    target = target.masked_fill(target == 0, 1)
    full = model(source, target)
    cache, pieces, done = model.start(model.encode(source)), [], 0
    while done < target.shape[1]:
        step = data.draw(st.integers(1, target.shape[1] - done))
        logits, cache = model.decode(target[:, done : done + step], cache)
        pieces.append(logits)
        done += step
        assert cache.length == done
    scale = max(1.0, full.abs().max().item())
    torch.testing.assert_close(torch.cat(pieces, 1) / scale, full / scale, atol=1e-5, rtol=0)


@SETTINGS
@given(models(), batches(longest=5), st.integers(1, 4), st.data())
def test_reordered_beams_equal_a_fresh_start(
    model: Transformer, batch: Batch, beams: int, data: st.DataObject
) -> None:
    """Grow random beams, shuffle them, let a sentence end: the cache follows."""
    source, _ = batch
    B = source.shape[0]
    cache = model.start(model.encode(source))
    tokens = torch.full((B, 1), 2)
    _, cache = model.decode(tokens, cache)
    rows = torch.arange(B).repeat_interleave(beams)  # one row spread over the beams
    tokens, cache = tokens[rows], cache.reorder(rows)
    for _ in range(2):
        new = torch.randint(1, VOCAB, (B * beams, 1))
        _, cache = model.decode(new, cache)
        tokens = torch.cat([tokens, new], dim=1)
        picks = data.draw(st.lists(st.integers(0, beams - 1), min_size=beams, max_size=beams))
        rows = torch.tensor([b * beams + p for b in range(B) for p in picks])
        tokens, cache = tokens[rows], cache.reorder(rows)
    kept = data.draw(st.lists(st.integers(0, B - 1), min_size=1, unique=True))
    sentences = torch.tensor(kept)
    rows = torch.tensor([b * beams + p for b in kept for p in range(beams)])
    tokens, cache = tokens[rows], cache.reorder(rows, sentences)

    new = torch.randint(1, VOCAB, (len(kept) * beams, 1))
    logits, _ = model.decode(new, cache)
    expected = model(
        source[sentences].repeat_interleave(beams, dim=0), torch.cat([tokens, new], dim=1)
    )
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(logits[:, 0] / scale, expected[:, -1] / scale, atol=1e-5, rtol=0)


def assert_explained(trace: TensorTrace, attention: torch.nn.Module, path: str) -> None:
    """Each recorded step of one attention follows from the step before it."""
    part = trace.at(path)
    q, k, v = part["q"], part["k"], part["v"]
    assert_same(part["scores"], q @ k.transpose(-2, -1))
    assert_same(part["scaled"], part["scores"] / math.sqrt(q.shape[-1]))
    scaled = part["scaled"]
    if "mask" in part:
        scaled = scaled.masked_fill(~part["mask"], float("-inf"))
    assert_same(part["weights"], scaled.softmax(-1).nan_to_num(0.0))
    assert_same(part["mixed"], part["weights"] @ v)
    assert_same(part["joined"], torch.cat(part["mixed"].unbind(dim=1), dim=-1))
    bias = 0 if attention.out.bias is None else attention.out.bias
    assert_same(part["output"], part["joined"] @ attention.out.weight.T + bias)
    assert_same(part["output"], part["head_outputs"].sum(dim=1) + bias)


def assert_same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


@SETTINGS
@given(models(), batches())
def test_the_trace_recomputes_to_the_output(model: Transformer, batch: Batch) -> None:
    source, target = batch
    model = model.double()
    trace = TensorTrace()
    traced = model(source, target, trace=trace)
    assert_same(model(source, target), traced)  # the readable path is the fast path

    for side, ids, embedding in [
        ("source", source, model.source_embedding),
        ("target", target, model.target_embedding),
    ]:
        assert_same(trace[f"{side}.tokens"], embedding.tokens.weight[ids])
        assert_same(trace[f"{side}.scaled"], trace[f"{side}.tokens"] * embedding.scale)
        places = trace.get(f"{side}.positions", 0)
        assert_same(trace[f"{side}.sum"], trace[f"{side}.scaled"] + places)

    for stack, layers in [("encoder", model.encoder.layers), ("decoder", model.decoder.layers)]:
        entered = trace["source.state" if stack == "encoder" else "target.state"]
        for number, layer in enumerate(layers):
            parts = ["self", "cross"] if stack == "decoder" else ["self"]
            for part in parts:
                attention = layer.attention if part == "self" else layer.cross
                assert_explained(trace, attention, f"{stack}.{number}.{part}")
            for part in [*parts, "feed_forward"]:
                here = trace.at(f"{stack}.{number}.{part}")
                assert_same(here["residual_before"], entered)
                summed = entered + here["residual_added"]
                if model.config.norm == "post":
                    assert_same(here["norm_after.input"], summed)
                    assert_same(here["norm_after.mean"], summed.mean(-1))
                    assert_same(here["norm_after.variance"], summed.var(-1, correction=0))
                    assert_same(here["norm_after.output"], here["residual_after"])
                else:
                    assert_same(here["residual_after"], summed)
                entered = here["residual_after"]
            feed = trace.at(f"{stack}.{number}.feed_forward")
            bias = 0 if layer.feed_forward.outer.bias is None else layer.feed_forward.outer.bias
            assert_same(feed["output"], feed["active"] @ layer.feed_forward.outer.weight.T + bias)
            assert_same(trace[f"{stack}.{number}.state"], entered)
    bias = 0 if model.output.bias is None else model.output.bias
    assert_same(trace["logits"], trace["decoder.output"] @ model.output.weight.T + bias)


@SETTINGS
@given(models(), batches())
def test_a_traced_step_equals_an_untraced_one(model: Transformer, batch: Batch) -> None:
    source, target = batch
    target = target.masked_fill(target == 0, 1)
    model = model.double()

    def steps(traced: bool) -> list[Tensor]:
        cache: Cache = model.start(model.encode(source, trace=TensorTrace() if traced else None))
        found = []
        for t in range(target.shape[1]):
            trace = TensorTrace() if traced else None
            logits, cache = model.decode(target[:, t : t + 1], cache, trace=trace)
            found.append(logits)
            if trace is not None:
                assert trace["decoder.0.self.weights"].shape[-1] == t + 1
                assert_same(trace["logits"], logits)
        return found

    for plain, looked_at in zip(steps(False), steps(True), strict=True):
        assert_same(plain, looked_at)
