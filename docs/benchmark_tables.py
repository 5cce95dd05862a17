"""The tables in benchmarks.md, made from benchmarks/results/*.json.

`python -m docs.benchmark_tables` writes them anew; a test says when they are stale. A result that
has no table (some have a page of their own) is left out.
"""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE / "benchmarks.md"
RESULTS = HERE.parent / "benchmarks" / "results"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
FIRST = ("training", "time-to-quality", "translate", "decoding", "startup", "memory", "growth")
NONE = "No result is kept here yet."


def cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def section(result: dict[str, Any]) -> str:
    """One result: its table, its goals and where it was measured."""
    table, machine = result["table"], result["machine"]
    lines = [
        f"### {result['title']}",
        "",
        f"| {' | '.join(map(cell, table['columns']))} |",
        "|---" * len(table["columns"]) + "|",
        *(f"| {' | '.join(map(cell, row))} |" for row in table["rows"]),
        "",
    ]
    for goal, reached in result.get("goals", {}).items():
        figure = "not measured" if reached is None else f"{reached:#.3g}"
        lines.append(f"Goal: {goal}. Reached: {figure}.\n")
    measured = (
        f"{machine['date'][:10]}, {machine['processor']}, {machine['cores']} cores, torch "
        f"{machine['torch']}; a product of 1024 x 1024 matrices ran at "
        f"{machine['matmul_gflops']} GFLOP/s, and the load was {machine['load']} when it ended."
    )
    return "\n".join([*lines, f"{result.get('note', '')} {measured}".strip()])


def tables(folder: Path = RESULTS) -> str:
    """All of them, the most asked for first."""
    found = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in folder.glob("*.json")}
    names = sorted(
        (name for name, result in found.items() if "table" in result),
        key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name),
    )
    return "\n\n".join(section(found[name]) for name in names) or NONE


def updated(page: str, folder: Path = RESULTS) -> str:
    """The page with its tables as they should be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables(folder)}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
