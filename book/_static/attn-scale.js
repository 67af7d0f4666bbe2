/* Chapter 2: widen random vectors and watch the scores spread, with and without the scale. */
customElements.define("attn-scale", class extends attn.Figure {
  static title = "Scores and weights against the width";
  static start = { power: 6, scale: "none", draw: 1 };
  static scales = { none: "none", root: "divide by √d", width: "divide by d" };
  static tasks = [{
    ask: "Which division keeps the largest weight much the same from width 4 to width 1,024? Choose it as the scale, and go to both widths; do the same with another.",
    guesses: { none: "none", root: "√d", width: "d" },
    right: () => "root",
    done: ({ state: { scale, power }, largest }, met) => {
      if (power === 2 || power === 10) met.set(`${scale} ${power}`, attn.number(largest, 2));
      const both = ["none", "root", "width"].filter((name) => met.has(name + " 2") && met.has(name + " 10"));
      return both.includes("root") && both.length > 1;
    },
    seen: (figure, met) => Object.entries({ none: "Undivided", width: "Divided by d", root: "Divided by √d" })
      .filter(([scale]) => met.has(scale + " 2") && met.has(scale + " 10"))
      .map(([scale, name]) => `${name}, the largest weight is ${met.get(scale + " 2")} at width 4 and ${met.get(scale + " 10")} at 1,024.`).join(" "),
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

    const names = ["spread of the scores", "largest weight", "entropy of the weights", "size of the Jacobian"];
    this.measures = names.map(() => html("td"));
    this.picture.append(attn.table("What softmax makes of them", ["measure", "value"],
      names.map((name, i) => [html("th", { scope: "row" }, name), this.measures[i]])));
  }

  /* One query and eight keys of width 1024, entries uniform with mean 0 and variance 1. */
  vectors(draw) {
    if (this.drawn !== draw) {
      const next = attn.random(draw * 7919), entry = () => (2 * next() - 1) * Math.sqrt(3);
      this.drawn = draw;
      this.all = attn.range(9).map(() => attn.range(1024).map(entry));
    }
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
    const mean = sum(scores) / 8, largest = this.largest = Math.max(...weights);
    const spread = Math.sqrt(sum(scores.map((s) => (s - mean) ** 2)) / 8);
    const slopes = weights.flatMap((a, j) => weights.map((b, l) => a * ((j === l) - b)));
    const values = [spread, largest, attn.entropy(weights), Math.sqrt(sum(slopes.map((x) => x * x)))];
    values.forEach((x, i) => { this.measures[i].textContent = number(x, i ? 3 : 2); });
    const sentence = `Width ${d}, scale: ${this.constructor.scales[scale]}. The scores spread by ${number(spread, 2)}; `
      + `key ${weights.indexOf(largest)} takes ${number(largest)} of the weight; the Jacobian has size ${number(values[3])}.`;
    this.chart.setAttribute("aria-label", sentence);
    return sentence;
  }
});
