"""Waiting for something to become true on a page."""

import time
from typing import Any

PATIENCE = 30.0  # seconds


def until(page: Any, expression: str, arg: Any = None) -> None:
    """Return once a JavaScript expression, or a function of `arg`, is true on the page.

    Playwright's `wait_for_function` asks again from inside the page, where our own policy forbids
    to evaluate text; so it works only where the answer is yes at once. This asks from outside.
    """
    end = time.monotonic() + PATIENCE
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, f"not true after {PATIENCE:g} seconds: {expression}"
        page.wait_for_timeout(50)
