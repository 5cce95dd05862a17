"""Looking inside: translate one sentence and record everything that the model computes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.steps import Fate, Result, Step, run_to_end
from pellucid.decoding.torch.engine import search
from pellucid.errors import InputError
from pellucid.inspection.derived import attention_of, derived, log_probabilities
from pellucid.inspection.trace import (
    CacheRow,
    FinishedHypothesis,
    LensGuess,
    Round,
    Token,
    Tokens,
    Trace,
)
from pellucid.model import TensorTrace, Transformer
from pellucid.model.flops import step_flops
from pellucid.text.casing import lowered
from pellucid.tokenizers.base import Side, Subwords

MAX_LENGTH = 256
"""Most tokens of source and target; attention maps grow with its square."""

LENS_GUESSES = 5
"""Tokens that the logit lens gives for each layer and position."""

NAMED_LOGITS = 20
"""Number of the best tokens at each position whose piece is in the trace."""


@dataclass(frozen=True)
class AblatedHead:
    """An attention head to switch off: its part of the output is left out (head ablation)."""

    kind: str
    """encoder (self-attention), decoder (self-attention) or cross."""
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.kind} attention, layer {self.layer + 1}, head {self.head + 1} switched off"


def look_inside(
    model: Transformer,
    tokenizer: Subwords,
    special: SpecialIds,
    text: str,
    direction: str,
    options: DecodingOptions,
    *,
    prefix: Sequence[int] = (),
    without: Sequence[int] = (),
    off: Sequence[AblatedHead] = (),
) -> Trace:
    """Return the trace of one sentence, which is tokenized as the translator does it.

    prefix: token ids that the output must begin with. without: positions of source tokens to
    remove. off: attention heads to switch off.
    """
    if not text.strip():
        raise InputError("there is nothing to look at: write a sentence")
    source_language, target_language = direction.split("-")[:2]
    small = lowered(text, source_language, lambda some: len(tokenizer.encode(some)))
    ids = tokenizer.encode(small or text, target_language=target_language)
    removed = _checked_positions(ids, without, tokenizer.lead)
    changed = ["capitals, which the model hardly knows, read as small letters"] if small else []
    changed += [f"source token {tokenizer.piece(ids[i])!r} taken out" for i in removed]
    if prefix:
        changed.append(f"the output has to begin with {tokenizer.decode(prefix)!r}")
    ids = [token for i, token in enumerate(ids) if i not in removed]
    if len(ids) > MAX_LENGTH:
        raise InputError(
            f"the sentence has {len(ids)} tokens, and a look inside holds at most {MAX_LENGTH}: "
            "look at a shorter one"
        )
    longest = min(MAX_LENGTH, options.max_length or MAX_LENGTH)
    options = options.changed(max_length=longest, n_best=1)
    model = without_heads(model, off) if off else model
    steps, result = _search(model, special, ids, options, prefix)
    recorded = TensorTrace()
    target = [special.start, *result.best.tokens]
    with torch.inference_mode():
        model(torch.tensor([ids]), torch.tensor([target]), trace=recorded)
        tensors = {name: _array(name, recorded[name]) for name in recorded}
        tensors |= derived(model, tensors)
        lens = _lens(model, tokenizer, recorded)
        cache = _cache(model, ids, special, steps, prefix)
        likely = recorded["logits"][0].topk(min(NAMED_LOGITS, model.config.vocab_size)).indices
    last = special.end if result.best.ended == "eos" else int(likely[-1, 0])
    answers = [*result.best.tokens, last]
    tensors["log_probabilities"] = log_probabilities(tensors["logits"], answers)
    rounds = tuple(Round(step.length, tuple(step.candidates(0))) for step in steps)
    seen = {c.token for one in rounds for c in one.candidates} | {*ids, *target, *answers}
    seen |= set(likely.flatten().tolist())
    return Trace(
        source=text,
        text=tokenizer.decode(result.best.tokens),
        direction=direction,
        tokens=Tokens(
            tokens_of(tokenizer, ids, "source"),
            tokens_of(tokenizer, target),
            tokens_of(tokenizer, answers),
        ),
        tensors=tensors,
        beam=rounds,
        hypotheses=_finished(tokenizer, steps, result),
        cache=cache,
        model=model.config.model_dump(mode="json"),
        options=options.model_dump(mode="json"),
        lens=lens,
        pieces={token: tokenizer.piece(token) for token in sorted(seen)},
        changed=(*changed, *map(str, off)),
    )


def without_heads(model: Transformer, off: Sequence[AblatedHead]) -> Transformer:
    """Return a copy of a model in which some heads add nothing: their part of W_O is zero."""
    model = copy.deepcopy(model)
    for switch in off:
        if switch.kind not in ("encoder", "decoder", "cross"):
            raise InputError(f"no attention {switch.kind!r}: choose encoder, decoder or cross")
        stack = "encoder" if switch.kind == "encoder" else "decoder"
        layers = len(getattr(model, stack).layers)
        if not (0 <= switch.layer < layers and 0 <= switch.head < model.config.num_heads):
            raise InputError(
                f"no layer {switch.layer} with head {switch.head} in the {switch.kind}: there are "
                f"{layers} layers of {model.config.num_heads} heads, counted from 0"
            )
        attention = attention_of(model, stack, switch.layer, cross=switch.kind == "cross")
        K = model.config.head_dim
        with torch.no_grad():
            attention.out.weight[:, switch.head * K : (switch.head + 1) * K] = 0
    return model


def _checked_positions(ids: Sequence[int], without: Sequence[int], lead: int) -> list[int]:
    """Return the positions to remove, in order. lead: number of ids before the words."""
    for position in without:
        if not lead <= position < len(ids) - 1:
            raise InputError(
                f"source token {position} cannot be taken out: choose {lead} to {len(ids) - 2}, "
                "the words; the language tag, if there is one, and the end stay"
            )
    return sorted(set(without))


def _search(
    model: Transformer,
    special: SpecialIds,
    ids: list[int],
    options: DecodingOptions,
    prefix: Sequence[int],
) -> tuple[list[Step], Result]:
    steps, results = run_to_end(
        search(model, special, [ids], options, [list(prefix)] if prefix else None)
    )
    return steps, results[0]


def _finished(
    tokenizer: Subwords, steps: Sequence[Step], result: Result
) -> tuple[FinishedHypothesis, ...]:
    """Return all finished hypotheses, the output first, then by score."""
    found = [hypothesis for step in steps for _, hypothesis in step.finished]
    found = [result.best, *(h for h in found if h.tokens != result.best.tokens)]
    found[1:] = sorted(found[1:], key=lambda h: -h.score)
    return tuple(
        FinishedHypothesis(
            h.tokens, h.length, h.log_probability, h.score, h.ended, tokenizer.decode(h.tokens)
        )
        for h in found
    )


def tokens_of(tokenizer: Subwords, ids: Sequence[int], side: Side = "target") -> tuple[Token, ...]:
    """Return token ids with their pieces."""
    return tuple(Token(token, tokenizer.piece(token, side)) for token in ids)


def _array(name: str, tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor without its batch dimension of 1, as numpy; positions have none."""
    array: np.ndarray = tensor.detach().cpu().numpy()
    return array.copy() if name.endswith(".positions") else array[0].copy()


