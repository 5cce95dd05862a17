// What a sub-layer adds to the stream, and what the norm makes of it.
import { html } from "page/html.js";
import { choose, layer, look, model, place, view } from "page/store.js";
import { useTensors } from "page/tensors.js";
import { Skyline } from "page/drawing/bars.js";
import { largestOf } from "page/drawing/heat.js";
import { LayerChoice, Radios, readNames, stackOf, TokenChoice } from "page/drawing/choosing.js";
import { shown } from "page/drawing/colours.js";

const PARTS = [
  ["encoder attention", "encoder self-attention"],
  ["encoder feed_forward", "encoder feed-forward"],
  ["decoder attention", "decoder self-attention"],
  ["cross attention", "cross-attention"],
  ["decoder feed_forward", "decoder feed-forward"],
];
const ORDER = {
  post: "This model adds first and normalises the sum: norm(x + f(x)), as in the paper.",
  pre: "This model normalises the input of the sub-layer and adds its output to the stream: x + f(norm(x)).",
  sandwich: "This model normalises the input of the sub-layer and its output: x + norm(f(norm(x))).",
};
const NORMS = {
  norm_before: "before the sub-layer",
  norm_inside: "on the output of the sub-layer",
  norm_after: "after the sum",
};

/** The tensors of a sub-layer in the trace begin with this. */
export const pathOf = (kind, part, number) =>
  part === "feed_forward" ? `${stackOf(kind)}.${number}.feed_forward` : place(kind, number);

/** Mean, variance and root mean square of a vector, as the norms take them. Pure. */
export function moments(values) {
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
  const rms = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length);
  return { mean, variance, rms };
}

/** How much is added: the lengths, their ratio, and the cosine of stream and addition. Pure. */
export function growth(before, added) {
  const dot = (a, b) => a.reduce((sum, value, d) => sum + value * b[d], 0);
  const [stream, more] = [Math.sqrt(dot(before, before)), Math.sqrt(dot(added, added))];
  return { stream, more, ratio: more / stream, cosine: dot(before, added) / (stream * more) };
}

export function Residual() {
  const { trace } = look.value;
  const { kind, part, row: asked } = view.value;
  const shape = model.value;
  const names = readNames(trace, stackOf(kind));
  const row = Math.max(0, Math.min(asked, names.length - 1));
  const path = pathOf(kind, part, layer.value);
  const norms = Object.keys(NORMS).filter((name) => `${path}.${name}.input` in trace.shapes);
  const paths = [
    "residual_before",
    "residual_added",
    "residual_after",
    ...norms.flatMap((name) => ["input", "output", "mean", "variance"].map((what) => `${name}.${what}`)),
  ];
  const found = useTensors(...paths.map((name) => `${path}.${name}`));
  const chosen = kind === "cross" && part === "feed_forward" ? "decoder feed_forward" : `${kind} ${part}`;
  const take = (value) => {
    const [newKind, newPart] = value.split(" ");
    choose({ kind: newKind, part: newPart });
  };
  return html`
    <h2>Residual and norm</h2>
    <p>A sub-layer does not replace a token's vector: it adds to it, so the original meaning is carried along
      and refined.${" "}
      ${ORDER[shape.norm]} ${
        shape.norm_type === "rms"
          ? "RMSNorm divides by the root mean " + "square."
          : "LayerNorm subtracts the mean and divides by the standard deviation."
      }</p>
    <div class="pager"><${Radios} label="Sub-layer" options=${PARTS} value=${chosen} onChoose=${take} />
      <${LayerChoice} kind=${kind} /></div>
    <${TokenChoice} names=${names} />
    ${
      found &&
      html`<${Added} tensors=${found} row=${row} />
      ${norms.map(
        (name, number) =>
          html`<${Norm} name=${NORMS[name]} tensors=${found.slice(
            3 + 4 * number,
            7 + 4 * number,
          )} row=${row} />`,
      )}`
    }
    <${Growth} stack=${stackOf(kind)} row=${row} path=${path} />`;
}

