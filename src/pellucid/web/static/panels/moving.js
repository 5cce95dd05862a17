// What word order changes: two words are swapped, and the sentence is read again.
import { useState } from "preact/hooks";
import { html } from "page/html.js";
import * as api from "page/api.js";
import { look, model } from "page/store.js";
import { fetched } from "page/tensors.js";
import { percent, piece } from "page/drawing/colours.js";

const ADDED =
  "The embedding belongs to the token and never changes; with its position only what moved changes; after the " +
  "encoder, where all tokens attend to each other, everything does.";
const SAYS = {
  sinusoidal: ADDED,
  learned: ADDED,
  rotary:
    "Nothing is added to the embedding, so nothing changes there; the rotations inside the encoder's attention " +
    "make the difference.",
  none: "This model has no positions, so that but for rounding no vector changes, wherever its token is.",
};
const STAGES = [
  ["source.tokens", "embedding"],
  ["source.state", "with position"],
  ["encoder.output", "after the encoder"],
];

/** The words of a text and the gaps between them; two words exchanged. Pure. */
export function exchanged(text, first, second) {
  const parts = text.trim().split(/(\s+)/);
  [parts[2 * first], parts[2 * second]] = [parts[2 * second], parts[2 * first]];
  return parts.join("");
}

/** Where each token of a sentence stands in the other: the nth of a kind is the nth of that kind; or null. Pure. */
export function partners(before, after) {
  const places = new Map();
  after.forEach(([id], place) => places.set(id, [...(places.get(id) ?? []), place]));
  return before.map(([id]) => places.get(id)?.shift() ?? null);
}

/** How different two vectors are: the length of their difference over the mean of their lengths. Pure. */
export function different(a, b) {
  let [between, one, other] = [0, 0, 0];
  a.forEach((value, d) => {
    between += (value - b[d]) ** 2;
    one += value * value;
    other += b[d] * b[d];
  });
  return (2 * Math.sqrt(between)) / Math.max(1e-12, Math.sqrt(one) + Math.sqrt(other));
}

export function Moving() {
  const { trace, asked } = look.value;
  const words = trace.source.trim().split(/\s+/);
  const [pair, setPair] = useState([1, 3]);
  const [found, setFound] = useState(null);
  const [first, second] = pair.map((place) => Math.min(place, words.length - 1));
  if (api.offline || words.length < 2 || asked?.off?.length || asked?.without?.length) return null;
  const text = exchanged(trace.source, first, second);
  const read = async () => {
    try {
      const other = await api.trace({ ...asked, q: text, prefix: [] });
      const tensors = await Promise.all(
        STAGES.flatMap(([path]) => [fetched(trace, path), fetched(other, path)]),
      );
      setFound({ trace, other, tensors });
    } catch (error) {
      setFound({ trace, error });
    }
  };
  const pick = (
    index,
  ) => html`<select aria-label=${index ? "second word" : "first word"} value=${index ? second : first}
    onChange=${(event) => setPair(pair.with(index, Number(event.target.value)))}>
      ${words.map((word, place) => html`<option value=${place}>${word} (${place + 1})</option>`)}</select>`;
  const fresh = found?.trace === trace ? found : null;
  return html`<h3>What word order changes</h3>
    <div class="pager">Swap ${pick(0)} and ${pick(1)} <button onClick=${read} disabled=${first === second}>and
      read again</button></div>
    ${fresh?.error && html`<p class="error" role="alert">${fresh.error.message}</p>`}
    ${fresh?.other && html`<${Changes} ...${fresh} />`}`;
}

function Changes({ trace, other, tensors }) {
  const before = trace.tokens[0];
  const place = partners(before, other.tokens[0]);
  return html`<p>“${other.source}” becomes “${other.text}”.</p>
    <div class="scroll"><table class="amounts moving" aria-label="what changed for each token">
      <thead><tr><th>token</th><th>position</th>${STAGES.map(([, name]) => html`<th colspan="2">${name}</th>`)}
        </tr></thead>
      <tbody>${before.map(
        (
          [, text],
          i,
        ) => html`<tr class=${place[i] !== i ? "chosen" : null}><th scope="row">${piece(text)}</th>
        <td>${place[i] === null ? `${i} → gone` : place[i] === i ? i : `${i} → ${place[i]}`}</td>
        ${STAGES.map(([path], stage) => {
          if (place[i] === null) return html`<td></td><td></td>`;
          const change = different(tensors[2 * stage].row(i), tensors[2 * stage + 1].row(place[i]));
          return html`<td class="amount"><i class="above" style=${{
            width: `${Math.min(100, 100 * change).toFixed(1)}%`,
          }}></i></td>
            <td><output data-change=${path} data-token=${i}>${percent(change)}</output></td>`;
        })}</tr>`,
      )}</tbody></table></div>
    <p class="hint">Difference between a token's vectors before and after the swap, relative to their norm. ${
      SAYS[model.value.position_encoding]
    }</p>`;
}
