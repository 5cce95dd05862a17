"""Every setting, validated. A config is data: frozen, printable, and saved with the model.

The docstring under a setting is its help text. A module here is imported when one of its names
is asked for, so that a command pays for the settings it uses and no more.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pellucid.config.data import (
        BatchConfig,
        CleaningConfig,
        CorpusConfig,
        CorpusFormat,
        DataConfig,
        TokenizerConfig,
    )
    from pellucid.config.distillation import DistillationConfig
    from pellucid.config.language_codes import Language, split_direction
    from pellucid.config.model import (
        Activation,
        EmbeddingTying,
        ModelConfig,
        ModelShape,
        NormPlacement,
        NormType,
        PositionEncoding,
        PositionLayout,
        QueryKeyNorm,
    )
    from pellucid.config.recipe import (
        Difference,
        ModelSection,
        Recipe,
        load_recipe,
        recipe_differences,
    )
    from pellucid.config.settings import Settings
    from pellucid.config.toml import as_toml
    from pellucid.config.training import (
        CheckpointConfig,
        EarlyStoppingConfig,
        Metric,
        Schedule,
        TrainingConfig,
        ValidationConfig,
    )

__all__ = [
    "Activation",
    "BatchConfig",
    "CheckpointConfig",
    "CleaningConfig",
    "CorpusConfig",
    "CorpusFormat",
    "DataConfig",
    "Difference",
    "DistillationConfig",
    "EarlyStoppingConfig",
    "EmbeddingTying",
    "Language",
    "Metric",
    "ModelConfig",
    "ModelSection",
    "ModelShape",
    "NormPlacement",
    "NormType",
    "PositionEncoding",
    "PositionLayout",
    "QueryKeyNorm",
    "Recipe",
    "Schedule",
    "Settings",
    "TokenizerConfig",
    "TrainingConfig",
    "ValidationConfig",
    "as_toml",
    "load_recipe",
    "recipe_differences",
    "split_direction",
]

_MODULES = (
    "language_codes", "settings", "toml", "model", "data", "training", "distillation", "recipe",
)  # fmt: skip
"""Each imports only those before it."""


def __getattr__(name: str) -> Any:
    """A setting by its name, from the first module that has it."""
    if name in __all__:
        for module in _MODULES:
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
