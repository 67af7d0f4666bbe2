/* Chapter 4: put the words of the worked example in another order, and compare the outputs with those before. */
customElements.define("attn-permute", class extends attn.Figure {
  static title = "Permute the tokens";
  static start = { order: [0, 1, 2], moved: "tokens", causal: false, positions: false };
  static tokens = ["WEATHER", "IS", "LOVELY"];
  static X = [[1, 0], [1, 1], [0, 1]];
  static W_q = [[0, 1, 1, 0], [1, 0, 0, 1]];
  static W_k = [[1, 1, -1, 1], [-2, 1, 3, 0]].map((row) => row.map((x) => x * Math.LN2));
  static W_v = [[0, 7], [7, 7]];
  static parts = { tokens: "whole words", queries: "only queries", pairs: "keys with values", keys: "only keys" };

  static tasks = [{
    ask: "Choose what moves, and change the order. Which of the four moves changes an output? Try them all.",
    guesses: { ...this.parts, none: "none of them" },
    right: (figure, met) => [...met].find(([, changed]) => changed)?.[0] ?? "none",
    done: ({ state: { order, moved, causal, positions }, changed }, met) => {
      if (order.join("") !== "012" && !causal && !positions) met.set(moved, changed);
      return met.size === 4;
    },
    yet: (figure, met) => `${met.size} of 4 moves tried.`,
    seen: () => "A key that moves without its value lends its weight to the value of another word. The other three moves change no output.",
  }];

  chips = [];
  moves = [];

  choices() {
    const { html, range } = attn, { parts } = this.constructor;
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
    this.carry(line, ({ clientX }) => this.chips.findIndex((chip) => clientX < chip.getBoundingClientRect().right));
    this.controls.append(line);
    // Swaps of neighbours, at the front and at the back in turn, lead through all six orders.
    this.button("Next order", ({ order: [a, b, c] }) => ({ order: (this.turn = !this.turn) ? [b, a, c] : [a, c, b] }));
    this.check("causal", "causal mask");
    this.check("positions", "add positions");
    this.fits.moved = (moved) => Object.hasOwn(parts, moved);
    this.presets("What moves", Object.fromEntries(Object.entries(parts).map(([moved, name]) => [name, { moved }])));
    this.moves = [...this.controls.lastChild.querySelectorAll("button")];
  }

  build() {
    const { svg, range } = attn;
    this.tried = new Map(); // under each mask, with and without positions, { what moved: the most outputs that changed }
    this.choices();

    // Above what each query takes, mixed in the colours of the words; below it lines from the keys, as thick as the weights.
    const letters = ["a", "b", "c"], colour = (word) => "attn-is-" + letters[word];
    const token = (y) => range(3).map((word) => {
      const text = svg("text", { class: `attn-mid ${colour(word)}`, x: 0, y: y + 13 });
      const part = this.drawing.appendChild(svg("g", {}, svg("rect", { class: colour(word), x: -75, y, width: 150, height: 26, rx: 5 }), text));
      return { part, text };
    });
    this.drawing = svg("svg", { viewBox: "0 0 490 262", role: "img" });
    this.lines = range(9).map((k) => this.drawing.appendChild(svg("path", { class: "attn-weighs " + colour(k % 3) })));
    [this.queries, this.keys, this.values] = [76, 202, 231].map(token);
    this.outputs = range(3).map(() => {
      const box = svg("rect", { class: "attn-box", x: -79, y: 2, width: 158, height: 104, rx: 8 });
      const [output, old] = [20, 66].map((y) => svg("text", { class: "attn-mid", x: 0, y }));
      const mix = range(3).map((word) => [svg("rect", { class: colour(word), y: 30, height: 20 }), svg("text", { class: `attn-mid ${colour(word)}`, y: 40 })]);
      const was = range(3).map((word) => svg("rect", { class: colour(word), y: 51, height: 5 })); // as it was mixed before
      const part = svg("g", {}, box, output, ...mix.flat(), ...was, old);
      this.drawing.insertBefore(part, this.queries[0].part);
      return { part, box, output, mix, was, old };
    });
    const column = ({ clientX }) => Math.floor(new DOMPoint(clientX).matrixTransform(this.drawing.getScreenCTM().inverse()).x / 165);
    this.drawing.addEventListener("pointerdown", (event) => { if (event.target.closest(".attn-moves")) this.held = Math.min(2, column(event)); });
    this.carry(this.drawing, column);
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { this.held = undefined; });
    this.picture.append(this.drawing);
  }

  /* What is held goes along with the pointer, to the place that it is over. */
  carry(part, place) {
    part.addEventListener("pointermove", (event) => {
      const to = place(event);
      if (this.held !== undefined && to !== this.held && to >= 0 && to < 3) this.move(this.held, to), this.held = to;
    });
  }

  again() {
    this.turn = false;
    super.again();
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
    const { order, moved } = this.state, { tokens, parts } = this.constructor, first = [0, 1, 2];
    const begun = order.join("") !== "012"; // before, no verdict: it would give the answer away
    const moves = { tokens: [1, 1, 1], queries: [1, 0, 0], pairs: [0, 1, 1], keys: [0, 1, 0] }[moved];
    const [q, k, v] = moves.map((does) => (does ? order : first));
    const { A, O } = this.attention(q, k, v), { A: past, O: before } = this.attention(first, first, first);
    this.chips.forEach((chip, place) => {
      chip.textContent = tokens[order[place]];
      chip.className = "attn-chip attn-is-" + "abc"[order[place]];
    });
    // Of each word the places of its query, key and value, what its query takes from each key and each value, and its output.
    const [rows, columns, sources] = [q, k, v].map((line) => first.map((word) => line.indexOf(word)));
    const now = first.map((word) => {
      const [i, taken] = [rows[word], A[rows[word]]];
      return [i, columns[word], sources[word], ...columns.map((j) => taken[j]), ...sources.map((j) => taken[j]), ...O[i]];
    });
    this.brought = columns.map((place) => v[place]); // of each key's word, whose value its weight takes
    this.glide("words", now.flat(), (all) => this.paint(first.map((word) => all.slice(11 * word, 11 * word + 11))));
    const same = O.map((row, i) => row.every((x, c) => Math.abs(x - before[q[i]][c]) < 1e-9)), changed = same.filter((one) => !one).length;
    const set = [this.state.causal, this.state.positions].join(), tried = this.tried.get(set) ?? this.tried.set(set, {}).get(set);
    if (begun) tried[moved] = Math.max(changed, tried[moved] ?? 0);
    Object.keys(parts).forEach((move, k) => { if (this.moves[k]) this.moves[k].dataset.found = move in tried ? (tried[move] ? "≠" : "=") : ""; });
    [this.queries, this.keys, this.values, this.outputs].forEach((row, k) => row.forEach(({ part }) => part.classList.toggle("attn-moves", !!moves[k % 3])));
    first.forEach((word) => {
      const i = rows[word], { box, old, was } = this.outputs[word];
      for (const part of [box, old]) part.classList.toggle("attn-changed", !same[i]);
      box.classList.toggle("attn-waits", !begun);
      old.textContent = !begun ? "" : same[i] ? `= the same${i === word ? "" : ", moved"}` : `≠ ${attn.row(before[word], 2)} before`;
      was.forEach((bar, of) => {
        bar.setAttribute("x", 150 * attn.sum(past[word].slice(0, of)) - 75);
        bar.setAttribute("width", same[i] ? 0 : 150 * past[word][of]);
      });
      for (const [name, tokens_of, place] of [["query", this.queries, i], ["key", this.keys, columns[word]], ["value", this.values, sources[word]]])
        tokens_of[word].text.textContent = `${name} ${tokens[word]}${this.state.positions ? " + p" + "₀₁₂"[place] : ""}`;
    });
    this.lines.forEach((line, at) => line.setAttribute("class", "attn-weighs attn-is-" + "abc"[v[columns[at % 3]]]));
    this.drawing.setAttribute("aria-label", q.map((word, i) => `${tokens[word]} ${attn.row(O[i], 2)}${!begun ? "" : same[i] ? ", the same" : ", before " + attn.row(before[word], 2)}: `
      + k.map((key, j) => `${A[i][j] ? attn.number(A[i][j]) : "0"} of the key of ${tokens[key]}`).join(", ")).join("; ") + ".");
    this.changed = changed;
    return `${order.map((i) => tokens[i]).join(" ")}; what moves: ${parts[moved]}.` + (!begun ? " Nothing has moved yet." : changed
      ? ` ${changed} of 3 outputs changed.` : " No word's output changed" + (moves[0] ? "; the rows moved along." : "."));
  }

  paint(words) {
    const x = (place) => 80 + 165 * place, slide = ({ part }, place) => part.setAttribute("transform", `translate(${x(place)})`);
    words.forEach(([i, j, source, ...numbers], word) => {
      for (const [parts, place] of [[this.queries, i], [this.outputs, i], [this.keys, j], [this.values, source]]) slide(parts[word], place);
      const { mix, output } = this.outputs[word];
      let left = -75;
      const pieces = []; // middles of the pieces of the bar: each line ends beneath the piece that it makes
      mix.forEach(([bar, text], of) => {
        const wide = 150 * numbers[3 + of];
        pieces.push(left + wide / 2);
        bar.setAttribute("x", left);
        bar.setAttribute("width", wide);
        text.setAttribute("x", left + wide / 2);
        text.textContent = wide < 30 ? "" : attn.number(numbers[3 + of], 2);
        left += wide;
      });
      output.textContent = "output " + attn.row(numbers.slice(6), 2);
      words.forEach(([, to], key) => {
        const line = this.lines[3 * word + key], from = x(i) + pieces[this.brought[key]];
        line.setAttribute("d", `M${from} 106C${from} 150 ${x(to)} 158 ${x(to)} 202`);
        line.setAttribute("stroke-width", (26 * numbers[key]).toFixed(2));
      });
    });
  }
});
