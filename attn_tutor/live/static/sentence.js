/* Chapter 11, your own sentence: SmolLM2 reads it in the kernel, and the chapter's figure of all heads shows it. */
document.addEventListener("attn-live", ({ detail: live }) => {
  const ready = document.querySelector("attn-published");
  if (!ready) return;
  const { html, button } = attnLive;
  const Own = class extends customElements.get("attn-published") {
    static title = "The heads on your own sentence";
    static tasks = [];
  };
  customElements.define("attn-own", Own);

  const area = html("textarea", { id: "attn-sentence", rows: 2, maxlength: 400 });
  area.value = "When Mary and John went to the shop, John gave a drink to";
  const note = live.keep("my sentence", area);
  const said = html("p", { role: "status" }), figure = html("div"), written = html("p"), lens = html("div");
  const run = async (call, take) => {
    said.textContent = "The model reads … (the first time it is loaded, which takes some seconds)";
    said.textContent = await live.hear(`from attn_tutor.live import sentence as _sentence; _sentence.${call}`, "sentence", take);
  };
  const show_lens = (tokens, at, guesses) => {
    const choose = html("select", { id: "attn-lens" }, ...tokens.map((token, i) => html("option", { value: i }, `${i}: ${token}`)));
    choose.value = at;
    choose.addEventListener("change", () => run(`lens(${JSON.stringify(lens.text)}, ${choose.value})`, (found) => {
      show_lens(tokens, choose.value, found.lens);
      lens.querySelector("select").focus();
    }));
    const rows = guesses.map(([word, p], i) => html("tr", {}, html("th", { scope: "row" }, i < 30 ? `layer ${i}` : "the end"), html("td", {}, word.trim() || JSON.stringify(word)), html("td", {}, p.toFixed(2))));
    lens.replaceChildren(html("p", {}, html("label", { for: "attn-lens" }, "What it would say next, after "), " ", choose),
      html("div", { class: "attn-scrolls", tabindex: 0, role: "group", "aria-label": "Logit lens, scrolls" },
        html("table", {}, html("caption", {}, "The logit lens: the likeliest next token, read from the vector as it enters a layer"),
          html("thead", {}, html("tr", {}, ...["where", "guess", "probability"].map((name) => html("th", { scope: "col" }, name)))), html("tbody", {}, ...rows))));
  };
  const read = () => {
    lens.text = area.value;
    return run(`read(${JSON.stringify(area.value)})`, (found) => {
      if (found.written !== undefined) return written.replaceChildren(html("strong", {}, "It writes on: "), html("q", {}, found.written.trim()));
      const others = attn.published;
      attn.published = { own: found };
      Own.start = { sentence: "own", map: "before", layer: 16, head: 0, at: found.tokens.length - 1 };
      figure.replaceChildren(html("attn-own"));
      attn.published = others;
      written.textContent = "";
      return show_lens(found.tokens, found.tokens.length - 1, found.lens);
    });
  };
  const panel = html("div", { class: "attn-live attn-ask", role: "group", "aria-label": "Your own sentence" },
    html("label", { for: "attn-sentence" }, html("strong", {}, "Your own sentence."), " SmolLM2 reads it here, on your machine: tokens, all 270 heads, the logit lens, and what it writes."),
    html("div", { class: "attn-text" }, area), html("div", { class: "attn-tools" }, button("Read it", read)), note, said, figure, written, lens);
  ready.after(panel);
});
