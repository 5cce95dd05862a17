"""The Transformer, as pure tensors: no files, no printing.

One legend of shape letters for the whole project: B batch, S source length, T target length,
D model width, H heads, G heads of keys and values, K width of a head, F feed-forward width,
V vocabulary, L layers.

Read in this order: masks, positions, tensor_trace, attention, cache, layers, stacks, transformer.
"""

from pellucid.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("pellucid.model (training, and looking inside)", "train") from error

from pellucid.config import ModelConfig
from pellucid.model.attention import KeyValues, MultiHeadAttention, attend, attend_fused
from pellucid.model.cache import Cache
from pellucid.model.tensor_trace import TensorTrace
from pellucid.model.transformer import DecoderOnly, EncoderOnly, Memory, Transformer

__all__ = [
    "Cache",
    "DecoderOnly",
    "EncoderOnly",
    "KeyValues",
    "Memory",
    "ModelConfig",
    "MultiHeadAttention",
    "TensorTrace",
    "Transformer",
    "attend",
    "attend_fused",
]
