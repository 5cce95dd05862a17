// The KV cache of the decoder, and what it saves.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { html } from "page/html.js";
import { look, view } from "page/store.js";
import { piece } from "page/drawing/colours.js";
import { Stepper } from "page/panels/beam.js";
import { answered, KEPT, rounds } from "page/search.js";

const [CELL, HIGH, NAMES, GAP, MOST] = [46, 24, 34, 70, 8];

/** What the trace tells of a round's cache, with its sums up to this round. Pure. */
export function told(trace, step) {
  const [length, rows, ownBytes, crossBytes, parents, products, without] = trace.cache[step];
  const upTo = trace.cache.slice(0, step + 1);
  const sum = (place) => upTo.reduce((total, row) => total + row[place], 0);
  return {
    length,
    rows,
    ownBytes,
    crossBytes,
    parents,
    products,
    without,
    allProducts: sum(5),
    allWithout: sum(6),
  };
}

/** The tokens that each hypothesis has read in a round, the start symbol first. Pure. */
export function read(trace, columns, step) {
  const start = [trace.tokens[1][0][0]];
  if (step === 0) return [[...start, ...answered(trace).slice(0, columns[0].length - 1)]];
  return columns[step - 1].ways.filter((way) => way.fate === KEPT).map((way) => [...start, ...way.tokens]);
}

/** The bytes of the cache by hand: keys and values of each layer, head and token, 4 bytes a number. */
export function bytes(
  { decoder_layers: layers, num_kv_heads: shared, num_heads: heads, d_model: width },
  tokens,
) {
  return {
    layers,
    heads: shared ?? heads,
    wide: width / heads,
    total: 2 * layers * (shared ?? heads) * (width / heads) * tokens * 4,
  };
}

export function Cache() {
  const { trace } = look.value;
  const columns = useMemo(() => rounds(trace), [trace]);
  if (!trace.cache.length) return html`<h2>KV cache</h2><p>Nothing was decoded, so nothing was cached.</p>`;
  const step = Math.max(0, Math.min(view.value.step, trace.cache.length - 1));
  const now = told(trace, step);
  const [own, cross] = [
    bytes(trace.model, now.length * now.rows),
    bytes(trace.model, trace.tokens[0].length),
  ];
  return html`
    <h2>KV cache</h2>
    <p>To predict the next token, the decoder needs the keys and values of all tokens before it. They no longer
      change, so they are cached: each step computes one new row for each hypothesis. Those of the source are
      computed once, before the first step.</p>
    <${Stepper} count=${trace.cache.length} step=${step} />
    <${Picture} ...${{ trace, columns, step, now }} />
    <${Source} trace=${trace} />
    <p class="hint">A row is a hypothesis, a cell the keys and values of one token in all layers; framed cells
      are new. A line shows which row each hypothesis continues: when the search drops one, the rows of another
      are copied in its place.</p>
    <h3>Memory</h3>
    <div class="scroll"><table class="listed"><thead><tr><th></th>
      <th>keys and values × layers × heads × numbers × tokens × 4 bytes</th><th>bytes</th></tr></thead><tbody>
      <tr><td>output so far</td><td>2 × ${own.layers} × ${own.heads} × ${own.wide} × ${now.length * now.rows}
        ${now.rows > 1 && ` (${now.rows} rows of ${now.length})`} × 4</td>
        <td><output data-own-bytes=${now.ownBytes}>${now.ownBytes.toLocaleString("en")}</output></td></tr>
      <tr><td>source, once</td><td>2 × ${cross.layers} × ${cross.heads} × ${cross.wide} × ${
        trace.tokens[0].length
      } × 4</td>
        <td><output data-cross-bytes=${now.crossBytes}>${now.crossBytes.toLocaleString("en")}</output></td></tr>
          </tbody></table></div>
    ${
      (own.total !== now.ownBytes || cross.total !== now.crossBytes) &&
      html`<p class="hint">This cache is not
      stored as the formula says.</p>`
    }
    <h3>What it saves</h3>
    <p>Multiplications up to this step: <${Bars} with_=${now.allProducts} without=${now.allWithout} /></p>
    <p>Without a cache each step would read the whole output again, and this step alone would take
      <output data-times> ${(now.without / now.products).toFixed(1)}</output> times as much.</p>`;
}