function Added({ tensors, row }) {
  const [before, added, after] = tensors.slice(0, 3).map((tensor) => tensor.row(row));
  const { stream, more, ratio, cosine } = growth(before, added);
  const top = largestOf([before, added, after]);
  return html`
    <h3>What is added</h3>
    <${Skyline} name="before" values=${before} largest=${top} />
      <${Skyline} name="added" values=${added} largest=${top} />
        <${Skyline} name="after" values=${after} largest=${top} />
    <p>The residual stream has norm <output data-residual="before">${shown(stream)}
      </output>, what is added has norm <output data-residual="added">${shown(more)}
      </output>: a ratio of <output data-residual="ratio">${shown(ratio)}
      </output>. Their cosine is <output data-residual="cosine">${shown(cosine)}</output>${" "}
      (${
        cosine > 0.3
          ? "it strengthens what is there"
          : cosine < -0.3
            ? "it weakens what is there"
            : "it " + "points elsewhere: new information"
      }).</p>`;
}

function Norm({ name, tensors: [input, output, mean, variance], row }) {
  const { norm_type: kind, norm_epsilon: epsilon } = model.value;
  const [read, given] = [input.row(row), output.row(row)];
  const here = moments(read);
  const there = moments(given);
  return html`
    <h3>Norm ${name}</h3>
    <${Skyline} name="in" values=${read} largest=${largestOf([read])} />
      <${Skyline} name="out" values=${given} largest=${largestOf([given])} />
    <table class="numbers"><thead><tr><th></th><th>mean</th><th>variance</th><th>root mean square</th></tr>
      </thead><tbody>
      <tr><td>in</td><td><output data-norm="mean">${shown(mean.at(row))}</output></td><td>
        <output data-norm="variance">${shown(variance.at(row))}</output></td><td>${shown(here.rms)}</td></tr>
      <tr><td>out</td><td>${shown(there.mean)}</td><td>${shown(there.variance)}</td><td>${shown(there.rms)}</td>
        </tr></tbody></table>
    <p class="hint">${
      kind === "rms"
        ? html`Each number is divided by ${shown(Math.sqrt(here.rms ** 2 + epsilon))}, then multiplied by a
          learned scale.`
        : html`${shown(mean.at(row))} is subtracted from each number, and the result divided by √${shown(
            variance.at(row),
          )} = ${shown(Math.sqrt(variance.at(row) + epsilon))}; then each gets a learned scale and shift.`
    }</p>`;
}

/** How the stream grows through all sub-layers of a stack, for one token. */
function Growth({ stack, row, path }) {
  const found = useTensors(`${stack}.growth`);
  if (!found) return null;
  const parts = stack === "encoder" ? ["self", "feed_forward"] : ["self", "cross", "feed_forward"];
  const lines = Array.from({ length: found[0].shape[0] }, (_, index) => {
    const [number, part] = [Math.floor(index / parts.length), parts[index % parts.length]];
    const [before, added, after, cosine] = found[0].row(index, row);
    return { number, part, id: `${stack}.${number}.${part}`, before, added, after, cosine };
  });
  const top = Math.max(...lines.map(({ before, added, after }) => Math.max(before, added, after)));
  const go = ({ number, part }) =>
    choose({
      layer: number,
      kind: part === "cross" ? "cross" : stack,
      part: part === "feed_forward" ? part : "attention",
    });
  const said = { self: "self-attention", cross: "cross-attention", feed_forward: "feed-forward" };
  const bar = (value, kind) =>
    html`<td class="amount"><i class=${kind} style=${{ width: `${((100 * value) / top).toFixed(1)}%` }}></i></td>`;
  return html`<h3>Through the whole ${stack}, for this token</h3>
    <div class="scroll"><table class="amounts growth" aria-label="what each sub-layer adds"><thead><tr>
      <th>sub-layer</th><th>stream before</th><th>added</th><th>ratio</th><th>cosine</th></tr></thead>
      <tbody>${lines.map(
        (line) => html`<tr class=${line.id === path ? "chosen" : null}>
        <th scope="row"><button onClick=${() => go(line)}>${line.number + 1} ${said[line.part]}</button></th>
        ${bar(line.before, "stream")}${bar(line.added, "above")}<td><output data-ratio=${line.id}>
        ${shown(line.added / line.before)}</output></td><td>${shown(line.cosine)}</td></tr>`,
      )}</tbody></table></div>`;
}
