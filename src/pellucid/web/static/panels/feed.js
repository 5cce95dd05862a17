// The feed-forward layer, applied to each token separately: its neurons.
import { html } from "page/html.js";
import { choose, layer, look, model, view } from "page/store.js";
import { useTensors } from "page/tensors.js";
import { BarList } from "page/drawing/bars.js";
import { Heat } from "page/drawing/heat.js";
import { LayerChoice, Radios, readNames, stackOf, TokenChoice } from "page/drawing/choosing.js";
import { percent, shown } from "page/drawing/colours.js";

const SAYS = {
  relu: "ReLU keeps positive values and sets the others to exactly 0",
  relu2: "Squared ReLU sets negative values to exactly 0 and squares the others",
  gelu: "GELU keeps large positive values and brings the others smoothly towards 0",
  gelu_tanh: "GELU (tanh approximation) keeps large positive values and brings the others smoothly towards 0",
  silu: "SiLU keeps large positive values and brings the others smoothly towards 0",
  geglu: "GELU is applied to one projection, which a second one, the gate, multiplies",
  geglu_tanh:
    "GELU (tanh approximation) is applied to one projection, which a second one, the gate, multiplies",
  swiglu: "SiLU is applied to one projection, which a second one, the gate, multiplies",
};

/** A token's neurons: how many are exactly 0, and the most active ones with what came in. Pure. */
export function neurons(inner, active, count) {
  const gated = inner.length === 2 * active.length;
  const zeros = active.reduce((sum, value) => sum + (value === 0 ? 1 : 0), 0);
  const most = Array.from(active.keys())
    .sort((a, b) => Math.abs(active[b]) - Math.abs(active[a]))
    .slice(0, count);
  return {
    gated,
    zeros: zeros / active.length,
    most: most.map((number) => ({
      number,
      before: inner[number],
      gate: gated ? inner[number + active.length] : null,
      after: active[number],
    })),
  };
}

/** For each token, the share of neurons that are exactly 0. Pure. */
export const zeroShares = (active) =>
  Array.from({ length: active.shape[0] }, (_, i) => {
    const row = active.row(i);
    return row.reduce((sum, value) => sum + (value === 0 ? 1 : 0), 0) / row.length;
  });

export function Feed() {
  const { trace } = look.value;
  const stack = stackOf(view.value.kind);
  const shape = model.value;
  const path = `${stack}.${layer.value}.feed_forward`;
  const before = shape.norm === "post" ? "residual_before" : "norm_before.output";
  const found = useTensors(...[before, "inner", "active", "output"].map((name) => `${path}.${name}`));
  const names = readNames(trace, stack);
  const row = Math.max(0, Math.min(view.value.row, names.length - 1));
  return html`
    <h2>Feed-forward</h2>
    <p>After attention each token is processed separately: ${shape.d_model} numbers become ${shape.d_ff}, called
      neurons; the activation function is applied, and${" "}
      ${shape.d_model} come out. ${SAYS[shape.activation]}.</p>
    <div class="pager"><${Radios} label="Stack" options=${[
      ["encoder", "Encoder"],
      ["decoder", "Decoder"],
    ]} value=${stack} onChoose=${(kind) => choose({ kind })} /><${LayerChoice} kind=${stack} /></div>
    <${TokenChoice} names=${names} />
    ${found && html`<${Neurons} tensors=${found} ...${{ row, names }} />`}`;
}

function Neurons({ tensors: [input, inner, active, output], row, names }) {
  const [bent, fired] = [inner.row(row), active.row(row)];
  const { gated, zeros, most } = neurons(bent, fired, 12);
  const shares = zeroShares(active);
  const half = fired.length;
  return html`
    <${Heat} label="input of the layer" rows=${[input.row(row)]} high=${20} />
    <${Heat} label=${gated ? "first projection, before the activation" : "neurons before the activation"}
      across="neuron" rows=${[bent.subarray(0, half)]} high=${20} />
    ${gated && html`<${Heat} label="the gate" across="neuron" rows=${[bent.subarray(half)]} high=${20} />`}
    <${Heat} label="neurons after the activation" across="neuron" rows=${[fired]} high=${20} />
    <${Heat} label="output: what is added to the residual stream" rows=${[output.row(row)]} high=${20} />
    <p><output data-zeros>${percent(zeros)}</output> of this token's ${half} neurons are exactly 0${
      zeros === 0 ? ", as this activation function never quite reaches it" : ""
    }.</p>
    <div class="side-by-side">
      <section><h3>Most active neurons for ${names[row]}</h3>
        <table class="numbers"><thead><tr><th>neuron</th><th>before</th>${gated && html`<th>gate</th>`}
          <th>after</th></tr></thead>
          <tbody>${most.map(
            ({
              number,
              before,
              gate,
              after,
            }) => html`<tr><td>${number}</td><td><output data-before=${number}>${shown(before)}</output></td>
              ${gated && html`<td>${shown(gate)}</td>`}
            <td><output data-neuron=${number}>${shown(after)}</output></td></tr>`,
          )}</tbody></table></section>
      ${
        zeros > 0 &&
        html`<section class="grow"><h3>Share of zeros, token by token</h3>
        <${BarList} label="share of zeros" largest=${1} chosen=${row} onChoose=${(place) =>
          choose({ row: place })} format=${percent}
          items=${shares.map((value, place) => ({ name: names[place], key: place, value }))} /></section>`
      }
    </div>`;
}
