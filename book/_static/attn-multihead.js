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
    const learnt = (x, M) => part([x, 150], 28, [3, 4], 0, { weight: true, means: (one, other, i, c) => `A learnt number of ${names(c)}. Change it and watch.` });
    const projected = (x, M, means) => part([x, 268], 28, [4, 4], 1, { ...product("X", "W_" + M.toLowerCase()), heading: `${M} = X W_${M.toLowerCase()}`,
      means: (word, other, i, c) => `${means(word)} in ${names(c)}.` });
    const cut = (M, h) => [M + heads[h], { value: (v) => v[M].map((row) => row.slice(2 * h, 2 * h + 2)), drawn: (i, c) => M + i + (2 * h + c) }];
    const head = (h, y) => {
      const [S, A, O] = ["S", "A", "O"].map((name) => name + heads[h]);
      return Object.fromEntries([cut("Q", h), cut("K", h), cut("V", h),
        [S, part([4, y], 31, [4, 4], 2, { ...scores("Q" + heads[h], "K" + heads[h], mask, { scale: () => 1 / Math.sqrt(2), by: () => " / √2" }), heading: `S${heads[h]} of head ${h}` })],
        [A, part([142, y], 29, [4, 4], 3, { ...weights(S, mask) })],
        [O, part([272, y], 36, [4, 2], 3, output(A, "V" + heads[h]))]]);
    };
    const both = product("O⁰¹", "W_o");
    return {
      X: part([66, 18], 28, [4, 3], 0, { named: true, means: (word, _, i, j) => `Number ${j} of the vector of ${word}. Change it and watch.` }),
      W_q: learnt(4, "q"), W_k: learnt(126, "k"), W_v: learnt(248, "v"),
      Q: projected(4, "Q", (word) => `What ${word} looks for`),
      K: projected(126, "K", (word) => `What ${word} is found by`),
      V: projected(248, "V", (word) => `What ${word} hands over`),
      ...head(0, 412), ...head(1, 550),
      "O⁰¹": { value: (v) => v["O⁰"].map((row, i) => [...row, ...v["O¹"][i]]), drawn: (i, c) => "O" + heads[c >> 1] + i + c % 2 },
      W_o: part([230, 688], 28, [4, 3], 0, { weight: true, means: (one, other, c) => `A learnt number, in the half that reads ${names(c)}. Change it and watch.` }),
      O: part([66, 688], 36, [4, 3], 4, {
        ...both, named: true, heading: "O = [O⁰ O¹] W_o",
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
    this.build_flow(798, ["M60 232V250", "M182 232V250", "M304 232V250", "M60 376V394", "M182 376 84 394", "M304 376V394",
      "M129 464H140", "M259 464H270", "M129 602H140", "M259 602H270", "M308 658 160 672", "M228 740H178"]);
    const { W_q, W_k, W_v, W_o } = this.constructor.start;
    const heads = (columns) => Object.fromEntries(Object.entries({ W_q, W_k, W_v }).map(([name, W]) => [name, W.map((row) => columns.map((c) => row[c]))]));
    this.presets("Heads", {
      "as given": { W_q, W_k, W_v, W_o }, swapped: { ...heads([2, 3, 0, 1]), W_o: [2, 3, 0, 1].map((c) => W_o[c]) },
      "head 1 a copy of head 0": { ...heads([0, 1, 0, 1]), W_o },
    });
    const halves = "M60 150v78M182 150v78M304 150v78M60 268v104M182 268v104M304 268v104M230 740h84"; // head 0 | head 1
    this.drawing.append(attn.svg("path", { class: "attn-halves", d: halves }));
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
