"""The torch engine against Hugging Face's `generate`: same weights, same sentences, one run.

    python -m benchmarks decoding [--quick] [--threads N] [--shape small|base] [--beam-size 1|4]

The weights are random, so the end symbol is banned and each sentence ends at a length that is given
to both sides: its source length times a factor, drawn once for each source length (log-normal, a
spread of 20%, as between French and English). So both take the same steps for each sentence, and
"same" counts equal outputs. Ours and theirs take turns; the table has medians. "best" is the best
batch size of each for itself, all sentences sorted by length on both sides. "floor" is the share of
our time at the best batch that bare matrix products of the same shapes take, which both must do.
With one thread it is processor time that counts, which a busy machine disturbs less than the clock.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from transformers import MarianMTModel, StoppingCriteria, StoppingCriteriaList

from pellucid.decoding import DecodingOptions, SpecialIds
from pellucid.decoding.torch.engine import TorchEngine
from tests.parity.marian import from_marian, random_marian

END = 0
SHAPES = {
    "small": {"vocab": 8_000, "width": 256, "inner": 1024, "heads": 4, "layers": (3, 3)},
    "base": {"vocab": 32_000, "width": 512, "inner": 2048, "heads": 8, "layers": (6, 6)},
}
SIZES = {"small": [32, 96], "base": [16, 48]}
"""The batches to choose the best from; the largest holds all sentences."""
SHORTEST, LONGEST = 6, 48
_draw = random.Random(2)
OUTPUT = {n: max(3, round(n * _draw.lognormvariate(0, 0.2))) for n in range(SHORTEST, LONGEST + 1)}
"""The output length for each source length."""


class Ends(DecodingOptions):
    """Options under which a sentence ends at its given length."""

    def limit(self, source_length: int) -> int:
        return OUTPUT[source_length]


class EndsAt(StoppingCriteria):
    """The same for their side; a sentence has several rows there."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = torch.tensor(lengths)

    def __call__(self, input_ids: Tensor, scores: object, **_: object) -> Tensor:
        rows = len(input_ids) // len(self.lengths)
        return input_ids.shape[1] - 1 >= self.lengths.repeat_interleave(rows)


