"""The book is about this program: what it names exists, and no room is left out."""

import ast
import re
from pathlib import Path

import pytest
from markdown import Markdown

from docs.including import CODE, PICTURE, IncludeError, code, expanded, module_file
from docs.pictures import PICTURES

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "docs" / "book"
CHAPTERS = sorted(BOOK.glob("[0-9]*.md"))
PANELS = set(
    re.findall(r'\{ id: "(\w+)"', (ROOT / "src/pellucid/web/static/inside.js").read_text("utf-8"))
)
ROWS = re.findall(
    r"^\| ([^|]+) \| `([\w.]+):([\w.]+)` \| `([\w./]+)::(\w+)` \| `(\w+)` "
    r"\| \[\d+\]\(([\w.-]+)#([\w-]+)\) \|$",
    (BOOK / "14-concepts.md").read_text("utf-8"),
    re.MULTILINE,
)
TAUGHT = ["model", "decoding", "training"]
ELSEWHERE = {
    "model": {"flops"},
    "decoding": {
        "alignment", "ct2.conversion", "ct2.engine", "ct2.specification", "engine",
        "engine_selection", "forced", "search.hypotheses", "search.predictor", "search.task",
        "steps", "torch.engine", "torch.linear", "torch.predictor", "torch.step_cache",
        "torch.step_decoder",
    },
    "training": {
        "batch_tensors", "callbacks.callback", "callbacks.live_panel", "callbacks.metrics_file",
        "callbacks.run_facts", "callbacks.tensorboard", "callbacks.terminal",
        "callbacks.throughput", "checkpoint.checkpoints", "checkpoint.sharded_tensors", "command",
        "devices", "distributed.ddp", "distributed.fsdp", "distributed.process_group",
        "embedding_init", "export_bundle", "init_weights", "optim.optimizers",
        "plan.corpus_lengths", "plan.estimate", "plan.hardware", "plan.measurement",
        "plan.plan_tables", "plan.training_flops", "run", "run_report", "signals",
        "training_state", "validate",
    },
}  # fmt: skip
"""Modules without a concept of the lecture notes: machinery, which the pages "In depth" explain."""


def anchors(page: Path) -> set[str]:
    reader = Markdown(extensions=["toc", "tables", "fenced_code"])
    reader.convert(page.read_text("utf-8"))

    def names(tokens: list[dict]) -> set[str]:
        return {name for one in tokens for name in ({one["id"]} | names(one["children"]))}

    return names(reader.toc_tokens)


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)
def test_a_chapter_can_be_put_together(page: Path) -> None:
    text = page.read_text("utf-8")
    whole = expanded(text)
    assert "{{" not in whole
    for module, symbol in CODE.findall(text):
        assert code(module, symbol) in whole
    if page.stem != "14-concepts":
        assert 'class="formula"' in text or page.stem in ("05-masks", "08-stacks")
        assert CODE.search(text)
        assert "\n## Try\n" in text


def test_every_picture_has_its_place() -> None:
    placed = [name for page in CHAPTERS for name in PICTURE.findall(page.read_text("utf-8"))]
    assert sorted(placed) == sorted(PICTURES)


def test_every_room_has_its_lines() -> None:
    shown = {m for page in CHAPTERS for m, _ in CODE.findall(page.read_text("utf-8"))}
    for room in TAUGHT:
        folder = ROOT / "src" / "pellucid" / room
        there = {
            ".".join(file.relative_to(folder).with_suffix("").parts)
            for file in folder.rglob("[a-z]*.py")
        }
        missing = {n for n in there - ELSEWHERE[room] if f"pellucid.{room}.{n}" not in shown}
        assert not missing, f"no chapter shows lines of {room}: {missing}"
        assert ELSEWHERE[room] <= there


def test_the_table_is_read_whole() -> None:
    lines = [
        line
        for line in (BOOK / "14-concepts.md").read_text("utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| concept")
    ]
    assert len(ROWS) == len(lines) >= 40


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_concept_is_where_the_table_says(row: tuple[str, ...]) -> None:
    _, module, symbol, test_file, test, panel, chapter, anchor = row
    assert code(module, symbol)
    tree = ast.parse((ROOT / test_file).read_text("utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert test in names, f"{test_file} has no {test}"
    assert panel in PANELS
    assert anchor in anchors(BOOK / chapter)


def test_what_is_not_there_is_noticed() -> None:
    for wrong in (
        "{{ code pellucid.model.attention:attends }}",
        "{{ code pellucid.model.intention:attend }}",
        "{{ picture nobody }}",
        "{{ something else }}",
    ):
        with pytest.raises(IncludeError):
            expanded(f"before\n{wrong}\nafter")


def test_a_method_is_taken_whole_and_alone() -> None:
    taken = code("pellucid.model.masks", "padding_mask")
    assert taken.startswith("def padding_mask(")
    assert taken in module_file("pellucid.model.masks").read_text("utf-8")
    assert "def causal_mask" not in taken
    method = code("pellucid.model.cache", "Cache.own_bytes")
    assert method.startswith("@property\ndef own_bytes(self)")


def test_a_missing_picture_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import docs.including as including

    monkeypatch.setattr(including, "FOLDER", tmp_path)
    page = "a\n\n{{ picture cross }}\n\nb"
    with pytest.raises(IncludeError, match="the picture cross is missing"):
        expanded(page)
    (tmp_path / "cross.svg").write_text("<svg/>")
    assert "![Cross-attention" in expanded(page)
