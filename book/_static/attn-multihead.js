/* Chapter 5: the drawing of the layer with two heads. Needs attn-flow.js: the drawing. */
customElements.define("attn-multihead", class extends attn.Flow {
  static title = "Two heads, number by number";
  static start = {
    stage: 4, at: "O20", X: this.X,
    W_q: [[0, 1, 1, -1], [1, 0, 1, 0], [1, 0, 0, 1]], W_k: [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]],
    W_v: [[1, 0, 0, 1], [0, 2, 1, 0], [0, -1, 2, 1]], W_o: [[1, 0, 0], [0, 1, 0], [1, 0, 2], [0, 1, -1]],
  };
  static stages = ["X and its matrices", "Q, K, V", "the scores", "the weights", "O"];
  static heads = ["⁰", "¹"];
  static parts = (() => {
    const { part, product, scores, weights, output, sub, short } = attn.flow, { heads } = this;
    const mask = () => attn.range(4).map(() => Array(4).fill(true)), names = (c) => `head ${c >> 1}`;
    const learnt = (x) => part([x, 20], 24, [3, 4], 0, { weight: true, means: (one, other, i, c) => `A learnt number of ${names(c)}. Change it and watch.` });
    // The columns of one head, cut from the product of X with the whole matrix.
    const cut = (M, h, x, means) => {
      const whole = product("X", "W_" + M.toLowerCase()), of = (does) => (i, c, ...more) => does(i, 2 * h + c, ...more);
      return [M + heads[h], part([x, 160], 26, [4, 2], 1, { lit: of(whole.lit), formula: of(whole.formula),
        value: (v) => whole.value(v).map((row) => row.slice(2 * h, 2 * h + 2)), says: (v, i, c, state) => whole.says(v, i, 2 * h + c, state),
        means: (word) => `${means(word)} in head ${h}.` })];
    };
    // The second head is the first in a mirror: both flow outwards to their maps and back to the middle.
    const head = (h) => {
      const [S, A, O, Q, K, V] = ["S", "A", "O", "Q", "K", "V"].map((name) => name + heads[h]), x = (left, width) => (h ? 782 - left - width : left);
      return Object.fromEntries([cut("Q", h, x(205, 52), (word) => `What ${word} looks for`), cut("K", h, x(265, 52), (word) => `What ${word} is found by`),
        cut("V", h, x(325, 52), (word) => `What ${word} hands over`),
        [S, part([x(65, 124), 160], 31, [4, 4], 2, { ...scores(Q, K, mask, { scale: () => 1 / Math.sqrt(2), by: () => " / √2" }), named: h ? 0 : Infinity })],
        [A, part([x(65, 116), 292], 29, [4, 4], 3, { ...weights(S, mask), named: h ? 0 : Infinity })],
        [O, part([x(201, 68), 292], 34, [4, 2], 3, output(A, V))]]);
    };
    const both = product("O⁰¹", "W_o");
    return {
      X: part([150, 20], 24, [4, 3], 0, { named: Infinity, means: (word, _, i, j) => `Number ${j} of the vector of ${word}. Change it and watch.` }),
      W_q: learnt(240), W_k: learnt(352), W_v: learnt(464),
      ...head(0), ...head(1),
      "O⁰¹": { value: (v) => v["O⁰"].map((row, i) => [...row, ...v["O¹"][i]]), drawn: (i, c) => "O" + heads[c >> 1] + i + c % 2 },
      W_o: part([292, 292], 26, [4, 3], 4, { weight: true, means: (one, other, c) => `A learnt number, in the half that reads ${names(c)}. Change it and watch.` }),
      O: part([388, 292], 34, [4, 3], 4, {
        ...both, heading: "O = [O⁰ O¹] W_o",
        formula: (i, j) => `[o⁰${sub(i)} o¹${sub(i)}] · column ${j} of W_o`,
        means: (word, _, i, j, v) => {
          const adds = heads.map((_, h) => short(v["O⁰¹"][i].slice(2 * h, 2 * h + 2).reduce((sum, x, c) => sum + x * v.W_o[2 * h + c][j], 0)));
          return `What the layer tells ${word}: head 0 adds ${adds[0]}, head 1 adds ${adds[1]}.`;
        },
      }),
    };
  })();
  static tasks = [{
    ask: "The last two columns of W_q belong to head 1. Change one number there and nothing else. What changes: A⁰, A¹ or both? And how many columns of O?",
    guesses: { both: "both maps, all of O", one: "A¹ and 1 column of O", all: "A¹ and all columns of O" },
    right: (figure) => (figure.rows_changed("A⁰").length ? "both" : figure.columns_changed("O").length > 1 ? "all" : "one"),
    done: (figure) => figure.inputs.every((name) => (name === "W_q") === figure.rows_changed(name).length > 0)
      && figure.columns_changed("W_q").every((c) => c > 1) && figure.state.stage === 4,
    seen: (figure) => `A⁰ changed in ${figure.rows_changed("A⁰").length} rows and A¹ in ${figure.rows_changed("A¹").length}; O in ${figure.columns_changed("O").length} of 3 columns. `
      + "Heads share nothing until W_o mixes them.",
  }, {
    ask: "Undo changes. Then set the last two rows of W_o to 0, with − and +. What is left of O: nothing, what head 0 adds, or as before?",
    guesses: { nothing: "nothing", head: "what head 0 adds", before: "as before" },
    right: ({ values: v }) => (v.O.flat().every((x) => !x) ? "nothing" : "head"),
    done: ({ values: { W_o } }) => W_o.slice(2).flat().every((x) => x === 0),
    seen: ({ values: { O } }) => `LOVELY gets ${attn.row(O[2], 2)}, from head 0 alone: each head has rows of W_o of its own, and O is the sum of what the heads add.`,
  }];

  build() {
    const { svg } = attn, tones = ["attn-second", "attn-copy"];
    const lane = [(x) => x, (x) => 782 - x].map((x, h) => ({
      ground: svg("g", { class: tones[h] }, svg("path", { class: "attn-lane", d: `M${x(h ? 56 : 4)} 138H${x(385)}V274H${x(277)}V402H${x(h ? 56 : 4)}Z` }),
        // Of each matrix the columns, or the rows, that are the head's.
        ...[240, 352, 464].map((left) => svg("rect", { class: "attn-lane", x: left + 48 * h, y: 20, width: 48, height: 72 })),
        svg("rect", { class: "attn-lane", x: 292, y: 292 + 48 * h, width: 78, height: 48 }),
        svg("text", { class: "attn-tone", x: x(295), y: 124, "text-anchor": h ? "end" : "start" }, `columns ${2 * h} and ${2 * h + 1}`),
        svg("text", { class: "attn-tone", x: x(h ? 60 : 8), y: 154, "text-anchor": h ? "end" : "start" }, `head ${h}`)),
      arrows: [["Q", `M${x(291)} 98V134`], ["S", `M${x(203)} 208H${x(191)}`], ["S", `M${x(291)} 258V264H${x(160)}V257`], ["A", `M${x(110)} 258V275`],
        ["O", `M${x(351)} 258V270H${x(235)}V276`], ["O", `M${x(183)} 340H${x(199)}`]].map(([to, d]) => [to + this.constructor.heads[h], d, tones[h]])
        .concat([["O", `M${x(235)} 390V398H${h ? 448 : 430}V389`, tones[h]]]),
    }));
    this.build_flow(730, [...lane.flatMap(({ arrows }) => arrows), ["O", "M372 340H386"]], ...lane.map(({ ground }) => ground));
    const { W_q, W_k, W_v, W_o } = this.constructor.start;
    const heads = (columns) => Object.fromEntries(Object.entries({ W_q, W_k, W_v }).map(([name, W]) => [name, W.map((row) => columns.map((c) => row[c]))]));
    this.presets("Heads", {
      "as given": { W_q, W_k, W_v, W_o }, swapped: { ...heads([2, 3, 0, 1]), W_o: [2, 3, 0, 1].map((c) => W_o[c]) },
      "head 1 a copy of head 0": { ...heads([0, 1, 0, 1]), W_o },
    });
  }

  columns_changed(name) { return attn.range(this.changed[name][0].length).filter((c) => this.changed[name].some((row) => row[c])); }

  tell() {
    const looks = this.constructor.heads.map((mark, h) => {
      const row = this.values["A" + mark][2], top = Math.max(...row);
      return `head ${h} at ${this.constructor.tokens[row.indexOf(top)]}, ${attn.number(top, 2)}`;
    });
    return this.state.stage < 3 ? `Shown up to ${this.constructor.stages[this.state.stage]}.` : `LOVELY looks in ${looks.join("; in ")}.`;
  }
});
