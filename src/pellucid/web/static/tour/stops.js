// The stops of the guided tour, in the order of a lecture; each speaks of the sentence that is looked at.
import { html } from "page/html.js";
import { offline } from "page/api.js";
import { percent, piece, shown } from "page/drawing/colours.js";

const weightsOf = (trace) => Array.from({ length: trace.model.encoder_layers }, (_, layer) => `encoder.${layer}.self.weights`);
const atLink = (kind) => (trace, link) => (link ? { kind, layer: link.layer, head: link.head, row: link.row, column: link.column } : { kind });
const name = (trace, side, place) => html`<b>${piece(trace.tokens[side][place]?.[1] ?? "")}</b>`;
const middle = (trace) => Math.min(2, trace.tokens[2].length - 1);
const b = (text) => html`<b>${text}</b>`;

/** Sentences that lectures use, for those who want to see them here. */
export const LECTURE = {
  en: { link: "The animal didn't cross the street because it was too tired.", steps: "Thinking Machines" },
  fr: { link: "L'animal n'a pas traversé la rue parce qu'il était trop fatigué.", steps: "Machines pensantes" },
};

function linked(trace, link) {
  if (!link) return html`With a sentence of two words or more, this stop shows which head links them.`;
  const weak = link.weight < 2 * link.even;
  return html`Of the ${link.heads} heads of the encoder, head ${link.head + 1} of layer ${link.layer + 1} gives the
    most of ${b(link.from)} to ${b(link.to)}: <output data-link>${shown(link.weight)}</output>, where an even spread would give ${shown(link.even)}.${
    weak && " That is little more than an even spread: this model has not learned such a link here."}${link.pieces > 2 && html` The model has no piece of its own for ${b(link.to)} and reads it in ${link.pieces} parts, so expect little of it.`}`;
}

