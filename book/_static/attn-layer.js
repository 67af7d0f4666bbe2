/* Chapter 4: the whole layer as one drawing of numbers to touch. Needs attn-flow.js, attn-flow-parts.js: the drawing. */
customElements.define("attn-layer", class extends attn.Flow {
  static title = "A layer of self-attention, number by number";
  static start = {
    stage: 4, at: "O20", causal: false, X: this.X,
    W_q: [[0, 0, 1], [1, 0, -1], [0, 1, 1]], W_k: [[1, 0, 0], [0, 1, 0], [1, 0, 1]], W_v: [[1, 0, 2], [0, 3, -1], [1, -1, 0]],
  };
  static awful = this.X.with(2, [0, -2, 0]);
  static stages = ["X and its matrices", "Q, K, V", "S", "A", "O"];
  static parts = (() => {
    const { part, product, scores, weights, output } = attn.flow;
    const mask = ({ causal }) => (causal ? attn.causal_mask(4) : attn.range(4).map(() => Array(4).fill(true)));
    const learnt = (x, heading) => part([x, 20], 24, [3, 3], 0, { weight: true, heading, means: () => `A learnt number of ${heading}. Change it and watch.` });
    const projected = (x, M, means) => part([x, 152], 24, [4, 3], 1, { tall: 30, ...product("X", "W_" + M.toLowerCase()), heading: `${M} = X W_${M.toLowerCase()}`, means });
    return {
      X: part([336, 20], 24, [4, 3], 0, { named: Infinity, means: (word, _, i, j) => `Number ${j} of the vector of ${word}. Change it and watch.` }),
      W_q: learnt(60, "W_q"), W_k: learnt(146, "W_k"), W_v: learnt(496, "W_v"),
      Q: { ...projected(60, "Q", (word) => `What ${word} looks for.`), named: Infinity },
      K: projected(146, "K", (word) => `What ${word} is found by.`),
      V: projected(496, "V", (word) => `What ${word} hands over.`),
      S: part([232, 152], 30, [4, 4], 2, { tall: 30, ...scores("Q", "K", mask, { scale: () => 1 / Math.sqrt(3), by: () => " / √3" }), heading: "S = Q Kᵀ / √3" }),
      A: part([366, 152], 29, [4, 4], 3, { tall: 30, keyed: true, ...weights("S", mask), heading: "A = softmax S" }),
      O: part([632, 152], 30, [4, 3], 4, { tall: 30, named: Infinity, after: true, ...output("A", "V"), heading: "O = A V" }),
    };
  })();
  static tasks = [{
    ask: "Change the third word: LOVELY becomes AWFUL. Which rows of O change? Try without the causal mask and with it.",
    guesses: { own: "its own, both times", later: "all; with the mask, its own and later ones", all: "all, both times" },
    right: (figure, met) => (met.get(false) === "2" ? "own" : met.get(true) === "23" ? "later" : "all"),
    done: (figure, met) => {
      const { state: { causal, stage, X } } = figure;
      if (X.join() === this.awful.join() && figure.inputs.every((name) => name === "X" || !figure.rows_changed(name).length) && stage === 4)
        met.set(causal, figure.rows_changed("O").join(""));
      return met.size === 2;
    },
    seen: (figure, met) => [false, true].map((causal) => `${causal ? "With" : "Without"} the mask the rows of `
      + attn.flow.list([...met.get(causal)].map((i) => figure.tokens()[i])) + " changed.").join(" "),
  }, {
    opens: { X: this.X, causal: false },
    ask: "Change one number of W_v and nothing else. Which of S, A and O change?",
    guesses: { all: "S, A and O", two: "A and O", one: "O alone" },
    right: (figure) => (figure.rows_changed("S").length ? "all" : figure.rows_changed("A").length ? "two" : "one"),
    done: (figure) => figure.inputs.every((name) => (name === "W_v") === figure.rows_changed(name).length > 0) && figure.state.stage === 4,
    seen: (figure) => `${figure.rows_changed("S").length} rows of S changed, ${figure.rows_changed("A").length} of A and ${figure.rows_changed("O").length} of O: `
      + "where a word looks is settled without the values.",
  }];

  build() {
    const { X } = this.constructor;
    // X goes into each of the three products, from the left; its matrix comes from above.
    this.build_flow(788, [["Q", "M372 118V124H96M96 94V134"], ["K", "M182 94V134"], ["V", "M372 124H532M532 94V134"],
      ["S", "M182 274V283M96 274V283H292V275"], ["A", "M354 212H364"], ["O", "M424 274V283H600V275"]], ...this.spin("A", "V", "O", "attn-second"));
    this.check("causal", "causal mask");
    this.presets("Third word", { LOVELY: { X }, AWFUL: { X: this.constructor.awful } });
  }

  tokens() {
    const { tokens, awful } = this.constructor;
    return this.state.X.join() === awful.join() ? tokens.with(2, "AWFUL") : tokens;
  }

  tell() {
    const rows = this.rows_changed("O").map((i) => this.tokens()[i]);
    const edited = this.inputs.some((name) => this.rows_changed(name).length);
    if (this.state.stage < 4) return `Shown up to ${this.constructor.stages[this.state.stage]}.`;
    return edited ? `${rows.length ? attn.flow.list(rows) : "No word"} ${rows.length > 1 ? "have" : "has"} another output than before${this.state.causal ? " under the same mask" : ""}.` : "All inputs are as at the start.";
  }
});
