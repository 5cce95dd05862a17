"""Our blocks express other well-known Transformers, with the same numbers.

Each peer checks parts that Marian and torch.nn.Transformer do not have: BERT an encoder alone with
learned positions, GPT-2 a decoder alone, Llama rotary positions, RMSNorm, SwiGLU and grouped heads,
Qwen 3 norms on queries and keys, Gemma 2 the sandwich norm and a gated GELU.
"""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from pellucid.model import DecoderOnly, EncoderOnly, ModelConfig
from tests.parity.marian import copy_attention

VOCAB, WIDTH, INNER, HEADS, LAYERS = 70, 32, 80, 4, 2


def shaken(model: nn.Module) -> nn.Module:
    """Random biases and norm gains too, so that each of them matters."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.normal_(mean=1.0 if "norm" in name.lower() else 0.0, std=0.2)
    return model.eval()


def our_config(**changes: Any) -> ModelConfig:
    shape = {
        "vocab_size": VOCAB,
        "d_model": WIDTH,
        "d_ff": INNER,
        "num_heads": HEADS,
        "encoder_layers": LAYERS,
        "decoder_layers": LAYERS,
        "dropout": 0.0,
    }
    return ModelConfig(**{**shape, **changes})


def assert_same_with_and_without_cache(
    ours: DecoderOnly, ids: torch.Tensor, expected: torch.Tensor
) -> None:
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), expected, atol=1e-4, rtol=0)
        first, cache = ours.decode(ids[:, :3], ours.start())
        rest = [first]
        for t in range(3, ids.shape[1]):
            logits, cache = ours.decode(ids[:, t : t + 1], cache)
            rest.append(logits)
    torch.testing.assert_close(torch.cat(rest, dim=1), expected, atol=1e-4, rtol=0)


def test_bert() -> None:
    torch.manual_seed(5)
    peer = shaken(
        BertModel(
            BertConfig(
                vocab_size=VOCAB,
                hidden_size=WIDTH,
                intermediate_size=INNER,
                num_attention_heads=HEADS,
                num_hidden_layers=LAYERS,
                max_position_embeddings=40,
                layer_norm_eps=1e-5,
            ),
            add_pooling_layer=False,
        )
    )
    ours = EncoderOnly(
        our_config(
            activation="gelu",
            position_encoding="learned",
            max_length=40,
            scale_embedding=False,
            embedding_norm=True,
        )
    ).eval()
    embeddings = peer.embeddings
    ours.embedding.tokens.weight.data.copy_(embeddings.word_embeddings.weight)
    # every token here is of BERT's first segment, whose vector we add to the positions
    ours.embedding.positions.weight.data.copy_(
        embeddings.position_embeddings.weight + embeddings.token_type_embeddings.weight[0]
    )
    ours.embedding.norm.load_state_dict(embeddings.LayerNorm.state_dict())
    for mine, other in zip(ours.encoder.layers, peer.encoder.layer, strict=True):
        attention = other.attention.self
        copy_attention(mine.attention, attention.query, attention.key, attention.value)
        for ours_part, theirs_part in [
            (mine.attention.out, other.attention.output.dense),
            (mine.attention_add_norm.norm_after, other.attention.output.LayerNorm),
            (mine.feed_forward.inner, other.intermediate.dense),
            (mine.feed_forward.outer, other.output.dense),
            (mine.feed_forward_add_norm.norm_after, other.output.LayerNorm),
        ]:
            ours_part.load_state_dict(theirs_part.state_dict())
    ids = torch.randint(1, VOCAB, (3, 10))
    ids[1, 7:] = 0
    with torch.no_grad():
        expected = peer(input_ids=ids, attention_mask=(ids != 0).long()).last_hidden_state
        torch.testing.assert_close(ours(ids)[ids != 0], expected[ids != 0], atol=1e-4, rtol=0)


def test_gpt2() -> None:
    torch.manual_seed(6)
    peer = shaken(
        GPT2LMHeadModel(
            GPT2Config(
                vocab_size=VOCAB,
                n_embd=WIDTH,
                n_inner=INNER,
                n_head=HEADS,
                n_layer=LAYERS,
                n_positions=40,
            )
        )
    )
    ours = DecoderOnly(
        our_config(
            norm="pre",
            activation="gelu_tanh",
            position_encoding="learned",
            max_length=40,
            scale_embedding=False,
        )
    ).eval()
    ours.embedding.tokens.weight.data.copy_(peer.transformer.wte.weight)
    ours.embedding.positions.weight.data.copy_(peer.transformer.wpe.weight)
    ours.decoder.norm.load_state_dict(peer.transformer.ln_f.state_dict())
    for mine, other in zip(ours.decoder.layers, peer.transformer.h, strict=True):
        mine.attention_add_norm.norm_before.load_state_dict(other.ln_1.state_dict())
        mine.feed_forward_add_norm.norm_before.load_state_dict(other.ln_2.state_dict())
        mine.attention.in_weight.data.copy_(other.attn.c_attn.weight.T)
        mine.attention.in_bias.data.copy_(other.attn.c_attn.bias)
        for linear, conv in [
            (mine.attention.out, other.attn.c_proj),
            (mine.feed_forward.inner, other.mlp.c_fc),
            (mine.feed_forward.outer, other.mlp.c_proj),
        ]:
            linear.weight.data.copy_(conv.weight.T)
            linear.bias.data.copy_(conv.bias)
    ids = torch.randint(1, VOCAB, (3, 10))
    with torch.no_grad():
        expected = peer(input_ids=ids).logits
    assert_same_with_and_without_cache(ours, ids, expected)


def copy_llama_like(ours: DecoderOnly, peer: nn.Module, *, gain_offset: float = 0.0) -> None:
    """The weights of a decoder of Llama's family. Gemma stores a norm's gain less one."""

    def copy_norm(mine: nn.Module, other: nn.Module) -> None:
        mine.weight.data.copy_(other.weight + gain_offset)

    ours.embedding.tokens.weight.data.copy_(peer.model.embed_tokens.weight)
    ours.output.weight.data.copy_(peer.lm_head.weight)
    copy_norm(ours.decoder.norm, peer.model.norm)
    for mine, other in zip(ours.decoder.layers, peer.model.layers, strict=True):
        attention = other.self_attn
        copy_attention(mine.attention, attention.q_proj, attention.k_proj, attention.v_proj)
        mine.attention.out.weight.data.copy_(attention.o_proj.weight)
        if hasattr(attention, "q_norm"):
            copy_norm(mine.attention.query_norm, attention.q_norm)
            copy_norm(mine.attention.key_norm, attention.k_norm)
        mine.feed_forward.inner.weight.data.copy_(
            torch.cat([other.mlp.gate_proj.weight, other.mlp.up_proj.weight])
        )
        mine.feed_forward.outer.weight.data.copy_(other.mlp.down_proj.weight)
        copy_norm(mine.attention_add_norm.norm_before, other.input_layernorm)
        if hasattr(other, "pre_feedforward_layernorm"):
            copy_norm(mine.attention_add_norm.norm_inside, other.post_attention_layernorm)
            copy_norm(mine.feed_forward_add_norm.norm_before, other.pre_feedforward_layernorm)
            copy_norm(mine.feed_forward_add_norm.norm_inside, other.post_feedforward_layernorm)
        else:
            copy_norm(mine.feed_forward_add_norm.norm_before, other.post_attention_layernorm)


LLAMA_SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "head_dim": WIDTH // HEADS,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.2,
}
LLAMA_HABITS = {
    "norm_type": "rms",
    "position_encoding": "rotary",
    "position_layout": "halves",
    "attention_bias": False,
    "feed_forward_bias": False,
}


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
def test_llama_family(family: str, num_kv_heads: int) -> None:
    torch.manual_seed(7)
    shape = {**LLAMA_SHAPE, "num_key_value_heads": num_kv_heads}
    habits = {**LLAMA_HABITS, "num_kv_heads": num_kv_heads}
    if family == "llama":
        peer = shaken(LlamaForCausalLM(LlamaConfig(**shape)))
        config = our_config(
            norm="pre", activation="swiglu", scale_embedding=False, tie_embeddings="none", **habits
        )
    elif family == "qwen3":
        peer = shaken(Qwen3ForCausalLM(Qwen3Config(**shape)))
        config = our_config(
            norm="pre",
            activation="swiglu",
            scale_embedding=False,
            tie_embeddings="none",
            qk_norm="self",
            **habits,
        )
    else:
        peer = shaken(
            Gemma2ForCausalLM(
                Gemma2Config(
                    **shape,
                    query_pre_attn_scalar=WIDTH // HEADS,
                    attn_logit_softcapping=None,
                    final_logit_softcapping=None,
                    sliding_window=64,
                    attn_implementation="eager",
                )
            )
        )
        config = our_config(
            norm="sandwich", activation="geglu_tanh", tie_embeddings="all", **habits
        )
    ours = DecoderOnly(config).eval()
    copy_llama_like(ours, peer, gain_offset=1.0 if family == "gemma2" else 0.0)
    ids = torch.randint(1, VOCAB, (2, 12))
    with torch.no_grad():
        expected = peer(input_ids=ids).logits
    assert_same_with_and_without_cache(ours, ids, expected)
