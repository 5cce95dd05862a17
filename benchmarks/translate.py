"""`pellucid translate` of many sentences against CTranslate2 called directly.

    python -m benchmarks translate [--model NAME|DIR] [--sentences 10000] [--rounds 3] [--file F]

The same sentences and the same trained model (the embedded one, unless named) on both sides,
tokenizing included, in one process without PyTorch, taking turns. "direct" is the best way known:
SentencePiece in a batch, all sentences in one call, batches by tokens, one batch a core. It also
compares batch sizes and ways to share out the cores. The sentences are those of recipes/toy, drawn
at random, if the model reads French or English; for another language give a file of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SIZES = (256, 512, 1024, 2048, 4096)


def sentences(language: str, count: int, file: Path | None = None) -> list[str]:
    """Sentences to translate: lines of a file, or made-up ones of the toy corpus."""
    if file is not None:
        lines = file.read_text(encoding="utf-8").splitlines()
    elif language in ("en", "fr"):
        toy = (ROOT / "recipes" / "toy" / "train.tsv").read_text(encoding="utf-8").splitlines()
        lines = [line.split("\t")[("en", "fr").index(language)] for line in toy]
    else:
        sys.exit(f"benchmarks: no sentences here in {language!r}: give a file with --file")
    return random.Random(1).choices(lines, k=count)


def bulk(model: str | None, count: int, rounds: int, file: str | None) -> dict[str, Any]:
    """Rates of both, and the ratio; runs in a process of its own."""
    import ctranslate2
    import sentencepiece

    import pellucid
    from pellucid.decoding import DecodingOptions
    from pellucid.translator.loading import open_bundle

    bundle = open_bundle(model)
    source, target = bundle.default_direction.split("-")
    lines = sentences(source, count, Path(file) if file else None)
    cores = len(os.sched_getaffinity(0))
    translator = pellucid.load(model, "ct2")
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{bundle.folder}/tokenizer.model")
    tags = [processor.id_to_piece(tag) for tag in bundle.tokenizer.tag_ids(target)]
    folder = str(bundle.ct2())
    engines = {
        "cores x 1": ctranslate2.Translator(folder, inter_threads=cores, intra_threads=1),
        "1 x cores": ctranslate2.Translator(folder, inter_threads=1, intra_threads=cores),
    }
    options = DecodingOptions()

    def direct(way: str, size: int, part: list[str]) -> list[str]:
        tokens = processor.encode(part, out_type=str, num_threads=cores)
        results = engines[way].translate_batch(
            [[*tags, *row, "</s>"] for row in tokens],
            max_batch_size=size, batch_type="tokens", beam_size=options.beam_size,
            patience=options.patience, max_decoding_length=256, max_input_length=0,
        )  # fmt: skip
        return processor.decode([processor.piece_to_id(r.hypotheses[0]) for r in results])

    def ours(part: list[str]) -> list[str]:
        return list(translator.translate_lines(part))

    few = lines[: max(200, count // 10)]
    found: dict[str, float] = {}
    for way, size in [("cores x 1", n) for n in SIZES] + [("1 x cores", 1024)]:
        start = time.perf_counter()
        direct(way, size, few)
        found[f"{way}, {size} tokens"] = len(few) / (time.perf_counter() - start)
    best = max(SIZES, key=lambda n: found[f"cores x 1, {n} tokens"])
    same = sum(a == b for a, b in zip(direct("cores x 1", best, few), ours(few), strict=True))
    ways = {"direct": lambda: direct("cores x 1", best, lines), "ours": lambda: ours(lines)}
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in sorted(ways, reverse=number % 2 == 1):
            start = time.perf_counter()
            ways[name]()
            took[name].append(time.perf_counter() - start)
    return {
        "model": bundle.folder.name,
        "direction": bundle.default_direction,
        "direct_by_way": found,
        "best_direct_batch": best,
        "same_outputs": same / len(few),
        "rate": {name: count / statistics.median(times) for name, times in took.items()},
        "times_direct": statistics.median(
            a / b for a, b in zip(took["ours"], took["direct"], strict=True)
        ),
    }


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks translate")
    parser.add_argument("--model")
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--file")
    options = parser.parse_args(arguments)
    given = (options.model, options.sentences, options.rounds, options.file)
    code = f"import json; from benchmarks.translate import bulk; print(json.dumps(bulk(*{given})))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit("benchmarks: translate failed: see above")
    result = json.loads(run.stdout.splitlines()[-1])
    print(json.dumps(result, indent=1))
    return {
        "title": "Translating many sentences",
        "table": {
            "columns": ["", "sentences a second", "time against direct"],
            "rows": [
                ["CTranslate2 called directly", f"{result['rate']['direct']:,.0f}", ""],
                ["pellucid", f"{result['rate']['ours']:,.0f}", f"{result['times_direct']:.2f}x"],
            ],
        },
        "note": f"the model {result['model']}, {result['direction']}, {options.sentences} short "
        f"sentences, beam 4; {result['same_outputs']:.1%} of the outputs are the same.",
        "goals": {"at most 1.10 times CTranslate2 called directly": result["times_direct"]},
        **result,
    }
