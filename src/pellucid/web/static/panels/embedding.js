// A token's embedding, its scaling, its position encoding, and their sum.
import { useEffect, useState } from "preact/hooks";
import { html } from "page/html.js";
import * as api from "page/api.js";
import { choose, look, model, view } from "page/store.js";
import { useTensors } from "page/tensors.js";
import { Heat, largestOf } from "page/drawing/heat.js";
import { Radios, readNames, stackOf, TokenChoice } from "page/drawing/choosing.js";
import { shown } from "page/drawing/colours.js";
import { Moving } from "page/panels/moving.js";

const PAPER = { length: 20, width: 512 };
const LAYOUTS = [
  ["interleaved", "interleaved", "sine, cosine, sine, cosine …"],
  ["halves", "in halves", "all sines, then all cosines"],
];
const SAYS = {
  sinusoidal:
    "Attention alone does not see order, so a vector for the position is added: sines and cosines of many " +
    "wavelengths.",
  learned:
    "Attention alone does not see order, so a vector for the position is added. This model has learned one for " +
    "each position.",
  rotary:
    "Attention alone does not see order. This model adds nothing here: inside each self-attention it rotates " +
    "pairs of numbers of the queries and keys by an angle that grows with the position (rotary position " +
    "embedding, RoPE).",
  none: "This model has no positions: to its encoder a sentence is a bag of tokens.",
};

/** A row of waves in the other layout: the same numbers, columns moved. Pure. */
export function relaid(row, from, to) {
  if (from === to) return row;
  const half = row.length / 2;
  const place =
    from === "interleaved"
      ? (j) => (j < half ? 2 * j : 2 * (j - half) + 1)
      : (j) => (j % 2 ? half + (j - 1) / 2 : j / 2);
  return Float32Array.from({ length: row.length }, (_, j) => row[place(j)]);
}

/** How far `sum` is from `scaled + positions`, at most. Pure. */
export const apart = (scaled, positions, sum) =>
  Math.max(...Array.from(sum, (value, d) => Math.abs(value - scaled[d] - (positions ? positions[d] : 0))));

export function Embedding() {
  const { trace } = look.value;
  const shape = model.value;
  const side = stackOf(view.value.kind) === "encoder" ? "source" : "target";
  const placed = `${side}.positions` in trace.shapes;
  const found = useTensors(
    ...["tokens", "scaled", "sum", ...(placed ? ["positions"] : [])].map((name) => `${side}.${name}`),
  );
  const names = readNames(trace, side);
  const row = Math.max(0, Math.min(view.value.row, names.length - 1));
  return html`
    <h2>Embedding and position</h2>
    <p>Each token of the vocabulary has an embedding, a vector of ${shape.d_model} learned numbers. ${
      SAYS[shape.position_encoding]
    }</p>
    <div class="pager"><${Radios} label="Side" options=${[
      ["encoder", "Source"],
      ["decoder", "Output"],
    ]} value=${side === "source" ? "encoder" : "decoder"} onChoose=${(kind) => choose({ kind })} /></div>
    <${TokenChoice} names=${names} />
    ${found && html`<${Sum} tensors=${found} ...${{ row, names, shape }} />`}
    ${found?.[3] && html`<${Places} positions=${found[3]} ...${{ row, shape }} />`}
    ${shape.position_encoding === "rotary" && html`<${Turns} row=${row} />`}
    ${shape.position_encoding === "sinusoidal" && !api.offline && html`<${Paper} />`}
    <${Moving} />`;
}

