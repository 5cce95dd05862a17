// Two panes, other words, alignment and confidence.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "page/html.js";
import * as api from "page/api.js";
import {
  about,
  answer,
  forget,
  from,
  history,
  look,
  lookInside,
  open,
  swap,
  text,
  to,
  translateNow,
  translateSoon,
} from "page/store.js";
import { percent, piece } from "page/drawing/colours.js";

const LANGUAGES = new Intl.DisplayNames(["en"], { type: "language" });
const named = (code) => LANGUAGES.of(code.replace("_", "-")) ?? code;

export function Translate() {
  const { busy, error, result } = answer.value;
  const [light, setLight] = useState(null); // which token is pointed at: { sentence, side, place }
  const box = useRef(null);
  useEffect(() => {
    const keys = (event) => {
      if (event.key === "/" && document.activeElement !== box.current && !event.ctrlKey) {
        event.preventDefault();
        box.current.focus();
      }
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translateNow();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  const type = (event) => {
    text.value = event.target.value;
    translateSoon();
  };
  const both = about.value.directions.includes(`${to.value}-${from.value}`);
  return html`
    <section class="translate" aria-label="Translate">
      <div class="ways">
        <${Way} />
        <button class="swap" disabled=${!both} onClick=${swap} title="Swap the languages">⇄<span class="unseen">
          Swap the languages</span></button>
      </div>
      <div class="panes">
        <div class="pane">
          <label class="unseen" for="source">Text in ${named(from.value)}</label>
          <textarea id="source" ref=${box} lang=${from.value} dir="auto" rows="4" maxlength="20000"
            value=${text.value}
            placeholder=${`Write in ${named(from.value)} …`} onInput=${type} autofocus></textarea>
          ${result && html`<${Side} side="source" ...${{ result, light, setLight }} />`}
        </div>
        <div class="pane" aria-live="polite" aria-busy=${busy}>
          ${
            error
              ? html`<p class="error" role="alert">${error}</p>`
              : html`<p class="result" lang=${to.value} dir="auto">${result?.translatedText ?? ""}</p>`
          }
          ${result && html`<${Side} side="target" ...${{ result, light, setLight }} />`}
          ${result && html`<div class="tools"><${Copy} text=${result.translatedText} /></div>`}
        </div>
      </div>
      <${LookButton} />
      <${Earlier} />
    </section>`;
}

function Way() {
  const choose = (event) => {
    [from.value, to.value] = event.target.value.split("-");
    translateSoon(0);
  };
  return html`<label class="way"><span class="unseen">Direction</span>
    <select value=${`${from.value}-${to.value}`} onChange=${choose}>
      ${about.value.directions.map((way) => {
        const [source, target] = way.split("-");
        return html`<option value=${way}>${named(source)} → ${named(target)}</option>`;
      })}
    </select></label>`;
}

/** The tokens of one side: pointed at, they show their partners; underlined by confidence. */
function Side({ side, result, light, setLight }) {
  const [other, setOther] = useState(null); // { sentence, place }: whose other words are shown
  return html`<div class="words" lang=${side === "source" ? from.value : to.value}>
    ${result.sentences.map((sentence, number) => {
      const tokens = side === "source" ? sentence.source_tokens : sentence.tokens;
      return html`<p>${tokens.map((token, place) => {
        const glow = strength(sentence, number, side, place, light);
        const sure = side === "target" ? sentence.probabilities?.[place] : null;
        const gap = token.startsWith("▁") && place > 0 ? " " : "";
        const name = sure == null ? piece(token) : `${piece(token)}, ${percent(sure)}`;
        return html`${gap}<button class=${`word${sure == null ? "" : ` sure${Math.min(4, Math.floor(sure * 5))}`}`}
          style=${{ "--glow": glow.toFixed(3) }} title=${name} data-probability=${sure}
          onMouseEnter=${() => setLight({ number, side, place })} onMouseLeave=${() => setLight(null)}
          onFocus=${() => setLight({ number, side, place })} onBlur=${() => setLight(null)}
          onClick=${() => side === "target" && setOther({ number, place })}>${piece(token)}</button>`;
      })}</p>`;
    })}
    ${side === "target" && other && html`<${OtherWords} ...${{ result, other, close: () => setOther(null) }} />`}
    ${
      side === "target" &&
      html`<p class="hint">Underlined by confidence. Hover over a word to see what it attended to (attention is
        not an explanation); click it for alternatives.</p>`
    }
  </div>`;
}

/** How strongly a token is lit, 0 to 1, by the token that is pointed at. */
export function strength(sentence, number, side, place, light) {
  if (!light || light.number !== number || !sentence.attention) return 0;
  if (light.side === side) return light.place === place ? 1 : 0;
  const [row, column] = side === "source" ? [light.place, place] : [place, light.place];
  return sentence.attention[row]?.[column] ?? 0;
}

function OtherWords({ result, other, close }) {
  const [found, setFound] = useState(null);
  const sentence = result.sentences[other.number];
  useEffect(() => {
    let wanted = true;
    const body = {
      q: sentence.source,
      source: from.value,
      target: to.value,
      position: other.place,
      begin: sentence.begin ?? [],
    };
    setFound(null);
    api.alternatives(body).then(
      (list) => wanted && setFound(list),
      (error) => wanted && setFound(error),
    );
    return () => {
      wanted = false;
    };
  }, [sentence, other.place]);
  const take = (one) => {
    const { text: said, tokens, begin } = one;
    const sentences = result.sentences.with(other.number, {
      ...sentence,
      text: said,
      tokens,
      begin,
      probabilities: null,
      attention: null,
    });
    answer.value = {
      ...answer.value,
      result: {
        ...result,
        sentences,
        translatedText: result.translatedText.replace(sentence.text, () => said),
      },
    };
    if (open.value && sentences.length === 1) lookInside({ prefix: begin });
    close();
  };
  return html`<div class="others" role="dialog" aria-label="Alternatives">
    <button class="close" onClick=${close} aria-label="Close">×</button>
    ${!found && html`<p class="busy">…</p>`}
    ${found instanceof Error && html`<p class="error">${found.message}</p>`}
    ${
      Array.isArray(found) &&
      html`<ul>${found.map(
        (one) => html`<li>
      <button onClick=${() => take(one)}><b>${piece(one.token)}</b> <small>${percent(one.probability)}</small>
      <span>${one.text}</span></button></li>`,
      )}</ul>`
    }
  </div>`;
}

function Copy({ text: value }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(value);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button onClick=${copy}>${done ? "Copied" : "Copy"}</button>`;
}

function LookButton() {
  const { look: can, obstacle } = about.value;
  if (!can) return html`<p class="hint">${obstacle}</p>`;
  const toggle = () => {
    open.value = !open.value;
    if (open.value) lookInside();
  };
  return html`<p><button class="look" aria-expanded=${open.value} disabled=${!text.value.trim()} onClick=${toggle}>
    ${open.value ? "Close" : "Look inside"}</button>${look.value.busy && html` <span class="busy">…</span>`}</p>`;
}

function Earlier() {
  if (!history.value.length) return null;
  const again = (one) => {
    [from.value, to.value, text.value] = [one.from, one.to, one.q];
    translateSoon(0);
  };
  return html`<details class="earlier"><summary>History</summary>
    <ul>${history.value.map(
      (one) => html`<li><button onClick=${() => again(one)}>
      <span>${one.q}</span> <small>${one.translated}</small></button></li>`,
    )}</ul>
    <button onClick=${forget}>Clear history</button></details>`;
}
