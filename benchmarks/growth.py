"""How the time of a token grows with the sentence and with the batch, ours and Hugging Face's.

    python -m benchmarks growth [--rounds 5] [--threads N]

One training step (forward, loss, backward; model S) over sentences of one length: first ever longer
ones at a fixed number of tokens a batch, then ever larger batches of one length. Then greedy
decoding step by step with the cache, ever longer. If a column grows, the work a token does.
transformers is taken from our own environment, which has the peers' version.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import paired_ratio, race
from benchmarks.peers.training import marian
from benchmarks.training import VOCAB, model_config
from pellucid.model import Transformer
from pellucid.training.loop import Objective

LENGTHS = (8, 16, 32, 64, 128, 256)
BATCHES = (128, 512, 2048, 8192)
FIXED_TOKENS, FIXED_LENGTH, DECODED_ROWS = 2048, 16, 8


def models() -> tuple[Transformer, torch.nn.Module]:
    config = model_config("S", 0.1)
    shape = {
        "vocab_size": VOCAB, "d_model": config.d_model, "num_heads": config.num_heads,
        "d_ff": config.d_ff, "dropout": 0.1, "layers": config.encoder_layers,
    }  # fmt: skip
    return Transformer(config), marian(shape)


def training_steps(rows: int, length: int) -> dict[str, Callable[[], None]]:
    ours, theirs = models()
    objective = Objective(ours.train(), 0.1)
    theirs.train()
    ids = torch.randint(4, VOCAB, (rows, length), generator=torch.Generator().manual_seed(1))
    places = torch.arange(rows * length)

    def run_ours() -> None:
        ours.zero_grad(set_to_none=True)
        objective(ids, ids, places, ids.flatten()).smoothed.backward()

    def run_theirs() -> None:
        theirs.zero_grad(set_to_none=True)
        logits = theirs(
            input_ids=ids, attention_mask=torch.ones_like(ids), decoder_input_ids=ids,
            use_cache=False,
        ).logits  # fmt: skip
        F.cross_entropy(logits.flatten(0, 1), ids.flatten(), label_smoothing=0.1).backward()

    return {"pellucid": run_ours, "marian": run_theirs}


def decoding_steps(length: int) -> dict[str, Callable[[], None]]:
    ours, theirs = models()
    ours.eval()
    theirs.eval()
    generator = torch.Generator().manual_seed(2)
    source = torch.randint(4, VOCAB, (DECODED_ROWS, length), generator=generator)
    seen = torch.ones_like(source)

    def begin() -> Tensor:
        return torch.full((DECODED_ROWS, 1), 2)

    @torch.inference_mode()
    def run_ours() -> None:
        cache, ids = ours.start(ours.encode(source)), begin()
        for _ in range(length):
            logits, cache = ours.decode(ids, cache)
            ids = logits[:, -1].argmax(-1, keepdim=True)

    @torch.inference_mode()
    def run_theirs() -> None:
        encoded = theirs.get_encoder()(input_ids=source, attention_mask=seen)
        ids, past = begin(), None
        for _ in range(length):
            out = theirs(
                encoder_outputs=encoded, attention_mask=seen, decoder_input_ids=ids,
                past_key_values=past, use_cache=True,
            )  # fmt: skip
            past, ids = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)

    return {"pellucid": run_ours, "marian": run_theirs}


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks growth")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    cases: list[tuple[str, int, int, Callable[[], dict[str, Callable[[], None]]]]] = []
    for length in LENGTHS:
        rows = FIXED_TOKENS // length
        what = f"training, {FIXED_TOKENS} tokens a batch"
        cases.append((what, length, rows * length, lambda n=length, r=rows: training_steps(r, n)))
    for tokens in BATCHES:
        what = f"training, {tokens} tokens a batch"
        rows = tokens // FIXED_LENGTH
        cases.append((what, FIXED_LENGTH, tokens, lambda r=rows: training_steps(r, FIXED_LENGTH)))
    for length in LENGTHS[:-1]:
        what = f"decoding, {DECODED_ROWS} at a time"
        cases.append((what, length, DECODED_ROWS * length, lambda n=length: decoding_steps(n)))
    table, figures = [], []
    for what, length, tokens, make in cases:
        timings = race(make(), rounds=options.rounds)
        each = {name: 1e6 * one.median / tokens for name, one in timings.items()}
        ratio = paired_ratio(timings["marian"], timings["pellucid"])
        figures.append({"what": what, "length": length, "tokens": tokens,
                        "microseconds_a_token": each, "pellucid_is": ratio})  # fmt: skip
        table.append([what, str(length), f"{each['pellucid']:,.0f}", f"{each['marian']:,.0f}",
                      f"{ratio:.2f}x"])  # fmt: skip
        print("  ".join(table[-1]), flush=True)
    return {
        "title": "Growth with the sentence and the batch",
        "table": {
            "columns": ["", "tokens a sentence", "pellucid, microseconds a token", "Marian",
                        "Pellucid is faster by"],
            "rows": table,
        },
        "note": f"model S, {options.threads} threads, {options.rounds} rounds, medians.",
        "figures": figures,
    }  # fmt: skip
