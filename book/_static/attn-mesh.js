/* Chapter 12: choose a length and a mesh of H100s, and see where the time of an attention layer goes. The model is
   attention_cost of attn_tutor.ledger, with 64 query heads and 8 heads of keys and values of width 128. */
customElements.define("attn-mesh", class extends attn.Figure {
  static title = "Seconds of attention against the mesh";
  static start = { length: 20, gpus: 10, heads: 0, exchange: "ring" };
  static exchanges = { ring: "ring", "double ring": "double ring", "all-to-all": "all-to-all" };
  static parts = { project: "projections", attend: "attention", wait: "waiting", reduce: "adding up heads", all: "one layer in all", traffic: "links busy" };

  static tasks = [{
    ask: "A million tokens on 1,024 GPUs, in a ring. How many GPUs should share the heads, so that the 80 layers take the least time? Try three numbers at least.",
    guesses: { 0: "1", 2: "4", 3: "8", 4: "16" },
    right: () => "3",
    done: ({ state: { length, gpus, heads, exchange }, total }, met) => {
      if (length === 20 && gpus === 10 && exchange === "ring" && total) met.set(heads, attn.number(total, 2));
      return met.size > 2 && met.has(3);
    },
    seen: (figure, met) => [...met].sort(([a], [b]) => a - b).map(([heads, seconds]) => `${2 ** heads}: ${seconds} s`).join(", ")
      + ". With few the ring's blocks are too short to hide the traffic; beyond eight the heads leave the node.",
  }, {
    ask: "The same GPUs and tokens, but nobody shares heads. What do tokens best meet by? Try all three.",
    guesses: { ring: "a ring", "double ring": "a double ring", "all-to-all": "an all-to-all" },
    right: () => "double ring",
    done: ({ state: { length, gpus, heads, exchange }, total }, met) => {
      if (length === 20 && gpus === 10 && heads === 0) met.set(exchange, total ? attn.number(total, 2) + " s" : "does not fit");
      return met.size === 3;
    },
    seen: (figure, met) => ["ring", "double ring", "all-to-all"].map((way) => `${way}: ${met.get(way)}`).join(", ")
      + ". In a double ring each adapter carries an eighth of what one of them carries in one ring.",
  }];

  build() {
    const { html, svg } = attn, power = (k) => (2 ** k).toLocaleString("en-US");
    this.slider("length", "Tokens", [13, 24, 1], power);
    this.slider("gpus", "GPUs", [0, 13, 1], power);
    this.slider("heads", "GPUs that share heads", [0, 6, 1], power);
    this.choice("exchange", "Tokens meet by", this.constructor.exchanges);
    this.presets("Tokens on GPUs", {
      "8,192 on 8": { length: 13, gpus: 3, heads: 3, exchange: "ring" },
      "131,072 on 64, ring": { length: 17, gpus: 6, heads: 0, exchange: "ring" },
      "131,072 on 64, all-to-all": { length: 17, gpus: 6, heads: 0, exchange: "all-to-all" },
      "a million on 1,024": { length: 20, gpus: 10, heads: 0, exchange: "ring" },
    });

    const ticks = [-3, -1, 1, 3, 5].map((power) => [this.x(10 ** power), (10 ** power).toLocaleString("en-US")]);
    this.chart = this.picture.appendChild(svg("svg", { viewBox: "0 0 400 224", role: "img" },
      svg("path", { class: "attn-part", style: "opacity: 0.4", d: ticks.map(([x]) => `M${x} 0V206`).join("") }),
      ...ticks.map(([x, ms], i) => svg("text", { x, y: 220, "text-anchor": ["start", "middle"][Math.min(i, 1)] }, ms + (i === 4 ? " ms" : "")))));
    this.bars = Object.entries(this.constructor.parts).map(([part, name], i) => {
      const y = 34 * i, kind = part === "wait" ? "attn-score attn-beyond" : part === "traffic" ? "attn-weight" : "attn-score";
      const bar = svg("rect", { class: kind, x: 0, y: y + 18, height: 13 }), ghost = svg("path", { class: "attn-ghost" }), text = svg("text", { class: "attn-name", x: 396, y: y + 13, "text-anchor": "end" });
      this.chart.append(bar, ghost, svg("text", { class: "attn-name", x: 2, y: y + 13 }, name), text);
      return { bar, text, ghost, y: y + 18 };
    });

    this.answer = html("p", { class: "attn-answer" });
    this.shape = ["tokens on each GPU", "GPUs in a ring or swap", "one step computes (ms)", "one message travels (ms)"];
    this.cells = this.shape.map(() => html("td"));
    const table = attn.table("Each GPU. Outlines: the setting before.", ["measure", "value"], this.shape.map((name, i) => [html("th", { scope: "row" }, name), this.cells[i]]));
    this.picture.append(html("div", {}, this.answer, table));
  }

  /* The place of milliseconds: 40 units for ten times as many, the same in every setting. What takes less than a microsecond has no bar. */
  x(ms) { return Math.max(0, 40 * Math.log10(1000 * ms)); }

  /* Seconds of one layer, part by part, or null where the mesh does not fit. */
  cost(n, context, tensor, exchange) {
    const flops = 989.4e12, link = 450e9, network = 50e9, node = 8, start = 8.4e-6, width = 128, all = 64, bytes = 2;
    if (n % context || all % tensor || (exchange === "all-to-all" && (all / tensor) % context)) return null;
    const tokens = n / context, here = all / tensor, kv = Math.ceil(8 / tensor);
    const joint = (span) => (span <= node ? [link, 3.4e-6] : [network, 14e-6]);
    const project = 4 * tokens * all * width * (here + kv) * width / flops;
    const attend = 4 * here * width * (n * (n + 1) / 2) / context / flops;
    const block = 2 * tokens * kv * width * bytes, near = Math.min(context, Math.max(1, Math.floor(node / tensor)));
    const sending = (span) => { const [rate, hop] = joint(span); return start + hop + block / rate; };
    const inner = exchange === "double ring" ? near : context, outer = context / inner, work = attend / context;
    const round = sending(inner * tensor), far = sending(context * tensor), idle = (inner - 1) * Math.max(0, round - work);
    let travel = outer > 1 ? far : round, traffic = outer * (inner - 1) * round + (outer - 1) * far;
    let wait = outer * idle + (outer - 1) * Math.max(0, far - inner * work - idle);
    if (exchange === "all-to-all") {
      const part = 2 * tokens * (here + Math.max(kv, context)) * width * bytes / context, hop = joint(context * tensor)[1];
      travel = context === 1 ? 0 : 2 * (start + hop) + Math.max((near - 1) * part / link, (context - near) * part / network);
      wait = traffic = travel;
    }
    const [inside, step] = joint(tensor), share = tokens * all * width * bytes / tensor;
    const reduce = tensor === 1 ? 0 : start + 2 * (tensor - 1) * (step + share / inside);
    return { project, attend, wait, reduce, traffic, travel, step: exchange === "all-to-all" ? attend : work };
  }

  draw() {
    const { length, gpus, heads, exchange } = this.state, { number } = attn;
    const n = 2 ** length, tensor = 2 ** heads, context = 2 ** (gpus - heads);
    const whole = (x) => x.toLocaleString("en-US");
    const c = context < 1 ? null : this.cost(n, context, tensor, exchange);
    const seconds = c && c.project + c.attend + c.wait + c.reduce;
    this.total = c && 80 * seconds;
    const now = Object.keys(this.constructor.parts).map((part) => c && 1e3 * (part === "all" ? seconds : c[part])), widths = now.map((ms) => this.x(ms));
    if (this.widths && String(widths) !== String(this.widths)) // what was before the last change stays as an outline
      this.bars.forEach(({ ghost, y }, i) => ghost.setAttribute("d", `M0 ${y - 2}h${this.widths[i]}v17H0`));
    this.widths = widths;
    this.bars.forEach(({ bar, text }, i) => {
      bar.setAttribute("width", widths[i]);
      text.textContent = c ? number(now[i], 2) + " ms" : "–";
    });
    const values = c ? [whole(n / context), whole(context), number(1e3 * c.step, 3), number(context > 1 ? 1e3 * c.travel : 0, 3)] : ["–", "–", "–", "–"];
    this.cells.forEach((cell, i) => { cell.textContent = values[i]; });
    this.answer.textContent = c ? `80 layers: ${number(80 * seconds, 2)} s` : "This mesh does not fit";
    const mesh = `${whole(n)} tokens on ${whole(2 ** gpus)} GPUs`;
    const sentence = c
      ? `${mesh}, context ${whole(context)} × tensor ${tensor}, ${exchange}: ${number(80 * seconds, 2)} seconds for 80 layers, `
        + `${number(100 * c.wait / seconds, 0)} percent of them waiting.`
      : `${mesh}: ` + (context < 1 ? `${tensor} cannot share heads among so few GPUs.`
        : `an all-to-all over ${whole(context)} GPUs needs as many heads, and each has ${64 / tensor}.`);
    this.chart.setAttribute("aria-label", sentence);
    return sentence;
  }
});
