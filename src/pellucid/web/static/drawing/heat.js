// A large matrix of signed numbers as a picture, a pixel a number; pointed at, it says the number.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "page/html.js";
import { pixelOf, scheme, shown } from "page/drawing/colours.js";
import { Twin } from "page/drawing/matrix.js";

/** The largest size of any number, for a scale. */
export function largestOf(rows) {
  let most = 1e-9;
  for (const row of rows)
    for (const value of row) if (Number.isFinite(value)) most = Math.max(most, Math.abs(value));
  return most;
}

/**
 * rows: arrays of numbers. names: what each row is called. high: pixels of a row. largest: what full
 * colour stands for. chosen: a row that is marked.
 */
export function Heat({
  label,
  rows,
  names = null,
  high = 16,
  largest = null,
  chosen = null,
  across = "dimension",
  onChoose = null,
}) {
  const canvas = useRef(null);
  const [at, setAt] = useState(null);
  const count = rows[0]?.length ?? 0;
  const top = largest ?? largestOf(rows);
  useEffect(() => {
    const pen = canvas.current.getContext("2d");
    const image = pen.createImageData(count, rows.length);
    rows.forEach((row, i) =>
      row.forEach((value, j) => image.data.set(pixelOf(value / top), 4 * (i * count + j))),
    );
    pen.putImageData(image, 0, 0);
  }, [rows, top, scheme.value]);
  const placed = (event) => {
    const frame = canvas.current.getBoundingClientRect();
    const limit = (share, size) => Math.max(0, Math.min(size - 1, Math.floor(share * size)));
    return [
      limit((event.clientY - frame.top) / frame.height, rows.length),
      limit((event.clientX - frame.left) / frame.width, count),
    ];
  };
  const move = (event) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    const [i, j] = at ?? [0, 0];
    setAt([Math.max(0, Math.min(rows.length - 1, i + by[0])), Math.max(0, Math.min(count - 1, j + by[1]))]);
  };
  const every = Math.ceil(12 / high); // a small row has no room for its name
  const named = (i) => names?.[i] ?? `${i}`;
  return html`<figure class="heat">
    <div class="heat-body">
      ${
        names &&
        html`<div class="heat-names" aria-hidden="true">${names.map(
          (name, i) => html`
        <span class=${i === chosen ? "chosen" : null} style=${{ height: `${high}px`, lineHeight: `${high}px` }}>
          ${i % every === 0 && name}</span>`,
        )}</div>`
      }
      <canvas ref=${canvas} class=${count > 300 ? "fine" : null} width=${count} height=${rows.length} style=${{
        height: `${high * rows.length}px`,
      }} role="img" tabindex="0"
        aria-label=${`${label}: ${rows.length} by ${count} numbers`} onKeyDown=${move} onMouseMove=${(
          event,
        ) => setAt(placed(event))}
        onMouseLeave=${() => setAt(null)} onClick=${onChoose && ((event) => onChoose(...placed(event)))}></canvas>
    </div>
    <figcaption><span aria-live="polite">${
      at && rows[at[0]]
        ? html`${named(at[0])}, ${across} ${at[1]}: <b>${shown(rows[at[0]][at[1]])}</b>`
        : html`${label}; full colour is ±${shown(top)}`
    }</span>
      <${Twin} label=${label} rows=${rows.map((_, i) => named(i))} columns=${Array.from(
        { length: count },
        (_, j) => `${j}`,
      )} values=${(i, j) => rows[i][j]} /></figcaption>
  </figure>`;
}
