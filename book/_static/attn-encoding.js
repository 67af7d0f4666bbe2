/* Chapter 6: turn the hands of the encoding, and compare one position with another. */
customElements.define("attn-encoding", class extends attn.Figure {
  static title = "Encoding explorer";
  static start = { position: 3, step: 5, width: "16", base: "10000" };
  static farthest = 64;
  static tasks = [{
    ask: "Leave the step as it is and move the position p. What becomes of the product of the two rows?",
    guesses: { grows: "it grows", falls: "it falls", stays: "it stays" },
    right: (figure, met) => {
      const products = [...met].sort(([p], [r]) => p - r).map(([, product]) => product), change = products.at(-1) - products[0];
      return change > 1e-9 ? "grows" : change < -1e-9 ? "falls" : "stays";
    },
    done: ({ state: { position, step, width, base }, product }, met) => {
      const set = [step, width, base].join();
      if (met.set_of !== set) met.clear();
      met.set_of = set;
      return met.set(position, product).size === 5;
    },
    seen: ({ state: { step } }, met) => `At the positions ${[...met.keys()].join(", ")}, the rows ${step} steps apart had the product ${[...met.values()].map((x) => attn.number(x)).join(", ")}.`,
  }, {
    ask: "Take base 10 and width 4. Find a step from 10 on at which a far position looks almost like the same one: a product of at least 1.9 of 2.",
    done: ({ state: { step, width, base }, product }) => width === "4" && base === "10" && step >= 10 && product >= 1.9,
    seen: ({ state: { step }, product }) => `At step ${step} both hands have come round together: ${attn.number(product)} of 2. With more hands that never happens here.`,
  }];

  build() {
    const { html, svg, range } = attn, { farthest } = this.constructor;
    this.slider("position", "Position p", [0, 63, 1]);
    this.slider("step", "Step k", [0, farthest, 1]);
    this.choice("width", "Width d", { 4: "4", 8: "8", 16: "16" });
    this.choice("base", "Base", { 10: "10", 100: "100", 10000: "10000" });
    this.presets("Encoding", {
      "2 hands, base 10": { width: "4", base: "10" }, "8 hands, base 10": { width: "16", base: "10" },
      "8 hands, base 10,000": { width: "16", base: "10000" },
    });

    this.clocks = svg("svg", { viewBox: "0 0 400 208", role: "img" });
    this.hands = range(8).map((i) => {
      const [x, y] = [50 + 100 * (i % 4), 46 + 106 * Math.floor(i / 4)];
      const hands = ["attn-hand-k", "attn-hand-p"].map((kind) => svg("line", { class: kind, x1: x, y1: y }));
      const clock = svg("g", {}, svg("circle", { class: "attn-axis", cx: x, cy: y, r: 36 }), ...hands,
        svg("text", { x, y: y + 52, "text-anchor": "middle" }, `hand ${i}`));
      this.clocks.append(clock);
      return { clock, hands, x, y };
    });

    this.chart = svg("svg", { viewBox: "0 0 400 190" });
    this.curve = svg("polyline", { class: "attn-curve" });
    this.ticks = range(3).map((i) => svg("text", { x: 34, y: 20 + 65 * i, "text-anchor": "end" }));
    this.handle = svg("g", { class: "attn-handle", tabindex: 0, role: "slider", "aria-label": "Step k",
      "aria-valuemin": 0, "aria-valuemax": farthest }, svg("circle", { r: 22, class: "attn-grip" }), svg("circle", { r: 6, class: "attn-mark" }));
    this.chart.append(svg("path", { class: "attn-axis", d: "M40 8V154M40 81H392" }), ...this.ticks, this.curve, this.handle,
      ...range(5).map((i) => svg("text", { x: 40 + 5.5 * 16 * i, y: 168, "text-anchor": "middle" }, String(16 * i))),
      svg("text", { x: 216, y: 185, "text-anchor": "middle" }, "step k"));
    attn.drag(this, this.chart, this.handle, (x) => this.walk(Math.round((x - 40) / 5.5)), (dx, dy) => this.walk(this.state.step + dx + dy));

    this.values = attn.heat("Row p: two columns for each hand", 8, ["sine", "cosine"]);
    this.answer = html("p", { class: "attn-answer" });
    this.picture.append(html("div", {}, html("p", {}, "Hands at p, in red, and at p + k, dashed"), this.clocks, html("p", {}, "Product of the rows p and p + k"), this.chart, this.answer), this.values.map);
  }

  walk(step) { this.set({ step: Math.max(0, Math.min(this.constructor.farthest, step)) }); }

  draw() {
    const { position: p, step: k } = this.state, { farthest } = this.constructor, { number } = attn;
    const d = +this.state.width, hands = d / 2;
    const P = attn.sinusoidal_encoding(p + farthest + 1, d, +this.state.base);
    const [products] = attn.dot_score([P[p]], P.slice(p)); // with all later positions
    this.product = products[k];
    const X = (step) => 40 + 5.5 * step, Y = (product) => 81 - 65 * product / hands;

    this.hands.forEach(({ clock, hands: [later, now], x, y }, i) => {
      clock.style.display = i < hands ? "" : "none";
      if (i < hands) [[later, p + k], [now, p]].forEach(([hand, row]) => {
        hand.setAttribute("x2", x + 34 * P[row][2 * i]);
        hand.setAttribute("y2", y - 34 * P[row][2 * i + 1]);
      });
    });
    this.clocks.setAttribute("viewBox", `0 0 400 ${hands > 4 ? 208 : 102}`);
    this.ticks.forEach((tick, i) => { tick.textContent = number(hands * (1 - i), 0); });
    this.curve.setAttribute("points", products.map((product, step) => `${X(step)},${Y(product).toFixed(2)}`).join(" "));
    this.handle.setAttribute("transform", `translate(${X(k)} ${Y(products[k])})`);
    this.handle.setAttribute("aria-valuenow", k);
    this.handle.setAttribute("aria-valuetext", `step ${k}, product ${number(products[k])}`);
    const values = attn.range(hands).map((i) => P[p].slice(2 * i, 2 * i + 2));
    this.values.show(values, values.map((_, i) => `hand ${i}`), "PuOr", (x) => (x + 1) / 2);
    [...this.values.map.tBodies[0].rows].forEach((row, i) => { row.hidden = i >= hands; });
    this.answer.textContent = `P${sub(p)} · P${sub(p + k)} = ${number(products[k])}`;
    const sentence = `Position ${p} and position ${p + k}: the product of their rows is ${number(products[k])}, of at most ${hands}. `
      + `The fastest hand has turned ${number(p / (2 * Math.PI), 2)} times, the slowest ${number(p * (+this.state.base) ** ((2 - d) / d) / (2 * Math.PI), 2)} times.`;
    this.clocks.setAttribute("aria-label", sentence);
    return sentence;

    function sub(n) { return [...String(n)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join(""); }
  }
});
