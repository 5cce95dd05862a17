// Panel 17: the search, round by round.
import { useEffect, useMemo, useState } from "preact/hooks";
import { html } from "page/html.js";
import * as api from "page/api.js";
import { changes, choose, look, lookInside, view } from "page/store.js";
import { fetched } from "page/tensors.js";
import { mean } from "page/panels/attention.js";
import { percent, piece, shown } from "page/drawing/colours.js";
import { Tree } from "page/drawing/tree.js";
import { answered, endOf, ENDED, FATES, penalty, penaltyFormula, rounds, winnerBySum, written } from "page/search.js";

export function Beam() {
  const { trace } = look.value;
  const columns = useMemo(() => rounds(trace), [trace]);
  const [picked, setPicked] = useState(null);
  useEffect(() => setPicked(null), [trace]);
  const width = trace.options.beam;
  const step = Math.max(0, Math.min(view.value.step, columns.length - 1));
  if (!columns.length) return html`<h2>Beam search</h2><p>There was nothing to search for.</p>`;
  const given = written(trace, answered(trace).slice(0, columns[0].length - 1));
  return html`
    <h2>Beam search</h2>
    <p>${told(trace.options)} The number in a box is the sum of the log-probabilities so far. A solid box goes on, a dashed one
      is dropped, a green one has ended; the thick line leads to the answer. Click a box to see what it looked at.</p>
    ${!api.offline && html`<${Width} width=${width} sample=${trace.options.sample} />`}
    <${Stepper} count=${columns.length} step=${step} />
    <${Tree} columns=${columns.slice(0, step + 1)} most=${2 * width} given=${given} picked=${picked} onPick=${setPicked} />
    ${picked && html`<${Picked} way=${picked} close=${() => setPicked(null)} />`}
    <${Round} column=${columns[step]} most=${2 * width} onPick=${setPicked} />
    <${Endings} />`;
}

const told = ({ beam, sample, temperature, seed }) => {
  if (sample) return `Each token was drawn by chance, as probable as the model finds it (temperature ${temperature}, seed ${seed}).`;
  if (beam === 1) return "Greedy: in each round the most probable token is taken, and there is no way back.";
  return `In each round every hypothesis goes on in all ways, and the best ${beam} are kept.`;
};

function Width({ width, sample }) {
  const take = (beam) => lookInside({ ...changes.value, sample: false, beam });
  return html`<div class="pager"><span role="radiogroup" aria-label="Beam">${[1, 2, 4, 8].map((beam) => html`
    <button role="radio" aria-checked=${!sample && beam === width} onClick=${() => take(beam)}>${beam === 1 ? "greedy" : `beam ${beam}`}</button>`)}</span></div>`;
}

