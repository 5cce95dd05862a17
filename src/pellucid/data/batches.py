"""Batches of token ids for training, in an order determined by (seed, epoch) alone.

A pair is laid out like this (ids in the order in which a model reads them):

    source       <2fr>  pieces of the source sentence  </s>      the tag names the target language
    target_in    <s>    pieces of the target sentence            input of the decoder
    target_out          pieces of the target sentence  </s>      what it is to predict
    padding      0, after the end

That is teacher forcing: target_out is target_in shifted by one token.

A batch has at most `max_tokens` tokens on each side, padding included. Every epoch has one list of
batches, the same for any number of processes: in step i, rank r of w takes batch i * w + r. In the
last step of an epoch the ranks beyond the end of the list get an empty batch, so that all take the
same number of steps; it adds nothing to a loss that is summed over tokens.
"""

from __future__ import annotations

import hashlib
import json
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count as count_from
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.config import BatchConfig
from pellucid.data.buckets import SOURCE_EXTRA, TARGET_EXTRA, Plan, Planner
from pellucid.data.noise import add_typing_noise
from pellucid.data.store import PreparedData
from pellucid.errors import InputError
from pellucid.tokenizers.base import Side
from pellucid.tokenizers.sentencepiece import PAD_ID

Ids = NDArray[np.int64]

EXTRA: dict[Side, int] = {"source": SOURCE_EXTRA, "target": TARGET_EXTRA}
_ATTEMPTS = 3  # random segmentations of a sentence to try until one fits the batch
_PLAN_AHEAD = 0.75  # fraction of an epoch after which the next one is planned


@dataclass(frozen=True)
class Batch:
    """A batch of padded sentence pairs. Shapes: B pairs, S source and T target tokens."""

    source: Ids
    """(B, S) tag, pieces, end."""

    target_in: Ids
    """(B, T) beginning, pieces."""

    target_out: Ids
    """(B, T) pieces, end."""

    pairs: Ids
    """(B,) index of each row's pair in the split."""

    directions: Ids
    """(B,) index of each row's direction."""

    source_sides: Ids
    """(B,) side of the pair, 0 or 1, that is each row's source."""

    epoch: int
    index: int
    """Index in the epoch's list of batches, which all ranks share."""

    last: bool
    """Whether this is the rank's last batch of the epoch (so a step ends here at the latest)."""

    source_tokens: int
    target_tokens: int
    """Number of tokens on each side, without padding."""

    pad_id: int = PAD_ID

    def __len__(self) -> int:
        return len(self.pairs)


