/* Needs attn-ledger-data.js: chapter 12's ring, in time. Each GPU attends to one block of keys after the other, and a step
   lasts until the slowest GPU is done and the next blocks are there. */
customElements.define("attn-ring", class extends attn.Figure {
  static title = "Who waits in a ring";
  static start = { layout: "blocks", gpus: 2, tokens: 17, machines: "H100 8" };
  static layouts = { blocks: "consecutive blocks", striped: "stripes", zigzag: "zigzag" };
  static tasks = [{
    ask: "Four GPUs with consecutive blocks compute for a good half of the time. How is it with sixteen?",
    guesses: { eighth: "an eighth", half: "still half", most: "nearly all" },
    right: () => "half",
    done: ({ state: { layout, gpus } }) => layout === "blocks" && gpus === 4,
    seen: ({ shares: [busy] }) => `They compute ${attn.number(100 * busy, 0)} % of the time: the first GPUs run out of keys, and the last never does.`,
  }, {
    ask: "Eight H100s in eight nodes, with zigzag. How short may the text become before they wait for their links?",
    opens: { layout: "zigzag", gpus: 3, tokens: 19, machines: "H100 1" },
    guesses: { 19: "524,288 tokens", 16: "65,536", 13: "8,192" },
    right: () => "16",
    done: ({ state: { layout, gpus, tokens, machines } }, met) => {
      if (layout === "zigzag" && gpus === 3 && machines === "H100 1") met.set(tokens);
      return met.has(16) && met.has(15);
    },
    yet: (figure, met) => (met.has(16) || met.has(15) ? "" : "Make the text shorter."),
    seen: () => "With 65,536 tokens each has 8,192, and the messages are hidden. With half of them, they no longer are.",
  }];

  build() {
    const { html, svg, range } = attn;
    this.choice("layout", "Tokens in", this.constructor.layouts);
    this.slider("gpus", "GPUs", [1, 4, 1], (k) => 2 ** k);
    this.slider("tokens", "Tokens", [12, 20, 1], (k) => (2 ** k).toLocaleString("en-US"));
    this.choice("machines", "Machines", { "H100 8": "H100, 8 per node", "H100 1": "H100, 1 per node", "B200 72": "B200, 72 per node", "B200 1": "B200, 1 per node" });
    this.presets("Try", {
      "4 GPUs, blocks": { layout: "blocks", gpus: 2 }, "4 GPUs, zigzag": { layout: "zigzag", gpus: 2 }, "16 GPUs, blocks": { layout: "blocks", gpus: 4 },
    });
    const most = range(16);
    this.names = most.map(() => svg("text", { x: 44, "text-anchor": "end" }));
    this.work = most.map(() => most.map(() => svg("rect")));
    this.gaps = most.map(() => svg("rect", { class: "attn-idle", x: 0, width: 0 })); // of all GPUs at once, for links
    this.ends = most.map(() => svg("path", { class: "attn-link" }));
    this.drawing = svg("svg", { role: "img", class: "attn-mesh-drawing" }, ...this.ends, ...this.gaps, ...this.work.flat(), ...this.names);
    this.answer = html("p", { class: "attn-answer" });
    const tone = (kind, text) => html("b", { class: kind }, text);
    this.picture.append(html("div", {}, this.drawing, this.answer,
      html("p", {}, "Time runs to the right, and dotted lines end a step. A colour is a block of keys, which moves on to the next GPU. Empty: waiting for a slower GPU. ", tone("attn-of-greedy", "Red"), ": waiting for links.")));
    this.fit(this.drawing.parentNode);
  }

  /* Pairs of query and key that each GPU computes in each step, in tokens of its own: [GPU][step]. */
  static pairs(layout, p, mine) {
    const { range } = attn, half = mine / 2, own = mine * (mine + 1) / 2;
    const of = {
      blocks: (r, o) => (o === r ? own : o < r ? mine * mine : 0),
      striped: (r, o) => (o <= r ? own : own - mine),
      zigzag: (r, o) => 2 * half * half + (o === r ? half : 0),
    };
    return range(p).map((r) => range(p).map((step) => of[layout](r, (r - step + p) % p)));
  }

  /* When each step begins, how long its work and its messages take, in seconds. */
  static timing({ layout, gpus, tokens, machines: chosen }) {
    const { machines, layer: { heads, kv_heads, width } } = attn.ledger, [name, node] = chosen.split(" "), machine = machines[name];
    const p = 2 ** gpus, mine = 2 ** (tokens - gpus), near = p <= +node; // or the slowest message, between two nodes, sets the pace
    const pair = Math.max(4 * heads * width / machine.operations_per_second, heads / machine.exponentials_per_second);
    const rate = near ? machine.link_bytes_per_second : machine.network_bytes_per_second, hop = near ? machine.link_hop_seconds : machine.network_hop_seconds;
    const travel = machine.start_seconds + hop + 2 * mine * kv_heads * width * machine.number_bytes / rate;
    const work = this.pairs(layout, p, mine).map((row) => row.map((pairs) => pairs * pair));
    let end = 0;
    const steps = attn.range(p).map((step) => {
      const from = end, busy = Math.max(...work.map((row) => row[step]));
      end += step < p - 1 ? Math.max(busy, travel) : busy; // after the last step nothing is sent
      return { from, busy, end };
    });
    return { work, steps, travel, end };
  }

  draw() {
    const { put, number, range, sum } = attn, { state, constructor } = this, { timing, layouts } = constructor;
    const p = 2 ** state.gpus, { work, steps, end } = constructor.timing(state), wide = Math.max(330, this.drawing.parentNode.clientWidth || 700);
    const longest = Math.max(...Object.keys(layouts).map((layout) => constructor.timing({ ...state, layout }).end)); // so that one sees a layout save time
    const high = Math.min(28, 240 / p), place = (seconds) => 50 + (wide - 54) * seconds / longest;
    put(this.drawing, { viewBox: `0 0 ${wide} ${p * high + 4}` });
    const busy = sum(work.flat()) / (p * end), links = sum(steps.map((step) => step.end - step.from - step.busy)) / end;
    this.shares = [busy, 1 - busy - links, links];
    this.names.forEach((name, r) => {
      put(name, { y: (r + 0.5) * high + 4, visibility: r < p ? "visible" : "hidden" });
      name.textContent = `GPU ${r}`;
    });
    range(16).forEach((k) => {
      const step = steps[k] ?? { from: end, busy: 0, end };
      put(this.gaps[k], { x: place(step.from + step.busy), y: 1, width: place(step.end) - place(step.from + step.busy), height: p * high - 2 });
      put(this.ends[k], { d: k < p ? `M${place(step.end)} 0V${p * high}` : "", "stroke-dasharray": "1 3" });
      range(16).forEach((r) => {
        const owner = (r - k + p) % p, width = r < p && k < p ? place(work[r][k]) - 50 : 0;
        put(this.work[r][k], { x: place(step.from), y: r * high + 1, width: Math.max(0, width - (width > 3)), height: high - 2 });
        this.work[r][k].style.fill = `hsl(${170 + 130 * owner / p} 55% ${owner % 2 ? 38 : 55}%)`;
      });
    });
    const percent = (x) => number(100 * x, 0), time = `${number(1e3 * end, end < 0.01 ? 2 : 1)} ms`, tokens = (2 ** state.tokens / p).toLocaleString("en-US");
    this.answer.textContent = `${percent(busy)} % computing, ${percent(this.shares[1])} % waiting for slower GPUs, ${percent(links)} % for links; ${time}, ${tokens} tokens on each GPU`;
    const sentence = `${p} GPUs with ${tokens} tokens each in ${layouts[state.layout]}: they compute ${percent(busy)} percent of ${time}, wait ${percent(this.shares[1])} percent for slower GPUs and ${percent(links)} percent for links.`;
    this.drawing.setAttribute("aria-label", sentence);
    return sentence;
  }
});
