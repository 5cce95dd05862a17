// Switch off heads, remove source tokens, force a token, and see what changes.
import { useEffect, useState } from "preact/hooks";
import { html } from "page/html.js";
import * as api from "page/api.js";
import { choose, look, lookInside, model } from "page/store.js";
import { fetched } from "page/tensors.js";
import { percent, piece, shown } from "page/drawing/colours.js";
import { Marked } from "page/panels/compare.js";
import { kind as kindOf } from "page/panels/tokens.js";
import { answered, endOf, rounds } from "page/search.js";

const KINDS = [
  ["encoder", "Encoder"],
  ["decoder", "Decoder"],
  ["cross", "Cross"],
];
const NOTHING = { off: [], without: [], prefix: [] };
const isNothing = ({ off, without, prefix }) => !(off.length || without.length || prefix.length);

export function WhatIf() {
  const { trace, asked } = look.value;
  const { off, without, prefix, ...question } = asked ?? {};
  const sentence = JSON.stringify(question);
  const [base, setBase] = useState(null); // the trace without any change
  const [wish, setWish] = useState(NOTHING);
  useEffect(() => {
    setWish(NOTHING);
    setBase(null);
    let wanted = true;
    const plain = trace.changed.length ? api.trace(question) : Promise.resolve(trace);
    plain.then(
      (made) => wanted && setBase(made),
      () => {},
    );
    return () => {
      wanted = false;
    };
  }, [sentence]);
  const change = (changes) => setWish({ ...wish, ...changes });
  return html`
    <h2>What if</h2>
    <p>Remove something and see what depends on it. Switching off a head leaves out what it adds; removing a
      source token translates the sentence without it; forcing a token sets the beginning of the output.</p>
    ${
      base &&
      html`<${Heads} off=${wish.off} onChange=${(heads) => change({ off: heads })} />
      <${Words} base=${base} without=${wish.without} onChange=${(positions) => change({ without: positions })} />
      <${Forced} base=${base} prefix=${wish.prefix} onChange=${(tokens) => change({ prefix: tokens })} />
      <p><button disabled=${isNothing(wish)} onClick=${() => setWish(NOTHING)}>Reset</button></p>
      <${Difference} ...${{ base, wish, question }} />`
    }
    ${!base && html`<p class="busy">…</p>`}`;
}

const same = (one, other) => one.kind === other.kind && one.layer === other.layer && one.head === other.head;

function Heads({ off, onChange }) {
  const { num_heads: heads, encoder_layers: encoder, decoder_layers: decoder } = model.value;
  const flip = (head) =>
    onChange(off.some((one) => same(one, head)) ? off.filter((one) => !same(one, head)) : [...off, head]);
  return html`<h3>Switch off heads</h3><div class="head-grids">${KINDS.map(
    ([kind, name]) => html`
    <table class="head-grid"><caption>${name}</caption>
      <thead><tr><th></th>${Array.from({ length: heads }, (_, head) => html`<th scope="col">${head + 1}</th>`)}
        </tr></thead>
      <tbody>${Array.from(
        { length: kind === "encoder" ? encoder : decoder },
        (_, layer) => html`<tr><th scope="row">layer ${layer + 1}</th>
        ${Array.from({ length: heads }, (__, head) => {
          const pressed = off.some((one) => same(one, { kind, layer, head }));
          return html`<td><button aria-pressed=${pressed}
            aria-label=${`${name}, layer ${layer + 1}, head ${head + 1} off`}
            onClick=${() => flip({ kind, layer, head })}>${pressed ? "off" : "on"}</button></td>`;
        })}</tr>`,
      )}</tbody></table>`,
  )}</div>`;
}

function Words({ base, without, onChange }) {
  const last = base.tokens[0].length - 1;
  const flip = (place) =>
    onChange(without.includes(place) ? without.filter((one) => one !== place) : [...without, place]);
  return html`<h3>Remove source tokens</h3><p class="chips">${base.tokens[0].map(([, text], place) => {
    const held = kindOf(text) === "tag" || place === last;
    return html`<button class="chip" disabled=${held} aria-pressed=${without.includes(place)} title=${
      held ? "the model needs this token" : null
    }
      onClick=${() => flip(place)}>${piece(text)}</button>`;
  })}</p>`;
}

