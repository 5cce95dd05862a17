// Beam search, step by step.
import { useEffect, useMemo, useState } from "preact/hooks";
import { html } from "page/html.js";
import * as api from "page/api.js";
import { changes, choose, look, lookInside, view } from "page/store.js";
import { fetched } from "page/tensors.js";
import { mean } from "page/panels/attention.js";
import { percent, piece, shown } from "page/drawing/colours.js";
import { Tree } from "page/drawing/tree.js";
import {
  answered,
  endOf,
  ENDED,
  FATES,
  penalty,
  penaltyFormula,
  rounds,
  winnerBySum,
  written,
} from "page/search.js";

export function Beam() {
  const { trace } = look.value;
  const columns = useMemo(() => rounds(trace), [trace]);
  const [picked, setPicked] = useState(null);
  useEffect(() => setPicked(null), [trace]);
  const width = trace.options.beam_size;
  const step = Math.max(0, Math.min(view.value.step, columns.length - 1));
  if (!columns.length) return html`<h2>Beam search</h2><p>There was nothing to search.</p>`;
  const given = written(trace, answered(trace).slice(0, columns[0].length - 1));
  return html`
    <h2>Beam search</h2>
    <p>${told(trace.options)} The number in a box is the sum of the log-probabilities so far. A solid box is
      kept, a dashed one is pruned, a green one is finished; the thick line leads to the output. Click a box to
      see what it attended to.</p>
    ${!api.offline && html`<${Width} width=${width} sample=${trace.options.sample} />`}
    <${Stepper} count=${columns.length} step=${step} />
    <${Tree} columns=${columns.slice(0, step + 1)} most=${2 * width} given=${given} picked=${picked}
      onPick=${setPicked} />
    ${picked && html`<${Picked} way=${picked} close=${() => setPicked(null)} />`}
    <${Round} column=${columns[step]} most=${2 * width} onPick=${setPicked} />
    <${Endings} />`;
}

const told = ({ beam_size: beam, sample, temperature, seed }) => {
  if (sample)
    return `Each token was sampled from the model's probabilities (temperature ${temperature}, seed ${seed}).`;
  if (beam === 1) return "Greedy: each step takes the most probable token, and never goes back.";
  return `In each step every hypothesis is expanded with every token, and the best ${beam} are kept.`;
};

