/* Chapter 5: ask the trained layer of two heads, and see where each head looks. Needs attn-heads-data.js: its matrices in hundredths. */
customElements.define("attn-heads", class extends attn.Figure {
  static title = "Two trained heads";
  static cities = ["Cairo", "Lima", "Oslo", "Perth", "Quito", "Rome", "Seoul", "Tunis"];
  static start = { first: "0", second: "2", at_work: "both", temperatures: [1.4, 0.3, -1.3, 0.6, -0.2, 0.8, -0.6, 1.1] };
  static tasks = [{
    ask: "Let head 0 work alone. Which half of the answer is lost?",
    guesses: { first: "that of the first city", second: "that of the second city", both: "both" },
    right: ({ state: { first, second, temperatures }, O }) => {
      const [one, other] = [first, second].map((city, i) => Math.abs(O[i] - temperatures[+city]) > 0.3);
      return one && other ? "both" : one ? "first" : "second";
    },
    done: ({ state: { first, second, at_work, temperatures } }) => at_work === "0" && first !== second && Math.abs(temperatures[+second]) > 0.5,
    seen: ({ state: { first, second, temperatures }, O }) => `The layer answers ${attn.number(O[0], 2)} and ${attn.number(O[1], 2)}; `
      + `the truth is ${attn.number(temperatures[+first], 2)} and ${attn.number(temperatures[+second], 2)}. Each head serves one of the two cities.`,
  }];

  build() {
    const { html, range } = attn, { cities } = this.constructor, named = { ...cities };
    this.choice("first", "First city", named);
    this.choice("second", "Second city", named);
    this.choice("at_work", "Heads at work", { both: "both", 0: "head 0 alone", 1: "head 1 alone" });
    const { temperatures } = this.constructor.start;
    this.presets("Question", {
      "asked in training": { first: "0", second: "2", temperatures }, "never asked": { first: "3", second: "7", temperatures },
      "one city twice": { first: "5", second: "5", temperatures },
      "all others at 2.0": { first: "0", second: "2", temperatures: temperatures.map((v, j) => (j === 0 || j === 2 ? v : 2)) },
    });
    this.rows = cities.map((city, j) => {
      const input = html("input", { type: "range", min: -2, max: 2, step: 0.1, "aria-label": `temperature of ${city}` });
      input.addEventListener("input", () => this.set({ temperatures: this.state.temperatures.with(j, +input.value) }));
      const shown = html("span"), heads = range(2).map(() => html("td", { class: "attn-paint" }));
      this.syncs.push(() => {
        input.value = this.state.temperatures[j];
        shown.textContent = attn.number(this.state.temperatures[j], 1);
      });
      return { heads, cells: [html("th", { scope: "row" }, city), html("td", {}, html("span", { class: "attn-degree" }, input, shown)), ...heads] };
    });
    this.answers = range(2).map(() => [html("th", { scope: "row" }), html("td"), html("td")]);
    const keys = attn.table("Eight keys: their values, and their weights in each head", ["key", "temperature", "", ""], this.rows.map((row) => row.cells));
    this.names = [...keys.tHead.rows[0].cells].slice(2);
    this.picture.append(keys, attn.table("What the layer answers", ["city", "answer", "truth"], this.answers));
  }

  works(h) { return this.state.at_work === "both" || +this.state.at_work === h; }

  /* multi_head_weights and multi_head_attention with biases, for one query. */
  attention(query, keys, values) {
    const { W_q, W_k, W_v, W_o, b_q, b_k, b_v, b_o } = attn.trained, width = b_q.length / 2;
    const project = (X, W, b) => attn.matmul(X, W).map((row) => row.map((x, c) => (x + b[c]) / 100));
    const heads = [project(query, W_q, b_q), project(keys, W_k, b_k), project(values, W_v, b_v)]
      .map((X) => attn.range(2).map((h) => X.map((row) => row.slice(h * width, (h + 1) * width))));
    const A = attn.range(2).map((h) => attn.softmax(attn.scaled_dot_score(heads[0][h], heads[1][h]))[0]);
    const found = A.flatMap((weights, h) => attn.matmul([weights], heads[2][h])[0]
      .map((x) => (this.works(h) ? x : 0)));
    return { A, O: project([found], W_o, b_o)[0] };
  }

  draw() {
    const { cities } = this.constructor, { temperatures } = this.state, { number } = attn;
    const asked = [this.state.first, this.state.second].map(Number);
    const one_hot = (i) => attn.range(8).map((j) => +(i === j));
    const { A, O } = Object.assign(this, this.attention([asked.flatMap(one_hot)], attn.range(8).map(one_hot), temperatures.map((v) => [v])));
    this.names.forEach((name, h) => { name.textContent = `head ${h}` + (this.works(h) ? "" : ", off"); });
    this.rows.forEach(({ heads }, j) => heads.forEach((cell, h) => {
      cell.textContent = number(A[h][j]);
      cell.classList.toggle("attn-off", !this.works(h));
      if (this.works(h)) attn.paint(cell, "viridis", A[h][j]);
    }));
    this.answers.forEach(([city, answer, truth], i) => {
      city.textContent = cities[asked[i]];
      answer.textContent = number(O[i], 2);
      truth.textContent = number(temperatures[asked[i]], 2);
    });
    const looks = attn.range(2).filter((h) => this.works(h)).map((h) => {
      const weights = A[h], top = Math.max(...weights);
      return `head ${h} looks at ${cities[weights.indexOf(top)]}, ${number(top)}`;
    });
    const known = asked[0] === asked[1] ? "Training asked nothing of this kind"
      : attn.trained.unseen.includes(asked.join("")) ? "Training never asked this" : "Training asked this";
    return `${known}: ${cities[asked[0]]}, then ${cities[asked[1]]}. For this question ${looks.join("; ")}. `
      + `The answer is ${number(O[0], 2)} and ${number(O[1], 2)}.`;
  }
});
