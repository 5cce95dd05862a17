"""Hugging Face's Marian as an independent implementation: the same weights in our model."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel

from pellucid.model import ModelConfig, MultiHeadAttention, Transformer


def random_marian(
    *, vocab: int, width: int, inner: int, heads: int, layers: tuple[int, int], **changes: object
) -> MarianMTModel:
    """A Marian model with random weights, the shape and habits of OPUS-MT's, ready to compare."""
    settings = {
        "vocab_size": vocab,
        "d_model": width,
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_layers": layers[0],
        "decoder_layers": layers[1],
        "activation_function": "swish",
        "scale_embedding": True,
        "max_position_embeddings": 256,
        "pad_token_id": vocab - 1,
        "decoder_start_token_id": vocab - 1,
        "eos_token_id": 0,
        "bos_token_id": None,
        "forced_eos_token_id": None,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "init_std": 0.15,
    }
    model = MarianMTModel(MarianConfig(**{**settings, **changes}))
    with torch.no_grad():
        model.final_logits_bias.normal_()
        for module in model.modules():  # fresh norms are all ones; make every weight matter
            if isinstance(module, nn.LayerNorm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(std=0.1)
            elif isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.normal_(std=0.1)
    return model.eval()


def padded(rows: Sequence[Sequence[int]], pad: int) -> torch.Tensor:
    """Rows of different length as one table, filled up with the pad id."""
    ids = torch.full((len(rows), max(map(len, rows))), pad)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
    return ids


def generated(
    peer: MarianMTModel,
    sources: Sequence[Sequence[int]],
    beams: int,
    n: int,
    longest: int,
    **settings: Any,
) -> list[list[tuple[list[int], float]]]:
    """Their tokens without start, pad and end, and their scores (sums where greedy)."""
    pad, end = peer.config.pad_token_id, peer.config.eos_token_id
    ids = padded(sources, pad)
    output = peer.generate(
        input_ids=ids,
        attention_mask=(ids != pad).long(),
        num_beams=beams,
        num_return_sequences=n,
        do_sample=False,
        max_length=longest + 1,
        bad_words_ids=[[pad], *settings.pop("bad_words_ids", [])],
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        **settings,
    )
    if beams > 1:
        scores = output.sequences_scores.tolist()
    else:
        logs = torch.stack(output.logits, dim=1).log_softmax(-1)
        picked = logs.gather(-1, output.sequences[:, 1:, None])[..., 0]
        scores = (picked * (output.sequences[:, 1:] != pad)).sum(-1).tolist()
    flat = [
        ([token for token in row[1:] if token not in (pad, end)], score)
        for row, score in zip(output.sequences.tolist(), scores, strict=True)
    ]
    return [flat[at : at + n] for at in range(0, len(flat), n)]


def copy_attention(ours: MultiHeadAttention, q: nn.Linear, k: nn.Linear, v: nn.Linear) -> None:
    """Three projections of a peer into our one."""
    ours.in_weight.data = torch.cat([q.weight, k.weight, v.weight]).clone()
    if ours.in_bias is not None:
        ours.in_bias.data = torch.cat([q.bias, k.bias, v.bias]).clone()


def from_marian(peer: MarianMTModel) -> Transformer:
    """Our Transformer with the weights of a Hugging Face Marian model."""
    c = peer.config
    model = Transformer(
        ModelConfig(
            vocab_size=c.vocab_size,
            pad_id=c.pad_token_id,
            d_model=c.d_model,
            d_ff=c.encoder_ffn_dim,
            num_heads=c.encoder_attention_heads,
            encoder_layers=c.encoder_layers,
            decoder_layers=c.decoder_layers,
            activation="silu",
            position_layout="halves",
            output_bias=True,
            scale_embedding=c.scale_embedding,
            dropout=c.dropout,
            attention_dropout=c.attention_dropout,
            activation_dropout=c.activation_dropout,
        )
    )
    model.source_embedding.tokens.weight.data.copy_(peer.get_input_embeddings().weight)
    model.output.bias.data.copy_(peer.final_logits_bias[0])

    for ours, theirs in [
        *zip(model.encoder.layers, peer.model.encoder.layers, strict=True),
        *zip(model.decoder.layers, peer.model.decoder.layers, strict=True),
    ]:
        attention = theirs.self_attn
        copy_attention(ours.attention, attention.q_proj, attention.k_proj, attention.v_proj)
        pairs = [
            (ours.attention.out, attention.out_proj),
            (ours.attention_add_norm.norm_after, theirs.self_attn_layer_norm),
            (ours.feed_forward.inner, theirs.fc1),
            (ours.feed_forward.outer, theirs.fc2),
            (ours.feed_forward_add_norm.norm_after, theirs.final_layer_norm),
        ]
        if hasattr(theirs, "encoder_attn"):
            attention = theirs.encoder_attn
            copy_attention(ours.cross, attention.q_proj, attention.k_proj, attention.v_proj)
            pairs += [
                (ours.cross.out, attention.out_proj),
                (ours.cross_add_norm.norm_after, theirs.encoder_attn_layer_norm),
            ]
        for mine, other in pairs:
            mine.load_state_dict(other.state_dict())
    return model.train(peer.training)
