"""The site can be built, leads nowhere that is not there, and fetches nothing."""

import json
import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docs import reference
from pellucid.cli.main import app
from pellucid.cli.parser import parameters_of

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "docs" / "experiments"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages, strictly: a warning (a dead link, an anchor, a forgotten page) is an error."""
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
    build(config)
    return folder


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 35
    loaded = re.compile(
        r'<(?:script|img|iframe|source)[^>]+src="(?:https?:)?//'
        r'|<link[^>]+rel="(?:stylesheet|preconnect|preload|icon)"[^>]+href="(?:https?:)?//'
        r'|<link[^>]+href="(?:https?:)?//[^>]+rel="(?:stylesheet|preconnect|preload|icon)"'
    )
    for page in pages:
        found = loaded.search(page.read_text("utf-8"))
        assert found is None, f"{page.name}: {found and found[0]}"


def test_every_link_inside_leads_somewhere(site: Path) -> None:
    """MkDocs checks what it made from Markdown; this checks what came out, raw HTML included."""
    ids = {
        page: set(re.findall(r'\bid="([^"]+)"', page.read_text("utf-8")))
        for page in site.rglob("*.html")
    }
    checked = 0
    for page in ids:
        body = page.read_text("utf-8").partition("<article")[2].partition("</article>")[0]
        for link in re.findall(r'href="([^"]+)"', body):
            if re.match(r"https?:|mailto:", link):
                continue
            place, _, anchor = link.partition("#")
            target = (page.parent / place).resolve() if place else page
            assert target.is_file(), f"{page.name}: {link}"
            if anchor:
                assert anchor in ids[target], f"{page.name}: {link}"
            checked += 1
    assert checked > 300


def test_code_of_the_source_is_on_the_pages(site: Path) -> None:
    page = (site / "book" / "04-attention.html").read_text("utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    assert "scores = q @ k.transpose(-2, -1)" in text
    assert "{{" not in text


def test_charts_are_part_of_the_page(site: Path) -> None:
    page = (site / "experiments" / "index.html").read_text("utf-8")
    assert page.count('<svg class="chart"') == len(list(EXPERIMENTS.glob("*.svg")))


def test_every_command_and_option_is_in_the_reference() -> None:
    page = reference.cli_page()
    for name, function in app.commands.items():
        part = page.partition(f"## pellucid {name}\n")[2].partition("\n## ")[0]
        assert part, name
        for parameter in parameters_of(function):
            for flag in parameter.flags:
                assert flag in part, f"{name} {flag}"


def test_the_routes_are_in_the_reference() -> None:
    page = reference.http_page()
    for route in ("POST /translate", "POST /detect", "GET /languages"):
        assert f"## {route}\n" in page


def test_public_names_are_in_the_reference() -> None:
    page = reference.python_page()
    for name in ("load", "train", "Translator", "Transformer", "attend", "DecodingOptions"):
        assert f"### {name}\n" in page
    assert " object at 0x" not in page


def test_every_experiment_is_on_the_page() -> None:
    page = (EXPERIMENTS / "index.md").read_text("utf-8")
    scripts = {file.stem for file in EXPERIMENTS.glob("*.py")} - {"results"}
    assert scripts == set(re.findall(r"^\{\{ experiment (\w+) \}\}$", page, re.MULTILINE))


@pytest.mark.parametrize("numbers", sorted(EXPERIMENTS.glob("*.json")), ids=lambda file: file.stem)
def test_an_experiment_left_its_picture_and_its_table(numbers: Path) -> None:
    found = json.loads(numbers.read_text("utf-8"))
    assert found["about"]
    assert all(len(row) == len(found["table"]["columns"]) for row in found["table"]["rows"])
    assert '<svg class="chart"' in numbers.with_suffix(".svg").read_text("utf-8")
