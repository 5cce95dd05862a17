// The heads are concatenated and multiplied by W_O; what each head adds.
import { useEffect, useMemo, useState } from "preact/hooks";
import { html } from "page/html.js";
import * as api from "page/api.js";
import { choose, layer, look, model, place, view } from "page/store.js";
import { useTensors } from "page/tensors.js";
import { Heat, largestOf } from "page/drawing/heat.js";
import { BarList } from "page/drawing/bars.js";
import { LayerChoice, Radios, TokenChoice } from "page/drawing/choosing.js";
import { shown } from "page/drawing/colours.js";
import { KINDS, sides } from "page/panels/attention.js";

export const length = (values) => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));

/** What each head adds at a place, its length, and how far their sum and the bias are from the output. Pure. */
export function shares(headOutputs, output, bias, row) {
  const heads = Array.from({ length: headOutputs.shape[0] }, (_, head) => headOutputs.row(head, row));
  const whole = output.row(row);
  const summed = Array.from(whole, (_, d) =>
    heads.reduce((sum, vector) => sum + vector[d], bias ? bias.data[d] : 0),
  );
  const apart = Math.max(...summed.map((value, d) => Math.abs(value - whole[d])));
  return { heads, whole, apart, lengths: heads.map(length), total: length(whole) };
}

export function Heads() {
  const { trace } = look.value;
  const { kind, head: wanted, row: asked } = view.value;
  const path = place(kind, layer.value);
  const biased = `${path}.output_bias` in trace.shapes;
  const names = ["joined", "head_outputs", "output", ...(biased ? ["output_bias"] : [])];
  const found = useTensors(...names.map((name) => `${path}.${name}`));
  const [rows] = sides(trace, kind);
  const row = Math.max(0, Math.min(asked, rows.length - 1));
  const head = Math.max(0, Math.min(wanted, model.value.num_heads - 1));
  return html`
    <h2>Heads combined</h2>
    <p>Each head returns ${model.value.d_model / model.value.num_heads} numbers for a token. They are
      concatenated and multiplied by one more matrix, W<sub>O</sub>, which mixes them into ${
        model.value.d_model
      } numbers. Because that is a sum, we can tell what each head adds.</p>
    <div class="pager"><${Radios} label="Kind" options=${KINDS.map(([id, name]) => [id, name])} value=${kind}
      onChoose=${(id) => choose({ kind: id })} /><${LayerChoice} /></div>
    <${TokenChoice} names=${rows} />
    ${found && html`<${Joined} tensors=${found} ...${{ row, head }} />`}
    <${Joining} ...${{ kind, number: layer.value, head }} />`;
}

function Joined({ tensors: [joined, headOutputs, output, bias], row, head }) {
  const { heads, whole, apart, lengths, total } = shares(headOutputs, output, bias, row);
  const wide = model.value.d_model / model.value.num_heads;
  const top = largestOf([...heads, whole]);
  return html`
    <h3>1. The heads concatenated</h3>
    <${HeadRow} head=${head} />
    <${Heat} label=${`${heads.length} heads, ${wide} numbers each, concatenated`} rows=${[joined.row(row)]}
      high=${24} />
    <h3>2. What each head adds, through its part of W<sub>O</sub></h3>
    <${Heat} label="a row for each head" names=${heads.map((_, number) => `head ${number + 1}`)} rows=${heads}
      largest=${top} chosen=${head} high=${18} />
    <h3>3. How much each adds</h3>
    <${BarList} label="norm of what each head adds" chosen=${head} onChoose=${(number) => choose({ head: number })}
      items=${lengths.map((value, number) => ({ name: `head ${number + 1}`, key: number, value }))} />
    <p class="hint">The norm of each vector. They need not add up to the norm of the sum (<output data-total>
      ${shown(total)}</output>): vectors may point in opposite directions.</p>
    <h3>4. Their sum${bias ? " and the bias" : ""}</h3>
    <${Heat} label="the output of the sub-layer" rows=${[whole]} largest=${top} high=${24} />
    <p>Added up here, the heads${bias ? " and the bias of W" : ""}
      ${bias && html`<sub>O</sub>`} differ from the model's own output by at most <output data-apart>
        ${shown(apart)}</output>.</p>`;
}

/** A button for each head, above its own numbers. */
function HeadRow({ head }) {
  return html`<div class="joined">${Array.from(
    { length: model.value.num_heads },
    (_, number) => html`<button aria-pressed=${number === head}
    aria-label=${`head ${number + 1}`} onClick=${() => choose({ head: number })}>
    ${model.value.num_heads > 8 ? "" : "head "}${number + 1}</button>`,
  )}</div>`;
}

/** W_O as a picture: a row for each output number, a block of columns for each head. */
function Joining({ kind, number, head }) {
  const [found, setFound] = useState(null);
  const wanted = `${kind} ${number}`;
  useEffect(() => {
    let current = true;
    if (!api.offline)
      api.outputProjection(kind, number).then(
        (data) => current && setFound({ wanted, data }),
        () => {},
      );
    return () => {
      current = false;
    };
  }, [wanted]);
  const { d_model: width, num_heads: heads } = model.value;
  const rows = useMemo(
    () => found && Array.from({ length: width }, (_, d) => found.data.subarray(d * width, (d + 1) * width)),
    [found],
  );
  if (found?.wanted !== wanted) return null;
  const each = width / heads;
  return html`<h3>W<sub>O</sub> itself</h3>
    <p class="hint">A row for each number of the output, a column for each number of the heads.
      Head ${head + 1} has columns ${head * each} to ${(head + 1) * each - 1}.</p>
    <${HeadRow} head=${head} />
    <${Heat} label=${`W_O, ${width} by ${width}`} rows=${rows} high=${Math.max(0.5, 256 / width)}
      across="column" largest=${0.6 * largestOf(rows)} />`;
}
