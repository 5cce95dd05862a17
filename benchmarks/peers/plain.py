"""Batches as a plain loop makes them: shuffle, sort pools by length, cut, pad with 0."""

import random
from collections.abc import Sequence

import numpy as np

Row = tuple[np.ndarray, np.ndarray, np.ndarray]
POOL = 100  # batches


def batches_of(rows: Sequence[Row], tokens: int, seed: int) -> list[Row]:
    """Rows of source, target_in and target_out, in padded batches of at most so many tokens."""
    draw, rows, found = random.Random(seed), list(rows), []
    draw.shuffle(rows)
    mean = sum(len(row[2]) for row in rows) / len(rows)
    pool = round(POOL * tokens / mean)
    for start in range(0, len(rows), pool):
        some: list[Row] = []
        longest = 0
        for row in sorted(rows[start : start + pool], key=lambda r: (len(r[0]), len(r[2]))):
            longest = max(longest, *map(len, row))
            if some and longest * (len(some) + 1) > tokens:
                found.append(_together(some))
                some, longest = [], max(map(len, row))
            some.append(row)
        if some:
            found.append(_together(some))
    draw.shuffle(found)
    return found


def _together(rows: Sequence[Row]) -> Row:
    return tuple(padded([row[side] for row in rows]) for side in range(3))


def padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of different length as a matrix."""
    table = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


def save_rows(path: str, rows: Sequence[Row]) -> None:
    """Rows in one file, without a pickle: all ids one after the other, and the lengths."""
    arrays = {}
    for side, name in enumerate(("source", "target_in", "target_out")):
        arrays[name] = np.concatenate([row[side] for row in rows])
        arrays[f"{name}_lengths"] = np.array([len(row[side]) for row in rows])
    np.savez(path, **arrays)


def load_rows(path: str) -> list[Row]:
    """What `save_rows` saved."""
    with np.load(path) as file:
        sides = [
            np.split(file[name], np.cumsum(file[f"{name}_lengths"])[:-1])
            for name in ("source", "target_in", "target_out")
        ]
    return list(zip(*sides, strict=True))
