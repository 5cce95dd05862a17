"""What holds for every panel: no sideways scroll, keys, links, pictures, data, a file alone."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.inspection.command import look
from tests.web.api import ask, traced
from tests.web.conftest import LANGUAGES
from tests.web.serving import Server
from tests.web.waiting import until

Open = Callable[..., Any]
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def walk(page: Any, seen: Callable[[str], None] = lambda tab: None) -> list[str]:
    """Open each panel in turn, and wait until its numbers are there; the names of all."""
    names = []
    page.locator("#panel[aria-busy=false] h2").wait_for()
    for tab in page.locator("[role=tab]").all():
        tab.click()
        page.locator("#panel[aria-busy=false] h2").wait_for()
        until(page, "document.getElementById('panel')?.innerText.length > 150")
        page.wait_for_timeout(100)  # what comes later than that is seen at the next panel
        assert page.locator("#panel .error").count() == 0
        names.append(tab.inner_text())
        seen(names[-1])
    return names


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_never_scrolls_sideways(
    open_page: Open, server: Server, sentence: str, width: int
) -> None:
    view = {"q": sentence, **LANGUAGES, "panel": "tokens", "stop": 4}
    page = open_page(f"{server.address}/", width, **view)

    def fits(name: str) -> None:
        assert page.evaluate(TOO_WIDE) <= 0, name

    assert len(walk(page, fits)) == 15


def test_another_shape_of_model(open_page: Open, other_bundle: Path) -> None:
    """Rotary positions, RMSNorm, gated, grouped heads, one decoder layer, 76 tokens."""
    text = "The old captain found forty-two letters before it rains!"
    with Server(other_bundle) as server:
        view = {"q": text, "from": "en", "to": "fr", "panel": "tokens"}
        page = open_page(f"{server.address}/", 390, **view)
        walk(page)
        assert page.evaluate(TOO_WIDE) <= 0


def test_arrow_keys_lead_from_panel_to_panel(inside: Open) -> None:
    page = inside("tokens")
    page.locator("#tab-tokens").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-embedding"
    page.keyboard.press("ArrowLeft")
    assert page.locator("#tab-tokens").get_attribute("aria-selected") == "true"
    page.locator("h1").click()
    page.get_by_text("Large type").click()  # a lecture: the keys work wherever the focus is
    page.evaluate("document.activeElement.blur()")
    for key, panel in (("PageDown", "embedding"), ("ArrowRight", "map"), ("PageUp", "embedding")):
        page.keyboard.press(key)
        assert page.locator(f"#tab-{panel}").get_attribute("aria-selected") == "true"


def test_a_link_opens_the_same_view(open_page: Open, inside: Open) -> None:
    page = inside("attention", kind="encoder", layer=0, head=3, row=2, column=4)
    weight = page.locator("output[data-weight]")
    weight.wait_for()
    page.locator(".matrix").first.focus()
    page.keyboard.press("ArrowDown")
    page.get_by_text("Large type").click()
    again = open_page(page.url)
    again.locator("output[data-weight]").wait_for()
    assert again.locator("output[data-weight]").inner_text() == weight.inner_text()
    assert "row=3" in page.url
    assert again.locator(".inside.large").count() == 1
    # What was changed is in the link too.
    page.locator("#tab-beam").click()
    page.get_by_role("radio", name="greedy").click()
    page.locator("#panel[aria-busy=false]").wait_for()
    until(page, "location.hash.includes('with=')")
    third = open_page(page.url)
    chosen = third.get_by_role("radio", name="greedy")
    chosen.wait_for()
    assert chosen.get_attribute("aria-checked") == "true"


@pytest.mark.parametrize("panel", ["attention", "beam", "cell"])
def test_a_view_as_a_picture(inside: Open, panel: str) -> None:
    page = inside(panel, step=3)
    page.locator("#panel output").first.wait_for()
    with page.expect_download() as saved:
        page.get_by_text("Picture (SVG)").click()
    svg = ET.parse(saved.value.path()).getroot()
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    words = " ".join(text.strip() for text in svg.itertext())
    shown = {"attention": "</s>", "beam": "‹s›", "cell": "Softmax over the row"}[panel]
    assert shown in words
    fills = {part.get("style", "") for part in svg.iter()}
    assert any("fill: rgb" in style for style in fills)  # the colours came along


def test_the_trace_as_json(inside: Open, bundle: Path, sentence: str) -> None:
    page = inside("tokens")
    with page.expect_download() as saved:
        page.get_by_text("Data (JSON)").click()
    told = json.loads(Path(saved.value.path()).read_text(encoding="utf-8"))
    trace = traced(bundle, sentence)
    assert told["text"] == trace.text
    for name in trace.names("*.weights"):
        np.testing.assert_allclose(told["tensors"][name], trace[name], atol=1e-5)


def test_one_file_without_a_server(
    open_page: Open, bundle: Path, sentence: str, tmp_path: Path
) -> None:
    """`pellucid look -o page.html`: every panel that needs no model, and not one request."""
    file = tmp_path / "page.html"
    look(sentence, file, model=str(bundle))
    page = open_page(file.as_uri())
    page.locator("#panel h2").wait_for()
    names = walk(page)
    assert len(names) == 12
    page.get_by_text("Guided tour").click()
    stops = 0
    while page.locator(".tour .next").is_enabled():
        page.locator(".tour .next").click()
        page.wait_for_timeout(50)
        stops += 1
    assert stops == 16
    page.locator("#tab-attention").click()
    weight = page.locator(".matrix rect.cell[data-row='1'][data-column='2']")
    weight.wait_for()
    where = page.evaluate("import('page/store.js').then(s => s.view.value)")
    shown = float(weight.get_attribute("data-value"))
    weights = traced(bundle, sentence).attention(where["kind"], -1, "mean")
    assert where["layer"] == -1
    assert shown == pytest.approx(float(weights[1, 2]), abs=1e-6)


def test_a_bad_link_is_told(open_page: Open, server: Server, sentence: str) -> None:
    """A link that asks for what the model has not says so, and the page goes on."""
    ask(server.address, "about")
    view = {"q": sentence, **LANGUAGES, "panel": "beam", "layer": "99", "row": "-7", "head": "x"}
    page = open_page(f"{server.address}/", **view, **{"with": "{nonsense"})
    page.locator("#panel[aria-busy=false] h2").wait_for()
    walk(page)


def test_pictures_follow_the_colours_of_the_system(inside: Open) -> None:
    page = inside("embedding")
    canvas = page.locator("figure.heat canvas").first
    canvas.wait_for()
    pixels = "canvas => canvas.toDataURL()"
    page.locator("#panel[aria-busy=false] h2").wait_for()
    light, before = canvas.evaluate(pixels), ""
    while light != before:  # it is drawn anew as long as the panel finds its width
        page.wait_for_timeout(500)
        light, before = canvas.evaluate(pixels), light
    page.emulate_media(color_scheme="dark")
    until(
        page,
        f"before => ({pixels})(document.querySelector('figure.heat canvas')) !== before",
        arg=light,
    )
    page.emulate_media(color_scheme="light")
    until(
        page,
        f"before => ({pixels})(document.querySelector('figure.heat canvas')) === before",
        arg=light,
    )
