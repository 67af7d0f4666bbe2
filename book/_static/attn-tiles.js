/* Chapter 10, two parts that share no control, one shown at a time. Merging: the keys of one query arrive tile by tile, in any order. Bytes:
   what a layer moves. Needs attn-roofline.js: the bytes. */
customElements.define("attn-tiles", class extends attn.Figure {
  static title = "The online softmax, tile by tile, and the bytes that tiles move";
  static start = { width: "2", causal: false, order: "01", draw: 0, power: 6, part: "merging" };
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
    ask: "Press “bytes that tiles move”. From which number T of rows on does the layer wait for arithmetic and no longer for memory? Set it, and the one below it.",
    guesses: { 6: "64", 7: "128", 8: "256", 9: "512" },
    right: (figure, met) => String(Math.min(...[...met.keys()].filter((power) => attn.bill(2 ** power).bound === "arithmetic"))),
    done: (figure, met) => {
      met.set(figure.state.power, attn.bill(2 ** figure.state.power));
      return [...met].some(([power, { bound }]) => bound === "arithmetic" && met.get(power - 1)?.bound === "memory");
    },
    seen: (figure, met) => [...met].sort((a, b) => a[0] - b[0]).map(([power, { seconds, bound, room }]) => `T = ${2 ** power}: ${attn.number(1e3 * seconds, 0)} ms, waits for ${bound}, needs ${attn.number(room / 1024, 0)} KiB.`).join(" ")
      + " Fast memory has 227 KiB.",
  }];
  static place = 4; // of the query, which a causal mask lets see keys 0 to 4

  build() {
    const { html, svg, range } = attn;
    this.presets("Shown", { merging: { part: "merging" }, "bytes that tiles move": { part: "bytes" } });
    this.fits.part = (part) => ["merging", "bytes"].includes(part);
    const shared = this.controls;
    this.controls = html("div", { class: "attn-controls" });
    shared.append(this.controls);
    this.choice("width", "Keys in a tile", { 1: "1", 2: "2", 4: "4", 8: "8" });
    this.check("causal", "causal: the query is token 4");
    this.button("New numbers", ({ draw }) => ({ draw: draw + 1 }));
    this.button("Start over", () => ({ order: "" }));
    this.own = this.controls;
    this.controls = shared;
    this.fits.draw = (draw) => Number.isInteger(draw) && draw >= 0;
    this.fits.order = (order) => /^[0-7]{0,8}$/.test(order);

    const text = (looks, ...words) => svg("text", looks, ...words), block = (kind, looks) => svg("rect", { class: "attn-" + kind, ...looks });
    this.keys = range(8).map(() => ({ ghost: block("ghost"), bar: block("score"), weight: text({ class: "attn-name" }), score: text({ y: 160 }), value: text({ y: 178 }) }));
    this.lines = ["total z", "pooled u", "output u / z"].map((name, i) => {
      const place = { x: 84, y: 4 + 28 * i, height: 20 }, y = 19 + 28 * i;
      return { old: block("score", place), fresh: block("weight", place), ghost: block("ghost", place), name: text({ x: 2, y }, name), value: text({ y, class: "attn-name" }) };
    });
    this.axis = svg("path", { class: "attn-axis" });
    this.goal = svg("path", { class: "attn-reach" });
    this.bars = svg("svg", { role: "img", class: "attn-sums" }, this.axis, text({ x: 2, y: 160 }, "s"), text({ x: 2, y: 178 }, "v"), ...this.keys.flatMap(Object.values));
    this.totals = svg("svg", { class: "attn-sums", "aria-hidden": true }, ...this.lines.flatMap(Object.values), this.goal);
    this.next = range(8).map((tile) => attn.button(`tile ${tile}`, () => this.taken.includes(tile) || this.set({ order: this.state.order + tile })));
    this.arrivals = html("div", { class: "attn-arrivals", role: "group", "aria-label": "Which tile arrives next?" }, ...this.next);
    this.rows = range(9).map(() => range(6).map(() => html("td")));
    const table = attn.table("State of the query after each tile", ["tile", "shrink", "top", "total", "pooled", "output"], this.rows);
    this.answer = html("p", { class: "attn-answer" });
    const key = (kind, text) => html("b", { class: kind }, text);
    this.merging = html("div", {}, html("p", {}, "One query. Bars: exp(score − top) of ", key("attn-of-beam", "the keys so far"), " and of ", key("attn-of-new", "the last tile"), "; dashed: before it came"),
      this.bars, this.arrivals, this.totals, this.answer, html("details", {}, html("summary", {}, "The numbers after each tile"), table));
    this.bytes = new attn.Roofline(this);
    this.picture.append(this.merging, this.bytes.part);
    this.fit(this.merging);
  }

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

  /* The keys that have arrived as bars, and below what is kept of them: old sums, shrunk, and what the last tile adds. */
  sum_up(keys) {
    const { number, put } = attn, { S, V } = this.numbers, { causal, width, order } = this.state, { taken, sums } = this, last = sums.at(-1);
    const none = { top: -Infinity, total: 0, pooled: 0, output: 0 }, now = last ?? none, before = sums.at(-2) ?? none, shrink = last && sums[1] ? last.shrink : 1;
    const wide = this.merging.clientWidth || 700, pitch = (wide - 24) / 8, fat = 0.7 * pitch, high = 110, floor = 138, left = 84;
    const arrived = taken.flatMap((tile) => this.seen(tile)), fresh = last ? this.seen(last.tile) : [];
    put(this.bars, { viewBox: `0 0 ${wide} 182` });
    put(this.totals, { viewBox: `0 0 ${wide} 86` });
    put(this.axis, { d: `M20 ${floor}.5H${wide}` });
    this.arrivals.style.gridTemplateColumns = `repeat(${8 / width}, 1fr)`;
    const e = S.map((s, j) => (arrived.includes(j) ? Math.exp(s - now.top) : 0));
    const old = S.map((s, j) => (arrived.includes(j) && !fresh.includes(j) && shrink < 1 ? Math.exp(s - before.top) : 0));
    this.keys.forEach(({ ghost, bar, weight, score, value }, j) => {
      const x = 24 + pitch * j + (pitch - fat) / 2, middle = x + fat / 2, hidden = causal && j > this.constructor.place;
      put(ghost, { x, width: fat, y: floor - high * old[j], height: high * old[j] });
      put(bar, { x, width: fat, class: fresh.includes(j) ? "attn-weight" : "attn-score" });
      for (const text of [weight, score, value]) put(text, { x: middle, "text-anchor": "middle" });
      weight.textContent = arrived.includes(j) ? number(e[j], 2) : "";
      [score.textContent, value.textContent] = hidden ? ["−∞", ""] : [number(S[j], 2), number(V[j], 1)];
    });
    this.glide("keys", e, (e) => this.keys.forEach(({ bar, weight }, j) => {
      put(bar, { y: floor - high * e[j], height: high * e[j] });
      put(weight, { y: floor - 5 - high * Math.max(e[j], 0) });
    }), 600);

    // The most that a sum can be in any order is as long as the drawing is wide.
    const most = (v) => Math.max(...keys.map((t) => attn.sum(keys.map((j) => (S[j] <= S[t] ? Math.exp(S[j] - S[t]) * v(j) : 0)))));
    const room = wide - left - 56, scales = [room / most(() => 1), room / most((j) => V[j]), room / Math.max(...keys.map((j) => V[j]))], parts = ["total", "pooled", "output"];
    const goals = parts.slice(0, 2).flatMap((part) => [shrink * before[part], now[part] - shrink * before[part]]).concat(now.output, 0);
    if (this.order + order.at(-1) === order) // what is kept so far is one sum before it shrinks
      this.glides.set("sums", { now: parts.flatMap((part) => [before[part], 0]) });
    this.order = order;
    this.lines.forEach(({ ghost, value }, i) => {
      put(ghost, { width: i < 2 && shrink < 1 ? scales[i] * before[parts[i]] : 0 });
      value.textContent = last ? number(now[parts[i]]) : "–";
    });
    put(this.goal, { d: `M${left + scales[2] * this.whole} 52V88`, "stroke-width": 2 });
    this.glide("sums", goals, (sums) => this.lines.forEach(({ ghost, old, fresh, value }, i) => {
      const [a, b] = [sums[2 * i], sums[2 * i + 1]].map((x) => Math.max(0, scales[i] * x));
      put(old, { width: a });
      put(fresh, { x: left + a, width: b });
      put(value, { x: left + Math.max(a + b, +ghost.getAttribute("width")) + 5 });
    }), 600);
    return !last ? "Nothing has arrived. Press a tile." : !sums[1] ? `Tile ${last.tile} is the first: its larger score, ${number(last.top, 2)}, is the top.`
      : shrink < 1 ? `Tile ${last.tile} raises the top from ${number(before.top, 2)} to ${number(last.top, 2)}: all that was summed shrinks to ${number(shrink)} of itself.`
        : `Tile ${last.tile} brings no larger score: what was summed stays as it is.`;
  }

  draw() {
    const { number } = attn, { power } = this.state, { S, V } = this.numbers, { all, taken, sums } = this, last = sums.at(-1);
    const fill = (rows, values) => rows.forEach((cell, i) => { cell.textContent = values[i]; });
    this.own.hidden = this.merging.hidden = this.state.part !== "merging";
    this.bytes.part.hidden = !this.own.hidden;
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
    const news = this.sum_up(keys);

    const merged = last ? `Tiles ${taken.join(", ")} of ${all.length}: top ${number(last.top)}, total ${number(last.total)}, output ${number(last.output)}` : `No tile of ${all.length} has arrived`;
    this.bars.setAttribute("aria-label", merged);
    const bytes = this.bytes.show(2 ** power);
    return this.bytes.part.hidden ? `${news} ${merged}; all at once ${number(this.whole)}.` : bytes;
  }
});
