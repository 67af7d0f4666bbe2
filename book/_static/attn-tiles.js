/* Chapter 10, two parts that share no control. Merging: the keys of one query arrive tile by tile, in any order. Bytes:
   what a causal layer moves, of 131,072 tokens and 64 heads of width 128 that share 8 heads of keys, on an H100 in
   bfloat16: the numbers of attn_tutor/ledger.py. */
customElements.define("attn-tiles", class extends attn.Figure {
  static title = "The online softmax, tile by tile, and the bytes that tiles move";
  static start = { width: "2", causal: false, order: "20", draw: 0, power: 6 };
  static tasks = [{
    ask: "Does the order of the tiles change the output? Let all tiles arrive, then start over and let them arrive in another order.",
    guesses: { yes: "yes", total: "the total, but not the output", no: "no" },
    right: (figure, met) => {
      const same = (part) => new Set([...met.values()].map((sums) => sums[part].toFixed(9))).size === 1;
      return same("output") ? (same("total") ? "no" : "total") : "yes";
    },
    done: ({ state: { width, causal, draw }, taken, all, sums }, met) => {
      if (all.length > 1 && taken.length === all.length) met.set([width, causal, draw, taken].join(), sums.at(-1));
      const now = [width, causal, draw] + ",";
      for (const key of met.keys()) if (!key.startsWith(now)) met.delete(key); // of other tiles or other numbers
      return met.size > 1;
    },
    seen: (figure, met) => [...met].map(([key, { total, output }]) => `In the order ${key.split(",").slice(3).join(", ")}: total ${attn.number(total)}, output ${attn.number(output)}.`).join(" ")
      + " What came before a higher top has shrunk by just as much as if the top had been known.",
  }, {
    ask: "From which number T of rows on does the layer wait for arithmetic and no longer for memory? Set it, and the one below it.",
    guesses: { 6: "64", 7: "128", 8: "256", 9: "512" },
    right: (figure, met) => String(Math.min(...[...met.keys()].filter((power) => figure.bill(2 ** power).bound === "arithmetic"))),
    done: (figure, met) => {
      met.set(figure.state.power, figure.bill(2 ** figure.state.power));
      return [...met].some(([power, { bound }]) => bound === "arithmetic" && met.get(power - 1)?.bound === "memory");
    },
    seen: (figure, met) => [...met].sort((a, b) => a[0] - b[0]).map(([power, { seconds, bound, room }]) => `T = ${2 ** power}: ${attn.number(1e3 * seconds, 0)} ms, waits for ${bound}, needs ${attn.number(room / 1024, 0)} KiB.`).join(" ")
      + " Fast memory has 227 KiB.",
  }];
  static place = 4; // of the query, which a causal mask lets see keys 0 to 4

  build() {
    const { html, svg, range } = attn;
    this.choice("width", "Keys in a tile", { 1: "1", 2: "2", 4: "4", 8: "8" });
    this.check("causal", "causal: the query is token 4");
    this.button("New numbers", ({ draw }) => ({ draw: draw + 1 }));
    this.button("Start over", () => ({ order: "" }));
    this.presets("Case", {
      "all keys in one tile": { width: "8", causal: false, order: "0" }, "key by key": { width: "1", causal: false, order: "01234567" },
      "tiles of 2, last first": { width: "2", causal: false, order: "3210" }, "tiles of 2, causal": { width: "2", causal: true, order: "012" },
    });
    this.fits.draw = (draw) => Number.isInteger(draw) && draw >= 0;
    this.fits.order = (order) => /^[0-7]{0,8}$/.test(order);

    const bars = this.bars = svg("svg", { viewBox: "0 0 400 176", role: "img" });
    this.keys = range(8).map((j) => {
      const x = 26 + 47 * j, text = (y) => svg("text", { x: x + 17, y, "text-anchor": "middle" });
      const key = { bar: svg("rect", { x, width: 34 }), weight: text(0), score: text(128), value: text(146) };
      bars.append(...Object.values(key));
      return key;
    });
    bars.append(svg("path", { class: "attn-axis", d: "M20 112H396" }), svg("text", { x: 2, y: 128 }, "s"), svg("text", { x: 2, y: 146 }, "v"));
    this.brackets = range(8).map(() => bars.appendChild(svg("path", { class: "attn-axis" })));
    this.next = range(8).map((tile) => attn.button(`tile ${tile}`, () => this.taken.includes(tile) || this.set({ order: this.state.order + tile })));
    const buttons = html("div", { class: "attn-buttons", role: "group", "aria-label": "Which tile arrives next?" }, html("span", {}, "Next:"), ...this.next);
    this.rows = range(9).map(() => range(6).map(() => html("td")));
    this.table = attn.table("State of the query after each tile", ["tile", "shrink", "top", "total", "pooled", "output"], this.rows);
    this.answer = html("p", { class: "attn-answer" });
    this.picture.append(html("div", {}, buttons, html("p", {}, html("b", {}, "Merging: one query, eight keys.")," Bars: exp(score − top) of the keys that have arrived"), bars, this.table, this.answer), this.roofline());
  }

  roofline() {
    const { html, svg } = attn, { x, y } = this, chart = this.chart = svg("svg", { viewBox: "0 0 400 190", role: "img" });
    this.book = svg("rect", { class: "attn-score", width: 10, height: 10 });
    this.dot = svg("circle", { class: "attn-mark", r: 6 });
    const { peak, bandwidth } = this.constructor.gpu, ends = [1, peak / bandwidth, 8192];
    chart.append(svg("path", { class: "attn-axis", d: "M46 8V150H396" }),
      svg("polyline", { class: "attn-curve", points: ends.map((a) => `${x(a)},${y(Math.min(peak, bandwidth * a))}`).join(" ") }),
      ...[8, 32, 295, 4096].map((a) => svg("text", { x: x(a), y: 166, "text-anchor": "middle" }, a.toLocaleString("en-US"))),
      ...[10, 100, 1000].map((a) => svg("text", { x: 40, y: y(a * 1e12) + 4, "text-anchor": "end" }, a.toLocaleString("en-US"))),
      svg("text", { x: 220, y: 184, "text-anchor": "middle" }, "operations for each byte of slow memory"), svg("text", { x: 52, y: 16 }, "10¹² operations a second"),
      svg("text", { x: x(32) + 12, y: y(32 * bandwidth) + 14 }, "textbook"), this.book, this.dot);
    const named = ["operations (10¹²)", "slow memory (GB)", "a tile needs (KiB)", "at least (ms)"];
    this.bills = named.map(() => [html("td"), html("td")]);
    const table = attn.table("131,072 tokens, 64 heads, bfloat16, on an H100", ["", "textbook", "tiles"], named.map((name, i) => [html("th", { scope: "row" }, name), ...this.bills[i]]));
    const part = html("div", {}, html("p", {}, html("b", {}, "Bytes: one causal layer.")), chart, table), slider = this.controls;
    this.controls = html("div", { class: "attn-controls" });
    this.slider("power", "Rows T of a tile of the layer", [3, 13, 1], (power) => (2 ** power).toLocaleString("en-US"));
    part.prepend(this.controls);
    this.controls = slider;
    return part;
  }

  static gpu = { peak: 989.4e12, bandwidth: 3.35e12, room: 227 * 1024 };

  x(intensity) { return 46 + 26.5 * Math.log2(intensity); }
  y(rate) { return 150 - 48 * Math.log10(rate / 3e12); }

  set(change) {
    const anew = ["width", "causal", "draw"].some((key) => key in change) && !("order" in change);
    super.set(anew ? { ...change, order: "" } : change);
  }

  /* The chapter's numbers, and then others: scores and values of 8 keys. */
  get numbers() {
    const { draw } = this.state, next = attn.random(7919 * draw);
    if (!draw) return { S: [2, 1, 6, 3, 1, 4, 9, 2].map(Math.log), V: [12, 6, 4, 8, 2, 10, 5, 3] };
    return { S: attn.range(8).map(() => 8 * next() - 4), V: attn.range(8).map(() => 12 * next()) };
  }

  /* Tiles in which the query sees a key, and those of them that have arrived. */
  get all() {
    const { width, causal } = this.state;
    return attn.range(8 / width).filter((tile) => !causal || tile * width <= this.constructor.place);
  }
  get taken() { return [...new Set([...this.state.order].map(Number))].filter((tile) => this.all.includes(tile)); }
  seen(tile) {
    const { width, causal } = this.state;
    return attn.range(+width).map((j) => tile * width + j).filter((j) => !causal || j <= this.constructor.place);
  }

  /* The state after each tile. */
  get sums() {
    const { S, V } = this.numbers;
    let old = { top: -Infinity, total: 0, pooled: 0 };
    return this.taken.map((tile) => {
      const keys = this.seen(tile), top = Math.max(old.top, ...keys.map((j) => S[j])), shrink = Math.exp(old.top - top);
      const e = keys.map((j) => Math.exp(S[j] - top));
      const total = shrink * old.total + attn.sum(e), pooled = shrink * old.pooled + attn.sum(e.map((x, i) => x * V[keys[i]]));
      return old = { tile, shrink, top, total, pooled, output: pooled / total };
    });
  }

  /* What tiles of T by T move, or the textbook. Eight heads of a token share a tile. */
  bill(T) {
    const n = 131072, h = 64, groups = 8, d = 128, tokens = T * groups / h, blocks = n / tokens;
    const pairs = T ? n * (n + 1) / 2 : n * n, operations = 4 * h * pairs * d;
    const read = T ? tokens * blocks * (blocks + 1) / 2 : n, trips = T ? 0 : 8 * 2 * h * pairs;
    const bytes = 2 * 2 * h * n * d + read * 2 * 2 * groups * d + trips;
    const { peak, bandwidth } = this.constructor.gpu, compute = operations / peak, move = bytes / bandwidth;
    return { operations, bytes, room: T ? 2 * (4 * T * d + T * T) : 0, intensity: operations / bytes, seconds: Math.max(compute, move), bound: compute > move ? "arithmetic" : "memory" };
  }

  draw() {
    const { number } = attn, { causal, width, power } = this.state, { S, V } = this.numbers, { all, taken, sums } = this, last = sums.at(-1);
    const fill = (rows, values) => rows.forEach((cell, i) => { cell.textContent = values[i]; });
    const here = taken.flatMap((tile) => this.seen(tile)), gpu = this.constructor.gpu;
    this.keys.forEach(({ bar, weight, score, value }, j) => {
      const e = here.includes(j) ? Math.exp(S[j] - last.top) : 0, hidden = causal && j > this.constructor.place;
      for (const [name, x] of Object.entries({ y: 112 - 90 * e, height: 90 * e, class: e === 1 ? "attn-weight" : "attn-score" })) bar.setAttribute(name, x);
      weight.setAttribute("y", 108 - 90 * e);
      fill([weight, score, value], [here.includes(j) ? number(e, 2) : "", hidden ? "hidden" : number(S[j], 2), hidden ? "" : number(V[j], 1)]);
    });
    this.brackets.forEach((bracket, tile) => bracket.setAttribute("d", tile < 8 / width ? `M${26 + 47 * tile * width} 154v6h${47 * width - 13}v-6` : ""));
    this.next.forEach((button, tile) => {
      button.hidden = !all.includes(tile);
      button.setAttribute("aria-pressed", taken.includes(tile));
    });
    this.rows.forEach((cells, i) => {
      cells[0].parentNode.hidden = i >= sums.length;
      if (i < sums.length) fill(cells, [sums[i].tile, number(sums[i].shrink), ...["top", "total", "pooled", "output"].map((part) => number(sums[i][part]))]);
    });
    const keys = all.flatMap((tile) => this.seen(tile)), [weights] = attn.softmax([keys.map((j) => S[j])]);
    this.whole = attn.sum(weights.map((w, i) => w * V[keys[i]]));
    this.answer.textContent = `All at once: ${number(this.whole)}`;

    const T = 2 ** power, bills = [this.bill(), this.bill(T)];
    [["operations", 1e12, 0], ["bytes", 1e9, 0], ["room", 1024, 0], ["seconds", 1e-3, 0]].forEach(([part, unit, digits], i) =>
      fill(this.bills[i], bills.map((bill) => (bill[part] ? number(bill[part] / unit, digits) : "–"))));
    const fits = bills[1].room <= gpu.room;
    if (!fits) this.bills[2][1].textContent += " > 227";
    const roof = ({ intensity }) => this.y(Math.min(gpu.peak, gpu.bandwidth * intensity));
    this.book.setAttribute("x", this.x(bills[0].intensity) - 5);
    this.book.setAttribute("y", roof(bills[0]) - 5);
    this.dot.setAttribute("cx", this.x(bills[1].intensity));
    this.dot.setAttribute("cy", roof(bills[1]));
    const state = last ? `Tiles ${taken.join(", ")} of ${all.length}: top ${number(last.top)}, total ${number(last.total)}, output ${number(last.output)}` : `No tile of ${all.length} has arrived`;
    const sentence = `${state}; all at once ${number(this.whole)}. In tiles of ${T.toLocaleString("en-US")} rows the layer moves ${number(bills[1].bytes / 1e9, 0)} GB, `
      + `the textbook ${number(bills[0].bytes / 1e9, 0)}; it waits for ${bills[1].bound}, and such a tile ${fits ? "fits into" : "does not fit into"} 227 KiB.`;
    this.bars.setAttribute("aria-label", state);
    this.chart.setAttribute("aria-label", `Roofline: the textbook does ${number(bills[0].intensity, 1)} operations for each byte, tiles ${number(bills[1].intensity, 1)}; the roof bends at 295.`);
    return sentence;
  }
});
