"""Batches of token ids for training, in an order decided by (seed, epoch) alone.

A pair is laid out like this (ids in the order a model reads them):

    source       <2fr>  pieces of the source sentence  </s>      the tag names the target language
    target_in    <s>    pieces of the target sentence            what the decoder is given
    target_out          pieces of the target sentence  </s>      what it is to answer
    padding      0, after the end

A batch holds at most `tokens` tokens on each side, padding included. Every epoch has one list of
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
from pellucid.data.noise import hurried
from pellucid.data.store import PreparedData
from pellucid.errors import InputError
from pellucid.tokenizers.base import Side
from pellucid.tokenizers.sentencepiece import PAD_ID

Ids = NDArray[np.int64]

EXTRA: dict[Side, int] = {"source": SOURCE_EXTRA, "target": TARGET_EXTRA}
_ATTEMPTS = 3  # draws of a sentence, until it fits the batch
_PLAN_AHEAD = 0.75  # of an epoch is done when the next one is planned


@dataclass(frozen=True)
class Batch:
    """Some sentence pairs, padded. Shapes: B pairs, S source and T target tokens."""

    source: Ids
    """(B, S) tag, pieces, end."""

    target_in: Ids
    """(B, T) beginning, pieces."""

    target_out: Ids
    """(B, T) pieces, end."""

    pairs: Ids
    """(B,) which pair of the split each row is."""

    directions: Ids
    """(B,) which of the directions each row is in."""

    source_sides: Ids
    """(B,) which side of its pair, 0 or 1, each row's source is."""

    epoch: int
    index: int
    """Place in the epoch's list of batches, which all ranks share."""

    last: bool
    """Whether this is the rank's last batch of the epoch (so a step ends here at the latest)."""

    source_tokens: int
    target_tokens: int
    """Tokens that are not padding."""

    pad_id: int = PAD_ID

    def __len__(self) -> int:
        return len(self.pairs)


