/* Chapter 6: a query and a key, drawn as clock hands, turn by their positions; their product sees only the distance. */
customElements.define("attn-encoding", class extends attn.Figure {
  static title = "Encoding explorer";
  static start = { position: 3, step: 5 };
  static farthest = 64;
  static pair = [1, 0, 1, 0, 1, 0, 1, 0]; // the query and the key before they turn
  static tasks = [{
    ask: "Leave the distance as it is, and move the key. The query moves along. What becomes of their product?",
    guesses: { grows: "it grows", falls: "it falls", stays: "it stays" },
    right: (figure, met) => {
      const products = [...met].sort(([p], [r]) => p - r).map(([, product]) => product), change = products.at(-1) - products[0];
      return change > 1e-9 ? "grows" : change < -1e-9 ? "falls" : "stays";
    },
    done: ({ state: { position, step }, product }, met) => {
      if (met.step !== step) met.clear();
      met.step = step;
      return met.set(position, product).size === 3;
    },
    yet: (figure, met) => `${met.size} of 3 positions tried.`,
    seen: ({ state: { step } }, met) => `With the key at ${[...met.keys()].join(", ")} and the query ${step} further on, the product was ${[...met.values()].map((x) => attn.number(x)).join(", ")}.`,
  }, {
    ask: "Find a distance at which the two hands of pair 1 point opposite ways.",
    done: ({ shares, state: { step } }) => shares[1][4 * step] < -0.99,
    yet: ({ shares, state: { step } }) => `At distance ${step} pair 1 adds ${attn.number(shares[1][4 * step], 2)}.`,
    seen: ({ state: { step } }) => `At distance ${step} pair 1 has made half a turn. It now takes away what it added at distance 0.`,
  }];

  build() {
    const { html, svg, range } = attn, { farthest } = this.constructor;
    this.slider("position", "Position of the key", [0, 63, 1]);
    this.slider("step", "Distance", [0, farthest, 1]);
    this.presets("The two are", { neighbours: { step: 1 }, "far apart": { step: 60 } });

    this.heading = html("p", {}, "The key's hands in red, the query's dashed");
    this.clocks = svg("svg", { viewBox: "0 0 400 112", role: "img", style: "max-width: 28rem" });
    this.hands = range(4).map((i) => {
      const [x, y] = [50 + 100 * i, 42];
      const hands = ["attn-hand-k", "attn-hand-p"].map((kind) => svg("line", { class: kind, x1: x, y1: y }));
      const between = svg("path", { class: "attn-between" });
      const clock = svg("g", {}, svg("circle", { class: "attn-axis", cx: x, cy: y, r: 36 }), between, ...hands,
        svg("text", { x, y: y + 54, "text-anchor": "middle" }, `pair ${i}`), svg("path", { class: `attn-part attn-pair-${i}`, d: `M${x - 19} ${y + 61}h38` }));
      for (const [kind, lit] of [["pointerenter", true], ["pointerleave", false]]) clock.addEventListener(kind, () => this.parts[i].classList.toggle("attn-lit", lit));
      this.clocks.append(clock);
      return { between, hands, x, y };
    });

    this.chart = svg("svg");
    this.parts = range(4).map((i) => svg("polyline", { class: `attn-part attn-pair-${i}` }));
    this.curve = svg("polyline", { class: "attn-curve" });
    this.sum = svg("text", { class: "attn-name" }, "sum");
    this.handle = svg("g", { class: "attn-handle", tabindex: 0, role: "slider", "aria-label": "Distance",
      "aria-valuemin": 0, "aria-valuemax": farthest }, svg("circle", { r: 22, class: "attn-grip" }), svg("circle", { r: 6, class: "attn-mark" }));
    this.axes = svg("path", { class: "attn-axis" });
    this.marks = range(5).map((i) => svg("text", { y: 168, "text-anchor": "middle" }, String(16 * i)));
    this.chart.append(this.axes, ...["4", "0", "−4"].map((tick, i) => svg("text", { x: 54, y: 20 + 65 * i, "text-anchor": "end" }, tick)),
      ...this.parts, this.curve, this.sum, this.handle, svg("text", { x: 0, y: 168 }, "distance"), ...this.marks);
    attn.drag(this, this.chart, this.handle, (x) => this.walk(Math.round((x - 60) / this.unit)), (dx, dy) => this.walk(this.state.step + dx + dy));
    this.fit(this.chart);

    this.answer = html("p", { class: "attn-answer" });
    this.picture.append(html("div", { class: "attn-wide" }, this.heading, this.clocks, this.answer, this.chart));
  }

  walk(step) { this.set({ step: Math.max(0, Math.min(this.constructor.farthest, step)) }); }

  draw() {
    const { position: p, step: k } = this.state, { farthest, pair } = this.constructor, { number, range } = attn;
    const full = 2 * Math.PI, rates = range(4).map((i) => 10000 ** (-i / 4)), later = range(4 * farthest + 1).map((quarter) => p + quarter / 4);
    const rows = attn.rotary(later.map(() => pair), later, 10000), [here] = attn.rotary([pair], [p], 10000);
    this.shares = range(4).map((i) => rows.map((row) => row[2 * i] * here[2 * i] + row[2 * i + 1] * here[2 * i + 1]));
    const products = rows.map((_, quarter) => attn.sum(this.shares.map((share) => share[quarter])));
    this.product = products[4 * k];
    const wide = this.chart.clientWidth || 700, unit = this.unit = (wide - 72) / farthest;
    attn.put(this.chart, { viewBox: `0 0 ${wide} 174` });
    attn.put(this.axes, { d: `M60 8V154M60 81H${wide - 12}` });
    this.marks.forEach((mark, i) => attn.put(mark, { x: 60 + 16 * unit * i }));
    const X = (step) => 60 + unit * step, Y = (product) => 81 - 65 * product / 4;
    const line = (ys) => ys.map((y, quarter) => `${X(quarter / 4).toFixed(2)},${y.toFixed(2)}`).join(" ");

    // Hands turn through the whole angle.
    this.glide("hands", rates.flatMap((rate) => [rate * (p + k), rate * p]), (angles) => this.hands.forEach(({ between, hands, x, y }, i) => {
      const [late, early] = angles.slice(2 * i), along = (angle, r) => [x + r * Math.cos(angle), y - r * Math.sin(angle)];
      [late, early].forEach((angle, which) => {
        const [x2, y2] = along(angle, 34);
        hands[which].setAttribute("x2", x2);
        hands[which].setAttribute("y2", y2);
      });
      const rim = (angle) => along(angle, 20).map((at) => at.toFixed(2)).join(" "), apart = ((late - early) % full + full) % full;
      between.setAttribute("d", `M${rim(early)}A20 20 0 ${+(apart > Math.PI)} 0 ${rim(early + apart)}`);
    }));
    const many = later.length, curves = [products, ...this.shares];
    this.glide("curves", [X(k), Y(this.product), ...curves.flat().map(Y)], ([x, y, ...ys]) => {
      [this.curve, ...this.parts].forEach((part, i) => part.setAttribute("points", line(ys.slice(many * i, many * (i + 1)))));
      this.handle.setAttribute("transform", `translate(${x} ${y})`);
      attn.put(this.sum, { x: X(0) + 6, y: ys[0] - 4 });
    });
    this.handle.setAttribute("aria-valuenow", k);
    this.handle.setAttribute("aria-valuetext", `distance ${k}, product ${number(this.product)}`);
    this.answer.textContent = `What each pair adds to the product, and their sum: ${number(this.product)}`;
    const sentence = `Key at position ${p}, query at position ${p + k}: their product is ${number(this.product)}. `
      + `The pairs add ${this.shares.map((share) => number(share[4 * k], 2)).join(", ")}.`;
    this.clocks.setAttribute("aria-label", sentence);
    return sentence;
  }
});
