// Attention masks; a second sentence makes padding appear.
import { useEffect, useState } from "preact/hooks";
import { html } from "page/html.js";
import * as api from "page/api.js";
import { from, look, to } from "page/store.js";
import { Matrix } from "page/drawing/matrix.js";
import { Radios } from "page/drawing/choosing.js";
import { piece, shown } from "page/drawing/colours.js";
import { Row } from "page/panels/tokens.js";

/** What to start the second sentence with: the first half of the first one. */
export function shorter(text) {
  const words = text.trim().split(/\s+/);
  return words.slice(0, Math.max(1, Math.floor(words.length / 2))).join(" ");
}

/** The masks of one sentence of the batch, in the order of the lecture: parts first, then together. Pure. */
export function masksOf(batch, row) {
  const names = (tokens) => tokens.map(([, text]) => (text === "<pad>" ? "PAD" : piece(text)));
  const source = names(batch.source[row]);
  const target = names(batch.target[row]);
  const own = (i, j) => batch.target_padding[row][j];
  const read = (i, j) => batch.source_padding[row][j];
  return [
    {
      id: "causal",
      title: "Causal",
      says: "No token attends to those after it.",
      rows: target,
      columns: target,
      values: (i, j) => batch.causal[i][j],
    },
    {
      id: "padding",
      title: "Padding of the output",
      says: "No token attends to padding.",
      rows: target,
      columns: target,
      values: own,
    },
    {
      id: "decoder",
      title: "Decoder: both combined",
      says: "Used by the decoder's self-attention.",
      rows: target,
      columns: target,
      values: (i, j) => batch.decoder[row][i][j],
      both: (i, j) => batch.causal[i][j] & own(i, j),
    },
    {
      id: "encoder",
      title: "Encoder: padding of the source",
      says: "Used by the encoder's self-attention.",
      rows: source,
      columns: source,
      values: (i, j) => batch.encoder[row][i][j],
      both: read,
    },
    {
      id: "cross",
      title: "Encoder-decoder",
      says: "Used by the cross-attention: output rows, source columns.",
      rows: target,
      columns: source,
      values: (i, j) => batch.cross[row][i][j],
      both: read,
    },
  ];
}

/** How many cells of a mask are open, and whether it is what its parts make. Pure. */
export function counted({ rows, columns, values, both }) {
  let open = 0;
  let same = true;
  rows.forEach((_, i) =>
    columns.forEach((__, j) => {
      open += values(i, j);
      if (both && both(i, j) !== values(i, j)) same = false;
    }),
  );
  return { open, all: rows.length * columns.length, same };
}

export function Masks() {
  const { trace } = look.value;
  const [second, setSecond] = useState(shorter(trace.source));
  const [found, setFound] = useState(null);
  const [row, setRow] = useState(1);
  useEffect(() => setSecond(shorter(trace.source)), [trace]);
  useEffect(() => {
    let wanted = true;
    const q = second.trim() ? [trace.source, second] : [trace.source];
    const told = (batch) => wanted && setFound(batch);
    const timer = setTimeout(
      () => api.masks({ q, source: from.value, target: to.value }).then(told, told),
      200,
    );
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [trace, second]);
  if (api.offline)
    return html`<h2>Masks</h2><p class="hint">Two sentences in one batch need the server; start it with <code>
      pellucid serve</code>.</p>`;
  const batch = found && !(found instanceof Error) ? found : null;
  const at = batch ? Math.min(row, batch.source.length - 1) : 0;
  return html`
    <h2>Masks</h2>
    <p>A mask says which token may attend to which. The decoder must not see the tokens that it has yet to
      predict; and when two sentences of different length are in one batch, the shorter one is padded with PAD,
      which no token may attend to.</p>
    <p><label>A second sentence <input class="wide" value=${second} maxlength="1000" onInput=${(event) =>
      setSecond(event.target.value)} /></label></p>
    ${found instanceof Error && html`<p class="error" role="alert">${found.message}</p>`}
    ${
      batch &&
      html`
      <h3>The batch</h3>
      ${batch.source.map(
        (_, number) => html`<div class="batch-row"><small>sentence ${number + 1}</small>
        <${Row} tokens=${batch.source[number].map(([id, text]) => ({ id, text }))} />
        <${Row} tokens=${batch.target[number].map(([id, text]) => ({ id, text }))} /></div>`,
      )}
      <p class="hint">With padding, the logits differ from those of the sentence alone by at most${" "}
        <output data-difference>${shown(batch.difference)}</output>: padding has no effect.</p>
      ${
        batch.source.length > 1 &&
        html`<div class="pager">Masks of <${Radios} label="Sentence" value=${at} onChoose=${setRow}
        options=${batch.source.map((_, number) => [number, `sentence ${number + 1}`])} /></div>`
      }
      <div class="side-by-side">${masksOf(batch, at).map((mask) => html`<${Mask} ...${mask} />`)}</div>`
    }`;
}

function Mask(mask) {
  const { open, all, same } = counted(mask);
  const longest = Math.max(...mask.rows.map((name) => Math.min(14, name.length)));
  const size = Math.max(
    2.5,
    Math.min(18, (284 - 7.2 * longest) / Math.max(mask.rows.length, mask.columns.length)),
  );
  return html`<section class="mask"><h3>${mask.title}</h3><p class="hint">${mask.says}</p>
    <${Matrix} label=${`${mask.title} mask`} rows=${mask.rows} columns=${mask.columns} values=${mask.values}
      cell=${size}
      hidden=${(i, j) => !mask.values(i, j)} />
    <p class="hint"><output data-open=${mask.id}>${open}</output> of ${all} cells are allowed.
      ${
        mask.both &&
        html` ${
          same
            ? "As the model used it: the combination of its parts."
            : "The model used " + "something other than the combination of its parts."
        }`
      }</p></section>`;
}
