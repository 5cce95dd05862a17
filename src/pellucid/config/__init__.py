"""Every setting, validated. A config is data: frozen, printable, and saved with the model.

The docstring under a setting is its help text.
"""

from pellucid.config.data import (
    BatchConfig,
    CleaningConfig,
    CorpusConfig,
    CorpusFormat,
    DataConfig,
    Language,
    TokenizerConfig,
    split_direction,
)
from pellucid.config.model import (
    Activation,
    ModelConfig,
    ModelShape,
    NormKind,
    NormPlacement,
    PositionKind,
    PositionLayout,
    QueryKeyNorm,
    Tying,
)
from pellucid.config.recipe import Difference, ModelSection, Recipe, load_recipe, recipe_differences
from pellucid.config.settings import Settings, nearest
from pellucid.config.toml import as_toml
from pellucid.config.training import (
    CheckpointConfig,
    Metric,
    Schedule,
    StoppingConfig,
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
    "Language",
    "Metric",
    "ModelConfig",
    "ModelSection",
    "ModelShape",
    "NormKind",
    "NormPlacement",
    "PositionKind",
    "PositionLayout",
    "QueryKeyNorm",
    "Recipe",
    "Schedule",
    "Settings",
    "StoppingConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "Tying",
    "ValidationConfig",
    "as_toml",
    "load_recipe",
    "nearest",
    "recipe_differences",
    "split_direction",
]
