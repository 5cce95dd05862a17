"""The search, the cache, searches compared and what-ifs, as the page shows them."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pellucid.decoding.options import penalty
from pellucid.decoding.steps import Fate
from tests.web.api import ask, number, traced
from tests.web.serving import Server
from tests.web.waiting import until

Inside = Callable[..., Any]
WAY = {"source": "xa", "target": "xb"}


@pytest.mark.parametrize("beam", [2, 4])
def test_the_beam_stepped_to_its_end_gives_the_answer(
    inside: Inside, server: Server, sentence: str, beam: int
) -> None:
    wanted = ask(server.address, "translate", q=sentence, beam_size=beam, **WAY)["translatedText"]
    trace = ask(server.address, "trace", q=sentence, beam_size=beam, **WAY)
    page = inside("beam", step=0)
    page.get_by_role("radio", name=f"beam {beam}", exact=True).click()
    forward, rounds = page.get_by_text("forward ›"), page.locator("output[data-rounds]")
    until(
        page,
        "count => document.querySelector('output[data-rounds]')?.textContent === String(count)",
        arg=len(trace["beam"]),
    )
    page.locator("#panel[aria-busy=false]").wait_for()
    for step in range(len(trace["beam"])):
        nodes = page.locator(".tree g[data-token]")
        ways = [way for one in trace["beam"][: step + 1] for way in one["candidates"][: 2 * beam]]
        shown = nodes.evaluate_all(
            "all => all.map(n => [Number(n.dataset.token), Number(n.dataset.fate),"
            " n.querySelector('.small').textContent])"
        )
        assert [(token, fate) for token, fate, _ in shown] == [(w[1], w[5]) for w in ways]
        sums = [number(text) for _, _, text in shown]
        assert sums == pytest.approx([way[3] for way in ways], abs=6e-4)
        if forward.is_enabled():
            forward.click()
    assert not forward.is_enabled()
    assert int(rounds.inner_text()) == len(trace["beam"])
    path = page.locator(".tree g[data-best=yes]").evaluate_all(
        "all => all.map(n => Number(n.dataset.token))"
    )
    answer = [*trace["hypotheses"][0][0], trace["tokens"][0][-1][0]]
    assert path == answer
    assert trace["text"] == wanted
    assert page.locator("tr.fate2 td").first.inner_text() == wanted


def test_scores_are_sums_over_the_length_penalty(
    inside: Inside, bundle: Path, sentence: str
) -> None:
    trace = traced(bundle, sentence)
    page = inside("beam", step=99)
    scores = page.locator("table output[data-score]")
    shown = [number(text) for text in scores.all_inner_texts()]
    options = trace.options
    assert shown == pytest.approx([h.score for h in trace.hypotheses], abs=6e-4)
    for ended in trace.hypotheses:
        divisor = penalty(options["length_normalization"], options["length_penalty"], ended.length)
        assert ended.score == pytest.approx(ended.log_probability / divisor)
    # A pruned hypothesis: its own attention is fetched, with it as the prefix.
    place, way = next(
        (place, way)
        for place, way in enumerate(trace.beam[2].candidates)
        if way.fate is Fate.PRUNED
    )
    rounds_before = sum(min(8, len(one.candidates)) for one in trace.beam[:2])
    page.locator(".tree g[data-token]").nth(rounds_before + place).click()
    assert number(page.locator("output[data-sum]").inner_text()) == pytest.approx(way.sum, abs=6e-4)
    page.locator(".glowing .word").first.wait_for()
    glow = page.locator(".glowing .word").evaluate_all(
        "all => all.map(w => Number(w.style.getPropertyValue('--glow')))"
    )
    assert sum(glow) == pytest.approx(1, abs=0.02)


def test_the_cache(inside: Inside, bundle: Path, sentence: str) -> None:
    trace = traced(bundle, sentence)
    page = inside("cache", step=0)
    for step, row in enumerate(trace.cache):
        page.locator("output[data-round]", has_text=str(step + 1)).wait_for()
        shown = {
            name: int(page.locator(f"output[data-{name}]").get_attribute(f"data-{name}"))
            for name in ("own-bytes", "cross-bytes", "products", "products-without")
        }
        assert shown == {
            "own-bytes": row.own_bytes,
            "cross-bytes": row.cross_bytes,
            "products": sum(one.products for one in trace.cache[: step + 1]),
            "products-without": sum(one.products_without for one in trace.cache[: step + 1]),
        }
        parents = page.locator(".cache path").evaluate_all(
            "all => all.map(line => Number(line.dataset.parent))"
        )
        assert tuple(parents) == (row.parents if step else ())
        if step + 1 < len(trace.cache):
            page.keyboard.press("ArrowRight") if step else page.get_by_text("forward ›").click()
    assert page.get_by_text("not stored as the formula").count() == 0


def test_searches_side_by_side(inside: Inside, bundle: Path, sentence: str) -> None:
    page = inside("compare")
    sampled = {"sample": True, "beam_size": 1, "seed": 1, "temperature": 1.0}
    for name, options in {
        "greedy": {"beam_size": 1},
        "beam2": {"beam_size": 2},
        "beam4": {"beam_size": 4},
        "sample": sampled,
    }.items():
        card = page.locator(f"[data-search={name}]")
        card.locator("output[data-score]").wait_for()
        best = traced(bundle, sentence, **options).hypotheses[0]
        assert card.locator(".said").text_content() == best.text
        assert float(card.locator("[data-score]").get_attribute("data-score")) == pytest.approx(
            best.score, abs=1e-5
        )
        assert int(card.locator("[data-length]").inner_text()) == best.length


def test_a_head_off_and_a_word_out(inside: Inside, bundle: Path, sentence: str) -> None:
    base = traced(bundle, sentence)
    tokens = base.hypotheses[0].tokens
    page = inside("whatif")
    page.get_by_role("button", name="Cross, layer 2, head 1 off").click()
    page.locator("#panel .chips").first.get_by_role("button").nth(2).click()
    changes = {"off": [("cross", 1, 0)], "without": [2]}
    changed = traced(bundle, sentence, **changes)
    forced = traced(bundle, sentence, prefix=tokens, **changes)
    after = page.locator("[data-after]", has_text=changed.text)
    after.wait_for()
    probabilities = [math.exp(log) for log in forced["log_probabilities"][: len(tokens)]]
    until(
        page,
        "first => Math.abs(Number(document.querySelector('output[data-is]')?.textContent"
        ".replace('−', '-')) - first) < 6e-4",
        arg=probabilities[0],
    )
    for name, wanted in (
        ("was", [math.exp(log) for log in base["log_probabilities"][: len(tokens)]]),
        ("is", probabilities),
    ):
        shown = [number(text) for text in page.locator(f"output[data-{name}]").all_inner_texts()]
        assert shown == pytest.approx(wanted, abs=6e-4)
    page.get_by_text("Look inside this one").click()
    page.locator(".changed", has_text="head 1 switched off").wait_for()
    again = page.get_by_role("button", name="Reset", exact=True)
    assert "with=" in page.url
    again.click()
    again.wait_for(state="detached")


def test_a_forced_token(inside: Inside, bundle: Path, sentence: str) -> None:
    page = inside("whatif")
    page.get_by_role("radiogroup", name="Which token").get_by_role("radio").nth(2).click()
    offered = page.locator("p:has-text('In place of') .chip")
    offered.first.wait_for()
    offered.first.click()
    base = traced(bundle, sentence)
    rivals = [way for way in base.beam[2].candidates if way.token != base.hypotheses[0].tokens[2]]
    rival = next(way for way in rivals if way.parent == 0 and way.token != 3)
    forced = traced(bundle, sentence, prefix=[*base.hypotheses[0].tokens[:2], rival.token])
    page.locator("[data-after]", has_text=forced.text).wait_for()
