"""All settings, validated. A config is data: frozen, printable, and saved with the model.

The docstring under a setting is its help text. The modules are imported lazily, when one of their
names is first used, so that a command imports only the settings it needs.
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
"""Each module imports only modules before it."""


def __getattr__(name: str) -> Any:
    """Import a public name from the first module that has it."""
    if name in __all__:
        for module in _MODULES:
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
