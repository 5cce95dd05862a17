"""From scores to sentences: options, searches as streams of steps, and engines.

Read in this order: options, steps, engine, task, predictor, beams, greedy, sampling, beam,
torch_linear, torch_cache, torch_step, torch_predictor, forced, torch_engine. Only the last six need
PyTorch; import them by name.
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