function Bars({ with_, without }) {
  const bar = (name, value, key) => html`<span class="bar-row"><span>${name}</span>
    <span class="bar"><i style=${{ width: `${(100 * value) / without}%` }}></i></span>
    <output ...${{ [`data-${key}`]: value }}>${value.toLocaleString("en")}</output></span>`;
  return html`<span class="bars">${bar("with the cache", with_, "products")}
    ${bar("without", without, "products-without")}</span>`;
}

/** Where the cells and lines stand: the last tokens of each row, before and after. Pure. */
export function layout(before, after, parents) {
  const shown = (rows) => Math.min(MOST, Math.max(1, ...rows.map((row) => row.length)));
  const [left, right] = [before ? shown(before) : 0, shown(after)];
  const split = NAMES + (before ? left * CELL + GAP : 0);
  const y = (row) => 24 + row * (HIGH + 6);
  const cells = (rows, x) =>
    rows.flatMap((tokens, row) =>
      tokens.slice(-MOST).map((token, place, all) => ({
        token,
        x: x + place * CELL,
        y: y(row),
        isNew: x === split && place === all.length - 1,
        cut: tokens.length > MOST && place === 0,
      })),
    );
  const lines = before
    ? parents.map((from, to) => ({ from: y(from) + HIGH / 2, to: y(to) + HIGH / 2, moved: from !== to }))
    : [];
  return {
    cells: [...(before ? cells(before, NAMES) : []), ...cells(after, split)],
    lines: lines.map((line) => ({ ...line, x1: NAMES + left * CELL + 2, x2: split - 4 })),
    width: split + right * CELL + 4,
    height: y(Math.max(before?.length ?? 1, after.length)),
    split,
  };
}

function Picture({ trace, columns, step, now }) {
  const after = read(trace, columns, step).slice(0, now.rows);
  const before = step ? read(trace, columns, step - 1) : null;
  const box = layout(before, after, now.parents);
  const name = (token) => piece(trace.pieces[token] ?? "");
  const frame = useRef(null);
  useEffect(() => {
    frame.current.scrollLeft = frame.current.scrollWidth; // where there is no room for both, this round
  }, [step]);
  return html`<div class="scroll" ref=${frame}><svg class="cache" viewBox="0 0 ${box.width} ${box.height}"
    width=${box.width} height=${box.height} role="img"
    aria-label=${`the cache in step ${step + 1}: ${now.rows} rows of ${now.length} tokens`}>
    ${before && html`<text class="name" x=${NAMES} y="14">the previous step</text>`}
    <text class="name" x=${box.split} y="14">this step</text>
    ${box.lines.map(
      (
        { from, to, x1, x2, moved },
        row,
      ) => html`<path class=${moved ? "edge moved" : "edge fate1"} data-parent=${now.parents[row]}
      d="M${x1} ${from}C${(x1 + x2) / 2} ${from} ${(x1 + x2) / 2} ${to} ${x2} ${to}" />`,
    )}
    ${box.cells.map(
      ({
        token,
        x,
        y,
        isNew,
        cut,
      }) => html`<g><rect class=${isNew ? "kept new" : "kept"} x=${x} y=${y} width=${CELL - 3} height=${HIGH}
        rx="3" />
      <text x=${x + CELL / 2 - 1} y=${y + 16}>${cut ? "…" : short(name(token))}</text><title>${name(token)}
        </title></g>`,
    )}
  </svg></div>`;
}

/** The source's part of the cache: one for all rows, the same in every round. */
function Source({ trace }) {
  const tokens = trace.tokens[0];
  return html`<p class="cached-source"><span>the source, computed once:</span> ${tokens.map(
    ([, text]) => html`<span class="cached">${piece(text)}</span> `,
  )}</p>`;
}

const short = (text) => ([...text].length > 5 ? `${[...text].slice(0, 4).join("")}…` : text);
