// One attention weight, recomputed in six steps, and the weighted sum of the values.
import { html } from "page/html.js";
import { choose, layer, look, model, place, view } from "page/store.js";
import { useTensors } from "page/tensors.js";
import { colourOf, shown } from "page/drawing/colours.js";
import { Pager, sides } from "page/panels/attention.js";

const NAMES = ["q", "k", "v", "scores", "scaled", "weights", "mixed"];

export function Cell() {
  const { trace } = look.value;
  const { kind, head: wanted, row, column } = view.value;
  const path = place(kind, layer.value);
  const found = useTensors(...NAMES.map((name) => `${path}.${name}`));
  const [rows, columns] = sides(trace, kind);
  const i = Math.min(row, rows.length - 1);
  const j = Math.min(column, columns.length - 1);
  const head = Math.max(0, Math.min(wanted, model.value.num_heads - 1));
  return html`
    <h2>Attention step by step</h2>
    <${Pager} />
    <div class="pager">
      <${Choice} label="from" names=${rows} value=${i} onChoose=${(value) => choose({ row: value })} />
      <${Choice} label="to" names=${columns} value=${j} onChoose=${(value) => choose({ column: value })} />
    </div>
    ${
      found &&
      html`<${Steps} tensors=${found} ...${{
        head,
        i,
        j,
        rows,
        columns,
        masked: kind === "decoder" && j > i,
      }} />`
    }`;
}

function Choice({ label, names, value, onChoose }) {
  return html`<label>${label} <select value=${value} onChange=${(event) => onChoose(Number(event.target.value))}>
    ${names.map((name, place_) => html`<option value=${place_}>${name} (${place_})</option>`)}</select></label>`;
}

/** Everything that the six steps show, from the model's own tensors. */
export function six(tensors, head, i, j, heads) {
  const [q, k, v, scores, scaled, weights, mixed] = tensors;
  const group = Math.floor(head / (heads / k.shape[0])); // several heads may share keys and values
  const query = q.row(head, i);
  const key = k.row(group, j);
  const products = Array.from(query, (value, d) => value * key[d]);
  return {
    query,
    key,
    products,
    sum: products.reduce((a, b) => a + b, 0),
    score: scores.at(head, i, j),
    width: query.length,
    scaled: scaled.at(head, i, j),
    scaledRow: scaled.row(head, i),
    weight: weights.at(head, i, j),
    weightRow: weights.row(head, i),
    value: v.row(group, j),
    values: (column) => v.row(group, column),
    mixed: mixed.row(head, i),
  };
}

function Steps({ tensors, head, i, j, rows, columns, masked }) {
  const cell = six(tensors, head, i, j, model.value.num_heads);
  const [from, to] = [rows[i], columns[j]];
  return html`<ol class="six">
    <li><h3>Query and key</h3><p>The query of ${from} and the key of ${to}: ${cell.width} numbers each.</p>
      <${Strip} name="q" values=${cell.query} /><${Strip} name="k" values=${cell.key} /></li>
    <li><h3>Dot product</h3><${Strip} name="q·k" values=${cell.products} />
      <p>Sum: <output data-step="score">${shown(cell.sum)}</output></p></li>
    <li><h3>Divided by √${cell.width}</h3>
      <p>${shown(cell.score)} ÷ ${shown(Math.sqrt(cell.width))} = <output data-step="scaled">
        ${masked ? shown(-Infinity) : shown(cell.scaled)}</output></p></li>
    <li><h3>Mask</h3><p>${
      masked
        ? "This token comes later, so it is masked: −∞ in place of the " + "score."
        : "Nothing is masked here."
    }</p></li>
    <li><h3>Softmax over the row</h3><p>The exponential of each score, divided by their sum, gives weights that
      add up to 1.</p>
      <${Strip} name="scores" values=${cell.scaledRow} chosen=${j} />
        <${Strip} name="weights" values=${cell.weightRow} chosen=${j} largest=${1} />
      <p>Weight of ${to}: <output data-step="weight">${shown(cell.weight)}</output></p></li>
    <li><h3>Weighted sum of the values</h3>
      <${Mixing} ...${{ cell, from, columns }} />
      <${Strip} name=${`v(${to})`} values=${cell.value} /><${Strip} name=${`z(${from})`} values=${cell.mixed} />
        </li>
  </ol>`;
}

/** z(from) = 0.62·v(a) + 0.21·v(b) + … with the sum of the weights. */
function Mixing({ cell, from, columns }) {
  const order = Array.from(cell.weightRow.keys()).sort((a, b) => cell.weightRow[b] - cell.weightRow[a]);
  const most = order.slice(0, 6);
  const rest = order.slice(6).reduce((sum, place_) => sum + cell.weightRow[place_], 0);
  const total = cell.weightRow.reduce((a, b) => a + b, 0);
  return html`<p class="formula">z(${from}) = ${most.map(
    (place_, n) =>
      html`${n > 0 && " + "}<span><output data-mix>${cell.weightRow[place_].toFixed(2)}
        </output>·v(${columns[place_]})</span>`,
  )}
    ${order.length > 6 && html` + <small>${rest.toFixed(2)} for the ${order.length - 6} others</small>`}
    <small> (the weights add up to <output data-step="total">${shown(total)}</output>)</small></p>`;
}

/** A vector as a strip of coloured cells. */
export function Strip({ name, values, chosen = null, largest = null }) {
  const top =
    largest ??
    Math.max(1e-9, ...Array.from(values, (value) => (Number.isFinite(value) ? Math.abs(value) : 0)));
  return html`<figure class="strip"><figcaption>${name}</figcaption>
    <div role="img" aria-label=${`${name}: ${values.length} numbers`}>${Array.from(
      values,
      (value, place_) => html`
      <i class=${place_ === chosen ? "chosen" : null} style=${{
        background: colourOf(Number.isFinite(value) ? value / top : 0),
      }}
        title=${`${place_}: ${shown(value)}`}></i>`,
    )}</div></figure>`;
}
