/* Chapter 13: choose a design and a length, and see what the cache of one text weighs. The bill is cache_bytes of
   attn_tutor.ledger; latents have 512 + 64 numbers. */

/* Bytes in the unit that leaves at least one. */
attn.size = (bytes) => {
  const unit = ["bytes", "KiB", "MiB", "GiB", "TiB"], step = Math.max(0, Math.floor(Math.log2(bytes) / 10));
  return `${attn.number(bytes / 1024 ** step, step ? 2 : 0)} ${unit[step]}`;
};

customElements.define("attn-cache", class extends attn.Figure {
  static title = "Bytes of a cache against the length of the text";
  static start = { model: "llama", length: 17, heads: "groups", bits: "16", window: "all" };
  /* [name, what it keeps, layers, heads, width of a head]: Brown et al. (2020), table 2.1; Grattafiori et al. (2024), table 3;
     Chowdhery et al. (2023), table 1; DeepSeek-AI (2024), section 3.1.2 */
  static models = {
    gpt: ["GPT-3 175B", "heads", 96, 96, 128], llama: ["Llama 3 70B", "groups", 80, 64, 128],
    palm: ["PaLM 540B", "one", 118, 48, 256], deepseek: ["DeepSeek-V2", "latents", 60, 128, 128],
  };
  static names = { heads: "all heads (MHA)", groups: "8 groups (GQA)", one: "one head (MQA)", latents: "latents (MLA)" };
  static windows = { all: "all tokens", window: "4 sinks and the last 4,096" };
  static tasks = [{
    ask: "Llama 3 70B with latents for the whole text, or with its 8 groups for 4 sinks and the last 4,096 tokens, both at 16 bits: from which of these lengths on is the window the smaller one? Look at both designs, at two lengths.",
    guesses: { 12: "4,096", 14: "16,384", 17: "131,072" },
    right: () => "14",
    done: ({ state: { model, length, heads, bits, window }, bytes }, met) => {
      const kind = bits !== "16" || model !== "llama" ? "" : heads === "latents" && window === "all" ? "latents" : heads === "groups" && window === "window" ? "window" : "";
      if (kind) met.set(kind + length, attn.size(bytes));
      return [13, 14].every((at) => met.has("latents" + at) && met.has("window" + at));
    },
    seen: (figure, met) => `At 8,192 tokens latents take ${met.get("latents13")} and the window ${met.get("window13")}; at 16,384 it is ${met.get("latents14")} against ${met.get("window14")}, and from there on the window no longer grows.`,
  }];

  build() {
    const { html, svg } = attn, { models, names, windows } = this.constructor;
    this.slider("length", "Tokens", [10, 20, 1], (length) => (2 ** length).toLocaleString("en-US"));
    this.choice("heads", "Keeps", names);
    this.choice("bits", "Bits a number", { 16: "16", 8: "8", 4: "4" });
    this.choice("window", "Of", windows);
    this.fits.model = (model) => Object.hasOwn(models, model);
    this.presets("Model, as published", Object.fromEntries(Object.entries(models).map(([model, [name, heads]]) =>
      [name, { model, heads, bits: "16", window: "all" }])));

    const chart = svg("svg", { viewBox: "0 0 400 130", role: "img" });
    this.chart = this.picture.appendChild(chart);
    this.bars = Object.keys(names).map((_, i) => {
      const y = 22 + 32 * i, line = [svg("rect", { x: 128, y: y - 13, height: 18 }), svg("text", { x: 396, y, "text-anchor": "end" }), svg("text", { x: 2, y })];
      chart.append(...line);
      return line;
    });
    chart.append(svg("path", { class: "attn-axis", d: "M128 4V126" }));
    this.answer = html("p", { class: "attn-answer" });
    this.picture.append(this.answer);
  }

  draw() {
    const { length, heads, bits, window } = this.state, { models, windows } = this.constructor, { size } = attn;
    const [model, , layers, many, width] = models[this.state.model], names = { ...this.constructor.names, heads: `${many} heads (MHA)` };
    const tokens = 2 ** length, held = window === "all" ? tokens : Math.min(tokens, 4096 + 4);
    const rows = { heads: 2 * many * width, groups: 2 * 8 * width, one: 2 * width, latents: 512 + 64 }; // numbers a token and layer
    const bills = Object.fromEntries(Object.entries(rows).map(([kind, row]) => [kind, Math.floor(layers * held * row * bits / 8)]));
    Object.keys(rows).forEach((kind, i) => {
      this.bars[i][0].setAttribute("width", 180 * bills[kind] / bills.heads);
      this.bars[i][0].setAttribute("class", kind === heads ? "attn-weight" : "attn-score");
      this.bars[i][1].textContent = size(bills[kind]);
      this.bars[i][2].textContent = names[kind];
    });
    this.bytes = bills[heads];
    this.answer.textContent = `${size(this.bytes)} for one text, ${size(this.bytes / held)} a token held`;
    const sentence = `${model} with ${names[heads]}, ${bits} bits, ${windows[window]}: a text of ${tokens.toLocaleString("en-US")} tokens takes ${size(this.bytes)}.`;
    this.chart.setAttribute("aria-label", sentence);
    return sentence;
  }
});
