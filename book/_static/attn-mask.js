/* Chapter 3: forbid keys by hand, and see what three conventions make of a row with none left. */
customElements.define("attn-mask", class extends attn.Figure {
  static title = "Mask editor";
  static tokens = ["pad", "Learn", "to", "code"];
  static scores = [[0.7, -0.4, 1.1, 0.2], [-0.3, 0.9, 0.4, -1.2], [1.3, 0.1, -0.6, 0.8], [0.5, -0.9, 0.6, 1.4]];
  static conventions = {
    zero: "weights 0 (masked_softmax)", uniform: "fill with −1e9, then softmax", nan: "fill with −∞, then softmax",
  };
  static tasks = [{
    ask: "The first token is a pad, and under this mask it may see nothing. What weights does “fill with −1e9, then softmax” give it?",
    guesses: { zero: "all 0", uniform: "equal ones", nan: "NaN" },
    right: ({ A: [row] }) => (row.every(Number.isNaN) ? "nan" : attn.sum(row) ? "uniform" : "zero"),
    done: ({ state: { mask, convention } }) => convention === "uniform" && !mask[0].includes(true),
    seen: ({ A: [row] }) => `Each of its weights is ${attn.number(row[0])}, all on forbidden keys, and the row sums to ${attn.number(attn.sum(row))} like a healthy one.`,
  }];
  static start = { mask: attn.range(4).map((i) => attn.range(4).map((j) => 0 < j && j <= i)), convention: "zero" };

  build() {
    const { html, svg, range } = attn, { tokens, scores, conventions } = this.constructor, letters = "abcd"; // their colours
    this.choice("convention", "Where nothing is permitted", conventions);
    const masks = {
      "permit all": (i, j) => true, causal: (i, j) => j <= i, padding: (i, j) => j > 0,
      "padding & causal": (i, j) => j <= i && j > 0,
    };
    this.presets("Masks", Object.fromEntries(Object.entries(masks).map(([name, may]) =>
      [name, { mask: range(4).map((i) => range(4).map((j) => may(i, j))) }])));

    this.cells = range(4).map((i) => range(4).map((j) => {
      const cell = html("button", { type: "button", class: "attn-cell attn-is-" + letters[j], tabindex: i + j ? -1 : 0 }, attn.number(scores[i][j], 1));
      // A press turns a cell over; a mouse that goes on from there paints the same.
      const paint = (may) => this.set({ mask: this.state.mask.with(i, this.state.mask[i].with(j, may)) });
      cell.addEventListener("pointerdown", () => Object.assign(this, { brush: !this.state.mask[i][j], painted: false }));
      for (const kind of ["pointerleave", "pointerenter"]) cell.addEventListener(kind, () => this.brush !== undefined && paint(this.brush, this.painted = true));
      cell.addEventListener("click", ({ detail }) => (detail && this.painted) || paint(!this.state.mask[i][j]));
      cell.addEventListener("keydown", (event) => {
        const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
        const next = way && this.cells[i + way[0]]?.[j + way[1]];
        if (way) event.preventDefault();
        if (next) this.reach(next);
      });
      cell.addEventListener("focus", () => this.reach(cell));
      return cell;
    }));
    document.addEventListener("pointerup", () => { this.brush = undefined; });
    // The bar of a query: its length is 1, each key has a piece as long as its weight.
    this.bars = range(4).map(() => {
      const pieces = range(4).map((j) => svg("g", { class: "attn-is-" + letters[j] }, svg("rect", { height: 30, y: 3 }), svg("text", { y: 18, class: "attn-mid" })));
      const none = svg("text", { x: 170, y: 18, class: "attn-mid" }), sum = svg("text", { x: 372, y: 18, class: "attn-mid" });
      const part = svg("svg", { viewBox: "0 0 400 36", role: "img" }, svg("rect", { class: "attn-ghost", x: 1, y: 3, width: 340, height: 30 }), ...pieces, none, sum);
      return { part, pieces, none, sum };
    });
    this.bars[0].part.prepend(svg("pattern", { id: "attn-forbidden", width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("path", { d: "M0 0V8" })));
    const head = html("div", { class: "attn-query attn-heading" }, html("span", {}, "query"), html("div", {}, ...tokens.map((token) => html("span", {}, token))),
      html("span", {}, "weights: a bar of length 1, cut by the keys", html("span", {}, "sum")));
    this.words.classList.remove("visually-hidden"); // what the choice changes, or that it changes nothing here
    this.picture.append(html("div", { class: "attn-queries" }, head, ...tokens.map((token, i) =>
      html("div", { class: "attn-query" }, html("span", {}, token), html("div", {}, ...this.cells[i]), this.bars[i].part))));
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
    const { tokens } = this.constructor, { mask, convention } = this.state, { A } = this, { number, sum } = attn;
    const short = (x) => (x === 0 ? "0" : number(x));
    this.cells.forEach((row, i) => row.forEach((cell, j) => {
      cell.setAttribute("aria-pressed", mask[i][j]);
      cell.dataset.fill = { zero: "", uniform: "−1e9", nan: "−∞" }[convention]; // what stands in place of a forbidden score
      cell.setAttribute("aria-label", `query ${tokens[i]}, key ${tokens[j]}: ${mask[i][j] ? "may attend" : "may not"}`);
    }));
    const lost = A.map((row) => row.some(Number.isNaN));
    this.bars.forEach(({ part, none, sum: total }, i) => {
      none.textContent = sum(A[i]) === 0 ? "no piece is left: all weights are 0" : "";
      total.textContent = short(sum(A[i]));
      part.classList.toggle("attn-broken", lost[i]);
      part.setAttribute("aria-label", `${tokens[i]}: ${tokens.map((token, j) => `${token} ${short(A[i][j])}`).join(", ")}; sum ${short(sum(A[i]))}`);
    });
    // A broken bar is four pieces of the same length that fall apart.
    this.glide("bars", [...A.flatMap((row, i) => row.map((x) => (lost[i] ? 0.25 : x))), ...lost.map(Number)], (now) => this.bars.forEach(({ pieces }, i) => {
      let x = 1;
      pieces.forEach((piece, j) => {
        const width = 340 * now[4 * i + j], apart = now[16 + i], [bar, text] = piece.children;
        attn.put(bar, { x, width });
        piece.setAttribute("transform", `rotate(${apart * [-9, 7, -6, 10][j]} ${x + width / 2} 18)`);
        attn.put(text, { x: x + width / 2 });
        text.textContent = apart > 0.5 ? "NaN" : width > 80 ? `${tokens[j]} ${number(width / 340)}` : width > 36 ? number(width / 340) : "";
        bar.style.fill = piece.classList.toggle("attn-hatched", !mask[i][j] && A[i][j] > 0) ? "url(#attn-forbidden)" : "";
        x += width;
      });
    }));
    const empty = tokens.filter((_, i) => !mask[i].includes(true)), hidden = mask.flat().filter((may) => !may).length;
    const effect = { zero: "all weights are 0 and so is the output", uniform: "the weights are equal, and read what is forbidden",
      nan: "the weights are NaN" }[convention];
    return `${hidden} of 16 pairs are forbidden. ` + (empty.length
      ? `${empty.join(" and ")} may see nothing: ${effect}.` : "Every row sums to 1, and the three conventions agree.");
  }
});
