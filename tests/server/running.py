"""A server to test: in a thread of this process, or as the command runs it."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

from pellucid.server.app import build_app, create_state
from pellucid.server.command import listen
from pellucid.server.lifecycle import GracefulServer, uvicorn_config
from pellucid.server.service.served_models import ModelLoader, ServedModels
from pellucid.server.service.telemetry import JsonLog
from pellucid.server.settings import ServerSettings


class Lines:
    """A log that is kept."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


class Here:
    """The whole server, connections and all, in a thread."""

    def __init__(self, *folders: Path, root_path: str = "", proxies: str = "", **changes: Any):
        settings = ServerSettings(**{"req_limit": 0, "workers": 2, **changes})
        self.log = Lines()
        self.loader = ModelLoader([str(folder) for folder in folders], "auto", settings.workers)
        models = ServedModels(self.loader.load(), pivot=settings.pivot)
        self.state = create_state(models, settings, JsonLog(self.log))  # type: ignore[arg-type]
        listening = listen("127.0.0.1", 0)
        listening.listen(1024)
        self.port = listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        config = uvicorn_config(
            build_app(self.state),
            self.state,
            host="127.0.0.1",
            port=self.port,
            root_path=root_path,
            proxies=proxies,
        )
        self.running = GracefulServer(config, self.state, self.loader)
        self.thread = threading.Thread(target=self.running.run, args=([listening],), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.running.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Command:
    """`pellucid serve` in a process of its own."""

    def __init__(self, *folders: Path, port: int = 0, options: tuple[str, ...] = ()) -> None:
        models = [word for folder in folders for word in ("--model", str(folder))]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pellucid", "serve", "--port", str(port), *models, *options],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PELLUCID_KEYS": "/nowhere/keys.json"},
        )
        self.said: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if '"started"' in line:
                break
        else:
            raise AssertionError("".join(self.said))
        place = next(line for line in self.said if "http://" in line)
        self.address = place.split()[3].rstrip("/")
        self.port = int(self.address.rpartition(":")[2])
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    def wait_for(self, word: str, seconds: float = 60) -> str:
        """The first line of its log with a word in it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for line in list(self.said):
                if word in line:
                    return line
            time.sleep(0.02)
        raise AssertionError(f"no {word!r} in {self.said}")

    def ended(self, seconds: float = 60) -> int:
        code = self.process.wait(seconds)
        self._reader.join(10)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()
