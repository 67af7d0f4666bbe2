/* Chapter 5: the drawing of the layer with two heads. Needs attn-flow.js, attn-flow-parts.js: the drawing. */
customElements.define("attn-multihead", class extends attn.Flow {
  static title = "Two heads, number by number";
  static start = {
    stage: 4, at: "O20", X: this.X,
    W_q: [[0, 1, 1, -1], [1, 0, 1, 0], [1, 0, 0, 1]], W_k: [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]],
    W_v: [[1, 0, 0, 1], [0, 2, 1, 0], [0, -1, 2, 1]], W_o: [[1, 0, 0], [0, 1, 0], [1, 0, 2], [0, 1, -1]],
  };
  static stages = ["X and its matrices", "Q, K, V", "the weights", "O⁰ and O¹", "O"];
  static heads = ["⁰", "¹"];
  static parts = (() => {
    const { part, product, scores, weights, output, sub, short } = attn.flow, { heads } = this, tones = ["attn-second", "attn-copy"];
    const mask = () => attn.range(4).map(() => Array(4).fill(true)), names = (c) => `head ${c >> 1}`;
    const learnt = (x) => part([x, 20], 24, [3, 4], 0, { weight: true, tone: (i, c) => tones[c >> 1], means: (one, other, i, c) => `A learnt number of ${names(c)}. Change it and watch.` });
    // The columns of one head, cut from the product of X with the whole matrix.
    const cut = (M, h, at, tall, means) => {
      const whole = product("X", "W_" + M.toLowerCase()), of = (does) => (i, c, ...more) => does(i, 2 * h + c, ...more);
      return [M + heads[h], part(at, 28, [4, 2], 1, { tall, named: M === "K" ? 0 : Infinity, after: h === 1, tone: () => tones[h], lit: of(whole.lit), formula: of(whole.formula),
        value: (v) => whole.value(v).map((row) => row.slice(2 * h, 2 * h + 2)), says: (v, i, c, state) => whole.says(v, i, 2 * h + c, state),
        means: (word) => `${means(word)} in head ${h}.` })];
    };
    // The second head is the first in a mirror: both flow to O in the middle. Scores are not drawn: a weight shows the query and the key that made it.
    const head = (h) => {
      const [S, A, O, Q, K, V] = ["S", "A", "O", "Q", "K", "V"].map((name) => name + heads[h]), x = (left, width) => (h ? 730 - left - width : left);
      const scored = scores(Q, K, mask, { scale: () => 1 / Math.sqrt(2), by: () => " / √2" });
      return Object.fromEntries([cut("Q", h, [x(62, 56), 150], 24, (word) => `What ${word} looks for`), cut("K", h, [x(130, 56), 150], 24, (word) => `What ${word} is found by`),
        [S, { value: scored.value }],
        [A, part([x(212, 120), 150], 30, [4, 4], 2, { ...weights(S, mask), keyed: true, lit: scored.lit, heading: `${A} = softmax ${Q} ${K}ᵀ / √2`,
          formula: (i, j) => `exp(${scored.formula(i, j)}) / sum of its row`,
          means: (one, other, i, j, v) => `The share of ${other} in what ${one} hears; score ${short(v[S][i][j])}.` })],
        cut("V", h, [x(62, 56), 284], 30, (word) => `What ${word} hands over`),
        [O, part([x(206, 64), 284], 32, [4, 2], 3, { tall: 30, tone: () => tones[h], ...output(A, V) })]]);
    };
    const both = product("O⁰¹", "W_o");
    return {
      X: part([110, 20], 24, [4, 3], 0, { named: Infinity, means: (word, _, i, j) => `Number ${j} of the vector of ${word}. Change it and watch.` }),
      W_q: learnt(206), W_k: learnt(322), W_v: learnt(438),
      ...head(0), ...head(1),
      "O⁰¹": { value: (v) => v["O⁰"].map((row, i) => [...row, ...v["O¹"][i]]), drawn: (i, c) => "O" + heads[c >> 1] + i + c % 2 },
      W_o: part([554, 20], 26, [4, 3], 0, { weight: true, far: true, tone: (c) => tones[c >> 1], means: (one, other, c) => `A learnt number, in the half that reads ${names(c)}. Change it and watch.` }),
      O: part([293, 284], 48, [4, 3], 4, {
        ...both, tall: 30, sum: true, far: true, heading: "O = [O⁰ O¹] W_o",
        formula: (i, j) => `[o⁰${sub(i)} o¹${sub(i)}] · column ${j} of W_o`,
        means: (word, _, i, j, v) => `What the layer tells ${word}: head 0 adds ${short(this.adds(v, 0)[i][j])}, head 1 adds ${short(this.adds(v, 1)[i][j])}.`,
      }),
    };
  })();
  /* What a head adds to O: its output, times its rows of W_o. */
  static adds(v, h) { return attn.matmul(v["O" + this.heads[h]], v.W_o.slice(2 * h, 2 * h + 2)); }

  static tasks = [{
    ask: "The last two columns of W_q belong to head 1. Change one number there and nothing else. What changes: A⁰, A¹ or both? And how many columns of O?",
    guesses: { both: "both maps, all of O", one: "A¹ and 1 column of O", all: "A¹ and all columns of O" },
    right: (figure) => (figure.rows_changed("A⁰").length ? "both" : figure.columns_changed("O").length > 1 ? "all" : "one"),
    done: (figure) => figure.inputs.every((name) => (name === "W_q") === figure.rows_changed(name).length > 0)
      && figure.columns_changed("W_q").every((c) => c > 1) && figure.state.stage === 4,
    seen: (figure) => `A⁰ changed in ${figure.rows_changed("A⁰").length} rows and A¹ in ${figure.rows_changed("A¹").length}; O in ${figure.columns_changed("O").length} of 3 columns. `
      + "Heads share nothing until W_o mixes them.",
  }, {
    ask: "Make head 1 a copy of head 0: they then look at the same words, and find the same there. In how many of the three columns of O do they add the same?",
    guesses: { all: "in all three", some: "in some", none: "in none" },
    right: (figure) => ({ 0: "none", 3: "all" })[figure.agree().length] ?? "some",
    done: ({ state: { W_q, W_k, W_v, stage } }) => stage === 4 && [W_q, W_k, W_v].every((W) => W.every(([a, b, c, d]) => a === c && b === d)),
    seen: (figure) => `To LOVELY ${[0, 1].map((h) => `head ${h} adds ${attn.row(figure.constructor.adds(figure.values, h)[2], 2)}`).join(", ")}: equal in ${figure.agree().length} of 3 columns. `
      + "Each head is read by rows of W_o of its own.",
  }];

  build() {
    const { svg, range } = attn, tones = ["attn-second", "attn-copy"], { heads } = this.constructor;
    const lane = [(x) => x, (x) => 730 - x].map((x, h) => ({
      ground: svg("g", { class: tones[h] }, svg("path", { class: "attn-lane", d: `M${x(0)} 126H${x(352)}V256H${x(280)}V414H${x(0)}Z` }),
        // Of each matrix the columns, or the rows, that are the head's.
        ...[206, 322, 438].map((left) => svg("rect", { class: "attn-lane", x: left + 48 * h, y: 20, width: 48, height: 72 })),
        svg("rect", { class: "attn-lane", x: 554, y: 20 + 48 * h, width: 78, height: 48 }),
        svg("text", { class: "attn-tone", x: x(8), y: 144, "text-anchor": h ? "end" : "start" }, `head ${h}`)),
      // From the head's columns of all three matrices, by a bus.
      arrows: [["Q", `M${[0, 1, 2].map((k) => `${230 + 116 * k + 48 * h} 93V${h ? 110 : 102}`).join("M")}H${230 + 48 * h}M${h ? "450 110" : "262 102"}V124`], ["A", `M${x(188)} 198H${x(210)}`]].map(([to, d]) => [to + heads[h], d, tones[h]]),
    }));
    this.build_flow(730, lane.flatMap(({ arrows }) => arrows), ...(this.grounds = lane.map(({ ground }) => ground)), ...heads.flatMap((h, k) => this.spin("A" + h, "V" + h, "O" + h, tones[k])),
      ...(this.into = range(8).map((k) => svg("path", { class: "attn-heard " + tones[k >> 2], "stroke-width": 12, d: `M${k < 4 ? 270 : 437} ${299 + 30 * (k % 4)}h23` }))));
    // In O, below each number, what head 0 adds, from 0 on, and from there on what head 1 adds.
    this.sums = new Map([...this.cells.values()].filter(({ name }) => name === "O").map((at) => [at, tones.map((tone) => at.cell.insertBefore(svg("path", { class: "attn-amount " + tone }), at.text))]));
    this.alike = range(3).map((j) => this.drawing.appendChild(svg("text", { class: "attn-row-name", x: 317 + 48 * j, y: 412, "text-anchor": "middle" })));
    const { W_q, W_k, W_v, W_o } = this.constructor.start;
    const cut = (columns) => Object.fromEntries(Object.entries({ W_q, W_k, W_v }).map(([name, W]) => [name, W.map((row) => columns.map((c) => row[c]))]));
    this.presets("Heads", {
      "as given": { W_q, W_k, W_v, W_o }, swapped: { ...cut([2, 3, 0, 1]), W_o: [2, 3, 0, 1].map((c) => W_o[c]) },
      "head 1 a copy of head 0": { ...cut([0, 1, 0, 1]), W_o },
    });
  }

  draw() {
    const says = super.draw(), v = this.values;
    const edited = this.inputs.some((name) => this.rows_changed(name).length);
    this.grounds.forEach((ground, h) => ground.classList.toggle("attn-untouched", edited && !this.rows_changed("O" + this.constructor.heads[h]).length));
    this.into.forEach((path, k) => {
      path.classList.toggle("attn-empty", this.state.stage < 4);
      path.classList.toggle("attn-strong", this.chosen.name === "O" && this.chosen.i === k % 4);
    });
    const agree = this.state.stage < 4 ? [] : this.agree(); // columns of O to which both heads add the same
    this.alike.forEach((text, j) => { text.textContent = agree.includes(j) ? "alike" : ""; });
    const [one, other] = [0, 1].map((h) => this.constructor.adds(v, h).flat()), ends = one.map((x, k) => x + other[k]);
    const [low, high] = [Math.min(...one, ...ends, 0), Math.max(...one, ...ends, 1)], x = (value) => 1 + 46 * (value - low) / (high - low);
    this.glide("sums", [x(0), ...one.map(x), ...ends.map(x)], ([zero, ...now]) => [...this.sums].forEach(([, bars], k) => {
      bars[0].setAttribute("d", `M${zero} 20H${now[k]}V25H${zero}Z`);
      bars[1].setAttribute("d", `M${now[k]} 25H${now[12 + k]}V30H${now[k]}Z`);
    }));
    for (const { notch, i, j } of this.sums.keys()) notch.setAttribute("d", this.nick(x(this.before.O[i][j]), 30, 10));
    return says;
  }

  /* Columns of O in which both heads add the same to every word. */
  agree() {
    const [one, other] = [0, 1].map((h) => this.constructor.adds(this.values, h));
    return attn.range(3).filter((j) => one.every((row, i) => attn.flow.same(row[j], other[i][j])));
  }

  columns_changed(name) { return attn.range(this.changed[name][0].length).filter((c) => this.changed[name].some((row) => row[c])); }

  tell() {
    const shown = ["A⁰", "A¹", "O"].filter((name) => this.shown({ name }));
    if (shown.length && this.inputs.some((name) => this.rows_changed(name).length))
      return shown.map((name) => `${name} changed ${this.rows_changed(name).map((i, k) => (k ? "" : "for ") + this.constructor.tokens[i]).join(", ") || "nowhere"}`).join("; ") + ".";
    const looks = this.constructor.heads.map((mark, h) => {
      const row = this.values["A" + mark][2], top = Math.max(...row);
      return `in head ${h} at ${this.constructor.tokens[row.indexOf(top)]}, ${attn.number(top, 2)}`;
    });
    return this.state.stage < 3 ? `Shown up to ${this.constructor.stages[this.state.stage]}.` : `LOVELY looks ${looks.join("; ")}.`;
  }
});
