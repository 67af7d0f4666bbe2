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
    shows: () => ({ k: 2 }),
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
    const { html, svg } = attn;
    this.model = new attn.Translator(attn.translator);
    this.syncs.push(() => this.search());
    this.choice("model", "Model", this.constructor.models);
    this.slider("k", "Width k of the beam", [1, 4, 1]);
    this.slider("step", "Steps done", [1, 10, 1]);
    this.steps = this.controls.lastChild.querySelector("input");
    this.player("Step by step", 900, () => {
      const { step } = this.state, more = step < this.last;
      this.set({ step: more ? step + 1 : 1 }); // from the end it begins anew
      return !more || step + 1 < this.last;
    });
    this.presets("The translator reads", { "20,000,001": { model: "translator", text: "twenty million and one" }, "80,005": { model: "translator", text: "eighty thousand and five" } });
    this.input = html("textarea", { rows: 1, maxlength: 160 });
    this.input.addEventListener("input", () => this.set({ text: this.input.value }));
    const field = html("label", { class: "attn-text" }, "A number in words", this.input);
    this.control(field, () => {
      field.hidden = this.state.model !== "translator";
      if (this.input.value !== this.state.text) this.input.value = this.state.text;
    });

    const fade = svg("linearGradient", { id: "attn-fade" }, ...[0.6, 0].map((opacity, i) => svg("stop", { offset: i, "stop-opacity": opacity })));
    this.mouth = svg("rect", { y: -9, height: 999, x: -9 });
    this.river = svg("g", { "clip-path": "url(#attn-mouth)" });
    this.labels = svg("g");
    this.tree = svg("svg", { role: "img", class: "attn-river" }, fade, svg("clipPath", { id: "attn-mouth" }, this.mouth), this.river, this.labels);
    this.map = svg("svg", { role: "img" });
    this.answer = html("p", { class: "attn-answer" });
    this.strange = html("p");
    const key = (kind, text) => html("b", { class: `attn-of-${kind}` }, text);
    this.picture.append(html("div", {}, html("p", {}, "As wide as it is likely: ", key("beam", "what the beam keeps"), ", ", key("lost", "what it drops"), ", ", key("greedy", "what greedy keeps")),
      this.tree, this.map, this.answer, this.strange));
    this.fit(this.tree.parentNode);
  }

  /* The words that the model knows, those that it does not, and how it goes on after a beginning. */
  world() {
    const { model, text } = this.state, { translator } = attn;
    if (model === "translator") {
      const all = text.toLowerCase().split(/[\s-]+/).filter(Boolean), words = all.filter((word) => translator.words.includes(word)).slice(0, 20);
      const used = words.length ? words : ["zero"], start = this.model.read(used.map((word) => translator.words.indexOf(word)));
      return { words: used, none: !words.length, unknown: all.filter((word) => !translator.words.includes(word)), start, end: this.model.end, longest: 10,
        next: (node) => this.model.write(node), name: (symbol) => (symbol === 10 ? "end" : String(symbol)), quoted: (word) => (word === "end" ? word : `“${word}”`), join: "" };
    }
    const [list, table, longest] = this.constructor.tables[model], Y = [...list];
    const next = ({ said }) => {
      const row = table[said.map((y) => Y[y]).join(" ")] ?? { ".": 1 };
      return { logs: Y.map((y) => Math.log(row[y] ?? 0)) };
    };
    return { words: [], unknown: [], start: {}, end: Y.indexOf("."), longest, next, name: (symbol) => (Y[symbol] === "." ? "end" : Y[symbol]), quoted: String, join: " " };
  }

  /* Search anew where model or text have changed; the slider ends with the search. */
  search() {
    const { model, text, k, step } = this.state, key = [model, model === "translator" && text].join();
    const ended = this.drawn === key && step >= this.last; // it stays so if another width takes longer
    if (this.drawn !== key) {
      this.drawn = key;
      this.here = this.world();
      this.beams = new Map();
    }
    const { start, end, longest, next } = this.here, searched = (k) => this.beams.get(k) ?? this.beams.set(k, attn.beam_search(next, start, end, longest, k)).get(k);
    [this.greedy, this.beam] = [searched(1), searched(k)];
    this.steps.max = this.last = Math.max(this.greedy.length, this.beam.length);
    this.state.step = ended ? this.last : Math.min(step, this.last);
  }

  draw() {
    const { number } = attn, { k, step } = this.state, { words, unknown, none, end, name, join } = this.here;
    const said = (node) => node.said.filter((y) => y !== end).map(name).join(join) || "nothing", p = (node) => number(Math.exp(node.score));
    const now = (steps) => steps[Math.min(step, steps.length) - 1].kept, [row] = now(this.greedy), [best] = now(this.beam);
    this.plant(step);
    this.align(step);
    this.share = Math.max(...row.weights ?? []);
    this.looks = words[row.weights?.indexOf(this.share)];
    const look = words.length ? ` To write “${name(row.said.at(-1))}” it looks most at “${this.looks}”, ${number(this.share, 2)}.` : "";
    this.answer.textContent = (k > 1 ? `A beam of ${k} has “${said(best)}”, ${p(best)}; greedy` : "Greedy") + ` has “${said(row)}”, ${p(row)}.` + look;
    this.strange.textContent = none ? "There is no word of a number yet: it reads “zero”." : unknown.length ? `Words that it does not know are left out: ${unknown.join(", ")}.` : "";
    const sentence = `After step ${step} greedy has “${said(row)}”, ${p(row)}; a beam of ${k} has ${now(this.beam).map((node) => `“${said(node)}”, ${p(node)}`).join("; ")}.` + look;
    this.tree.setAttribute("aria-label", sentence);
    return sentence;
  }

  /* The places of the steps. Before them stand the words that the translator reads, behind them what it has at the end. */
  layout() {
    const wide = this.tree.parentNode.clientWidth || 700, large = wide > 500, left = this.here.words.length ? 72 - 14 * !large : 4;
    const reach = (wide - left - (large ? 150 : 62)) / (this.last - 0.25);
    return { wide, large, left, reach, x: (i) => (i < 0 ? left : left + 4 + reach * (i + 0.75)) };
  }

  /* A river that parts: a column for each step, each beginning below the one that it continues, as wide as it is likely.
     Of what the beam drops, whatever has half a percent. */
  plant(done) {
    const { svg } = attn, { end, name, quoted, words } = this.here, full = words.length ? 64 : 150, { wide, large, left, reach, x } = this.layout();
    const key = ({ said }, i) => said.slice(0, i + 1).join();
    let before = new Map([["", { y: 0, thick: full, used: 0 }]]), deepest = full;
    // Greedy's sentence has ended, but goes on for as long as the beam keeps it.
    const greedy_at = (i) => this.greedy[i] ?? (this.beam[i].kept.some((node) => key(node, i) === key(this.greedy.at(-1).kept[0], i)) ? this.greedy.at(-1) : undefined);
    let tail = Math.min(done, this.greedy.length);
    while (tail < done && greedy_at(tail)) tail++;
    const ends = [["beam", this.beam, Math.min(done, this.beam.length)], ["greedy", this.greedy, tail]];
    const parts = [svg("rect", { x: left - 4, y: 0, width: 4, height: full, class: "attn-bank attn-kept" })], names = [];
    for (let i = 0; i < this.last; i++) {
      const column = new Map(), put = (node, kind) => column.set(key(node, i), { node, kind: [...column.get(key(node, i))?.kind ?? [], kind] });
      const { kept = [], dropped = [] } = this.beam[i] ?? {};
      for (const node of kept) put(node, "kept");
      for (const node of dropped.filter(({ score }, rank) => score > Math.log(0.005) && rank < 8)) put(node, "dropped");
      if (greedy_at(i)) put(greedy_at(i).kept[0], "greedy");
      const ranks = new Map([...kept, ...dropped].sort((a, b) => b.score - a.score).map((node, rank) => [key(node, i), rank + 1]));
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
        const tips = ends.flatMap(([of, steps, end]) => (i === end - 1 && said === key(steps[Math.min(i, steps.length - 1)].kept[0], i) ? of : []));
        const probability = tips.length || reach > 50 ? attn.number(Math.exp(node.score) + 1e-9, tips.length || reach > 72 ? 3 : 2) : "";
        const brief = !large && i === this.last - 1 && node.said.at(-1) === end; // where all end, the word has no room
        const tiny = !tips.length && Math.exp(node.score) < 0.005;
        const label = svg("text", { x: x(i) + 4, class: ["attn-name", ...tips.map((of) => "attn-of-" + of)].join(" ") }, [reach > 90 && ranks.has(said) && `#${ranks.get(said)}`,
          ...(node.said.length > i && !brief ? [quoted(name(node.said[i])), probability] : tips.length || brief ? [probability] : reach > 72 ? ["end", probability] : []),
        ].filter(Boolean).join(" "));
        if (large) for (const of of tips) label.append(" ", svg("tspan", { class: `attn-of-${of}` }, of));
        if (!kind.includes("kept") && !kind.includes("greedy")) label.classList.add("attn-lost");
        if (i < done) parts.push(band, bank, ...(kind.includes("greedy") ? [line] : []));
        if (i < done && !tiny) names.push(label);
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
    this.river.replaceChildren(...parts);
    this.labels.replaceChildren(...names);
    this.glide("mouth", [x(done)], ([width]) => this.mouth.setAttribute("width", width + 9), 600);
  }

  /* For each step that is done, the three symbols that were likeliest after what greedy had written, and the weights of the words. */
  align(done) {
    const { svg } = attn, { words, name, next, start, end } = this.here, { wide, large, left, reach, x } = this.layout(), size = 16, high = 60, top = high + 24;
    this.map.classList.toggle("attn-gone", !words.length);
    if (!words.length) return void this.map.replaceChildren();
    const rows = this.greedy.slice(0, done).map(({ kept: [node] }) => node), pitch = Math.min(20, (reach - 4) / 3);
    this.map.setAttribute("viewBox", `0 0 ${wide} ${top + size * words.length + 2}`);
    const bars = this.greedy.slice(0, done).flatMap((_, i) => {
      const shares = attn.softmax([next(i ? this.greedy[i - 1].kept[0] : { said: [], score: 0, ...start }).logs])[0];
      return shares.map((p, y) => [p, y]).sort(([p], [q]) => q - p).slice(0, 3).flatMap(([p, y], rank) => {
        const at = x(i) - 3 + pitch * rank, chosen = y === rows[i].said.at(-1);
        return [svg("rect", { class: chosen ? "attn-bank attn-greedy" : "attn-bank", x: at, y: high - 48 * p, width: pitch - 3, height: Math.max(1, 48 * p) }),
          svg("text", { class: "attn-small", x: at + pitch / 2 - 1.5, y: high + 12, "text-anchor": "middle" }, large || chosen ? name(y) : "")];
      });
    });
    const cells = rows.flatMap(({ weights }, i) => weights.map((w, j) => svg("rect", { x: x(i) - 3, y: top + size * j, width: reach - 4, height: size - 1, fill: `rgb(${attn.colour("viridis", w)})` })));
    const { weights: now } = rows.at(-1), most = Math.max(...now), seen = svg("text", { class: "attn-small", x: x(rows.length - 1) - 5 + reach / 2, y: top + size * now.indexOf(most) + 12, "text-anchor": "middle", style: `fill: ${most > 0.55 ? "#000" : "#fff"}` }, attn.number(most, 2));
    this.map.replaceChildren(svg("text", { class: "attn-small", x: 0, y: high - 22 }, large ? "likeliest next" : "next"),
      svg("text", { class: "attn-small", x: 0, y: top - 5 }, "looks at"), ...words.map((word, j) => svg("text", { class: "attn-small", x: left - 6, y: top + size * j + 12, "text-anchor": "end" }, word)),
      svg("g", { "clip-path": "url(#attn-mouth)" }, svg("g", { class: "attn-next" }, ...bars), svg("g", { class: "attn-weights" }, ...cells), seen));
    this.map.setAttribute("aria-label", rows.map(({ said, weights }) => `${name(said.at(-1))} looks most at ${words[weights.indexOf(Math.max(...weights))]}`).join("; "));
  }
});
