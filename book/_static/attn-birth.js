/* Chapter 9: how two heads form while a model of two blocks is trained on random letters that come twice.
   Needs attn-birth-data.js: losses and weights at eighteen steps, measured by the package on texts that judge the model. */
customElements.define("attn-birth", class extends attn.Figure {
  static title = "A head is born";
  static start = { step: 0, text: 0, at: 20 };
  static still = { step: attn.birth.steps.length - 1 };
  static period = 16;
  static n = 31; // letters that are read: after the last nothing is left to guess
  static born = 0.3; // mean weight on the place it looks at, from which a head counts as there
  static curves = { first: "first copy", second: "second copy", back: "looks back", copy: "copies" }; // the means of a step
  static cliff = [140, 220];
  static toned = (name, text) => attn.html("b", { class: `attn-tone attn-${name}` }, text);
  static tasks = [{
    ask: "At the end one head looks one letter back, and another, in the block above, copies. Play the training. Which of the two is first at a mean weight of 0.3, by more than ten steps?",
    guesses: { back: "the one that looks back", copy: "the one that copies", both: "neither, they come within ten steps" },
    right: (figure) => {
      const [back, copy] = ["back", "copy"].map((name) => figure.birthday(name));
      return Math.abs(back - copy) <= 10 ? "both" : back < copy ? "back" : "copy";
    },
    done: (figure) => figure.followed,
    seen: (figure) => {
      const [back, copy] = ["back", "copy"].map((name) => figure.birthday(name).toFixed(0)), { means, steps } = attn.birth;
      const lost = (step) => attn.number(means[steps.indexOf(step)][1], 2);
      return `Head 0.0 comes to a weight of 0.3 at step ${back}, head 1.1 at step ${copy} (a line drawn between the measured steps), `
        + `and meanwhile the loss of the second copy falls from ${lost(140)} to ${lost(220)}.`;
    },
  }, {
    ask: "Within the cliff, from step 140 to step 220, the second copy becomes easy. What does the loss of the first copy do, in which nothing can be known? Show both steps.",
    guesses: { falls: "it falls too", stays: "it stays, within 0.1", rises: "it rises" },
    right: (figure) => {
      const [before, after] = figure.first_copy;
      return after > before + 0.1 ? "rises" : after < before - 0.1 ? "falls" : "stays";
    },
    done: ({ state: { step } }, met) => {
      if ([140, 220].includes(attn.birth.steps[step])) met.set(step, true);
      return met.size === 2;
    },
    seen: (figure) => `A letter of the first copy costs ${figure.first_copy.map((x) => attn.number(x, 2)).join(" at step 140 and ")} at step 220, where a blind guess costs ${attn.number(Math.log(26), 2)}: `
      + `the model bets on copies where there are none yet. At the end it is ${attn.number(attn.birth.means.at(-1)[0], 2)}.`,
  }];

  build() {
    const { html, svg, range } = attn, { n, period, curves, toned, cliff, born } = this.constructor, { steps, texts } = attn.birth, last = steps.length - 1;
    this.texts = texts.map(({ letters, losses, weights }) => ({ letters, losses, weights: Uint8Array.from(atob(weights), (byte) => byte.charCodeAt(0)) }));
    this.fits.text = (text) => Number.isInteger(text) && text in texts;
    this.fits.at = (at) => Number.isInteger(at) && at >= 0 && at < n;
    this.seen = new Set();
    this.player("Play the training", 420, () => {
      const step = (this.state.step + 1) % steps.length;
      this.seen.add(step);
      this.set({ step });
      return step < last;
    });
    this.controls.addEventListener("input", () => this.stop?.()); // who moves the slider does not want it to run on
    this.slider("step", "Training step", [0, last, 1], (step) => steps[step]);
    this.fits.step = (step) => Number.isInteger(step) && step in steps;
    this.presets("Held-out text", Object.fromEntries(texts.map(({ letters }, text) => [letters.slice(0, 4) + "…", { text }])));

    // The text in two rows, each letter below itself; the arcs show where the chosen letter looks.
    const x = (i) => 11 + 22 * (i % period), y = (i) => (i < period ? 40 : 106);
    this.place = (i) => [x(i), y(i)];
    this.arcs = range(2 * n).map((k) => svg("path", { class: `attn-tone attn-${k < n ? "copy" : "back"}` }));
    this.letters = range(2 * period).map((i) => {
      const box = svg("rect", { x: x(i) - 10, y: y(i) - 12, width: 20, height: 24, rx: 3 }), foot = svg("rect", { class: "attn-foot-loss", x: x(i) - 10, y: y(i) + 9, width: 20, height: 4 });
      return { box, foot, name: svg("text", { x: x(i), y: y(i) + 3, "text-anchor": "middle" }) };
    });
    this.line = svg("svg", { viewBox: "0 0 352 142", tabindex: 0, role: "slider", "aria-label": "Letter that looks: the arrow keys choose it", "aria-valuemin": 0, "aria-valuemax": n - 1, class: "attn-copies" },
      ...this.letters.flatMap(({ box, foot, name }) => [box, foot, name]), ...this.arcs);
    const choose = (at) => this.set({ at: Math.max(0, Math.min(n - 1, at)) });
    for (const kind of ["pointermove", "pointerdown"])
      this.line.addEventListener(kind, (event) => {
        const box = this.line.getBoundingClientRect(), column = Math.floor((event.clientX - box.left) / box.width * period);
        const at = column + (event.clientY > box.top + 0.52 * box.height ? period : 0);
        if (at !== this.state.at) choose(at);
      });
    this.line.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -period, ArrowDown: period, Home: -n, End: n }[event.key];
      if (!way) return;
      event.preventDefault();
      choose(this.state.at + way);
    });
    this.key = html("p", { class: "attn-lines" });

    this.maps = ["back", "copy"].map((name, h) => {
      const canvas = html("canvas", { class: "attn-square", role: "img", width: n, height: n }), row = html("div", { class: "attn-row" }), caption = html("p");
      caption.append(toned(name, ["head 0.0 looks back", "head 1.1 copies"][h]));
      return { canvas, row, part: html("div", {}, caption, html("div", { class: "attn-map" }, canvas, row)) };
    });
    // Four panels: loss and weights against the step, and both again where the cliff is.
    const words = (x, y, text, more = {}) => svg("text", { x, y, ...more }, text), end = { "text-anchor": "end" }, middle = { "text-anchor": "middle" };
    const [from, to] = cliff.map((step) => this.x(step)), rows = { first: ["0", "2", "4"], back: ["0", "0.5", "1"] };
    this.cursors = range(2).map((zoom) => svg("path", { class: "attn-axis" }));
    this.chart = svg("svg", { viewBox: "0 0 350 404", class: "attn-birth-chart" }, svg("marker", { id: "attn-measured", viewBox: "-2 -2 4 4", markerWidth: 4, markerHeight: 4, markerUnits: "userSpaceOnUse" }, svg("circle", { r: 2, class: "attn-measured" })),
      svg("path", { class: "attn-zoom", d: `M${from} 4H${to}V182L346 216V384H30V216L${from} 182Z` }), ...this.cursors,
      ...range(2).flatMap((zoom) => Object.entries(rows).flatMap(([name, ticks]) => [svg("path", { class: "attn-axis", d: `M30 ${this.y(name, +ticks[2], zoom)}V${this.y(name, 0, zoom)}H${zoom ? 346 : this.x(500)}` }),
        ...ticks.map((tick) => words(26, this.y(name, +tick, zoom) + 4, tick, end))])),
      ...[0, 100, 200, 300, 400, 500].map((step) => words(this.x(step), 195, String(step), middle)), ...[140, 160, 180, 200, 220].map((step) => words(this.x(step, 1), 400, String(step), middle)),
      words(264, 195, "steps"), words(36, 84, "loss"), words(36, 118, "mean weight"), words(36, 288, "loss, steps 140 to 220"), words(36, 322, "mean weight"),
      ...range(2).flatMap((zoom) => [svg("path", { class: "attn-axis", "stroke-dasharray": "3 3", d: `M30 ${this.y("back", born, zoom)}H${zoom ? 346 : this.x(500)}` }), words(26, this.y("back", born, zoom) + 4, born, end)]));
    this.births = ["back", "copy"].map((name, h) => {
      const tone = { class: `attn-tone attn-${name}` }, step = this.birthday(name), at = this.x(step, 1);
      return svg("g", {}, svg("path", { ...tone, d: `M${at} ${this.y(name, born, 1)}V384` }), words(at + 8 * h - 4, 380, step.toFixed(0), { ...tone, ...(h ? {} : end) }));
    });
    this.curves = Object.keys(curves).map((name) => {
      const tone = { class: `attn-tone attn-${name}` };
      return { lines: range(2).map(() => svg("path", { ...tone, "marker-start": "url(#attn-measured)", "marker-mid": "url(#attn-measured)" })), dots: range(2).map(() => svg("circle", { ...tone, r: 4 })), label: svg("text", tone) };
    });
    this.chart.append(...this.births, ...this.curves.flatMap(({ lines, dots, label }) => [...lines, ...dots, label]));
    this.picture.append(html("div", {}, this.line, this.key, html("div", { class: "attn-pair" }, ...this.maps.map(({ part }) => part))), this.chart);
  }

  x(step, zoom = 0) { return zoom ? 34 + 308 * (step - 140) / 80 : 30 + 216 * step / 500; }

  y(name, value, zoom = 0) { return 212 * zoom + (["first", "second"].includes(name) ? 90 - 18 * value : 180 - 74 * value) - 8 * zoom; }

  again() {
    this.seen.clear();
    super.again();
  }

  /* Whether the steps at which the heads form have been shown. */
  get followed() { return attn.birth.steps.every((at, i) => at < 140 || at > 220 || this.seen.has(i)); }

  get first_copy() { return [140, 220].map((step) => attn.birth.means[attn.birth.steps.indexOf(step)][0]); }

  /* The step at which a head's mean weight comes to 0.3, between two that were measured. */
  birthday(name) {
    const { curves, born } = this.constructor, { steps, means } = attn.birth, column = Object.keys(curves).indexOf(name);
    const i = means.findIndex((row) => row[column] >= born), [a, b] = [means[i - 1][column], means[i][column]];
    return steps[i - 1] + (steps[i] - steps[i - 1]) * (born - a) / (b - a);
  }

  /* The weights of the two heads at a step, a row a query; each is as long as what that query sees. */
  weights(step) {
    const { n } = this.constructor, bytes = this.texts[this.state.text].weights, size = n * (n + 1) / 2;
    return [0, 1].map((h) => attn.range(n).map((i) => {
      const from = (2 * step + h) * size + i * (i + 1) / 2;
      return Array.from(bytes.subarray(from, from + i + 1), (byte) => byte / 255);
    }));
  }

  draw() {
    const { step, text, at } = this.state, { n, period, toned } = this.constructor, { number } = attn, { steps, means } = attn.birth;
    const { letters, losses } = this.texts[text], lost = losses[step], [back, copy] = this.weights(step);
    this.seen.add(step);
    const from = at < period ? at : at - period + 1; // whose look back is shown: what followed in the first copy
    this.glide("weights", [...back, ...copy].flat(), (now) => this.paint(now, at, from));
    this.letters.forEach(({ box, foot, name }, i) => {
      name.textContent = letters[i];
      box.setAttribute("class", i === at ? "attn-letter attn-chosen" : i === from ? "attn-letter attn-lit" : "attn-letter");
      foot.style.opacity = i ? Math.min(1, lost[i - 1] / 5).toFixed(2) : 0;
    });
    const looks = (row) => row.indexOf(Math.max(...row)), top = looks(copy[at]), before = looks(back[from]);
    this.key.replaceChildren(toned("copy", `1.1 looks from “${letters[at]}” most at “${letters[top]}”, ${at - top} back: ${number(copy[at][top], 2)}. `),
      toned("back", `0.0 looks from ${at < period ? "it" : `the “${letters[from]}” after the first copy’s “${letters[at]}”`} ${from - before} back: ${number(back[from][before], 2)}. `),
      `Red foot: the loss. The next letter, “${letters[at + 1]}”, costs ${number(lost[at], 2)}.`);
    const last = Math.max(...this.seen), shown = means[step].map((value) => number(value, 2));
    this.glide("step", [step], ([now]) => this.trace(now, Math.max(Math.min(now, last), last === step ? 0 : last)), 420);
    for (const [name, value] of Object.entries({ valuenow: at, valuetext: `“${letters[at]}” at position ${at}` })) this.line.setAttribute(`aria-${name}`, value);
    this.maps.forEach(({ canvas, row }, h) => {
      const i = h ? at : from;
      canvas.setAttribute("aria-label", `Weights of head ${h ? "1.1" : "0.0"} at step ${steps[step]}`);
      for (const [side, share] of [["top", i], ["bottom", n - 1 - i]]) row.style[side] = `${100 * share / n}%`;
    });
    return `Step ${steps[step]}: on average the first copy costs ${shown[0]} nats a letter, the second ${shown[1]}. Head 0.0 puts ${shown[2]} on the letter before, `
      + `head 1.1 ${shown[3]} on the letter 15 back.`;
  }

  /* The curves up to a step, between two that were measured on its way, and their values beside the dots. */
  trace(now, last) {
    const { steps, means } = attn.birth, { put, number, range } = attn, { curves, cliff: [from, to] } = this.constructor;
    const between = (row, t) => { const k = Math.floor(t); return row(k) + (t > k ? (t - k) * (row(k + 1) - row(k)) : 0); };
    const step = between((k) => steps[k], now), inside = step >= from && step <= to, ends = [];
    this.cursors.forEach((cursor, zoom) => put(cursor, { d: zoom && !inside ? "" : `M${this.x(step, zoom)} ${zoom ? "214V384" : "4V180"}` }));
    ["back", "copy"].forEach((name, h) => put(this.births[h], { visibility: between((k) => steps[k], last) < this.birthday(name) ? "hidden" : "visible" }));
    Object.keys(curves).forEach((name, i) => {
      const { lines, dots, label } = this.curves[i], value = between((k) => means[k][i], now);
      range(2).forEach((zoom) => {
        const seen = [...range(Math.floor(last) + 1), ...(last % 1 ? [last] : [])].filter((t) => !zoom || between((k) => steps[k], t) >= from && between((k) => steps[k], t) <= to);
        put(lines[zoom], { d: seen.map((t, k) => `${k ? "L" : "M"}${this.x(between((k) => steps[k], t), zoom).toFixed(1)} ${this.y(name, between((k) => means[k][i], t), zoom).toFixed(1)}`).join("") });
        put(dots[zoom], { cx: this.x(step, zoom), cy: this.y(name, value, zoom), visibility: zoom && !inside ? "hidden" : "visible" });
      });
      ends.push(this.y(name, value) + 4);
      label.textContent = `${curves[name]} ${number(value, 2)}`;
    });
    for (const [a, b] of [[0, 1], [2, 3]]) { // two labels of a panel stand apart
      const apart = Math.max(0, 13 - Math.abs(ends[a] - ends[b])) / 2, up = ends[a] <= ends[b] ? -apart : apart, low = Math.max(0, Math.max(ends[a] + up, ends[b] - up) - 88 * (a ? 2 : 1));
      [[a, up], [b, -up]].forEach(([i, by]) => put(this.curves[i].label, { x: this.x(500) + 8, y: ends[i] + by - low }));
    }
  }

  /* The two maps and the arcs, with the weights as they are on their way. */
  paint(now, at, from) {
    const { n } = this.constructor, size = now.length / 2;
    this.maps.forEach(({ canvas }, h) => {
      let k = h * size;
      attn.pixels(canvas, attn.range(n * n).map((c) => (c % n > Math.floor(c / n) ? null : attn.colour("viridis", now[k++]))));
    });
    const way = ([x, y], [to, height]) => {
      if (y !== height) return `M${x} ${y - 12}L${to} ${height + 13}`;
      const side = y < 80 ? -1 : 1; // above the first row, below the second
      return `M${x} ${y + 12 * side}Q${(x + to) / 2} ${y + side * (18 + Math.abs(x - to) / 9)} ${to} ${y + 12 * side}`;
    };
    this.arcs.forEach((path, k) => {
      const j = k % n, i = k < n ? at : from, weight = j <= i ? now[(k < n ? size : 0) + i * (i + 1) / 2 + j] : 0;
      path.style.display = weight < 0.02 ? "none" : "";
      path.setAttribute("d", way(this.place(i), this.place(j)));
      path.style.strokeWidth = (6 * weight).toFixed(2);
      path.style.opacity = Math.min(1, 0.15 + weight).toFixed(2);
    });
  }
});