function Width({ width, sample }) {
  const take = (beam) => lookInside({ ...changes.value, sample: false, beam_size: beam });
  return html`<div class="pager"><span role="radiogroup" aria-label="Beam">${[1, 2, 4, 8].map(
    (beam) => html`
    <button role="radio" aria-checked=${!sample && beam === width} onClick=${() => take(beam)}>
      ${beam === 1 ? "greedy" : `beam ${beam}`}</button>`,
  )}</span></div>`;
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
    <input type="range" aria-label="Step" min="0" max=${count - 1} value=${step} onInput=${(event) =>
      go(Number(event.target.value))} />
    <button onClick=${() => go(step + 1)} disabled=${step === count - 1}>forward ›</button>
    <span>step <output data-round>${step + 1}</output> of <output data-rounds>${count}</output></span>
  </div>`;
}

/** A sum over its length penalty, with the numbers. */
function Formula({ sum, length, score }) {
  const { options } = look.value.trace;
  const divisor = penalty(options, length);
  return html`<span class="formula">${shown(sum)} ÷ ${penaltyFormula(options, length)}${
    options.length_penalty !== 1 || options.length_normalization === "gnmt"
      ? ` = ${shown(sum)} ÷ ${shown(divisor)}`
      : ""
  } = <output data-score=${score}>${shown(sum / divisor)}</output></span>`;
}

function Round({ column, most, onPick }) {
  const { trace } = look.value;
  const begin = (way) => written(trace, way.tokens.slice(0, -1));
  return html`<div class="scroll"><table class="listed beam-round"><caption>This step</caption>
    <thead><tr><th>so far</th><th>token</th><th>log-probability</th><th>sum</th><th>score</th><th></th></tr></thead>
    <tbody>${column.ways.slice(0, most).map(
      (way) => html`<tr class=${`fate${way.fate}${way.best ? " best" : ""}`}>
      <td class="so-far">${begin(way) || "‹s›"}</td><td><button class="plain" onClick=${() => onPick(way)}>
        ${piece(way.text)}</button></td>
      <td>${shown(way.logProbability)}</td><td>${shown(way.sum)}</td><td>${shown(way.score)}</td><td>
        ${FATES[way.fate]}</td></tr>`,
    )}</tbody></table></div>`;
}

/** One way: its arithmetic, and what its last token looked at. */
function Picked({ way, close }) {
  const { trace } = look.value;
  const ended = way.fate === ENDED && way.token === endOf(trace);
  const before = way.length > 1 ? way.sum - way.logProbability : null;
  const open = async () => {
    if (way.best) return choose({ panel: "attention", kind: "cross", row: way.length - 1 });
    const tokens = ended ? way.tokens.slice(0, -1) : way.tokens;
    if (await lookInside({ ...changes.value, prefix: tokens }))
      choose({ panel: "attention", kind: "cross", row: way.length - 1 });
    return null;
  };
  return html`<aside class="card picked-way"><button class="close" onClick=${close} aria-label="Close">×</button>
    <p><b>${written(trace, way.tokens) || piece(way.text)}</b>
      ${ended && html` <small>and the end</small>`}: ${FATES[way.fate]}
        ${way.best && ", on the path of the output"}.</p>
    <p>${before !== null && html`${shown(before)} + ${shown(way.logProbability)} = `}sum <output data-sum>
      ${shown(way.sum)}</output>; score <${Formula} sum=${way.sum} length=${way.length} score=${way.score} /></p>
    <${LookedAt} way=${way} />
    ${
      (way.best || !api.offline) &&
      html`<button onClick=${open}>
      ${way.best ? "Show its attention" : "Look inside with this prefix"}</button>`
    }
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
    const source =
      way.best || api.offline
        ? Promise.resolve(way.best ? trace : null)
        : api.trace({ ...asked, prefix: way.tokens.slice(0, -1) });
    source.then(
      async (made) => {
        const weights = made && (await fetched(made, `decoder.${layers - 1}.cross.weights`));
        if (wanted && weights) setFound(weights);
      },
      (error) => wanted && setFound(error),
    );
    return () => {
      wanted = false;
    };
  }, [way]);
  if (found instanceof Error) return html`<p class="error">${found.message}</p>`;
  if (!found)
    return html`<p class="busy">${
      api.offline && !way.best ? "What a pruned hypothesis attended to is not in " + "this file." : "…"
    }</p>`;
  return html`<p class="glowing">It attended to: ${trace.tokens[0].map(([, text], place) => {
    const weight = mean(found, found.shape[0], way.length - 1, place);
    return html`<span class="word" style=${{ "--glow": weight.toFixed(3) }} title=${percent(weight)}>
      ${piece(text)}</span> `;
  })}<small>(last layer, mean of the heads)</small></p>`;
}

function Endings() {
  const { trace } = look.value;
  const { hypotheses, options } = trace;
  return html`<h3>Finished hypotheses, and why the first one won</h3>
    <div class="scroll"><table class="listed outputs"><thead><tr><th>output</th><th>sum</th><th>length</th>
      <th>score</th></tr></thead>
      <tbody>${hypotheses.map(
        ([, length, sum, score, ended, text], rank) => html`<tr class=${rank === 0 ? "fate2" : null}>
        <td lang=${trace.direction.split("-")[1]}>${text || "(nothing)"}
          ${ended === "length" && " (cut off: too long)"}</td><td>${shown(sum)}</td><td>${length}</td>
        <td><${Formula} ...${{ sum, length, score }} /></td></tr>`,
      )}</tbody></table></div>
    <p data-why>${why(hypotheses, options)}</p>`;
}

/** Why the first won, in a sentence or two. */
export function why(hypotheses, options) {
  const [first, second] = hypotheses;
  if (options.sample || options.beam_size === 1)
    return "Only one hypothesis was followed, so there was nothing to compare it with.";
  if (!second)
    return "It is the only one that finished: the search stopped once no other could beat its score.";
  const bySum = hypotheses[winnerBySum(hypotheses)];
  const lead = `Its score of ${shown(first[3])} is the highest; the next has ${shown(second[3])}.`;
  if (options.length_normalization === "none")
    return (
      `${lead} There is no length normalization here, so short outputs have an advantage: each token ` +
      `lowers the sum.`
    );
  if (bySum === first)
    return `${lead} Its sum is the highest too, so it would have won without length normalization.`;
  return (
    `${lead} By the sum alone “${bySum[5]}” would have won: each token lowers the sum, so short outputs ` +
    `have higher sums, and length normalization makes up for it.`
  );
}
