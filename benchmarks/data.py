"""Pairs prepared and tokens delivered a second, against Hugging Face `datasets` at the same work.

Preparation: read tab-separated text, clean it by the same rules, cut both sides into pieces with
the same SentencePiece model, and have it on disk. Ours also finds duplicates, hashes every file and
writes safely. Delivery: an epoch of the same batches (4,096 tokens, both directions), padded
int64 arrays; `datasets` is asked for the same rows of the same plan. A made-up corpus.

`python -m benchmarks.data FIRST SECOND` reports the padding on two parallel files instead.
"""

import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Timing, paired_ratio, race
from pellucid.config import BatchConfig, CleaningConfig, CorpusConfig, DataConfig, TokenizerConfig
from pellucid.data.batches import Batches, padding
from pellucid.data.cleaning import is_dropped, judge
from pellucid.data.corpus import Pair
from pellucid.data.prepare import prepare
from pellucid.data.store import PreparedData
from pellucid.tokenizers.sentencepiece import Tokenizer

PAIRS = 100_000
ROUNDS = 5
SYLLABLES = ("ba", "ri", "to", "né", "lou", "ska", "mi", "dro", "fe", "gan", "tis", "qué", "ment")


def write_corpus(path: Path, pairs: int) -> None:
    """Sentences of made-up words, used as often as words of a language are (Zipf)."""
    generator = random.Random(0)
    words = ["".join(generator.choices(SYLLABLES, k=generator.randint(1, 4))) for _ in range(20000)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))

    def sentence() -> str:
        count = max(2, round(generator.gauss(11, 4)))
        return " ".join(generator.choices(words, cum_weights=weights, k=count)).capitalize() + "."

    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{sentence()}\t{sentence()}\n" for _ in range(pairs))


_tokenizers: dict[str, Tokenizer] = {}


def _fit(first: list[str], second: list[str]) -> list[bool]:
    config = CleaningConfig()
    pairs = (Pair(a or "", b or "", 1) for a, b in zip(first, second, strict=True))
    return [not is_dropped(judge(pair, config)[0], config) for pair in pairs]


def _tokens(first: list[str], second: list[str], model: str) -> dict[str, list[list[int]]]:
    tokenizer = _tokenizers.setdefault(model, Tokenizer.load(model))
    return {"a": tokenizer.encode_batch(first), "b": tokenizer.encode_batch(second)}


def their_preparation(corpus: Path, model: Path, folder: Path, processes: int) -> None:
    import datasets

    datasets.disable_progress_bars()
    shutil.rmtree(folder, ignore_errors=True)
    options = {"sep": "\t", "names": ["first", "second"], "quoting": 3}
    rows = datasets.Dataset.from_csv(str(corpus), cache_dir=str(folder / "cache"), **options)
    workers = processes if processes > 1 else None
    columns = ["first", "second"]
    rows = rows.filter(_fit, batched=True, input_columns=columns, num_proc=workers)
    rows = rows.map(
        _tokens,
        batched=True,
        input_columns=columns,
        remove_columns=columns,
        fn_kwargs={"model": str(model)},
        num_proc=workers,
    )
    rows.save_to_disk(folder / "store")


def our_preparation(
    corpus: Path, tokenizer: Tokenizer, folder: Path, processes: int
) -> PreparedData:
    shutil.rmtree(folder, ignore_errors=True)
    source = CorpusConfig(path=corpus, languages=("en", "fr"))
    data = DataConfig(directions=("en-fr", "fr-en"), train=(source,))
    return prepare(data, tokenizer, folder, workers=processes)


def their_epoch(folder: Path, batches: Batches) -> int:
    """The batches of our plan, fetched from a `datasets` store and padded."""
    import datasets

    rows = datasets.load_from_disk(str(folder / "store"))
    plan = batches._planner.plan(0)
    tokens = 0

    def padded(sentences: list[list[int]]) -> np.ndarray:
        matrix = np.zeros((len(sentences), max(map(len, sentences))), np.int64)
        for row, ids in zip(matrix, sentences, strict=True):
            row[: len(ids)] = ids
        return matrix

    for begin, end in zip(plan.begin, plan.end, strict=True):
        chosen = rows[plan.pairs[begin:end]]
        ways = plan.directions[begin:end]
        pairs = list(zip(chosen["a"], chosen["b"], ways, strict=True))
        source = padded([[5 - way, *(b if way else a), 3] for a, b, way in pairs])
        target = [a if way else b for a, b, way in pairs]
        target_in, target_out = padded([[2, *t] for t in target]), padded([[*t, 3] for t in target])
        tokens += np.count_nonzero(source) + np.count_nonzero(target_out)
        assert target_in.shape == target_out.shape
    return tokens


def our_epoch(folder: Path, config: BatchConfig) -> int:
    batches = Batches(PreparedData.open(folder), config)
    return sum(batch.source_tokens + batch.target_tokens for batch in batches.epoch(0))


