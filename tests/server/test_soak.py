"""Some minutes under load: memory stays flat, and every answer is right."""

import itertools
import os
import threading
import time
from pathlib import Path

import httpx
import pytest

from pellucid.translator import Translator
from tests.made_up import pairs
from tests.server.running import Command

MINUTES = float(os.environ.get("PELLUCID_SOAK_MINUTES", "3"))
WAY = {"source": "en", "target": "fr"}


def resident(process: int) -> float:
    """Megabytes of memory that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.slow
def test_memory_stays_flat(folder: Path, alone: Translator) -> None:
    texts = [english for english, _ in pairs(40)]
    expected = {text: alone(text, source="en") for text in texts}
    wrong: list[str] = []
    stop = threading.Event()

    def ask(address: str, first: int) -> None:
        with httpx.Client(base_url=address, timeout=120, verify=False) as client:
            for number in itertools.count(first):
                if stop.is_set():
                    return
                text = texts[number % len(texts)]
                kind = number % 10
                if kind == 0:  # too large: refused, and forgotten
                    answer = client.post("/translate", json={"q": "a" * 30_000, **WAY})
                    good = answer.status_code == 413
                elif kind == 1:  # a document, kept for a while
                    files = {"file": ("a.txt", "\n".join(texts[:5]).encode())}
                    answer = client.post("/translate_file", data=WAY, files=files)
                    good = answer.status_code == 200
                elif kind == 2:  # a stream, left in the middle
                    with client.stream(
                        "POST", "/translate/stream", json={"q": " ".join(texts), **WAY}
                    ) as stream:
                        next(stream.iter_text())
                    good = True
                else:
                    answer = client.post("/translate", json={"q": text, **WAY})
                    good = answer.json().get("translatedText") == expected[text]
                if not good:
                    wrong.append(answer.text)

    with Command(folder, options=("--req-limit", "0")) as here:
        threads = [threading.Thread(target=ask, args=(here.address, n * 7)) for n in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(MINUTES * 60 / 3)  # caches fill, pools grow
        early = resident(here.process.pid)
        time.sleep(MINUTES * 60 * 2 / 3)
        late = resident(here.process.pid)
        stop.set()
        for thread in threads:
            thread.join(120)
        assert httpx.get(f"{here.address}/health/ready").status_code == 200
    assert wrong == []
    assert late - early < 25, f"{early:.0f} MB grew to {late:.0f} MB"
    assert "failure" not in "".join(here.said)
