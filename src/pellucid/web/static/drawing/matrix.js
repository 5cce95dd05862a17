// A matrix as coloured cells, with a table twin; arrow keys move, Enter pins.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "page/html.js";
import { colourOf, scheme, shown } from "page/drawing/colours.js";

const MOST_SVG = 2500;
const MOST_IN_TABLE = 20000;
const NAMED = 7; // smaller cells have no room for names

/** Where everything stands: pure numbers, apart from drawing. */
export function layout(rowNames, columnNames, cell) {
  const longest = (names) => Math.max(1, ...names.map((name) => [...name].length));
  if (cell < NAMED)
    return {
      left: 2,
      top: 2,
      cell,
      width: cell * columnNames.length + 4,
      height: cell * rowNames.length + 4,
    };
  const left = 10 + 7.2 * Math.min(14, longest(rowNames));
  const top = 12 + 5.6 * Math.min(14, longest(columnNames));
  return {
    left,
    top,
    cell,
    width: left + cell * columnNames.length + 34,
    height: top + cell * rowNames.length + 4,
  };
}

/**
 * values(row, column): a number. largest: what full colour stands for. chosen: [row, column].
 */
export function Matrix({ label, rows, columns, values, largest = 1, chosen, onChoose, hidden, cell = 22 }) {
  const box = layout(rows, columns, cell);
  const named = cell >= NAMED;
  const size = { fontSize: `${Math.min(12, cell)}px` };
  const move = (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!steps || !chosen || !onChoose) return;
    event.preventDefault();
    const limit = (value, count) => Math.max(0, Math.min(count - 1, value));
    onChoose(limit(chosen[0] + steps[0], rows.length), limit(chosen[1] + steps[1], columns.length));
  };
  const Cells = rows.length * columns.length > MOST_SVG ? CanvasCells : SvgCells;
  return html`
    <div class="matrix" tabindex=${onChoose ? 0 : null} onKeyDown=${move} role="group" aria-label=${label}>
      <svg viewBox="0 0 ${box.width} ${box.height}" width=${box.width} height=${box.height} role="img"
        aria-label=${label}>
        ${
          named &&
          columns.map(
            (name, i) => html`
          <text style=${size} class=${chosen?.[1] === i ? "name chosen" : "name"}
            transform="translate(${box.left + cell * (i + 0.62)} ${box.top - 5}) rotate(-55)">${name}</text>`,
          )
        }
        ${
          named &&
          rows.map(
            (name, i) => html`
          <text style=${size} class=${chosen?.[0] === i ? "name chosen" : "name"} text-anchor="end"
            x=${box.left - 6} y=${box.top + cell * (i + 0.68)}>${name}</text>`,
          )
        }
        <${Cells} ...${{ box, rows, columns, values, largest, hidden, onChoose }} />
        ${
          chosen &&
          html`<rect class="ring" x=${box.left + cell * chosen[1]} y=${box.top + cell * chosen[0]}
          width=${cell - 1} height=${cell - 1} />`
        }
      </svg>
      <${Twin} ...${{ label, rows, columns, values }} />
    </div>`;
}

function SvgCells({ box, rows, columns, values, largest, hidden, onChoose }) {
  const { left, top, cell } = box;
  return rows.map((row, i) =>
    columns.map((column, j) => {
      const value = values(i, j);
      const out = hidden?.(i, j);
      return html`<rect class=${out ? "cell hidden" : "cell"} x=${left + cell * j} y=${top + cell * i}
      width=${cell - 1} height=${cell - 1} fill=${out ? null : colourOf(value / largest)}
      data-row=${i} data-column=${j} data-value=${value} onClick=${onChoose && (() => onChoose(i, j))}
    ><title>${row} → ${column}: ${out ? "masked" : shown(value)}</title></rect>`;
    }),
  );
}

function CanvasCells({ box, rows, columns, values, largest, onChoose }) {
  const canvas = useRef(null);
  const { left, top, cell } = box;
  const size = [cell * columns.length, cell * rows.length];
  void scheme.value; // when it changes, this is drawn again
  useEffect(() => {
    const pen = canvas.current.getContext("2d");
    pen.clearRect(0, 0, ...size);
    rows.forEach((_, i) =>
      columns.forEach((__, j) => {
        pen.fillStyle = colourOf(values(i, j) / largest);
        pen.fillRect(cell * j, cell * i, Math.max(1, cell - 0.5), Math.max(1, cell - 0.5));
      }),
    );
  });
  const click = (event) => {
    const frame = canvas.current.getBoundingClientRect();
    const scale = size[0] / frame.width;
    onChoose?.(
      Math.floor(((event.clientY - frame.top) * scale) / cell),
      Math.floor(((event.clientX - frame.left) * scale) / cell),
    );
  };
  return html`<foreignObject x=${left} y=${top} width=${size[0]} height=${size[1]}>
    <canvas ref=${canvas} width=${size[0]} height=${size[1]} onClick=${click}></canvas></foreignObject>`;
}

/** The same numbers as a table, for those who read or copy them; made when it is opened. */
export function Twin({ label, rows, columns, values }) {
  const [opened, setOpened] = useState(false);
  const some = rows.slice(0, Math.max(1, Math.floor(MOST_IN_TABLE / columns.length)));
  return html`<details class="twin" onToggle=${(event) => setOpened(event.target.open)}>
    <summary>as a table</summary>
    ${
      opened &&
      html`<div class="scroll"><table aria-label=${label}>
      <thead><tr><th></th>${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${some.map(
        (name, i) => html`<tr><th scope="row">${name}</th>
        ${columns.map((_, j) => html`<td>${shown(values(i, j))}</td>`)}</tr>`,
      )}</tbody>
    </table></div>`
    }${
      opened &&
      some.length < rows.length &&
      html`<p class="hint">The
      first ${some.length} of ${rows.length} rows.</p>`
    }</details>`;
}
