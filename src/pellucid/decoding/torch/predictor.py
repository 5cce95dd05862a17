"""A Transformer as a Predictor: the only part of a search that touches tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.search.predictor import Banned, Ranked
from pellucid.decoding.torch.step_cache import StepCache
from pellucid.decoding.torch.step_decoder import StepDecoder
from pellucid.model import Cache, Memory, TensorTrace, Transformer


def padded(sentences: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> Tensor:
    """Return sentences as one tensor `(B, longest)`, padded with the pad id."""
    longest = max(map(len, sentences), default=0)
    table = np.full((len(sentences), longest), pad_id, dtype=np.int64)
    for row, sentence in enumerate(sentences):
        table[row, : len(sentence)] = sentence
    return torch.from_numpy(table).to(device)


def cross_attention(trace: TensorTrace, layer: int | None, head: int | None) -> Tensor:
    """Return the recorded cross-attention `(R, T, S)` of a layer and head; None is the mean."""
    names = trace.names("decoder.*.cross.weights")
    chosen = names if layer is None else [names[layer]]
    weights = torch.stack([trace[name] for name in chosen]).mean(dim=0)  # (R, H, T, S)
    return weights.mean(dim=1) if head is None else weights[:, head]


class TorchPredictor:
    """A batch of sentences in a Transformer; see `Predictor` for the methods.

    steps: the model's StepDecoder; an engine makes it once for all its batches.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Transformer,
        special: SpecialIds,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        steps: StepDecoder | None = None,
    ) -> None:
        self.model = model
        self._steps = steps or StepDecoder(model)
        self.device = model.output.weight.device
        source = padded(sources, special.pad, self.device)
        memory = model.encode(source)
        self._memory = None if options.use_cache else memory
        # Without padding there is nothing to mask at each step.
        even = all(len(s) == source.shape[1] for s in sources)
        self._cache = Cache(model.start(memory).layers, None if even else memory.mask)
        self._step_cache: StepCache | None = None
        self._history = np.zeros((0, 0), dtype=np.int64)
        self._logits_buffer: Tensor | None = None
        suppressed = {special.pad, special.start, *options.suppress_tokens} - (
            {special.end} - options.suppress_tokens
        )
        self._suppressed = torch.tensor(sorted(suppressed), device=self.device)

    def _states(self, history: np.ndarray) -> Tensor:
        """Return the decoder states `(R, new, D)` of the tokens not read yet.

        By the model's own modules: for several tokens at once, or without a KV cache.
        """
        cache = self._cache if self._memory is None else self.model.start(self._memory)
        new = torch.from_numpy(np.ascontiguousarray(history[:, cache.length :])).to(self.device)
        states, cache = self.model.decode_states(new, cache)
        if self._memory is None:
            self._cache = cache
        return states

    def _step(self, history: np.ndarray) -> Tensor:
        """Return the decoder state `(R, D)` of the last token, the only new one."""
        if self._memory is not None:
            return self._states(history)[:, -1]
        self._history = history
        last = torch.from_numpy(history[:, -1].copy()).to(self.device)
        return self._steps(last, self._single_steps())

    def _single_steps(self) -> StepCache:
        """Return the StepCache, which continues from the tokens that were read at once."""
        if self._step_cache is None:
            self._step_cache = self._steps.start(self._cache)
        return self._step_cache

    @torch.inference_mode()
    def prefill(self, history: np.ndarray) -> np.ndarray:
        """Read the first tokens at once; return the log-probabilities of all but the first."""
        states = self._states(history[:, :-1])
        following = torch.from_numpy(history[:, 1:]).to(self.device)
        logs = self.model.output(states).log_softmax(dim=-1).gather(-1, following[:, :, None])
        return _numpy(logs.squeeze(-1))

    def _logs(self, states: Tensor) -> Tensor:
        """Return log-probabilities `(R, V)`, in a buffer that the next step overwrites."""
        R, V = len(states), self.model.config.vocab_size
        if states.dtype != torch.float32:
            return self._steps.output(states).float().log_softmax(dim=-1)
        if self._logits_buffer is None or len(self._logits_buffer) < R:
            self._logits_buffer = states.new_empty(R, V)
        return torch.log_softmax(self._steps.output(states), -1, out=self._logits_buffer[:R])

    def _following(
        self, history: np.ndarray, banned: Banned | None, wanted: np.ndarray | None
    ) -> tuple[Tensor, np.ndarray | None]:
        """Return log-probabilities `(R, V)`, -inf where not allowed, and those of `wanted (R,)`."""
        logs = self._logs(self._step(history))
        asked = None
        if wanted is not None:
            index = torch.from_numpy(np.maximum(wanted, 0)).to(self.device)
            asked = _numpy(logs.gather(1, index[:, None]))[:, 0]
        logs.index_fill_(1, self._suppressed, -torch.inf)
        if banned is not None:
            rows = torch.from_numpy(banned.rows).to(self.device)
            tokens = torch.from_numpy(banned.tokens).to(self.device)
            logs[rows, tokens] = -torch.inf
        return logs, asked

    @torch.inference_mode()
    def rank(
        self,
        history: np.ndarray,
        top: int,
        *,
        banned: Banned | None = None,
        wanted: np.ndarray | None = None,
    ) -> Ranked:
        """Return the `top` best next tokens of each row."""
        logs, asked = self._following(history, banned, wanted)
        values, tokens = best(logs, top)
        return Ranked(tokens, values.astype(np.float64), asked)

    @torch.inference_mode()
    def distribution(
        self,
        history: np.ndarray,
        *,
        banned: Banned | None = None,
        wanted: np.ndarray | None = None,
    ) -> Ranked:
        """Return all tokens of each row, in the order of their ids."""
        logs, asked = self._following(history, banned, wanted)
        values = logs.cpu().numpy().copy()
        tokens = np.broadcast_to(np.arange(values.shape[1]), values.shape)
        return Ranked(tokens, values, asked)

    @torch.inference_mode()
    def reorder(self, rows: np.ndarray, sentences: np.ndarray | None) -> None:
        """Continue with these rows, of these sentences."""
        kept = None
        if sentences is not None:
            kept = torch.from_numpy(sentences).to(self.device)
        if self._memory is not None:
            if kept is not None:
                self._memory = Memory(*(part.index_select(0, kept) for part in self._memory))
            return
        cache, start = self._single_steps(), 0
        if kept is None and len(rows) == cache.rows:
            start = _common_prefix(self._history, self._history[rows])
        if kept is not None or start < cache.length:
            cache.reorder(torch.from_numpy(rows).to(self.device), kept, start)


