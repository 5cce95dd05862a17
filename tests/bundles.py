"""Small bundles for tests: random weights where quality does not matter."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

from pellucid.bundle import Bundle
from pellucid.decoding.ct2.conversion import add_ct2
from pellucid.model import ModelConfig, Transformer
from tests.made_up import tokenizer

DIRECTIONS = ("fr-en", "en-fr")


def random_model(vocab_size: int, **changes: Any) -> Transformer:
    """A model whose outputs are short nonsense, and that never writes special symbols."""
    torch.manual_seed(0)
    settings = {"d_model": 32, "d_ff": 48, "num_heads": 4, "output_bias": True}
    settings |= {"encoder_layers": 2, "decoder_layers": 2, "vocab_size": vocab_size}
    model = Transformer(ModelConfig(**{**settings, **changes})).eval().requires_grad_(False)
    model.output.bias.normal_(std=0.2)
    model.output.bias[:6] = -40.0
    model.output.bias[3] = 1.5
    return model


def write_bundle(
    folder: Path, *, quantization: str | None = None, ct2: bool = True, **changes: Any
) -> Bundle:
    """A bundle of a random model for the made-up corpus, with ct2/ in float32 unless told."""
    alignment = changes.pop("alignment", None)
    words = _tokenizer()
    model = random_model(words.vocab_size, **changes)
    bundle = Bundle.write(
        folder,
        model.config,
        model.state_dict(),
        words,
        directions=DIRECTIONS,
        about={"title": "Random"},
        alignment=alignment,
    )
    return add_ct2(bundle, quantization) if ct2 else bundle


@cache
def _tokenizer() -> Any:
    return tokenizer()
