"""The initial weights of a run: random ones, or those of an existing model (fine-tuning)."""

from __future__ import annotations

import torch

from pellucid.bundle import WEIGHTS, Bundle
from pellucid.config import ModelConfig, Recipe, TokenizerConfig
from pellucid.model import Transformer
from pellucid.tokenizers.base import Subwords
from pellucid.training.checkpoint.sharded_tensors import Stored
from pellucid.training.distributed.process_group import ProcessGroup, in_main
from pellucid.translator.loading import open_bundle


def open_initial_model(recipe: Recipe, group: ProcessGroup) -> Bundle | None:
    """Open the model of `init_from`, if the recipe has one; process 0 fetches it, all open it."""
    if recipe.init_from is None:
        return None
    first = in_main(group, lambda: open_bundle(recipe.init_from), patient=True)
    return first or open_bundle(recipe.init_from)


def tokenizer_for(recipe: Recipe, initial: Bundle | None) -> TokenizerConfig | Subwords:
    """Return the tokenizer of an existing model, or the settings to train a new one."""
    if initial is not None:
        return initial.tokenizer
    from_model = recipe.tokenizer.from_model
    return recipe.tokenizer if from_model is None else open_bundle(from_model).tokenizer


def planned_config(recipe: Recipe) -> ModelConfig:
    """Return the model config of a recipe before its tokenizer is trained."""
    if recipe.init_from is None:
        return recipe.model.config(tokenizer_for(recipe, None).vocab_size)
    return initial_config(recipe, open_bundle(recipe.init_from))


def initial_config(recipe: Recipe, initial: Bundle) -> ModelConfig:
    """Return the config of the initial model with the dropout settings of the recipe."""
    names = ("dropout", "attention_dropout", "activation_dropout")
    return initial.config.changed(**{name: getattr(recipe.model, name) for name in names})


def load_initial_weights(model: Transformer, initial: Bundle, group: ProcessGroup) -> None:
    """Copy the initial model's weights into the model, or into this process's shard of it."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, tensor in group.load_tensors(Stored([initial.folder / WEIGHTS]), parameters):
            parameters[name].copy_(tensor)
