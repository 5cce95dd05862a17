// Look inside: the list of panels, and the one that is open.
import { useEffect, useRef } from "preact/hooks";
import { html } from "page/html.js";
import { offline } from "page/api.js";
import { choose, look, lookInside, view } from "page/store.js";
import { Tokens } from "page/panels/tokens.js";
import { Attention } from "page/panels/attention.js";
import { Cell } from "page/panels/cell.js";
import { Beam } from "page/panels/beam.js";
import { StackMap } from "page/panels/map.js";
import { Embedding } from "page/panels/embedding.js";
import { Masks } from "page/panels/masks.js";
import { Heads } from "page/panels/heads.js";
import { Residual } from "page/panels/residual.js";
import { Feed } from "page/panels/feed.js";
import { Logits } from "page/panels/logits.js";
import { Lens } from "page/panels/lens.js";
import { Cache } from "page/panels/cache.js";
import { Compare } from "page/panels/compare.js";
import { WhatIf } from "page/panels/whatif.js";
import { Share } from "page/panels/share.js";
import { goTo, stopOf, Tour } from "page/tour/tour.js";

const ALL = [
  { id: "tokens", title: "Tokens", panel: Tokens },
  { id: "embedding", title: "Embedding", panel: Embedding },
  { id: "map", title: "Architecture", panel: StackMap },
  { id: "attention", title: "Attention", panel: Attention },
  { id: "cell", title: "Attention step by step", panel: Cell },
  { id: "masks", title: "Masks", panel: Masks, online: true },
  { id: "heads", title: "Heads combined", panel: Heads },
  { id: "residual", title: "Residual and norm", panel: Residual },
  { id: "feed", title: "Feed-forward", panel: Feed },
  { id: "logits", title: "Softmax", panel: Logits },
  { id: "lens", title: "Logit lens", panel: Lens },
  { id: "beam", title: "Beam search", panel: Beam },
  { id: "cache", title: "KV cache", panel: Cache },
  { id: "compare", title: "Compare searches", panel: Compare, online: true },
  { id: "whatif", title: "What if", panel: WhatIf, online: true },
];

/** Those that can be shown here: some need the model, and a file without a server has none. */
export const PANELS = ALL.filter(({ online }) => !(online && offline));

export function Inside() {
  const { busy, error, trace } = look.value;
  const frame = useRef(null);
  useEffect(() => {
    if (!trace && !busy && !offline) lookInside();
  }, []);
  useLectureKeys((by) => (stopOf(view.value.stop) ? goTo(Math.max(0, view.value.stop + by)) : step(by)));
  const chosen = PANELS.find((one) => one.id === view.value.panel) ?? PANELS[0];
  const step = (by) => {
    const at = PANELS.indexOf(chosen) + by;
    const { id } = PANELS[(at + PANELS.length) % PANELS.length];
    choose({ panel: id });
    return id;
  };
  const keys = (event) => {
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      event.preventDefault();
      const id = step(event.key === "ArrowRight" ? 1 : -1);
      document.getElementById(`tab-${id}`).focus();
    }
  };
  useEffect(() => {
    document.getElementById(`tab-${chosen.id}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [chosen.id]);
  const stop = stopOf(view.value.stop);
  return html`
    <section class=${`inside${view.value.large ? " large" : ""}`} aria-label="Look inside" ref=${frame}>
      <div class="inside-tools">
        <button class="start-tour" aria-pressed=${Boolean(stop)} onClick=${() => goTo(stop ? -1 : 0)}>Guided
          tour</button>
        <${Share} />
        <button aria-pressed=${Boolean(view.value.large)} onClick=${() =>
          choose({ large: view.value.large ? 0 : 1 })}>Large type</button>
        <button title="Show this full screen" onClick=${() => frame.current.requestFullscreen?.()}>Full screen
          </button>
      </div>
      ${stop && html`<${Tour} />`}
      <nav class="tabs" role="tablist" hidden=${Boolean(stop?.alone)} aria-label="Panels" onKeyDown=${keys}>
        ${PANELS.map(
          ({ id, title }) => html`
          <button role="tab" id="tab-${id}" aria-selected=${id === chosen.id} aria-controls="panel"
            tabindex=${id === chosen.id ? 0 : -1} onClick=${() => choose({ panel: id })}>${title}</button>`,
        )}
      </nav>
      ${
        trace?.changed.length > 0 &&
        html`<p class="changed">What if: ${trace.changed.join("; ")}.
        <button onClick=${() => lookInside()}>Reset</button></p>`
      }
      <div id="panel" role="tabpanel" hidden=${Boolean(stop?.alone)} aria-labelledby="tab-${chosen.id}"
        aria-busy=${busy}>
        ${
          error &&
          html`<p class="error" role="alert">${error} <button onClick=${() => lookInside()}>Try again
          </button></p>`
        }
        ${trace ? html`<${chosen.panel} />` : busy && html`<p class="busy">Looking inside…</p>`}
      </div>
    </section>`;
}

/** For lectures: full screen, in large type or on the tour, arrow and page keys work wherever the focus is. */
function useLectureKeys(move) {
  const latest = useRef(move);
  latest.current = move;
  useEffect(() => {
    const keys = (event) => {
      const by = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }[event.key];
      const lecture = document.fullscreenElement || view.value.large || stopOf(view.value.stop);
      const elsewhere =
        event.defaultPrevented ||
        event.ctrlKey ||
        event.altKey ||
        event.metaKey ||
        event.target.closest?.("input, select, textarea");
      if (!by || !lecture || elsewhere) return;
      event.preventDefault();
      latest.current(by);
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
}
