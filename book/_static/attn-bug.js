/* The failure gallery: one of its bugs is in a small layer. Probe it, watch weights and outputs, and name the bug.
   Needs attn-bugs.js: the layer, and what is wrong with it. */
customElements.define("attn-bug", class extends attn.Figure {
  static title = "Find the bug in a layer of attention";
  static start = { probe: "none", sentence: "0", head: "0", named: "?", seed: 1 };
  static texts = ["the cat sat down", "a dog barked ∎", "rain fell all night", "he slept ∎ ∎"].map((text) => text.split(" "));
  /* [what is done, what a right layer must do then] */
  static probes = {
    none: ["as it stands", "Rows must sum to 1, and hidden keys (dashed) get 0: later ones and pads (∎)."],
    last: ["new last token", "Only the last output may change."],
    swap: ["swap tokens 0 and 1", "All positions are 0: the outputs of tokens 2 and 3 must stay."],
    flat: ["all positions 0", "By hand and in the layer must agree here too."],
    shift: ["positions + 1,000", "Only distances count: nothing may change."],
    pad: ["token 0 a pad", "Its column must be 0, and its row too: it may see nothing."],
    other: ["other sentences", "All else in the batch is new: nothing may change here."],
    heads: ["swap heads 0 and 1", "Query heads, with their rows of W_o: no output may change."],
    large: ["inputs × 100", "Hidden keys must keep the weight 0."],
    again: ["a second call", "Nothing may change."],
    cached: ["with a cache", "Nothing may change."],
    gpus: ["on two GPUs", "Nothing may change."],
  };
  static wrong(figure) {
    return figure.differs(figure.run(figure.bug, "none"), figure.run("none", "none"));
  }
  static tasks = [{
    ask: "One of 21 bugs is in this layer. Are its numbers wrong already as they stand? Guess after a look at all heads, then probe, and name the bug.",
    guesses: { yes: "wrong as it stands", no: "right, until something is done to it" },
    right: (figure) => (figure.constructor.wrong(figure) ? "yes" : "no"),
    done: (figure, met) => {
      met.set("seed", figure.state.seed);
      return figure.state.named === figure.bug;
    },
    seen: (figure) => figure.verdict(),
  }, {
    ask: "Press “Another layer”. How many probes and names will you need until its bug is named? A wrong name counts as much as a probe.",
    guesses: { 1: "at most 1", 3: "2 or 3", 6: "4 to 6", 12: "more" },
    right: ({ count }) => ["1", "3", "6", "12"].find((most) => count <= +most) ?? "12",
    done: (figure, met) => {
      if (!met.has("seed")) met.set("seed", figure.state.seed);
      return figure.state.seed !== met.get("seed") && figure.state.named === figure.bug;
    },
    seen: (figure) => `${figure.log()} ` + figure.verdict(),
  }];

  build() {
    const { html, range, bugs } = attn, { probes, texts } = this.constructor, names = (list) => Object.fromEntries(Object.entries(list).map(([key, [name]]) => [key, name]));
    this.fits.seed = (seed) => Number.isInteger(seed) && seed > 0;
    this.choice("sentence", "Sentence", Object.fromEntries(texts.map((text, b) => [b, text.join(" ")])));
    this.button("Another layer", ({ seed }) => ({ ...this.constructor.start, seed: seed + 1 }));
    this.presets("Layer", Object.fromEntries(Object.entries({ easy: 10, harder: 13, hard: 16 }).map(([name, seed]) => [name, { ...this.constructor.start, seed }])));
    Object.assign(this.fits, { probe: (probe) => Object.hasOwn(probes, probe), head: (head) => ["0", "1", "2", "3"].includes(head) });
    this.presets("Probe", Object.fromEntries(Object.entries(probes).map(([probe, [name]]) => [name, { probe }])));
    this.minis = range(4).map((head) => {
      const [was, map] = range(2).map(() => html("canvas", { width: 4, height: 4, "aria-hidden": "true" })), name = html("span"), button = attn.button("", () => this.set({ head: String(head) }));
      button.append(was, map, name); // before a probe, and after it
      return { map, was, name, button };
    });
    this.control(html("div", { class: "attn-buttons attn-minis", role: "group", "aria-label": "Head" }, ...this.minis.map(({ button }) => button)), () =>
      this.minis.forEach(({ button }, head) => button.setAttribute("aria-pressed", String(head) === this.state.head)));
    const { controls } = this, ask = this.controls = html("div", { class: "attn-controls" });
    this.commit("named", "The bug is", { "?": "not named yet", ...names(bugs) }, "Name it");
    this.controls = controls;

    this.must = html("p", { class: "attn-answer" });
    this.map = attn.heat("Weights of the pressed head: rows are queries", 5, ["", "", "", "", "sum"], 4);
    this.sums = this.map.map.tBodies[0].rows[4];
    this.out = attn.heat("Outputs: 4 of 8 numbers", 4, ["0", "1", "2", "3", "moved"], 4);
    for (const { map } of [this.map, this.out]) map.classList.add("attn-close");
    this.hand = range(3).map(() => [html("th", { scope: "row" }), html("td"), html("td")]);
    this.asks = html("p");
    this.found = html("p");
    this.notes = html("ol");
    this.by_hand = html("details", {}, html("summary", {}, "Scores by hand"), this.asks, attn.table("Differences of scores", ["key", "by hand", "in the layer"], this.hand));
    this.picture.append(this.must, html("div", {}, this.map.map), html("div", {}, this.out.map),
      html("div", { class: "attn-notebook", role: "group", "aria-label": "Notebook" }, ask, this.found, this.notes, html("p", {}, "Squares: the four outputs; discs: the heads. Red: what a right layer does not do; grey: moved as it may.")), this.by_hand);
  }

  /* Probes and names so far; the right name is not counted. */
  get count() { return this.noted.size; }

  log() {
    const { probes } = this.constructor, list = (keys) => `${keys.length}${keys.length ? ` (${keys.map((key) => probes[key]?.[0] ?? `“${attn.bugs[key.slice(1)][0]}”`).join("; ")})` : ""}`;
    const keys = [...this.noted.keys()];
    return `Probes: ${list(keys.filter((key) => key[0] !== "!"))}. Wrong names: ${list(keys.filter((key) => key[0] === "!"))}.`;
  }

  again() {
    this.drawn = null; // the notebook too
    super.again();
  }

  get bug() { return Object.keys(attn.bugs)[(8 * this.state.seed + 9) % 21]; }

  /* The same matrices for all layers; the sentences are drawn by the seed. */
  inputs() {
    const { seed } = this.state, { range } = attn, { texts } = this.constructor;
    if (this.drawn === seed) return this.given;
    const entries = (next, size) => (n, d) => range(n).map(() => range(d).map(() => size * (2 * next() - 1)));
    const matrix = entries(attn.random(4711), 1), token = entries(attn.random(7919 * seed), 1.5);
    this.drawn = seed;
    this.noted = new Map(); // what each probe showed, and wrong names after an exclamation mark, as they came
    this.known = new Map();
    return this.given = {
      W: { q: matrix(8, 16), k: matrix(8, 8), v: matrix(8, 8), o: matrix(16, 8), b: matrix(1, 8)[0] },
      X: texts.map(() => token(4, 8)), fresh: token(1, 8)[0], real: texts.map((text) => text.map((word) => word !== "∎")),
    };
  }

  /* What a layer makes of the inputs, after a probe. */
  run(bug, probe) {
    this.inputs();
    const key = [bug, probe, this.state.sentence].join();
    if (!this.known.has(key)) this.known.set(key, this.compute(bug, probe));
    return this.known.get(key);
  }

  compute(bug, probe) {
    let { W, X, real } = structuredClone(this.inputs());
    const { fresh } = this.inputs(), here = +this.state.sentence, all = X.map((_, b) => b);
    const swap = (rows, i, j, many = 1) => {
      for (let l = 0; l < many; l++) [rows[i * many + l], rows[j * many + l]] = [rows[j * many + l], rows[i * many + l]];
    };
    if (probe === "last") X[here][3] = fresh;
    if (probe === "swap") swap(X[here], 0, 1);
    if (probe === "pad") real[here][0] = false;
    if (probe === "other") for (const b of all) if (b !== here) X[b] = X[b].map((row) => row.map((x, l) => fresh[l] - x));
    if (probe === "large") X = X.map((x) => x.map((row) => row.map((a) => 100 * a)));
    if (probe === "heads") {
      for (const row of W.q) swap(row, 0, 1, 4);
      swap(W.o, 0, 1, 4);
    }
    const how = { shift: probe === "shift" ? 1000 : 0, flat: ["flat", "swap"].includes(probe), cached: probe === "cached", gpus: probe === "gpus" ? 2 : 1, call: +(probe === "again") };
    return { ...attn.layer(bug, X, real, W, how), real, X, W, how };
  }

  differs(one, other) {
    return ["A", "O"].some((part) => one[part].flat(3).some((x, i) => !(Math.abs(x - other[part].flat(3)[i]) < 1e-6)));
  }

  /* What a right layer's scores and this one's weights say of key j against the first key that is seen. */
  compare(now, head) {
    const here = +this.state.sentence, { parts } = attn.layer("none", now.X, now.real, now.W, now.how), sees = attn.range(4).filter((j) => now.real[here][j]);
    const query = sees.at(-1), q = parts[here].Q[head][query], keys = parts[here].K[Math.floor(head / 2)], [first, ...others] = sees;
    const by_hand = (j) => attn.sum(q.map((x, l) => x * (keys[j][l] - keys[first][l]))) / 2, weights = now.A[here][head][query];
    return { query, first, rows: others.map((j) => [j, by_hand(j), Math.log(weights[j] / weights[first])]) };
  }

  verdict() {
    const [name, , symptom] = attn.bugs[this.bug];
    return `It was “${name}”. What shows it: ${symptom}.`;
  }

  draw() {
    const { number, sum, range, html } = attn, { probe, named, sentence } = this.state, here = +sentence, head = +this.state.head, words = [...this.constructor.texts[here]];
    const now = this.run(this.bug, probe), before = this.run(this.bug, probe === "swap" ? "flat" : "none");
    if (probe === "last") words[3] = "[new]";
    if (probe === "pad") words[0] = "∎";
    if (probe === "swap") words.splice(0, 2, words[1], words[0]);
    const A = now.A[here][head], text = (x, digits) => (Number.isFinite(x) ? number(x, digits) : Number.isNaN(x) ? "NaN" : "–");
    this.must.textContent = this.constructor.probes[probe][1];
    words.forEach((word, j) => { this.map.names[j].textContent = word; });
    const O = now.O[here], same = (x, y) => Math.abs(x - y) < 1e-6 || Object.is(x, y);
    // Against the rule is what moves though in a right layer it stays, and a weight on a hidden key that has come with the probe.
    const right_now = this.run("none", probe), right_before = this.run("none", probe === "swap" ? "flat" : "none");
    const hidden = (i, j, { real } = now) => j > i || !real[here][j], leaks = (run, h, i, j) => hidden(i, j, run) && !same(run.A[here][h][i][j], 0);
    const moved = (x, old, right, right_old) => (same(x, old) ? "" : same(right, right_old) ? "attn-against" : "attn-may");
    const kinds = { O: O.map((row, i) => row.map((x, c) => moved(x, before.O[here][i][c], right_now.O[here][i][c], right_before.O[here][i][c]))),
      A: now.A[here].map((rows, h) => rows.map((row, i) => row.map((x, j) => (leaks(now, h, i, j) && !range(4).some((g) => leaks(before, g, i, j)) ? "attn-against attn-leak"
        : moved(x, before.A[here][h][i][j], right_now.A[here][h][i][j], right_before.A[here][h][i][j]))))) };
    const mark = ({ cells }, rows, old, found) => cells.slice(0, 4).forEach((row, i) => row.slice(0, 4).forEach((cell, j) => {
      const x = rows[i][j], moves = !same(x, old[i][j]);
      const is = { moved: moves, against: found[i][j].startsWith("attn-against"), up: moves && x > old[i][j], down: moves && x < old[i][j] };
      for (const [name, so] of Object.entries(is)) cell.classList.toggle("attn-" + name, so);
    }));
    mark(this.map, A, before.A[here][head], kinds.A[head]);
    mark(this.out, O, before.O[here], kinds.O);
    const [prints, heads] = [kinds.O, kinds.A].map((parts) => parts.map((cells) => ["attn-against attn-leak", "attn-against", "attn-may"].find((kind) => cells.flat().includes(kind)) ?? ""));
    this.minis.forEach(({ map, was, name }, h) => {
      attn.pixels(map, now.A[here][h].flat().map((x) => (x === x ? attn.colour("viridis", x) : null)));
      attn.pixels(was, before.A[here][h].flat().map((x) => (x === x ? attn.colour("viridis", x) : null)));
      was.hidden = probe === "none";
      name.textContent = `head ${h}`;
      name.classList.toggle("attn-has-moved", now.A[here][h].flat().some((x, k) => !same(x, before.A[here][h].flat()[k])));
    });
    for (const i of range(4)) for (const j of range(4)) this.map.cells[i][j].classList.toggle("attn-must", hidden(i, j));
    const fours = (numbers) => range(4).map((i) => numbers.slice(4 * i, 4 * i + 4));
    this.glide("weights", A.flat(), (numbers) => {
      const B = fours(numbers);
      this.map.show([...B.map((row) => [...row, sum(row)]), range(4).map((j) => sum(B.map((row) => row[j])))], [...words, "sum"]);
      for (const cell of [...this.sums.cells].slice(1)) cell.style.background = cell.style.color = "";
      this.sums.cells[5].textContent = "";
    });
    this.glide("outputs", O.flatMap((row) => row.slice(0, 4)), (numbers) =>
      this.out.show(fours(numbers), words, "PuOr", (x) => 0.5 + x / 16, (x) => text(x, 2)));
    range(4).forEach((i) => {
      const cell = this.out.cells[i][4];
      cell.textContent = prints[i] ? text(Math.max(...O[i].map((x, c) => Math.abs(x - before.O[here][i][c]))), 2) : "0";
      cell.classList.toggle("attn-changed", prints[i] === "attn-against"); // of outputs none leaks
    });
    const told = [["attn-against", "moved, where a right layer stays"], ["attn-against attn-leak", "gave a hidden key weight"], ["attn-may", "moved"]].map(([kind, what]) => {
      const which = words.map((word) => `“${word}”`).filter((_, i) => prints[i] === kind), looks = range(4).filter((h) => heads[h] === kind);
      if (looks.length) which.push(looks.length === 4 ? "all heads" : `head ${looks.join(", ")}`);
      return which.length ? `${which.join(", ")} ${what}` : "";
    });
    if (probe !== "none") this.noted.set(probe, { saw: told.filter((part) => part).join("; ") || "nothing moved", prints: [prints, heads] });
    if (named !== "?" && named !== this.bug) this.noted.set("!" + named, null);
    this.notes.replaceChildren(...[...this.noted].map(([key, seen]) => (seen ? html("li", {}, ...seen.prints.map((kinds) => html("span", { class: "attn-prints", "aria-hidden": "true" }, ...kinds.map((kind) => html("span", { class: kind })))),
        html("b", {}, this.constructor.probes[key][0]), ": " + seen.saw)
      : html("li", {}, html("del", {}, attn.bugs[key.slice(1)][0])))));
    this.notes.scrollTop = this.notes.scrollHeight;
    const { query, first, rows } = this.compare(now, head);
    this.asks.textContent = `The query “${words[query]}” against key ${first}: q·k/√4 minus that of key ${first} by hand, and the logarithm of the ratio of the weights.`;
    this.hand.forEach(([key, hand, layer], i) => {
      key.parentNode.hidden = i >= rows.length;
      layer.classList.toggle("attn-changed", i < rows.length && !same(rows[i][1], rows[i][2]));
      if (i < rows.length) [key.textContent, hand.textContent, layer.textContent] = [`${rows[i][0]} ${words[rows[i][0]]}`, text(rows[i][1], 3), text(rows[i][2], 3)];
    });
    if (probe === "flat" && this.probed !== probe) this.by_hand.open = true; // its rule is about them
    this.probed = probe;
    const [name, place, symptom] = attn.bugs[named] ?? [], right = named === this.bug;
    this.found.replaceChildren(...(named === "?" ? [] : [
      right ? `Yes: ${name}. What shows it: ${symptom}. ` : `No. With “${name}” you would see this: ${symptom}. `, html("a", { href: "#" + place }, "The entry in the gallery")]));
    const guess = named === "?" ? "" : right ? " The bug is named." : ` It is not “${name}”.`;
    return `Layer ${this.state.seed}, ${this.constructor.probes[probe][0]}: ${prints.filter((kind) => kind).length} of 4 outputs changed. Head ${head}: rows sum to ${A.map((row) => text(sum(row), 2)).join(", ")}; `
      + `the last row is ${A[3].map((w) => text(w, 2)).join(", ")}.${guess}`;
  }
});
