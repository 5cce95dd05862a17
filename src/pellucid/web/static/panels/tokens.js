// Text becomes pieces, pieces become numbers.
import { html } from "page/html.js";
import { look, model } from "page/store.js";
import { piece } from "page/drawing/colours.js";

const MEANING = {
  "<pad>": "padding: fills up shorter sentences in a batch; never attended to",
  "<unk>": "unknown: a character that has no token",
  "<s>": "start of sentence: what the decoder reads first",
  "</s>": "end of sentence",
};
const BYTE = /^<0x([0-9A-F]{2})>$/;
const TAG = /^<2.*>$/;

export function Tokens() {
  const { trace } = look.value;
  const { source, target, answers } = read(trace.tokens);
  const characters = [...trace.source].length;
  const plain = source.filter(({ text }) => kind(text) === "" || kind(text) === "byte").length;
  return html`
    <h2>Text to tokens to ids</h2>
    <p>The model does not read letters. A sentence is split into subword tokens from a fixed vocabulary of ${
      model.value.vocab_size
    }, and each token has a number, its id. Frequent words are one token, rare ones several; what has no token
    at all is spelled in bytes.</p>
    <h3>What the encoder reads</h3>
    <p class="hint"><output data-characters>${characters}</output> characters became <output data-pieces>
      ${plain}</output> tokens. A dot before a token stands for the space before a word.</p>
    <${Row} tokens=${source} />
    <h3>What the decoder reads</h3><${Row} tokens=${target} />
    <h3>What the decoder predicts at each position</h3><${Row} tokens=${answers} />
    <p class="hint">Each prediction is what the decoder reads at the next position: shifted by one.</p>
    <${Legend} tokens=${[...source, ...target, ...answers]} />`;
}

/** The three rows of tokens of a trace, as objects. */
export function read([source, target, answers]) {
  const rows = (side) => side.map(([id, text]) => ({ id, text }));
  return { source: rows(source), target: rows(target), answers: rows(answers) };
}

/** Runs of bytes put together, with the characters they spell; everything else alone. Pure. */
export function grouped(tokens) {
  const groups = [];
  for (const token of tokens) {
    const byte = BYTE.exec(token.text);
    if (byte && groups.at(-1)?.bytes) groups.at(-1).tokens.push(token);
    else groups.push({ tokens: [token], bytes: Boolean(byte) });
  }
  return groups.map(({ tokens: members, bytes }) => ({
    tokens: members,
    spelt: bytes
      ? new TextDecoder().decode(Uint8Array.from(members, ({ text }) => parseInt(text.slice(3, 5), 16)))
      : null,
  }));
}

export function Row({ tokens }) {
  return html`<ol class="tokens">${grouped(tokens).map(({ tokens: members, spelt }) =>
    spelt === null
      ? html`<${Token} ...${members[0]} />`
      : html`<li class="spelt"><ol class="tokens">${members.map((token) => html`<${Token} ...${token} />`)}</ol>
        <small>${members.length === 1 ? "1 byte" : `${members.length} bytes`} for <b>${spelt}</b></small></li>`,
  )}</ol>`;
}

function Token({ id, text }) {
  return html`<li class=${kind(text)} title=${said(text)}><b>${label(text)}</b><small>${id}</small></li>`;
}

/** What each special token is for. */
function Legend({ tokens }) {
  const special = [...new Set(tokens.map(({ text }) => text))].filter((text) =>
    ["tag", "special"].includes(kind(text)),
  );
  return html`<dl class="legend">${special.map((text) => html`<dt>${text}</dt><dd>${said(text)}</dd>`)}</dl>`;
}

export const kind = (text) =>
  TAG.test(text) ? "tag" : MEANING[text] ? "special" : BYTE.test(text) ? "byte" : "";

/** A token as it is listed: a dot for the space that begins a word. */
export function label(text) {
  const byte = BYTE.exec(text);
  if (byte) return `0x${byte[1]}`;
  return text.startsWith("▁") && text.length > 1 ? `·${piece(text)}` : piece(text);
}

export function said(text) {
  if (MEANING[text]) return MEANING[text];
  if (TAG.test(text)) return `selects the target language ${text.slice(2, -1)}`;
  const byte = BYTE.exec(text);
  if (byte) return `one byte, number ${parseInt(byte[1], 16)}, of a character that has no token of its own`;
  return text.startsWith("▁") ? "begins a word" : "continues a word";
}
