"""`make bench` runs every benchmark; `make bench NAME=model` (or `python -m benchmarks model`) one.

A benchmark is a module here with `main() -> dict`; its result goes to benchmarks/results/NAME.json.
"""

import importlib
import json
import sys
from pathlib import Path

from benchmarks.measure import machine

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"__init__", "__main__", "measure"}


def main() -> None:
    names = sorted(f.stem for f in HERE.glob("*.py") if f.stem not in NOT_BENCHMARKS)
    chosen = sys.argv[1:] or names
    for name in chosen:
        if name not in names:
            sys.exit(f"benchmarks: no benchmark {name!r}; there are {', '.join(names)}")
    for name in chosen:
        print(f"== {name}")
        result = importlib.import_module(f"benchmarks.{name}").main()
        file = HERE / "results" / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")
        print(f"written to {file.relative_to(HERE.parent)}\n")


if __name__ == "__main__":
    main()
