"""What a sequence costs by its length: one encoder layer against one layer of an LSTM.

    python -m docs.experiments.cost

CPU time on one thread, medians of interleaved rounds; the arithmetic is counted, so the rate at
which each does it is known too.
"""

import math
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from docs.experiments.results import save
from pellucid.drawing.svg import Curve, line_chart
from pellucid.model import EncoderOnly, ModelConfig, attend

WIDTH, INNER, HEADS = 128, 512, 4
LENGTHS = (64, 128, 256, 512, 1024, 2048)
ROUNDS = 5


def cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def arithmetic(length: int) -> dict[str, float]:
    """Floating-point operations of the matrix products."""
    per_token = 2 * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER)
    between = 4 * length * length * WIDTH
    return {
        "encoder layer": length * per_token + between,
        "attention alone": between,
        "LSTM layer": length * 2 * 8 * WIDTH * WIDTH,
    }


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    config = ModelConfig.preset(
        "tiny",
        vocab_size=16,
        d_model=WIDTH,
        d_ff=INNER,
        num_heads=HEADS,
        encoder_layers=1,
        position_encoding="none",
    )
    layer = EncoderOnly(config).eval().encoder
    lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True).eval()
    seconds: dict[str, dict[int, float]] = {name: {} for name in arithmetic(1)}
    for length in LENGTHS:
        x = torch.randn(1, length, WIDTH)
        q = torch.randn(1, HEADS, length, WIDTH // HEADS)
        ways: dict[str, Callable[[], object]] = {
            "encoder layer": lambda x=x: layer(x),
            "attention alone": lambda q=q: attend(q, q, q),
            "LSTM layer": lambda x=x: lstm(x),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, work in ways.items():
                work()
                taken[name].append(min(cpu_seconds(work) for _ in range(3)))
        for name, times in taken.items():
            seconds[name][length] = statistics.median(times)
        print(length, {name: round(1e3 * seconds[name][length], 2) for name in ways}, flush=True)
    rates = {
        name: {n: arithmetic(n)[name] / t / 1e9 for n, t in times.items()}
        for name, times in seconds.items()
    }
    half, last = LENGTHS[-2], LENGTHS[-1]
    growth = {name: math.log2(times[last] / times[half]) for name, times in seconds.items()}
    curves = [
        Curve(name, [(float(n), 1e3 * t) for n, t in times.items()], place + 1, dots=True)
        for place, (name, times) in enumerate(seconds.items())
    ]
    about = {"width": WIDTH, "feed_forward": INNER, "heads": HEADS, "threads": 1, "rounds": ROUNDS}
    save(
        "cost",
        line_chart("CPU milliseconds for one sequence", curves, "tokens", log=True),
        {
            "about": about,
            "seconds": seconds,
            "billion_operations_a_second": rates,
            "growth_exponent_from_1024_to_2048": growth,
        },
        ["tokens", *(f"{name}: ms, billion operations a second" for name in seconds)],
        [
            [n, *(f"{1e3 * seconds[name][n]:.2f}, {rates[name][n]:.0f}" for name in seconds)]
            for n in LENGTHS
        ],
    )


if __name__ == "__main__":
    main()
