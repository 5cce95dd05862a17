"""Figures of a trace, each a self-contained SVG: for a lecture, a book, a notebook."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from pellucid.decoding.steps import Candidate, Fate
from pellucid.drawing.svg import attention_map, escaped
from pellucid.inspection.trace import Kind, Token, Trace

COLOURS = {
    "ink": "#1c2330",
    "soft": "#5d6675",
    "rule": "#d9dce2",
    "paper": "#ffffff",
    "c1": "#2f6fb5",
    "c2": "#d1662b",
    "c3": "#2e8b6a",
}
MARGIN = 12

STYLE = """
text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
.paper { fill: var(--paper); }
.title { font-size: 13px; font-weight: 600; fill: var(--ink); }
.tick { font-size: 11px; fill: var(--soft); }
.cell { fill: var(--rule); opacity: 0.45; }
.weight { fill: var(--c1); }
.edge { stroke: var(--rule); fill: none; stroke-width: 1.5; }
.edge.best { stroke: var(--c3); stroke-width: 3; }
.node { stroke: var(--soft); fill: var(--paper); }
.node.kept { stroke: var(--c1); stroke-width: 2; }
.node.ended { stroke: var(--c3); stroke-width: 2; fill: #e7f4ee; }
.node.pruned { stroke: var(--rule); stroke-dasharray: 3 2; }
.piece { font-size: 12px; fill: var(--ink); }
.pruned-text { fill: var(--soft); opacity: 0.8; }
.low { fill: var(--c2); } .high { fill: var(--c1); }
.grid { stroke: var(--rule); fill: none; }
.axis { stroke: var(--soft); fill: none; }
.line { stroke: currentColor; stroke-width: 2; fill: none; stroke-linejoin: round; }
.band { fill: currentColor; opacity: 0.18; stroke: none; }
.dot { fill: var(--paper); stroke: currentColor; stroke-width: 2; }
"""

_VIEW = re.compile(r'viewBox="0 0 (\d+ \d+)"')
_SIZE = re.compile(r' (?:width|height)="\d+"')
_NAMES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
}


def shown(piece: str) -> str:
    """Return a piece for display: without the space mark, or ␣ if it is nothing else."""
    return piece.replace("▁", "") or "␣"


def attention_svg(
    trace: Trace,
    kind: Kind = "cross",
    layer: int | Literal["mean"] = -1,
    head: int | Literal["mean"] = "mean",
) -> str:
    """Draw an attention map: queries (rows) and keys (columns), the darker the higher the weight.

    In cross-attention a row is labelled with the token that is predicted there.
    """
    weights = trace.attention(kind, layer, head)
    source, read, written = trace.tokens
    rows = {"encoder": source, "decoder": read, "cross": written}[kind]
    columns = read if kind == "decoder" else source
    where = "mean of all layers" if layer == "mean" else f"layer {_from_one(trace, kind, layer)}"
    which = "mean of the heads" if head == "mean" else f"head {head % trace.model['num_heads'] + 1}"
    title = f"{_NAMES[kind]}, {where}, {which}"
    return standalone(attention_map(title, _labels(columns), _labels(rows), weights.tolist()))


def _from_one(trace: Trace, kind: Kind, layer: int) -> int:
    depth = int(trace.model["encoder_layers" if kind == "encoder" else "decoder_layers"])
    return layer % depth + 1


def _labels(tokens: Sequence[Token]) -> list[str]:
    return [shown(token.piece) for token in tokens]


def positions_svg(values: np.ndarray, title: str) -> str:
    """Draw position encodings (positions, d_model): blue above 0, orange below, white at 0."""
    rows, columns = values.shape
    high, wide = round(max(4, min(14, 420 / rows))), round(max(1, min(12, 900 / columns)))
    left, top = 44, 34
    width, height = left + columns * wide + 12, top + rows * high + 34
    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escaped(title)}">'
        f'<text class="title" x="0" y="14">{escaped(title)}</text>'
        '<g shape-rendering="crispEdges">'
    ]
    for (sign, share), cells in _by_colour(values).items():
        boxes = "".join(
            f"M{left + column * wide} {top + row * high}h{wide}v{high}h-{wide}z"
            for row, column in cells
        )
        parts.append(f'<path class="{sign}" opacity="{share:g}" d="{boxes}"/>')
    parts.append("</g>")
    for row in sorted({*range(0, rows, 5), rows - 1}):
        parts.append(
            f'<text class="tick" x="{left - 6}" y="{top + (row + 0.5) * high + 4:.1f}" '
            f'text-anchor="end">{row}</text>'
        )
    for column in sorted({0, columns // 4, columns // 2, 3 * columns // 4, columns - 1}):
        parts.append(
            f'<text class="tick" x="{left + (column + 0.5) * wide:.0f}" '
            f'y="{top + rows * high + 16}" text-anchor="middle">{column}</text>'
        )
    parts.append(
        f'<text class="tick" x="{left}" y="{height - 4}">across: dimension; '
        "down: position</text></svg>"
    )
    return standalone("".join(parts))


def _by_colour(values: np.ndarray) -> dict[tuple[str, float], list[tuple[int, int]]]:
    """Return the cells of each colour and opacity, so that each is written once."""
    found: dict[tuple[str, float], list[tuple[int, int]]] = {}
    shares = np.round(values / (float(np.abs(values).max()) or 1.0), 2)
    for (row, column), share in np.ndenumerate(shares):
        if share:
            colour = ("high" if share > 0 else "low", abs(float(share)))
            found.setdefault(colour, []).append((row, column))
    return found


def beam_svg(trace: Trace, candidates: int | None = None) -> str:
    """Draw the tree of a search: a column per round with kept, pruned and finished candidates."""
    most = candidates or 2 * int(trace.options["beam_size"])
    across, down, left, top = 108, 40, 70, 48
    rounds = [one.candidates[:most] for one in trace.beam]
    winner = _winner(trace)
    places: dict[tuple[int, int], tuple[float, float]] = {(-1, 0): (left, top + down)}
    edges, nodes = [], [_node(left, top + down, "kept", "<s>", "")]
    kept_before: list[int] = [0]
    for number, shown_candidates in enumerate(rounds):
        kept: list[int] = []
        for row, way in enumerate(shown_candidates):
            x, y = left + across * (number + 1), top + down * (row + 1)
            parent = places[(number - 1, kept_before[way.parent])]
            best = winner.get(number) == (way.parent, way.token)
            fate = {Fate.KEPT: "kept", Fate.FINISHED: "ended"}.get(way.fate, "pruned")
            bend = (parent[0] + x) / 2
            edges.append(
                f'<path class="edge{" best" if best else ""}" d="M{parent[0] + 40:.0f} '
                f'{parent[1]:.0f}C{bend:.0f} {parent[1]:.0f} {bend:.0f} {y:.0f} {x - 40:.0f} {y}"/>'
            )
            nodes.append(_node(x, y, fate, trace.pieces[way.token], f"{way.sum:.2f}"))
            places[(number, row)] = (x, y)
            if way.fate is Fate.KEPT:
                kept.append(row)
        kept_before = kept
    width = left + across * (len(rounds) + 1) - 30
    height = top + down * (max((len(ways) for ways in rounds), default=1) + 1)
    title = (
        f"Beam search, beam {trace.options['beam_size']}: a column a round, with the sum of the "
        "log-probabilities; blue goes on, dashed is dropped, green has ended"
    )
    opening = (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escaped(title)}"><text class="title" x="8" y="18">{escaped(title)}</text>'
    )
    return standalone("".join([opening, *edges, *nodes, "</svg>"]))


def _node(x: float, y: float, fate: str, piece: str, note: str) -> str:
    faded = " pruned-text" if fate == "pruned" else ""
    return (
        f'<rect class="node {fate}" x="{x - 40:.0f}" y="{y - 15:.0f}" width="80" height="30" '
        f'rx="6"/><text class="piece{faded}" x="{x:.0f}" y="{y - 1:.0f}" text-anchor="middle">'
        f"{escaped(shown(piece)[:11])}</text>"
        f'<text class="tick{faded}" x="{x:.0f}" y="{y + 11:.0f}" text-anchor="middle">{note}</text>'
    )


def _winner(trace: Trace) -> dict[int, tuple[int, int]]:
    """Return for each round the parent and the token of the candidate that the output contains."""
    answer = [*trace.hypotheses[0].tokens]
    if trace.hypotheses[0].ended == "eos":
        answer.append(trace.tokens.answers[-1].id)
    found: dict[int, tuple[int, int]] = {}
    alive, first = 0, trace.beam[0].length - 1 if trace.beam else 0
    for number, one in enumerate(trace.beam):
        place = first + number
        ways = [w for w in one.candidates if w.parent == alive and place < len(answer)]
        way = next((w for w in ways if w.token == answer[place]), None)
        if way is None:
            return found
        found[number] = (way.parent, way.token)
        alive = _rank(one.candidates, way)
    return found


def _rank(candidates: Sequence[Candidate], way: Candidate) -> int:
    """Return the index of a kept candidate among the hypotheses of the next round."""
    kept = [c for c in candidates if c.fate is Fate.KEPT]
    return kept.index(way) if way in kept else -1


def standalone(svg: str) -> str:
    """Return an SVG with its own colours and a margin, for a file of its own.

    Colours are written out, as few programs other than browsers support CSS variables.
    """
    opening, rest = svg.split(">", 1)
    width, height = _VIEW.search(opening)[1].split()  # type: ignore[index]
    wide, high = int(width) + 2 * MARGIN, int(height) + 2 * MARGIN
    opening = _VIEW.sub(f'viewBox="-{MARGIN} -{MARGIN} {wide} {high}"', opening)
    opening = _SIZE.sub("", opening) + f' width="{wide}" height="{high}"'
    made = (
        f'{opening} xmlns="http://www.w3.org/2000/svg"><style>{STYLE}</style><rect class="paper" '
        f'x="-{MARGIN}" y="-{MARGIN}" width="{wide}" height="{high}"/>{rest}\n'
    )
    made = made.replace('style="--c:', 'style="color:')
    for name, value in COLOURS.items():
        made = made.replace(f"var(--{name})", value)
    return made
