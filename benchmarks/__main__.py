"""`make bench` runs every benchmark; `python -m benchmarks NAME [options]` one.

A benchmark is a module here with `main(arguments) -> dict`; its result goes to
benchmarks/results/NAME.json, and with `python -m docs.benchmark_tables` into the docs. `--out FILE`
puts it elsewhere, for a try that is not to be kept.
"""

import importlib
import inspect
import json
import sys
from pathlib import Path

from benchmarks.measure import machine

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"__init__", "__main__", "measure", "multi30k", "workers"}
LONG = {"time-to-quality", "ablations", "quality"}
"""Not part of `make bench`: they need a corpus and the better part of an hour each."""


def names() -> list[str]:
    files = (file.stem for file in HERE.glob("*.py") if file.stem not in NOT_BENCHMARKS)
    return sorted(name.replace("_", "-") for name in files)


def run(name: str, options: list[str]) -> None:
    out = HERE / "results" / f"{name}.json"
    if "--out" in options:
        place = options.index("--out")
        out = Path(options[place + 1])
        options = options[:place] + options[place + 2 :]
    print(f"== {name}", flush=True)
    main = importlib.import_module(f"benchmarks.{name.replace('-', '_')}").main
    if options and "arguments" not in inspect.signature(main).parameters:
        sys.exit(f"benchmarks: {name} takes no options here: try python -m benchmarks.{name} -h")
    result = main(options) if options else main()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")
    print(f"written to {out}\n", flush=True)


def main() -> None:
    known = names()
    if len(sys.argv) == 1:
        for name in known:
            if name not in LONG:
                run(name, [])
        return
    name = sys.argv[1].replace("_", "-")
    if name not in known:
        sys.exit(f"benchmarks: no benchmark {name!r}; there are {', '.join(known)}")
    run(name, sys.argv[2:])


if __name__ == "__main__":
    main()
