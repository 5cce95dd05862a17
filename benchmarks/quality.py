"""The best model of Multi30k's 29,000 pairs alone, and how good it is on test 2016.

    python -m benchmarks quality --from FOLDER_WITH_MULTI30K [--pair en-de|en-fr] [--test]
        [--data data/multi30k-en-de] [--folder runs/quality] [--threads N]

It trains with recipes/multi30k-en-de.toml or -en-fr.toml by the very command `pellucid train`, and
goes on where it was interrupted.

It prints the scores on validation, by which every choice is to be made; the test set is looked at
with --test only, once, at the end, and only then is a result written. Two scores: sacreBLEU of the
translations as they are; and, for German, of the translations lower-cased and tokenised, against
the corpus's own tokenised references, which is how text-only models of this size are published.
"""

import argparse
import gzip
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import matmul_gflops
from benchmarks.multi30k import ROOT, pairs_of, parsed, parser_for, train

RECIPES = ROOT / "recipes"
BEAM = 5
GOALS = {
    "en-de": {"cased": 39.7, "lower-cased and tokenised": 41.02},
    "en-fr": {"cased": 57.0},
}
TOKENISED = {"valid": "val.lc.norm.tok.de.gz", "test": "test_2016_flickr.lc.norm.tok.de.gz"}
_SHORTENED = "bzw|ca|usw|z\\.b|d\\.h|st|nr|evtl|u\\.a|dr"


def moses_like(text: str) -> str:
    """A German line lower-cased, normalised and tokenised as Multi30k's own files are.

    Of the 1,014 references of the validation set it makes 1,013 the same as theirs.
    """
    text = text.lower()
    text = re.sub(r"[„“”»«]|''", '"', text)
    text = re.sub(r"[‚‘’´`]", "'", text)
    text = re.sub(r"[–—]", " - ", text).replace("…", "...")
    text = re.sub(r"([^\w\s.',\-])", r" \1 ", text)
    text = re.sub(r"\.(\.+)", r" .\1 ", text)
    text = re.sub(r"(?<!\d),|,(?!\d)", " , ", text)
    text = text.replace("'", " ' ")
    text = re.sub(r"(\w)\.\s*$", r"\1 .", text)
    text = re.sub(r"\.\s*([\")])\s*$", r" . \1", text)
    text = re.sub(rf"\b(?!(?:{_SHORTENED})\.)(\w{{2,}})\.(?=\s)", r"\1 .", text)
    return " ".join(text.split()).replace('"', "&quot;").replace("'", "&apos;")


def translate(model: Path, lines: Sequence[str], out: Path, beam: int) -> list[str]:
    """`pellucid translate`, a line for a line, unless that was done."""
    if not out.is_file():
        draft = out.with_suffix(".draft")
        with draft.open("w", encoding="utf-8") as file:
            subprocess.run(
                [sys.executable, "-m", "pellucid", "translate", "--model", str(model),
                 "--beam", str(beam)],
                input="".join(f"{line}\n" for line in lines), text=True, encoding="utf-8",
                stdout=file, check=True,
            )  # fmt: skip
        draft.rename(out)
    found = out.read_text(encoding="utf-8").split("\n")[:-1]
    if len(found) != len(lines):
        raise SystemExit(f"{out} has {len(found)} lines for {len(lines)}: remove it")
    return found


def core_minutes(run: Path, threads: int) -> float:
    """Minutes of a core that a run trained: by its median step, for other work may be beside."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    steps = [row["seconds"] for row in rows if row["kind"] == "step"]
    return statistics.median(steps) * len(steps) * threads / 60


def scores(
    split: str, model: Path, folder: Path, options: argparse.Namespace
) -> dict[str, tuple[float, str]]:
    """BLEU with its signature, by the name of how it is counted."""
    from sacrebleu.metrics import BLEU

    pairs = pairs_of(options.data, split)
    made = translate(model, [a for a, _ in pairs], folder / f"{split}.txt", BEAM)
    plain = BLEU()
    found = {"cased": (plain.corpus_score(made, [[b for _, b in pairs]]).score,
                       str(plain.get_signature()))}  # fmt: skip
    theirs = options.origin / TOKENISED[split] if options.origin else None
    if options.pair == "en-de" and theirs is not None and theirs.is_file():
        with gzip.open(theirs, "rt", encoding="utf-8", newline="\n") as file:
            references = [line.rstrip("\n") for line in file]
        bare = BLEU(tokenize="none")
        score = bare.corpus_score([moses_like(line) for line in made], [references])
        found["lower-cased and tokenised"] = (score.score, str(bare.get_signature()))
    return found


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    parser = parser_for("quality")
    parser.add_argument("--pair", choices=tuple(GOALS), default="en-de")
    parser.add_argument("--from", dest="origin", type=Path, help="Multi30k as it came")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--test", action="store_true", help="look at the test set")
    pair = parser.parse_known_args(arguments)[0].pair
    parser.set_defaults(data=ROOT / "data" / f"multi30k-{pair}")
    options = parsed(parser, arguments)
    folder = options.folder / options.pair
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / "model"
    if not (run / "bundle").is_dir():
        recipe = RECIPES / f"multi30k-{options.pair}.toml"
        train(recipe, run, options, options.set, quiet=False)
    found = {}
    for split in ("valid", "test") if options.test else ("valid",):
        found[split] = scores(split, run / "bundle", folder, options)
        for name, (score, signature) in found[split].items():
            print(f"{options.pair}, {split}, {name}: {score:.2f} {signature}", flush=True)
    if not options.test:
        raise SystemExit("the test set was not looked at, and nothing is written: --test")
    return _result(options, folder, found)


def _result(
    options: argparse.Namespace, folder: Path, found: dict[str, dict[str, tuple[float, str]]]
) -> dict[str, Any]:
    """This pair's scores, with those of the other pair if it was measured before."""
    from pellucid.bundle import Bundle
    from pellucid.model import Transformer

    model = Bundle.open(folder / "model" / "bundle")
    mine = {
        "scores": found,
        "core minutes": core_minutes(folder / "model", options.threads),
        "parameters": Transformer(model.config).num_parameters(),
        "set": options.set,
    }
    kept = ROOT / "benchmarks" / "results" / "quality.json"
    before = json.loads(kept.read_text(encoding="utf-8"))["pairs"] if kept.is_file() else {}
    pairs = {**before, options.pair: mine}
    rows, goals = [], {}
    for pair, one in sorted(pairs.items()):
        for name, (score, _) in one["scores"]["test"].items():
            goal = GOALS[pair][name]
            rows.append([pair, name, f"{one['scores']['valid'][name][0]:.1f}", f"{score:.1f}",
                         f"{one['parameters'] / 1e6:.1f} M",
                         f"{one['core minutes']:.0f}"])  # fmt: skip
            goals[f"{pair}, {name}: at least {goal}"] = score
    signatures = {sign for one in pairs.values() for _, sign in one["scores"]["test"].values()}
    return {
        "title": "Quality on Multi30k",
        "table": {
            "columns": ["", "BLEU", "validation", "test 2016", "parameters",
                        "minutes of one core"],
            "rows": rows,
        },
        "note": f"Multi30k's pairs alone; beam {BEAM}; {', '.join(sorted(signatures))}.",
        "goals": goals,
        "matmul_gflops": matmul_gflops(),
        "pairs": pairs,
    }  # fmt: skip
