// The stops of the guided tour, in the order of a lecture; each speaks of the sentence that is looked at.
import { html } from "page/html.js";
import { offline } from "page/api.js";
import { percent, piece, shown } from "page/drawing/colours.js";

const weightsOf = (trace) =>
  Array.from({ length: trace.model.encoder_layers }, (_, layer) => `encoder.${layer}.self.weights`);
const atLink = (kind) => (trace, link) =>
  link ? { kind, layer: link.layer, head: link.head, row: link.row, column: link.column } : { kind };
const name = (trace, side, place) => html`<b>${piece(trace.tokens[side][place]?.[1] ?? "")}</b>`;
const middle = (trace) => Math.min(2, trace.tokens[2].length - 1);
const b = (text) => html`<b>${text}</b>`;

/** Sentences that lectures use, for those who want to see them here. */
export const LECTURE = {
  en: { link: "The animal didn't cross the street because it was too tired.", steps: "Thinking Machines" },
  fr: {
    link: "L'animal n'a pas traversé la rue parce qu'il était trop fatigué.",
    steps: "Machines pensantes",
  },
};

function linked(trace, link) {
  if (!link) return html`With a sentence of two words or more, this stop shows which head links them.`;
  const weak = link.weight < 2 * link.even;
  return html`Of the ${link.heads} heads of the encoder, head ${link.head + 1} of layer ${
    link.layer + 1
  } attends most from ${b(link.from)} to ${b(link.to)}: <output data-link>${shown(link.weight)}
  </output>, where a uniform distribution would give ${shown(link.even)}.${
    weak && " That is little more than uniform: this model has not learned such a link here."
  }${
    link.pieces > 2 &&
    html` The model has no single token for ${b(link.to)} and reads it
    as ${link.pieces} tokens, so do not expect much.`
  }`;
}

