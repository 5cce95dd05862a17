"""Looking inside: run one sentence through the model with everything recorded."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.steps import Fate, Result, Step, drained
from pellucid.decoding.torch.engine import search
from pellucid.errors import InputError
from pellucid.inspection.derived import attention_of, derived, log_probabilities
from pellucid.inspection.trace import CacheRow, Ended, LensGuess, Round, Token, Tokens, Trace
from pellucid.model import TensorTrace as Recorder
from pellucid.model import Transformer
from pellucid.model.flops import step_flops
from pellucid.text.casing import lowered
from pellucid.tokenizers.base import Side, Subwords

LONGEST = 256
"""Tokens of a side; attention maps grow with the square of it."""

LENS_GUESSES = 5
NAMED_LOGITS = 20
"""How many of the best tokens at each place have their piece in the trace."""


@dataclass(frozen=True)
class HeadOff:
    """A head that is to be switched off: what it would add to the output is left out."""

    kind: str
    """encoder, decoder (its self-attention) or cross."""
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
    off: Sequence[HeadOff] = (),
) -> Trace:
    """The trace of one sentence, which is read as the translator reads it.

    prefix: token ids that the output has to begin with. without: positions of source tokens that
    are taken out. off: heads that are switched off.
    """
    if not text.strip():
        raise InputError("there is nothing to look at: write a sentence")
    source, target = direction.split("-")[:2]
    small = lowered(text, source, lambda some: len(tokenizer.encode(some)))
    ids = tokenizer.encode(small or text, target_language=target)
    left_out = _positions(ids, without, tokenizer.lead)
    changed = ["capitals, which the model hardly knows, read as small letters"] if small else []
    changed += [f"source token {tokenizer.piece(ids[i])!r} taken out" for i in left_out]
    if prefix:
        changed.append(f"the output has to begin with {tokenizer.decode(prefix)!r}")
    ids = [token for i, token in enumerate(ids) if i not in left_out]
    if len(ids) > LONGEST:
        raise InputError(
            f"the sentence has {len(ids)} tokens, and a look inside holds at most {LONGEST}: "
            "look at a shorter one"
        )
    longest = min(LONGEST, options.max_length or LONGEST)
    options = options.changed(max_length=longest, n_best=1)
    model = without_heads(model, off) if off else model
    steps, result = _searched(model, special, ids, options, prefix)
    recorder = Recorder()
    written = [special.start, *result.best.tokens]
    with torch.inference_mode():
        model(torch.tensor([ids]), torch.tensor([written]), trace=recorder)
        tensors = {name: _plain(name, recorder[name]) for name in recorder}
        tensors |= derived(model, tensors)
        lens = _lens(model, tokenizer, recorder)
        cache = _cache(model, ids, special, steps, prefix)
        likely = recorder["logits"][0].topk(min(NAMED_LOGITS, model.config.vocab_size)).indices
    last = special.end if result.best.ended == "eos" else int(likely[-1, 0])
    answers = [*result.best.tokens, last]
    tensors["log_probabilities"] = log_probabilities(tensors["logits"], answers)
    rounds = tuple(Round(step.length, tuple(step.candidates(0))) for step in steps)
    seen = {c.token for one in rounds for c in one.candidates} | {*ids, *written, *answers}
    seen |= set(likely.flatten().tolist())
    return Trace(
        source=text,
        text=tokenizer.decode(result.best.tokens),
        direction=direction,
        tokens=Tokens(
            tokens_of(tokenizer, ids, "source"),
            tokens_of(tokenizer, written),
            tokens_of(tokenizer, answers),
        ),
        tensors=tensors,
        beam=rounds,
        hypotheses=_ended(tokenizer, steps, result),
        cache=cache,
        model=model.config.model_dump(mode="json"),
        options=options.model_dump(mode="json"),
        lens=lens,
        pieces={token: tokenizer.piece(token) for token in sorted(seen)},
        changed=(*changed, *map(str, off)),
    )


def without_heads(model: Transformer, off: Sequence[HeadOff]) -> Transformer:
    """A copy of a model in which some heads add nothing: their part of W_O is zero."""
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


def _positions(ids: Sequence[int], without: Sequence[int], lead: int) -> list[int]:
    """What is to be taken out, in order. lead: how many ids stand before the words."""
    for position in without:
        if not lead <= position < len(ids) - 1:
            raise InputError(
                f"source token {position} cannot be taken out: choose {lead} to {len(ids) - 2}, "
                "the words; the language tag, if there is one, and the end stay"
            )
    return sorted(set(without))


def _searched(
    model: Transformer,
    special: SpecialIds,
    ids: list[int],
    options: DecodingOptions,
    prefix: Sequence[int],
) -> tuple[list[Step], Result]:
    steps, results = drained(
        search(model, special, [ids], options, [list(prefix)] if prefix else None)
    )
    return steps, results[0]


def _ended(tokenizer: Subwords, steps: Sequence[Step], result: Result) -> tuple[Ended, ...]:
    """Every hypothesis that ended, the answer first, then by score."""
    found = [hypothesis for step in steps for _, hypothesis in step.ended]
    found = [result.best, *(h for h in found if h.tokens != result.best.tokens)]
    found[1:] = sorted(found[1:], key=lambda h: -h.score)
    return tuple(
        Ended(h.tokens, h.length, h.log_probability, h.score, h.ended, tokenizer.decode(h.tokens))
        for h in found
    )


def tokens_of(tokenizer: Subwords, ids: Sequence[int], side: Side = "target") -> tuple[Token, ...]:
    """Ids with their pieces."""
    return tuple(Token(token, tokenizer.piece(token, side)) for token in ids)


def _plain(name: str, tensor: torch.Tensor) -> np.ndarray:
    """A tensor without its batch dimension of 1, as numpy; positions have none."""
    array: np.ndarray = tensor.detach().cpu().numpy()
    return array.copy() if name.endswith(".positions") else array[0].copy()


def _lens(
    model: Transformer, tokenizer: Subwords, recorder: Recorder
) -> tuple[tuple[tuple[LensGuess, ...], ...], ...]:
    """What the model would say after each decoder layer: final norm and output, as at the end."""
    found = []
    for number in range(model.config.decoder_layers):
        state = recorder[f"decoder.{number}.state"]
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
    """The search once more with the cache in hand: how it grows, and whose rows go on."""
    config = model.config
    cache = model.start(model.encode(torch.tensor([ids])))
    tokens = torch.tensor([[special.start, *prefix[: steps[0].length - 1]]])  # read at once
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
