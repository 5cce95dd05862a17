"""The real server in a process of its own: `python -m tests.web.serving FOLDER [OPTION]`.

--without-torch: as where PyTorch is not installed. --keys=FILE: only for who has a key.
It prints its port once it listens.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def browser_here() -> str | None:
    """The browser that is installed, if one is."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


class Server:
    """A server for a bundle, until `close`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.web.serving", str(folder), *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main(folder: str, *options: str) -> None:
    if "--without-torch" in options:
        sys.modules["torch"] = None  # type: ignore[assignment]
    import uvicorn

    from pellucid.server.app import create_app
    from pellucid.server.command import listen
    from pellucid.server.service.inspection_process import InspectionProcess
    from pellucid.server.settings import ServerSettings
    from pellucid.translator import load

    files = [Path(option.partition("=")[2]) for option in options if option.startswith("--keys=")]
    settings = ServerSettings(keys=files[0], require_key=True) if files else None
    app = create_app(load(folder, threads=1), InspectionProcess(Path(folder)), settings)
    listening = listen("127.0.0.1", 0)
    listening.listen()  # so that who reads the port may come at once
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
