"""One training step and one decoding step against torch.nn.Transformer and Hugging Face's Marian.

The same shapes, the same mathematics (label smoothing, dropout, fp32), the same batch of random ids
with the lengths of real sentences. Peers run as a user would write them in a plain loop.
"""

import os

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from benchmarks.measure import Timing, paired_ratio, race
from pellucid.model import ModelConfig, Transformer

VOCAB = 8000
DROPOUT = 0.1
PRESETS = ("small", "base")


def batch_of(tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Padded source and target of about `tokens` target tokens, lengths as in short sentences."""
    lengths = torch.randint(10, 19, (max(2, tokens // 14),), generator=generator)
    others = (lengths + torch.randint(-2, 3, lengths.shape, generator=generator)).clamp(min=4)

    def ids(sizes: Tensor) -> Tensor:
        table = torch.randint(3, VOCAB - 1, (len(sizes), int(sizes.max())), generator=generator)
        return table.masked_fill(torch.arange(table.shape[1]) >= sizes[:, None], 0)

    return ids(lengths), ids(others)


def our_model(preset: str) -> Transformer:
    return Transformer(
        ModelConfig.preset(
            preset,
            vocab_size=VOCAB,
            activation="silu",
            dropout=DROPOUT,
            attention_dropout=DROPOUT,
            activation_dropout=DROPOUT,
        )
    )


def marian_model(config: ModelConfig) -> MarianMTModel:
    return MarianMTModel(
        MarianConfig(
            vocab_size=VOCAB,
            d_model=config.width,
            encoder_ffn_dim=config.feed_forward_width,
            decoder_ffn_dim=config.feed_forward_width,
            encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            activation_function="swish",
            scale_embedding=True,
            pad_token_id=0,
            decoder_start_token_id=0,
            eos_token_id=1,
            dropout=DROPOUT,
            attention_dropout=DROPOUT,
            activation_dropout=DROPOUT,
        )
    )


class TorchTransformer(nn.Module):
    """torch.nn.Transformer between our own embeddings, as its tutorials use it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.shell = Transformer(config.changed(encoder_layers=0, decoder_layers=0))
        self.inner = nn.Transformer(
            config.width,
            config.heads,
            config.encoder_layers,
            config.decoder_layers,
            config.feed_forward_width,
            dropout=DROPOUT,
            activation=F.silu,
            batch_first=True,
        )

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        states = self.inner(
            self.shell.source_embedding(source),
            self.shell.target_embedding(target),
            tgt_mask=hidden,
            src_key_padding_mask=source == 0,
            tgt_key_padding_mask=target == 0,
            memory_key_padding_mask=source == 0,
            tgt_is_causal=False,
        )
        return self.shell.output(states)


def training_steps(preset: str, tokens: int) -> tuple[dict[str, object], int]:
    """A closure for each contestant that does forward, loss, backward and Adam."""
    ours = our_model(preset)
    marian, plain = marian_model(ours.config), TorchTransformer(ours.config)
    source, target = batch_of(tokens, torch.Generator().manual_seed(1))
    inputs, labels = target[:, :-1].contiguous(), target[:, 1:].contiguous()

    def step(model: nn.Module, logits_of: object) -> object:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
        model.train()

        def run() -> None:
            optimizer.zero_grad(set_to_none=True)
            logits = logits_of()
            loss = F.cross_entropy(
                logits.view(-1, VOCAB), labels.view(-1), ignore_index=0, label_smoothing=0.1
            )
            loss.backward()
            optimizer.step()

        return run

    seen = (source != 0).long()
    return {
        "pellucid": step(ours, lambda: ours(source, inputs)),
        "marian": step(
            marian,
            lambda: (
                marian(
                    input_ids=source, attention_mask=seen, decoder_input_ids=inputs, use_cache=False
                ).logits
            ),
        ),
        "torch": step(plain, lambda: plain(source, inputs)),
    }, int((labels != 0).sum())


def decoding_steps(preset: str, rows: int) -> dict[str, object]:
    """A closure for each contestant that encodes a batch and decodes twelve tokens, step by step.

    torch.nn.Transformer has no cache: it decodes the whole prefix again at each step.
    """
    ours = our_model(preset).eval()
    marian, plain = marian_model(ours.config).eval(), TorchTransformer(ours.config).eval()
    source, _ = batch_of(14 * rows, torch.Generator().manual_seed(2))
    source, seen = source[:rows], (source[:rows] != 0).long()
    steps = 12

    def run_ours() -> None:
        with torch.inference_mode():
            cache = ours.start(ours.encode(source))
            ids = torch.zeros(rows, 1, dtype=torch.long)
            for _ in range(steps):
                logits, cache = ours.decode(ids, cache)
                ids = logits[:, -1].argmax(-1, keepdim=True)

    def run_marian() -> None:
        with torch.inference_mode():
            encoded = marian.get_encoder()(input_ids=source, attention_mask=seen)
            ids, past = torch.zeros(rows, 1, dtype=torch.long), None
            for _ in range(steps):
                out = marian(
                    encoder_outputs=encoded,
                    attention_mask=seen,
                    decoder_input_ids=ids,
                    past_key_values=past,
                    use_cache=True,
                )
                past = out.past_key_values
                ids = out.logits[:, -1].argmax(-1, keepdim=True)

    def run_torch() -> None:
        with torch.inference_mode():
            shell, inner = plain.shell, plain.inner
            memory = inner.encoder(shell.source_embedding(source), src_key_padding_mask=source == 0)
            ids = torch.zeros(rows, 1, dtype=torch.long)
            for t in range(1, steps + 1):
                states = inner.decoder(
                    shell.target_embedding(ids),
                    memory,
                    tgt_mask=torch.ones(t, t, dtype=torch.bool).triu(1),
                    memory_key_padding_mask=source == 0,
                )
                last = shell.output(states[:, -1:])
                ids = torch.cat([ids, last.argmax(-1)], dim=1)

    return {"pellucid": run_ours, "marian": run_marian, "torch": run_torch}


def main() -> dict[str, object]:
    torch.set_num_threads(int(os.environ.get("THREADS", torch.get_num_threads())))
    rounds = int(os.environ.get("ROUNDS", "15"))
    torch.manual_seed(0)
    results: list[dict[str, object]] = []
    table = Table("what", "preset", "size", "pellucid ms", "vs marian", "vs torch")

    def add(what: str, preset: str, size: str, timings: dict[str, Timing], tokens: int) -> None:
        ours = timings["pellucid"]
        ratios = {peer: paired_ratio(timings[peer], ours) for peer in ("marian", "torch")}
        table.add_row(
            what,
            preset,
            size,
            f"{ours.median * 1e3:.1f} ±{ours.spread:.0%}",
            f"{ratios['marian']:.2f}x",
            f"{ratios['torch']:.2f}x",
        )
        results.append(
            {
                "what": what,
                "preset": preset,
                "size": size,
                "target_tokens": tokens,
                "seconds": {name: t.median for name, t in timings.items()},
                "spread": {name: t.spread for name, t in timings.items()},
                "times_faster_than": ratios,
            }
        )

    for preset in PRESETS:
        for tokens in (1000, 3000) if preset == "small" else (1000,):
            contestants, counted = training_steps(preset, tokens)
            size = f"{counted} tokens"
            add("training step", preset, size, race(contestants, rounds=rounds), counted)
        for rows in (1, 32):
            contestants = decoding_steps(preset, rows)
            timings = race(contestants, rounds=2 * rounds if rows == 1 else rounds)
            add("decoding", preset, f"batch {rows}", timings, 12 * rows)
    Console().print(table)
    print("vs: how many times faster than the peer in the same round, median over the rounds")
    return {"results": results}
