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
    from pellucid.config.language_codes import Language, split_direction
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
    "recipe_differences",
    "split_direction",
]

_MODULES = ("languages", "settings", "toml", "model", "data", "training", "recipe")
"""Each imports only those before it."""


def __getattr__(name: str) -> Any:
    """A setting by its name, from the first module that has it."""
    if name in __all__:
        for module in _MODULES:
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