const ALL = [
  { id: "box", title: "A black box", alone: true,
    text: (trace) => html`A sentence goes in, its translation comes out. Nobody wrote rules for it: what it knows was learned from examples. <span class="black-box"><span>${trace.source}</span><b>Transformer</b><span>${trace.text}</span></span> Let us open the box, one layer after the other.` },
  { id: "stacks", title: "Two stacks", panel: "map",
    text: ({ model }) => html`Inside are an encoder, which reads, and a decoder, which writes: ${model.encoder_layers} and ${model.decoder_layers} layers,
      alike in structure, each with numbers of its own. An encoder layer looks around (self-attention), then works on each token alone
      (feed-forward). A decoder layer also looks across at what the encoder made.` },
  { id: "tokens", title: "Words become numbers", panel: "tokens",
    text: (trace) => html`The sentence is cut into pieces from a fixed list of ${trace.model.vocab_size.toLocaleString("en")}, and each piece is the number of its
      line in that list. Here the encoder reads ${trace.tokens[0].length} tokens; the decoder begins with a start symbol and nothing else.` },
  { id: "embedding", title: "Numbers become vectors", panel: "embedding",
    show: () => ({ row: 1 }),
    text: ({ model }) => html`Each token has a vector of ${model.width} numbers, learned in training: words that are used alike tend to get vectors that are alike.
      From here on every token has its own path through the layers, so all tokens are worked on at the same time.` },
  { id: "self", title: "Self-attention", panel: "attention", needs: weightsOf, lecture: "link", show: atLink("encoder"),
    text: (trace, { link }) => html`To understand a word one looks at the others. In self-attention each token gathers from all tokens,
      from some more than from others. ${linked(trace, link)}` },
  { id: "six", title: "Six steps", panel: "cell", needs: weightsOf, lecture: "steps", show: atLink("encoder"),
    text: (trace) => html`How much one token gathers from another is worked out in six steps, here for one cell, with the model's own numbers. A query asks, a key
      answers; their products added up are the score; it is divided by √${trace.shapes["encoder.0.self.q"]?.at(-1)}; the softmax makes weights of the scores of a row; and
      the values, each times its weight, are added up.` },
  { id: "matrices", title: "All at once, as matrices", panel: "attention", needs: weightsOf, show: (trace, link) => ({ ...atLink("encoder")(trace, link), head: -1 }),
    text: (trace) => {
      const [heads, tokens, wide] = trace.shapes["encoder.0.self.q"] ?? [];
      return html`The queries of all tokens are the rows of one matrix Q, so one product Q·Kᵀ gives all scores: ${tokens} × ${wide} times ${wide} × ${tokens} is ${tokens} × ${tokens}, in each
        of ${heads} heads. softmax(Q·Kᵀ ÷ √${wide})·V is the whole of attention. The picture shows the mean over the heads.`;
    } },
  { id: "heads", title: "Many heads", panel: "heads", show: () => ({ kind: "encoder", layer: 0, row: 1 }),
    text: ({ model }) => html`Each layer looks in ${model.heads} ways at once: every head has its own queries, keys and values${
      model.key_value_heads && model.key_value_heads !== model.heads ? " (the latter two shared by some)" : ""}, ${model.width / model.heads} numbers wide. What they gather is
      put side by side and mixed by one more matrix, W_O. Switch between the heads and see that they look at different things.` },
  { id: "positions", title: "Where a word stands", panel: "embedding", show: () => ({ row: 2 }),
    text: ({ model }) => html`Attention alone would not know the order of the words. ${{
      sinusoidal: "So a pattern of sines and cosines, a different one for each position, is added to each vector.",
      learned: "So a learned vector for each position is added to each token's vector.",
      rotary: "This model turns the queries and keys by an angle that grows with the position, so that a score depends on how far apart two tokens are.",
      none: "This model adds nothing for it; its decoder has only the mask to tell the order by.",
    }[model.positions] ?? ""}` },
  { id: "residual", title: "Add and normalise", panel: "residual", show: () => ({ kind: "encoder", layer: 0, row: 1 }),
    text: ({ model }) => html`No sub-layer replaces a vector: what it finds is added to what was there, so nothing gets lost on the way up. Then the numbers are brought back to
      a common size (${model.norm_kind === "rms" ? "RMSNorm" : "layer normalisation"}); in this model ${model.norm === "post" ? "after each addition" : model.norm === "pre" ? "before each sub-layer" : "before and after each sub-layer"}.` },
  { id: "forward", title: "Feed-forward", panel: "feed", show: () => ({ kind: "encoder", layer: 0, row: 1 }),
    text: ({ model }) => html`After looking around, each token is worked on alone: its ${model.width} numbers become ${model.feed_forward_width}, some of these are switched on, and they
      become ${model.width} again. The same weights serve every token.` },
  { id: "masked", title: "The decoder sees no future", panel: "attention", show: (trace) => ({ kind: "decoder", layer: 0, head: 0, row: middle(trace), column: 0 }),
    text: (trace) => html`The decoder writes from left to right, so a token may look at those before it only. The others get −∞ in place of a score, and the softmax makes
      0 of it: the empty triangle. At ${name(trace, 1, middle(trace))} it sees ${middle(trace) + 1} of ${trace.tokens[1].length} tokens.` },
  { id: "cross", title: "Looking across", panel: "attention", show: (trace) => ({ kind: "cross", layer: -1, head: -1, row: middle(trace), column: 1 }),
    text: (trace) => html`After looking at its own output, each decoder layer asks the encoder: queries come from the output so far, keys and values from the source. The row of ${name(trace, 2, middle(trace))} shows
      where the model looked when it wrote it.` },
  { id: "cache", title: "One token at a time", panel: "cache", show: (trace) => ({ step: Math.min(3, trace.cache.length - 1) }),
    text: (trace) => html`Each round writes one token, which is read in the next round, until the end symbol comes: the answer took ${trace.hypotheses[0][1]} rounds. What was computed for earlier tokens stays
      as it is, so it is kept and not computed again.` },
  { id: "softmax", title: "Linear and softmax", panel: "logits", needs: () => ["log_probabilities"], show: (trace) => ({ row: middle(trace) }),
    text: (trace, { logs }) => html`On top, one matrix turns the vector of ${trace.model.width} numbers into ${trace.model.vocab_size.toLocaleString("en")}: a logit for each piece of the vocabulary. The softmax makes
      probabilities of them. ${logs && html`Here ${name(trace, 2, middle(trace))} got ${percent(Math.exp(logs[middle(trace)]))}.`}` },
  { id: "loss", title: "Training and loss", panel: "tokens", needs: () => ["log_probabilities"],
    text: (trace, { logs }) => html`In training the decoder reads the right output, shifted by one, and says at every place at once what it thinks comes next. The loss of a place is −log of
      the probability it gave to the right token: 0 if it was sure of it. ${logs && html`If this output were the right one, its loss would
      be <output data-loss>${shown(-logs.reduce((sum, log) => sum + log, 0) / logs.length)}</output> a token.`} The weights are then turned a little, so that it falls.` },
  { id: "greedy", title: "Greedy", panel: "beam", changes: { beam: 1 }, show: (trace) => ({ step: Math.min(2, trace.beam.length - 1) }),
    text: () => html`Which token to take? Greedy takes the most probable one each time. That is quick, and there is no way back when a good beginning turns out to lead nowhere.` },
  { id: "beam", title: "Beam search", panel: "beam", changes: { beam: 2 }, show: (trace) => ({ step: Math.min(2, trace.beam.length - 1) }),
    text: ({ text, options: { beam } }) => html`A beam of ${beam} keeps the ${beam} best beginnings after each round. Step forward: each goes on in all ways, and the best ${beam} of them
      stay. At the end the one with the best score wins, here “${text}”.` },
  { id: "end", title: "Now it is your turn", panel: "whatif", online: true,
    text: () => html`That is all there is. Switch off a head, take out a word, force a token, and see what the translation depends on; or write another sentence above and go round again.` },
];

/** A file without a server has one search to show, and nothing to change in it. */
const carried = ({ id, online }) => !online && id !== (offline.trace.options.beam === 1 ? "beam" : "greedy");

export const STOPS = offline ? ALL.filter(carried) : ALL;
