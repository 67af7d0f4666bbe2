/* Chapter 2: widen random vectors and watch the scores spread, with and without the scale. */
customElements.define("attn-scale", class extends attn.Figure {
  static title = "Scores and weights against the width";
  static start = { power: 6, scale: "none", draw: 1 };
  static scales = { none: "none", root: "divide by √d", width: "divide by d" };
  static tasks = [{
    ask: "Which division keeps the largest weight much the same from width 4 to width 1,024? Choose it as the scale, and go to both widths; do the same with another. One draw may deceive: the last line of the table is the median of 200.",
    guesses: { none: "none", root: "√d", width: "d" },
    right: (figure) => figure.steadiest(),
    done: ({ state: { scale, power } }, met) => {
      if (power === 2 || power === 10) met.set(`${scale} ${power}`, true);
      const both = ["none", "root", "width"].filter((name) => met.has(name + " 2") && met.has(name + " 10"));
      return both.includes("root") && both.length > 1;
    },
    seen: (figure, met) => Object.entries({ none: "Undivided", width: "Divided by d", root: "Divided by √d" })
      .filter(([scale]) => met.has(scale + " 2") && met.has(scale + " 10"))
      .map(([scale, name]) => `${name}, the largest weight is ${attn.number(figure.typical(scale, 2), 2)} at width 4 and ${attn.number(figure.typical(scale, 10), 2)} at 1,024 (medians of 200 draws).`).join(" "),
  }];
  static reach = 10; // the score at the end of the axis

  build() {
    const { html, svg, range } = attn;
    this.slider("power", "Width d", [0, 10, 1], (power) => String(2 ** power));
    this.choice("scale", "Scale", this.constructor.scales);
    this.button("Draw new vectors", ({ draw }) => ({ draw: draw + 1 }));
    this.presets("Case", {
      "8 dimensions, unscaled": { power: 3, scale: "none" }, "512, unscaled": { power: 9, scale: "none" },
      "512, over √512": { power: 9, scale: "root" }, "512, over 512": { power: 9, scale: "width" },
    });

    const bars = svg("svg", { viewBox: "0 0 400 232", role: "img" });
    this.chart = this.picture.appendChild(bars);
    bars.append(svg("text", { x: 122, y: 14, "text-anchor": "middle" }, "score"),
      svg("text", { x: 290, y: 14, "text-anchor": "middle" }, "weight"));
    this.bars = range(8).map((j) => {
      const y = 36 + 24 * j, bar = (kind) => svg("rect", { class: kind, y: y - 12, height: 16 });
      const line = [bar("attn-score"), svg("text", { x: 216, y, "text-anchor": "end" }), bar("attn-weight"),
        svg("text", { x: 396, y, "text-anchor": "end" })];
      bars.append(svg("text", { x: 2, y }, `key ${j}`), ...line);
      return line;
    });
    bars.append(svg("path", { class: "attn-axis", d: "M110 20V212M232 20V212" }),
      ...[[54, "−10"], [110, "0"], [166, "10"], [232, "0"], [340, "1"]].map(([x, text]) =>
        svg("text", { x, y: 228, "text-anchor": "middle" }, text)));

    const names = ["spread of the scores", "largest weight", "entropy of the weights", "size of the Jacobian", "largest weight, median of 200 draws"];
    this.measures = names.map(() => html("td"));
    // What has been visited stays: the medians against the width, a line for each scale.
    const plot = this.plot = svg("svg", { viewBox: "0 0 480 150", role: "img" });
    plot.append(svg("path", { class: "attn-axis", d: "M46 8V124H392" }),
      ...[[2, "4"], [6, "64"], [10, "1,024"]].map(([power, text]) => svg("text", { x: this.x(power), y: 142, "text-anchor": "middle" }, text)),
      ...[[0, "0"], [0.5, "½"], [1, "1"]].map(([share, text]) => svg("text", { x: 38, y: this.y(share) + 4, "text-anchor": "end" }, text)));
    this.visited = Object.fromEntries(Object.keys(this.constructor.scales).map((scale) => [scale, new Set()]));
    this.lines = Object.fromEntries(Object.keys(this.visited).map((scale) => [scale, plot.appendChild(svg("g"))]));
    this.picture.append(html("div", {}, attn.table("What softmax makes of them", ["measure", "value"],
      names.map((name, i) => [html("th", { scope: "row" }, name), this.measures[i]])), html("p", {}, "Largest weight against the width d, where you have been (medians):"), plot));
  }

  x(power) { return 46 + 33 * power; }

  y(share) { return 124 - 112 * share; }

  /* The largest weight at this width, the median of draws 1 to 200: products with the first d entries, for all widths at once. */
  typical(scale, power) {
    this.products ??= attn.range(200).map((k) => {
      const [query, ...keys] = this.entries(k + 1);
      return keys.map((key) => {
        const at = [];
        let total = 0;
        for (let l = 0; l < 1024; l++) {
          total += query[l] * key[l];
          if (((l + 1) & l) === 0) at.push(total); // l + 1 is a power of 2
        }
        return at;
      });
    });
    const d = 2 ** power, by = { none: 1, root: Math.sqrt(d), width: d }[scale];
    const largest = this.products.map((keys) => Math.max(...attn.softmax([keys.map((at) => at[power] / by)])[0])).sort((a, b) => a - b);
    return (largest[99] + largest[100]) / 2;
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
    let S = attn[scale === "root" ? "scaled_dot_score" : "dot_score"]([query], keys);
    if (scale === "width") S = S.map((row) => row.map((s) => s / d));
    const [scores, [weights]] = [S[0], attn.softmax(S)], top = this.constructor.reach;

    this.bars.forEach(([bar, score, share, weight], j) => {
      const end = 5.6 * Math.max(-top, Math.min(top, scores[j]));
      bar.setAttribute("x", 110 + Math.min(0, end));
      bar.setAttribute("width", Math.abs(end));
      bar.classList.toggle("attn-beyond", Math.abs(scores[j]) > top);
      score.textContent = number(scores[j], 2);
      share.setAttribute("x", 232);
      share.setAttribute("width", 108 * weights[j]);
      weight.textContent = number(weights[j]);
    });
    const mean = sum(scores) / 8, largest = Math.max(...weights);
    const spread = Math.sqrt(sum(scores.map((s) => (s - mean) ** 2)) / 8);
    const slopes = weights.flatMap((a, j) => weights.map((b, l) => a * ((j === l) - b)));
    const values = [spread, largest, attn.entropy(weights), Math.sqrt(sum(slopes.map((x) => x * x))), this.typical(scale, power)];
    values.forEach((x, i) => { this.measures[i].textContent = number(x, i ? 3 : 2); });
    this.mark(scale, power);
    const beyond = scores.filter((x) => Math.abs(x) > top).length;
    const sentence = `Width ${d}, scale: ${this.constructor.scales[scale]}. The scores spread by ${number(spread, 2)}; `
      + `key ${weights.indexOf(largest)} takes ${number(largest)} of the weight; the Jacobian has size ${number(values[3])}.`
      + (beyond ? ` Red: ${beyond === 1 ? "a score" : `${beyond} scores`} beyond ±${top}, cut off in the picture.` : "");
    this.chart.setAttribute("aria-label", sentence);
    return sentence;
  }

  mark(scale, power) {
    const { svg, number } = attn, { scales } = this.constructor;
    this.visited[scale].add(power);
    let free = 12; // names stand to the right of all dots, none over another
    const ends = Object.keys(this.lines).filter((name) => this.visited[name].size)
      .map((name) => [this.y(this.typical(name, Math.max(...this.visited[name]))) + 4, name]).sort(([a], [b]) => a - b);
    const at = Object.fromEntries(ends.map(([y, name]) => { const place = Math.max(y, free); free = place + 17; return [name, place]; }));
    for (const [name, line] of Object.entries(this.lines)) {
      const points = [...this.visited[name]].sort((a, b) => a - b).map((p) => [this.x(p), this.y(this.typical(name, p)), p]);
      line.replaceChildren(svg("path", { class: "attn-axis", d: points.map(([x, y], i) => (i ? "L" : "M") + x + " " + y).join("") || "M0 0" }),
        ...points.map(([x, y, p]) => svg("circle", { class: name === scale && p === power ? "attn-mark" : "attn-weight", cx: x, cy: y, r: 5 })),
        ...(name in at ? [svg("text", { x: 388, y: at[name] }, scales[name])] : []));
    }
    this.plot.setAttribute("aria-label", "Medians of the largest weight where you have been: " + Object.entries(this.visited).filter(([, at]) => at.size)
      .map(([name, at]) => `${scales[name]}: ` + [...at].sort((a, b) => a - b).map((p) => `${number(this.typical(name, p), 2)} at width ${2 ** p}`).join(", ")).join("; ") + ".");
  }
});
