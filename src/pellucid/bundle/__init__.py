"""A model on disk: a folder that holds all that translating needs, each file checked by its hash.

    manifest.json          size and sha256 of every file, and of the manifest itself
    config.toml            the model's configuration, its languages and directions
    weights.safetensors    the weights; tied matrices are stored once
    tokenizer.model        the tokenizer; that of an imported model is special.json, source.spm,
                           target.spm, vocab.json and, if the target has ids of its own,
                           target_vocab.json
    MODEL.md               the model card
    ct2/                   the same model for CTranslate2, where CTranslate2 can express it

A bundle is opened as data, never as code: nothing is unpickled, and no file outside the folder is
read. Opening one needs no PyTorch; only `Bundle.model` does.
"""

from pellucid.bundle.bundle import Bundle
from pellucid.bundle.layout import (
    ABOUT,
    CONFIG,
    CT2,
    TOKENIZER,
    WEIGHTS,
    BundleConfig,
    DamagedBundleError,
    tied_names,
)
from pellucid.storage.folder import MANIFEST

__all__ = [
    "ABOUT",
    "CONFIG",
    "CT2",
    "MANIFEST",
    "TOKENIZER",
    "WEIGHTS",
    "Bundle",
    "BundleConfig",
    "DamagedBundleError",
    "tied_names",
]
