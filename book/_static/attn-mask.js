/* Chapter 3: forbid keys by hand, and see what three conventions make of a row with none left. */
customElements.define("attn-mask", class extends attn.Figure {
  static title = "Mask editor";
  static tokens = ["Learn", "to", "code", "pad"];
  static scores = [[0.7, -0.4, 1.1, 0.2], [-0.3, 0.9, 0.4, -1.2], [1.3, 0.1, -0.6, 0.8], [0.5, -0.9, 0.6, 1.4]];
  static conventions = {
    zero: "weights 0 (masked_softmax)", uniform: "fill with −1e9, then softmax", nan: "fill with −∞, then softmax",
  };
  static tasks = [{
    ask: "Hide the first key under a causal mask: “Learn” may then see nothing. What weights does “fill with −1e9, then softmax” give it?",
    guesses: { zero: "all 0", uniform: "equal ones", nan: "NaN" },
    right: ({ A: [row] }) => (row.every(Number.isNaN) ? "nan" : attn.sum(row) ? "uniform" : "zero"),
    done: ({ state: { mask, convention } }) => convention === "uniform" && !mask[0].includes(true),
    seen: ({ A: [row] }) => `Each of its weights is ${attn.number(row[0])}, all on forbidden keys, and the row sums to ${attn.number(attn.sum(row))} like a healthy one.`,
  }];
  static start = { mask: attn.range(4).map((i) => attn.range(4).map((j) => 0 < j && j <= i)), convention: "zero" };

  build() {
    const { html, range } = attn, { tokens, scores, conventions } = this.constructor;
    this.choice("convention", "Where nothing is permitted", conventions);
    const masks = {
      "permit all": (i, j) => true, causal: (i, j) => j <= i, padding: (i, j) => j < 3,
      "padding & causal": (i, j) => j <= i && j < 3, "first key hidden, causal": (i, j) => j <= i && j > 0,
    };
    this.presets("Masks", Object.fromEntries(Object.entries(masks).map(([name, may]) =>
      [name, { mask: range(4).map((i) => range(4).map((j) => may(i, j))) }])));

    this.cells = range(4).map((i) => range(4).map((j) => {
      const cell = html("button", { type: "button", class: "attn-cell", tabindex: i + j ? -1 : 0 }, attn.number(scores[i][j], 1));
      cell.addEventListener("click", () => this.set({
        mask: this.state.mask.map((row, k) => row.map((may, l) => (k === i && l === j ? !may : may))) }));
      cell.addEventListener("keydown", (event) => {
        const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
        const next = way && this.cells[i + way[0]]?.[j + way[1]];
        if (way) event.preventDefault();
        if (next) this.reach(next);
      });
      cell.addEventListener("focus", () => this.reach(cell));
      return cell;
    }));
    const grid = attn.table("Scores: press a cell to permit or forbid it", ["query", ...tokens],
      this.cells.map((row, i) => [html("th", { scope: "row" }, tokens[i]), ...row.map((cell) => html("td", {}, cell))]));
    this.weights = attn.heat("Weights", 4, [...tokens, "sum"], 4);
    this.picture.append(grid, this.weights.map);
  }

  /* One cell is in the tab order, the arrows go on from there. */
  reach(cell) {
    for (const other of this.cells.flat()) other.tabIndex = other === cell ? 0 : -1;
    if (document.activeElement !== cell) cell.focus();
  }

  get A() {
    const { mask, convention } = this.state, { scores } = this.constructor;
    return convention === "zero" ? attn.masked_softmax(scores, mask)
      : attn.softmax(attn.fill(scores, mask, convention === "nan" ? -Infinity : -1e9));
  }

  draw() {
    const { tokens } = this.constructor, { mask, convention } = this.state, A = this.A;
    this.cells.forEach((row, i) => row.forEach((cell, j) => {
      cell.setAttribute("aria-pressed", mask[i][j]);
      cell.setAttribute("aria-label", `query ${tokens[i]}, key ${tokens[j]}: ${mask[i][j] ? "may attend" : "may not"}`);
    }));
    this.weights.show(A.map((row) => [...row, attn.sum(row)]), tokens);
    const empty = tokens.filter((_, i) => !mask[i].includes(true)), hidden = mask.flat().filter((may) => !may).length;
    const effect = { zero: "all weights are 0 and so is the output", uniform: "the weights are equal, and read what is forbidden",
      nan: "the weights are NaN" }[convention];
    return `${hidden} of 16 pairs are forbidden. ` + (empty.length
      ? `${empty.join(" and ")} may see nothing: ${effect}.` : "Every row sums to 1, and the three conventions agree.");
  }
});
