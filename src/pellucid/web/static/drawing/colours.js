// Colours of numbers, safe for the colour-blind: blue for more, orange for less than nothing.
import { signal } from "@preact/signals";

const BLUE = { light: [33, 102, 172], dark: [120, 180, 240] };
const ORANGE = { light: [200, 90, 20], dark: [245, 160, 90] };

const query = window.matchMedia("(prefers-color-scheme: dark)");

/** "light" or "dark", as the system asks; whoever reads it while drawing is drawn again when it changes. */
export const scheme = signal(query.matches ? "dark" : "light");
query.addEventListener("change", () => {
  scheme.value = query.matches ? "dark" : "light";
});

/** The colour of a share from -1 to 1: strength is opacity, sign is hue. */
export function colourOf(share) {
  const strength = Math.min(1, Math.abs(share));
  const [r, g, b] = (share < 0 ? ORANGE : BLUE)[scheme.value];
  return `rgba(${r},${g},${b},${(0.04 + 0.96 * strength).toFixed(3)})`;
}

/** The same colour as red, green, blue and opacity, 0 to 255 each, for a canvas. */
export function pixelOf(share) {
  const strength = Math.min(1, Math.abs(Number.isFinite(share) ? share : 0));
  return [...(share < 0 ? ORANGE : BLUE)[scheme.value], Math.round(255 * (0.04 + 0.96 * strength))];
}

/** A number as the page shows it: four digits that matter. */
export function shown(value) {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : value > 0 ? "∞" : "–";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 0.001 || size >= 1e5) ? value.toExponential(2) : value.toFixed(3);
  return text.replace("-", "−");
}

export const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;

/** A piece as a person reads it: the mark of a space is left out, a lone one is shown. */
export const piece = (text) => text.replaceAll("▁", "") || "␣";
