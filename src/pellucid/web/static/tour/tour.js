// The guided tour, a bar above the panels that leads from one to the next.
import { useEffect } from "preact/hooks";
import { html } from "page/html.js";
import { offline } from "page/api.js";
import { changes, choose, from, look, lookInside, text, translateNow, view } from "page/store.js";
import { useTensors } from "page/tensors.js";
import { strongest } from "page/tour/linking.js";
import { LECTURE, STOPS } from "page/tour/stops.js";

/** The stop on show, or null. */
export const stopOf = (number) => STOPS[number] ?? null;

let fresh = false; // whether the stop was just reached, so that its view is still to be opened

/** Go to a stop; its panel opens as soon as its numbers are there. */
export function goTo(number) {
  fresh = true;
  choose({ stop: Math.max(-1, Math.min(STOPS.length - 1, number)) });
}

export function Tour() {
  const { trace, busy } = look.value;
  const number = view.value.stop;
  const stop = STOPS[number];
  const names = (trace && stop.needs?.(trace)) ?? [];
  const found = useTensors(...names);
  const ready = trace && !busy && (names.length === 0 || found);
  const link = ready && names[0]?.endsWith(".weights") ? strongest(trace, found) : null;
  const logs = ready && names[0] === "log_probabilities" ? found[0].data : null;
  useEffect(() => {
    const wanted = stop.changes ?? {};
    const fits = !busy && JSON.stringify(changes.value) === JSON.stringify(wanted); // under way may be another
    if (fresh && !offline && !fits) lookInside(wanted);
  }, [number]);
  useEffect(() => {
    if (!ready || !fresh) return;
    fresh = false;
    choose({ panel: stop.panel ?? view.value.panel, ...stop.show?.(trace, link) });
  }, [number, ready, trace]);
  return html`<aside class="tour" aria-label="Guided tour">
    <div class="tour-head"><h2>${stop.title}</h2>
      <span class="tour-moves"><button onClick=${() => goTo(number - 1)} disabled=${number === 0}>‹ back</button>
        <span><output data-stop>${number + 1}</output> of ${STOPS.length}</span>
        <button class="next" onClick=${() => goTo(number + 1)} disabled=${number === STOPS.length - 1}>next ›
          </button>
        <button onClick=${() => choose({ stop: -1 })} aria-label="End the tour">×</button></span></div>
    ${trace && html`<p aria-live="polite">${stop.text(trace, { link, logs })}</p>`}
    ${stop.lecture && !offline && html`<${Lecture} which=${stop.lecture} />`}
  </aside>`;
}

let own = null; // the person's sentence, while one from the lectures stands in its place

/** A sentence from the lectures, if the model reads its language. */
function Lecture({ which }) {
  const sentence = LECTURE[from.value]?.[which];
  if (!sentence) return null;
  const take = (wanted, kept) => {
    fresh = true;
    text.value = wanted;
    own = kept;
    translateNow();
  };
  if (text.value === sentence)
    return own && html`<p><button onClick=${() => take(own, null)}>Back to my sentence</button></p>`;
  return html`<p><button onClick=${() => take(sentence, own ?? text.value)}>Try the lecture's “${sentence}”
    </button></p>`;
}
