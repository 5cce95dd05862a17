"""The same weights give the same logits as Hugging Face's Marian."""

import pytest
import torch

from tests.parity.marian import from_marian, random_marian

SHAPES = [
    {"vocab": 60, "width": 32, "inner": 48, "heads": 4, "layers": (2, 2)},
    {"vocab": 101, "width": 24, "inner": 96, "heads": 2, "layers": (1, 3)},
    {"vocab": 300, "width": 128, "inner": 256, "heads": 8, "layers": (3, 1)},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_logits(shape: dict) -> None:
    torch.manual_seed(1)
    peer = random_marian(**shape)
    ours = from_marian(peer)
    pad = peer.config.pad_token_id
    source = torch.randint(1, pad, (4, 11))
    source[1, 6:] = source[2, 1:] = pad
    target = torch.randint(1, pad, (4, 9))
    target[:, 0] = pad  # Marian starts with the pad token
    with torch.no_grad():
        theirs = peer(
            input_ids=source, attention_mask=(source != pad).long(), decoder_input_ids=target
        ).logits
        mine = ours(source, target)
    assert mine.shape == theirs.shape
    torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=0)


def test_the_comparison_can_fail() -> None:
    """A slightly different model is seen as different at this tolerance."""
    torch.manual_seed(2)
    peer = random_marian(**SHAPES[0])
    ours = from_marian(peer)
    ours.decoder.layers[0].cross.out.bias.data[0] += 0.01
    source, target = torch.randint(1, 59, (2, 5)), torch.randint(1, 59, (2, 5))
    with torch.no_grad():
        theirs = peer(input_ids=source, decoder_input_ids=target).logits
        assert (ours(source, target) - theirs).abs().max() > 1e-4
