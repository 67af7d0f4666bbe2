/* Chapter 8: greedy decoding and a beam, step by step, with the trained translator or one of the chapter's small models.
   Needs attn-translator.js, attn-beam-data.js: the translator and its weights. */
customElements.define("attn-beam", class extends attn.Figure {
  static title = "Alignment, greedy decoding and a beam";
  static start = { model: "translator", text: "three hundred and twelve thousand four hundred and six", k: 2, step: 3 };
  static models = { translator: "the trained translator", trap: "five words a to e", dogs: "dogs bark" };
  static tables = {
    trap: ["abcde.", { "": { a: 0.5, b: 0.4, ".": 0.1 }, a: { c: 0.34, d: 0.33, e: 0.33 }, b: { c: 0.45, d: 0.45, ".": 0.1 },
      "b c": { a: 0.25, b: 0.25, c: 0.25, d: 0.25 }, "b d": { a: 0.25, b: 0.25, c: 0.25, d: 0.25 } }, 4],
    dogs: [["the", "dogs", "dog", "hound", "bark", "."], { "": { the: 0.5, dogs: 0.4, ".": 0.1 }, the: { dog: 0.45, hound: 0.35, ".": 0.2 },
      dogs: { bark: 0.9, ".": 0.1 } }, 3],
  };
  static tasks = [{
    ask: "Can a beam of 2 end with a sentence that is less likely than the greedy one? Take the five words a to e, and go through all steps with k = 2, then 3.",
    guesses: { no: "no, it looks further", yes: "yes" },
    right: (figure, met) => (met.get(2) < met.get("greedy") - 1e-9 ? "yes" : "no"),
    done: ({ state: { model, k, step }, greedy, beam }, met) => {
      if (model === "trap" && step >= beam.length) met.set(k, beam.at(-1).kept[0].score).set("greedy", greedy.at(-1).kept[0].score);
      return met.has(2) && met.has(3);
    },
    seen: (figure, met) => `Greedy ends with probability ${attn.number(Math.exp(met.get("greedy")))}, k = 2 with ${attn.number(Math.exp(met.get(2)))}, k = 3 with ${attn.number(Math.exp(met.get(3)))}. `
      + "In step 2 the greedy sentence, 0.170, stands behind two that begin with b, 0.180 each, and a beam of 2 drops it; then both of these split into four.",
  }, {
    ask: "Back to the translator: let it read “eighty thousand and five”, and go to step 3, where it writes a zero that no word names. At which word does it look most?",
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
    this.player("Step by step", 700, () => {
      const { step } = this.state, more = step < this.last;
      if (more) this.set({ step: step + 1 });
      return more && step + 1 < this.last;
    });
    this.presets("Numbers", { "20,000,001": { model: "translator", text: "twenty million and one" }, "80,005": { model: "translator", text: "eighty thousand and five" } });
    this.input = html("textarea", { rows: 2, maxlength: 160 });
    this.input.addEventListener("input", () => this.set({ text: this.input.value }));
    this.control(html("label", { class: "attn-text" }, "A number in words, for the translator", this.input), () => {
      if (this.input.value !== this.state.text) this.input.value = this.state.text;
    });

    this.tree = svg("svg", { role: "img" });
    this.map = svg("svg", { role: "img" });
    this.answer = html("p", { class: "attn-answer" });
    this.strange = html("p");
    this.ends = range(2).map(() => [html("th", { scope: "row" }), html("td"), html("td")]);
    this.about = html("p");
    this.picture.append(html("div", {}, html("p", {}, "Probability of each beginning. Red: greedy; blue: the beam, its best on top; dotted: what it drops"), this.tree),
      html("div", {}, this.about, this.map, this.answer, this.strange, attn.table("At the end", ["", "writes", "probability"], this.ends)));
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
    this.map.style.display = words.length ? "" : "none";
    this.share = Math.max(...row.weights ?? []);
    this.looks = words[row.weights?.indexOf(this.share)];
    this.about.textContent = words.length ? "Weights of the greedy translator: rows are symbols that it writes" : "A model of words: nothing is read";
    this.answer.textContent = words.length ? `To write “${name(row.said.at(-1))}” it looks most at “${this.looks}”, ${number(this.share, 2)}` : "";
    this.strange.textContent = none ? "There is no word of a number yet: it reads “zero”." : unknown.length ? `Words that it does not know are left out: ${unknown.join(", ")}.` : "";
    [["greedy", this.greedy], [`k = ${k}`, this.beam]].forEach(([label, steps], i) => {
      const best = steps.at(-1).kept[0];
      [label, said(best), p(best)].forEach((content, c) => { this.ends[i][c].textContent = content; });
    });
    const now = (steps) => steps[Math.min(step, steps.length) - 1].kept;
    const sentence = `After step ${Math.min(step, this.last)} greedy has “${said(now(this.greedy)[0])}”, ${p(now(this.greedy)[0])}; a beam of ${k} has ${now(this.beam).map((node) => `“${said(node)}”, ${p(node)}`).join("; ")}. `
      + `${this.answer.textContent}${words.length ? ". " : ""}At the end: ${said(this.greedy.at(-1).kept[0])} and ${said(this.beam.at(-1).kept[0])}.`;
    this.tree.setAttribute("aria-label", sentence);
    return sentence;
  }

  /* The tree, a column for each step: first the greedy path, then the beam by rank, then the two likeliest that it drops. */
  plant(done) {
    const { svg, range } = attn, { k } = this.state, { end, name } = this.here, wide = 400 / (this.last + 0.4), parts = [], over = [];
    const x = (i) => wide * (i + 0.3), y = (lane) => 20 + 44 * lane, lanes = k + 3;
    const node = (i, lane, { said, score }, kind) => {
      const text = said.length <= i ? "·" : name(said[i]), box = Math.min(0.62 * wide, 60);
      over.push(svg("rect", { x: x(i) + wide * 0.2 - box / 2, y: y(lane) - 15, width: box, height: 30, rx: 4, class: `attn-node attn-${kind}` }),
        svg("text", { x: x(i) + wide * 0.2, y: y(lane) - 2, "text-anchor": "middle", class: "attn-small" }, text),
        svg("text", { x: x(i) + wide * 0.2, y: y(lane) + 11, "text-anchor": "middle", class: "attn-small" }, attn.number(Math.exp(score), 2)));
    };
    const edge = (i, from, to, kind) => parts.push(svg("path", { class: `attn-edge attn-${kind}`, d: `M${i ? x(i - 1) + wide * 0.2 : 2} ${y(from)}L${x(i) + wide * 0.2} ${y(to)}` }));
    for (const i of range(done)) {
      if (i < this.greedy.length) {
        edge(i, 0, 0, "greedy");
        node(i, 0, this.greedy[i].kept[0], "greedy");
      }
      if (i >= this.beam.length) continue;
      const { kept, dropped } = this.beam[i];
      kept.forEach((each, rank) => {
        edge(i, 1 + (i ? each.parent : 0), 1 + rank, "kept");
        node(i, 1 + rank, each, each.said.at(-1) === end ? "ended" : "kept");
      });
      dropped.slice(0, 2).forEach((each, rank) => {
        edge(i, 1 + (i ? each.parent : 0), 1 + k + rank, "dropped");
        node(i, 1 + k + rank, each, "dropped");
      });
    }
    this.tree.setAttribute("viewBox", `0 0 400 ${44 * lanes}`);
    this.tree.replaceChildren(...parts, ...over);
  }

  /* The weights of the steps that are done. */
  align(words, done) {
    const { svg } = attn, size = Math.min(22, 340 / words.length), high = 84, { name } = this.here;
    const rows = words.length ? this.greedy.slice(0, done) : [];
    this.map.setAttribute("viewBox", `0 0 400 ${high + 20 * this.greedy.length + 4}`);
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
