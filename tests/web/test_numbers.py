"""Every number shown is the model's own: read off the page, compared with Python."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.web.api import ask, number, tensor, traced
from tests.web.serving import Server

Inside = Callable[..., Any]
PLACES = {"encoder": "encoder.{}.self", "decoder": "decoder.{}.self", "cross": "decoder.{}.cross"}


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_an_attention_map(inside: Inside, bundle: Path, sentence: str, kind: str) -> None:
    trace = traced(bundle, sentence)
    page = inside("attention", kind=kind, layer=1, head=2)
    cells = page.locator("#panel .matrix rect.cell")
    cells.first.wait_for()
    found = cells.evaluate_all(
        "all => all.map(c => [c.dataset.row, c.dataset.column, c.dataset.value].map(Number))"
    )
    weights = trace[f"{PLACES[kind].format(1)}.weights"][2]
    shown = np.full(weights.shape, np.nan)
    for row, column, value in found:
        shown[int(row), int(column)] = value
    np.testing.assert_allclose(shown, weights, atol=1e-6)
    np.testing.assert_allclose(shown.sum(axis=1), 1, atol=1e-5)
    page.locator("#panel .matrix summary").click()
    page.locator("#panel .matrix table tbody tr").first.wait_for()
    table = page.locator("#panel .matrix table tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.querySelectorAll('td')].map(c => c.textContent))"
    )
    twin = np.array([[number(text) for text in row] for row in table])
    np.testing.assert_allclose(twin, weights, atol=6e-4)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_six_steps_can_be_redone_by_hand(
    inside: Inside, bundle: Path, sentence: str, kind: str
) -> None:
    trace = traced(bundle, sentence)
    row, column, head, place = 3, 2, 1, PLACES[kind].format(0)
    page = inside("cell", kind=kind, layer=0, head=head, row=row, column=column)
    page.locator("output[data-step=total]").wait_for()
    q, k, v = (trace[f"{place}.{name}"][head].astype(np.float64) for name in "qkv")
    shown = {
        name: number(page.locator(f"output[data-step={name}]").inner_text())
        for name in ("score", "scaled", "weight", "total")
    }
    scores = q[row] @ k.T
    scaled = scores / np.sqrt(q.shape[1])
    if kind == "decoder":
        scaled[row + 1 :] = -np.inf
    weights = np.exp(scaled - scaled.max())
    weights /= weights.sum()
    assert shown["score"] == pytest.approx(scores[column], abs=2e-3)
    assert shown["scaled"] == pytest.approx(scaled[column], abs=2e-3)
    assert shown["weight"] == pytest.approx(weights[column], abs=6e-4)
    assert shown["total"] == pytest.approx(1, abs=1e-3)
    mix = [number(text) for text in page.locator("output[data-mix]").all_inner_texts()]
    assert mix == pytest.approx(sorted(weights, reverse=True)[: len(mix)], abs=6e-3)
    np.testing.assert_allclose(weights @ v, trace[f"{place}.mixed"][head, row], atol=1e-5)
    titles = page.locator(".strip").last.locator("i").evaluate_all("all => all.map(i => i.title)")
    strip = [number(re.sub(r"^\d+: ", "", title)) for title in titles]
    assert strip == pytest.approx(list(weights @ v), abs=6e-4)


def test_the_server_sends_what_python_computes(server: Server, bundle: Path, sentence: str) -> None:
    told = ask(server.address, "trace", q=sentence, source="xa", target="xb")
    trace = traced(bundle, sentence)
    assert told["text"] == trace.text
    assert list(told["shapes"]) == list(trace)
    for name in (*trace.names("*.weights"), "logits", "log_probabilities", "source.sum"):
        np.testing.assert_allclose(tensor(server.address, told, name), trace[name], atol=1e-5)
    assert trace["log_probabilities"].sum() == pytest.approx(
        trace.hypotheses[0].log_probability, abs=1e-4
    )


def test_the_tour_tells_the_truth(inside: Inside, bundle: Path, sentence: str) -> None:
    """The head that it says links two words most does so, and the loss is the model's."""
    trace = traced(bundle, sentence)
    page = inside("map")
    page.locator(".start-tour").click()
    seen = set()
    for stop in range(19):
        page.locator("output[data-stop]", has_text=re.compile(f"^{stop + 1}$")).wait_for()
        page.locator("#panel[aria-busy=false]").wait_for(state="attached")
        title = page.locator(".tour h2").inner_text()
        if title == "Self-attention":
            link = page.locator("output[data-link]")
            link.wait_for()
            said = page.locator(".tour p").first.inner_text()
            head, layer = map(int, re.search(r"head (\d+) of layer (\d+)", said).groups())
            words = re.search(r"most from (\S+) to (\S+):", said).groups()
            assert number(link.inner_text()) == pytest.approx(
                strongest(trace, layer - 1, head - 1, *words), abs=6e-4
            )
            everywhere = [
                strongest(trace, at, one, *words)
                for at in range(trace.model["encoder_layers"])
                for one in range(trace.model["num_heads"])
            ]
            assert number(link.inner_text()) == pytest.approx(max(everywhere), abs=6e-4)
        if title == "Training and loss":
            loss = page.locator("output[data-loss]")
            loss.wait_for()
            assert number(loss.inner_text()) == pytest.approx(
                -trace["log_probabilities"].mean(), abs=6e-4
            )
        seen.add(title)
        page.keyboard.press("ArrowRight")
    assert len(seen) == 19


