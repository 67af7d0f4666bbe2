/* Chapter 4: put the words of the worked example in another order, and compare the outputs with those before. */
customElements.define("attn-permute", class extends attn.Figure {
  static title = "Permute the tokens";
  static start = { order: [0, 1, 2], moved: "tokens", causal: false, positions: false };
  static tokens = ["WEATHER", "IS", "LOVELY"];
  static X = [[1, 0], [1, 1], [0, 1]];
  static W_q = [[0, 1, 1, 0], [1, 0, 0, 1]];
  static W_k = [[1, 1, -1, 1], [-2, 1, 3, 0]].map((row) => row.map((x) => x * Math.LN2));
  static W_v = [[0, 7], [7, 7]];
  static parts = { tokens: "tokens: Q, K and V", queries: "queries alone", pairs: "keys with their values", keys: "keys without their values" };

  static tasks = [{
    ask: "Put the words in another order, without a mask and without positions. Which move changes an output? Try all four.",
    guesses: { tokens: "tokens", queries: "queries alone", pairs: "keys with values", keys: "keys without values", none: "none" },
    right: (figure, met) => [...met].find(([, changed]) => changed)?.[0] ?? "none",
    done: ({ state: { order, moved, causal, positions }, changed }, met) => {
      if (order.join("") !== "012" && !causal && !positions) met.set(moved, changed);
      return met.size === 4;
    },
    seen: (figure, met) => "Outputs changed: " + [...met].map(([moved, changed]) => `${figure.constructor.parts[moved]}, ${changed} of 3`).join("; ") + ".",
  }];

  build() {
    const { html, range } = attn, { tokens, parts } = this.constructor;
    this.chips = range(3).map((place) => {
      const chip = html("button", { type: "button", class: "attn-chip" });
      chip.addEventListener("keydown", (event) => {
        const to = place + ({ ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? NaN);
        if (to >= 0 && to < 3) event.preventDefault(), this.move(place, to), this.chips[to].focus();
      });
      chip.addEventListener("pointerdown", () => { this.held = place; });
      return chip;
    });
    const line = html("div", { class: "attn-chips", role: "group", "aria-label": "Order: arrow keys move a word" }, ...this.chips);
    line.addEventListener("pointermove", (event) => {
      if (this.held === undefined) return;
      const to = this.chips.findIndex((chip) => event.clientX < chip.getBoundingClientRect().right);
      if (to >= 0 && to !== this.held) this.move(this.held, to), this.held = to;
    });
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { this.held = undefined; });
    this.controls.append(line);
    // Swaps of neighbours, at the front and at the back in turn, lead through all six orders.
    this.button("Next order", ({ order: [a, b, c] }) => ({ order: (this.turn = !this.turn) ? [b, a, c] : [a, c, b] }));
    this.choice("moved", "What moves", parts);
    this.check("causal", "causal mask");
    this.check("positions", "add positions");
    const reversed = { order: [2, 1, 0], moved: "tokens" };
    this.presets("Reversed, in", {
      "an encoder without positions": { ...reversed, causal: false, positions: false },
      "an encoder with positions": { ...reversed, causal: false, positions: true },
      "a decoder without positions": { ...reversed, causal: true, positions: false },
    });

    this.weights = attn.heat("Weights", 3, tokens);
    this.outputs = range(3).map(() => [html("th", { scope: "row" }), html("td"), html("td")]);
    this.picture.append(this.weights.map, attn.table("Output of each query", ["query", "output", "before"], this.outputs));
  }

  move(from, to) {
    const order = [...this.state.order];
    order.splice(to, 0, ...order.splice(from, 1));
    this.set({ order });
  }

  /* Weights and outputs where queries, keys and values stand in orders of their own. */
  attention(q, k, v) {
    const { X, W_q, W_k, W_v } = this.constructor, { causal, positions } = this.state;
    const marks = attn.sinusoidal_encoding(3, 2);
    const project = (order, W) => {
      const rows = order.map((i) => X[i]);
      return attn.matmul(positions ? attn.add(rows, marks) : rows, W);
    };
    const S = attn.scaled_dot_score(project(q, W_q), project(k, W_k));
    const A = causal ? attn.masked_softmax(S, attn.causal_mask(3)) : attn.softmax(S);
    return { A, O: attn.matmul(A, project(v, W_v)) };
  }

  draw() {
    const { order, moved } = this.state, { tokens } = this.constructor, first = [0, 1, 2];
    const moves = { tokens: [1, 1, 1], queries: [1, 0, 0], pairs: [0, 1, 1], keys: [0, 1, 0] }[moved];
    const [q, k, v] = moves.map((does) => (does ? order : first));
    const { A, O } = this.attention(q, k, v), before = this.attention(first, first, first).O;
    this.chips.forEach((chip, place) => { chip.textContent = tokens[order[place]]; });
    this.weights.names.forEach((name, j) => { name.textContent = tokens[k[j]]; });
    // Rows and columns slide to their new places: of each word its row, its column and its weights.
    const words = first.map((word) => [q.indexOf(word), k.indexOf(word), ...first.map((key) => A[q.indexOf(word)][k.indexOf(key)])]);
    this.glide("words", words.flat(), (now) => {
      const [down, across] = [q.map((word, i) => now[5 * word] - i), k.map((word, j) => now[5 * word + 1] - j)];
      const slide = (part, x, y) => { part.style.translate = `${100 * x}% ${100 * y}%`; };
      this.weights.show(q.map((word) => k.map((key) => now[5 * word + 2 + key])), q.map((word) => tokens[word]));
      this.weights.names.forEach((name, j) => slide(name, across[j], 0));
      [...this.weights.map.tBodies[0].rows].forEach(({ cells }, i) => [...cells].forEach((cell, j) => slide(cell, j && across[j - 1], down[i])));
      this.outputs.forEach(([name], i) => slide(name.parentElement, 0, down[i]));
    });
    let changed = 0;
    this.outputs.forEach(([name, output, old], i) => {
      const same = O[i].every((x, c) => Math.abs(x - before[q[i]][c]) < 1e-9);
      changed += !same;
      name.textContent = tokens[q[i]];
      output.textContent = attn.row(O[i], 2);
      old.textContent = same ? "the same" : attn.row(before[q[i]], 2);
      old.classList.toggle("attn-changed", !same);
    });
    this.changed = changed;
    return `${order.map((i) => tokens[i]).join(" ")}; what moves: ${this.constructor.parts[moved]}. ` + (changed
      ? `${changed} of 3 outputs changed.` : "No word's output changed" + (order.join("") !== "012" && moves[0] ? "; the rows moved along." : "."));
  }
});
