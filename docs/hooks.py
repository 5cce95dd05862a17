"""What MkDocs does beyond turning Markdown into HTML: see including.py and reference.py."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs import reference  # noqa: E402
from docs.including import IncludeError, expanded  # noqa: E402

DOCS = ROOT / "docs"
MARKED = re.compile(r"^```(\w+) (?:run|serve|file=|skip:).*$", re.MULTILINE)
"""A block of the guide that tests/docs/test_guide.py runs, or says why not."""

_LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)\)")
_CHART = re.compile(r'<img alt="[^"]*" src="([^"]+\.svg)" ?/?>')
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)


def _outside(link: str, page: Path) -> str | None:
    """Where in the repository a link of a page leads, if not into docs/."""
    target = (page.parent / link).resolve()
    if target.is_relative_to(DOCS) or not target.is_relative_to(ROOT) or not target.is_file():
        return None
    return target.relative_to(ROOT).as_posix()


def on_files(files: Files, config: Any) -> Files:
    """Add the reference, and the files of the repository that pages link to."""
    made = reference.pages()
    for page in files.documentation_pages():
        source = DOCS / page.src_uri
        for link in _LINK.findall(source.read_text(encoding="utf-8")):
            if place := _outside(link, source):
                made[f"repository/{place}"] = (ROOT / place).read_text(encoding="utf-8")
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put in what the page names; links into the repository stay inside of the site."""
    source = DOCS / page.file.src_uri
    try:
        markdown = expanded(markdown)
    except IncludeError as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error

    def kept(match: re.Match[str]) -> str:
        place = _outside(match[1], source)
        if place is None:
            return match[0]
        folder = Path(page.file.src_uri).parent
        return f"]({Path(os.path.relpath(f'repository/{place}', folder)).as_posix()})"

    return MARKED.sub(r"```\1", _LINK.sub(kept, markdown))


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Charts become part of the page, so that they follow its colours, light or dark."""

    def inlined(match: re.Match[str]) -> str:
        file = (DOCS / page.file.src_uri).parent / match[1]
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return _STYLE.sub("", text) if 'class="chart"' in text else match[0]

    return _CHART.sub(inlined, html)
