"""What the benchmarks that train on Multi30k share: where it is, and the command that trains."""

import argparse
import gzip
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
QUICK = ROOT / "recipes" / "multi30k-quick.toml"


def parser_for(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}")
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "multi30k-en-de")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / name)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options, if the corpus is there."""
    options = parser.parse_args(arguments)
    if not (options.data / "test.tsv.gz").is_file():
        parser.error(
            f"no Multi30k in {options.data}: prepare it with `pellucid data multi30k "
            "data/multi30k-en-de --from FOLDER --pair en-de`, or say where it is with --data"
        )
    return options


def pairs_of(data: Path, split: str, most: int | None = None) -> list[tuple[str, str]]:
    with gzip.open(data / f"{split}.tsv.gz", "rt", encoding="utf-8", newline="\n") as file:
        return [tuple(line.rstrip("\n").split("\t")[:2]) for line in file][:most]


def train(
    recipe: Path, folder: Path, options: argparse.Namespace, settings: Sequence[str], *, quiet: bool
) -> None:
    """The command a person would give; it goes on where it was interrupted. No test set."""
    command = [sys.executable, "-m", "pellucid", "train", str(recipe), "--resume"]
    paths = [
        f"data.{split}.0.path={(options.data / split).resolve()}.tsv.gz"
        for split in ("train", "valid")
    ]
    threads = f"training.threads={options.threads}"
    for setting in (*paths, "data.test=[]", threads, *settings):
        command += ["--set", setting]
    subprocess.run(
        [*command, "--folder", str(folder)],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL if quiet else None,
    )
