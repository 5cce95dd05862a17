"""The three kinds of masks, apart and together."""

import torch

from pellucid.model import ModelConfig, TensorTrace, Transformer
from pellucid.model.masks import causal_mask, combine, padding_mask, target_padding_mask

X, O = True, False  # noqa: E741


def test_causal() -> None:
    expected = [[X, O, O], [X, X, O], [X, X, X]]
    assert causal_mask(3)[0, 0].tolist() == expected
    assert causal_mask(2, past=2)[0, 0].tolist() == [[X, X, X, O], [X, X, X, X]]
    assert causal_mask(1, past=4).all()


def test_padding() -> None:
    ids = torch.tensor([[5, 6, 0], [7, 0, 0]])
    assert padding_mask(ids, 0)[:, 0, 0].tolist() == [[X, X, O], [X, O, O]]


def test_the_start_symbol_is_never_padding() -> None:
    ids = torch.tensor([[0, 6, 0]])  # Marian starts with the pad id
    assert target_padding_mask(ids, 0)[:, 0, 0].tolist() == [[X, X, O]]
    assert ids.tolist() == [[0, 6, 0]]


def test_any_combination() -> None:
    ids = torch.tensor([[5, 0, 7]])
    assert combine() is None
    assert combine(None, None) is None
    causal = causal_mask(3)
    assert combine(None, causal) is causal
    both = combine(causal, padding_mask(ids, 0))
    assert both is not None
    assert both[0, 0].tolist() == [[X, O, O], [X, O, O], [X, O, X]]


def test_the_decoder_can_be_kept_from_source_tokens() -> None:
    """An encoder-decoder mask: what it hides changes nothing, what it shows does."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig.preset("tiny", vocab_size=30, encoder_layers=0)).eval()
    source, target = torch.randint(1, 30, (2, 5)), torch.randint(1, 30, (2, 4))
    hide_third = torch.ones(1, 1, 1, 5, dtype=torch.bool)
    hide_third[..., 2] = False
    changed = source.clone()
    changed[:, 2] = (changed[:, 2] + 1).clamp(max=29)
    with torch.no_grad():
        trace = TensorTrace()
        masked = model(source, target, cross_mask=hide_third, trace=trace)
        assert (trace["decoder.0.cross.weights"][..., 2] == 0).all()
        assert torch.equal(
            masked, model(changed, target, cross_mask=hide_third, trace=TensorTrace())
        )
        assert not torch.equal(model(source, target), model(changed, target))


def test_a_sentence_of_nothing_but_padding_gives_no_nan() -> None:
    torch.manual_seed(0)
    model = Transformer(ModelConfig.preset("tiny", vocab_size=30))
    source, target = torch.zeros(2, 3, dtype=torch.long), torch.randint(1, 30, (2, 4))
    source[1] = 4
    logits = model(source, target)
    assert logits.isfinite().all()
    logits.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
