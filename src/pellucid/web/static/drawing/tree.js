// The tree of a search: a column for each round, a node for each way to go on.
import { useEffect, useRef } from "preact/hooks";
import { html } from "page/html.js";
import { FATES } from "page/search.js";
import { piece, shown } from "page/drawing/colours.js";

const [ACROSS, DOWN, WIDE, HIGH] = [104, 38, 80, 30];

/** Where everything stands: nodes and edges of the first ways of each round, and the size of all. Pure. */
export function layout(columns, most) {
  const at = (round, row) => ({ x: 6 + WIDE / 2 + ACROSS * (round + 1), y: 8 + HIGH / 2 + DOWN * row });
  const root = at(-1, 0);
  const nodes = columns.flatMap(({ ways }) =>
    ways.slice(0, most).map((way) => ({ way, ...at(way.round, way.row) })),
  );
  const edges = nodes.map(({ way, x, y }) => {
    const from = way.parent ? at(way.parent.round, way.parent.row) : root;
    const bend = (from.x + x) / 2;
    const path = `M${from.x + WIDE / 2} ${from.y}C${bend} ${from.y} ${bend} ${y} ${x - WIDE / 2} ${y}`;
    return { way, path };
  });
  const rows = Math.max(1, ...columns.map(({ ways }) => Math.min(most, ways.length)));
  return {
    root,
    nodes,
    edges,
    width: 12 + WIDE + ACROSS * columns.length,
    height: 16 + HIGH + DOWN * (rows - 1),
  };
}

/** columns: the rounds to show. given: text that was there before the first. picked: the way that is marked. */
export function Tree({ columns, most, given, picked, onPick }) {
  const { root, nodes, edges, width, height } = layout(columns, most);
  const frame = useRef(null);
  useEffect(() => {
    frame.current.scrollLeft = frame.current.scrollWidth;
  }, [columns.length]);
  const press = (event, way) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onPick(way);
    }
  };
  return html`<div class="scroll" ref=${frame}>
    <svg class="tree" viewBox="0 0 ${width} ${height}" width=${width} height=${height} role="group"
      aria-label="beam tree">
      ${edges.map(({ way, path }) => html`<path class=${kind("edge", way)} d=${path} />`)}
      <g><rect class="node fate1 best" x=${root.x - WIDE / 2} y=${root.y - HIGH / 2} width=${WIDE}
        height=${HIGH} rx="6" />
        <text x=${root.x} y=${root.y + 4}>${short(given || "‹s›")}</text></g>
      ${nodes.map(
        ({ way, x, y }) => html`<g role="button" tabindex="0" class=${way === picked ? "picked" : null}
        aria-label=${`${piece(way.text)}, sum ${shown(way.sum)}, ${FATES[way.fate]}${
          way.best ? ", on the path " + "of the output" : ""
        }`}
        data-token=${way.token} data-fate=${way.fate} data-best=${way.best ? "yes" : null}
        onClick=${() => onPick(way)} onKeyDown=${(event) => press(event, way)}>
        <rect class=${kind("node", way)} x=${x - WIDE / 2} y=${y - HIGH / 2} width=${WIDE} height=${HIGH} rx="6" />
        <text x=${x} y=${y - 1}>${short(piece(way.text))}</text><text class="small" x=${x} y=${y + 11}>
          ${shown(way.sum)}</text></g>`,
      )}
    </svg></div>`;
}

const kind = (name, way) => `${name} fate${way.fate}${way.best ? " best" : ""}`;

const short = (text) => ([...text].length > 10 ? `${[...text].slice(0, 9).join("")}…` : text);
