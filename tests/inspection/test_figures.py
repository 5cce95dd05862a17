"""Pictures of a trace: well-formed, escaped, and with the numbers of the trace in them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from pellucid.decoding import DecodingOptions
from pellucid.decoding.engine import special_ids
from pellucid.decoding.steps import Fate
from pellucid.drawing.svg import Curve, line_chart
from pellucid.inspection.figures import attention_svg, beam_svg, positions_svg, standalone
from pellucid.inspection.trace import Token, Tokens, Trace
from pellucid.inspection.tracing import look_inside
from pellucid.model.positions import sinusoidal_table
from tests.bundles import random_model
from tests.made_up import tokenizer
from tests.pages import HARM, Page

SVG = "{http://www.w3.org/2000/svg}"
WORDS = tokenizer()


@cache
def looked(**options: Any) -> Trace:
    prefix = options.pop("prefix", ())
    return look_inside(
        random_model(WORDS.vocab_size),
        WORDS,
        special_ids(WORDS),
        "The baker will repair the green bicycle in the garden!",
        "en-fr",
        DecodingOptions(**{"max_length": 7, **options}),
        prefix=prefix,
    )


def hostile() -> Trace:
    """A trace whose every piece wants to be markup."""
    trace = looked(beam_size=2)
    sides = (tuple(Token(t.id, HARM) for t in side) for side in trace.tokens)
    return replace(
        trace, tokens=Tokens(*sides), pieces=dict.fromkeys(trace.pieces, HARM), text=HARM
    )


def drawn(svg: str) -> ElementTree.Element:
    """The picture, read as XML; it is whole, and its colours need no page around it."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert "var(" not in svg
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    for box in root.iter(f"{SVG}rect"):
        x, y = float(box.attrib["x"]), float(box.attrib["y"])
        assert left <= x <= x + float(box.attrib["width"]) <= left + width
        assert top <= y <= y + float(box.attrib["height"]) <= top + height
    return root


def texts(root: ElementTree.Element, *kinds: str) -> list[str]:
    wanted = set(kinds)
    found = root.iter(f"{SVG}text")
    return ["".join(t.itertext()) for t in found if wanted & set(t.attrib["class"].split())]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("layer", [0, -1, "mean"])
@pytest.mark.parametrize("head", [1, "mean"])
def test_an_attention_map_shows_the_weights(kind: Any, layer: Any, head: Any) -> None:
    trace = looked(beam_size=2)
    root = drawn(attention_svg(trace, kind, layer, head))
    cells = [c for c in root.iter(f"{SVG}rect") if c.attrib["class"] == "cell"]
    said = [float(c.find(f"{SVG}title").text.rsplit(": ", 1)[1]) for c in cells]  # type: ignore[union-attr]
    weights = trace.attention(kind, layer, head)
    np.testing.assert_allclose(said, weights.ravel(), atol=0.0051)
    [title] = texts(root, "title")
    assert ("mean of all layers" in title) == (layer == "mean")
    assert ("head 2" in title) == (head == 1)
    assert len(texts(root, "tick")) == sum(weights.shape)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("size", [(20, 512), (1, 2), (3, 8), (120, 64)])
def test_a_matrix_of_positions(layout: Any, size: tuple[int, int]) -> None:
    values = sinusoidal_table(*size, layout=layout).numpy()
    root = drawn(positions_svg(values, "Positions"))
    paths = [p for p in root.iter(f"{SVG}path") if p.attrib["class"] in ("high", "low")]
    shares = np.round(values / np.abs(values).max(), 2)
    for sign, wanted in (("high", shares[shares > 0]), ("low", -shares[shares < 0])):
        found = [
            float(path.attrib["opacity"])
            for path in paths
            if path.attrib["class"] == sign
            for _ in re.findall("M", path.attrib["d"])
        ]
        np.testing.assert_allclose(sorted(found), np.sort(wanted), atol=1e-6)


def test_a_matrix_of_nothing_is_drawn() -> None:
    drawn(positions_svg(np.zeros((2, 4)), "Nothing"))


@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("prefix", [(), (40, 41)], ids=["", "prefix"])
def test_a_beam_tree_has_a_node_for_each_way(beam: int, prefix: tuple[int, ...]) -> None:
    trace = looked(beam_size=beam, prefix=prefix)
    root = drawn(beam_svg(trace))
    ways = [way for one in trace.beam for way in one.candidates[: 2 * beam]]
    nodes = [n for n in root.iter(f"{SVG}rect") if "node" in n.attrib["class"]]
    assert len(nodes) == 1 + len(ways)
    for fate, name in ((Fate.KEPT, "kept"), (Fate.FINISHED, "ended"), (Fate.PRUNED, "pruned")):
        count = sum(n.attrib["class"] == f"node {name}" for n in nodes)
        assert count == sum(way.fate is fate for way in ways) + (name == "kept")
    sums = [text for text in texts(root, "tick") if text]
    assert sums == [f"{way.sum:.2f}" for way in ways]
    best = [p for p in root.iter(f"{SVG}path") if p.attrib["class"] == "edge best"]
    assert len(best) == trace.hypotheses[0].length - len(prefix)


def test_a_sampled_way_is_drawn() -> None:
    drawn(beam_svg(looked(sample=True, seed=5)))


def test_no_text_becomes_markup() -> None:
    trace = hostile()
    for svg in (
        attention_svg(trace),
        beam_svg(trace),
        positions_svg(np.eye(3), HARM),
        trace._repr_html_(),
    ):
        root = drawn(svg)
        known = {"svg", "style", "rect", "text", "title", "path", "g"}
        assert {element.tag.removeprefix(SVG) for element in root.iter()} <= known
        assert not any(name.startswith("on") for e in root.iter() for name in e.attrib)


def test_a_notebook_shows_the_cross_attention() -> None:
    trace = looked(beam_size=2)
    page = Page(trace._repr_html_())
    assert page.tags[0][0] == "svg"
    assert any("Cross-attention, layer 2" in text for text in page.texts)


def test_a_curve_stands_alone() -> None:
    curves = [Curve("loss", [(0, 2), (1, 1)]), Curve("other", [(0, 1), (1, 3)], 2, dots=True)]
    root = drawn(standalone(line_chart("Loss", curves, "steps")))
    lines = [p for p in root.iter(f"{SVG}path") if p.attrib["class"] == "line"]
    assert len({line.attrib["style"] for line in lines}) == 2
