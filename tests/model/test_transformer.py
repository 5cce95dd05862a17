"""Sizes, tying, norms, first weights, dropout, and the halves as models of their own."""

import pytest
import torch

from pellucid.model import DecoderOnly, EncoderOnly, ModelConfig, Transformer
from pellucid.model.dropout import dropout


def count_by_hand(D: int, F: int, L: int, V: int) -> int:
    """The paper's model: shared embeddings, biases, two numbers a norm and dimension."""
    attention = 4 * (D * D + D)
    feed_forward = D * F + F + F * D + D
    norm = 2 * D
    encoder = L * (attention + feed_forward + 2 * norm)
    decoder = L * (2 * attention + feed_forward + 3 * norm)
    return V * D + encoder + decoder


@pytest.mark.parametrize(
    ("preset", "by_hand", "exact"),
    [
        ("base", count_by_hand(512, 2048, 6, 37_000), 63_082_496),
        ("big", count_by_hand(1024, 4096, 6, 37_000), 214_245_376),
    ],
)
def test_the_sizes_of_the_paper(preset: str, by_hand: int, exact: int) -> None:
    with torch.device("meta"):
        model = Transformer(ModelConfig.preset(preset, vocab_size=37_000))
    assert model.num_parameters() == by_hand == exact


def test_tying() -> None:
    def parameters(**changes: object) -> int:
        return Transformer(ModelConfig.preset("tiny", vocab_size=100, **changes)).num_parameters()

    matrix = 100 * 128
    assert parameters(tie_embeddings="decoder") == parameters(tie_embeddings="all") + matrix
    assert parameters(tie_embeddings="none") == parameters(tie_embeddings="all") + 2 * matrix
    assert (
        parameters(tie_embeddings="all", output_bias=True) == parameters(tie_embeddings="all") + 100
    )
    other = Transformer(
        ModelConfig.preset("tiny", vocab_size=100, source_vocab_size=70, tie_embeddings="decoder")
    )
    assert other(torch.tensor([[69]]), torch.tensor([[99]])).shape == (1, 1, 100)


def test_the_final_norm_stands_where_it_belongs() -> None:
    for norm in ("post", "pre", "sandwich"):
        model = Transformer(ModelConfig.preset("tiny", vocab_size=9, norm=norm))
        assert (model.encoder.norm is None) == (norm == "post")
        assert (model.decoder.norm is None) == (norm == "post")


def test_stacks_of_different_depth() -> None:
    model = Transformer(
        ModelConfig.preset("tiny", vocab_size=9, encoder_layers=5, decoder_layers=1)
    )
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (5, 1)
    assert model(torch.ones(2, 3).long(), torch.ones(2, 4).long()).shape == (2, 4, 9)


