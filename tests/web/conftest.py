"""A browser, a server, and a page on which every request elsewhere and every error is a failure."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from tests.bundles import write_bundle
from tests.learn.conftest import trained as trained  # a fixture
from tests.learn.trained import Trained
from tests.web.serving import BROWSERS, Server, browser_here

LANGUAGES = {"from": "xa", "to": "xb"}


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright. Where PELLUCID_WEB_TESTS=required, it has to be there.

    Playwright leaves an event loop running in this thread, which would be in the way of tests that
    run one of their own: so it ends with the tests of this folder.
    """
    required = os.environ.get("PELLUCID_WEB_TESTS") == "required"
    program = browser_here()
    if program is None and not required:
        pytest.skip("no Chromium here: apt-get install chromium")
    assert program is not None, f"none of {', '.join(BROWSERS)} is installed"
    if not required:
        pytest.importorskip("playwright.sync_api")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium's own sandbox does not work for root, which containers often are.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        made = playwright.chromium.launch(executable_path=program, args=options)
        yield made
        made.close()


@pytest.fixture(scope="package")
def bundle(browser: Any, trained: Trained) -> Path:
    """A small trained model."""
    return trained.run / "bundle"


@pytest.fixture(scope="package")
def sentence(trained: Trained) -> str:
    """A sentence that the model did not learn from."""
    return trained.unseen[3][0]


@pytest.fixture(scope="package")
def other_bundle(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of another shape, with random weights: its outputs are nonsense, and long."""
    folder = tmp_path_factory.mktemp("web") / "other"
    write_bundle(
        folder,
        ct2=False,
        norm="pre",
        norm_type="rms",
        position_encoding="rotary",
        activation="swiglu",
        num_kv_heads=2,
        encoder_layers=3,
        decoder_layers=1,
    )
    return folder


@pytest.fixture(scope="package")
def server(bundle: Path) -> Iterator[Server]:
    with Server(bundle) as made:
        yield made


class Watched:
    """What a page asked for and complained of."""

    def __init__(self, page: Any, host: str) -> None:
        self.page, self.host = page, host
        self.troubles: list[str] = []
        self.requests: list[str] = []
        page.on("request", self._asked)
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("console", self._said)
        page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))

    def _asked(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("data", "blob"):
            return
        self.requests.append(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self.host:
            self.troubles.append(f"a request elsewhere: {request.url[:200]}")

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"console {message.type}: {message.text}")


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open an address of the page in a fresh browser context; all of them are watched."""
    watched, contexts = [], []

    def opened(address: str, /, width: int = 1200, **view: object) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, reduced_motion="reduce"
        )
        page = context.new_page()
        page.set_default_timeout(60_000)
        contexts.append(context)
        parts = urlsplit(address)
        watched.append(Watched(page, f"{parts.scheme}://{parts.netloc}"))
        page.goto(f"{address}#{urlencode(view)}" if view else address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [trouble for one in watched for trouble in one.troubles] == []


@pytest.fixture
def inside(open_page: Callable[..., Any], server: Server, sentence: str) -> Callable[..., Any]:
    """Look inside the sentence, at a panel."""

    def opened(panel: str, **view: object) -> Any:
        chosen = {"q": sentence, **LANGUAGES, "panel": panel, **view}
        page = open_page(f"{server.address}/", **chosen)
        page.locator("#panel[aria-busy=false] h2").wait_for(state="attached")
        return page

    return opened
