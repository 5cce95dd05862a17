"""What can happen to the files of a checkpoint, by accident or by malice."""

import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import torch

from pellucid.storage.folder import manifest_hash

DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": lambda path: path.write_bytes(_flipped(path.read_bytes())),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-2]),
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
}


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


BOOM = "PELLUCID_TEST_BOOM"
"""The variable with the name of a folder that a malicious file makes if it is ever unpickled."""


class _Boom:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.mkdir, (os.environ[BOOM],))


def malicious(kind: str) -> bytes:
    """A file that runs something when it is unpickled."""
    buffer = io.BytesIO()
    if kind == "pickle":
        pickle.dump(_Boom(), buffer)
    else:
        torch.save({"x": _Boom()}, buffer)
    return buffer.getvalue()


def sign(folder: Path) -> None:
    """Make the manifest of a checkpoint agree with its files as they are now."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes()
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["sha256"] = manifest_hash(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
