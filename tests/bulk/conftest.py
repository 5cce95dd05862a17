"""One small model with random weights for all tests of bulk translation."""

from __future__ import annotations

import pytest

from pellucid.bundle import Bundle
from pellucid.translator import Translator, load
from tests.bundles import write_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_bundle(tmp_path_factory.mktemp("cluster") / "model")


@pytest.fixture(scope="session")
def translator(bundle: Bundle) -> Translator:
    return load(bundle.folder, threads=1)
