"""Panels 1 to 4 in a real browser: translating, other words, alignment, confidence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pellucid.server.security.api_keys import ApiKeys
from tests.pages import HARM
from tests.web.api import ask
from tests.web.conftest import LANGUAGES
from tests.web.serving import Server
from tests.web.waiting import until

Open = Callable[..., Any]
WAY = {"source": "xa", "target": "xb"}
SAYS = "text => document.querySelector('.result')?.textContent === text"


def test_it_translates_as_one_types(open_page: Open, server: Server, sentence: str) -> None:
    wanted = ask(server.address, "translate", q=sentence, **WAY)["translatedText"]
    page = open_page(f"{server.address}/")
    page.locator("#source").press_sequentially(sentence, delay=5)
    until(page, SAYS, arg=wanted)
    asked = parse_qs(urlsplit(page.url).fragment)
    assert asked["q"] == [sentence]
    again = open_page(page.url)  # the address opens the same again
    until(again, SAYS, arg=wanted)
    assert again.locator("#source").input_value() == sentence


def test_confidence_and_alignment_are_the_models(
    open_page: Open, server: Server, sentence: str
) -> None:
    told = ask(server.address, "translate", q=sentence, details=True, **WAY)["sentences"][0]
    page = open_page(f"{server.address}/", q=sentence, **LANGUAGES)
    sources, targets = (page.locator(".words").nth(side).locator(".word") for side in (0, 1))
    targets.first.wait_for()
    shown = targets.evaluate_all("words => words.map(w => Number(w.dataset.probability))")
    assert shown == pytest.approx(told["probabilities"][: len(shown)])
    assert len(shown) == len(told["tokens"])
    for place in (0, len(shown) // 2):
        targets.nth(place).hover()
        glow = sources.evaluate_all(
            "words => words.map(w => Number(w.style.getPropertyValue('--glow')))"
        )
        assert glow == pytest.approx(told["attention"][place], abs=6e-4)
        assert sum(glow) > 0


def test_a_chosen_word_keeps_what_stands_before_it(
    open_page: Open, server: Server, sentence: str
) -> None:
    told = ask(server.address, "translate", q=sentence, details=True, **WAY)
    before = told["sentences"][0]["tokens"]
    page = open_page(f"{server.address}/", q=sentence, **LANGUAGES)
    words = page.locator(".words").nth(1).locator(".word")
    begin: list[int] = []
    for place in (3, 1):  # a second choice, further on the left, goes from what the first gave
        words.nth(place).click()
        choices = page.locator(".others li button")
        choices.nth(1).wait_for()
        offered = ask(
            server.address, "alternatives", q=sentence, position=place, begin=begin, **WAY
        )
        choice = offered[1]
        assert choices.count() == len(offered)
        choices.nth(1).click()
        until(page, SAYS, arg=choice["text"])
        after = words.all_inner_texts()
        assert [w.replace("▁", "") or "␣" for w in (*before[:place], choice["token"])] == (
            after[: place + 1]
        )
        before, begin = choice["tokens"], choice["begin"]


def test_text_is_never_markup(open_page: Open, server: Server) -> None:
    harm = HARM.replace("\x00", "").replace("\ud800", "")
    page = open_page(f"{server.address}/", q=harm, **LANGUAGES, panel="tokens")
    page.locator("#panel[aria-busy=false] h2").wait_for()
    until(page, "(document.querySelector('.result')?.textContent ?? '') !== ''")
    assert page.locator("#source").input_value() == harm
    for tab in page.locator("[role=tab]").all():
        tab.click()
        page.wait_for_timeout(100)
    assert page.locator("script:not([type]), #page img, #page script").count() == 0


def test_without_pytorch_it_translates_and_says_what_is_missing(
    open_page: Open, bundle: Path, sentence: str
) -> None:
    with Server(bundle, "--without-torch") as server:
        wanted = ask(server.address, "translate", q=sentence, **WAY)["translatedText"]
        page = open_page(f"{server.address}/", q=sentence, **LANGUAGES, panel="beam")
        until(page, SAYS, arg=wanted)
        words = page.locator(".words").nth(1).locator(".word")
        words.nth(1).click()
        page.locator(".others li button").first.wait_for()
        assert "pip install 'pellucid[train]'" in page.locator("main").inner_text()
        assert page.locator(".look, .inside").count() == 0


def test_a_key_is_asked_for_once(browser: Any, bundle: Path, sentence: str, tmp_path: Path) -> None:
    """A wrong key is asked for again; the right one is kept for this visit, and nowhere else."""
    key = ApiKeys(tmp_path / "keys.json").add("ada")
    answers = ["not this one", key]
    with Server(bundle, f"--keys={tmp_path / 'keys.json'}") as guarded:
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("dialog", lambda dialog: dialog.accept(answers.pop(0)))
        page.goto(f"{guarded.address}/")
        page.locator("#source").fill(sentence)
        page.locator(".words").nth(1).locator(".word").first.wait_for()
        page.reload()
        page.locator(".words").nth(1).locator(".word").first.wait_for()
        assert answers == []
        assert page.evaluate("Object.values(sessionStorage)") == [key]
        assert key not in str(page.evaluate("Object.values(localStorage)"))
        assert key not in page.url
        context.close()