/** The other tokens that were weighed at a place of the answer, most probable first. Pure. */
export function others(trace, place) {
  const column = rounds(trace).find(({ length }) => length === place + 1);
  const chosen = column?.ways.find((way) => way.best);
  if (!chosen) return [];
  return column.ways.filter(
    (way) => way.parent === chosen.parent && way !== chosen && way.token !== endOf(trace),
  );
}

function Forced({ base, prefix, onChange }) {
  const [place, setPlace] = useState(0);
  const tokens = base.hypotheses[0][0];
  const offered = others(base, place);
  return html`<h3>Force a token</h3>
    <p class="chips" role="radiogroup" aria-label="Which token">${tokens.map(
      (token, number) => html`<button class="chip" role="radio" aria-checked=${number === place}
      onClick=${() => {
        setPlace(number);
        onChange([]);
      }}>${piece(base.pieces[token])}</button>`,
    )}</p>
    <p>In place of <b>${piece(base.pieces[tokens[place]] ?? "")}</b>: ${
      offered.length
        ? offered.map(
            (way) => html`
      <button class="chip" aria-pressed=${prefix.length === place + 1 && prefix[place] === way.token}
        onClick=${() => onChange(way.tokens)}>${piece(way.text)} <small>${percent(Math.exp(way.logProbability))}
        </small></button> `,
          )
        : html`<span class="hint">the search considered no other token here.</span>`
    }</p>`;
}

/** What came out, and how probable the former output is now, token by token. */
function Difference({ base, wish, question }) {
  const [found, setFound] = useState(null);
  const tokens = base.hypotheses[0][0];
  useEffect(() => {
    if (isNothing(wish)) return setFound(null);
    const giveUp = new AbortController();
    const { off, without } = wish;
    const ask = async () => {
      const made = await api.trace({ ...question, ...wish }, giveUp.signal);
      const forced = await api.trace({ ...question, off, without, prefix: tokens }, giveUp.signal);
      const [before, after] = await Promise.all(
        [base, forced].map((one) => fetched(one, "log_probabilities")),
      );
      setFound({ made, before: before.data, after: after.data });
    };
    ask().catch((error) => giveUp.signal.aborted || setFound(error));
    return () => giveUp.abort();
  }, [wish]);
  if (isNothing(wish)) return html`<p class="hint">Nothing has been changed yet.</p>`;
  if (found instanceof Error) return html`<p class="error" role="alert">${found.message}</p>`;
  if (!found) return html`<p class="busy">…</p>`;
  const { made, before, after } = found;
  const language = base.direction.split("-")[1];
  const open = async () => {
    if (await lookInside(wish)) choose({ panel: "attention" });
  };
  return html`<section class="difference" aria-live="polite"><h3>What changes</h3>
    <dl class="before-after"><dt>before</dt><dd lang=${language} data-before>
      <${Marked} pieces=${base.pieces} tokens=${tokens} against=${made.hypotheses[0][0]} /></dd>
      <dt>after</dt><dd lang=${language} data-after><${Marked} pieces=${made.pieces} tokens=${
        made.hypotheses[0][0]
      } against=${tokens} /></dd></dl>
    <p>${
      answered(made).join() === answered(base).join()
        ? "The output stays the same."
        : "The output is " + "different."
    } Its score was ${shown(base.hypotheses[0][3])} and is <output data-score=${made.hypotheses[0][3]}>
    ${shown(made.hypotheses[0][3])}</output>.</p>
    ${
      (wish.off.length > 0 || wish.without.length > 0) &&
      html`<${Probabilities} ...${{ base, tokens, before, after }} />`
    }
    <p><button onClick=${open}>Look inside this one</button></p></section>`;
}

function Probabilities({ base, tokens, before, after }) {
  const bar = (value) => html`<span class="bar"><i style=${{ width: `${100 * value}%` }}></i></span>`;
  return html`<p>Probability of each token of the original output, before and after the change:</p>
    <div class="scroll"><table class="listed probabilities"><thead><tr><th>token</th><th colspan="2">before</th>
      <th colspan="2">after</th></tr></thead>
    <tbody>${tokens.map((token, place) => {
      const [was, is] = [Math.exp(before[place]), Math.exp(after[place])];
      return html`<tr class=${was - is > 0.1 ? "fell" : null}><td>${piece(base.pieces[token])}</td><td>
        ${bar(was)}</td><td><output data-was>${shown(was)}</output></td>
        <td>${bar(is)}</td><td><output data-is>${shown(is)}</output></td></tr>`;
    })}</tbody></table></div>`;
}
