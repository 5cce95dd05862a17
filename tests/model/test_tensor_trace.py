"""The record of what the model computed: names, laziness, and its bound."""

import pytest
import torch

from pellucid.model import ModelConfig, TensorTrace, Transformer
from pellucid.model.tensor_trace import TraceFullError


def traced(**options: object) -> TensorTrace:
    torch.manual_seed(0)
    model = Transformer(ModelConfig.preset("tiny", vocab_size=30)).eval()
    trace = TensorTrace(**options)
    model(torch.randint(1, 30, (1, 6)), torch.randint(1, 30, (1, 5)), trace=trace)
    return trace


def test_every_part_has_a_name() -> None:
    trace = traced()
    steps = ["q", "k", "v", "scores", "scaled", "mask", "weights", "mixed"]
    joined = ["joined", "head_outputs", "output"]
    stream = ["residual_before", "residual_added", "residual_after"]
    stream += ["norm_after.mean", "norm_after.variance"]
    for layer in range(4):
        for part in ("encoder.{}.self", "decoder.{}.self", "decoder.{}.cross"):
            for name in [*steps, *joined, *stream]:
                assert f"{part.format(layer)}.{name}" in trace
        for stack in ("encoder", "decoder"):
            assert f"{stack}.{layer}.state" in trace
            for name in ["inner", "active", "output", *stream]:
                assert f"{stack}.{layer}.feed_forward.{name}" in trace
    for side in ("source", "target"):
        for name in ("ids", "tokens", "scaled", "positions", "sum"):
            assert f"{side}.{name}" in trace
    assert trace["decoder.2.cross.weights"].shape == (1, 4, 5, 6)
    assert trace["decoder.2.cross.head_outputs"].shape == (1, 4, 5, 128)
    assert trace["logits"].shape == (1, 5, 30)


def test_names_can_be_searched_and_entered() -> None:
    trace = traced()
    assert trace.names("*.cross.weights") == [f"decoder.{i}.cross.weights" for i in range(4)]
    inner = trace.at("decoder.1")
    assert torch.equal(inner["cross.weights"], trace["decoder.1.cross.weights"])
    assert "cross.weights" in inner
    assert "missing" not in trace
    with pytest.raises(KeyError):
        trace["decoder.9.cross.weights"]


def test_tensors_are_kept_by_reference_and_counted_once() -> None:
    trace = TensorTrace()
    x = torch.zeros(10, 10)
    trace.record("whole", x)
    trace.record("part", x[2:4])
    assert trace.bytes == 400
    assert trace["whole"].data_ptr() == x.data_ptr()
    trace.record("later", lambda: x + 1)
    assert trace.bytes == 400
    assert trace["later"].sum() == 100


def test_the_bound_is_kept_with_advice() -> None:
    with pytest.raises(TraceFullError, match=r"is full at '.*shorten the sentence.*max_bytes"):
        traced(max_bytes=10_000)


def test_recording_less_fits() -> None:
    trace = traced(max_bytes=10_000, only=["decoder.*.cross.weights"])
    assert list(trace) == [f"decoder.{i}.cross.weights" for i in range(4)]
    assert trace.bytes == 4 * (4 * 5 * 6) * 4


def test_nothing_recorded_keeps_a_graph() -> None:
    trace = traced()
    assert not any(trace[name].requires_grad for name in trace)
