/* Chapter 11: where the 270 heads of SmolLM2 look in four ready sentences.
   Needs attn-text.js, attn-published-data.js: the sentences, their losses, and every weight in 255ths. */
customElements.define("attn-published", class extends attn.Figure {
  static title = "The heads of a published model";
  static start = { sentence: "it", map: "pattern", layer: 16, head: 3, at: 10 };
  static layers = 30;
  static heads = 9;
  static maps = { first: "the first token", before: "the token before", itself: "the token itself", after: "the token after an earlier copy", pattern: "every token: the whole pattern" };
  static tasks = [{
    ask: "Show in the map the weight on the first token. How many of the 270 heads give it more than half, from the fifth token on?",
    guesses: { few: "fewer than 50", many: "50 to 200", most: "more than 200" },
    right: ({ scores }) => {
      const sinks = scores.filter((x) => x > 0.5).length;
      return sinks < 50 ? "few" : sinks > 200 ? "most" : "many";
    },
    done: ({ state: { map } }) => map === "first",
    seen: ({ scores }) => `${scores.filter((x) => x > 0.5).length} heads do, each with a dot, and on average the first token gets ${attn.number(attn.sum(scores) / 270, 2)}.`,
  }, {
    ask: "Show the weight on the token before, and choose the brightest square. Does the best of these heads stand low, in the middle or high?",
    guesses: { low: "in layers 0 to 9", middle: "in layers 10 to 19", high: "in layers 20 to 29" },
    right: ({ state: { layer } }) => ["low", "middle", "high"][Math.floor(layer / 10)],
    done: ({ state: { map }, best, chosen }) => map === "before" && chosen === best,
    seen: (figure) => {
      const { state: { layer, head }, scores, best, read } = figure, [least, most] = [Math.min, Math.max].map((end) => attn.number(end(...figure.given(figure.weights(read, best), read, "before")), 2));
      return `Layer ${layer}, head ${head} gives the token before ${attn.number(scores[best], 2)} of its weight in the mean, never less than ${least} here and at most ${most}. `
        + "Just above it, in layers 17 and 18, stand the heads that need to know it.";
    },
  }, {
    ask: "Choose “eight words, twice” and show the weight on the token after an earlier copy. How many heads put more than half of their weight there? Choose the best of them.",
    guesses: { one: "one or none", few: "2 to 20", many: "more than 20" },
    right: ({ scores }) => {
      const copying = scores.filter((x) => x > 0.5).length;
      return copying < 2 ? "one" : copying > 20 ? "many" : "few";
    },
    done: ({ state: { sentence, map }, best, chosen }) => sentence === "twice" && map === "after" && chosen === best,
    seen: ({ state: { layer, head }, scores, best, read: { losses } }) => {
      const half = (losses.length - 1) / 2, mean = (xs) => attn.number(attn.sum(xs) / xs.length, 1);
      return `${scores.filter((x) => x > 0.5).length} heads do; layer ${layer}, head ${head} with ${attn.number(scores[best], 2)}. `
        + `A word of the first copy costs ${mean(losses.slice(0, half))} nats, of the second, after its first, ${mean(losses.slice(half + 1))}.`;
    },
  }, {
    opens: { sentence: "it", map: "pattern" },
    ask: "The trophy again. What does “it” look at most, in layer 16, head 3, and what in layer 21, head 6?",
    guesses: { same: "both at the trophy", suitcase: "both at the suitcase", differ: "one at each" },
    right: (figure, met) => {
      const [one, other] = [...met.values()].map(([word]) => word);
      return one !== other ? "differ" : one === "trophy" ? "same" : "suitcase";
    },
    done: ({ state: { sentence, layer, head, at }, read }, met) => {
      const name = `${layer}, head ${head}`;
      if (sentence === "it" && read.words[at] === "it" && ["16, head 3", "21, head 6"].includes(name)) met.set(name, read.top[0]);
      return met.size === 2;
    },
    seen: (figure, met) => [...met].map(([head, [word, weight]]) => `Layer ${head}: “${word}”, ${attn.number(weight, 2)}.`).join(" ")
      + " Which of the two is too large is said only later, so neither head can know.",
  }];

  build() {
    const { html, svg, range } = attn, { layers, heads, maps } = this.constructor, whole = (top) => (x) => Number.isInteger(x) && x >= 0 && x < top;
    this.sentences = Object.fromEntries(Object.entries(attn.published).map(([key, { weights, ...read }]) =>
      [key, { ...read, words: read.tokens.map((token) => token.trim()), codes: Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0)) }]));
    this.choice("sentence", "Sentence", Object.fromEntries(Object.entries(this.sentences).map(([key, { name }]) => [key, name])));
    this.choice("map", "Map: the weight on", maps);
    Object.assign(this.fits, { layer: whole(layers), head: whole(heads), at: whole(99) });
    this.presets("Layer and head", Object.fromEntries([[11, 6], [16, 0], [16, 3], [18, 6], [18, 8], [21, 6]].map(([layer, head]) => [`${layer}.${head}`, { layer, head }])));

    const text = (words, more = {}) => svg("text", { "text-anchor": "middle", ...more }, words);
    this.squares = range(layers * heads).map(() => svg("rect", { height: 16 }));
    this.over = svg("path", { class: "attn-dots" }); // a dot on each square above a half
    this.marks = [0, 5, 10, 15, 20, 25, 29].map((layer) => [layer, text(String(layer), { y: 164 })]);
    this.handle = svg("g", { class: "attn-handle", tabindex: 0, role: "slider", "aria-label": "Head: arrow keys go to the next layer or head",
      "aria-valuemin": 0, "aria-valuemax": layers * heads - 1 }, this.grip = svg("rect", { class: "attn-grip", width: 24, height: 24 }), this.frame_of_head = svg("rect", { class: "attn-frame", height: 16 }));
    this.patterns = svg("image", { x: 42, y: 4, height: 16 * heads, preserveAspectRatio: "none" });
    this.chart = svg("svg", {}, ...this.squares, this.patterns, this.over, ...[0, 4, 8].map((head) => text(String(head), { x: 36, y: 16 + 16 * head, "text-anchor": "end" })),
      ...this.marks.map(([, mark]) => mark), text("head", { x: 16, y: 76, transform: "rotate(-90 16 76)" }), text("layer", { x: 0, y: 164, "text-anchor": "start" }), this.handle);
    const go = (layer, head) => this.set({ layer: Math.max(0, Math.min(layers - 1, layer)), head: Math.max(0, Math.min(heads - 1, head)) });
    attn.drag(this, this.chart, this.handle, (x, y) => go(Math.floor((x - 42) / this.unit), Math.floor((y - 4) / 16)),
      (dx, dy) => go(this.state.layer + dx, this.state.head - dy));
    this.fit(this.chart);
    this.chart_name = html("p");
    this.line = new attn.TextLine(this, Math.max(...Object.values(this.sentences).map(({ words }) => words.length)), "Token");
    this.line.line.classList.add("attn-tokens");
    this.key = html("p");
    this.rows = range(3).map(() => [html("th", { scope: "row" }), html("td", { class: "attn-bar" })]);
    const top = attn.table("", ["token", "weight"], this.rows);
    this.top_name = top.caption;
    top.classList.add("attn-close");
    this.square = html("canvas", { class: "attn-square", role: "img" });
    for (const kind of ["pointermove", "pointerdown"])
      this.square.addEventListener(kind, ({ offsetY }) => this.line.choose(Math.floor(offsetY / this.square.clientHeight * this.read.words.length)));
    this.frame_of_row = html("div", { class: "attn-row" });
    this.picture.append(html("div", { class: "attn-wide" }, this.chart_name, this.chart), html("div", {}, this.line.line, this.key, top),
      html("div", { style: "flex: 0 1 14rem" }, html("p", {}, "Rows are queries, columns keys"), html("div", { class: "attn-map" }, this.square, this.frame_of_row)));
  }

  again() {
    this.former = this.chosen = undefined;
    super.again();
  }

  /* The weights of a head, row by row; above the diagonal the file has nothing. */
  weights({ words: { length: n }, codes }, i) {
    const start = i * n * (n + 1) / 2;
    return attn.range(n).map((q) => [...codes.subarray(start + q * (q + 1) / 2, start + (q + 1) * (q + 2) / 2)].map((code) => code / 255));
  }

  /* The weights of all heads in one picture, as a map of each stands below. */
  painted(read) {
    if (read.painted) return read.painted;
    const { layers, heads } = this.constructor, n = read.words.length, canvas = attn.html("canvas", { width: layers * n, height: heads * n });
    const rows = this.squares.map((_, i) => this.weights(read, i));
    attn.pixels(canvas, attn.range(heads * n * layers * n).map((k) => {
      const x = k % (layers * n), y = Math.floor(k / (layers * n)), weight = rows[Math.floor(x / n) * heads + Math.floor(y / n)][y % n][x % n];
      return weight === undefined ? null : attn.colour("viridis", weight);
    }));
    return read.painted = canvas.toDataURL();
  }

  /* What a head gives, query by query, to what the map asks for. */
  given(A, { tokens }, map) {
    return {
      first: () => A.slice(4).map((row) => row[0]),
      before: () => A.slice(1).map((row, i) => row[i]),
      itself: () => A.slice(1).map((row, i) => row[i + 1]),
      after: () => A.map((row, i) => attn.range(i).filter((j) => tokens[j] === tokens[i]).map((j) => row[j + 1])).filter((found) => found.length).map(attn.sum),
    }[map]();
  }

  /* The mean of it, which the map shows; NaN where there is no such query. */
  score(A, read, map) {
    const queries = this.given(A, read, map);
    return attn.sum(queries) / queries.length;
  }

  draw() {
    const { sentence, layer, head } = this.state, { number, range } = attn, { heads, maps } = this.constructor;
    const read = this.read = this.sentences[sentence], { words, losses } = read, at = Math.min(this.state.at, words.length - 1);
    const chosen = layer * heads + head;
    if (chosen !== this.chosen) [this.former, this.chosen] = [this.chosen, chosen];
    // Where no token returns, there is no earlier copy: the map shows the token before in its place.
    const none = this.state.map === "after" && new Set(read.tokens).size === read.tokens.length, pattern = this.state.map === "pattern", map = none || pattern ? "before" : this.state.map;
    this.scores = range(this.squares.length).map((i) => this.score(this.weights(read, i), read, map));
    this.best = this.scores.indexOf(Math.max(...this.scores));
    const A = this.weights(read, this.chosen);
    read.top = words.slice(0, at + 1).map((word, j) => [word, A[at][j], j]).sort((a, b) => b[1] - a[1]);

    this.squares.forEach((square, i) => square.setAttribute("fill", pattern ? "transparent" : `rgb(${attn.colour("cividis", this.scores[i])})`));
    const wide = this.chart.clientWidth || 700;
    if (this.sized !== wide) this.size(wide);
    attn.put(this.patterns, { visibility: pattern ? "visible" : "hidden", href: pattern ? this.painted(read) : "" });
    attn.put(this.over, { visibility: pattern ? "hidden" : "visible", d: this.scores.map((x, i) => (x > 0.5 ? `M${42 + this.unit * (Math.floor(i / heads) + 0.5) - 2.5} ${12 + 16 * (i % heads)}a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0` : "")).join("") });
    attn.put(this.frame_of_head, { x: 42 + this.unit * layer, y: 4 + 16 * head });
    attn.put(this.grip, { x: 42 + this.unit * (layer + 0.5) - 12, y: 16 * head });
    this.chart_name.textContent = (none ? "No token of this sentence returns, so the map shows the token before. " : "") + (pattern ? "All 270 heads, each with its weights on every token. Drag the frame." : `All 270 heads: weight on ${maps[map]}, mean ${map === "first" ? "from the fifth token on" : "over the sentence"}. Dark 0, bright 1; a dot: over ½. Drag the frame.`);

    this.line.show(words, at, A[at], losses.map((loss) => loss / 2));
    const named = (i) => `layer ${Math.floor(i / heads)}, head ${i % heads}`, was = this.former === undefined ? null : this.weights(read, this.former)[at];
    this.line.letters.forEach((part, i) => part.style.setProperty("--former", i <= at && was ? `rgb(${attn.colour("viridis", was[i])})` : "transparent"));
    this.key.textContent = `Colour: weights of ${named(chosen)}, the brightest ${number(read.top[0][1], 2)}. ${was ? `Strip above: of ${named(this.former)}, the head before. ` : ""}Red foot: loss, full at 10 nats.`;
    this.top_name.textContent = `From “${words[at]}”, token ${at}, it looks most at`;
    this.rows.forEach(([name, bar], i) => {
      const [word, weight, j] = read.top[i] ?? [];
      name.textContent = word === undefined ? "–" : `“${word}”, ${j === at ? "itself" : `${at - j} back`}`;
      bar.textContent = word === undefined ? "–" : number(weight, 2);
      bar.style.setProperty("--share", weight ?? 0);
    });

    this.square.width = this.square.height = words.length;
    const brush = this.square.getContext("2d");
    range(words.length).forEach((i) => range(words.length).forEach((j) => {
      brush.fillStyle = `rgb(${attn.colour("viridis", A[i][j])})`;
      if (j <= i) brush.fillRect(j, i, 1, 1);
    }));
    for (const [side, i] of [["top", at], ["bottom", words.length - 1 - at]]) this.frame_of_row.style[side] = `${100 * i / words.length}%`;

    const [[word, weight]] = read.top, own = ` Over the sentence it gives ${number(this.scores[this.chosen], 2)} to ${maps[map]};`
      + ` the most of all heads is ${number(this.scores[this.best], 2)}, in layer ${Math.floor(this.best / heads)}, head ${this.best % heads}.`;
    const said = `Layer ${layer}, head ${head} looks from “${words[at]}” most at “${word}”, ${number(weight, 2)}.${own}`;
    this.square.setAttribute("aria-label", said);
    attn.put(this.handle, { "aria-valuenow": this.chosen, "aria-valuetext": `layer ${layer}, head ${head}.` + own });
    return said;
  }

  /* What depends on the room alone. */
  size(wide) {
    this.sized = wide;
    const unit = this.unit = (wide - 52) / this.constructor.layers, { heads } = this.constructor;
    attn.put(this.chart, { viewBox: `0 0 ${wide} 170` });
    this.squares.forEach((square, i) => attn.put(square, { x: 42 + unit * Math.floor(i / heads), y: 4 + 16 * (i % heads), width: unit }));
    attn.put(this.frame_of_head, { width: unit });
    attn.put(this.patterns, { width: unit * this.constructor.layers });
    for (const [layer, mark] of this.marks) attn.put(mark, { x: 42 + unit * (layer + 0.5) });
  }
});
