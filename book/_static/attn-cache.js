/* Chapter 13: choose a design and a length, and see what the cache of one text weighs. Latents have 512 + 64
   numbers. Needs attn-ledger-data.js: what an H100 holds. The bill is cache_bytes of attn_tutor.ledger. */

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
  static names = { heads: "all KV heads (MHA)", groups: "8 KV heads (GQA)", latents: "latents (MLA)", one: "one KV head (MQA)" }; // from most bytes to least
  static tones = { heads: "first", groups: "second", latents: "copy", one: "back" };
  static windows = { all: "all tokens", window: "4 sinks and the last 4,096" };
  static kept = 4096 + 4; // tokens of a window
  static holds = attn.ledger.machines.H100.memory_bytes;
  static told = ([length, sizes]) => { // of a window, and of latents
    const [window, latents] = sizes.map(attn.size);
    return `at ${(2 ** length).toLocaleString("en-US")} tokens the window takes ${window} and latents ${latents}`;
  };
  static tasks = [{
    ask: "Llama 3 70B with latents for the whole text, or with its 8 KV heads for 4 sinks and the last 4,096 tokens: from which of these lengths onwards is the window smaller? Give the 8 KV heads the window, and look there.",
    guesses: { 12: "4,096", 14: "16,384", 17: "131,072" },
    right: (figure, met) => ["12", "14"].find((length) => met.has(+length) && met.get(+length)[0] < met.get(+length)[1]) ?? "17",
    done: ({ state: { model, length, heads, bits, window }, bytes, thin }, met) => {
      if (model === "llama" && heads === "groups" && bits === "16" && window === "window") met.set(length, [bytes, thin.latents]);
      return (met.has(12) || met.has(13)) && met.has(14);
    },
    yet: ({ state: { model, heads, bits } }, met) => (model !== "llama" || heads !== "groups" || bits !== "16" ? "The question is about Llama 3 70B with its 8 KV heads, at 16 bits." : met.size ? `So far: ${this.told([...met].at(-1))}.` : ""),
    seen: (figure, met) => `${[...met].filter(([length]) => length === 14 || length === (met.has(13) ? 13 : 12)).sort(([a], [b]) => a - b).map(this.told).join("; ").replace("a", "A")}. `
      + "It has not grown since 4,100 tokens, and latents go on.",
  }];

  build() {
    const { html, svg } = attn, { models, names, tones, windows, holds } = this.constructor, whole = (k) => (2 ** k).toLocaleString("en-US");
    this.slider("length", "Tokens", [10, 20, 1], whole);
    this.choice("heads", "Keeps", names);
    this.choice("bits", "Bits a number", { 16: "16", 8: "8", 4: "4" });
    this.choice("window", "Of", windows);
    this.fits.model = (model) => Object.hasOwn(models, model);
    this.presets("Model, as published", Object.fromEntries(Object.entries(models).map(([model, [name, heads]]) =>
      [name, { model, heads, bits: "16", window: "all" }])));
    const buttons = [...this.controls.lastChild.querySelectorAll("button")]; // the model stays pressed with other bits
    this.syncs.push(() => Object.keys(models).forEach((model, k) => buttons[k].setAttribute("aria-pressed", model === this.state.model)));

    const end = { "text-anchor": "end" }, middle = { "text-anchor": "middle" }, text = (words, more) => svg("text", more, words);
    this.full = [svg("rect", { class: "attn-over", x: 64, y: 8, height: this.y(Math.log2(holds)) - 8 }), svg("path", { class: "attn-reach" })]; // more than an H100 holds
    this.axis = svg("path", { class: "attn-axis" });
    this.marks = [10, 12, 14, 16, 18, 20].map((power) => [power, text(whole(power) + (power === 20 ? " tokens" : ""), { ...middle, y: 249 })]);
    this.lines = Object.keys(names).map((kind) => ({
      line: svg("path", { class: `attn-tone attn-${tones[kind]}` }), dot: svg("circle", { class: `attn-tone attn-${tones[kind]}`, r: 4 }),
      name: text("", { class: `attn-tone attn-${tones[kind]}` }), bytes: text("", { class: "attn-bytes", ...end }), bar: svg("rect", { class: `attn-of-bytes attn-${tones[kind]}`, height: 3 }),
    }));
    // The choice among the bytes of all, where it is none of them
    this.own = { name: text("your choice", { class: "attn-name" }), bytes: text("", { class: "attn-bytes attn-name", ...end }), bar: svg("rect", { class: "attn-of-bytes", height: 3 }) };
    this.mine = svg("path", { style: "stroke-width: 5" });
    this.less = { span: svg("path", { class: "attn-between" }), share: text("", { class: "attn-name" }) }; // than all heads
    this.ring = [svg("circle", { class: "attn-ghost", r: 10 }), text("", { class: "attn-name", ...end })]; // where a window comes below the latents, once the task is done
    this.cursor = svg("path", { class: "attn-axis" });
    this.dot = svg("circle", { r: 7 });
    this.handle = svg("g", { class: "attn-handle", tabindex: 0, role: "slider", "aria-label": "Length of the text", "aria-valuemin": 1024, "aria-valuemax": 2 ** 20 },
      svg("circle", { class: "attn-grip", r: 14 }), this.dot);
    this.when = text("", { y: 14, ...end });
    this.chart = svg("svg", { class: "attn-lanes" }, ...this.full, this.when, this.axis,
      ...[25, 30, 35, 40].map((power) => text(attn.size(2 ** power).replace(".00", ""), { x: 59, y: this.y(power) + 4, ...end })),
      text("one H100", { x: 70, y: this.y(Math.log2(holds)) - 5 }), ...this.marks.map(([, mark]) => mark), this.cursor, this.less.span,
      ...this.lines.flatMap(({ line, dot, name, bytes, bar }) => [line, dot, name, bytes, bar]), ...Object.values(this.own), this.mine, this.less.share, ...this.ring, this.handle);
    this.each = html("span");
    this.picture.append(this.chart, html("p", {}, "Thick: your choice of ", this.each, `. Thin: 16 bits, all tokens. Red: more than the ${holds / 1e9} GB of one H100, with no room for weights yet.`));
    const go = (length) => this.set({ length: Math.min(20, Math.max(10, length)) });
    attn.drag(this, this.chart, this.handle, (x) => go(Math.round(10 + (x - 64) * 10 / (this.x(20) - 64))), (dx, dy) => go(this.state.length + dx + dy));
    this.fit(this.chart);
  }

  /* Places of a length and of bytes, both as powers of two; names and bytes stand beyond the last. */
  x(length) { return 64 + (this.wide - (this.wide < 500 ? 176 : 264)) * (length - 10) / 10; }

  y(bytes) { return 232 - 10.5 * (bytes - 22); }

  draw() {
    const { length, heads, bits, window } = this.state, { models, names: { ...names }, tones, windows, kept, holds } = this.constructor, { size } = attn;
    const [model, , layers, many, width] = models[this.state.model], tokens = 2 ** length, held = window === "all" ? tokens : Math.min(tokens, kept);
    names.heads = `${many} KV heads (MHA)`;
    const rows = { heads: 2 * many * width, groups: 2 * 8 * width, latents: 512 + 64, one: 2 * width }; // numbers a token and layer
    const bill = (kind, tokens, bits) => Math.floor(layers * tokens * rows[kind] * bits / 8), kinds = Object.keys(names);
    this.thin = Object.fromEntries(kinds.map((kind) => [kind, bill(kind, tokens, 16)]));
    this.bytes = bill(heads, held, bits);
    const wide = this.wide = this.chart.clientWidth || 640, right = this.x(20);
    kinds.forEach((kind, i) => {
      const { name, bytes, bar } = this.lines[i], long = 76 * this.thin[kind] / this.thin.heads;
      name.textContent = wide < 500 ? names[kind].match(/\((.*)\)/)[1] : names[kind]; // the short name where there is little room
      bytes.textContent = size(this.thin[kind]);
      attn.put(name, { x: right + 8 });
      attn.put(bytes, { x: wide });
      attn.put(bar, { x: wide - 76, width: long }); // beside lines on a logarithmic axis the bytes as they are
    });
    const own = this.bytes === this.thin[heads] ? "hidden" : "visible";
    this.own.name.textContent = wide < 500 ? "yours" : "your choice";
    this.own.bytes.textContent = size(this.bytes);
    attn.put(this.own.name, { x: right + 8, visibility: own });
    attn.put(this.own.bytes, { x: wide, visibility: own });
    attn.put(this.own.bar, { x: wide - 76, width: Math.min(76, 76 * this.bytes / this.thin.heads), visibility: own, class: `attn-of-bytes attn-${tones[heads]}` });
    this.when.textContent = `at ${tokens.toLocaleString("en-US")} tokens`;
    attn.put(this.when, { x: wide });
    attn.put(this.chart, { viewBox: `0 0 ${wide} 256` });
    attn.put(this.axis, { d: `M64 8V232H${right}` });
    attn.put(this.full[0], { width: right - 64 });
    attn.put(this.full[1], { d: `M64 ${this.y(Math.log2(holds))}H${right}` });
    for (const [power, mark] of this.marks) attn.put(mark, { x: this.x(power), visibility: wide < 500 && power % 10 && power !== 14 ? "hidden" : "visible" });
    const times = this.thin.heads / this.bytes;
    this.less.share.textContent = times > 1.05 ? `1/${attn.number(times, times >= 100 || Math.abs(times - Math.round(times)) < 0.05 ? 0 : 1)} of MHA` : "";
    for (const part of [this.mine, this.dot]) part.setAttribute("class", `attn-tone attn-${tones[heads]}`);
    const first = [...kinds.map((kind) => bill(kind, 1024, 16)), bill(heads, 1024, bits)];
    this.glide("lines", [length, window === "all" ? 20 : Math.log2(kept), ...first.map(Math.log2)], (now) => this.paint(now));
    this.each.textContent = `${model}, ${size(this.bytes / held)} per ${window === "all" ? "token" : "kept token"}`;
    const sentence = `${model} with ${names[heads]}, ${bits} bits, ${windows[window]}: a text of ${tokens.toLocaleString("en-US")} tokens takes ${size(this.bytes)}.`;
    attn.put(this.handle, { "aria-valuenow": tokens, "aria-valuetext": sentence });
    return sentence;
  }

  /* Lines that rise with the length, each from its bytes at 1,024 tokens; the last stops rising where its window is full. */
  paint([length, full, ...first]) {
    const at = this.x(length), mine = first.pop(), { put } = attn, rise = (from, to) => `M${this.x(10)} ${this.y(from)}L${this.x(to)} ${this.y(from + to - 10)}`;
    put(this.cursor, { d: `M${at} 8V232` });
    let row = 18; // of the length
    this.lines.forEach(({ line, dot, name, bytes, bar }, i) => {
      put(line, { d: rise(first[i], 20) });
      put(dot, { cx: at, cy: this.y(first[i] + length - 10) });
      row = Math.max(row + 18, this.y(first[i] + 10) + 4); // names never stand on each other
      for (const text of [name, bytes]) put(text, { y: row });
      put(bar, { y: row + 3 });
    });
    put(this.own.name, { y: row + 24 });
    put(this.own.bytes, { y: row + 24 });
    put(this.own.bar, { y: row + 27 });
    const y = this.y(mine + Math.min(length, full) - 10);
    const meet = mine + full - first[2];
    put(this.ring[0], { cx: this.x(meet), cy: this.y(mine + full - 10) });
    const beside = this.wide < 500 ? { x: this.x(meet) + 12, y: 38, "text-anchor": "start" } : { x: this.x(meet) - 8, y: -14, "text-anchor": "end" };
    put(this.ring[1], { ...beside, y: this.y(mine + full - 10) + beside.y });
    const crossed = this.task.done && full < meet && meet < 20;
    this.ring[1].textContent = crossed ? `${(100 * Math.round(2 ** meet / 100)).toLocaleString("en-US")} tokens` : "";
    put(this.ring[0], { visibility: crossed ? "visible" : "hidden" });
    put(this.mine, { d: rise(mine, full) + `H${this.x(20)}` });
    put(this.handle, { transform: `translate(${at} ${y})` });
    const top = this.y(first[0] + length - 10), room = at > 150; // left of the first line's dot nothing runs, nor at the foot
    put(this.less.span, { d: `M${at} ${top}V${y}` });
    put(this.less.share, room ? { x: at - 8, y: top - 8, "text-anchor": "end" } : { x: at + 6, y: 226, "text-anchor": "start" });
  }
});