def strongest(trace: Any, layer: int, head: int, start: str, end: str) -> float:
    """How much the last piece of a word gives to all pieces of another."""
    words: dict[str, list[int]] = {}
    name = ""
    for place, (_, piece) in enumerate(trace.tokens.source[1:-2], 1):  # the full stop is no word
        name = piece[1:] if piece.startswith("▁") else name + piece
        places = [] if piece.startswith("▁") else words.pop(name[: -len(piece)])
        words[name] = [*places, place]
    weights = trace[f"encoder.{layer}.self.weights"][head]
    row = words[next(w for w in words if w.startswith(start))][-1]
    return float(weights[row, words[next(w for w in words if w.startswith(end))]].sum())


def test_the_head_that_links_it_to_the_animal(inside: Inside) -> None:
    """The lecture's example: of all heads, the one that gives most of "it" to "animal"."""
    pieces = [
        "<2fr>",
        "▁The",
        "▁ani",
        "mal",
        "▁did",
        "n",
        "'",
        "t",
        "▁cross",
        "▁because",
        "▁it",
        "▁was",
        "▁tired",
        ".",
        "</s>",
    ]
    size = len(pieces)
    weights = np.random.default_rng(3).dirichlet(np.full(size, 0.3), (2, 4, size))
    weights[:, :, 10, 2:4] *= 0.1
    weights[1, 2, 10, 2:4] = 0.2, 0.5  # "it" looks at both pieces of "animal"
    weights[0, 1, 10, 1] = 5  # and more at another word, which is not asked for
    page = inside("tokens")
    found = page.evaluate(
        """async ([tokens, layers]) => {
          const { strongest } = await import("page/tour/linking.js");
          const { Tensor } = await import("page/tensors.js");
          const shape = [layers[0].length, tokens.length, tokens.length];
          const trace = { tokens: [tokens.map((text, id) => [id, text])] };
          return strongest(trace, layers.map((one) => new Tensor(shape, one.flat(2))));
        }""",
        [pieces, weights.tolist()],
    )
    wanted = {"layer": 1, "head": 2, "row": 10, "column": 3, "from": "it", "to": "animal"}
    assert {key: found[key] for key in wanted} == wanted
    assert found["weight"] == pytest.approx(0.7)
    assert found["even"] == pytest.approx(2 / size)