def waiting(prepared: PreparedData, config: BatchConfig, step: float = 0.03) -> tuple[float, float]:
    """Seconds a step of `step` seconds waits for its batch, and seconds a batch takes to make."""
    alone = Batches(prepared, config.changed(prefetch=0))
    alone.steps(0)
    start = time.perf_counter()
    made = sum(1 for _ in zip(range(100), alone.epoch(0), strict=False))
    making = (time.perf_counter() - start) / made
    reader = Batches(prepared, config).epoch(0)
    next(reader)
    waits = []
    for _ in range(60):
        time.sleep(step)
        start = time.perf_counter()
        next(reader)
        waits.append(time.perf_counter() - start)
    reader.close()
    return float(np.median(waits)), making


def show(title: str, timings: dict[str, Timing], amount: int, unit: str, base: str) -> dict:
    table = Table(title=title, title_justify="left")
    for column in ("", f"{unit}/s", "spread", f"times {base}"):
        table.add_column(column, justify="right" if column else "left")
    result = {}
    for name, timing in timings.items():
        ratio = paired_ratio(timings[base], timing)
        rate = amount / timing.median
        table.add_row(name, f"{rate:,.0f}", f"{timing.spread:.0%}", f"{ratio:.2f}")
        result[name] = {f"{unit}_per_second": rate, f"times {base}": ratio}
    Console().print(table)
    return result


def main() -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HF_HOME"] = str(folder / "hf")
        corpus, model = folder / "corpus.tsv", folder / "tokenizer.model"
        write_corpus(corpus, PAIRS)
        ours, theirs = folder / "ours", folder / "theirs"
        kept = our_preparation(corpus, _learn(corpus, model), ours, 1)
        tokenizer = kept.tokenizer
        preparation = race(
            {
                "datasets, 1 process": lambda: their_preparation(corpus, model, theirs, 1),
                "datasets, 2 processes": lambda: their_preparation(corpus, model, theirs, 2),
                "pellucid, 1 process": lambda: our_preparation(corpus, tokenizer, ours, 1),
                "pellucid, 2 processes": lambda: our_preparation(corpus, tokenizer, ours, 2),
            },
            rounds=ROUNDS,
        )
        prepared = PreparedData.open(ours)
        config = BatchConfig()
        batches = Batches(prepared, config)
        tokens = our_epoch(ours, config)
        assert their_epoch(theirs, batches) == tokens  # both do the same
        delivery = race(
            {
                "datasets": lambda: their_epoch(theirs, batches),
                "pellucid, in turn": lambda: our_epoch(ours, config.changed(prefetch=0)),
                "pellucid": lambda: our_epoch(ours, config),
            },
            rounds=ROUNDS,
        )
        wait, making = waiting(prepared, config)
        print(
            f"a step waits {wait * 1e6:.0f} us for a batch that takes {making * 1e6:.0f} us to make"
        )
        done = {
            "prepared": show("Prepared", preparation, PAIRS, "pairs", "datasets, 1 process"),
            "delivered": show("Delivered", delivery, tokens, "tokens", "datasets"),
        }
        rows = [
            [f"{what}: {name}", *(f"{rate:,.0f} {unit.replace('_per_', ' a ')}, {times:.2f}x"
             for (unit, rate), (_, times) in [list(one.items())])]
            for what, contestants in done.items()
            for name, one in contestants.items()
        ]  # fmt: skip
        return {
            "title": "Preparing and delivering data",
            "table": {"columns": ["", "rate, and against Hugging Face datasets"], "rows": rows},
            "note": f"{PAIRS:,} made-up pairs; a step waits {wait * 1e6:.0f} microseconds for its "
            f"batch, which takes {making * 1e6:.0f} to make.",
            "pairs": PAIRS,
            **done,
            "padding": padding(list(Batches(prepared, config).epoch(0))),
            "wait_seconds": wait,
            "making_seconds": making,
        }


def _learn(corpus: Path, model: Path) -> Tokenizer:
    lines = corpus.read_text(encoding="utf-8").splitlines()[:10_000]
    texts = [side for line in lines for side in line.split("\t")]
    tokenizer = Tokenizer.train(texts, TokenizerConfig(vocab_size=4000))
    tokenizer.save(model)
    return tokenizer


def report_padding(first: str, second: str, vocab_size: int = 8000) -> None:
    """Padding at 4,096 tokens on two parallel files, in one direction and in both."""
    corpus = CorpusConfig(source=first, target=second, languages=("aa", "bb"))
    for directions in (("aa-bb",), ("aa-bb", "bb-aa")):
        with tempfile.TemporaryDirectory() as folder:
            data = DataConfig(directions=directions, train=(corpus,))
            prepared = prepare(data, TokenizerConfig(vocab_size=vocab_size), folder)
            batches = list(Batches(prepared, BatchConfig()).epoch(0))
            count = len(prepared.splits["train"])
            print(f"{directions}: {count:,} pairs, {len(batches)} batches, {padding(batches):.2%}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        report_padding(sys.argv[1], sys.argv[2])
    else:
        main()