def _common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """Return how many of the first columns of two tables are equal."""
    differ = (a != b).any(axis=0)
    return int(differ.argmax()) if differ.any() else len(differ)


def _numpy(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()


def best(scores: Tensor, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `top` highest scores of each row and their ids, sorted; equal ones by lower id.

    PyTorch does not define which of several equal values `topk` returns, so where the last one
    taken equals the first one left out, a stable sort decides.
    """
    V = scores.shape[1]
    if top == 2 < V and scores.device.type == "cpu":
        return _best_two(scores.numpy())
    if top >= V:
        values, tokens = scores.sort(dim=1, descending=True, stable=True)
        return values.cpu().numpy(), tokens.cpu().numpy()
    values, tokens = _topk(scores, top + 1)
    ties = values[:, :-1] == values[:, 1:]
    if bool(ties.any()):
        rows = ties.any(dim=1).nonzero().squeeze(1)
        exact, ids = scores[rows].sort(dim=1, descending=True, stable=True)
        values[rows], tokens[rows] = exact[:, : top + 1], ids[:, : top + 1]
    return values[:, :top].cpu().numpy(), tokens[:, :top].cpu().numpy()


def _topk(scores: Tensor, top: int, width: int = 64) -> tuple[Tensor, Tensor]:
    """As `topk`, twice as fast for many scores: only the blocks with the highest maxima count."""
    R, V = scores.shape
    blocks = V // width
    if scores.device.type != "cpu" or R * V < 2**16 or blocks < 4 * top:
        values, tokens = scores.topk(top, dim=1)
        return values, tokens
    body = scores[:, : blocks * width].view(R, blocks, width)
    chosen = body.amax(dim=2).topk(top, dim=1, sorted=False).indices  # (R, top)
    best = body.gather(1, chosen[:, :, None].expand(R, top, width)).view(R, top * width)
    ids = (chosen[:, :, None] * width + torch.arange(width)).view(R, top * width)
    rest = torch.arange(blocks * width, V).expand(R, -1)
    values, found = torch.cat([best, scores[:, blocks * width :]], dim=1).topk(top, dim=1)
    return values, torch.cat([ids, rest], dim=1).gather(1, found)


def _best_two(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As `best` for two, several times faster: numpy's `argmax` takes the first of equal values."""
    rows = np.arange(len(table))
    values, tokens = np.empty((len(table), 2), table.dtype), np.empty((len(table), 2), np.int64)
    tokens[:, 0] = first = table.argmax(axis=1)
    values[:, 0] = highest = table[rows, first]
    table[rows, first] = -np.inf
    tokens[:, 1] = second = table.argmax(axis=1)
    values[:, 1] = next_highest = table[rows, second]
    table[rows, first] = highest
    if next_highest.min() == -np.inf:  # then the lowest other id
        tokens[:, 1] = np.where(next_highest == -np.inf, first == 0, second)
    return values, tokens
