// Both stacks as blocks; a click opens a part.
import { html } from "page/html.js";
import { choose, layer, model, place, view } from "page/store.js";
import { useTensors } from "page/tensors.js";
import { Thumbnails } from "page/panels/attention.js";

const STACKS = {
  encoder: [{ kind: "encoder", name: "self-attention" }],
  decoder: [
    { kind: "decoder", name: "masked self-attention" },
    { kind: "cross", name: "cross-attention" },
  ],
};

export function StackMap() {
  const shape = model.value;
  const { kind } = view.value;
  const found = useTensors(`${place(kind, layer.value)}.weights`);
  const name = [...STACKS.encoder, ...STACKS.decoder].find((part) => part.kind === kind).name;
  return html`
    <h2>Architecture</h2>
    <p>The source goes up the left stack; the output so far goes up the right one, which attends to the result
      of the left one in every layer. Click a part to open it.</p>
    <div class="stacks">
      <${Stack} stack="encoder" title="Encoder" count=${shape.encoder_layers} />
      <${Stack} stack="decoder" title="Decoder" count=${shape.decoder_layers} />
    </div>
    <p class="hint">${shape.d_model} numbers per token, ${shape.num_heads} heads${
      shape.num_kv_heads && shape.num_kv_heads !== shape.num_heads
        ? ` (which share ${shape.num_kv_heads} sets of keys and values)`
        : ""
    }, feed-forward ${shape.d_ff} wide, vocabulary ${shape.vocab_size}, norm ${
      {
        post: "after the " + "sum",
        pre: "before each sub-layer",
        sandwich: "before and after each sub-layer",
      }[shape.norm]
    }.</p>
    <h3>All heads of ${kind === "encoder" ? "the encoder's" : "the decoder's"} ${name}, layer ${layer.value + 1}
      </h3>
    ${found && html`<${Thumbnails} weights=${found[0]} panel="attention" />`}`;
}

function Stack({ stack, title, count }) {
  const here = (kind, number, part) =>
    view.value.kind === kind && view.value.part === part && layer.value === number;
  const go = (panel, kind, number, part = "attention") => choose({ panel, kind, layer: number, part });
  const around = (kind, number, part) =>
    html`<button class="norm" title="residual connection and norm" onClick=${() =>
      go("residual", kind, number, part)}>add + norm</button>`;
  const block = (number) => html`<div class="block"><b>Layer ${number + 1}</b>
    <div class="part"><button aria-pressed=${here(stack, number, "feed_forward")} onClick=${() =>
      go(
        "feed",
        stack,
        number,
        "feed_forward",
      )}>feed-forward</button>${around(stack, number, "feed_forward")}</div>
    ${STACKS[stack].toReversed().map(
      ({
        kind,
        name,
      }) => html`<div class="part"><button aria-pressed=${here(kind, number, "attention")} onClick=${() =>
        go("attention", kind, number)}>${name}</button>
      <button class="norm" title="how its heads are combined" onClick=${() => go("heads", kind, number)}>heads
        </button>${around(kind, number, "attention")}</div>`,
    )}
    </div>`;
  return html`<div class="stack"><h3>${title}</h3>
    ${
      stack === "decoder"
        ? html`<div class="block top-block"><div class="part">
          <button onClick=${() => choose({ panel: "logits" })}>logits and softmax</button>
      <button class="norm" onClick=${() => choose({ panel: "lens" })}>after each layer</button></div></div>`
        : html`<p class="hint across">its output goes to every cross-attention →</p>`
    }
    ${Array.from({ length: count }, (_, up) => block(count - 1 - up))}
    <div class="block"><div class="part"><button onClick=${() => choose({ panel: "embedding", kind: stack })}>
      embedding and position</button>
      <button class="norm" onClick=${() => choose({ panel: "tokens" })}>tokens</button>
      ${
        stack === "decoder" &&
        html`<button class="norm" onClick=${() => choose({ panel: "masks" })}>masks
        </button>`
      }</div></div></div>`;
}
