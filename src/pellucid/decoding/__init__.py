"""Decoding: options, searches as streams of steps, and engines.

Read in this order: options, steps, engine; in search/: task, predictor, hypotheses, greedy,
sampling, beam; in torch/: linear, step_cache, step_decoder, predictor, engine; then forced and
alignment. Only torch/, forced and alignment need PyTorch; import them by name.
"""

from pellucid.decoding.engine import Engine, SpecialIds
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.steps import Candidate, Fate, Hypothesis, Result, Step

__all__ = [
    "Candidate",
    "DecodingOptions",
    "Engine",
    "Fate",
    "Hypothesis",
    "Result",
    "SpecialIds",
    "Step",
]
