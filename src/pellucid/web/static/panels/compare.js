// The same sentence searched in four ways.
import { useEffect, useState } from "preact/hooks";
import { html } from "page/html.js";
import * as api from "page/api.js";
import { choose, look, lookInside } from "page/store.js";
import { shown } from "page/drawing/colours.js";
import { common, readable } from "page/search.js";

/** The searches that stand side by side. */
export const searches = (seed, temperature) => [
  { id: "greedy", name: "Greedy", asked: { beam_size: 1 }, words: "always the most probable token" },
  { id: "beam2", name: "Beam 2", asked: { beam_size: 2 }, words: "the 2 best hypotheses side by side" },
  { id: "beam4", name: "Beam 4", asked: { beam_size: 4 }, words: "the 4 best" },
  {
    id: "sample",
    name: "Sampling",
    asked: { sample: true, beam_size: 1, seed, temperature },
    words: "each token sampled from the probabilities",
  },
];

export function Compare() {
  const { asked } = look.value;
  const [seed, setSeed] = useState(1);
  const [temperature, setTemperature] = useState(1);
  const [found, setFound] = useState({});
  const { q, source, target } = asked ?? {};
  const sentence = JSON.stringify([q, source, target]);
  useEffect(() => {
    const giveUp = new AbortController();
    setFound((before) => (before.sentence === sentence ? before : { sentence }));
    const ask = async () => {
      for (const { id, asked: how } of searches(seed, temperature)) {
        const made = await api.trace({ q, source, target, ...how }, giveUp.signal).catch((error) => error);
        if (giveUp.signal.aborted) return;
        setFound((before) => ({ ...before, [id]: made }));
      }
    };
    ask();
    return () => giveUp.abort();
  }, [sentence, seed, temperature]);
  const best = found.beam4?.hypotheses?.[0];
  return html`
    <h2>Compare searches</h2>
    <p>The model gives probabilities; the search decides what to do with them. A wider beam finds outputs that
      the model itself finds more probable; sampling shows what else it might write. Marked tokens differ from
      those of beam 4.</p>
    <div class="pager">
      <label>Seed <input type="number" min="0" max="999999" value=${seed} onChange=${(event) =>
        setSeed(Math.max(0, Math.floor(Number(event.target.value)) || 0))} /></label>
      <label>Temperature <input type="range" min="0.1" max="2" step="0.1" value=${temperature}
        onChange=${(event) => setTemperature(Number(event.target.value))} /> <output>${temperature.toFixed(1)}
        </output></label>
      <button onClick=${() => setSeed(seed + 1)}>Sample again</button>
    </div>
    <div class="cards">${searches(seed, temperature).map(
      (one) => html`<${Search} ...${{ ...one, made: found[one.id], best, language: target }} />`,
    )}</div>
    <p class="hint">The score is the sum of the log-probabilities divided by the length penalty: closer to 0 is
      better.</p>`;
}

function Search({ id, name, words, asked, made, best, language }) {
  const open = async () => {
    if (await lookInside(asked)) choose({ panel: "beam", step: 0 });
  };
  return html`<article class="card" aria-busy=${!made} data-search=${id}><h3>${name}</h3><p class="hint">
    ${words}</p>
    ${!made && html`<p class="busy">…</p>`}
    ${made instanceof Error && html`<p class="error">${made.message}</p>`}
    ${
      made?.hypotheses &&
      html`<${Outcome} ...${{ made, best, language }} />
      <button onClick=${open}>Open this search</button>`
    }</article>`;
}

function Outcome({ made, best, language }) {
  const [tokens, length, sum, score] = made.hypotheses[0];
  return html`<p class="said" lang=${language}><${Marked} pieces=${made.pieces} tokens=${tokens}
    against=${best?.[0]} /></p>
    <dl><dt>sum</dt><dd><output data-sum=${sum}>${shown(sum)}</output></dd><dt>length</dt><dd>
      <output data-length>${length}</output></dd>
      <dt>score</dt><dd><output data-score=${score}>${shown(score)}</output></dd></dl>`;
}

/** Tokens as text, those marked that another output has not. */
export function Marked({ pieces, tokens, against }) {
  const [shared] = against ? common(tokens, against) : [tokens.map(() => true)];
  const parts = []; // runs of tokens that are alike in being shared or not
  tokens.forEach((token, place) => {
    const text = pieces[token] ?? "";
    const goesOn =
      parts.length && parts.at(-1).shared === shared[place] && (shared[place] || !text.startsWith("▁"));
    if (goesOn) parts.at(-1).texts.push(text);
    else parts.push({ shared: shared[place], texts: [text] });
  });
  return parts.map(({ shared: same, texts }, place) => {
    const text = readable(texts);
    const gap = texts[0].startsWith("▁") && place > 0 ? " " : "";
    return html`${gap}${same ? text : html`<mark>${text || "␣"}</mark>`}`;
  });
}
