"""A peer's training step in a plain loop; runs in the peers' environment (see benchmarks.workers).

    python training.py marian|torch|eole SHAPE BATCHES THREADS

SHAPE: JSON with vocab_size, d_model, d_ff, num_heads, layers, dropout, label_smoothing and
learning_rate.
BATCHES: an npz file with source, target_in and target_out of each batch, padded with 0.
Each question is {"batches": [numbers]}: forward, loss, backward, clip and Adam for each of them.
"""

import json
import math
import os
import resource
import sys
import time
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def marian(shape: dict) -> nn.Module:
    """Hugging Face's Marian: the same model (post-norm, sinusoidal positions, tied embeddings)."""
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=shape["vocab_size"],
            d_model=shape["d_model"],
            encoder_ffn_dim=shape["d_ff"],
            decoder_ffn_dim=shape["d_ff"],
            encoder_attention_heads=shape["num_heads"],
            decoder_attention_heads=shape["num_heads"],
            encoder_layers=shape["layers"],
            decoder_layers=shape["layers"],
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=0,
            decoder_start_token_id=2,
            bos_token_id=2,
            eos_token_id=3,
            forced_eos_token_id=None,
            max_position_embeddings=1024,
            dropout=shape["dropout"],
            attention_dropout=0.0,
            activation_dropout=0.0,
        )
    )


class TorchTransformer(nn.Module):
    """torch.nn.Transformer between an embedding and a tied output, as its tutorials use it."""

    def __init__(self, shape: dict) -> None:
        super().__init__()
        d_model = shape["d_model"]
        self.scale = math.sqrt(d_model)
        self.tokens = nn.Embedding(shape["vocab_size"], d_model)
        nn.init.normal_(self.tokens.weight, std=d_model**-0.5)
        angles = torch.arange(1024)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        self.register_buffer("table", table, persistent=False)
        self.dropout = nn.Dropout(shape["dropout"])
        self.inner = nn.Transformer(
            d_model, shape["num_heads"], shape["layers"], shape["layers"], shape["d_ff"],
            dropout=shape["dropout"], batch_first=True,
        )  # fmt: skip
        for layer in [*self.inner.encoder.layers, *self.inner.decoder.layers]:
            # only on the sub-layers' outputs, as the others have it
            layer.dropout.p = layer.self_attn.dropout = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0
        self.output = nn.Linear(d_model, shape["vocab_size"], bias=False)
        self.output.weight = self.tokens.weight

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.tokens(ids) * self.scale + self.table[: ids.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        states = self.inner(
            self.embed(source),
            self.embed(target),
            tgt_mask=hidden,
            src_key_padding_mask=source == 0,
            tgt_key_padding_mask=target == 0,
            memory_key_padding_mask=source == 0,
        )
        return self.output(states)


def logits_of(kind: str, model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    if kind == "torch":
        return model(source, target)
    return model(
        input_ids=source,
        attention_mask=(source != 0).long(),
        decoder_input_ids=target,
        use_cache=False,
    ).logits


def step(kind: str, model: nn.Module, optimizer: torch.optim.Optimizer, shape: dict, batch) -> int:
    """One step of the plain loop; the number of target tokens."""
    source, target, labels = (torch.from_numpy(array) for array in batch)
    optimizer.zero_grad(set_to_none=True)
    logits = logits_of(kind, model, source, target)
    loss = F.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        ignore_index=0,
        label_smoothing=shape["label_smoothing"],
    )
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert math.isfinite(loss.item())
    return int((labels != 0).sum())


def main() -> None:
    kind, shape, threads = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[4])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    with np.load(sys.argv[3]) as file:
        count = len(file.files) // 3
        batches = [[file[f"{part}{n}"] for part in ("s", "i", "o")] for n in range(count)]
    if kind == "eole":
        from eole_steps import Eole

        peer = Eole(shape)
        model, one_step = peer.model, peer.step
    else:
        model = (marian if kind == "marian" else TorchTransformer)(shape).train()
        optimizer = torch.optim.Adam(
            model.parameters(), lr=shape["learning_rate"], betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        one_step = partial(step, kind, model, optimizer, shape)
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(json.dumps({"ready": {"parameters": parameters}}), flush=True)
    for line in sys.stdin:
        clock, before = time.perf_counter(), os.times()
        tokens = 0
        for number in json.loads(line)["batches"]:
            tokens += one_step(batches[number])
        after = os.times()
        answer = {
            "seconds": time.perf_counter() - clock,
            "cpu": after.user + after.system - before.user - before.system,
            "tokens": tokens,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
