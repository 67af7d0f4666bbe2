/* Chapter 6: turn a query and a key by their positions, or the marks that are added to tokens, and compare them. */
customElements.define("attn-encoding", class extends attn.Figure {
  static title = "Encoding explorer";
  static start = { show: "turned", position: 3, step: 5, width: "8", base: "10000", words: "alike", seen: 15 };
  static farthest = 64;
  static words = { // the pairs of a query and of a key before they turn, cut to the width
    alike: Array(2).fill([1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]),
    other: [[0.6, 0.8, 0, 1, 1, 0, -0.8, 0.6, 1, 0, 0.6, -0.8, 0, 1, 0.8, 0.6], [1, 0, 0.8, 0.6, 0.3, 0.4, 0.6, 0.8, 0, 0.5, 1, 0, 0.6, 0.8, 1, 0]],
  };
  static tasks = [{
    ask: "Leave the step as it is and move the position r, and with it r + k. What becomes of the product?",
    guesses: { grows: "it grows", falls: "it falls", stays: "it stays" },
    right: (figure, met) => {
      const products = [...met].sort(([p], [r]) => p - r).map(([, product]) => product), change = products.at(-1) - products[0];
      return change > 1e-9 ? "grows" : change < -1e-9 ? "falls" : "stays";
    },
    done: ({ state: { show, position, step, width, base, words }, product }, met) => {
      const set = [show, step, width, base, words].join();
      if (met.set_of !== set) met.clear();
      met.set_of = set;
      return met.set(position, product).size === 3;
    },
    yet: (figure, met) => `${met.size} of 3 positions seen.`,
    seen: ({ state: { step } }, met) => `At the positions ${[...met.keys()].join(", ")}, with ${step} steps between, the product was ${[...met.values()].map((x) => attn.number(x)).join(", ")}.`,
  }, {
    ask: "Grey is what texts of 16 tokens show: steps up to 15. Four pairs, base 10,000: at step 32, how many pairs stand outside the grey?",
    guesses: { 1: "1", 2: "2", 3: "3", 4: "4" },
    right: ({ fresh }) => String(fresh.length),
    done: ({ state: { show, step, width, base, seen } }) => show === "turned" && step === 32 && width === "8" && base === "10000" && seen === 15,
    seen: () => "Pair 0 came round twice within 15 steps, so its whole face is grey. Pairs 1, 2 and 3 have turned by 3.2, 0.32 and 0.032 radians, where grey ends at 1.5, 0.15 and 0.015.",
  }, {
    ask: "Take base 10 and width 4, query and key alike. Find a step from 10 on at which a far position looks almost like the same one: a product of at least 1.9 of 2.",
    done: ({ state: { step, width, base, words }, product }) => width === "4" && base === "10" && words === "alike" && step >= 10 && product >= 1.9,
    yet: ({ state: { step, width, base }, product }) => (width === "4" && base === "10" ? `At step ${step}: ${attn.number(product, 2)}.` : ""),
    seen: ({ state: { step }, product }) => `At step ${step} both pairs have come round together: ${attn.number(product)} of 2. With eight pairs that never happens here.`,
  }];

  build() {
    const { html, svg, range } = attn, { farthest } = this.constructor;
    this.choice("show", "Show", { turned: "a query and a key, turned", marks: "the marks of two positions" });
    this.slider("position", "Position r", [0, 63, 1]);
    this.slider("step", "Step k", [0, farthest, 1]);
    this.slider("seen", "Steps seen in training", [1, farthest, 1]);
    this.choice("width", "Width d", { 4: "4", 8: "8", 16: "16" });
    this.choice("base", "Base", { 10: "10", 100: "100", 10000: "10000" });
    this.choice("words", "Query and key", { alike: "alike", other: "of two words" });
    const turned_alone = ["Steps seen in training", "Query and key"].map((name) => this.controls.querySelector(`[aria-label="${name}"]`).parentNode);
    this.syncs.push(() => turned_alone.forEach((control) => { control.hidden = this.state.show !== "turned"; }));
    this.presets("Encoding", {
      "2 pairs, base 10": { width: "4", base: "10", show: "turned" }, "4 pairs, base 10,000": { width: "8", base: "10000", show: "turned" },
      "8 pairs, base 10": { width: "16", base: "10", show: "turned" }, "marks, 8 hands": { width: "16", base: "10000", show: "marks" },
    });

    this.heading = html("p");
    this.clocks = svg("svg", { viewBox: "0 0 400 236", role: "img" });
    this.hands = range(8).map((i) => {
      const [x, y] = [50 + 100 * (i % 4), 46 + 117 * Math.floor(i / 4)];
      const hands = ["attn-hand-k", "attn-hand-p"].map((kind) => svg("line", { class: kind, x1: x, y1: y }));
      const face = svg("circle", { class: "attn-axis", cx: x, cy: y, r: 36 }), sector = svg("path", { class: "attn-seen" }), between = svg("path", { class: "attn-between" });
      const name = svg("text", { x, y: y + 52, "text-anchor": "middle" });
      // What is seen and what it has turned, as lengths: a slow pair's angles are too small for its face.
      const [seen, turned] = [svg("rect", { class: "attn-seen", x: x - 36, y: y + 61, height: 6 }), svg("path", { class: "attn-cursor-line" })];
      const clock = svg("g", {}, sector, face, between, ...hands, name, svg("path", { class: `attn-part attn-pair-${i}`, d: `M${x - 19} ${y + 57}h38` }), seen, turned);
      for (const [kind, lit] of [["pointerenter", true], ["pointerleave", false]]) clock.addEventListener(kind, () => this.parts[i].classList.toggle("attn-lit", lit));
      this.clocks.append(clock);
      return { clock, face, sector, between, hands, name, seen, turned, x, y };
    });

    this.chart = svg("svg");
    this.band = svg("rect", { class: "attn-seen", x: 40, y: 8, height: 146 });
    this.parts = range(8).map((i) => svg("polyline", { class: `attn-part attn-pair-${i}` }));
    this.curve = svg("polyline", { class: "attn-curve" });
    this.sum = svg("text", { class: "attn-name" }, "sum");
    this.ticks = range(3).map((i) => svg("text", { x: 34, y: 20 + 65 * i, "text-anchor": "end" }));
    this.handle = svg("g", { class: "attn-handle", tabindex: 0, role: "slider", "aria-label": "Step k",
      "aria-valuemin": 0, "aria-valuemax": farthest }, svg("circle", { r: 22, class: "attn-grip" }), svg("circle", { r: 6, class: "attn-mark" }));
    this.goal = svg("path", { class: "attn-reach" }); // of the last task
    this.axes = svg("path", { class: "attn-axis" });
    this.marks = range(5).map((i) => svg("text", { y: 168, "text-anchor": "middle" }, String(16 * i)));
    this.chart.append(this.band, this.axes, this.goal, ...this.ticks, ...this.parts, this.curve, this.sum, this.handle, svg("text", { x: 0, y: 168 }, "step"), ...this.marks);
    attn.drag(this, this.chart, this.handle, (x) => this.walk(Math.round((x - 40) / this.unit)), (dx, dy) => this.walk(this.state.step + dx + dy));
    this.fit(this.chart);

    this.values = { marks: attn.heat("Row r: two columns for each hand", 8, ["sine", "cosine"]),
      turned: attn.heat("Each pair's share of the product; angles in radians", 8, ["adds", "turned", "seen up to"], 1) };
    this.answer = html("p", { class: "attn-answer" });
    for (const { map } of Object.values(this.values)) map.classList.add("attn-close");
    this.picture.append(html("div", {}, this.heading, this.clocks), html("div", {}, this.values.marks.map, this.values.turned.map),
      html("div", { class: "attn-wide" }, this.answer, this.chart));
  }

  walk(step) { this.set({ step: Math.max(0, Math.min(this.constructor.farthest, step)) }); }

  draw() {
    const { show, position: p, step: k, seen } = this.state, { farthest, words } = this.constructor, { number, range } = attn;
    const turned = show === "turned", d = +this.state.width, n = d / 2, base = +this.state.base, pairs = range(n);
    const [query, key] = words[this.state.words].map((row) => row.slice(0, d)), later = range(4 * farthest + 1).map((quarter) => p + quarter / 4);
    const rates = pairs.map((i) => base ** (-2 * i / d)), full = 2 * Math.PI;
    const rows = turned ? attn.rotary(later.map(() => query), later, base) : later.map((at) => rates.flatMap((rate) => [Math.sin(at * rate), Math.cos(at * rate)]));
    const here = turned ? attn.rotary([key], [p], base)[0] : rows[0];
    const shares = pairs.map((i) => rows.map((row) => row[2 * i] * here[2 * i] + row[2 * i + 1] * here[2 * i + 1]));
    const products = rows.map((_, quarter) => attn.sum(shares.map((share) => share[quarter])));
    this.product = products[4 * k];
    // An angle is new if it is more than those seen, and they are not the whole round.
    this.fresh = pairs.filter((i) => rates[i] * seen < full && (rates[i] * k) % full > rates[i] * seen + 1e-9);
    const wide = this.chart.clientWidth || 700, unit = this.unit = (wide - 52) / farthest;
    attn.put(this.chart, { viewBox: `0 0 ${wide} 174` });
    attn.put(this.axes, { d: `M40 8V154M40 81H${wide - 12}` });
    this.marks.forEach((mark, i) => attn.put(mark, { x: 40 + 16 * unit * i }));
    const X = (step) => 40 + unit * step, Y = (product) => 81 - 65 * product / n;
    const line = (ys) => ys.map((y, quarter) => `${X(quarter / 4).toFixed(2)},${y.toFixed(2)}`).join(" ");
    attn.put(this.goal, { d: this.task.number === 2 && n === 2 ? `M${X(10)} ${Y(1.9)}H${X(farthest)}` : "" });
    // Hands turn through the whole angle: of each its start, where it is, and how long it is.
    const angles = range(8).flatMap((i) => {
      if (i >= n) return Array(8).fill(0);
      const turn = (pair, at) => (turned ? Math.atan2(pair[2 * i + 1], pair[2 * i]) + rates[i] * at : Math.PI / 2 - rates[i] * at);
      const long = (row) => Math.hypot(row[2 * i], row[2 * i + 1]);
      const reach = Math.min(full, rates[i] * seen), now = reach === full ? (rates[i] * k) % full : rates[i] * k, most = Math.max(reach, now);
      return [turn(query, p + k), long(rows[4 * k]), turn(key, p), long(here), turn(query, p), Math.min(rates[i] * seen, full - 0.02), reach / most, now / most];
    });

    this.heading.textContent = turned ? "Key red, query dashed. Grey: angles seen; line: now; red rim: outside" : "Hands at r, in red, and at r + k, dashed";
    this.hands.forEach(({ clock, face, name }, i) => {
      clock.style.display = i < n ? "" : "none";
      face.classList.toggle("attn-new", turned && this.fresh.includes(i));
      if (i >= n) return;
      name.textContent = `${turned ? "pair" : "hand"} ${i}`;
    });
    this.glide("hands", angles, (all) => this.hands.slice(0, n).forEach(({ sector, between, hands, seen, turned: mark, x, y }, i) => {
      const [late, far, early, near, first, round, reach, here] = all.slice(8 * i), along = (angle, r) => [x + r * Math.cos(angle), y - r * Math.sin(angle)];
      [[late, far], [early, near]].forEach(([angle, long], which) => {
        const [x2, y2] = along(angle, 34 * long);
        hands[which].setAttribute("x2", x2);
        hands[which].setAttribute("y2", y2);
      });
      const rim = (angle, r = 36) => along(angle, r).map((at) => at.toFixed(2)).join(" "), apart = ((late - early) % full + full) % full;
      between.setAttribute("d", turned ? `M${rim(early, 20)}A20 20 0 ${+(apart > Math.PI)} 0 ${rim(early + apart, 20)}` : "");
      attn.put(seen, { width: turned ? 72 * reach : 0 });
      attn.put(mark, { d: turned ? `M${x - 36 + 72 * here} ${y + 59}v10` : "" });
      sector.setAttribute("d", turned ? `M${x} ${y}L${rim(first)}A36 36 0 ${+(round > Math.PI)} 0 ${rim(first + round)}Z` : "");
    }));
    this.clocks.setAttribute("viewBox", `0 0 400 ${n > 4 ? 236 : 119}`);
    this.band.setAttribute("width", turned ? unit * seen : 0);
    this.ticks.forEach((tick, i) => { tick.textContent = number(n * (1 - i), 0); });
    const many = later.length, curves = [products, ...range(8).map((i) => shares[i] ?? Array(many).fill(0))];
    this.glide("curves", [X(k), Y(products[4 * k]), ...curves.flat().map(Y)], ([x, y, ...ys]) => {
      [this.curve, ...this.parts].forEach((part, i) => part.setAttribute("points", i <= n ? line(ys.slice(many * i, many * (i + 1))) : ""));
      this.handle.setAttribute("transform", `translate(${x} ${y})`);
      attn.put(this.sum, { x: X(0) + 6, y: ys[0] - 4 });
    });
    this.handle.setAttribute("aria-valuenow", k);
    this.handle.setAttribute("aria-valuetext", `step ${k}, product ${number(this.product)}`);
    const shown = pairs.map((i) => (turned ? [shares[i][4 * k], rates[i] * k, rates[i] * seen < full ? rates[i] * seen : Infinity] : here.slice(2 * i, 2 * i + 2)));
    for (const [kind, { map }] of Object.entries(this.values)) map.hidden = kind !== show;
    this.values[show].show(shown, pairs.map((i) => `${turned ? "pair" : "hand"} ${i}`), "PuOr", (x) => (x + 1) / 2, (x) => (x === Infinity ? "all round" : x ? number(x) : "0"));
    [...this.values[show].map.tBodies[0].rows].forEach((row, i) => { row.hidden = i >= n; });
    const [now, then] = turned ? ["key", "query"] : ["P", "P"];
    this.answer.textContent = `The product at each step, and what each pair adds. ${now}${sub(p)} · ${then}${sub(p + k)} = ${number(this.product)}`;
    const turns = (i) => number(p * rates[i] / full, 2);
    const sentence = turned
      ? `Key at position ${p}, query at position ${p + k}: their product is ${number(this.product)}. Over ${k} steps pair 0 turns by ${number(rates[0] * k, 2)} radians, the last by ${number(rates[n - 1] * k, 2)}. `
        + (this.fresh.length ? `Angles beyond those of ${seen} steps: pair ${this.fresh.join(", ")}.` : `No pair stands at an angle that ${seen} steps do not show.`)
      : `Position ${p} and position ${p + k}: the product of their rows is ${number(this.product)}, of at most ${n}. The fastest hand has turned ${turns(0)} times, the slowest ${turns(n - 1)} times.`;
    this.clocks.setAttribute("aria-label", sentence);
    return sentence;

    function sub(number) { return [...String(number)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join(""); }
  }
});