class Batches:
    """The batches of a split, epoch after epoch.

    Iterate over `epoch(e)`, or over `stream()` for one epoch after another without end. `state()`
    says where the caller is; `restore(state)` goes on from there, under any number of processes.

    A background thread makes batches ahead. It changes nothing in what they are.
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
            have = ", ".join(prepared.splits)
            raise InputError(f"the prepared data has no {split!r}: it has {have}")
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
            tokens=self.config.max_tokens,
            window=self.config.bucket_size,
            seed=seed,
            temperature=prepared.temperature,
            growth=growth,
        )
        tags = [self.tokenizer.tag_ids(target) for _, target in self._planner.ways]
        self._tags = np.array(tags, np.int64).reshape(len(tags), -1)  # one column, or none
        self._fingerprint = self._order_hash(prepared)
        self._place = (0, 0)
        self._resume: tuple[int, int] | None = None
        self._thread = ThreadPoolExecutor(1, "planning")
        self._plans: dict[int, Future[Plan]] = {}
        self._lock = threading.Lock()

    def epoch(self, number: int) -> Iterator[Batch]:
        """This rank's batches of an epoch: from its beginning, or from a restored place in it."""
        start = 0
        if self._resume is not None and self._resume[0] == number:
            start = self._resume[1]
        self._resume = None
        plan = self._plan(number)
        steps = -(-(len(plan) - start) // self.world)
        made = self._made(plan, number, start, steps)
        if self.config.prefetch:
            made = _prefetched(made, self.config.prefetch)
        self._place = (number, start)
        for step, batch in enumerate(made, 1):
            self._place = (number, min(len(plan), start + step * self.world))
            yield batch

    def stream(self) -> Iterator[Batch]:
        """Batches without end: from epoch 0, or from a restored place."""
        for number in count_from(self._resume[0] if self._resume else 0):
            yield from self.epoch(number)

    def steps(self, epoch: int) -> int:
        """How many batches each rank takes in an epoch from its beginning."""
        return -(-len(self._plan(epoch)) // self.world)

    def state(self) -> dict[str, Any]:
        """Where the caller is: the batches it was given count as done.

        To be taken when all ranks have taken the same number of batches.
        """
        epoch, position = self._place
        return {"epoch": epoch, "position": position, "order": self._fingerprint}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state()` was taken, also with another number of processes."""
        if state["order"] != self._fingerprint:
            raise InputError(
                "the place in the data belongs to another order: data, seed, tokens, window, "
                "subword_sampling, sampled_side and careless must be those of the run that saved it"
            )
        self._resume = self._place = (int(state["epoch"]), int(state["position"]))

    def _order_hash(self, prepared: PreparedData) -> str:
        """Stands for everything that decides the batches, but the number of processes."""
        config = self.config
        decides = [prepared.fingerprint, self.split.name, self.seed]
        decides += [config.max_tokens, config.bucket_size, config.subword_regularization]
        decides += [config.source_noise] if config.source_noise else []  # so older places still fit
        decides += ["source"] if config.subword_side == "source" else []
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]

    def _plan(self, epoch: int) -> Plan:
        """The plan of an epoch; those of earlier epochs are forgotten."""
        future = self._plan_ahead(epoch)
        with self._lock:
            for earlier in [e for e in self._plans if e < epoch]:
                del self._plans[earlier]
        return future.result()

    def _plan_ahead(self, epoch: int) -> Future[Plan]:
        """Begin to plan an epoch, unless that was done; the reader and the prefetcher both ask."""
        with self._lock:
            if epoch not in self._plans:
                self._plans[epoch] = self._thread.submit(self._planner.plan, epoch)
            return self._plans[epoch]

    def _made(self, plan: Plan, epoch: int, start: int, steps: int) -> Iterator[Batch]:
        for step in range(steps):
            if self.config.prefetch and step == int(steps * _PLAN_AHEAD):
                self._plan_ahead(epoch + 1)
            index = start + step * self.world + self.rank
            yield self._batch(plan, epoch, index, last=step == steps - 1)

    def _batch(self, plan: Plan, epoch: int, index: int, last: bool) -> Batch:
        if index >= len(plan):
            nothing, none = np.zeros((0, 0), np.int64), np.zeros(0, np.int64)
            return Batch(
                nothing, nothing, nothing, none, none, none, epoch, index, last, 0, 0,
                self.tokenizer.pad_id,
            )  # fmt: skip
        rows = slice(int(plan.begin[index]), int(plan.end[index]))
        pairs, directions = plan.pairs[rows], plan.directions[rows]
        sides = self._planner.source_sides(pairs, directions)
        sources = self._cut(pairs, sides, epoch, "source")
        targets = self._cut(pairs, 1 - sides, epoch, "target")
        words = self.tokenizer
        pad, end = words.pad_id, words.eos_id
        start = np.full((len(pairs), 1), words.bos_id)
        source = _padded(*sources, pad, before=self._tags[directions], after=end)
        target_in = _padded(*targets, pad, before=start)
        target_out = _padded(*targets, pad, after=end)
        source_tokens = len(sources[0]) + (words.lead + 1) * len(pairs)
        target_tokens = len(targets[0]) + TARGET_EXTRA * len(pairs)
        return Batch(
            source, target_in, target_out, pairs.astype(np.int64), directions.astype(np.int64),
            sides.astype(np.int64), epoch, index, last, source_tokens, target_tokens, pad,
        )  # fmt: skip

    def _gathered(self, pairs: NDArray[np.int32], sides: NDArray[np.uint8]) -> tuple[Ids, Ids]:
        """Ids of one side of each pair, one after another, and their lengths."""
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

    def _cut(
        self, pairs: NDArray[np.int32], sides: NDArray[np.uint8], epoch: int, role: Side
    ) -> tuple[Ids, Ids]:
        """As `_gathered`, but with sentences cut at random or typed in a hurry, where that is set,
        as (seed, epoch, pair, side) says.

        A cut that does not fit the budget is drawn again, and if that fails the usual one is used.
        """
        ids, lengths = self._gathered(pairs, sides)
        sampled = self.config.samples(role)
        careless = self.config.source_noise if role == "source" else 0.0
        if not sampled and not careless:
            return ids, lengths
        keys = [
            f"{self.seed}/{epoch}/{pair}/{side}"
            for pair, side in zip(pairs.tolist(), sides.tolist(), strict=True)
        ]
        hasty = [careless > 0 and _share_of(key) < careless for key in keys]
        chosen = [row for row, is_hasty in enumerate(hasty) if sampled or is_hasty]
        if not chosen:
            return ids, lengths
        rows = np.split(ids, np.cumsum(lengths)[:-1])
        room = self.config.max_tokens // len(pairs) - EXTRA[role]
        texts = self.tokenizer.decode_batch([rows[row].tolist() for row in chosen], role)
        for row, text in zip(chosen, texts, strict=True):
            read = hurried(text, keys[row]) if hasty[row] else text
            for attempt in range(_ATTEMPTS if sampled else 1):
                drawn = (
                    self._sample(read, epoch, int(pairs[row]), int(sides[row]), attempt)
                    if sampled
                    else self.tokenizer.encode(read, side=role)
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
        """How much longer sampling makes nine sentences in ten, measured on a thousand."""
        ratios = []
        for pair in np.linspace(0, len(self.split) - 1, min(len(self.split), 1000)).astype(int):
            for side in (0, 1):
                usual = self.split.ids(int(pair), side).tolist()
                drawn = self._sample(self.tokenizer.decode(usual), 0, int(pair), side, 0)
                ratios.append(len(drawn) / max(1, len(usual)))
        return max(1.0, float(np.quantile(ratios, 0.9)))


def runs(starts: Ids, lengths: Ids) -> Ids:
    """start, start + 1, ... for each start, as many as its length says, one after another."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - ends + lengths, lengths)


def each_pair_once(
    prepared: PreparedData, config: BatchConfig, split: str, *, rank: int = 0, world: int = 1
) -> Batches:
    """Batches whose epoch has every pair of a split once in every direction, as it is written.

    However the corpora are weighed, and however long a sentence: the budget grows with it.
    """
    level = replace(prepared, manifest={**prepared.manifest, "temperature": None})
    longest = 2 + max(int(prepared.splits[split].lengths(side).max()) for side in (0, 1))
    budget = config.changed(
        tokens=max(config.max_tokens, longest), subword_sampling=None, careless=0.0
    )
    return Batches(level, budget, rank=rank, world=world, split=split)


def _share_of(key: str) -> float:
    """A number from 0 to 1 that the key alone decides."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little") / 2**64


def _padded(
    ids: Ids, lengths: Ids, pad: int, *, before: Ids | None = None, after: int | None = None
) -> Ids:
    """Rows of different length as a matrix, with some ids before and one after each."""
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
    """The same batches, made ahead by a thread that ends when the reader does."""
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
        except BaseException as error:  # for the reader to raise
            put(error)

    threading.Thread(target=work, daemon=True, name="batches").start()
    try:
        while (item := ready.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        # Not joined: this may run in the garbage collector, while some thread holds a lock that
        # the other one needs to end.
        stop.set()


def padding(batches: Sequence[Batch]) -> float:
    """Share of the places in some batches, both sides together, that are padding."""
    places = sum(batch.source.size + batch.target_out.size for batch in batches)
    tokens = sum(batch.source_tokens + batch.target_tokens for batch in batches)
    return 1 - tokens / places
