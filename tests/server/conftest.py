"""Small models and a server for them, made once for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import pellucid
from pellucid.translator import Translator
from tests.bundles import write_bundle
from tests.server.running import Here


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model between English and French; its outputs are nonsense, but always the same."""
    return write_bundle(tmp_path_factory.mktemp("bundle") / "small").folder


@pytest.fixture(scope="package")
def alone(folder: Path) -> Translator:
    """The model without a server."""
    return pellucid.load(folder, "ct2", threads=1)


@pytest.fixture(scope="package")
def here(folder: Path) -> Iterator[Here]:
    """A server with all limits on but the rate."""
    with Here(folder) as made:
        yield made


@pytest.fixture(scope="package")
def client(here: Here) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=here.address, timeout=60) as made:
        yield made
