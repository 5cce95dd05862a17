// Panel 14: the feed-forward layer, which each token passes alone: its neurons.
import { html } from "page/html.js";
import { choose, layer, look, model, view } from "page/store.js";
import { useTensors } from "page/tensors.js";
import { BarList } from "page/drawing/bars.js";
import { Heat } from "page/drawing/heat.js";
import { LayerChoice, Radios, readNames, stackOf, TokenChoice } from "page/drawing/choosing.js";
import { percent, shown } from "page/drawing/colours.js";

const SAYS = {
  relu: "ReLU lets what is above zero pass and makes the rest exactly 0",
  relu2: "ReLU squared makes what is below zero exactly 0 and squares the rest",
  gelu: "GELU lets what is above zero pass and bends the rest softly towards 0",
  gelu_tanh: "GELU (its tanh form) lets what is above zero pass and bends the rest softly towards 0",
  silu: "SiLU lets what is above zero pass and bends the rest softly towards 0",
  geglu: "GELU bends one projection, and a second one, the gate, multiplies it",
  geglu_tanh: "GELU (its tanh form) bends one projection, and a second one, the gate, multiplies it",
  swiglu: "SiLU bends one projection, and a second one, the gate, multiplies it",
};

/** A token's neurons: how many are exactly 0, and the most active ones with what came in. Pure. */
export function neurons(inner, active, count) {
  const gated = inner.length === 2 * active.length;
  const zeros = active.reduce((sum, value) => sum + (value === 0 ? 1 : 0), 0);
  const most = Array.from(active.keys()).sort((a, b) => Math.abs(active[b]) - Math.abs(active[a])).slice(0, count);
  return {
    gated,
    zeros: zeros / active.length,
    most: most.map((number) => ({ number, before: inner[number], gate: gated ? inner[number + active.length] : null, after: active[number] })),
  };
}

/** For each token, the share of neurons that are exactly 0. Pure. */
export const zeroShares = (active) => Array.from({ length: active.shape[0] }, (_, i) => {
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
    <p>After attention each token goes on alone: ${shape.width} numbers become ${shape.feed_forward_width}, called neurons; they are bent, and${" "}
      ${shape.width} come out. ${SAYS[shape.activation]}.</p>
    <div class="pager"><${Radios} label="Stack" options=${[["encoder", "Encoder"], ["decoder", "Decoder"]]} value=${stack} onChoose=${(kind) => choose({ kind })} /><${LayerChoice} kind=${stack} /></div>
    <${TokenChoice} names=${names} />
    ${found && html`<${Neurons} tensors=${found} ...${{ row, names }} />`}`;
}

function Neurons({ tensors: [input, inner, active, output], row, names }) {
  const [bent, fired] = [inner.row(row), active.row(row)];
  const { gated, zeros, most } = neurons(bent, fired, 12);
  const shares = zeroShares(active);
  const half = fired.length;
  return html`
    <${Heat} label="in: what the layer reads" rows=${[input.row(row)]} high=${20} />
    <${Heat} label=${gated ? "first projection, before it is bent" : "neurons before they are bent"} across="neuron" rows=${[bent.subarray(0, half)]} high=${20} />
    ${gated && html`<${Heat} label="the gate" across="neuron" rows=${[bent.subarray(half)]} high=${20} />`}
    <${Heat} label="neurons after" across="neuron" rows=${[fired]} high=${20} />
    <${Heat} label="out: what is added to the stream" rows=${[output.row(row)]} high=${20} />
    <p><output data-zeros>${percent(zeros)}</output> of this token's ${half} neurons are exactly 0${zeros === 0 ? ", as this bend never quite reaches it" : ""}.</p>
    <div class="side-by-side">
      <section><h3>Most active neurons for ${names[row]}</h3>
        <table class="numbers"><thead><tr><th>neuron</th><th>before</th>${gated && html`<th>gate</th>`}<th>after</th></tr></thead>
          <tbody>${most.map(({ number, before, gate, after }) => html`<tr><td>${number}</td><td><output data-before=${number}>${shown(before)}</output></td>${gated && html`<td>${shown(gate)}</td>`}
            <td><output data-neuron=${number}>${shown(after)}</output></td></tr>`)}</tbody></table></section>
      ${zeros > 0 && html`<section class="grow"><h3>Share of zeros, token by token</h3>
        <${BarList} label="share of zeros" largest=${1} chosen=${row} onChoose=${(place) => choose({ row: place })} format=${percent}
          items=${shares.map((value, place) => ({ name: names[place], key: place, value }))} /></section>`}
    </div>`;
}
