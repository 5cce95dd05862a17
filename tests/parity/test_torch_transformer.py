"""The same weights give the same output and the same gradients as torch.nn.Transformer."""

import pytest
import torch
from torch import nn

from pellucid.model import ModelConfig, Transformer

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")

SHAPES = [  # width, inner, heads, encoder and decoder layers
    (16, 32, 2, 1, 1),
    (48, 64, 3, 2, 3),
    (128, 256, 4, 4, 4),
]


def copy_layer(ours: nn.Module, theirs: nn.Module, placement: str) -> None:
    """One layer's weights; the norms have the same order in both, whatever their place."""
    attentions = [(ours.attention, theirs.self_attn)]
    norms = [(ours.attention_add_norm, theirs.norm1)]
    if isinstance(theirs, nn.TransformerDecoderLayer):
        attentions.append((ours.cross, theirs.multihead_attn))
        norms.append((ours.cross_add_norm, theirs.norm2))
        norms.append((ours.feed_forward_add_norm, theirs.norm3))
    else:
        norms.append((ours.feed_forward_add_norm, theirs.norm2))
    for mine, other in attentions:
        mine.in_weight.data.copy_(other.in_proj_weight)
        mine.in_bias.data.copy_(other.in_proj_bias)
        mine.out.load_state_dict(other.out_proj.state_dict())
    for mine, other in norms:
        norm = mine.norm_after if placement == "post" else mine.norm_before
        norm.load_state_dict(other.state_dict())
    ours.feed_forward.inner.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.outer.load_state_dict(theirs.linear2.state_dict())


def twins(shape: tuple, placement: str, activation: str) -> tuple[Transformer, nn.Transformer]:
    """Our model and torch's with the same random weights."""
    width, inner, heads, encoder, decoder = shape
    theirs = nn.Transformer(
        width,
        heads,
        encoder,
        decoder,
        inner,
        dropout=0.0,
        activation=activation,
        batch_first=True,
        norm_first=placement == "pre",
    )
    for parameter in theirs.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.3, std=0.3)
    if placement == "post":  # the paper has no norm after the last layer's own
        theirs.encoder.norm = theirs.decoder.norm = None
    ours = Transformer(
        ModelConfig(
            vocab_size=50,
            d_model=width,
            d_ff=inner,
            num_heads=heads,
            encoder_layers=encoder,
            decoder_layers=decoder,
            norm=placement,
            activation=activation,
            dropout=0.0,
        )
    )
    copy_weights(ours, theirs, placement)
    return ours, theirs


def copy_weights(ours: Transformer, theirs: nn.Transformer, placement: str) -> None:
    """The weights of both stacks."""
    for mine, other in [
        *zip(ours.encoder.layers, theirs.encoder.layers, strict=True),
        *zip(ours.decoder.layers, theirs.decoder.layers, strict=True),
    ]:
        copy_layer(mine, other, placement)
    if placement == "pre":
        ours.encoder.norm.load_state_dict(theirs.encoder.norm.state_dict())
        ours.decoder.norm.load_state_dict(theirs.decoder.norm.state_dict())


def padded_batch() -> tuple[torch.Tensor, torch.Tensor]:
    source, target = torch.randint(1, 50, (4, 9)), torch.randint(1, 50, (4, 7))
    source[0, 5:] = source[3, 1:] = 0
    target[1, 4:] = target[2, 2:] = 0
    return source, target


def their_logits(
    ours: Transformer, theirs: nn.Transformer, source: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    """torch.nn.Transformer has no embeddings; it gets ours at the bottom and at the top."""
    hidden = nn.Transformer.generate_square_subsequent_mask(target.shape[1]) < 0
    states = theirs(
        ours.source_embedding(source),
        ours.target_embedding(target),
        tgt_mask=hidden,
        src_key_padding_mask=source == 0,
        tgt_key_padding_mask=target == 0,
        memory_key_padding_mask=source == 0,
    )
    return ours.output(states)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("shape", SHAPES)
def test_forward_and_gradients(shape: tuple, placement: str, activation: str) -> None:
    torch.manual_seed(3)
    ours, theirs = twins(shape, placement, activation)
    source, target = padded_batch()
    real = target != 0

    mine, other = ours(source, target)[real], their_logits(ours, theirs, source, target)[real]
    torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)

    loss_weights = torch.randn_like(mine)  # a random loss exercises every output
    (mine * loss_weights).mean().backward()
    gradients = {name: p.grad.clone() for name, p in ours.named_parameters()}
    ours.zero_grad()
    (other * loss_weights).mean().backward()

    # Put torch's gradients where its weights are, and copy them as weights were copied: each then
    # stands at the parameter of ours that it belongs to.
    expected = Transformer(ours.config)
    for parameter in theirs.parameters():
        parameter.data = parameter.grad
    copy_weights(expected, theirs, placement)
    embedding = "source_embedding.tokens.weight"
    expected.get_parameter(embedding).data = ours.get_parameter(embedding).grad
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(
            gradients[name], parameter.data, atol=1e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_inference_paths_agree() -> None:
    """torch takes its fused path in eval mode; it must agree with ours too."""
    torch.manual_seed(4)
    ours, theirs = twins(SHAPES[1], "post", "relu")
    ours.eval(), theirs.eval()
    source, target = padded_batch()
    real = target != 0
    with torch.no_grad():
        other = their_logits(ours, theirs, source, target)
        torch.testing.assert_close(ours(source, target)[real], other[real], atol=1e-5, rtol=1e-5)
