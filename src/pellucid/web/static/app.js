// The page: translate above, look inside below.
import { render } from "preact";
import { html } from "page/html.js";
import { offline } from "page/api.js";
import { about, look, open, start } from "page/store.js";
import { Inside } from "page/inside.js";
import { Translate } from "page/panels/translate.js";

function Page() {
  if (!about.value) return html`<main class="loading" aria-busy="true">Loading…</main>`;
  return html`
    <header class="top">
      <h1>Pellucid</h1>
      <p class="motto">translate, and look inside</p>
    </header>
    <main>
      ${offline ? html`<${Carried} />` : html`<${Translate} />`}
      ${open.value && html`<${Inside} />`}
    </main>
  `;
}

function Carried() {
  const { trace } = look.value;
  return html`<section class="carried">
    <p lang=${trace.direction.split("-")[0]}>${trace.source}</p>
    <p lang=${trace.direction.split("-")[1]}>${trace.text}</p>
  </section>`;
}

start().then(
  () => render(html`<${Page} />`, document.getElementById("page")),
  (error) => {
    document.getElementById("page").textContent = error.message;
  },
);