function Sum({ tensors: [tokens, scaled, sum, positions], row, names, shape }) {
  const token = tokens.row(row);
  const larger = scaled.row(row);
  const place = positions?.row(row);
  const whole = sum.row(row);
  const top = largestOf([larger, whole, ...(place ? [place] : [])]);
  return html`
    <h3>The vector of “${names[row]}” at position ${row}</h3>
    <${Heat} label="embedding" rows=${[token]} high=${22} />
    ${
      shape.scale_embedding
        ? html`<p class="hint">× √${shape.d_model} = ${shown(Math.sqrt(shape.d_model))}
          ${place && ", so that it is not drowned out by the positions"}: the first number,${" "}
          <output data-embedding="token">${shown(token[0])}</output>, becomes <output data-embedding="scaled">
            ${shown(larger[0])}</output>.</p>
        <${Heat} label="embedding × √D" rows=${[larger]} largest=${top} high=${22} />`
        : html`<p class="hint">This model does not scale its embeddings.</p>`
    }
    ${
      place &&
      html`<p class="hint">+ the encoding of position ${row}</p>
        <${Heat} label=${`position ${row}`} rows=${[place]} largest=${top} high=${22} />
      <p class="hint">= what the first layer reads</p><${Heat} label="sum" rows=${[whole]} largest=${top}
        high=${22} />
      <p>First number: ${shown(larger[0])} + ${shown(place[0])} = <output data-embedding="sum">
        ${shown(whole[0])}</output>. Over all ${shape.d_model} numbers the sum computed here differs from the
        model's by at most <output data-embedding="apart">${shown(apart(larger, place, whole))}</output>.</p>`
    }`;
}

/** The vectors of all places of the sentence, as the model used them. */
function Places({ positions, row, shape }) {
  const waves = shape.position_encoding === "sinusoidal";
  const [layout, setLayout] = useState(shape.position_layout);
  const rows = positions.rows().map((one) => (waves ? relaid(one, shape.position_layout, layout) : one));
  return html`<h3>All positions of this sentence</h3>
    ${
      waves &&
      html`<div class="pager">Sines and cosines <${Radios} label="Layout" options=${LAYOUTS} value=${layout}
        onChoose=${setLayout} />
      <span class="hint">${
        layout === shape.position_layout ? "as in this model" : "the same numbers, columns " + "moved"
      }</span></div>`
    }
    <${Heat} label="positions" names=${rows.map((_, place) => `${place}`)} rows=${rows} chosen=${row} high=${
      rows.length > 40 ? 8 : 14
    } />`;
}

/** The classic picture, 20 positions of 512 numbers, from the same function. */
function Paper() {
  const [table, setTable] = useState(null);
  const [layout, setLayout] = useState("interleaved");
  useEffect(() => {
    api.positions(PAPER.length, PAPER.width).then(setTable, () => {});
  }, []);
  if (!table) return null;
  const rows = Array.from({ length: PAPER.length }, (_, i) =>
    relaid(table.subarray(i * PAPER.width, (i + 1) * PAPER.width), "interleaved", layout),
  );
  return html`<h3>The same for ${PAPER.length} positions of ${PAPER.width} numbers, the size of the paper</h3>
    <div class="pager">Sines and cosines <${Radios} label="Layout of the paper's size" options=${LAYOUTS}
      value=${layout} onChoose=${setLayout} /></div>
    <${Heat} label=${`${PAPER.length} positions, ${PAPER.width} numbers`} names=${rows.map(
      (_, place) => `${place}`,
    )} rows=${rows} largest=${1} high=${14} />
    <p class="hint">Short wavelengths at one end tell neighbours apart, long ones at the other tell the
      beginning from the end. In halves the picture splits in the middle: sines left, cosines right.</p>`;
}

/** Rotary positions: the angle of each pair of numbers at a position, as the hand of a dial. */
function Turns({ row }) {
  const found = useTensors("rotary.angles");
  if (!found) return null;
  const [angles] = found;
  const cosines = angles.rows().map((one) => one.map(Math.cos));
  return html`<h3>Angle of each pair at position ${row}</h3>
    <div class="dials">${Array.from(
      angles.row(row),
      (
        angle,
        pair,
      ) => html`<figure><svg viewBox="-12 -12 24 24" width="44" height="44" role="img" aria-label=${`pair ${pair}`}>
      <circle r="10" class="dial" /><path class="hand" d="M0 0L${(9 * Math.cos(angle)).toFixed(2)} ${(
        -9 * Math.sin(angle)
      ).toFixed(2)}" /></svg>
      <figcaption><output data-angle=${pair}>${shown(angle)}</output></figcaption></figure>`,
    )}</div>
    <p class="hint">In radians: pair 0 rotates fastest, by 1 per position. The dot product of a query and a key
      then depends only on how far apart they are.</p>
    <${Heat} label="cosine of the angle" names=${cosines.map((_, place) => `${place}`)} rows=${cosines}
      across="pair" largest=${1} chosen=${row} high=${cosines.length > 40 ? 8 : 14} />`;
}
