"""`pellucid translate` against CTranslate2 called directly, and how soon it starts.

    python -m benchmarks.translate [--sentences 10000] [--rounds 3]

Bulk: the same sentences, the same small int8 model (random weights, so all outputs have the
longest length on both sides), tokenizing included on both sides, in one process without PyTorch,
taking turns. "direct" is the best way known: SentencePiece in a batch, all sentences in one call,
batches by tokens, one batch a core. It also compares batch sizes and ways to share out the cores.

Cold start: a new process each time, turns taken: `pellucid translate "bonjour"` and
`python -c "import ctranslate2, sentencepiece"`. Processor time, which a busy machine disturbs less,
stands beside the time on the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OUTPUT = 24  # tokens


def sentences(count: int) -> list[str]:
    """Made-up sentences of 4 to 30 words."""
    draw = random.Random(1)
    words = ["".join(draw.choices("aeioubcdlmnprst", k=draw.randint(2, 8))) for _ in range(9000)]
    made = []
    for _ in range(count):
        length = min(30, max(4, round(draw.gauss(14, 6))))
        made.append(" ".join(draw.choices(words, k=length)).capitalize() + ".")
    return made


def make_model(folder: Path) -> None:
    """A small model with random weights and a vocabulary of 8,000, int8."""
    import torch

    from pellucid.bundle import Bundle
    from pellucid.config import ModelConfig, TokenizerConfig
    from pellucid.decoding.ct2_bundle import add_ct2
    from pellucid.model import Transformer
    from pellucid.text.tokenizer import Tokenizer

    words = Tokenizer.train(sentences(5000), TokenizerConfig(vocab_size=8000), ("fr", "en"))
    torch.manual_seed(0)
    model = Transformer(ModelConfig.preset("small", vocab_size=words.vocab_size, output_bias=True))
    with torch.no_grad():
        model.output.bias[:6] = -40.0  # no special symbol: every output has the longest length
    add_ct2(
        Bundle.write(
            folder, model.config, model.state_dict(), words, directions=("fr-en",), about={}
        )
    )


def bulk(folder: str, count: int, rounds: int) -> dict[str, float]:
    """Seconds of both, and the ratio; runs in a process of its own."""
    import ctranslate2
    import sentencepiece

    import pellucid
    from pellucid.decoding import DecodingOptions

    lines = sentences(count)
    patience = DecodingOptions().patience
    cores = len(os.sched_getaffinity(0))
    translator = pellucid.load(folder, "ct2")
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer.model")
    engines = {
        "cores x 1": ctranslate2.Translator(f"{folder}/ct2", inter_threads=cores, intra_threads=1),
        "1 x cores": ctranslate2.Translator(f"{folder}/ct2", inter_threads=1, intra_threads=cores),
    }

    def direct(way: str, size: int, part: list[str]) -> list[str]:
        tokens = processor.encode(part, out_type=str, num_threads=cores)
        results = engines[way].translate_batch(
            [["<2en>", *row, "</s>"] for row in tokens],
            max_batch_size=size, batch_type="tokens", beam_size=4, patience=patience,
            max_decoding_length=OUTPUT, min_decoding_length=0, max_input_length=0,
        )  # fmt: skip
        ids = [processor.piece_to_id(r.hypotheses[0]) for r in results]
        return processor.decode(ids)

    def ours(part: list[str]) -> list[str]:
        return list(translator.translate_lines(part, max_length=OUTPUT))

    few = lines[: max(200, count // 10)]
    found: dict[str, float] = {}
    for way, size in [("cores x 1", n) for n in (256, 512, 1024, 2048, 4096)] + [
        ("1 x cores", 1024)
    ]:
        start = time.perf_counter()
        direct(way, size, few)
        found[f"direct, {way}, {size} tokens"] = len(few) / (time.perf_counter() - start)
    best = max((n for n in (256, 512, 1024, 2048, 4096)), key=lambda n: found[
        f"direct, cores x 1, {n} tokens"])  # fmt: skip
    same = sum(a == b for a, b in zip(direct("cores x 1", best, few), ours(few), strict=True))
    ratios, rates = [], []
    for number in range(rounds):
        turns = {"direct": lambda: direct("cores x 1", best, lines), "ours": lambda: ours(lines)}
        took = {}
        for name in sorted(turns, reverse=number % 2 == 1):
            start = time.perf_counter()
            turns[name]()
            took[name] = time.perf_counter() - start
        ratios.append(took["ours"] / took["direct"])
        rates.append(count / took["ours"])
    return found | {
        "best direct batch": best,
        "same outputs": same / len(few),
        "sentences a second": statistics.median(rates),
        "time over direct": statistics.median(ratios),
    }


def cold(folder: str, rounds: int) -> dict[str, float]:
    """Seconds to start, on the clock and of the processor, and the ratios."""
    contestants = {
        "pellucid": [sys.executable, "-m", "pellucid", "translate", "--model", folder, "bonjour"],
        "imports": [sys.executable, "-c", "import ctranslate2, sentencepiece"],
    }
    # An installed package has its compiled files; let the first round write them.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    clock: dict[str, list[float]] = {name: [] for name in contestants}
    work: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds + 1):  # the first warms the disk's cache
        for name, command in contestants.items():
            before, start = os.times(), time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=environment)
            clock[name].append(time.perf_counter() - start)
            after = os.times()
            work[name].append(
                after.children_user + after.children_system
                - before.children_user - before.children_system
            )  # fmt: skip
    pairs = zip(clock["pellucid"][1:], clock["imports"][1:], strict=True)
    return {
        "clock": statistics.median(clock["pellucid"][1:]),
        "processor": statistics.median(work["pellucid"][1:]),
        "clock, times the imports": statistics.median(a / b for a, b in pairs),
        "processor, times the imports": min(work["pellucid"][1:]) / min(work["imports"][1:]),
    }


def main(count: int = 10_000, rounds: int = 3) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as workspace:
        folder = str(Path(workspace) / "model")
        make_model(Path(folder))
        code = (
            "import json; from benchmarks.translate import bulk; "
            f"print(json.dumps(bulk({folder!r}, {count}, {rounds})))"
        )
        run = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        result = {"bulk": json.loads(run.stdout), "cold start": cold(folder, 9)}
    print(json.dumps(result, indent=1))
    return {"sentences": count, **result}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    main(arguments.sentences, arguments.rounds)
