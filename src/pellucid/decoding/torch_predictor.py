"""A Transformer as a Predictor: the only part of the search that knows about tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.predictor import Banned, Ranked
from pellucid.model import Cache, Memory, Trace, Transformer


def padded(sentences: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> Tensor:
    """Sentences side by side, `(B, longest)`, filled up with the pad id."""
    longest = max(map(len, sentences), default=0)
    table = np.full((len(sentences), longest), pad_id, dtype=np.int64)
    for row, sentence in enumerate(sentences):
        table[row, : len(sentence)] = sentence
    return torch.from_numpy(table).to(device)


def cross_attention(trace: Trace, layer: int | None, head: int | None) -> Tensor:
    """The recorded cross-attention `(R, T, S)` of a layer and head, or the mean over them."""
    names = trace.names("decoder.*.cross.weights")
    chosen = names if layer is None else [names[layer]]
    weights = torch.stack([trace[name] for name in chosen]).mean(dim=0)  # (R, H, T, S)
    return weights.mean(dim=1) if head is None else weights[:, head]


class OutputProjection:
    """The model's last linear layer for a few rows at a time, several times faster on a CPU.

    The matrix of the vocabulary is by far the largest that a step reads, and the way through
    memory decides the time: for one row, or many, a transposed copy of it is read fastest; for a
    few rows, the product the other way round. Elsewhere the model's own layer is used.
    """

    FEW = range(2, 17)

    @torch.inference_mode()
    def __init__(self, model: Transformer) -> None:
        self.layer = model.output
        weight = self.layer.weight
        self.transposed: Tensor | None = None
        if weight.device.type == "cpu" and weight.dtype == torch.float32:
            self.transposed = weight.detach().t().contiguous()  # (D, V)

    def __call__(self, states: Tensor) -> Tensor:
        """Logits `(R, V)` of `states (R, D)`."""
        if self.transposed is None:
            return self.layer(states)  # type: ignore[no-any-return]
        if len(states) in self.FEW:
            logits = (self.layer.weight @ states.t()).t().contiguous()
        else:
            logits = states @ self.transposed
        return logits if self.layer.bias is None else logits.add_(self.layer.bias)


class TorchPredictor:
    """A batch of sentences in a Transformer; see `Predictor` for what the methods do.

    project: what makes logits of states; an engine makes it once for all its batches.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Transformer,
        special: SpecialIds,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        project: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.model, self.options = model, options
        self._project = project or model.output
        self.device = model.output.weight.device
        source = padded(sources, special.pad, self.device)
        memory = model.encode(source)
        self._memory = None if options.use_cache else memory
        # Where nothing is padded, nothing need be hidden at each step.
        even = all(len(s) == source.shape[1] for s in sources)
        self._cache = Cache(model.start(memory).layers, None if even else memory.mask)
        never = {special.pad, special.start, *options.forbidden} - (
            {special.end} - options.forbidden
        )
        self._never = torch.tensor(sorted(never), device=self.device)

    def _states(self, history: np.ndarray) -> tuple[Tensor, Tensor | None]:
        """States `(R, new, D)` of the tokens not read yet, and the last one's attention."""
        trace = None
        if self.options.coverage_penalty:
            trace = Trace(only=["decoder.*.cross.weights"])
        cache = self._cache if self._memory is None else self.model.start(self._memory)
        new = torch.from_numpy(np.ascontiguousarray(history[:, cache.length :])).to(self.device)
        states, cache = self.model.decode_states(new, cache, trace=trace)
        if self._memory is None:
            self._cache = cache
        if trace is None:
            return states, None
        attention = cross_attention(
            trace, self.options.attention_layer, self.options.attention_head
        )
        return states, attention[:, -1]

    @torch.inference_mode()
    def prime(self, history: np.ndarray) -> np.ndarray:
        """Read a beginning; the log-probabilities of all its tokens but the first."""
        states, _ = self._states(history[:, :-1])
        following = torch.from_numpy(history[:, 1:]).to(self.device)
        logs = self.model.output(states).log_softmax(dim=-1).gather(-1, following[:, :, None])
        return _numpy(logs.squeeze(-1))

    def _scores(self, history: np.ndarray) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-probabilities `(R, V)`, ranking scores `(R, V)`, attention.

        The two are one tensor unless a repetition penalty makes a difference.
        """
        states, attention = self._states(history)
        logs = self._project(states[:, -1]).float().log_softmax(dim=-1)
        scores = logs
        if self.options.repetition_penalty != 1.0:
            seen = torch.from_numpy(history[:, 1:].copy()).to(self.device)
            heavier = logs.gather(-1, seen) * self.options.repetition_penalty
            scores = logs.scatter(-1, seen, heavier)
        return logs, scores, attention

    def _allowed(self, scores: Tensor, banned: Banned | None) -> Tensor:
        """The scores with -inf where a token is not allowed; in place."""
        scores.index_fill_(1, self._never, -torch.inf)
        if banned is not None:
            rows = torch.from_numpy(banned.rows).to(self.device)
            tokens = torch.from_numpy(banned.tokens).to(self.device)
            scores[rows, tokens] = -torch.inf
        return scores

    @torch.inference_mode()
    def rank(
        self,
        history: np.ndarray,
        top: int,
        *,
        banned: Banned | None = None,
        wanted: np.ndarray | None = None,
    ) -> Ranked:
        """The `top` best next tokens of each row."""
        logs, scores, attention = self._scores(history)
        asked = None
        if wanted is not None:
            index = torch.from_numpy(np.maximum(wanted, 0)).to(self.device)
            asked = _numpy(logs.gather(1, index[:, None]))[:, 0]
        same = scores is logs
        values, tokens = best(self._allowed(scores, banned), top)
        ranked = _numpy(values)
        own = ranked if same else _numpy(logs.gather(1, tokens))
        seen = None if attention is None else _numpy(attention)
        return Ranked(tokens.cpu().numpy(), own, ranked, asked, seen)

    @torch.inference_mode()
    def distribution(self, history: np.ndarray, *, banned: Banned | None = None) -> Ranked:
        """All tokens of each row, in the order of their ids."""
        logs, scores, _ = self._scores(history)
        own = logs.cpu().numpy()
        allowed = self._allowed(scores.clone(), banned).cpu().numpy()
        tokens = np.broadcast_to(np.arange(own.shape[1]), own.shape)
        return Ranked(tokens, own, allowed, None, None)

    @torch.inference_mode()
    def reorder(self, rows: np.ndarray, sentences: np.ndarray | None) -> None:
        """Go on with these rows, of these sentences."""
        kept = None
        if sentences is not None:
            kept = torch.from_numpy(sentences).to(self.device)
        if self._memory is not None:
            if kept is not None:
                self._memory = Memory(*(part.index_select(0, kept) for part in self._memory))
            return
        own = self._cache.layers[0].own if self._cache.layers else None
        same_rows = own is not None and len(rows) == own.keys.shape[0] and _in_order(rows)
        if kept is not None or not same_rows:
            self._cache = self._cache.reorder(torch.from_numpy(rows).to(self.device), kept)


def _in_order(rows: np.ndarray) -> bool:
    return bool((rows == np.arange(len(rows))).all())


def _numpy(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()


def best(scores: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The `top` highest of each row, sorted; equal ones by lower id, at the border too.

    PyTorch leaves it open which of several equal values `topk` returns, so where the last taken
    equals the first left out, a stable sort decides.
    """
    V = scores.shape[1]
    if top >= V:
        values, tokens = scores.sort(dim=1, descending=True, stable=True)
        return values, tokens
    values, tokens = scores.topk(top + 1, dim=1)
    ties = values[:, :-1] == values[:, 1:]
    if bool(ties.any()):
        rows = ties.any(dim=1).nonzero().squeeze(1)
        exact, ids = scores[rows].sort(dim=1, descending=True, stable=True)
        values[rows], tokens[rows] = exact[:, : top + 1], ids[:, : top + 1]
    return values[:, :top], tokens[:, :top]