/** Forward and back through the rounds, by button, slider or arrow keys. */
export function Stepper({ count, step }) {
  const go = (to) => choose({ step: Math.max(0, Math.min(count - 1, to)) });
  const keys = (event) => {
    const to = { ArrowRight: step + 1, ArrowLeft: step - 1, Home: 0, End: count - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(to);
  };
  return html`<div class="pager stepper" onKeyDown=${keys}>
    <button onClick=${() => go(step - 1)} disabled=${step === 0}>‹ back</button>
    <input type="range" aria-label="Round" min="0" max=${count - 1} value=${step} onInput=${(event) => go(Number(event.target.value))} />
    <button onClick=${() => go(step + 1)} disabled=${step === count - 1}>forward ›</button>
    <span>round <output data-round>${step + 1}</output> of <output data-rounds>${count}</output></span>
  </div>`;
}

/** A sum over its length penalty, with the numbers. */
function Formula({ sum, length, score }) {
  const { options } = look.value.trace;
  const divisor = penalty(options, length);
  return html`<span class="formula">${shown(sum)} ÷ ${penaltyFormula(options, length)}${options.alpha !== 1 || options.length_penalty === "gnmt"
    ? ` = ${shown(sum)} ÷ ${shown(divisor)}` : ""} = <output data-score=${score}>${shown(sum / divisor)}</output></span>`;
}

function Round({ column, most, onPick }) {
  const { trace } = look.value;
  const begin = (way) => written(trace, way.tokens.slice(0, -1));
  return html`<div class="scroll"><table class="listed beam-round"><caption>This round</caption>
    <thead><tr><th>so far</th><th>token</th><th>log-probability</th><th>sum</th><th>score</th><th></th></tr></thead>
    <tbody>${column.ways.slice(0, most).map((way) => html`<tr class=${`fate${way.fate}${way.best ? " best" : ""}`}>
      <td class="so-far">${begin(way) || "‹s›"}</td><td><button class="plain" onClick=${() => onPick(way)}>${piece(way.text)}</button></td>
      <td>${shown(way.logProbability)}</td><td>${shown(way.sum)}</td><td>${shown(way.score)}</td><td>${FATES[way.fate]}</td></tr>`)}</tbody></table></div>`;
}

/** One way: its arithmetic, and what its last token looked at. */
function Picked({ way, close }) {
  const { trace } = look.value;
  const ended = way.fate === ENDED && way.token === endOf(trace);
  const before = way.length > 1 ? way.sum - way.logProbability : null;
  const open = async () => {
    if (way.best) return choose({ panel: "attention", kind: "cross", row: way.length - 1 });
    const tokens = ended ? way.tokens.slice(0, -1) : way.tokens;
    if (await lookInside({ ...changes.value, prefix: tokens })) choose({ panel: "attention", kind: "cross", row: way.length - 1 });
    return null;
  };
  return html`<aside class="card picked-way"><button class="close" onClick=${close} aria-label="Close">×</button>
    <p><b>${written(trace, way.tokens) || piece(way.text)}</b>${ended && html` <small>and the end</small>`}: ${FATES[way.fate]}${way.best && ", on the way to the answer"}.</p>
    <p>${before !== null && html`${shown(before)} + ${shown(way.logProbability)} = `}sum <output data-sum>${shown(way.sum)}</output>;
      score <${Formula} sum=${way.sum} length=${way.length} score=${way.score} /></p>
    <${LookedAt} way=${way} />
    ${(way.best || !api.offline) && html`<button onClick=${open}>${way.best ? "Open its attention" : "Look inside with this beginning"}</button>`}
  </aside>`;
}

/** The cross-attention of a way's last token: of the trace on show, or of one that is made with that beginning. */
function LookedAt({ way }) {
  const { trace, asked } = look.value;
  const [found, setFound] = useState(null);
  const layers = trace.model.decoder_layers;
  useEffect(() => {
    let wanted = true;
    setFound(null);
    const source = way.best || api.offline ? Promise.resolve(way.best ? trace : null) : api.trace({ ...asked, prefix: way.tokens.slice(0, -1) });
    source.then(async (made) => {
      const weights = made && await fetched(made, `decoder.${layers - 1}.cross.weights`);
      if (wanted && weights) setFound(weights);
    }, (error) => wanted && setFound(error));
    return () => { wanted = false; };
  }, [way]);
  if (found instanceof Error) return html`<p class="error">${found.message}</p>`;
  if (!found) return html`<p class="busy">${api.offline && !way.best ? "What a dropped way looked at is not in this file." : "…"}</p>`;
  return html`<p class="glowing">It looked at: ${trace.tokens[0].map(([, text], place) => {
    const weight = mean(found, found.shape[0], way.length - 1, place);
    return html`<span class="word" style=${{ "--glow": weight.toFixed(3) }} title=${percent(weight)}>${piece(text)}</span> `;
  })}<small>(last layer, mean of its heads)</small></p>`;
}

function Endings() {
  const { trace } = look.value;
  const { hypotheses, options } = trace;
  return html`<h3>What ended, and why the first won</h3>
    <div class="scroll"><table class="listed outputs"><thead><tr><th>output</th><th>sum</th><th>length</th><th>score</th></tr></thead>
      <tbody>${hypotheses.map(([, length, sum, score, ended, text], rank) => html`<tr class=${rank === 0 ? "fate2" : null}>
        <td lang=${trace.direction.split("-")[1]}>${text || "(nothing)"}${ended === "length" && " (cut: too long)"}</td><td>${shown(sum)}</td><td>${length}</td>
        <td><${Formula} ...${{ sum, length, score }} /></td></tr>`)}</tbody></table></div>
    <p data-why>${why(hypotheses, options)}</p>`;
}

/** Why the first won, in a sentence or two. */
export function why(hypotheses, options) {
  const [first, second] = hypotheses;
  if (options.sample || options.beam === 1) return "Only one way was followed, so there was nothing to compare it with.";
  if (!second) return "It is the only one that ended: the search stopped once no other could still beat its score.";
  const bySum = hypotheses[winnerBySum(hypotheses)];
  const lead = `Its score of ${shown(first[3])} is the highest; the next has ${shown(second[3])}.`;
  if (options.length_penalty === "none") return `${lead} Sums are compared as they are here, so a short output has it easier: each token costs.`;
  if (bySum === first) return `${lead} Its sum is the highest too, so it would have won without the division by length.`;
  return `${lead} By the sum alone “${bySum[5]}” would have won: each token costs, so short outputs have higher sums, and the division by length makes up for it.`;
}
