// Attention weights: three kinds, every layer, every head, as a matrix or as lines.
import { useEffect, useRef } from "preact/hooks";
import { html } from "page/html.js";
import { choose, depth, layer, look, model, place, view } from "page/store.js";
import { useTensors } from "page/tensors.js";
import { Matrix, Twin } from "page/drawing/matrix.js";
import { Lines } from "page/drawing/lines.js";
import { Radios } from "page/drawing/choosing.js";
import { piece, pixelOf, scheme, shown } from "page/drawing/colours.js";
import { read } from "page/panels/tokens.js";

export const KINDS = [
  ["encoder", "Encoder", "Each source token attends to all source tokens"],
  [
    "decoder",
    "Decoder",
    "Each output token attends to itself and those before it; those after it are masked",
  ],
  ["cross", "Cross", "Each output token attends to the source"],
];
/** The layer that stands for the mean of all, in the view. */
export const ALL_LAYERS = -2;
/** How attention is drawn, in the view: a matrix, lines of all rows, lines of the row that is pinned. */
const [MATRIX, LINES, PINNED] = [0, 1, 2];

/** The names of rows and columns of a kind of attention. */
export function sides(trace, kind) {
  const { source, target, answers } = read(trace.tokens);
  const names = (tokens) => tokens.map(({ text }) => piece(text));
  if (kind === "encoder") return [names(source), names(source)];
  return kind === "decoder" ? [names(target), names(target)] : [names(answers), names(source)];
}

/** One weight: of a head, or the mean over heads (head below 0), over one or several layers. Pure. */
export function weightOf(layers, head, i, j) {
  let sum = 0;
  let count = 0;
  for (const weights of layers) {
    const heads = weights.shape[0];
    const [first, last] = head < 0 ? [0, heads] : [Math.min(head, heads - 1), Math.min(head, heads - 1) + 1];
    for (let h = first; h < last; h++, count++) sum += weights.at(h, i, j);
  }
  return sum / count;
}

/** The mean over the heads of one layer. */
export const mean = (weights, heads, i, j) => weightOf([weights], -1, i, j);

export function Attention() {
  const { trace } = look.value;
  const { kind, head, row, column, lines, layer: wanted } = view.value;
  const all = wanted === ALL_LAYERS;
  const layers = all ? Array.from({ length: depth(kind) }, (_, number) => number) : [layer.value];
  const found = useTensors(...layers.map((number) => `${place(kind, number)}.weights`));
  const [rows, columns] = sides(trace, kind);
  const chosen = [Math.min(row, rows.length - 1), Math.min(column, columns.length - 1)];
  const weight = (i, j) => weightOf(found, head, i, j);
  const take = (i, j) => choose({ row: i, column: j });
  const shared = { rows, columns, chosen, onChoose: take };
  const size = Math.max(rows.length, columns.length);
  return html`
    <h2>Attention</h2>
    <${Pager} mean=${true} />
    <div class="pager"><${Radios} label="Drawn as" options=${[
      [MATRIX, "matrix"],
      [LINES, "lines"],
    ]} value=${Math.min(lines, LINES)} onChoose=${(value) => choose({ lines: value })} />
      ${
        lines !== MATRIX &&
        html`<span class="hint">${
          lines === PINNED
            ? html`<b>${rows[chosen[0]]}
        </b> is pinned. <button onClick=${() => choose({ lines: LINES })}>Unpin</button>`
            : "Click a token on the left to pin it."
        }</span>`
      }</div>
    <p>${KINDS.find(([id]) => id === kind)[2]}. A row sums to 1.</p>
    ${
      found &&
      html`<div class="side-by-side">
      ${
        lines === MATRIX
          ? html`<${Matrix} label="attention weights" ...${shared} values=${weight} cell=${size > 40 ? 12 : 22}
            hidden=${kind === "decoder" ? (i, j) => j > i : null} />`
          : html`<div class="grow"><${Lines} label="attention weights as lines" ...${shared} weight=${weight}
            pinned=${lines === PINNED ? chosen[0] : null}
              onPin=${(i) => choose(i === null ? { lines: LINES } : { lines: PINNED, row: i })} />
            <${Twin} label="attention weights" rows=${rows} columns=${columns} values=${weight} /></div>`
      }
      <div class="aside">
        ${
          all
            ? html`<p class="hint">The mean of all ${layers.length} layers.</p>`
            : html`<${Thumbnails}
          weights=${found[0]} />`
        }
        <p><b>${rows[chosen[0]]}</b> gives <b>${columns[chosen[1]]}</b> a weight of${" "}
          <output data-weight>${shown(weight(...chosen))}</output>.
          ${
            head >= 0 &&
            !all &&
            html` <button onClick=${() => choose({ panel: "cell" })}>How this number is
            computed</button>`
          }</p>
        <p class="hint">The row of ${rows[chosen[0]]} adds up to <output data-row-sum>
          ${shown(columns.reduce((sum, _, j) => sum + weight(chosen[0], j), 0))}</output>.</p>
      </div>
    </div>`
    }`;
}

/** Kind, layer and head; arrow keys work in each. mean: also the mean of the heads and of the layers. */
export function Pager({ mean: offersMean = false, kinds = KINDS }) {
  const { kind, head, layer: wanted } = view.value;
  const heads = model.value.num_heads;
  const number = (label, value, count, set, meanValue) => html`
    <label>${label} <select value=${value} onChange=${(event) => set(Number(event.target.value))}>
      ${offersMean && html`<option value=${meanValue}>mean</option>`}
      ${Array.from({ length: count }, (_, i) => html`<option value=${i}>${i + 1}</option>`)}</select></label>`;
  const chosenLayer = offersMean && wanted === ALL_LAYERS ? ALL_LAYERS : layer.value;
  const chosenHead = offersMean ? Math.min(head, heads - 1) : Math.max(0, Math.min(head, heads - 1));
  return html`<div class="pager">
    <${Radios} label="Kind" options=${kinds.map(([id, name]) => [id, name])} value=${kind} onChoose=${(id) =>
      choose({ kind: id })} />
    ${number("Layer", chosenLayer, depth(kind), (value) => choose({ layer: value }), ALL_LAYERS)}
    ${number("Head", chosenHead, heads, (value) => choose({ head: value }), -1)}
  </div>`;
}

/** All heads of the layer, small; one click takes one, and opens a panel if one is named. */
export function Thumbnails({ weights, panel = null }) {
  const { head } = view.value;
  const [count] = weights.shape;
  const options = Array.from({ length: count }, (_, h) => [
    h,
    html`<${Thumbnail} weights=${weights} head=${h} /><small>${h + 1}</small>`,
    `head ${h + 1}`,
  ]);
  return html`<${Radios} kind="thumbs" label="Head" options=${options} value=${head} onChoose=${(h) =>
    choose(panel ? { head: h, panel } : { head: h })} />`;
}

function Thumbnail({ weights, head }) {
  const canvas = useRef(null);
  const [, rows, columns] = weights.shape;
  const size = 92 / Math.max(rows, columns, 10);
  useEffect(() => {
    const pen = canvas.current.getContext("2d");
    const image = pen.createImageData(columns, rows);
    weights
      .rows(head)
      .forEach((row, i) => row.forEach((value, j) => image.data.set(pixelOf(value), 4 * (i * columns + j))));
    pen.putImageData(image, 0, 0);
  }, [weights, head, scheme.value]);
  return html`<canvas ref=${canvas} width=${columns} height=${rows} aria-hidden="true" style=${{
    width: `${size * columns}px`,
    height: `${size * rows}px`,
  }}></canvas>`;
}
