"""The report of a training run: one self-contained HTML page, made from the run folder.

Curves, samples, the attention of one sentence, the table of the data, the recipe, the machine. It
has no script and fetches nothing; every text from outside is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pellucid.console.formatting import format_duration
from pellucid.data.cleaning import MEANINGS, Verdict
from pellucid.drawing.report_page import cards, page, section, write_page
from pellucid.drawing.svg import Curve, attention_map, escaped, line_chart
from pellucid.errors import InputError
from pellucid.training.callbacks.callback import perplexity
from pellucid.training.callbacks.metrics_file import METRICS, read_metrics

REPORT = "report.html"
RECIPE = "recipe.toml"
ATTENTION = "attention.json"
DATA_MANIFEST = Path("data") / "manifest.json"
_MAX_MAP_TOKENS = 60  # per side
_MAX_HEADS = 16


@dataclass
class _RunMetrics:
    """The lines of metrics.jsonl by kind."""

    about: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    validations: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)


def write_report(run_folder: Path | str) -> Path:
    """Write report.html into a run folder, finished or not; return its path."""
    folder = Path(run_folder)
    run = _read(folder)
    path = folder / REPORT
    write_page(path, _page(folder, run))
    return path


def loss_chart(run_folder: Path | str) -> str:
    """Draw the loss of a run over its steps, as SVG."""
    run = _read(Path(run_folder))
    curves = [
        Curve("training", _points(run.steps, "loss", "step"), 1),
        Curve("validation", _points(run.validations, "loss", "step"), 2, dots=True),
    ]
    drawn = line_chart("Loss, nats per token", curves, "step")
    if not drawn:
        raise InputError(f"no loss to draw yet in {Path(run_folder) / METRICS}")
    return drawn


def _read(folder: Path) -> _RunMetrics:
    run = _RunMetrics()
    for line in read_metrics(folder):
        if line["kind"] == "run":
            run.about = line
        elif line["kind"] == "step":
            run.steps.append(line)
        elif line["kind"] == "valid":
            run.validations.append(line)
        elif line["kind"] == "end":
            run.end = line
    if not (run.about or run.steps or run.validations):
        raise InputError(f"nothing to report: {folder / METRICS} is missing or empty")
    return run


def _page(folder: Path, run: _RunMetrics) -> str:
    title = str(run.about.get("title") or "A training run")
    sections = [
        _header(title, run),
        section("Curves", "".join(_curves(run)), "charts"),
        _samples(run),
        _attention(folder),
        _data(folder, run),
        _machine(run),
        _recipe(folder),
    ]
    return page(title, sections)


def _header(title: str, run: _RunMetrics) -> str:
    facts: list[tuple[str, str, str]] = []
    for key, name in (("bleu", "BLEU"), ("chrf", "chrF")):
        scored = [v for v in run.validations if v.get(key) is not None]
        if scored:
            best = max(scored, key=lambda v: v[key])
            facts.append((f"{best[key]:.1f}", f"{name}, best", f"at step {best['step']:,}"))
    with_loss = [v for v in run.validations if v.get("loss") is not None]
    if with_loss:
        best = min(with_loss, key=lambda v: v["loss"])
        facts.append(
            (f"{perplexity(best['loss']):.2f}", "perplexity, best", f"at step {best['step']:,}")
        )
    if run.about.get("parameters"):
        facts.append((f"{run.about['parameters'] / 1e6:.1f}M", "parameters", ""))
    if run.steps:
        last = run.steps[-1]
        tokens = sum(step.get("target_tokens") or 0 for step in run.steps)
        seconds = sum(step.get("seconds") or 0 for step in run.steps)
        facts.append((f"{last['step']:,}", "steps", f"{last.get('epoch') or 0:.1f} epochs"))
        facts.append((format_duration(last.get("elapsed") or 0), "of training", ""))
        if seconds:
            facts.append((f"{tokens / seconds:,.0f}", "target tokens per second", ""))
    ended = "".join(
        f"<li>{escaped(name)}: {escaped(value)}</li>"
        for name, value in (run.end.get("summary") or {}).items()
        if value is not None
    )
    state = f'<ul class="ended">{ended}</ul>' if ended else ""
    if not run.end:
        state = '<p class="note">The run has not ended yet; these are the results so far.</p>'
    return f"<header><h1>{escaped(title)}</h1>{cards(facts)}{state}</header>"


def _points(lines: Iterable[Mapping[str, Any]], key: str, by: str) -> list[tuple[float, float]]:
    found = []
    for line in lines:
        x = line.get("step") if by == "step" else (line.get("elapsed") or 0) / 60
        y = line.get(key)
        if isinstance(x, int | float) and isinstance(y, int | float):
            found.append((float(x), float(y)))
    return found


def _curves(run: _RunMetrics) -> list[str]:
    """Draw the curves over steps and over minutes."""
    charts = []
    for step in (*run.steps, *run.validations):
        if isinstance(step.get("loss"), int | float):
            step["perplexity"] = perplexity(step["loss"])
    for title, key, log in (
        ("Loss, nats per token", "loss", False),
        ("Perplexity", "perplexity", True),
    ):
        for by in ("step", "minutes"):
            curves = [
                Curve("training", _points(run.steps, key, by), 1),
                Curve("validation", _points(run.validations, key, by), 2, dots=True),
            ]
            charts.append(line_chart(title, curves, by, log=log))
    for by in ("step", "minutes"):
        curves = [
            Curve("BLEU", _points(run.validations, "bleu", by), 2, dots=True),
            Curve("chrF", _points(run.validations, "chrf", by), 3, dots=True),
        ]
        charts.append(line_chart("Translation quality", curves, by))
    for title, key in (
        ("Learning rate", "learning_rate"),
        ("Gradient norm, before clipping", "grad_norm"),
        ("Target tokens per second", "tokens_per_second"),
        ("Model FLOPs utilization (MFU)", "mfu"),
    ):
        curve = Curve("", _points(run.steps, key, "step"))
        log = key == "grad_norm"
        charts.append(line_chart(title, [curve], "step", log=log, from_zero=not log))
    return [f"<figure>{chart}</figure>" for chart in charts if chart]


def _samples(run: _RunMetrics) -> str:
    with_samples = [v for v in run.validations if v.get("samples")]
    if not with_samples:
        return ""
    last = with_samples[-1]
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td><bdi>{escaped(sample.get(key, ''))}</bdi></td>"
            for key in ("source", "reference", "translation")
        )
        + "</tr>"
        for sample in last["samples"]
    )
    table = (
        '<table class="samples"><thead><tr><th>source</th><th>reference</th>'
        f"<th>translation at step {last['step']:,}</th></tr></thead><tbody>{rows}</tbody></table>"
    )
    signatures = "".join(
        f"<li><code>{escaped(name)}: {escaped(value)}</code></li>"
        for name, value in (last.get("signatures") or {}).items()
    )
    table += f'<ul class="signatures">{signatures}</ul>' if signatures else ""
    return section("Samples", table) + _first_sample_over_time(with_samples)


def _first_sample_over_time(validations: list[dict[str, Any]]) -> str:
    """Show how the first sample was translated at several validations."""
    first = validations[0]["samples"][0]
    same = [v for v in validations if v["samples"][0].get("source") == first.get("source")]
    if len(same) < 2:
        return ""
    count = min(8, len(same))
    chosen = [same[i * (len(same) - 1) // (count - 1)] for i in range(count)]
    rows = "".join(
        f"<tr><td class=number>{v['step']:,}</td>"
        f"<td><bdi>{escaped(v['samples'][0].get('translation', ''))}</bdi></td></tr>"
        for v in chosen
    )
    return section(
        "One sentence over the course of training",
        f"<p><bdi>{escaped(first.get('source', ''))}</bdi></p><table><thead><tr><th class=number>"
        f"step</th><th>translation</th></tr></thead><tbody>{rows}</tbody></table>",
    )


def _attention(folder: Path) -> str:
    """Draw the cross-attention of one sentence, head by head."""
    found = _json(folder / ATTENTION)
    try:
        source, target = (
            [str(token).replace("\u2581", "␣") for token in found[side]]
            for side in ("source", "target")
        )
        heads = found.get("heads") or [found["weights"]]
        fits = all(
            len(head) == len(target) and all(len(row) == len(source) for row in head)
            for head in heads
        )
        if not (source and target and fits) or max(len(source), len(target)) > _MAX_MAP_TOKENS:
            return ""
        maps = "".join(
            attention_map(f"head {number}" if len(heads) > 1 else "", source, target, head)
            for number, head in enumerate(heads[:_MAX_HEADS], start=1)
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""
    layer = found.get("layer")
    where = f" of decoder layer {layer}" if isinstance(layer, int) else ""
    note = (
        f'<p class="note">Cross-attention{where}. Each row is an output token; its cells are the '
        "attention weights over the source tokens, which sum to 1.</p>"
    )
    return section("The attention of one sentence", f'{note}<div class="maps">{maps}</div>')


def _data(folder: Path, run: _RunMetrics) -> str:
    manifest = _json(folder / DATA_MANIFEST)
    report = manifest.get("report") if isinstance(manifest, dict) else None
    report = report or run.about.get("data") or {}
    rows = []
    for split, counted in report.items() if isinstance(report, dict) else ():
        if not isinstance(counted, dict):
            continue
        for verdict, count in (counted.get("counts") or {}).items():
            meaning = MEANINGS[Verdict(verdict)] if verdict in set(Verdict) else ""
            rows.append((split, verdict.replace("_", " "), f"{count:,}", meaning))
        rows.append((split, "kept, total", f"{counted.get('kept', 0):,}", "what is used"))
    if not rows:
        return ""
    body = "".join(
        f"<tr{' class=total' if verdict == 'kept, total' else ''}><td>{escaped(split)}</td>"
        f"<td>{escaped(verdict)}</td><td class=number>{escaped(count)}</td>"
        f"<td>{escaped(meaning)}</td></tr>"
        for split, verdict, count, meaning in rows
    )
    head = "<tr><th>split</th><th>verdict</th><th class=number>pairs</th><th>what</th></tr>"
    return section("Data", f"<table><thead>{head}</thead><tbody>{body}</tbody></table>")


def _machine(run: _RunMetrics) -> str:
    rows = "".join(
        f"<tr><td>{escaped(name)}</td><td>{escaped(value)}</td></tr>"
        for name, value in (run.about.get("machine") or {}).items()
    )
    return section("Machine and versions", f'<table class="facts">{rows}</table>' if rows else "")


def _recipe(folder: Path) -> str:
    try:
        text = (folder / RECIPE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return section("Recipe", f"<pre>{escaped(text)}</pre>")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
