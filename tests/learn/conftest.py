"""The trained model that several tests share."""

import os

import pytest

from tests.learn.trained import Trained, trained_once


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # what the workers of one session have in common
    return trained_once(root / "trained")
