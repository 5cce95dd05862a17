"""The glossary is true: each module, key, option, name, test and chapter that it names exists."""

import ast
import re
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from docs import reference
from docs.including import SOURCE, code
from pellucid.config import ModelConfig, Recipe
from pellucid.decoding import DecodingOptions
from pellucid.server.settings import ServerSettings
from tests.docs.test_book import anchors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "glossary.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| term")
]
SETTINGS: dict[str, type[BaseModel]] = {
    kind.__name__: kind for kind in (DecodingOptions, ServerSettings, ModelConfig)
}
TERMS = """
gradient accumulation, early stopping, gradient clipping, KV cache, mixed precision, checkpoint
averaging, exponential moving average, rate limit, label smoothing, learning-rate warm-up, weight
decay, dropout, teacher forcing, knowledge distillation, subword regularization, BPE, unigram, byte
fallback, beam search, greedy, sampling, top-k, top-p, temperature, length penalty, n-best,
no-repeat n-gram, forced decoding, cross-attention, self-attention, causal mask, padding mask,
multi-head, grouped-query attention, rotary positions, sinusoidal positions, LayerNorm, RMSNorm,
pre-norm, post-norm, QK-norm, residual, feed-forward, SwiGLU, logits, softmax, logit lens,
perplexity, cross-entropy, BLEU, chrF, TER, COMET, bootstrap significance, DDP, FSDP, int8
quantization, bucketing, max_tokens, resume, checkpoint, safetensors, Adam, AdamW, Muon, Noam,
cosine, warmup-stable-decay, tied embeddings, vocabulary, tokenizer, detokenization, translation
memory, backpressure
"""


def settings_in(annotation: Any) -> type[BaseModel] | None:
    """Return the settings class in an annotation: itself, or of the items of a tuple."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, Union, UnionType):
        return settings_in(get_args(annotation)[0])
    return None


def has_setting(kind: type[BaseModel], keys: list[str]) -> bool:
    inside: Any = kind
    for key in keys:
        if inside is None or key not in inside.model_fields:
            return False
        inside = settings_in(inside.model_fields[key].annotation)
    return True


def has_option(name: str) -> bool:
    """Whether the reference of the commands has `pellucid COMMAND [--option]`."""
    command, _, option = name.partition(" --")
    part = reference.cli_page().partition(f"## {command}\n")[2].partition("\n## ")[0]
    return bool(re.search(rf"--{option}\b", part) if option else part)


def has_name(file: str, name: str) -> bool:
    """Whether a module has this class, function or method, with the argument in brackets."""
    symbol, _, argument = name.removesuffix(")").partition("(")
    module = f"pellucid.{file.removesuffix('.py').replace('/', '.')}"
    (node,) = ast.parse(code(module, symbol)).body
    return not argument or argument in {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}


def exists(key: str, file: str) -> bool:
    if key.startswith("pellucid "):
        return has_option(key)
    first, *rest = key.split(".")
    if first in Recipe.model_fields:
        return has_setting(Recipe, [first, *rest])
    if first in SETTINGS and len(rest) == 1:
        kind = SETTINGS[first]
        return has_setting(kind, rest) or isinstance(getattr(kind, rest[0], None), property)
    return has_name(file, key)


def test_the_table_is_read_whole() -> None:
    assert len(ROWS) >= 80
    assert all(len(row) == 6 and row[0] and row[1] for row in ROWS)
    names = [row[0] for row in ROWS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("term", [term.strip() for term in TERMS.replace("\n", " ").split(",")])
def test_a_term_that_people_search_for_is_there(term: str) -> None:
    words = [re.sub(r"\W+", " ", row[0].lower()) for row in ROWS]
    wanted = re.sub(r"\W+", " ", term.lower())
    assert any(re.search(rf"\b{wanted}", one) for one in words), term


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_what_exists(row: list[str]) -> None:
    _, _, keys, module, test, page = row
    file = module.strip("`")
    assert (SOURCE / "pellucid" / file).is_file(), file
    for key in re.findall(r"`([^`]+)`", keys):
        assert exists(key, file), key
    test_file, _, function = test.strip("`").partition("::")
    assert (ROOT / "tests" / test_file).is_file(), test_file
    if function:
        tree = ast.parse((ROOT / "tests" / test_file).read_text("utf-8"))
        assert function in {getattr(node, "name", None) for node in ast.walk(tree)}, test
    link = re.fullmatch(r"\[[\w /-]+\]\(([\w./-]+\.md)(?:#([\w-]+))?\)", page)
    assert link, page
    assert (DOCS / link[1]).is_file(), page
    assert link[2] is None or link[2] in anchors(DOCS / link[1]), page


@pytest.mark.parametrize(
    "key",
    [
        "training.rate", "data.train.kind", "DecodingOptions.beam", "pellucid serve --per-minute",
        "pellucid trains",
    ],
)  # fmt: skip
def test_what_does_not_exist_is_noticed(key: str) -> None:
    assert not exists(key, "training/loss.py")


def test_it_is_linked() -> None:
    for page in ("README.md", "docs/index.md", "mkdocs.yml"):
        assert "glossary.md" in (ROOT / page).read_text("utf-8"), page
