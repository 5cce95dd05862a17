"""Random small models of every variant, and batches for them."""

from typing import Any, get_args

import torch
from hypothesis import strategies as st
from torch import Tensor

from pellucid.config import (
    Activation,
    EmbeddingTying,
    NormPlacement,
    NormType,
    PositionEncoding,
    PositionLayout,
    QueryKeyNorm,
)
from pellucid.model import ModelConfig, Transformer

VOCAB = 23


@st.composite
def configs(draw: st.DrawFn, **fixed: Any) -> ModelConfig:
    """Any variant of the model, small."""
    num_kv_heads = draw(st.sampled_from([1, 2, 3]))
    values: dict[str, Any] = {
        "vocab_size": VOCAB,
        "num_heads": num_kv_heads * draw(st.integers(1, 2)),
        "num_kv_heads": num_kv_heads,
        "d_ff": draw(st.sampled_from([5, 16, 33])),
        "encoder_layers": draw(st.integers(1, 3)),
        "decoder_layers": draw(st.integers(1, 3)),
        "norm": draw(st.sampled_from(get_args(NormPlacement))),
        "norm_type": draw(st.sampled_from(get_args(NormType))),
        "activation": draw(st.sampled_from(get_args(Activation))),
        "position_encoding": draw(st.sampled_from(get_args(PositionEncoding))),
        "position_layout": draw(st.sampled_from(get_args(PositionLayout))),
        "tie_embeddings": draw(st.sampled_from(get_args(EmbeddingTying))),
        "qk_norm": draw(st.sampled_from(get_args(QueryKeyNorm))),
        "max_length": 32,
        "dropout": 0.3,  # must not matter in eval mode
        "attention_dropout": 0.2,
        "activation_dropout": 0.2,
    }
    values["d_model"] = values["num_heads"] * draw(st.sampled_from([2, 4, 8]))
    for switch in (
        "attention_bias",
        "feed_forward_bias",
        "output_bias",
        "scale_embedding",
        "embedding_norm",
    ):
        values[switch] = draw(st.booleans())
    return ModelConfig(**{**values, **fixed})


@st.composite
def models(draw: st.DrawFn, **fixed: Any) -> Transformer:
    """A model in eval mode whose weights, biases and gains are all random."""
    config = draw(configs(**fixed))
    torch.manual_seed(draw(st.integers(0, 10_000)))
    model = Transformer(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.normal_(mean=1.0 if "norm" in name else 0.0, std=0.2)
    return model.requires_grad_(False)


@st.composite
def batches(draw: st.DrawFn, longest: int = 9) -> tuple[Tensor, Tensor]:
    """Padded source and target ids, with at least one real token in each row."""
    rows = draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))

    def side() -> Tensor:
        lengths = draw(st.lists(st.integers(1, longest), min_size=rows, max_size=rows))
        ids = torch.randint(1, VOCAB, (rows, max(lengths)), generator=generator)
        for row, length in enumerate(lengths):
            ids[row, length:] = 0
        return ids

    return side(), side()
