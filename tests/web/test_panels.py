"""The panels from the embedding to the logit lens: their numbers, redone in Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.bundle import Bundle
from pellucid.decoding.engine_selection import open_torch
from pellucid.inspection.padding_masks import look_at_masks
from pellucid.model.positions import sinusoidal_table
from tests.web.api import number, traced
from tests.web.serving import Server

Inside = Callable[..., Any]
ROW = 2


def shown(page: Any, selector: str) -> float:
    """The number in an output, once it is there."""
    return number(page.locator(f"output{selector}").first.inner_text())


def by_key(page: Any, name: str) -> dict[str, float]:
    """Every output with a data attribute of that name, by its value."""
    outputs = page.locator(f"output[data-{name}]")
    outputs.first.wait_for()
    pairs = outputs.evaluate_all(f"all => all.map(o => [o.dataset.{name}, o.textContent])")
    return {key: number(text.rstrip("%")) for key, text in pairs}


def table(page: Any, label: str) -> np.ndarray:
    """The twin of a picture, read as a table."""
    figure = page.locator(f"figure:has(canvas[aria-label^='{label}'])")
    figure.locator("summary").click()
    figure.locator("table").wait_for()
    rows = figure.locator("tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.querySelectorAll('td')].map(c => c.textContent))"
    )
    return np.array([[number(text) for text in row] for row in rows])


def close(value: Any) -> Any:
    return pytest.approx(value, abs=6e-4, rel=5e-3)  # very small numbers are shown with 3 digits


def test_embedding_and_position(inside: Inside, bundle: Path, sentence: str) -> None:
    trace = traced(bundle, sentence)
    page = inside("embedding", kind="encoder", row=ROW)
    found = by_key(page, "embedding")
    for name in ("tokens", "scaled", "sum"):
        key = name.removesuffix("s")
        assert found[key] == close(trace[f"source.{name}"][ROW, 0])
    assert found["apart"] < 1e-5
    np.testing.assert_allclose(
        table(page, "positions:"), trace["source.positions"], atol=6e-4, rtol=5e-3
    )
    page.get_by_role("radiogroup", name="Layout of the paper's size").get_by_text(
        "in halves"
    ).click()
    paper = sinusoidal_table(20, 512, layout="halves").numpy()
    np.testing.assert_allclose(table(page, "20 positions"), paper, atol=6e-4, rtol=5e-3)


def test_moving_a_word(inside: Inside, bundle: Path, sentence: str) -> None:
    words = sentence.split()
    words[0], words[2] = words[2], words[0]
    before, after = traced(bundle, sentence), traced(bundle, " ".join(words))
    page = inside("embedding", kind="encoder")
    page.get_by_label("first word").select_option("0")
    page.get_by_label("second word").select_option("2")
    page.get_by_text("and read again").click()
    page.locator("output[data-change]").first.wait_for()
    outputs = page.locator("output[data-change]").evaluate_all(
        "all => all.map(o => [o.dataset.change, Number(o.dataset.token), o.textContent])"
    )
    ids = [[token.id for token in trace.tokens.source] for trace in (before, after)]
    assert sorted(ids[0]) == sorted(ids[1])
    for stage, place, text in outputs:
        other = ids[1].index(ids[0][place])
        if ids[0].count(ids[0][place]) > 1:
            continue
        a, b = before[stage][place], after[stage][other]
        apart = 2 * np.linalg.norm(a - b) / (np.linalg.norm(a) + np.linalg.norm(b))
        assert float(text.rstrip("%")) == pytest.approx(100 * apart, abs=0.51), (stage, place)
        assert stage != "source.tokens" or apart == 0


def test_attention_as_lines_and_as_a_mean(inside: Inside, bundle: Path, sentence: str) -> None:
    trace = traced(bundle, sentence)
    page = inside("attention", kind="cross", layer=-2, head=-1, lines=1)
    weights = trace.attention("cross", "mean", "mean")
    page.locator(".line").first.wait_for()

    def drawn() -> dict[tuple[int, int], float]:
        found = page.locator(".line").evaluate_all(
            "all => all.map(o => [o.dataset.row, o.dataset.column, o.dataset.value].map(Number))"
        )
        return {(int(row), int(column)): value for row, column, value in found}

    everything = {
        (i, j): pytest.approx(float(w), abs=1e-5) for (i, j), w in np.ndenumerate(weights)
    }
    strong = {place for place, weight in np.ndenumerate(weights) if weight >= 0.021}
    faint = {place for place, weight in np.ndenumerate(weights) if weight < 0.019}
    lines = drawn()
    assert strong <= lines.keys()
    assert not faint & lines.keys()
    assert all(value == everything[place] for place, value in lines.items())
    page.locator(".end").nth(1).click()
    page.get_by_text("is pinned").wait_for()
    assert {row for row, _ in drawn()} == {1}
    assert "lines=2" in page.url


def test_masks_of_a_batch(inside: Inside, bundle: Path, sentence: str) -> None:
    from playwright.sync_api import expect

    made = Bundle.open(bundle)
    engine = open_torch(made)
    second = " ".join(sentence.split()[:2])
    masks = look_at_masks(engine.model, made.tokenizer, engine.special, [sentence, second], "xa-xb")
    page = inside("masks")
    box = page.get_by_label("A second sentence")
    box.fill(second)
    padding = page.locator(".batch-row").nth(1).locator("> .tokens").first.get_by_text("<pad>")
    expect(padding).to_have_count(int((~masks.source_padding[1]).sum()), timeout=30_000)
    page.locator("output[data-open=cross]").wait_for()
    for row in (1, 0):
        page.get_by_role("radio", name=f"sentence {row + 1}").click()
        page.get_by_role("radio", name=f"sentence {row + 1}", checked=True).wait_for()
        found = by_key(page, "open")
        assert found["causal"] == masks.causal.sum()
        for name in ("encoder", "decoder", "cross"):
            assert found[name] == getattr(masks, name)[row].sum(), name
    assert page.get_by_text("The model used something other").count() == 0
    assert shown(page, "[data-difference]") < 1e-4


@pytest.mark.parametrize("kind", ["encoder", "cross"])
def test_heads_joined(inside: Inside, bundle: Path, sentence: str, kind: str) -> None:
    place = "encoder.1.self" if kind == "encoder" else "decoder.1.cross"
    trace = traced(bundle, sentence)
    page = inside("heads", kind=kind, layer=1, row=ROW)
    lengths = np.linalg.norm(trace[f"{place}.head_outputs"][:, ROW], axis=-1)
    assert list(by_key(page, "bar").values()) == close(lengths.tolist())
    assert shown(page, "[data-total]") == close(np.linalg.norm(trace[f"{place}.output"][ROW]))
    assert shown(page, "[data-apart]") < 1e-4
    joined = table(page, f"{len(lengths)} heads")
    np.testing.assert_allclose(joined[0], trace[f"{place}.joined"][ROW], atol=6e-4, rtol=5e-3)


@pytest.mark.parametrize(("kind", "part"), [("cross", "attention"), ("encoder", "feed_forward")])
def test_residual_and_norm(
    inside: Inside, bundle: Path, sentence: str, kind: str, part: str
) -> None:
    place = "decoder.0.cross" if kind == "cross" else "encoder.0.feed_forward"
    trace = traced(bundle, sentence)
    before, added = (trace[f"{place}.residual_{name}"][ROW] for name in ("before", "added"))
    page = inside("residual", kind=kind, part=part, layer=0, row=ROW)
    found = by_key(page, "residual")
    lengths = [float(np.linalg.norm(x)) for x in (before, added)]
    assert [found["before"], found["added"]] == close(lengths)
    assert found["ratio"] == close(lengths[1] / lengths[0])
    assert found["cosine"] == close(float(before @ added) / lengths[0] / lengths[1])
    norm = next(name for name in trace.names(f"{place}.norm_*.input"))
    read = trace[norm][ROW]
    assert by_key(page, "norm") == {"mean": close(read.mean()), "variance": close(read.var())}
    stack = place.split(".")[0]
    ratios = by_key(page, "ratio")
    assert list(ratios.values()) == close(
        (trace[f"{stack}.growth"][:, ROW, 1] / trace[f"{stack}.growth"][:, ROW, 0]).tolist()
    )


def test_feed_forward(inside: Inside, bundle: Path, sentence: str) -> None:
    trace = traced(bundle, sentence)
    page = inside("feed", kind="decoder", layer=1, row=ROW)
    place = "decoder.1.feed_forward"
    active, inner = trace[f"{place}.active"][ROW], trace[f"{place}.inner"][ROW]
    found = by_key(page, "neuron")
    assert set(map(int, found)) == set(np.argsort(-np.abs(active))[: len(found)].tolist())
    for number_, value in found.items():
        assert value == close(active[int(number_)])
    for number_, value in by_key(page, "before").items():
        assert value == close(inner[int(number_)])
    share = page.locator("output[data-zeros]").inner_text()
    assert float(share.rstrip("%")) == pytest.approx(100 * (active == 0).mean(), abs=0.51)


def test_logits_to_softmax(inside: Inside, bundle: Path, sentence: str) -> None:
    trace = traced(bundle, sentence)
    logits = trace["logits"][ROW].astype(np.float64)
    page = inside("logits", row=ROW)
    for temperature in (1.0, 0.5, 3.0):
        page.get_by_label("Temperature").fill(str(temperature))
        page.locator("output[data-temperature]", has_text=f"{temperature:.1f}").wait_for()
        powers = np.exp((logits - logits.max()) / temperature)
        probabilities = powers / powers.sum()
        found = by_key(page, "probability")
        assert len(found) == 12
        for token, value in found.items():
            assert value == pytest.approx(probabilities[int(token)], abs=6e-5)
        for token, value in by_key(page, "logit").items():
            assert value == close(logits[int(token)])
        entropy = -(probabilities * np.log(probabilities)).sum()
        assert shown(page, "[data-undecided]") == pytest.approx(np.exp(entropy), abs=0.006)


def test_logit_lens(inside: Inside, bundle: Path, sentence: str) -> None:
    trace = traced(bundle, sentence)
    page = inside("lens", layer=0, row=ROW)
    guesses = {str(g.token.id): close(g.probability) for g in trace.lens[0][ROW]}
    assert by_key(page, "guess") == guesses
    page.locator(".lens tbody tr").first.locator("td").nth(1).click()
    guesses = {str(g.token.id): close(g.probability) for g in trace.lens[-1][1]}
    page.get_by_text(f"After layer {len(trace.lens)}").wait_for()
    assert by_key(page, "guess") == guesses


def test_the_map_opens_every_part(inside: Inside) -> None:
    page = inside("map", kind="encoder", layer=0)
    for place, name, title in [
        (0, "feed-forward", "Feed-forward"),
        (0, "heads", "Heads combined"),
        (1, "cross-attention", "Attention"),
        (1, "add + norm", "Residual and norm"),
        (1, "logits and softmax", "Logits to softmax"),
        (1, "after each layer", "Logit lens"),
        (1, "masks", "Masks"),
        (0, "embedding and position", "Embedding and position"),
    ]:
        page.locator(".stack").nth(place).get_by_role("button", name=name, exact=True).first.click()
        page.locator("#panel h2", has_text=title).wait_for()
        page.get_by_role("tab", name="Architecture").click()
    page.locator(".thumbs").get_by_role("radio").nth(1).click()
    page.locator("#panel h2", has_text="Attention").wait_for()


def test_bytes_are_readable(open_page: Callable[..., Any], server: Server, sentence: str) -> None:
    page = open_page(
        f"{server.address}/", q=f"{sentence} ⛵", panel="tokens", **{"from": "xa", "to": "xb"}
    )
    spelt = page.locator(".spelt > small").first
    spelt.wait_for()
    assert spelt.inner_text() == "3 bytes for ⛵"


def test_another_shape(open_page: Callable[..., Any], other_bundle: Path, browser: Any) -> None:
    """Rotary positions, RMSNorm, a gate, shared keys: every panel is there, and says so."""
    text = "The baker found a map in the garden!"
    trace = traced(other_bundle, text, direction="en-fr")
    with Server(other_bundle) as server:
        page = open_page(
            f"{server.address}/", q=text, panel="embedding", row=ROW, kind="encoder",
            **{"from": "en", "to": "fr"},
        )  # fmt: skip
        angles = by_key(page, "angle")
        assert list(angles.values()) == close(trace["rotary.angles"][ROW].tolist())
        for tab, sign in [
            ("Heads combined", "output[data-apart]"),
            ("Residual and norm", "output[data-norm]"),
            ("Feed-forward", "output[data-neuron]"),
            ("Softmax", "output[data-probability]"),
            ("Logit lens", "output[data-guess]"),
            ("Masks", "output[data-open]"),
            ("Architecture", ".thumbs canvas"),
        ]:
            page.get_by_role("tab", name=tab, exact=True).click()
            page.locator(sign).first.wait_for()