def sentences(count: int, vocab: int) -> list[list[int]]:
    """Sources of 6 to 48 tokens, mostly around 20, with the end symbol last."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randn(count, generator=generator) * 9 + 20
    return [
        [*torch.randint(1, vocab - 1, (n - 1,), generator=generator).tolist(), END]
        for n in lengths.clamp(SHORTEST, LONGEST).int().tolist()
    ]


def sorted_batches(sources: list[list[int]], size: int) -> list[list[int]]:
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    return [order[at : at + size] for at in range(0, len(order), size)]


def theirs(peer: MarianMTModel, sources: list[list[int]], beam: int, size: int) -> list[list[int]]:
    pad, found = peer.config.pad_token_id, {}
    for batch in sorted_batches(sources, size):
        ids = torch.full((len(batch), len(sources[batch[0]])), pad)
        for row, i in enumerate(batch):
            ids[row, : len(sources[i])] = torch.tensor(sources[i])
        lengths = [OUTPUT[len(sources[i])] for i in batch]
        with torch.inference_mode():
            output = peer.generate(
                input_ids=ids,
                attention_mask=(ids != pad).long(),
                num_beams=beam,
                do_sample=False,
                max_length=max(lengths) + 1,
                bad_words_ids=[[pad], [END]],
                stopping_criteria=StoppingCriteriaList([EndsAt(lengths)]),
                **({"early_stopping": True, "length_penalty": 1.0} if beam > 1 else {}),
            )
        for i, row, length in zip(batch, output.tolist(), lengths, strict=True):
            found[i] = row[1 : 1 + length]
    return [found[i] for i in range(len(sources))]


def ours(engine: TorchEngine, sources: list[list[int]], beam: int, size: int) -> list[list[int]]:
    options = Ends(beam_size=beam, patience=1.0, suppress_tokens=frozenset({END}))
    found: dict[int, list[int]] = {}
    for batch in sorted_batches(sources, size):
        results = engine.translate_ids([sources[i] for i in batch], options)
        found.update({i: list(r.best.tokens) for i, r in zip(batch, results, strict=True)})
    return [found[i] for i in range(len(sources))]


def products(engine: TorchEngine, sources: list[list[int]], beam: int, size: int) -> None:
    """The matrix products of our search and nothing else, in rows of the same number."""
    model = engine.model
    tokens = sum(OUTPUT[len(s)] for s in sources) * beam
    read = sum(map(len, sources))
    rows = min(size * beam, tokens)
    matrices = [p for n, p in model.decoder.named_parameters() if p.dim() == 2]
    # Keys and values of the source are made once for each source token.
    once = {id(layer.cross.in_weight) for layer in model.decoder.layers}
    width = model.config.d_model
    with torch.inference_mode():
        for p in matrices:
            matrix = p[:width] if id(p) in once else p
            _multiply(matrix, tokens, rows)
            if id(p) in once:
                _multiply(p[width:], read, size * 20)
        _multiply(model.output.weight, tokens, rows)
        for p in model.encoder.parameters():
            if p.dim() == 2:
                _multiply(p, read, size * 20)


def _multiply(matrix: Tensor, count: int, rows: int) -> None:
    x = torch.ones(rows, matrix.shape[1])
    for _ in range(round(count / rows)):
        nn.functional.linear(x, matrix)


def seconds(work: Callable[[], object]) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    work()
    return clock() - start


def compare(shape: str, beam: int, *, quick: bool) -> dict[str, float]:
    """Milliseconds a sentence for both, at batch 1 and at the best batch, and the ratios."""
    torch.manual_seed(0)
    peer = random_marian(init_std=0.05, **SHAPES[shape])
    pad = peer.config.pad_token_id
    engine = TorchEngine(from_marian(peer), SpecialIds(pad, pad, END), batch_tokens=2**30)
    sizes = SIZES[shape]
    many = sentences(max(sizes) // (2 if quick else 1), SHAPES[shape]["vocab"])
    few = many[: 2 if quick else 6]
    mine, other = ours(engine, many, beam, sizes[0]), theirs(peer, many, beam, sizes[0])
    equal = sum(a == b for a, b in zip(mine, other, strict=True))
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(3):
        for size in [1, *sizes]:
            work = few if size == 1 else many
            turns = [("ours", ours, engine), ("theirs", theirs, peer), ("floor", products, engine)]
            for name, way, model in turns:
                took = seconds(lambda w=way, m=model, s=size, x=work: w(m, x, beam, s))
                times.setdefault((name, size), []).append(took / len(work) * 1000)
    names = ("ours", "theirs", "floor")
    one = {name: median(times[name, 1]) for name in names}
    best = {name: min((median(times[name, s]), s) for s in sizes) for name in names}
    floor = median(times["floor", best["ours"][1]]) / best["ours"][0]
    print(
        f"{shape:6} {beam:4} {one['ours']:9.1f} {one['theirs']:9.1f} "
        f"{one['theirs'] / one['ours']:6.2f}x {one['floor'] / one['ours']:5.0%} "
        f"{best['ours'][0]:9.1f} {best['theirs'][0]:9.1f} "
        f"{best['theirs'][0] / best['ours'][0]:6.2f}x {floor:5.0%}  "
        f"{best['ours'][1]}/{best['theirs'][1]}  {equal}/{len(many)}",
        flush=True,
    )
    return {
        f"{shape}.{beam}.batch1": one["theirs"] / one["ours"],
        f"{shape}.{beam}.batch1.floor": one["floor"] / one["ours"],
        f"{shape}.{beam}.best": best["theirs"][0] / best["ours"][0],
        f"{shape}.{beam}.best.floor": floor,
        f"{shape}.{beam}.same": equal / len(many),
    }


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Print the table and give back the ratios, how many times faster than `generate`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks decoding")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--shape", choices=list(SHAPES))
    parser.add_argument("--beam-size", type=int, choices=[1, 4])
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"{torch.get_num_threads()} threads; ms a sentence")
    print(
        "shape  beam      ours    theirs  ratio floor      best    theirs  ratio floor batch same"
    )
    ratios: dict[str, float] = {}
    rows = []
    for shape in [options.shape] if options.shape else SHAPES:
        for beam in [options.beam_size] if options.beam_size else (1, 4):
            ratios.update(compare(shape, beam, quick=options.quick))
            name = f"{shape}.{beam}"
            rows.append([
                shape, str(beam),
                f"{ratios[f'{name}.batch1']:.2f}x", f"{ratios[f'{name}.best']:.2f}x",
                f"{ratios[f'{name}.best.floor']:.0%}", f"{ratios[f'{name}.same']:.0%}",
            ])  # fmt: skip
    return {
        "title": "Decoding with the torch engine",
        "table": {
            "columns": ["model", "beam", "one sentence at a time", "best batch of each",
                        "of that, bare matrix products", "same outputs"],
            "rows": rows,
        },
        "note": f"how many times faster than Hugging Face's `generate`, same random weights; "
        f"{torch.get_num_threads()} threads; small has a vocabulary of 8,000, base of 32,000.",
        "ratios": ratios,
    }  # fmt: skip
