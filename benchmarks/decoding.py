"""The torch engine against Hugging Face's `generate`: same weights, same sentences, one run.

    python -m benchmarks.decoding [--quick] [--threads N] [--shape small|base]

Every output has the same fixed length on both sides (the end symbol is banned), so that neither
gains by stopping earlier; "same" counts equal outputs. Ours and theirs take turns, and the table
has the median of several rounds. "best" is the best batch size of each for itself. With one thread
it is processor time that counts, which a busy machine disturbs less than the clock on the wall.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from transformers import MarianMTModel

from pellucid.decoding import DecodingOptions, SpecialIds
from pellucid.decoding.torch_engine import TorchEngine
from tests.parity.marian import from_marian, random_marian

VOCAB = 32_000
END, PAD = 0, VOCAB - 1
OUTPUT = 24
SHAPES = {
    "small": {"width": 256, "inner": 1024, "heads": 4, "layers": (3, 3)},
    "base": {"width": 512, "inner": 2048, "heads": 8, "layers": (6, 6)},
}


def sentences(count: int) -> list[list[int]]:
    """Sources of 6 to 40 tokens, mostly around 20, with the end symbol last."""
    generator = torch.Generator().manual_seed(1)
    lengths = (torch.randn(count, generator=generator) * 8 + 20).clamp(6, 40).int().tolist()
    return [[*torch.randint(1, PAD, (n - 1,), generator=generator).tolist(), END] for n in lengths]


def theirs(peer: MarianMTModel, sources: list[list[int]], beam: int, size: int) -> list[list[int]]:
    """Their outputs in batches of `size`, sources sorted by length as ours are."""
    found: dict[int, list[int]] = {}
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    for at in range(0, len(order), size):
        batch = order[at : at + size]
        ids = torch.full((len(batch), len(sources[batch[0]])), PAD)
        for row, i in enumerate(batch):
            ids[row, : len(sources[i])] = torch.tensor(sources[i])
        with torch.inference_mode():
            output = peer.generate(
                input_ids=ids,
                attention_mask=(ids != PAD).long(),
                num_beams=beam,
                do_sample=False,
                max_length=OUTPUT + 1,
                min_length=OUTPUT + 1,
                bad_words_ids=[[PAD]],
                **({"early_stopping": True, "length_penalty": 1.0} if beam > 1 else {}),
            )
        found.update(zip(batch, output[:, 1:].tolist(), strict=True))
    return [found[i] for i in range(len(sources))]


def ours(engine: TorchEngine, sources: list[list[int]], beam: int, size: int) -> list[list[int]]:
    """Our outputs in batches of `size`."""
    options = DecodingOptions(
        beam=beam, max_length=OUTPUT, max_length_extra=1000, forbidden=frozenset({END})
    )
    found: dict[int, list[int]] = {}
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    for at in range(0, len(order), size):
        batch = order[at : at + size]
        results = engine.translate_ids([sources[i] for i in batch], options)
        found.update({i: list(r.best.tokens) for i, r in zip(batch, results, strict=True)})
    return [found[i] for i in range(len(sources))]


def seconds(work: Callable[[], object]) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    work()
    return clock() - start


def compare(shape: str, beam: int, *, quick: bool) -> dict[str, float]:
    """Milliseconds a sentence for both, at batch 1 and at the best batch, and the ratios."""
    torch.manual_seed(0)
    peer = random_marian(vocab=VOCAB, init_std=0.05, **SHAPES[shape])
    engine = TorchEngine(from_marian(peer), SpecialIds(PAD, PAD, END), batch_tokens=2**30)
    few = sentences(3 if quick else 8)
    many = sentences(32 if quick else 64)
    rounds = 3 if quick else 5
    sizes = [32] if quick else [8, 16, 32, 64]
    mine, other = ours(engine, many, beam, 16), theirs(peer, many, beam, 16)
    equal = sum(a == b for a, b in zip(mine, other, strict=True))
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for size in [1, *sizes]:
            work = few if size == 1 else many
            for name, way, model in [("ours", ours, engine), ("theirs", theirs, peer)]:
                took = seconds(lambda w=way, m=model, s=size, x=work: w(m, x, beam, s))
                times.setdefault((name, size), []).append(took / len(work) * 1000)
    one = {name: median(times[name, 1]) for name in ("ours", "theirs")}
    best = {
        name: min((median(times[name, size]), size) for size in sizes)
        for name in ("ours", "theirs")
    }
    print(
        f"{shape:6} {beam:4} {one['ours']:9.1f} {one['theirs']:9.1f} "
        f"{one['theirs'] / one['ours']:6.2f}x {best['ours'][0]:9.1f} {best['theirs'][0]:9.1f} "
        f"{best['theirs'][0] / best['ours'][0]:6.2f}x  {best['ours'][1]}/{best['theirs'][1]}"
        f"  {equal}/{len(many)}",
        flush=True,
    )
    return {
        f"{shape}.{beam}.batch1": one["theirs"] / one["ours"],
        f"{shape}.{beam}.best": best["theirs"][0] / best["ours"][0],
    }


def main(*, quick: bool = False, shapes: tuple[str, ...] = ("small", "base")) -> dict[str, float]:
    """Print the table and give back the ratios, how many times faster than `generate`."""
    print(f"{torch.get_num_threads()} threads; ms a sentence of {OUTPUT} output tokens, V={VOCAB}")
    print("shape  beam      ours    theirs  ratio |  ours best    theirs  ratio  batch  same")
    ratios: dict[str, float] = {}
    for shape in shapes:
        for beam in (1, 4):
            ratios.update(compare(shape, beam, quick=quick))
    return ratios


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--shape", choices=list(SHAPES))
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    main(
        quick=arguments.quick,
        shapes=(arguments.shape,) if arguments.shape else tuple(SHAPES),
    )
