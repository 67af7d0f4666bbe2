/* Chapter 8: greedy decoding and a beam, step by step, with the trained translator or one of the chapter's small models.
   Needs attn-translator.js, attn-beam-data.js: the translator and its weights. */
customElements.define("attn-beam", class extends attn.Figure {
  static title = "Alignment, greedy decoding and a beam";
  static start = { model: "trap", text: "three hundred and twelve thousand four hundred and six", k: 2, step: 2 };
  static models = { trap: "five words a to e", dogs: "dogs bark", translator: "the trained translator" };
  static tables = {
    trap: ["abcde.", { "": { a: 0.5, b: 0.4, ".": 0.1 }, a: { c: 0.34, d: 0.33, e: 0.33 }, b: { c: 0.45, d: 0.45, ".": 0.1 },
      "b c": { a: 0.25, b: 0.25, c: 0.25, d: 0.25 }, "b d": { a: 0.25, b: 0.25, c: 0.25, d: 0.25 } }, 4],
    dogs: [["the", "dogs", "dog", "hound", "bark", "."], { "": { the: 0.5, dogs: 0.4, ".": 0.1 }, the: { dog: 0.45, hound: 0.35, ".": 0.2 },
      dogs: { bark: 0.9, ".": 0.1 } }, 3],
  };
  static tasks = [{
    ask: "Can a beam of 2 end with a sentence that is less likely than the greedy one? Go through all steps of the five words a to e with k = 2, then 3.",
    guesses: { no: "no, it looks further", yes: "yes" },
    right: (figure, met) => (met.get(2) < met.get("greedy") - 1e-9 ? "yes" : "no"),
    done: ({ state: { model, k, step }, greedy, beam }, met) => {
      if (model === "trap" && step >= beam.length) met.set(k, beam.at(-1).kept[0].score).set("greedy", greedy.at(-1).kept[0].score);
      return met.has(2) && met.has(3);
    },
    seen: (figure, met) => `Greedy ends with probability ${attn.number(Math.exp(met.get("greedy")))}, k = 2 with ${attn.number(Math.exp(met.get(2)))}, k = 3 with ${attn.number(Math.exp(met.get(3)))}. `
      + "In step 2 the greedy sentence, 0.170, stands behind two that begin with b, 0.180 each, and a beam of 2 drops it; then both of these split into four.",
  }, {
    ask: "Now the translator: let it read “eighty thousand and five”, and go to step 3, where it writes a zero that no word names. At which word does it look most?",
    guesses: { eighty: "eighty", thousand: "thousand", and: "and", five: "five" },
    right: (figure) => figure.looks,
    done: ({ state: { model, text, step } }) => model === "translator" && text.trim().toLowerCase() === "eighty thousand and five" && step === 3,
    seen: (figure) => `At “${figure.looks}”, with ${attn.number(figure.share, 2)} of its weight. Only the place in the number asks for this zero.`,
  }];

  build() {
    const { html, svg, range } = attn;
    this.model = new attn.Translator(attn.translator);
    this.choice("model", "Model", this.constructor.models);
    this.slider("k", "Width k of the beam", [1, 4, 1]);
    this.slider("step", "Steps done", [1, 10, 1]);
    this.player("Step by step", 900, () => {
      const { step } = this.state, more = step < this.last;
      this.set({ step: more ? step + 1 : 1 }); // from the end it begins anew
      return !more || step + 1 < this.last;
    });
    this.presets("Numbers", { "20,000,001": { model: "translator", text: "twenty million and one" }, "80,005": { model: "translator", text: "eighty thousand and five" } });
    this.input = html("textarea", { rows: 2, maxlength: 160 });
    this.input.addEventListener("input", () => this.set({ text: this.input.value }));
    const field = html("label", { class: "attn-text" }, "A number in words", this.input);
    this.control(field, () => {
      field.hidden = this.state.model !== "translator";
      if (this.input.value !== this.state.text) this.input.value = this.state.text;
    });

    const fade = svg("linearGradient", { id: "attn-fade" }, ...[0.6, 0].map((opacity, i) => svg("stop", { offset: i, "stop-opacity": opacity })));
    this.mouth = svg("rect", { y: -9, height: 999, x: -9 });
    this.river = svg("g", { "clip-path": "url(#attn-mouth)" });
    this.tree = svg("svg", { role: "img", class: "attn-river" }, fade, svg("clipPath", { id: "attn-mouth" }, this.mouth), this.river);
    this.map = svg("svg", { role: "img" });
    this.answer = html("p", { class: "attn-answer" });
    this.strange = html("p");
    this.best = range(2).map((i) => [html("th", { scope: "row" }), html("td"), html("td", { class: i ? "attn-bar" : "attn-bar attn-worse" })]);
    this.looked = html("div", {}, html("p", {}, "Weights of the greedy translator: rows are symbols that it writes"), this.map, this.answer, this.strange);
    const key = (kind, text) => html("b", { class: `attn-of-${kind}` }, text);
    this.picture.append(html("div", {}, html("p", {}, "As wide as it is likely: ", key("beam", "what the beam keeps"), ", ", key("lost", "what it drops"), ", ", key("greedy", "what greedy keeps")), this.tree),
      this.looked, html("div", {}, attn.table("The best beginning so far", ["", "has written", "with probability"], this.best)));
    this.fit(this.tree.parentNode);
  }

  /* The words that the model knows, those that it does not, and how it goes on after a beginning. */
  world() {
    const { model, text } = this.state, { translator } = attn;
    if (model === "translator") {
      const all = text.toLowerCase().split(/[\s-]+/).filter(Boolean), words = all.filter((word) => translator.words.includes(word)).slice(0, 20);
      const used = words.length ? words : ["zero"], start = this.model.read(used.map((word) => translator.words.indexOf(word)));
      return { words: used, none: !words.length, unknown: all.filter((word) => !translator.words.includes(word)), start, end: this.model.end, longest: 10,
        next: (node) => this.model.write(node), name: (symbol) => (symbol === 10 ? "end" : String(symbol)), join: "" };
    }
    const [list, table, longest] = this.constructor.tables[model], Y = [...list];
    const next = ({ said }) => {
      const row = table[said.map((y) => Y[y]).join(" ")] ?? { ".": 1 };
      return { logs: Y.map((y) => Math.log(row[y] ?? 0)) };
    };
    return { words: [], unknown: [], start: {}, end: Y.indexOf("."), longest, next, name: (symbol) => Y[symbol], join: " " };
  }

  draw() {
    const { number } = attn, { model, text, k, step } = this.state, key = [model, model === "translator" && text].join();
    if (this.drawn !== key) {
      this.drawn = key;
      this.here = this.world();
      this.beams = new Map();
    }
    const { words, unknown, none, start, end, longest, next, name, join } = this.here;
    const searched = (k) => this.beams.get(k) ?? this.beams.set(k, attn.beam_search(next, start, end, longest, k)).get(k);
    [this.greedy, this.beam] = [searched(1), searched(k)];
    this.last = Math.max(this.greedy.length, this.beam.length);
    const said = (node) => node.said.filter((y) => y !== end).map(name).join(join) || "nothing", p = (node) => number(Math.exp(node.score));
    this.plant(Math.min(step, this.last));
    const row = this.greedy[Math.min(step, this.greedy.length) - 1].kept[0];
    this.align(words, step);
    this.looked.hidden = !words.length;
    this.share = Math.max(...row.weights ?? []);
    this.looks = words[row.weights?.indexOf(this.share)];
    this.answer.textContent = words.length ? `To write “${name(row.said.at(-1))}” it looks most at “${this.looks}”, ${number(this.share, 2)}` : "";
    this.strange.textContent = none ? "There is no word of a number yet: it reads “zero”." : unknown.length ? `Words that it does not know are left out: ${unknown.join(", ")}.` : "";
    const now = (steps) => steps[Math.min(step, steps.length) - 1].kept, both = [now(this.greedy)[0], now(this.beam)[0]];
    both.forEach((best, i) => [i ? `a beam of ${k}` : "greedy", said(best), p(best)].forEach((content, c) => { this.best[i][c].textContent = content; }));
    this.glide("best", both.map(({ score }) => Math.exp(score)), (shares) => shares.forEach((share, i) => this.best[i][2].style.setProperty("--share", share)));
    const sentence = `After step ${Math.min(step, this.last)} greedy has “${said(both[0])}”, ${p(both[0])}; a beam of ${k} has ${now(this.beam).map((node) => `“${said(node)}”, ${p(node)}`).join("; ")}.`
      + (words.length ? ` ${this.answer.textContent}.` : "");
    this.tree.setAttribute("aria-label", sentence);
    return sentence;
  }

  /* A river that parts: a column for each step, each beginning below the one that it continues, as wide as it is likely.
     Of what the beam drops, whatever has half a percent. */
  plant(done) {
    const { svg } = attn, { end, name } = this.here, wide = this.tree.parentNode.clientWidth || 700, full = 150;
    const reach = (wide - 72) / (this.last - 0.25), x = (i) => (i < 0 ? 4 : 8 + reach * (i + 0.75)), key = ({ said }, i) => said.slice(0, i + 1).join();
    let before = new Map([["", { y: 0, thick: full, used: 0 }]]), deepest = full;
    const parts = [svg("rect", { x: 0, y: 0, width: 4, height: full, class: "attn-bank attn-kept" })], names = [];
    for (let i = 0; i < this.last; i++) {
      const column = new Map(), put = (node, kind) => column.set(key(node, i), { node, kind: [...column.get(key(node, i))?.kind ?? [], kind] });
      const { kept = [], dropped = [] } = this.beam[i] ?? {};
      for (const node of kept) put(node, "kept");
      for (const node of dropped.filter(({ score }, rank) => score > Math.log(0.005) && rank < 8)) put(node, "dropped");
      if (this.greedy[i]) put(this.greedy[i].kept[0], "greedy");
      let free = 0;
      const from = ([, { node }]) => before.get(key(node, i - 1)), down = (a, b) => from(a).y - from(b).y || b[1].node.score - a[1].node.score;
      for (const [said, place] of [...column].filter(from).sort(down)) {
        const { node, kind } = place, parent = before.get(key(node, i - 1)), thick = full * Math.exp(node.score), room = Math.max(16, thick);
        const y = Math.max(free, parent.y) + (room - thick) / 2, start = parent.y + parent.used;
        Object.assign(place, { y, thick, used: 0 });
        parent.used += thick;
        free = y + (room + thick) / 2 + 4;
        deepest = Math.max(deepest, free);
        const band = svg("path", { fill: "url(#attn-fade)" }), bank = svg("rect", { x: x(i) - 3, width: 3, height: Math.max(1, thick) }), line = svg("path", { class: "attn-edge attn-greedy" });
        for (const part of [band, bank]) part.setAttribute("class", `${part === band ? "attn-band" : "attn-bank"} ${kind.map((one) => "attn-" + one).join(" ")}`);
        const label = svg("text", { x: x(i) + 4, class: "attn-name" }, said.split(",").length <= i ? "" : name(node.said[i]) + (reach > 50 ? " " + attn.number(Math.exp(node.score) + 1e-9, reach > 72 ? 3 : 2) : ""));
        if (!kind.includes("kept") && !kind.includes("greedy")) label.classList.add("attn-lost");
        if (i < done) parts.push(band, bank, ...(kind.includes("greedy") ? [line] : []));
        if (i < done) names.push(label);
        this.glide(`${this.drawn} ${i} ${said}`, [start, y, x(i - 1), x(i) - 3], ([from, y, a, b]) => {
          const middle = (a + b) / 2, edge = (up) => [from + up, y + up];
          const [[p, q], [r, s]] = [edge(0), edge(thick)], [t, u] = edge(thick / 2);
          band.setAttribute("d", `M${a} ${p}C${middle} ${p} ${middle} ${q} ${b} ${q}V${s}C${middle} ${s} ${middle} ${r} ${a} ${r}Z`);
          line.setAttribute("d", `M${a} ${t}C${middle} ${t} ${middle} ${u} ${b} ${u}`);
          bank.setAttribute("y", y);
          label.setAttribute("y", y + thick / 2 + 4);
        });
      }
      before = new Map([...column].filter(([, { y }]) => y !== undefined));
    }
    this.tree.setAttribute("viewBox", `0 -2 ${wide} ${deepest + 4}`);
    this.river.replaceChildren(...parts, ...names);
    this.glide("mouth", [x(done)], ([width]) => this.mouth.setAttribute("width", width + 9), 600);
  }

  /* The weights of the steps that are done. */
  align(words, done) {
    const { svg } = attn, size = 20, high = 84, wide = 90 + size * words.length, { name } = this.here;
    const rows = words.length ? this.greedy.slice(0, done) : [];
    this.map.setAttribute("viewBox", `0 0 ${wide} ${high + 20 * this.greedy.length + 4}`);
    this.map.style.width = wide + "px";
    this.map.replaceChildren(...words.map((word, j) => {
      const x = 46 + size * (j + 0.5);
      return svg("text", { x, y: high - 6, class: "attn-small", transform: `rotate(-60 ${x} ${high - 6})` }, word);
    }), ...rows.flatMap(({ kept: [{ said, weights }] }, i) => [
      svg("text", { x: 38, y: high + 20 * i + 14, "text-anchor": "end" }, name(said.at(-1))),
      ...weights.map((w, j) => svg("rect", { x: 46 + size * j, y: high + 20 * i, width: size - 0.5, height: 19.5, fill: `rgb(${attn.colour("viridis", w)})` })),
    ]));
    this.map.setAttribute("aria-label", rows.map(({ kept: [{ said, weights }] }) => `${name(said.at(-1))} looks most at ${words[weights.indexOf(Math.max(...weights))]}`).join("; "));
  }
});
