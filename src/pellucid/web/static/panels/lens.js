// The logit lens: what the model would predict if it stopped after each decoder layer.
import { html } from "page/html.js";
import { choose, look, model, view } from "page/store.js";
import { colourOf, percent, piece } from "page/drawing/colours.js";
import { label, read } from "page/panels/tokens.js";

/** For each position the first layer from which on the best guess is the final one, or null if it never is. Pure. */
export function settled(lens) {
  return (lens.at(-1) ?? []).map((_, place) => {
    const best = lens.map((places) => places[place][0][0][0]);
    let layer = best.length - 1;
    while (layer > 0 && best[layer - 1] === best.at(-1)) layer--;
    return layer;
  });
}

export function Lens() {
  const { trace } = look.value;
  const { target, answers } = read(trace.tokens);
  const places = answers.length;
  const row = Math.max(0, Math.min(view.value.row, places - 1));
  const depth = trace.lens.length;
  const layer = view.value.layer < 0 ? depth - 1 : Math.min(view.value.layer, depth - 1);
  const first = settled(trace.lens);
  const move = (event) => {
    const by = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    choose({
      layer: Math.max(0, Math.min(depth - 1, layer + by[0])),
      row: Math.max(0, Math.min(places - 1, row + by[1])),
    });
  };
  return html`
    <h2>Logit lens</h2>
    <p>The output layer can be applied after any decoder layer, not only the last. This shows what the model
      would predict if it stopped there, and from which layer on its prediction no longer changes. ${
        model.value.norm === "post"
          ? "Its layers were not trained for that, so early guesses are rough."
          : "The final norm is applied each time; the layers were not trained for that, so early guesses are rough."
      }</p>
    <div class="scroll" tabindex="0" onKeyDown=${move} role="group"
      aria-label="Best guess by layer and position"><table class="lens">
      <thead><tr><th scope="col">input</th>${target.map(
        ({ text }) => html`<th scope="col">${piece(text)}</th>`,
      )}</tr></thead>
      <tbody>${trace.lens
        .map((_, up) => depth - 1 - up)
        .map(
          (number) => html`<tr><th scope="row">layer ${number + 1}</th>
        ${trace.lens[number].map(
          (guesses, place) => html`<td class=${`${number === layer && place === row ? "chosen" : ""}${
            number >= first[place] ? " settled" : ""
          }`}
          style=${{ background: colourOf(0.75 * guesses[0][1]) }} onClick=${() =>
            choose({ layer: number, row: place })}
          title=${`layer ${number + 1}: ${piece(guesses[0][0][1])}, ${percent(guesses[0][1])}`}>
          ${label(guesses[0][0][1])}</td>`,
        )}</tr>`,
        )}</tbody>
      <tfoot><tr><th scope="row">output</th>${answers.map(({ text }) => html`<td>${label(text)}</td>`)}</tr></tfoot>
    </table></div>
    <p class="hint">Darker is more probable. Underlined: the best guess no longer changes from this layer on.</p>
    <h3>After layer ${layer + 1}, after reading ${piece(target[row].text)}</h3>
    <table class="listed"><thead><tr><th>token</th><th>probability</th></tr></thead><tbody>
      ${trace.lens[layer][row].map(
        ([[id, text], probability]) => html`<tr><td>${label(text)}</td>
        <td><output data-guess=${id}>${probability.toFixed(4)}</output></td></tr>`,
      )}</tbody></table>`;
}
