"""What the panels ask for (masks, positions, W_O, a row) are the model's own numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

import pellucid
from pellucid.bundle import Bundle
from pellucid.decoding.engine_selection import open_torch
from pellucid.inspection.derived import attention_of
from pellucid.inspection.padding_masks import look_at_masks
from pellucid.model.positions import sinusoidal_table
from pellucid.server.app import create_app
from pellucid.server.service.inspection_process import InspectionProcess
from tests.bundles import write_bundle

LONG, SHORT = "The two painters carry a map near the station!", "Nobody found her café!"
WAY = {"source": "en", "target": "fr"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundle") / "model").folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with TestClient(create_app(pellucid.load(folder), InspectionProcess(folder))) as client:
        yield client


def numbers(client: TestClient, address: str, **query: Any) -> np.ndarray:
    response = client.get(address, params=query)
    assert response.status_code == 200, response.text
    return np.frombuffer(response.content, "<f4")


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_positions_are_those_of_the_paper(client: TestClient, layout: Any) -> None:
    found = numbers(client, "/positions", layout=layout).reshape(20, 512)
    np.testing.assert_array_equal(found, sinusoidal_table(20, 512, layout=layout).numpy())
    small = numbers(client, "/positions", length=3, width=6, layout=layout).reshape(3, 6)
    np.testing.assert_array_equal(small, sinusoidal_table(3, 6, layout=layout).numpy())


@pytest.mark.parametrize("query", [{"length": 0}, {"length": 10**9}, {"width": 7}, {"layout": "x"}])
def test_positions_have_limits(client: TestClient, query: dict[str, Any]) -> None:
    assert client.get("/positions", params=query).status_code == 422


def test_the_output_projection_is_that_of_the_weights(client: TestClient, folder: Path) -> None:
    model = open_torch(Bundle.open(folder)).model
    for kind, stack in (("encoder", "encoder"), ("decoder", "decoder"), ("cross", "decoder")):
        weight = attention_of(model, stack, 1, cross=kind == "cross").out.weight.detach().numpy()
        found = numbers(client, "/output_projection", kind=kind, layer=1).reshape(weight.shape)
        np.testing.assert_array_equal(found, weight)
    assert client.get("/output_projection", params={"kind": "cross", "layer": 2}).status_code == 422
    assert (
        client.get("/output_projection", params={"kind": "sideways", "layer": 0}).status_code == 422
    )


def test_masks_are_those_of_the_model(client: TestClient, folder: Path) -> None:
    response = client.post("/masks", json={"q": [LONG, SHORT], **WAY})
    bundle = Bundle.open(folder)
    engine = open_torch(bundle)
    masks = look_at_masks(engine.model, bundle.tokenizer, engine.special, [LONG, SHORT], "en-fr")
    found = response.json()
    for name in ("source_padding", "target_padding", "causal", "encoder", "decoder", "cross"):
        assert found[name] == getattr(masks, name).astype(int).tolist(), name
    assert found["source"] == [[list(token) for token in row] for row in masks.source]


@pytest.mark.parametrize(
    "body", [{"q": []}, {"q": [SHORT] * 5}, {"q": ["a" * 1001]}, {"q": [SHORT], "more": 1}]
)
def test_masks_have_limits(client: TestClient, body: dict[str, Any]) -> None:
    assert client.post("/masks", json={**body, **WAY}).status_code == 422


def test_a_row_of_a_tensor(client: TestClient) -> None:
    made = client.post("/trace", json={"q": SHORT, **WAY}).json()
    rows, width = made["shapes"]["logits"]
    address = f"/trace/{made['id']}/tensor"
    whole = numbers(client, address, path="logits").reshape(rows, width)
    for row in range(rows):
        np.testing.assert_array_equal(numbers(client, address, path="logits", row=row), whole[row])
    for row, status in ((rows, 404), (-1, 422), (10**9, 422)):
        assert client.get(address, params={"path": "logits", "row": row}).status_code == status


def test_without_pytorch_it_says_what_to_do(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InspectionProcess, "obstacle", "Looking inside needs PyTorch")
    for response in (
        client.get("/positions"),
        client.get("/output_projection", params={"kind": "cross", "layer": 0}),
        client.post("/masks", json={"q": [SHORT], **WAY}),
    ):
        assert response.status_code == 501
        assert "PyTorch" in response.json()["error"]
