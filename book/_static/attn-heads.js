/* Chapter 5: ask the trained layer of two heads, and see where each head looks. Needs attn-heads-data.js: its matrices in hundredths. */
customElements.define("attn-heads", class extends attn.Figure {
  static title = "Two trained heads";
  static cities = ["Cairo", "Lima", "Oslo", "Perth", "Quito", "Rome", "Seoul", "Tunis"];
  static start = { first: "0", second: "2", at_work: "none", temperatures: [1.4, 0.3, -1.3, 0.6, -0.2, 0.8, -0.6, 1.1] };
  static still = { at_work: "both" }; // in print nobody can switch them on
  static tasks = [{
    ask: "Both heads are off. Let head 0 work alone: which half of the answer comes right?",
    guesses: { first: "that of the first city", second: "that of the second city", both: "both" },
    right: ({ O, truth }) => {
      const [one, other] = truth.map((value, i) => Math.abs(O[i] - value) < 0.3);
      return one && other ? "both" : one ? "first" : "second";
    },
    done: ({ state: { first, second, at_work }, truth }) => at_work === "0" && first !== second && truth.every((value) => Math.abs(value) > 0.5),
    yet: ({ state: { at_work } }) => (at_work === "0" ? "A city near 0 looks like a head that says nothing: ask for two that are far from it." : ""),
    seen: ({ O, truth }) => `The layer answers ${attn.number(O[0], 2)} and ${attn.number(O[1], 2)}; `
      + `the truth is ${attn.number(truth[0], 2)} and ${attn.number(truth[1], 2)}. The other half is the business of head 1.`,
  }, {
    ask: "Both heads on. Choose “asked in training”, then “never asked”. In which question is the worse answer farther off?",
    opens: { at_work: "both" },
    guesses: { asked: "in the one asked", same: "alike, within 0.01", never: "in the one never asked" },
    right: (figure, met) => {
      const [asked, never] = ["02", "54"].map((pair) => met.get(pair));
      return Math.abs(asked - never) < 0.01 ? "same" : asked < never ? "never" : "asked";
    },
    done: ({ state: { first, second, at_work }, O, truth }, met) => {
      if (at_work === "both") met.set(first + second, Math.max(...O.map((x, i) => Math.abs(x - truth[i]))));
      return met.has("02") && met.has("54");
    },
    seen: (figure, met) => {
      const { asked, never } = figure.typical();
      return `Cairo, then Oslo: off by at most ${attn.number(met.get("02"), 3)}; Rome, then Quito: by ${attn.number(met.get("54"), 3)}. `
        + `Over all ${asked.length} that training asked it is ${attn.number(attn.sum(asked) / asked.length, 3)} in the mean, over the ${never.length} others ${attn.number(attn.sum(never) / never.length, 3)}.`;
    },
  }, {
    ask: "The question is Cairo, then Oslo. Set all the other cities to 2.0. How far do the two answers move, though nobody asked for those cities?",
    opens: { at_work: "both", first: "0", second: "2", temperatures: this.start.temperatures },
    guesses: { none: "not at all", little: "by less than 0.05", more: "by more" },
    right: (figure, met) => (met.get("moved") === 0 ? "none" : met.get("moved") < 0.05 ? "little" : "more"),
    done: ({ state: { first, second, at_work, temperatures }, moved }, met) => {
      if (at_work !== "both" || first !== "0" || second !== "2" || temperatures.some((v, j) => v !== 2 && j !== 0 && j !== 2)) return false;
      return met.set("moved", Math.max(...moved.map(Math.abs)));
    },
    seen: (figure, met) => `By at most ${attn.number(met.get("moved"), 3)}: a softmax gives no key the weight 0, so a little of every city comes through.`,
  }];
  static tall = 32; // of a city's row

  build() {
    const { html, svg, range } = attn, { cities, tall } = this.constructor, named = { ...cities }, tones = ["attn-second", "attn-copy"];
    this.choice("first", "First city", named);
    this.choice("second", "Second city", named);
    this.fits.at_work = (at_work) => ["none", "0", "1", "both"].includes(at_work);
    const { temperatures } = this.constructor.start;
    this.presets("Question", {
      "asked in training": { first: "0", second: "2", temperatures }, "never asked": { first: "5", second: "4", temperatures },
      "one city twice": { first: "5", second: "5", temperatures },
      "all others at 2.0": { first: "0", second: "2", temperatures: temperatures.map((v, j) => (j === 0 || j === 2 ? v : 2)) },
    });
    this.rows = cities.map((city, j) => {
      const input = html("input", { type: "range", min: -2, max: 2, step: 0.1, "aria-label": `temperature of ${city}` });
      input.addEventListener("input", () => this.set({ temperatures: this.state.temperatures.with(j, +input.value) }));
      const shown = html("span"), name = html("span", {}, city);
      this.syncs.push(() => {
        input.value = this.state.temperatures[j];
        input.style = `--at: ${25 * (2 + this.state.temperatures[j])}%`; // filled from 0, as the thermometers are
        shown.textContent = attn.number(this.state.temperatures[j], 1);
      });
      return { name, part: html("div", {}, name, input, shown) };
    });
    // Left the two answers, thermometers with a notch at the truth; in the middle the heads, with a stick to each city, as thick as its weight, and one to
    // each answer, as thick as what it adds.
    this.answers = range(2).map((i) => {
      const y = 4 * tall * i, text = (words, more) => svg("text", more, words);
      return [text("", { x: 0, y: y + 14, class: "attn-answer" }), svg("rect", { class: "attn-tube", x: 6, y: y + 36, width: 14, height: 84, rx: 7 }), svg("rect", { class: "attn-heat-of", x: 8, width: 10 }),
        svg("path", { class: "attn-notch" }), text("", { x: 0, y: y + 30 })];
    });
    // What an answer is off by, on a scale that ends at 0.05 to both sides
    this.errors = range(2).map(() => [svg("path", { class: "attn-axis" }), svg("circle", { class: "attn-ghost", r: 4 }), svg("path", { class: "attn-mark" }), svg("text", { class: "attn-halo" }), svg("text", { class: "attn-halo" })]);
    this.sticks = range(2).map((h) => range(8).map(() => [svg("path", { class: "attn-stick " + tones[h] }), svg("text", { "text-anchor": "end", class: "attn-name attn-tone " + tones[h] })]));
    this.given = range(2).map((h) => range(2).map(() => svg("path", { class: "attn-stick " + tones[h] })));
    this.buttons = range(2).map((h) => {
      const button = attn.button(`head ${h}`, () => {
        const on = range(2).filter((k) => (k === h) !== this.works(k));
        this.set({ at_work: on.length === 2 ? "both" : on.length ? String(on[0]) : "none" });
      });
      button.className = tones[h];
      this.syncs.push(() => button.setAttribute("aria-pressed", this.works(h)));
      return button;
    });
    this.hint = svg("text", { y: 50, "text-anchor": "middle" }, "press a head");
    const labels = this.sticks.flat().map(([, label]) => label), under = this.sticks.flat().map(([stick]) => stick);
    this.drawing = svg("svg", { role: "img", height: 8 * tall }, ...under, ...this.given.flat(), ...this.answers.flat(), ...this.errors.flat(), ...labels, this.hint);
    this.picture.append(html("div", { class: "attn-asks" }, html("div", {}, this.drawing, ...this.buttons), html("div", { class: "attn-degree" }, ...this.rows.map(({ part }) => part))));
    this.fit(this.drawing);
  }

  works(h) { return this.state.at_work === "both" || this.state.at_work === String(h); }

  /* multi_head_weights and multi_head_attention with biases, for one query; with the heads that work, or the whole layer. */
  attention(query, keys, values, whole) {
    const { W_q, W_k, W_v, W_o, b_q, b_k, b_v, b_o } = attn.trained, width = b_q.length / 2;
    const project = (X, W, b) => attn.matmul(X, W).map((row) => row.map((x, c) => (x + b[c]) / 100));
    const heads = [project(query, W_q, b_q), project(keys, W_k, b_k), project(values, W_v, b_v)]
      .map((X) => attn.range(2).map((h) => X.map((row) => row.slice(h * width, (h + 1) * width))));
    const A = attn.range(2).map((h) => attn.softmax(attn.scaled_dot_score(heads[0][h], heads[1][h]))[0]);
    const found = A.map((weights, h) => attn.matmul([weights], heads[2][h])[0].map((x) => (whole || this.works(h) ? x : 0)));
    const adds = found.map((part, h) => attn.matmul([part], W_o.slice(h * width, (h + 1) * width))[0].map((x) => x / 100));
    return { A, adds, O: project([found.flat()], W_o, b_o)[0] };
  }

  /* By how much the worse of both answers is off, for each question about two cities. */
  typical() {
    const { start: { temperatures } } = this.constructor, all = { asked: [], never: [] }, pairs = attn.range(64).map((k) => [k >> 3, k % 8]).filter(([i, j]) => i !== j);
    for (const pair of pairs) {
      const { O } = this.ask(temperatures, pair);
      all[attn.trained.unseen.includes(pair.join("")) ? "never" : "asked"].push(Math.max(...O.map((x, i) => Math.abs(x - temperatures[pair[i]]))));
    }
    return all;
  }

  draw() {
    const { cities } = this.constructor, { temperatures } = this.state, { number } = attn;
    const asked = [this.state.first, this.state.second].map(Number);
    const one_hot = (i) => attn.range(8).map((j) => +(i === j));
    this.ask = (values, pair = asked) => this.attention([pair.flatMap(one_hot)], attn.range(8).map(one_hot), values.map((v) => [v]), pair !== asked);
    const { A, O, adds } = Object.assign(this, this.ask(temperatures));
    // What the other cities alone have moved: the answers where they have the temperatures of the start, and the cities asked for those of now.
    const before = this.ask(this.constructor.start.temperatures.map((v, j) => (asked.includes(j) ? temperatures[j] : v))).O;
    this.moved = O.map((x, i) => x - before[i]);
    const truth = this.truth = asked.map((city) => temperatures[city]), on = attn.range(2).map((h) => +this.works(h));
    this.rows.forEach(({ name }, j) => name.classList.toggle("attn-answer", asked.includes(j)));
    this.answers.forEach(([answer, , , , right], i) => {
      answer.textContent = `${cities[asked[i]]}: ${number(O[i], 2)}`;
      right.textContent = `truth: ${number(truth[i], 2)}`;
    });
    const { tall } = this.constructor, wide = this.drawing.clientWidth || 460, middle = 0.44 * wide, half = Math.min(34, wide / 8), middle_of = (k) => 4 * tall * k + 78;
    this.drawing.setAttribute("viewBox", `0 0 ${wide} ${8 * tall}`);
    this.buttons.forEach((button, h) => { button.style = `left: ${middle - half}px; top: ${middle_of(h) - 20}px; width: ${2 * half}px`; });
    attn.put(this.hint, { x: middle, class: on.includes(1) ? "attn-empty" : "" });
    const goal = [...A.flat(), ...adds.flat(), ...O, ...truth, ...on], any = this.moved.some((x) => Math.abs(x) > 1e-9);
    this.glide("heads", goal, (now) => {
      const weights = now.slice(0, 16), added = now.slice(16, 20), said = now.slice(20, 22), true_ones = now.slice(22, 24), works = now.slice(24), level = (i, v) => middle_of(i) - 18 * v;
      const curve = (x, y, u, v) => `M${x} ${y}C${(x + u) / 2} ${y} ${(x + u) / 2} ${v} ${u} ${v}`;
      this.sticks.forEach((all, h) => all.forEach(([stick, label], j) => {
        const weight = weights[8 * h + j], y = (j + 0.5) * tall, fallen = (1 - works[h]) * (8.5 * tall - y); // a stick of a head that is off falls
        attn.put(stick, { d: curve(middle + half, middle_of(h), wide, y + fallen), "stroke-width": 24 * weight, opacity: works[h] * 0.8 });
        attn.put(label, { x: wide - 4, y: y + (h ? 13 : -4) });
        label.textContent = works[h] > 0.99 && weight >= 0.02 ? number(weight) : "";
      }));
      this.given.forEach((all, h) => all.forEach((stick, i) =>
        attn.put(stick, { d: curve(22, level(i, said[i]), middle - half, middle_of(h)), "stroke-width": 8 * Math.abs(added[2 * h + i]), opacity: works[h] * 0.8 })));
      this.errors.forEach(([line, ghost, needle, told, ends], i) => {
        // Above, where no stick runs; where there is no room, below.
        const [left, y] = wide > 300 ? [92, 4 * tall * i + 10] : [34, 4 * tall * i + 106], off = said[i] - true_ones[i], way = Math.sign(off), x = (error) => left + 35 * (1 + Math.max(-1, Math.min(1, error / 0.05)));
        ends.textContent = wide > 160 ? "±0.05" : "";
        attn.put(line, { d: `M${left} ${y}h70m0 -4v8m-70 0v-8m35 -2v12` });
        attn.put(told, { x: left, y: y + 18 });
        attn.put(ends, { x: left + 82, y: y + 4 });
        attn.put(needle, { d: Math.abs(off) <= 0.05 ? `M${x(off) - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z` : `M${x(off)} ${y - 5}l${8 * way} 5l${-8 * way} 5Z` }); // farther off: an arrow
        attn.put(ghost, { cx: x(before[i] - truth[i]), cy: y, visibility: any ? "visible" : "hidden" });
        told.textContent = `off by ${number(off, 3)}` + (any ? `, moved ${number(this.moved[i], 3)}` : "");
      });
      this.answers.forEach(([, , heat, notch], i) => {
        const [zero, top] = [level(i, 0), level(i, Math.max(-2.2, Math.min(2.2, said[i])))];
        attn.put(heat, { y: Math.min(zero, top), height: Math.abs(zero - top) });
        attn.put(notch, { d: `M1 ${level(i, true_ones[i])}h24` });
      });
    });
    const looks = attn.range(2).filter((h) => this.works(h)).map((h) => {
      const weights = A[h], top = Math.max(...weights);
      return `head ${h} looks at ${cities[weights.indexOf(top)]}, ${number(top)}`;
    });
    const known = asked[0] === asked[1] ? "Training asked nothing of this kind"
      : attn.trained.unseen.includes(asked.join("")) ? "Training never asked this" : "Training asked this";
    const sentence = `${known}: ${cities[asked[0]]}, then ${cities[asked[1]]}. ${looks.length ? `For this question ${looks.join("; ")}` : "No head is at work"}. `
      + `The answer is ${number(O[0], 2)} and ${number(O[1], 2)}, the truth ${number(truth[0], 2)} and ${number(truth[1], 2)}.`;
    this.drawing.setAttribute("aria-label", sentence);
    return sentence;
  }
});
