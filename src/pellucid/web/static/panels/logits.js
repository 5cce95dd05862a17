// From the last vector to logits, from logits to probabilities; temperature.
import { useState } from "preact/hooks";
import { html } from "page/html.js";
import { look, model, view } from "page/store.js";
import { useTensors } from "page/tensors.js";
import { Heat } from "page/drawing/heat.js";
import { TokenChoice } from "page/drawing/choosing.js";
import { piece, shown } from "page/drawing/colours.js";
import { label, read } from "page/panels/tokens.js";

const SHOWN = 12;

/** softmax(logits / temperature), with its parts: the largest logit, each power of e, and their sum. Pure. */
export function softmax(logits, temperature = 1) {
  let largest = -Infinity;
  for (const logit of logits) largest = Math.max(largest, logit);
  const powers = Float64Array.from(logits, (logit) => Math.exp((logit - largest) / temperature));
  const sum = powers.reduce((a, b) => a + b, 0);
  return { largest, powers, sum, probabilities: powers.map((power) => power / sum) };
}

/** The places of the largest numbers, largest first. Pure. */
export function best(values, count) {
  return Array.from(values.keys())
    .sort((a, b) => values[b] - values[a])
    .slice(0, count);
}

/** How undecided a distribution is: as many equally likely tokens would be. Pure. */
export const undecided = (probabilities) =>
  Math.exp(-probabilities.reduce((sum, p) => sum + (p > 0 ? p * Math.log(p) : 0), 0));

export function Logits() {
  const { trace } = look.value;
  const { target, answers } = read(trace.tokens);
  const row = Math.max(0, Math.min(view.value.row, answers.length - 1));
  const [temperature, setTemperature] = useState(1);
  const found = useTensors(`logits[${row}]`, `decoder.output[${row}]`);
  return html`
    <h2>Logits to softmax</h2>
    <p>After the last layer a token's vector is compared with every token of the vocabulary: ${
      model.value.d_model
    } numbers become${" "}
      ${model.value.vocab_size} logits. Softmax takes the exponential of each and divides by the sum, which
      gives probabilities.</p>
    <p class="hint">After reading:</p><${TokenChoice} names=${target.map(({ text }) => piece(text))}
      label="After reading" />
    ${
      found &&
      html`<${Distribution} logits=${found[0].data} state=${found[1].data} written=${answers[row]}
      ...${{ temperature, setTemperature }} />`
    }`;
}

function Distribution({ logits, state, written, temperature, setTemperature }) {
  const { pieces } = look.value.trace;
  const { largest, powers, sum, probabilities } = softmax(logits, temperature);
  const order = best(logits, SHOWN);
  const rest = 1 - order.reduce((total, id) => total + probabilities[id], 0);
  const power =
    temperature === 1 ? `e^(logit − ${shown(largest)})` : `e^((logit − ${shown(largest)}) ÷ ${temperature})`;
  return html`
    <${Heat} label="the decoder's last vector" rows=${[state]} high=${22} />
    <div class="pager"><label>Temperature <input type="range" min="0.1" max="3" step="0.1" value=${temperature}
        onInput=${(event) => setTemperature(Number(event.target.value))} /></label> <output data-temperature>
        ${temperature.toFixed(1)}</output>
      <button onClick=${() => setTemperature(1)} disabled=${temperature === 1}>Reset to 1</button>
      <span class="hint">${
        temperature < 1
          ? "sharper: the best token gets more"
          : temperature > 1
            ? "flatter: " + "the other tokens get more"
            : "the model's own probabilities"
      }</span></div>
    <div class="scroll"><table class="amounts logits" aria-label="most likely tokens"><thead><tr><th>token</th>
      <th>logit</th><th class="power">${power}</th><th>÷ ${shown(sum)}</th><th></th></tr></thead>
      <tbody>${order.map(
        (id) => html`<tr class=${id === written.id ? "chosen" : null}><th scope="row">
          ${label(pieces[id] ?? `#${id}`)}</th>
        <td><output data-logit=${id}>${shown(logits[id])}</output></td><td class="power">${shown(powers[id])}</td>
        <td><output data-probability=${id}>${probabilities[id].toFixed(4)}</output></td>
        <td class="amount"><i class="above" style=${{ width: `${(100 * probabilities[id]).toFixed(2)}%` }}></i>
          </td></tr>`,
      )}
        <tr><th scope="row"><i>${logits.length - order.length} others</i></th><td></td><td class="power"></td>
          <td>${Math.max(0, rest).toFixed(4)}</td>
          <td class="amount"><i class="above" style=${{ width: `${(100 * Math.max(0, rest)).toFixed(2)}%` }}>
            </i></td></tr></tbody></table></div>
    <p>Output here: <b>${piece(written.text)}</b>, with probability <output data-written>
      ${probabilities[written.id].toFixed(4)}</output>. The perplexity of this choice is <output data-undecided>
      ${undecided(probabilities).toFixed(2)}</output> (as if among that many equally likely tokens).</p>
    <p class="hint">The largest logit is subtracted first so that no exponential overflows; the result stays the
      same.</p>`;
}
