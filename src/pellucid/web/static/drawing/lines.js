// Attention as lines between two columns of tokens, thicker where the weight is larger.
import { html } from "page/html.js";
import { shown } from "page/drawing/colours.js";

const FAINT = 0.02;

/**
 * Positions of the tokens, and the lines to draw, strongest last. Pure.
 * pinned: draw only that row's lines; null for all.
 */
export function layout(rows, columns, weight, pinned) {
  const step = Math.max(rows.length, columns.length) > 40 ? 16 : 24;
  const high = step * Math.max(rows.length, columns.length) + 8;
  const y = (place, count) => high / 2 + step * (place - (count - 1) / 2);
  const from = pinned === null ? rows.map((_, i) => i) : [pinned];
  const lines = from
    .flatMap((i) => columns.map((_, j) => ({ i, j, weight: weight(i, j) })))
    .filter((line) => line.weight >= FAINT)
    .sort((a, b) => a.weight - b.weight);
  return {
    high,
    step,
    left: rows.map((_, i) => y(i, rows.length)),
    right: columns.map((_, j) => y(j, columns.length)),
    lines,
  };
}

/** rows look (left) at columns (right); a click on a row pins it, a second click lets it go. */
export function Lines({ label, rows, columns, weight, pinned, onPin, chosen, onChoose }) {
  const { high, step, left, right, lines } = layout(rows, columns, weight, pinned);
  const move = (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    onPin(Math.max(0, Math.min(rows.length - 1, (pinned ?? -1) + by)));
  };
  const text = (side, name, place, at, marked, click) => html`<g class="end" onClick=${click}>
    <rect x=${side ? 322 : 0} y=${at - step / 2} width="138" height=${step} class=${marked ? "marked" : null} />
    <text class=${marked ? "name chosen" : "name"} x=${side ? 330 : 130} y=${at + 4} text-anchor=${
      side ? "start" : "end"
    }>${name.length > 17 ? `${name.slice(0, 16)}…` : name}</text></g>`;
  return html`<div class="lines" tabindex="0" onKeyDown=${move} role="group" aria-label=${label}>
    <svg viewBox="0 0 460 ${high}" role="img" aria-label=${label}>
      ${lines.map(
        ({
          i,
          j,
          weight: strength,
        }) => html`<path class="line" data-row=${i} data-column=${j} data-value=${strength}
          d="M138 ${left[i]}C230 ${left[i]} 230 ${right[j]} 322 ${right[j]}"
        stroke-width=${(0.6 + 6 * strength).toFixed(2)} opacity=${Math.min(1, 0.08 + 0.92 * strength).toFixed(
          3,
        )} onClick=${() => onChoose(i, j)}><title>${rows[i]} → ${columns[j]}: ${shown(strength)}</title></path>`,
      )}
      ${rows.map((name, i) => text(0, name, i, left[i], pinned === i, () => onPin(pinned === i ? null : i)))}
      ${columns.map((name, j) =>
        text(1, name, j, right[j], chosen[1] === j, () => onChoose(pinned ?? chosen[0], j)),
      )}
    </svg></div>`;
}
