"""What a run starts with: new weights, or those of a model that is there (fine-tuning)."""

from __future__ import annotations

import torch

from pellucid.bundle import WEIGHTS, Bundle
from pellucid.config import ModelConfig, Recipe, TokenizerConfig
from pellucid.model import Transformer
from pellucid.tokenizers.base import Subwords
from pellucid.training.checkpoint.sharded_tensors import Stored
from pellucid.training.distributed.process_group import ProcessGroup, in_main
from pellucid.translator.loading import open_bundle


def open_start(recipe: Recipe, group: ProcessGroup) -> Bundle | None:
    """The model that a recipe starts from, if it does; fetched by process 0, opened by all."""
    if recipe.init_from is None:
        return None
    first = in_main(group, lambda: open_bundle(recipe.init_from), patient=True)
    return first or open_bundle(recipe.init_from)


def pieces_for(recipe: Recipe, start: Bundle | None) -> TokenizerConfig | Subwords:
    """What cuts the text: the pieces of a model that is there, or how to learn new ones."""
    if start is not None:
        return start.tokenizer
    like = recipe.tokenizer.from_model
    return recipe.tokenizer if like is None else open_bundle(like).tokenizer


def planned_config(recipe: Recipe) -> ModelConfig:
    """The shape that a run of a recipe has, before there is a vocabulary."""
    if recipe.init_from is None:
        return recipe.model.config(pieces_for(recipe, None).vocab_size)
    return start_config(recipe, open_bundle(recipe.init_from))


def start_config(recipe: Recipe, start: Bundle) -> ModelConfig:
    """The shape of that model, with the dropouts of the recipe."""
    names = ("dropout", "attention_dropout", "activation_dropout")
    return start.config.changed(**{name: getattr(recipe.model, name) for name in names})


def load_start(model: Transformer, start: Bundle, group: ProcessGroup) -> None:
    """Give a model of that shape its weights, whatever part of it this process holds."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, tensor in group.loaded(Stored([start.folder / WEIGHTS]), parameters):
            parameters[name].copy_(tensor)
