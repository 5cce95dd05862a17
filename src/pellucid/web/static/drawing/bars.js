// Bars: a vector as a skyline around zero, and a list of named amounts.
import { html } from "page/html.js";
import { shown } from "page/drawing/colours.js";

/** The two outlines (above and below zero) of a vector of numbers, in a box of 1000 by `high`. Pure. */
export function skyline(values, high, largest) {
  const wide = 1000 / values.length;
  const middle = high / 2;
  const outlines = { above: "", below: "" };
  values.forEach((value, i) => {
    const size = Math.min(1, Math.abs(value) / largest) * middle;
    const y = value > 0 ? middle - size : middle;
    outlines[value > 0 ? "above" : "below"] +=
      `M${(i * wide).toFixed(2)} ${y.toFixed(2)}h${(wide * 0.86).toFixed(2)}v${size.toFixed(2)}h-${(
        wide * 0.86
      ).toFixed(2)}z`;
  });
  return outlines;
}

/** A vector as bars; the same `largest` makes two of them comparable. */
export function Skyline({ name, values, largest, high = 64 }) {
  const { above, below } = skyline(Array.from(values), high, largest);
  return html`<figure class="skyline"><figcaption>${name}</figcaption>
    <svg viewBox="0 0 1000 ${high}" height=${high} preserveAspectRatio="none" role="img"
      aria-label=${`${name}: ${values.length} numbers`}>
      <path class="above" d=${above} /><path class="below" d=${below} />
        <path class="zero" d="M0 ${high / 2}H1000" />
    </svg></figure>`;
}

/** Named amounts, one below the other. items: { name, value, note?, key? }. */
export function BarList({ label, items, largest = null, chosen = null, onChoose = null, format = shown }) {
  const top = largest ?? Math.max(1e-9, ...items.map(({ value }) => Math.abs(value)));
  return html`<table class="amounts" aria-label=${label}><tbody>${items.map(
    ({ name, value, note, key = name }) => html`
    <tr class=${key === chosen ? "chosen" : null}>
      <th scope="row">${
        onChoose
          ? html`<button aria-pressed=${key === chosen} onClick=${() => onChoose(key)}>
        ${name}</button>`
          : name
      }</th>
      <td class="amount"><i class=${value < 0 ? "below" : "above"} style=${{
        width: `${((100 * Math.abs(value)) / top).toFixed(2)}%`,
      }}></i></td>
      <td><output data-bar=${key}>${format(value)}</output></td>
        ${note != null && html`<td class="note">${note}</td>`}
    </tr>`,
  )}</tbody></table>`;
}