class Batches:
    """The batches of a split, epoch after epoch.

    Iterate over `epoch(e)`, or over `stream()` for endless epochs. `state()` returns the caller's
    position, and `restore(state)` continues from it, with any number of processes.

    A background thread prepares batches ahead, which does not affect their content.
    """

    def __init__(
        self,
        prepared: PreparedData,
        config: BatchConfig | None = None,
        *,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        split: str = "train",
    ) -> None:
        if not 0 <= rank < world:
            raise InputError(f"rank {rank} is not one of {world} processes: it counts from 0")
        if not 0 <= seed < 1 << 63:
            raise InputError(f"seed {seed} is not between 0 and 2**63")
        if split not in prepared.splits:
            available = ", ".join(prepared.splits)
            raise InputError(f"the prepared data has no {split!r}: it has {available}")
        self.config = config or BatchConfig()
        self.split = prepared.splits[split]
        self.tokenizer = prepared.tokenizer
        self.directions = prepared.directions
        self.seed = seed
        self.rank = rank
        self.world = world
        growth = 1.0 if self.config.subword_regularization is None else self._growth()
        self._planner = Planner(
            self.split,
            self.directions,
            max_tokens=self.config.max_tokens,
            bucket_size=self.config.bucket_size,
            seed=seed,
            temperature=prepared.temperature,
            growth=growth,
        )
        tags = [self.tokenizer.tag_ids(target) for _, target in self._planner.languages]
        self._tags = np.array(tags, np.int64).reshape(len(tags), -1)  # one column, or none
        self._order = self._order_hash(prepared)
        self._position = (0, 0)
        self._restored: tuple[int, int] | None = None
        self._thread = ThreadPoolExecutor(1, "planning")
        self._plans: dict[int, Future[Plan]] = {}
        self._lock = threading.Lock()

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield this rank's batches of an epoch, from its beginning or from a restored position."""
        start = 0
        if self._restored is not None and self._restored[0] == number:
            start = self._restored[1]
        self._restored = None
        plan = self._plan(number)
        steps = -(-(len(plan) - start) // self.world)
        batches = self._batches(plan, number, start, steps)
        if self.config.prefetch:
            batches = _prefetched(batches, self.config.prefetch)
        self._position = (number, start)
        for step, batch in enumerate(batches, 1):
            self._position = (number, min(len(plan), start + step * self.world))
            yield batch

    def stream(self) -> Iterator[Batch]:
        """Yield batches without end, from epoch 0 or from a restored position."""
        for number in count_from(self._restored[0] if self._restored else 0):
            yield from self.epoch(number)

    def steps(self, epoch: int) -> int:
        """Return the number of batches that each rank takes in a whole epoch."""
        return -(-len(self._plan(epoch)) // self.world)

    def state(self) -> dict[str, Any]:
        """Return the position of the caller; the batches it was given count as done.

        Call it when all ranks have taken the same number of batches.
        """
        epoch, position = self._position
        return {"epoch": epoch, "position": position, "order": self._order}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a position that `state()` returned, with any number of processes."""
        if state["order"] != self._order:
            raise InputError(
                "the saved position belongs to another order of the data: data, seed, max_tokens, "
                "bucket_size, subword_regularization, subword_side and source_noise must be those "
                "of the run that saved it"
            )
        self._restored = self._position = (int(state["epoch"]), int(state["position"]))

    def _order_hash(self, prepared: PreparedData) -> str:
        """Return a hash of everything that determines the batches (not the number of processes)."""
        config = self.config
        parts = [prepared.fingerprint, self.split.name, self.seed]
        parts += [config.max_tokens, config.bucket_size, config.subword_regularization]
        # left out when unset, so that positions saved by older versions remain valid
        parts += [config.source_noise] if config.source_noise else []
        parts += ["source"] if config.subword_side == "source" else []
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def _plan(self, epoch: int) -> Plan:
        """Return the plan of an epoch, and drop those of earlier epochs."""
        future = self._plan_ahead(epoch)
        with self._lock:
            for earlier in [e for e in self._plans if e < epoch]:
                del self._plans[earlier]
        return future.result()

    def _plan_ahead(self, epoch: int) -> Future[Plan]:
        """Start planning an epoch once; called by the reader and by the prefetching thread."""
        with self._lock:
            if epoch not in self._plans:
                self._plans[epoch] = self._thread.submit(self._planner.plan, epoch)
            return self._plans[epoch]

    def _batches(self, plan: Plan, epoch: int, start: int, steps: int) -> Iterator[Batch]:
        for step in range(steps):
            if self.config.prefetch and step == int(steps * _PLAN_AHEAD):
                self._plan_ahead(epoch + 1)
            index = start + step * self.world + self.rank
            yield self._batch(plan, epoch, index, last=step == steps - 1)

    def _batch(self, plan: Plan, epoch: int, index: int, last: bool) -> Batch:
        if index >= len(plan):
            no_ids, no_rows = np.zeros((0, 0), np.int64), np.zeros(0, np.int64)
            return Batch(
                no_ids, no_ids, no_ids, no_rows, no_rows, no_rows, epoch, index, last, 0, 0,
                self.tokenizer.pad_id,
            )  # fmt: skip
        rows = slice(int(plan.begin[index]), int(plan.end[index]))
        pairs, directions = plan.pairs[rows], plan.directions[rows]
        sides = self._planner.source_sides(pairs, directions)
        sources = self._token_ids(pairs, sides, epoch, "source")
        targets = self._token_ids(pairs, 1 - sides, epoch, "target")
        tokenizer = self.tokenizer
        pad, end = tokenizer.pad_id, tokenizer.eos_id
        start = np.full((len(pairs), 1), tokenizer.bos_id)
        source = _padded(*sources, pad, before=self._tags[directions], after=end)
        target_in = _padded(*targets, pad, before=start)
        target_out = _padded(*targets, pad, after=end)
        source_tokens = len(sources[0]) + (tokenizer.lead + 1) * len(pairs)
        target_tokens = len(targets[0]) + TARGET_EXTRA * len(pairs)
        return Batch(
            source, target_in, target_out, pairs.astype(np.int64), directions.astype(np.int64),
            sides.astype(np.int64), epoch, index, last, source_tokens, target_tokens, pad,
        )  # fmt: skip

    def _stored_ids(self, pairs: NDArray[np.int32], sides: NDArray[np.uint8]) -> tuple[Ids, Ids]:
        """Return the stored ids of one side of each pair, concatenated, and their lengths."""
        starts, lengths = np.empty(len(pairs), np.int64), np.empty(len(pairs), np.int64)
        for side in (0, 1):
            here = sides == side
            chosen = pairs[here]
            offsets = self.split.offsets[side]
            starts[here] = offsets[chosen]
            lengths[here] = offsets[chosen + 1] - offsets[chosen]
        places = runs(starts, lengths)
        ids = np.empty(len(places), np.int64)
        for side in (0, 1):
            here = np.repeat(sides == side, lengths)
            ids[here] = self.split.tokens[side][places[here]]
        return ids, lengths

    def _token_ids(
        self, pairs: NDArray[np.int32], sides: NDArray[np.uint8], epoch: int, role: Side
    ) -> tuple[Ids, Ids]:
        """Return the ids of one side of each pair, concatenated, and their lengths.

        With subword regularization or source noise, the sentences are segmented at random or
        corrupted, as (seed, epoch, pair, side) determines. A segmentation that does not fit the
        token budget is drawn again; if none fits, the stored one is used.
        """
        ids, lengths = self._stored_ids(pairs, sides)
        sampled = self.config.samples(role)
        noise = self.config.source_noise if role == "source" else 0.0
        if not sampled and not noise:
            return ids, lengths
        keys = [
            f"{self.seed}/{epoch}/{pair}/{side}"
            for pair, side in zip(pairs.tolist(), sides.tolist(), strict=True)
        ]
        noisy = [noise > 0 and _uniform(key) < noise for key in keys]
        changed = [row for row, is_noisy in enumerate(noisy) if sampled or is_noisy]
        if not changed:
            return ids, lengths
        rows = np.split(ids, np.cumsum(lengths)[:-1])
        room = self.config.max_tokens // len(pairs) - EXTRA[role]
        texts = self.tokenizer.decode_batch([rows[row].tolist() for row in changed], role)
        for row, text in zip(changed, texts, strict=True):
            text = add_typing_noise(text, keys[row]) if noisy[row] else text
            for attempt in range(_ATTEMPTS if sampled else 1):
                drawn = (
                    self._sample(text, epoch, int(pairs[row]), int(sides[row]), attempt)
                    if sampled
                    else self.tokenizer.encode(text, side=role)
                )
                if len(drawn) <= room:
                    rows[row] = np.array(drawn, np.int64)
                    break
        return np.concatenate(rows), np.array([len(row) for row in rows], np.int64)

    def _sample(self, text: str, epoch: int, pair: int, side: int, attempt: int) -> list[int]:
        key = 0
        for part in (self.seed, epoch, pair, 2 * attempt + side):
            key = key << 64 | part
        strength = self.config.subword_regularization
        assert strength is not None
        return self.tokenizer.sample(text, key, strength)

    def _growth(self) -> float:
        """Return the factor by which sampling lengthens nine sentences in ten (of a thousand)."""
        ratios = []
        for pair in np.linspace(0, len(self.split) - 1, min(len(self.split), 1000)).astype(int):
            for side in (0, 1):
                stored = self.split.ids(int(pair), side).tolist()
                drawn = self._sample(self.tokenizer.decode(stored), 0, int(pair), side, 0)
                ratios.append(len(drawn) / max(1, len(stored)))
        return max(1.0, float(np.quantile(ratios, 0.9)))


def runs(starts: Ids, lengths: Ids) -> Ids:
    """Return the ranges start, ..., start + length - 1, concatenated."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - ends + lengths, lengths)


def each_pair_once(
    prepared: PreparedData, config: BatchConfig, split: str, *, rank: int = 0, world: int = 1
) -> Batches:
    """Return batches whose epoch has every pair of a split once in every direction, unchanged.

    Corpus weights are ignored, and the token budget grows with the longest sentence.
    """
    unweighted = replace(prepared, manifest={**prepared.manifest, "temperature": None})
    longest = 2 + max(int(prepared.splits[split].lengths(side).max()) for side in (0, 1))
    plain = config.changed(
        max_tokens=max(config.max_tokens, longest), subword_regularization=None, source_noise=0.0
    )
    return Batches(unweighted, plain, rank=rank, world=world, split=split)


def _uniform(key: str) -> float:
    """Return a number between 0 and 1 that depends on the key alone."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little") / 2**64


def _padded(
    ids: Ids, lengths: Ids, pad: int, *, before: Ids | None = None, after: int | None = None
) -> Ids:
    """Pad rows of different lengths to a matrix, with some ids before and one after each row."""
    lead = 0 if before is None else before.shape[1]
    width = int(lengths.max()) + lead + (0 if after is None else 1)
    matrix = np.full((len(lengths), width), pad, np.int64)
    columns = np.arange(width)
    ends = lead + lengths[:, None]
    matrix[(columns >= lead) & (columns < ends)] = ids
    if before is not None:
        matrix[:, :lead] = before
    if after is not None:
        matrix[np.arange(len(lengths)), ends[:, 0]] = after
    return matrix


_END = object()


def _prefetched(batches: Iterator[Batch], depth: int) -> Iterator[Batch]:
    """Yield the same batches, prepared ahead by a thread that ends with the reader."""
    ready: queue.Queue[Any] = queue.Queue(depth)
    stop = threading.Event()

    def put(item: Any) -> bool:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                pass
        return False

    def work() -> None:
        try:
            for batch in batches:
                if not put(batch):
                    return
            put(_END)
        except BaseException as error:  # raised again in the reader
            put(error)

    threading.Thread(target=work, daemon=True, name="batches").start()
    try:
        while (item := ready.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        # The thread is not joined: this may run in the garbage collector, while some thread holds a
        # lock that the other needs to end.
        stop.set()


def padding(batches: Sequence[Batch]) -> float:
    """Return the fraction of padding in some batches, over both sides."""
    positions = sum(batch.source.size + batch.target_out.size for batch in batches)
    tokens = sum(batch.source_tokens + batch.target_tokens for batch in batches)
    return 1 - tokens / positions
