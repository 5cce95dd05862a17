"""Hugging Face's Marian learns by the classic recipe; runs in the peers' environment.

    python quality.py train FOLDER SHAPE THREADS MINUTES EVERY
    python quality.py translate FOLDER SPLIT STEP BEAM_SIZE THREADS

FOLDER has train.npz and SPLIT.npz (see plain.py). Training writes weights-STEP.pt after each EVERY
minutes of training, whose time does not count, and state.pt to go on from; minutes.json says how
many minutes of training each step took. Translating prints a line of ids for each sentence.
"""

import json
import math
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from plain import batches_of, load_rows, padded
from torch import nn
from training import marian

WARMUP_STEPS, PEAK, MAX_TOKENS = 500, 1e-3, 1024


def learning_rate(step: int) -> float:
    """Linear warm-up, then inverse square root."""
    return PEAK * min(step / WARMUP_STEPS, math.sqrt(WARMUP_STEPS / step))


def train(folder: Path, shape: dict, threads: int, minutes: float, every: float) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    rows = load_rows(str(folder / "train.npz"))
    model = marian(shape).train()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    place = {"step": 0, "epoch": 0, "batch": 0, "seconds": 0.0, "minutes": {}}
    if (folder / "state.pt").is_file():
        saved = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        place = saved["place"]
    while True:
        batches = batches_of(rows, MAX_TOKENS, place["epoch"])
        while place["batch"] < len(batches):
            if place["seconds"] >= 60 * minutes:
                save(folder, model, optimizer, place)
                return
            began = time.monotonic()
            step(
                model,
                optimizer,
                batches[place["batch"]],
                shape["label_smoothing"],
                place["step"] + 1,
            )
            place["step"] += 1
            place["batch"] += 1
            place["seconds"] += time.monotonic() - began
            if place["seconds"] >= 60 * every * (len(place["minutes"]) + 1):
                save(folder, model, optimizer, place)
        place["epoch"], place["batch"] = place["epoch"] + 1, 0


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch, label_smoothing: float, number: int
):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(number)
    torch.manual_seed(number)
    source, target, labels = (torch.from_numpy(array) for array in batch)
    optimizer.zero_grad(set_to_none=True)
    logits = model(
        input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=target,
        use_cache=False,
    ).logits  # fmt: skip
    loss = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=label_smoothing
    )
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert math.isfinite(loss.item())


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, place: dict) -> None:
    place["minutes"][str(place["step"])] = place["seconds"] / 60
    torch.save(model.state_dict(), folder / f"weights-{place['step']}.pt")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "place": place}
    torch.save(state, folder / "state.writing")
    (folder / "state.writing").replace(folder / "state.pt")
    (folder / "minutes.json").write_text(json.dumps(place["minutes"]))


def translate(folder: Path, split: str, number: str, beam: int, threads: int) -> None:
    torch.set_num_threads(threads)
    model = marian(json.loads((folder / "shape.json").read_text())).eval()
    model.load_state_dict(torch.load(folder / f"weights-{number}.pt", weights_only=True))
    sources = [row[0] for row in load_rows(str(folder / f"{split}.npz"))]
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    found = {}
    for start in range(0, len(order), 32):
        some = order[start : start + 32]
        ids = torch.from_numpy(padded([sources[i] for i in some]))
        with torch.inference_mode():
            output = model.generate(
                input_ids=ids, attention_mask=(ids != 0).long(), num_beams=beam, do_sample=False,
                max_length=2 * ids.shape[1] + 10, bad_words_ids=[[0]],
            )  # fmt: skip
        for i, row in zip(some, output.tolist(), strict=True):
            row = row[1:]
            found[i] = row[: row.index(3)] if 3 in row else row
    for i in range(len(sources)):
        print(json.dumps([token for token in found[i] if token not in (0, 2)]))


if __name__ == "__main__":
    place = Path(sys.argv[2])
    if sys.argv[1] == "train":
        described, *numbers = sys.argv[3:]
        (place / "shape.json").write_text(described)
        train(place, json.loads(described), int(numbers[0]), float(numbers[1]), float(numbers[2]))
    else:
        translate(place, sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