def _lens(
    model: Transformer, tokenizer: Subwords, recorded: TensorTrace
) -> tuple[tuple[tuple[LensGuess, ...], ...], ...]:
    """Return the logit lens: each decoder layer's state through the final norm and output layer."""
    found = []
    for number in range(model.config.decoder_layers):
        state = recorded[f"decoder.{number}.state"]
        if model.decoder.norm is not None:
            state = model.decoder.norm(state)
        probabilities = model.output(state).softmax(-1)[0]  # (T, V)
        best = probabilities.topk(min(LENS_GUESSES, probabilities.shape[-1]))
        found.append(
            tuple(
                tuple(
                    LensGuess(Token(token, tokenizer.piece(token)), probability)
                    for token, probability in zip(tokens, values, strict=True)
                )
                for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            )
        )
    return tuple(found)


def _cache(
    model: Transformer,
    ids: list[int],
    special: SpecialIds,
    steps: Sequence[Step],
    prefix: Sequence[int],
) -> tuple[CacheRow, ...]:
    """Repeat the search with a KV cache; return its size and parent rows after each round."""
    config = model.config
    cache = model.start(model.encode(torch.tensor([ids])))
    tokens = torch.tensor([[special.start, *prefix[: steps[0].length - 1]]])  # a prefill
    parents, found = [0], []
    for step in steps:
        _, cache = model.decode(tokens, cache)
        with_cache, without = (
            sum(
                step_flops(config, length, len(ids), cached=cached)
                for length in range(step.length - tokens.shape[1] + 1, step.length + 1)
            )
            for cached in (True, False)
        )
        found.append(
            CacheRow(
                step.length,
                len(tokens),
                cache.own_bytes,
                cache.cross_bytes,
                tuple(parents),
                len(tokens) * with_cache // 2,
                len(tokens) * without // 2,
            )
        )
        kept = [c for c in step.candidates(0) if c.fate is Fate.KEPT]
        if not kept:
            break
        parents = [c.parent for c in kept]
        tokens = torch.tensor([[c.token] for c in kept])
        cache = cache.reorder(torch.tensor(parents))
    return tuple(found)
