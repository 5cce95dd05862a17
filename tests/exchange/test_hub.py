"""A model by its name: fetched once, kept, and one clear line where there is no network.

huggingface_hub talks to a small server here that answers as the real one does. Each case is a
process of its own, because that library reads its settings once.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pellucid.bundle import MANIFEST, Bundle
from pellucid.exchange.hub import parse_name
from tests.marian_models import write_marian

NAME = "Made-Up/opus-mt-fr-en"
COMMIT = "a1" * 20


class Hub(ThreadingHTTPServer):
    """One public model, and what was asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(f"{self.command} {path}")
        files = self.server.files
        if not path.startswith((f"/api/models/{NAME}", f"/{NAME}/")):
            self.send(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif path.startswith("/api/models/") and "/tree/" in path:
            rows = [
                {"type": "file", "path": n, "size": len(d), "oid": hashlib.sha1(d).hexdigest()}
                for n, d in files.items()
            ]
            self.send(200, json.dumps(rows).encode())
        elif path.startswith("/api/models/"):
            if path.endswith("/revision/nowhere"):
                self.send(404, b"", {"X-Error-Code": "RevisionNotFound"})
                return
            about = {"id": NAME, "sha": COMMIT, "siblings": [{"rfilename": n} for n in files]}
            self.send(200, json.dumps(about).encode())
        elif (data := files.get(path.rpartition("/")[2])) is not None:
            etag = f'"{hashlib.sha256(data).hexdigest()}"'
            self.send(200, data, {"ETag": etag, "X-Repo-Commit": COMMIT})
        else:
            self.send(404, b"", {"X-Error-Code": "EntryNotFound"})

    def send(self, code: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("hub") / "model"
    write_marian(folder)
    (folder / "pytorch_model.bin").write_bytes(b"the same again, for old programs")
    (folder / "tf_model.h5").write_bytes(b"and for others")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    server = Hub(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def pellucid(
    home: Path, port: int, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    settings = {
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": f"http://127.0.0.1:{port}",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "PELLUCID_MODELS": str(home / "models"),
        "NO_PROXY": "127.0.0.1",
        **more,
    }
    return subprocess.run(
        [sys.executable, "-m", "pellucid", *arguments],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_names() -> None:
    assert parse_name(NAME) == (NAME, None)
    assert parse_name(f"{NAME}@v1.0") == (NAME, "v1.0")
    named = parse_name(f"{NAME}@refs/pr/3")
    assert named is not None
    assert named.folder == "Made-Up--opus-mt-fr-en--refs--pr--3"
    for other in ("fr-en", "a/b/c", "../up", "/some/model", "./here/model", "a/", "", "C:\\a/b"):
        assert parse_name(other) is None


def test_by_name(hub: Hub, home: Path) -> None:
    """Downloaded and imported the first time; then neither network nor PyTorch is needed."""
    hub.asked.clear()
    first = pellucid(home, hub.server_port, "translate", "--model", NAME, "le phare")
    assert first.returncode == 0, first.stderr
    fetched = {line.rpartition("/")[2] for line in hub.asked if "/resolve/" in line}
    assert "model.safetensors" in fetched
    assert not fetched & {"pytorch_model.bin", "tf_model.h5"}
    assert all(COMMIT in line for line in hub.asked if "/resolve/" in line)
    bundle = Bundle.open(home / "models" / "Made-Up--opus-mt-fr-en")
    assert COMMIT in bundle.about
    assert "apache-2.0" in bundle.about
    hub.asked.clear()
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"import pellucid; print(pellucid.load({NAME!r})('le phare'))"
    )
    again = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PELLUCID_MODELS": str(home / "models")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout == first.stdout
    assert not hub.asked
    # Also from the files that were fetched, if the bundle is gone and the hub as well.
    (bundle.folder / MANIFEST).unlink()
    from_cache = pellucid(home, 9, "import", NAME, "-o", str(home / "new"))
    assert from_cache.returncode == 0, from_cache.stderr
    assert Bundle.open(home / "new").weights().keys() == bundle.weights().keys()


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("Made-Up/opus-mt-fr-xx", 2, "no public model 'Made-Up/opus-mt-fr-xx'"),
        (f"{NAME}@nowhere", 2, "no revision 'nowhere'"),
    ],
)
def test_what_the_hub_has_not(hub: Hub, home: Path, name: str, code: int, why: str) -> None:
    said = pellucid(home, hub.server_port, "import", name, "-o", str(home / "b"))
    assert said.returncode == code
    assert why in said.stderr
    assert said.stderr.count("\n") == 1
    assert not (home / "b").exists()


@pytest.mark.parametrize("settings", [{}, {"HF_HUB_OFFLINE": "1"}])
def test_offline(home: Path, settings: dict[str, str]) -> None:
    said = pellucid(home, 9, "translate", "--model", NAME, "le phare", **settings)
    assert said.returncode == 1
    assert said.stderr.startswith(f"pellucid: {NAME} is not on this machine")
    assert "pellucid import FOLDER" in said.stderr
    assert said.stderr.count("\n") == 1
