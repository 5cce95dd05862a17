"""One small trained model for all tests that need one: made once in a test session.

Two made-up languages (`made_up_language`), trained by the command `pellucid train` in about 25
seconds of one core. With several test processes, the first that asks trains and the others wait.
"""

import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pellucid.bundle import Bundle
from tests.learn.made_up_language import sentences, write

RECIPE = """
title = "Two made-up languages"
[data]
directions = ["xa-xb"]
[[data.train]]
path = "train.tsv"
languages = ["xa", "xb"]
[[data.valid]]
path = "valid.tsv"
languages = ["xa", "xb"]
[tokenizer]
vocab_size = 360
[batches]
max_tokens = 2000
[model]
preset = "tiny"
d_model = 64
d_ff = 128
encoder_layers = 2
decoder_layers = 2
norm = "pre"
[training]
steps = 250
seed = 1
optimizer = "muon"
learning_rate = 0.005
warmup_steps = 20
schedule = "warmup_stable_decay"
decay_fraction = 0.5
[validation]
every = 125
sentences = 50
[early_stopping]
metric = "bleu"
"""
_TRAIN, _VALID, _UNSEEN = 1500, 100, 520


@dataclass(frozen=True)
class Trained:
    """A finished run."""

    folder: Path
    """Where the command was run; the run is in runs/toy."""
    printed: str
    """What the command wrote to standard output."""

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.folder / "runs" / "toy"

    @cached_property
    def bundle(self) -> Bundle:
        """The model."""
        return Bundle.open(self.run / "bundle")

    @cached_property
    def unseen(self) -> list[tuple[str, str]]:
        """Sentence pairs that it did not learn from."""
        return sentences(_TRAIN + _VALID + _UNSEEN)[_TRAIN + _VALID :]


def trained_once(folder: Path) -> Trained:
    """The run in a folder that all test processes share, made by the first that comes."""
    folder.mkdir(parents=True, exist_ok=True)
    printed = folder / "printed.txt"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            draft = folder / "printed.draft"
            draft.write_text(_train(folder), encoding="utf-8")
            draft.rename(printed)
    return Trained(folder, printed.read_text(encoding="utf-8"))


def _train(folder: Path) -> str:
    pairs = sentences(_TRAIN + _VALID)
    write(folder / "train.tsv", pairs[:_TRAIN])
    write(folder / "valid.tsv", pairs[_TRAIN:])
    (folder / "toy.toml").write_text(RECIPE, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pellucid", "train", "toy.toml"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1500,  # on a busy machine
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