@pytest.mark.parametrize("norm", ["post", "pre", "sandwich"])
def test_first_weights_are_calm(norm: str) -> None:
    """At the start, the guess is not wild and no gradient vanishes or explodes, 6+6 deep.

    Untied, so that the input token's own embedding in the stream does not look like a guess.
    """
    torch.manual_seed(0)
    config = ModelConfig.preset(
        "base",
        vocab_size=500,
        d_model=128,
        d_ff=512,
        norm=norm,
        tie_embeddings="none",
        dropout=0.0,
    )
    model = Transformer(config)
    source, target = torch.randint(1, 500, (8, 12)), torch.randint(1, 500, (8, 12))
    logits = model(source, target[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
    assert abs(loss.item() - torch.tensor(500.0).log().item()) < 1.0
    loss.backward()
    norms = [layer.feed_forward.inner.weight.grad.norm() for layer in model.decoder.layers]
    assert max(norms) < 30 * min(norms)


def test_a_feed_forward_as_wide_as_the_vocabulary_is_initialised() -> None:
    torch.manual_seed(0)
    model = Transformer(ModelConfig.preset("tiny", vocab_size=256))
    limit = (6 / (128 + 256)) ** 0.5  # Xavier
    weight = model.encoder.layers[0].feed_forward.inner.weight
    assert 0.95 * limit < weight.abs().max() <= limit
    assert model.output.weight.std().item() == pytest.approx(128**-0.5, rel=0.05)


def test_dropout_keeps_the_mean_and_follows_the_seed() -> None:
    x = torch.ones(400, 501)  # not a multiple of four numbers
    torch.manual_seed(1)
    dropped = dropout(x, 0.3)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)
    assert dropped.unique().tolist() == [0.0, pytest.approx(1 / 0.7, rel=1e-4)]
    torch.manual_seed(1)
    assert torch.equal(dropped, dropout(x, 0.3))
    assert not torch.equal(dropped, dropout(x, 0.3))
    assert dropout(x, 0.0) is x
    # neighbours come from one random word; they must be independent all the same
    zero = (dropped == 0).float()
    together = (zero[:, 1:] * zero[:, :-1]).mean().item()
    assert together == pytest.approx(0.09, abs=0.01)


def test_dropout_has_its_gradient() -> None:
    x = torch.randn(50, 50, requires_grad=True)
    dropped = dropout(x, 0.5)
    dropped.sum().backward()
    assert torch.equal(x.grad != 0, dropped != 0)


def test_dropout_works_in_training_only() -> None:
    torch.manual_seed(0)
    config = ModelConfig.preset("tiny", vocab_size=30, attention_dropout=0.2, dropout=0.2)
    model = Transformer(config)
    source, target = torch.randint(1, 30, (2, 5)), torch.randint(1, 30, (2, 5))
    assert not torch.equal(model(source, target), model(source, target))
    model.eval()
    assert torch.equal(model(source, target), model(source, target))


def test_an_encoder_alone_sees_both_ways_and_a_decoder_alone_does_not() -> None:
    torch.manual_seed(0)
    config = ModelConfig.preset("tiny", vocab_size=30)
    encoder, decoder = EncoderOnly(config).eval(), DecoderOnly(config).eval()
    ids = torch.randint(1, 30, (1, 6))
    changed = ids.clone()
    changed[0, -1] = (ids[0, -1] % 29) + 1
    with torch.no_grad():
        assert encoder(ids).shape == (1, 6, 128)
        assert not torch.equal(encoder(ids)[:, 0], encoder(changed)[:, 0])
        assert decoder(ids).shape == (1, 6, 30)
        assert torch.equal(decoder(ids)[:, :5], decoder(changed)[:, :5])
    # a decoder alone has no cross-attention to pay for
    cross = 4 * (4 * (128 * 128 + 128) + 2 * 128)
    both = Transformer(config.changed(encoder_layers=0)).num_parameters()
    assert decoder.num_parameters() == both - cross


def test_the_cache_grows_by_a_row_and_shares_the_source() -> None:
    torch.manual_seed(0)
    model = Transformer(ModelConfig.preset("tiny", vocab_size=30)).eval()
    source = torch.randint(1, 30, (2, 7))
    with torch.no_grad():
        cache = model.start(model.encode(source))
        assert (cache.length, cache.own_bytes) == (0, 0)
        sources = cache.cross_bytes
        assert sources == 4 * 2 * (2 * 7 * 128) * 4  # layers, keys and values, numbers, bytes
        row = 4 * 2 * (2 * 128) * 4
        _, one = model.decode(torch.ones(2, 1).long(), cache)
        _, two = model.decode(torch.ones(2, 1).long(), one)
    assert (one.own_bytes, two.own_bytes, two.length) == (row, 2 * row, 2)
    assert cache.length == 0, "a cache that was passed in stays as it was"
    beams = two.reorder(torch.tensor([0, 0, 0, 1, 1, 1]))
    assert beams.own_bytes == 3 * two.own_bytes
    assert beams.cross_bytes == sources
    assert beams.layers[0].cross is cache.layers[0].cross, "shared, not copied"


def test_two_ways_on_from_one_cache() -> None:
    """Going on from a cache leaves it valid for another way on."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig.preset("tiny", vocab_size=30)).eval()
    with torch.no_grad():
        _, start = model.decode(
            torch.tensor([[3, 4]]), model.start(model.encode(torch.ones(1, 3).long()))
        )
        first, _ = model.decode(torch.tensor([[5]]), start)
        model.decode(torch.tensor([[6]]), start)
        again, _ = model.decode(torch.tensor([[5]]), start)
    assert torch.equal(first, again)
