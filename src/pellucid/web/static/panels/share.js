// A view as a link, a picture or data.
import { useState } from "preact/hooks";
import { html } from "page/html.js";
import { offline } from "page/api.js";
import { look, view } from "page/store.js";
import { fetched } from "page/tensors.js";
import { picture } from "page/drawing/picture.js";

/** The trace as JSON: all but the tensors, and of these the attention weights and the probabilities. */
export async function traceJson(trace) {
  const names = Object.keys(trace.shapes).filter(
    (name) => name.endsWith(".weights") || name === "log_probabilities",
  );
  const tensors = await Promise.all(names.map((name) => fetched(trace, name)));
  const { id, ...rest } = trace;
  return JSON.stringify({
    ...rest,
    tensors: Object.fromEntries(names.map((name, place) => [name, nested(tensors[place])])),
  });
}

/** A tensor as lists of lists. */
function nested({ shape, data }) {
  let found = Array.from(data);
  for (const size of shape.slice(1).reverse()) {
    found = Array.from({ length: found.length / size }, (_, row) =>
      found.slice(row * size, (row + 1) * size),
    );
  }
  return found;
}

function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

export function Share() {
  const [told, setTold] = useState("");
  const { trace } = look.value;
  const tell = (words) => {
    setTold(words);
    setTimeout(() => setTold(""), 4000);
  };
  const link = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      tell("The link is copied: it opens this view.");
    } catch {
      tell("Copy the link from the address bar: it opens this view.");
    }
  };
  const drawing = () =>
    save(`pellucid-${view.value.panel}.svg`, "image/svg+xml", picture(document.getElementById("panel")));
  const data = async () => save("pellucid-trace.json", "application/json", await traceJson(trace));
  return html`<div class="share" role="group" aria-label="Share">
    ${!offline && html`<button onClick=${link}>Copy link</button>`}
    <button onClick=${drawing} disabled=${!trace}>Picture (SVG)</button>
    <button onClick=${data} disabled=${!trace}>Data (JSON)</button>
    <span class="hint" role="status">${told}</span></div>`;
}
