"""The peers: other people's software, in a virtual environment of its own with pinned versions.

`python()` makes it at the first use (.bench/peers, some minutes and about 2 GB) and gives back its
interpreter. The programs in this folder run there, so they import nothing of Pellucid.
"""

import hashlib
import json
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
FOLDER = HERE.parent.parent / ".bench" / "peers"
MINUTES = 20  # for the installation


def python() -> str:
    """The peers' interpreter; the environment is made anew when the requirements change."""
    interpreter = FOLDER / "bin" / "python"
    marker = FOLDER / ".ready"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if not marker.is_file() or marker.read_text() != wanted:
        print(f"installing the peers into {FOLDER.relative_to(HERE.parent.parent)}", flush=True)
        venv.create(FOLDER, clear=True, with_pip=True)
        pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pinned = [line for line in REQUIREMENTS.read_text().splitlines() if "==" in line[:40]]
        torch = next(line for line in pinned if line.startswith("torch=="))
        # First PyTorch alone: then the other packages find it and do not choose for themselves.
        for packages in ([torch], pinned):
            run = subprocess.run([*pip, *packages], timeout=60 * MINUTES)
            if run.returncode:
                sys.exit(f"benchmarks: pip could not install {', '.join(packages)}: see above")
        marker.write_text(wanted)
    return str(interpreter)


def versions() -> dict[str, str]:
    """The versions of the peers, for a result."""
    names = ("torch", "transformers", "ctranslate2", "eole")
    code = (
        "import importlib.metadata as m, json; "
        f"print(json.dumps({{name: m.version(name) for name in {names}}}))"
    )
    found = subprocess.run([python(), "-c", code], check=True, capture_output=True, text=True)
    return dict(json.loads(found.stdout))
