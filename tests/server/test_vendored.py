"""The page's libraries are what VENDORED.md says they are."""

import hashlib
import re
from pathlib import Path

import pellucid.web

VENDOR = Path(pellucid.web.__file__).parent / "static" / "vendor"


def test_every_vendored_file_has_its_hash() -> None:
    table = (VENDOR / "VENDORED.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| (\S+\.mjs) \|.*`([0-9a-f]{64})` \|$", table, re.MULTILINE))
    there = {file.name for file in VENDOR.iterdir()} - {"VENDORED.md"}
    assert set(listed) == there
    for name, digest in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
