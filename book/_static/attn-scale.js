/* Chapter 2: widen random vectors and watch the scores spread, with and without the scale. */
customElements.define("attn-scale", class extends attn.Figure {
  static title = "Scores and weights against the width";
  static start = { power: 6, scale: "none", draw: 1 };
  static scales = { none: "none", root: "divide by √d", width: "divide by d" };
  // Of the largest weight, at widths 1, 2, 4, … 1,024: medians of 40,000 draws like those of the figure.
  static medians = {
    none: [0.2755, 0.3789, 0.5063, 0.6461, 0.7867, 0.8955, 0.9639, 0.9919, 0.999, 1, 1],
    root: [0.2755, 0.3053, 0.3212, 0.3282, 0.3327, 0.3325, 0.3346, 0.3355, 0.3357, 0.3362, 0.3352],
    width: [0.2755, 0.2506, 0.2176, 0.1902, 0.1707, 0.1566, 0.1471, 0.1405, 0.1359, 0.1327, 0.1304],
  };
  static both = (met) => Object.keys(this.scales).filter((name) => met.has(name + " 2") && met.has(name + " 10")); // seen at both widths
  static tasks = [{
    ask: "One of the three curves stays level from width 4 to width 1,024. Which division draws it? Choose one as the scale, and go to both widths; do the same with another, until you have met it.",
    guesses: { none: "none", root: "√d", width: "d" },
    right: (figure) => figure.steadiest(),
    done: ({ state: { scale, power } }, met) => {
      if (power === 2 || power === 10) met.set(`${scale} ${power}`, true);
      const both = this.both(met);
      return both.includes("root") && both.length > 1;
    },
    yet: (figure, met) => this.both(met).map((name) => `${figure.constructor.scales[name]}: ${attn.number(figure.typical(name, 2), 2)} at width 4, ${attn.number(figure.typical(name, 10), 2)} at 1,024.`).join(" "),
    seen: (figure, met) => Object.entries({ none: "Undivided", width: "Divided by d", root: "Divided by √d" }).filter(([scale]) => this.both(met).includes(scale))
      .map(([scale, name]) => `${name}, the largest weight is ${attn.number(figure.typical(scale, 2), 2)} at width 4 and ${attn.number(figure.typical(scale, 10), 2)} at 1,024 (medians of 40,000 draws).`).join(" "),
  }];
  build() {
    const { svg, range } = attn, { scales } = this.constructor;
    this.slider("power", "Width d", [0, 10, 1], (power) => (2 ** power).toLocaleString("en"));
    this.choice("scale", "Scale", scales);
    this.button("Draw new vectors", ({ draw }) => ({ draw: draw + 1 }));
    this.presets("Scores at", Object.fromEntries(Object.keys(scales).flatMap((scale) => [2, 10].map((power) =>
      [{ none: "", root: "÷√d, ", width: "÷d, " }[scale] + `d=${(2 ** power).toLocaleString("en")}`, { power, scale }]))));

    const text = (words, more = {}) => svg("text", more, words), end = { "text-anchor": "end" }, middle = { "text-anchor": "middle" };
    this.chart = this.picture.appendChild(svg("svg", { role: "img", class: "attn-lanes" }));
    this.spread = [svg("rect", { class: "attn-spread", y: 18, height: 146 }), text("", middle)];
    this.ticks = [-50, -5, 0, 5, 50].map((score) => [score, svg("path", { class: "attn-axis" }), text(attn.number(score, 0), { ...middle, y: 178 })]);
    this.ends = ["0", "1"].map((share) => text(share, { ...middle, y: 178 }));
    this.heads = [text("weights", middle), svg("path", { class: "attn-axis" })];
    this.lanes = range(8).map((j) => {
      const y = 30 + 18 * j;
      return [text(`key ${j}`, { x: 0, y: y + 4 }), svg("path", { class: "attn-stem" }), svg("circle", { class: "attn-score", cy: y, r: 5 }), text("", { y: y + 4 }),
        svg("rect", { class: "attn-weight", y: y - 7, height: 14 }), text("", { y: y + 4 })];
    });
    this.ghosts = range(8).map(() => svg("path", { class: "attn-was" })); // the scores before they are divided
    this.chart.append(...this.spread, ...this.ghosts, ...this.ticks.flatMap(([, ...parts]) => parts), ...this.ends, ...this.heads, ...this.lanes.flat());

    // The medians against the width, a curve for each scale; a curve has its name when the reader has been on it.
    this.plot = this.picture.appendChild(svg("svg", { role: "img", class: "attn-lanes" }));
    this.been = new Set();
    this.marks = ["1", "½", "⅛"].map((share, i) => [[1, 0.5, 0.125][i], svg("path", { class: "attn-grid" }), text(share, { ...end, x: 22 })]);
    this.widths = range(6).map((k) => [2 * k, text((4 ** k).toLocaleString("en"), { ...middle, y: 184 })]);
    this.axis = text("width d", { y: 184 });
    this.curves = Object.fromEntries(Object.keys(scales).map((scale) => [scale, [svg("path"), text("")]]));
    this.ring = svg("circle", { class: "attn-ghost", r: 10 });
    this.rider = svg("circle", { class: "attn-mark", r: 7 });
    this.said = text("", { class: "attn-name", ...end });
    this.plot.append(...this.marks.flatMap(([, ...parts]) => parts), ...this.widths.map(([, part]) => part), this.axis, text("median largest weight of 40,000 draws; dashed: this one", { x: 0, y: 13 }),
      ...Object.values(this.curves).flat(), this.ring, this.rider, this.said);
    this.fit(this.chart);
  }

  y(share) { return 166 - 140 * share; }

  x(power) { return 44 + (this.wide - 158) * power / 10; }

  /* The largest weight at this width, or between two. */
  typical(scale, power) {
    const row = this.constructor.medians[scale], low = Math.min(9, Math.floor(power));
    return row[low] + (power - low) * (row[low + 1] - row[low]);
  }

  /* The scale whose median moves least between the two widths of the task. */
  steadiest() {
    const moved = (scale) => Math.abs(this.typical(scale, 10) - this.typical(scale, 2));
    return Object.keys(this.constructor.scales).reduce((a, b) => (moved(b) < moved(a) ? b : a));
  }

  entries(draw) {
    const next = attn.random(draw * 7919), entry = () => (2 * next() - 1) * Math.sqrt(3);
    return attn.range(9).map(() => attn.range(1024).map(entry));
  }

  /* One query and eight keys of width 1024, entries uniform with mean 0 and variance 1. */
  vectors(draw) {
    if (this.drawn !== draw) [this.drawn, this.all] = [draw, this.entries(draw)];
    return this.all;
  }

  draw() {
    const { power, scale, draw } = this.state, { number, sum } = attn, d = 2 ** power;
    const [query, ...keys] = this.vectors(draw).map((row) => row.slice(0, d));
    const raw = attn.dot_score([query], keys)[0];
    let S = attn[scale === "root" ? "scaled_dot_score" : "dot_score"]([query], keys);
    if (scale === "width") S = S.map((row) => row.map((s) => s / d));
    const [scores, [weights]] = [S[0], attn.softmax(S)];

    const largest = Math.max(...weights), mean = sum(scores) / 8, spread = Math.sqrt(sum(scores.map((s) => (s - mean) ** 2)) / 8);
    const wide = this.wide = this.chart.clientWidth || 640, names = Object.keys(this.curves), half = wide * 0.31 - 30;
    if (this.sized !== wide) this.size(wide);
    this.glide("scores", [1.3 * Math.max(scale === "none" ? 50 : 5, ...scores.map(Math.abs)), ...scores, ...raw], ([reach, ...all]) => {
      const now = all.slice(0, 8), x = (score) => 52 + wide * 0.31 + half * score / reach, [shares] = attn.softmax([now]), [left, room] = [wide * 0.72, wide * 0.28 - 46];
      const middle = sum(now) / 8, off = Math.sqrt(sum(now.map((s) => (s - middle) ** 2)) / 8), [band, said] = this.spread;
      attn.put(band, { x: x(middle - off), width: 2 * (x(off) - x(0)) });
      attn.put(said, { x: x(0), y: 14 });
      said.textContent = `scores, spread ${number(off, 2)}` + (scale === "none" || wide < 500 ? "" : "; pale: undivided");
      for (const [score, line, name] of this.ticks) {
        const fits = score === 0 || (Math.abs(score) < reach && Math.abs(score) > reach / 4);
        attn.put(line, { d: fits ? `M${x(score)} 18V164` : "" });
        attn.put(name, { x: x(fits ? score : 0) });
        name.textContent = fits ? number(score, 0) : "";
      }
      this.lanes.forEach(([, stem, dot, score, share, weight], j) => {
        const y = 30 + 18 * j, left_of = now[j] < 0 || x(now[j]) + 52 > left, was = all[8 + j], way = Math.sign(was);
        attn.put(this.ghosts[j], { d: Math.abs(was) <= reach ? `M${x(0)} ${y}H${x(was)}` : `M${x(0)} ${y}H${x(way * reach) - 14 * way}m${4 * way} 0h${3 * way}m${4 * way} 0h${3 * way}` }); // what is longer is broken
        attn.put(stem, { d: `M${x(0)} ${y}H${x(now[j])}` });
        attn.put(dot, { cx: x(now[j]) });
        attn.put(score, { x: x(now[j]) + (left_of ? -9 : 9), "text-anchor": left_of ? "end" : "start" });
        attn.put(share, { x: left, width: room * shares[j] });
        attn.put(weight, { x: left + room * shares[j] + 5 });
        [score.textContent, weight.textContent] = [number(now[j], 2), number(shares[j])];
      });
    });
    this.been.add(scale);
    for (const [name, [curve, said]] of Object.entries(this.curves)) {
      curve.setAttribute("class", name === scale ? "attn-curve" : "attn-part");
      said.textContent = this.been.has(name) ? this.constructor.scales[name] : "?";
      said.classList.toggle("attn-answer", name === scale);
    }
    const typical = this.typical(scale, power);
    this.glide("rider", [power, ...names.map((name) => +(name === scale)), largest], ([at, ...parts]) => {
      const own = parts.pop(), y = this.y(sum(parts.map((part, k) => part * this.typical(names[k], at))));
      attn.put(this.rider, { cx: this.x(at), cy: y });
      attn.put(this.ring, { cx: this.x(at), cy: this.y(own) });
      attn.put(this.said, { x: this.x(at) + (y < 60 ? 12 : -8), y: y + (y < 60 ? 24 : -10) });
    });
    this.said.textContent = number(typical, 2);
    const sentence = `Width ${d.toLocaleString("en")}, scale: ${this.constructor.scales[scale]}. The scores spread by ${number(spread, 2)}; `
      + `key ${weights.indexOf(largest)} takes ${number(largest)} of the weight. In the median of 40,000 draws the best key takes ${number(typical)}.`;
    this.chart.setAttribute("aria-label", sentence);
    this.plot.setAttribute("aria-label", "Medians of the largest weight at widths 4, 64 and 1,024 where you have been: " + [...this.been].map((name) =>
      `${this.constructor.scales[name]}: ${[2, 6, 10].map((p) => number(this.typical(name, p), 2)).join(", ")}`).join("; ") + ".");
    return sentence;
  }

  /* What depends on the room alone. */
  size(wide) {
    this.sized = wide;
    this.chart.setAttribute("viewBox", `0 0 ${wide} 182`);
    this.plot.setAttribute("viewBox", `0 0 ${wide} 188`);
    const [left, right] = [wide * 0.72, wide - 46];
    attn.put(this.heads[0], { x: (left + right) / 2, y: 14 });
    attn.put(this.heads[1], { d: `M${left} 18V164` });
    this.ends.forEach((end, i) => attn.put(end, { x: [left, right][i] }));
    for (const [share, line, name] of this.marks) {
      attn.put(line, { d: `M${this.x(0)} ${this.y(share)}H${this.x(10)}` });
      attn.put(name, { y: this.y(share) + 4 });
    }
    attn.put(this.axis, { x: this.x(10) + 36 });
    for (const [power, name] of this.widths) attn.put(name, { x: this.x(power) });
    for (const [scale, [curve, name]] of Object.entries(this.curves)) {
      attn.put(curve, { d: "M" + attn.range(11).map((power) => `${this.x(power)} ${this.y(this.typical(scale, power))}`).join("L") });
      attn.put(name, { x: this.x(10) + 16, y: this.y(this.typical(scale, 10)) + 4 });
    }
  }
});
