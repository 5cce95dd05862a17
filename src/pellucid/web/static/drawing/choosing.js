// One of several: buttons of which one is taken, with arrow keys as in a radio group.
import { useRef } from "preact/hooks";
import { html } from "page/html.js";
import { choose, depth, layer, view } from "page/store.js";
import { piece } from "page/drawing/colours.js";
import { read } from "page/panels/tokens.js";

/** options: [value, name, title?] each. */
export function Radios({ label, options, value, onChoose, kind = "radios" }) {
  const group = useRef(null);
  const at = Math.max(
    0,
    options.findIndex(([one]) => one === value),
  );
  const keys = (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const next = (at + by + options.length) % options.length;
    onChoose(options[next][0]);
    group.current.children[next]?.focus();
  };
  return html`<span class=${kind} role="radiogroup" aria-label=${label} onKeyDown=${keys} ref=${group}>
    ${options.map(
      ([one, name, title], number) => html`<button role="radio" aria-checked=${one === value} title=${title}
      tabindex=${number === at ? 0 : -1} onClick=${() => onChoose(one)}>${name}</button>`,
    )}</span>`;
}

/** Which token of a side is looked at: the row of the view. */
export function TokenChoice({ names, label = "Token" }) {
  const row = Math.max(0, Math.min(view.value.row, names.length - 1));
  const options = names.map((name, place) => [place, name, `position ${place}`]);
  return html`<${Radios} kind="token-row" label=${label} options=${options} value=${row} onChoose=${(place) =>
    choose({ row: place })} />`;
}

export function LayerChoice({ kind = view.value.kind }) {
  const options = Array.from({ length: depth(kind) }, (_, number) => [
    number,
    `${number + 1}`,
    `layer ${number + 1}`,
  ]);
  return html`<span>Layer <${Radios} label="Layer" options=${options} value=${layer.value} onChoose=${(
    number,
  ) => choose({ layer: number })} /></span>`;
}

/** The stack that a kind of attention belongs to. */
export const stackOf = (kind) => (kind === "encoder" ? "encoder" : "decoder");

/** What a stack reads, as names: the source, or the start symbol and the output. */
export function readNames(trace, stack) {
  const { source, target } = read(trace.tokens);
  return (stack === "encoder" || stack === "source" ? source : target).map(({ text }) => piece(text));
}
