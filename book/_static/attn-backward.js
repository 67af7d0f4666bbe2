/* Chapter 7: the page's three words with the gradients flowing back, down to the twenty learnt numbers. Needs attn-flow.js, attn-flow-parts.js: the drawing. */
customElements.define("attn-backward", class extends attn.Flow {
  static title = "Gradients through a layer of self-attention, number by number";
  static tokens = ["WEATHER", "IS", "LOVELY"];
  static largest = 14;
  static cases = {
    "as on the page": [[0, 0], [0, 0], [1, 0]], "both outputs of LOVELY": [[0, 0], [0, 0], [1, 1]], "the first output of all words": [[1, 0], [1, 0], [1, 0]],
  };
  static start = {
    stage: 1, at: "dA20", dO: this.cases["as on the page"],
    Q: [[0, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 1]], K: [[1, 1, -1, 1], [-1, 2, 2, 1], [-2, 1, 3, 0]], V: [[0, 7], [7, 14], [7, 7]],
  };
  static stages = ["dO", "dV and dA", "r and dS", "dQ and dK", "dW"];
  static parts = (() => {
    const { part, product, scores, weights, output, entry, factor, decimals } = attn.flow, { range } = attn;
    const mask = () => range(3).map(() => Array(3).fill(true));
    const halved = { scale: () => 0.5, by: () => " / 2" }; // 1/√4
    const with_ln2 = { scale: () => Math.LN2 / 2, by: () => " · ln 2 / 2" }; // K is shown without its factor ln 2
    const input = (x, wide, m, heading, means) => part([x, 34], wide, [3, m], 0, { heading, means });
    const back = (heading, x, wide, m, stage, made, means) => part([x, 168], wide, [3, m], stage, { ...made, kind: "gradient", heading, means });
    const learnt = (letter, x, wide, m) => part([x, 282], wide, [2, m], 4, { ...product("X", "d" + letter, { left: true }), kind: "gradient", weight: true,
      heading: `dW_${letter.toLowerCase()} = Xᵀ d${letter}`, means: () => "How the loss answers to a learnt number, which should move against this sign." });
    const pulls = (matrix) => (word, _, i, j) => `How the loss answers to number ${j} of the ${matrix} of ${word}.`;
    return {
      X: part([56, 34], 24, [3, 2], 0, { named: Infinity, value: () => [[1, 0], [1, 1], [0, 1]], means: (word, _, i, j) => `Number ${j} of the vector of ${word}.` }),
      Q: input(126, 24, 4, "Q", (word) => `What ${word} looks for. Change it and watch.`),
      K: input(248, 26, 4, "K / ln 2", (word) => `What ${word} is found by. Change it and watch.`),
      V: input(642, 26, 2, "V", (word) => `What ${word} hands over. Change it and watch.`),
      S: part([374, 34], 34, [3, 3], 0, { ...scores("Q", "K", mask, with_ln2), heading: "S = Q Kᵀ / √4" }),
      A: part([528, 34], 34, [3, 3], 0, { ...weights("S", mask), heading: "A = softmax S" }),
      O: part([712, 34], 28, [3, 2], 0, { ...output("A", "V"), heading: "O = A V" }),
      dO: part([712, 168], 28, [3, 2], 0, { kind: "gradient", means: (word) => `How the loss answers to the output of ${word}. Change it and watch.` }),
      dV: back("dV = Aᵀ dO", 640, 28, 2, 1, product("A", "dO", { left: true }), pulls("value")),
      dA: part([528, 168], 34, [3, 3], 1, { ...product("dO", "V", { right: true }), pairs: true, named: 1, kind: "gradient", heading: "dA = dO Vᵀ",
        means: (one, other) => `How the loss would answer if ${one} drew more from ${other} and no less from the others.` }),
      r: part([482, 168], 32, [3, 1], 2, {
        value: (v) => v.A.map((row, i) => [attn.sum(row.map((a, j) => a * v.dA[i][j]))]), kind: "gradient",
        lit: (i) => range(3).flatMap((j) => [["A", i, j], ["dA", i, j]]),
        formula: (i) => `row ${i} of A · row ${i} of dA`,
        says: (v, i) => {
          const sum = (printed) => attn.sum(v.A[i].map((a, j) => printed(a) * printed(v.dA[i][j]))), digits = decimals(v.r[i][0], sum);
          return v.A[i].map((a, j) => `${factor(a, digits)} · ${factor(v.dA[i][j], digits)}`).join(" + ");
        },
        means: (word) => `The mean of the row of dA of ${word}, each entry times its weight.`,
      }),
      dS: part([374, 168], 34, [3, 3], 2, {
        far: true,
        value: (v) => v.A.map((row, i) => row.map((a, j) => a * (v.dA[i][j] - v.r[i][0]))), pairs: true, named: 2, kind: "gradient", heading: "dS = A ⊙ (dA − r)",
        lit: (i, j) => [["A", i, j], ["dA", i, j], ["r", i, 0]],
        formula: (i, j) => `${entry("A", i, j)} · (${entry("dA", i, j)} − ${entry("r", i)})`,
        says: (v, i, j) => {
          const of = [v.A[i][j], v.dA[i][j], v.r[i][0]], digits = decimals(v.dS[i][j], (printed) => printed(of[0]) * (printed(of[1]) - printed(of[2])));
          return `${factor(of[0], digits)} · (${factor(of[1], digits)} − ${factor(of[2], digits)})`;
        },
        means: (one, other) => `How the loss answers to the score of ${one} for ${other}: its weight, times how far its dA is from the row's mean.`,
      }),
      dQ: { ...back("dQ = s dS K", 116, 29, 4, 3, product("dS", "K", with_ln2), pulls("query")), named: Infinity },
      dK: back("dK = s dSᵀ Q", 242, 29, 4, 3, product("dS", "Q", { left: true, ...halved }), pulls("key")),
      dW_q: learnt("Q", 116, 29, 4),
      dW_k: learnt("K", 242, 29, 4),
      dW_v: learnt("V", 640, 28, 2),
    };
  })();
  static zeros = (values) => attn.sum(["dW_q", "dW_k", "dW_v"].map((name) => values[name].flat().filter((x) => Math.abs(x) < 1e-9).length));
  static as_at_the_start = (figure) => ["Q", "K", "V"].every((name) => !figure.rows_changed(name).length);
  static tasks = [{
    ask: "In dA, LOVELY's entry for WEATHER is 0: more of WEATHER alone would change nothing. What sign has dS there? Guess, then go on to dS and touch it.",
    guesses: { plus: "positive", zero: "zero", minus: "negative" },
    right: ({ values: { dS } }) => (dS[2][0] > 0 ? "plus" : dS[2][0] < 0 ? "minus" : "zero"),
    done: (figure) => figure.state.stage > 1 && figure.state.at === "dS20" && figure.state.dO.join() === this.cases["as on the page"].join() && this.as_at_the_start(figure),
    seen: ({ values: { dA, r, dS, A } }) => `The mean of the row is ${attn.number(r[2][0], 2)}, and ${attn.number(A[2][0], 2)} · (${attn.flow.short(dA[2][0])} − ${attn.number(r[2][0], 2)}) = `
      + `${attn.number(dS[2][0], 2)}. A higher score for WEATHER takes weight from IS and LOVELY, who hand over 7.`,
  }, {
    ask: "Ten of the twenty learnt numbers have the gradient 0. How many have it if the loss looks at the first output of all three words? Guess, then choose that case and go on to dW.",
    guesses: { ten: "ten", two: "two", none: "none" },
    right: ({ values }) => ({ 10: "ten", 2: "two" })[this.zeros(values)] ?? "none",
    done: (figure) => figure.state.stage === 4 && figure.state.dO.join() === this.cases["the first output of all words"].join() && this.as_at_the_start(figure),
    seen: ({ values }) => `${this.zeros(values)} are 0. What LOVELY leaves out in X and in its query, the other words have. The second column of W_v makes second outputs alone, and the loss looks at none.`,
  }];

  build() {
    const { svg, range } = attn, back = [["dO", "M756 108V150"], ["dV", "M734 242V251H668V243"], ["dA", "M668 251H579V243"], ["r", "M526 204H516"],
      ["dK", "M425 242V251H300V243"], ["dQ", "M300 251H174V243"], ["dW_q", "M144 242V264"], ["dW_k", "M270 242V264"], ["dW_v", "M654 242V264"]];
    const band = (tone, words, y, height) => svg("g", { class: tone }, svg("rect", { class: "attn-lane", x: 0, y, width: 772, height, rx: 6 }),
      svg("text", { class: "attn-tone", x: 6, y: y + 14 }, words));
    this.build_flow(772, [["S", "M300 108V117M174 108V117H425V109"], ["A", "M478 70H526"], ["O", "M668 108V117M579 108V117H734V109"],
      ...back.map(([to, d]) => [to, d, "attn-back"])], band("attn-second", "forward →", 0, 124), band("attn-back", "← gradients", 130, 306));
    // Below dS and dA one row of both as columns: as wide as a weight, as high as its dA; what lies between a column's end and the mean is dS.
    this.caption = svg("text", { x: 499, y: 272, "text-anchor": "middle", class: "attn-row-name" });
    this.mean = [svg("path", { class: "attn-cursor-line" }), svg("text", { x: 369, class: "attn-name" })];
    this.columns = range(3).map((j) => {
      const [column, area] = [svg("path", { class: "attn-column" }), svg("path", { class: "attn-amount" })], [amount, name, top] = [svg("text", { class: "attn-name", "text-anchor": "middle" }),
        svg("text", { y: 430, "text-anchor": "middle", class: "attn-row-name" }), svg("text", { "text-anchor": "middle", class: "attn-row-name" })];
      const part = svg("g", {}, column, area);
      part.addEventListener("click", () => this.cells.get(`dS${this.row}${j}`).cell.focus({ preventScroll: true }));
      return { part, column, area, amount, name, top };
    });
    this.balance = svg("g", { class: "attn-balance" }, this.caption, ...this.columns.map(({ part }) => part), this.mean[0], ...this.columns.flatMap(({ amount, name, top }) => [amount, name, top]), this.mean[1]);
    this.drawing.append(this.balance);
    attn.put(this.drawing, { viewBox: "0 0 772 436" });
    this.presets("The loss looks at", Object.fromEntries(Object.entries(this.constructor.cases).map(([name, dO]) => [name, { dO }])));
  }

  /* Another loss is no other layer: each of the cases is compared with itself. */
  get origin() {
    const { cases, start } = this.constructor, { dO } = this.state;
    return { ...start, dO: Object.values(cases).find((one) => one.join() === dO.join()) ?? start.dO };
  }

  draw() {
    const says = super.draw(), { values: { A, dA, dS, r }, chosen: { name, i }, state: { stage } } = this, { tokens } = this.constructor, { short } = attn.flow;
    if (/^(S|A|O|dO|dA|dS|r|Q|dQ)$/.test(name)) this.row = i;
    const k = this.row ??= 2, all = [...dA.flat(), ...r.flat(), 0], low = Math.min(...all), high = Math.max(...all, low + 1);
    const y = (x) => 414 - 122 * (x - low) / (high - low), balanced = stage > 1;
    this.caption.textContent = `${tokens[k]}: width A, height dA` + (balanced ? ", area from r on dS" : "");
    this.glide("balance", [...A[k], ...dA[k].map(y), y(r[k][0]), y(0), +balanced], (now) => {
      const [mean, zero, on] = now.slice(6);
      let x = 366;
      this.columns.forEach(({ column, area, amount, name: word, top }, j) => {
        const wide = 266 * now[j], end = now[3 + j], middle = x + wide / 2;
        attn.put(column, { d: `M${x} ${zero}V${end}H${x + wide}V${zero}Z` });
        attn.put(area, { d: `M${x} ${mean}V${mean + on * (end - mean)}H${x + wide}V${mean}Z` });
        attn.put(amount, { x: middle, y: (mean + end) / 2 + 4 });
        attn.put(word, { x: middle });
        attn.put(top, { x: middle, y: end - (end > mean ? 3 : 6) });
        word.textContent = wide > 6 * tokens[j].length ? tokens[j] : wide > 8 ? tokens[j][0] : "";
        x += wide;
      });
      attn.put(this.mean[0], { d: `M366 ${mean}H632` });
      attn.put(this.mean[1], { y: mean - 4 });
    });
    this.columns.forEach(({ area, amount, top }, j) => {
      top.textContent = balanced ? short(dA[k][j]) : ""; // where the amount does not say it
      area.setAttribute("class", "attn-amount attn-" + (dS[k][j] > 0 ? "plus" : "minus"));
      amount.textContent = balanced ? short(dS[k][j]) : short(dA[k][j]);
    });
    this.mean[1].textContent = `r = ${short(r[k][0])}`;
    for (const part of this.mean) part.classList.toggle("attn-empty", !balanced);
    this.balance.classList.toggle("attn-empty", stage < 1);
    return says;
  }

  tell() {
    const { stage } = this.state, { stages, zeros } = this.constructor;
    return `Gradients up to ${stages[stage]}.` + (stage === 4 ? ` Of the twenty learnt numbers ${zeros(this.values)} have the gradient 0.` : "");
  }
});
