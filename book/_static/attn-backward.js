/* Chapter 7: the same drawing with the gradients flowing back. Needs attn-flow.js: the drawing. */
customElements.define("attn-backward", class extends attn.Flow {
  static title = "Gradients through a layer of attention, number by number";
  static cases = { plain: "plain", sharp: "scores × 30", row: "LOVELY sees nothing", nan: "NaN in TODAY's hidden value" };
  static start = {
    stage: 1, at: "dA21", case: "plain", clear: false,
    Q: [[0, 2, 0], [1, 1, -1], [2, 0, -2], [0, 2, 2]], K: [[2, 0, 0], [1, 1, 0], [0, 2, 0], [2, 0, 2]],
    V: [[2, 0, 4], [1, 3, 1], [0, 6, -2], [2, -2, 0]], dO: [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]],
  };
  static stages = ["dO", "dV and dA", "r and dS", "dQ and dK"];
  static parts = (() => {
    const { part, product, scores, weights, output, entry, short, factor } = attn.flow, { range } = attn;
    const mask = (state) => range(4).map((i) => range(4).map((j) => !(state.case === "row" && i === 2) && !(state.case === "nan" && j === 3)));
    const scale = { scale: (state) => (state.case === "sharp" ? 30 : 1) / Math.sqrt(3), by: (state) => (state?.case === "sharp" ? " · 30 / √3" : " / √3") };
    const hide = (V, state) => (state.case === "nan" ? V.with(3, [0, 0, 0]) : V);
    const input = (x, heading, means, more) => part([x, 18], 30, [4, 3], 0, { heading, means, ...more });
    const back = (heading, x, stage, made, means) => part([x, 454], 30, [4, 3], stage, { ...made, kind: "gradient", heading, means });
    const pulls = (matrix) => (word, _, i, j) => `How the loss answers to number ${j} of the ${matrix} of ${word}.`;
    return {
      Q: input(66, "Q", (word) => `What ${word} looks for. Change it and watch.`, { named: true }),
      K: input(168, "K", (word) => `What ${word} is found by. Change it and watch.`),
      V: input(270, "V", (word) => `What ${word} hands over. Change it and watch.`, { value: (v, state) => (state.case === "nan" ? state.V.with(3, [NaN, NaN, NaN]) : state.V) }),
      "V'": { value: (v, state) => hide(v.V, state), drawn: (j, c) => "V" + j + c }, // what the forward pass reads
      "V''": { value: (v, state) => (state.clear ? v["V'"] : v.V), drawn: (j, c) => "V" + j + c }, // what the backward pass reads
      S: part([4, 162], 31, [4, 4], 0, { ...scores("Q", "K", mask, scale), heading: "S = s Q Kᵀ" }),
      A: part([142, 162], 29, [4, 4], 0, { ...weights("S", mask), heading: "A = softmax S" }),
      O: part([270, 162], 30, [4, 3], 0, { ...output("A", "V'"), heading: "O = A V" }),
      dO: part([282, 310], 26, [4, 3], 0, { kind: "gradient", means: (word) => `How the loss answers to the output of ${word}. Change it and watch.` }),
      dV: back("dV = Aᵀ dO", 270, 1, product("A", "dO", { left: true }), pulls("value")),
      dA: part([166, 310], 27, [4, 4], 1, { ...product("dO", "V''", { right: true }), pairs: true, kind: "gradient", heading: "dA = dO Vᵀ",
        means: (one, other) => `How the loss would answer if ${one} heard more of ${other} and no less of the others.` }),
      r: part([131, 310], 31, [4, 1], 2, {
        value: (v) => v.A.map((row, i) => [attn.sum(row.map((a, j) => a * v.dA[i][j]))]), kind: "gradient",
        lit: (i) => range(4).flatMap((j) => [["A", i, j], ["dA", i, j]]),
        formula: (i) => `row ${i} of A · row ${i} of dA`,
        says: (v, i) => v.A[i].map((a, j) => `${factor(a)} · ${factor(v.dA[i][j])}`).join(" + "),
        means: (word) => `The mean of the row of dA, each times its weight: the gradient that ${word} hears already, do · o.`,
      }),
      dS: part([3, 310], 31, [4, 4], 2, {
        value: (v) => v.A.map((row, i) => row.map((a, j) => a * (v.dA[i][j] - v.r[i][0]))), pairs: true, kind: "gradient", heading: "dS = A ⊙ (dA − r)",
        lit: (i, j) => [["A", i, j], ["dA", i, j], ["r", i, 0]],
        formula: (i, j) => `${entry("A", i, j)} · (${entry("dA", i, j)} − ${entry("r", i)})`,
        says: (v, i, j) => `${short(v.A[i][j])} · (${short(v.dA[i][j])} − ${factor(v.r[i][0])})`,
        means: (one, other) => `How the loss answers to the score of ${one} for ${other}: its weight, times how far its dA is from the row's mean.`,
      }),
      dQ: { ...back("dQ = s dS K", 66, 3, product("dS", "K", scale), pulls("query")), named: true },
      dK: back("dK = s dSᵀ Q", 168, 3, product("dS", "Q", { left: true, ...scale }), pulls("key")),
    };
  })();
  static tasks = [{
    ask: "The loss grows with LOVELY's first output. IS hands over 1 there, so its dA is 1. What is dS for LOVELY and IS? Guess, then go on to dS and touch it.",
    guesses: { plus: "positive", zero: "zero", minus: "negative" },
    right: ({ values: { dS } }) => (dS[2][1] > 0 ? "plus" : dS[2][1] < 0 ? "minus" : "zero"),
    done: ({ state: { stage, at, case: which } }) => which === "plain" && stage > 1 && at === "dS21",
    seen: ({ values: { dA, r, dS, A } }) => `LOVELY hears ${attn.number(r[2][0], 2)} already, and IS has only ${attn.flow.short(dA[2][1])}: `
      + `${attn.number(A[2][1], 2)} · (${attn.flow.short(dA[2][1])} − ${attn.number(r[2][0], 2)}) = ${attn.number(dS[2][1], 2)}. More of IS would take from those who have more.`,
  }, {
    ask: "All scores are multiplied by 30. What becomes of the largest number in dQ? Guess, then choose the case and show dQ.",
    guesses: { more: "about 30 times as large", same: "much the same", less: "nearly 0" },
    right: ({ values: { dQ } }) => (Math.max(...dQ.flat().map(Math.abs)) < 0.01 ? "less" : Math.max(...dQ.flat().map(Math.abs)) > 3 ? "more" : "same"),
    done: ({ state: { stage, case: which } }) => which === "sharp" && stage === 3,
    seen: ({ values: { A, dQ } }) => `LOVELY gives WEATHER the weight ${attn.number(A[2][0], 2)}, so its mean is WEATHER's own dA, the others have no weight, and dQ is at most ${attn.number(Math.max(...dQ.flat().map(Math.abs)), 2)}.`,
  }, {
    ask: "TODAY is a pad: nobody may read it, and its value is NaN. O stays clean. How many of the 12 numbers of dQ are lost? Guess, then choose the case and show dQ.",
    guesses: { none: "none", row: "the 3 of TODAY", all: "all 12" },
    right: ({ values: { dQ } }, met) => { const lost = met.get("lost"); return lost === 12 ? "all" : lost === 3 ? "row" : "none"; },
    done: ({ state: { stage, case: which, clear }, values: { dQ } }, met) => {
      if (which === "nan" && stage === 3 && !clear) met.set("lost", dQ.flat().filter(Number.isNaN).length);
      return met.has("lost");
    },
    seen: (figure, met) => `${met.get("lost")} are NaN: 0 · NaN is NaN, and it enters the mean r of each row. Now clear what is hidden before the product.`,
  }];

  build() {
    this.build_flow(562, ["M106 126 62 142", "M196 126 84 142", "M316 126V142", "M129 214H140", "M259 214H268",
      "M324 270V290", "M326 418V434", "M282 362H276", "M90 418 104 434", "M110 418 190 434"]);
    this.fits.case = (which) => Object.hasOwn(this.constructor.cases, which);
    this.presets("Case", Object.fromEntries(Object.entries(this.constructor.cases).map(([which, name]) => [name, { case: which }])));
    this.check("clear", "clear what is hidden first");
  }

  tell() {
    const { stage, case: which } = this.state, { cases, stages } = this.constructor, { values } = this;
    const drawn = ["dV", "dA", "dS", "dQ", "dK"].filter((name) => this.constructor.parts[name].stage <= stage);
    const nothing = drawn.filter((name) => values[name].flat().every((x) => Math.abs(x) < 0.005));
    const lost = drawn.filter((name) => values[name].flat().some(Number.isNaN));
    return `Case: ${cases[which]}; gradients up to ${stages[stage]}.` + (nothing.length ? ` Zero or nearly: ${attn.flow.list(nothing)}.` : "")
      + (lost.length ? ` NaN in ${attn.flow.list(lost)}.` : "");
  }
});