const ALL = [
  {
    id: "box",
    title: "A black box",
    alone: true,
    text: (trace) =>
      html`A sentence goes in, its translation comes out. Nobody wrote rules for it: what it knows was learned
        from examples. <span class="black-box"><span>${trace.source}</span><b>Transformer</b><span>${trace.text}
        </span></span> Let us open the box, one layer after the other.`,
  },
  {
    id: "stacks",
    title: "Two stacks",
    panel: "map",
    text: ({ model }) =>
      html`Inside are an encoder, which reads, and a decoder, which writes: ${model.encoder_layers} and ${
        model.decoder_layers
      } layers, alike in structure, each with its own weights. An encoder layer lets the tokens attend to each
      other (self-attention), then processes each token separately (feed-forward). A decoder layer also attends
      to the output of the encoder (cross-attention).`,
  },
  {
    id: "tokens",
    title: "Words become numbers",
    panel: "tokens",
    text: (trace) =>
      html`The sentence is split into subword tokens from a vocabulary of ${trace.model.vocab_size.toLocaleString(
        "en",
      )}, and each token is its number in that vocabulary. Here the encoder reads ${
        trace.tokens[0].length
      } tokens; the decoder begins with a start symbol and nothing else.`,
  },
  {
    id: "embedding",
    title: "Numbers become vectors",
    panel: "embedding",
    show: () => ({ row: 1 }),
    text: ({ model }) =>
      html`Each token has an embedding, a vector of ${model.d_model} numbers, learned in training: words that
        are used alike tend to get vectors that are alike. From here on every token has its own path through the
        layers, so all tokens are processed at the same time.`,
  },
  {
    id: "self",
    title: "Self-attention",
    panel: "attention",
    needs: weightsOf,
    lecture: "link",
    show: atLink("encoder"),
    text: (trace, { link }) =>
      html`To understand a word, look at the others. In self-attention each token gathers information from all
        tokens, from some more than from others. ${linked(trace, link)}`,
  },
  {
    id: "six",
    title: "Attention step by step",
    panel: "cell",
    needs: weightsOf,
    lecture: "steps",
    show: atLink("encoder"),
    text: (trace) =>
      html`How much one token gathers from another is computed in six steps, here for one attention weight, with
        the model's own numbers. The dot product of a query and a key is the score; it is divided by √
        ${trace.shapes["encoder.0.self.q"]?.at(
          -1,
        )}; the softmax turns the scores of a row into weights; and the values, each multiplied by its weight,
        are added up.`,
  },
  {
    id: "matrices",
    title: "All at once, as matrices",
    panel: "attention",
    needs: weightsOf,
    show: (trace, link) => ({ ...atLink("encoder")(trace, link), head: -1 }),
    text: (trace) => {
      const [heads, tokens, wide] = trace.shapes["encoder.0.self.q"] ?? [];
      return html`The queries of all tokens are the rows of one matrix Q, so one product Q·Kᵀ gives all
        scores: ${tokens} × ${wide} times ${wide} × ${tokens} is ${tokens} × ${tokens}, in each
        of ${heads} heads. softmax(Q·Kᵀ ÷ √${wide})·V is all there is to attention. The picture shows the mean
        over the heads.`;
    },
  },
  {
    id: "heads",
    title: "Many heads",
    panel: "heads",
    show: () => ({ kind: "encoder", layer: 0, row: 1 }),
    text: ({ model }) =>
      html`Each layer attends in ${model.num_heads} ways at once: every head has its own queries, keys and values${
        model.num_kv_heads && model.num_kv_heads !== model.num_heads ? " (the latter two shared by some)" : ""
      }, ${model.d_model / model.num_heads} numbers wide. Their outputs are concatenated and mixed by one more
      matrix, W_O. Switch between the heads to see that they attend to different things.`,
  },
  {
    id: "positions",
    title: "The position of a word",
    panel: "embedding",
    show: () => ({ row: 2 }),
    text: ({ model }) =>
      html`Attention alone would not know the order of the words. ${
        {
          sinusoidal:
            "So a pattern of sines and cosines, a different one for each position, is added to each vector.",
          learned: "So a learned vector for each position is added to each token's vector.",
          rotary:
            "This model rotates the queries and keys by an angle that grows with the position, so that a score " +
            "depends on how far apart two tokens are.",
          none: "This model has no position encoding; only the causal mask tells its decoder the order.",
        }[model.position_encoding] ?? ""
      }`,
  },
  {
    id: "residual",
    title: "Add and normalise",
    panel: "residual",
    show: () => ({ kind: "encoder", layer: 0, row: 1 }),
    text: ({ model }) =>
      html`No sub-layer replaces a vector: its output is added to what was there, so nothing gets lost on the
        way up. Then the numbers are brought back to a common scale (${
          model.norm_type === "rms" ? "RMSNorm" : "layer normalisation"
        }); in this model ${
          model.norm === "post"
            ? "after each addition"
            : model.norm === "pre"
              ? "before each " + "sub-layer"
              : "before and after each sub-layer"
        }.`,
  },
  {
    id: "forward",
    title: "Feed-forward",
    panel: "feed",
    show: () => ({ kind: "encoder", layer: 0, row: 1 }),
    text: ({ model }) =>
      html`After attention, each token is processed separately: its ${model.d_model} numbers
        become ${model.d_ff}, an activation function is applied, and they become ${model.d_model} again. Every
        token uses the same weights.`,
  },
  {
    id: "masked",
    title: "The decoder cannot see the future",
    panel: "attention",
    show: (trace) => ({ kind: "decoder", layer: 0, head: 0, row: middle(trace), column: 0 }),
    text: (trace) =>
      html`The decoder writes from left to right, so a token may attend only to itself and those before it. The
        others get −∞ in place of a score, which the softmax turns into 0: the empty triangle. At ${name(
          trace,
          1,
          middle(trace),
        )} it sees ${middle(trace) + 1} of ${trace.tokens[1].length} tokens.`,
  },
  {
    id: "cross",
    title: "Cross-attention",
    panel: "attention",
    show: (trace) => ({ kind: "cross", layer: -1, head: -1, row: middle(trace), column: 1 }),
    text: (trace) =>
      html`After self-attention, each decoder layer attends to the encoder: queries come from the output so far,
        keys and values from the source. The row of ${name(trace, 2, middle(trace))} shows what the model
        attended to when it wrote it.`,
  },
  {
    id: "cache",
    title: "One token at a time",
    panel: "cache",
    show: (trace) => ({ step: Math.min(3, trace.cache.length - 1) }),
    text: (trace) =>
      html`Each step writes one token, which is read in the next step, until the end symbol comes: this output
        took ${trace.hypotheses[0][1]} steps. The keys and values of earlier tokens do not change, so they are
        cached and not computed again.`,
  },
  {
    id: "softmax",
    title: "Linear and softmax",
    panel: "logits",
    needs: () => ["log_probabilities"],
    show: (trace) => ({ row: middle(trace) }),
    text: (trace, { logs }) =>
      html`On top, one matrix turns the vector of ${trace.model.d_model} numbers
        into ${trace.model.vocab_size.toLocaleString(
          "en",
        )}: a logit for each token of the vocabulary. The softmax turns them into probabilities. ${
          logs && html`Here ${name(trace, 2, middle(trace))} got ${percent(Math.exp(logs[middle(trace)]))}.`
        }`,
  },
  {
    id: "loss",
    title: "Training and loss",
    panel: "tokens",
    needs: () => ["log_probabilities"],
    text: (trace, { logs }) =>
      html`In training the decoder reads the reference output, shifted by one (teacher forcing), and predicts
        the next token at every position at once. The loss at a position is −log of the probability it gave to
        the right token: 0 if it was certain. ${
          logs &&
          html`If this output were the right one, its loss would be <output data-loss>
            ${shown(-logs.reduce((sum, log) => sum + log, 0) / logs.length)}</output> per token.`
        } The weights are then changed a little, so that the loss falls.`,
  },
  {
    id: "greedy",
    title: "Greedy",
    panel: "beam",
    changes: { beam_size: 1 },
    show: (trace) => ({ step: Math.min(2, trace.beam.length - 1) }),
    text: () =>
      html`Which token to take? Greedy takes the most probable one each time. That is fast, but there is no way
        back when a good beginning turns out to lead nowhere.`,
  },
  {
    id: "beam",
    title: "Beam search",
    panel: "beam",
    changes: { beam_size: 2 },
    show: (trace) => ({ step: Math.min(2, trace.beam.length - 1) }),
    text: ({ text, options: { beam_size: beam } }) =>
      html`A beam of ${beam} keeps the ${beam} best hypotheses after each step. Step forward: each is expanded
        with every token, and the best ${beam} of them are kept. At the end the one with the best score wins,
        here “${text}”.`,
  },
  {
    id: "end",
    title: "Now it is your turn",
    panel: "whatif",
    online: true,
    text: () =>
      html`That is all there is. Switch off a head, remove a word, force a token, and see what the translation
        depends on; or write another sentence above and start again.`,
  },
];

/** A file without a server has one search to show, and nothing to change in it. */
const carried = ({ id, online }) =>
  !online && id !== (offline.trace.options.beam_size === 1 ? "beam" : "greedy");

export const STOPS = offline ? ALL.filter(carried) : ALL;
