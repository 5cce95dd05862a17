// Everything the page knows, in signals; panels read them, and call the functions here.
import { batch, computed, effect, signal } from "@preact/signals";
import * as api from "page/api.js";

export const about = signal(null);
export const text = signal("");
export const from = signal("");
export const to = signal("");
export const answer = signal({ busy: false, error: "", result: null });
export const look = signal({ busy: false, error: "", trace: null, asked: null });
/** Whether looking inside is open. */
export const open = signal(false);
/** What is looked at: a panel, and what is chosen in it. */
export const view = signal({
  panel: "tokens",
  kind: "cross",
  layer: -1,
  head: 0,
  row: 1,
  column: 1,
  step: 0,
  stop: -1,
  large: 0,
  part: "attention",
  lines: 0,
});

/** What the look on show was asked beyond its sentence: beam_size, prefix, without, off … */
export const changes = computed(() => {
  const { q, source, target, ...rest } = look.value.asked ?? {};
  return rest;
});

export const model = computed(() => look.value.trace?.model ?? about.value?.model ?? null);

export const choose = (chosen) => {
  view.value = { ...view.value, ...chosen };
};

/** The number of layers of a kind of attention. */
export const depth = (kind) => (kind === "encoder" ? model.value.encoder_layers : model.value.decoder_layers);

/** The chosen layer, counted from 0, whatever the kind. */
export const layer = computed(() => {
  const { kind, layer: chosen } = view.value;
  const count = model.value ? depth(kind) : 1;
  return chosen < 0 ? count - 1 : Math.min(chosen, count - 1);
});

export const place = (kind, number) =>
  kind === "cross" ? `decoder.${number}.cross` : `${kind}.${number}.self`;

let asking = null;
let waiting = 0;

/** Translate what stands in the box; an earlier question is given up. */
export function translateSoon(delay = 250) {
  clearTimeout(waiting);
  waiting = setTimeout(translateNow, delay);
}

export async function translateNow() {
  asking?.abort();
  const q = text.value;
  if (!q.trim()) {
    answer.value = { busy: false, error: "", result: null };
    return;
  }
  asking = new AbortController();
  const { signal: giveUp } = asking;
  answer.value = { ...answer.value, busy: true, error: "" };
  try {
    const body = { q, source: from.value, target: to.value, details: true };
    const result = await api.translate(body, giveUp);
    answer.value = { busy: false, error: "", result };
    remember(q, result.translatedText);
    if (open.value && lookedAt !== sentence()) lookInside();
  } catch (error) {
    if (error.name !== "AbortError") answer.value = { busy: false, error: error.message, result: null };
  }
}

let looking = null;
let lookedAt = "";
const sentence = () => JSON.stringify([text.value.trim(), from.value, to.value]);

/** Look inside the sentence in the box. wanted: what is to differ (prefix, without, off, beam …). */
export async function lookInside(wanted = {}) {
  looking?.abort();
  const q = text.value.trim();
  if (!q) return null;
  looking = new AbortController();
  lookedAt = sentence();
  const { signal: giveUp } = looking;
  look.value = { ...look.value, busy: true, error: "" };
  try {
    const asked = { q, source: from.value, target: to.value, ...wanted };
    const trace = await api.trace(asked, giveUp);
    look.value = { busy: false, error: "", trace, asked };
    return trace;
  } catch (error) {
    if (error.name !== "AbortError")
      look.value = { busy: false, error: error.message, trace: null, asked: null };
    return null;
  }
}

export function swap() {
  const turned = answer.value.result?.translatedText;
  batch(() => {
    [from.value, to.value] = [to.value, from.value];
    if (turned) text.value = turned;
  });
  translateSoon(0);
}

// What was translated before, on this machine only.

const HISTORY = "pellucid history";
export const history = signal(read());

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(HISTORY) ?? "[]");
    return Array.isArray(found) ? found.slice(0, 50) : [];
  } catch {
    return [];
  }
}

function remember(q, translated) {
  const rest = history.value.filter((h) => !(h.q === q && h.to === to.value) && !q.startsWith(h.q));
  history.value = [{ q, translated, from: from.value, to: to.value }, ...rest].slice(0, 50);
  save();
}

export function forget() {
  history.value = [];
  save();
}

function save() {
  try {
    localStorage.setItem(HISTORY, JSON.stringify(history.value));
  } catch {
    // a browser that keeps nothing is no reason to stop
  }
}

// The sentence and the view stand in the address, so that a link opens them again.

function written() {
  const parts = new URLSearchParams({ q: text.value, from: from.value, to: to.value });
  if (open.value) {
    for (const [key, value] of Object.entries(view.value)) parts.set(key, value);
    if (Object.keys(changes.value).length) parts.set("with", JSON.stringify(changes.value));
  }
  return `#${parts}`;
}

/** What a link asks for beyond its sentence. The server checks it as it checks all that it is asked. */
function linked() {
  try {
    const { q, source, target, ...rest } =
      JSON.parse(new URLSearchParams(location.hash.slice(1)).get("with") ?? "{}") ?? {};
    return rest;
  } catch {
    return {};
  }
}

function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const chosen = {};
  for (const [key, value] of Object.entries(view.value)) {
    const given = parts.get(key);
    if (given !== null) chosen[key] = typeof value === "number" ? Number(given) || 0 : given;
  }
  batch(() => {
    text.value = parts.get("q") ?? "";
    const [source, target] = (about.value.default ?? "-").split("-");
    const known = about.value.directions.some((d) => d === `${parts.get("from")}-${parts.get("to")}`);
    from.value = known ? parts.get("from") : source;
    to.value = known ? parts.get("to") : target;
    open.value = parts.has("panel") && about.value.look;
    choose(chosen);
  });
}

export async function start() {
  about.value = await api.about();
  if (api.offline) {
    batch(() => {
      const { trace } = api.offline;
      text.value = trace.source;
      [from.value, to.value] = trace.direction.split("-");
      look.value = { busy: false, error: "", trace, asked: {} };
      open.value = true;
    });
    return;
  }
  readAddress();
  if (open.value) lookInside(linked());
  if (text.value) translateNow();
  effect(() => {
    const address = written();
    if (text.value) window.history.replaceState(null, "", address);
  });
}
