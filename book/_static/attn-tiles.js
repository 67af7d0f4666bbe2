/* Chapter 10: the keys of one query arrive tile by tile, in any order. */
customElements.define("attn-tiles", class extends attn.Figure {
  static title = "The online softmax, tile by tile";
  static start = { width: "2", causal: false, order: "01", draw: 0 };
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
  }];
  static place = 4; // of the query, which a causal mask lets see keys 0 to 4

  build() {
    const { html, svg, range } = attn;
    this.choice("width", "Keys in a tile", { 1: "1", 2: "2", 4: "4", 8: "8" });
    this.check("causal", "causal: the query is token 4");
    this.button("New numbers", ({ draw }) => ({ draw: draw + 1 }));
    this.button("Start over", () => ({ order: "" }));
    this.fits.draw = (draw) => Number.isInteger(draw) && draw >= 0;
    this.fits.order = (order) => /^[0-7]{0,8}$/.test(order);

    const text = (looks, ...words) => svg("text", looks, ...words), block = (kind, looks) => svg("rect", { class: "attn-" + kind, ...looks });
    this.keys = range(8).map(() => ({ ghost: block("ghost"), bar: block("score"), weight: text({ class: "attn-name" }), score: text({ y: 160 }), value: text({ y: 178 }) }));
    this.lines = ["total z", "pooled u", "output u / z"].map((name, i) => {
      const y = [4, 48, 104][i], ticks = range(8).map(() => text({ class: "attn-small", y: y + (i < 2 ? 34 : 47), "text-anchor": "middle" }));
      return { blocks: range(i < 2 ? 8 : 0).map(() => block("score", {})), ghost: block("ghost", { x: 84, y: y - 3, height: 5 }), axis: svg("path", { class: "attn-axis" }), ticks, name: text({ x: 2, y: y + 15 }, name), value: text({ y: y + (i < 2 ? 15 : 34), class: "attn-name" }) };
    });
    this.discs = range(8).map(() => svg("circle")); // as large as a weight, where its value stands
    this.balance = svg("path", { class: "attn-mark" });
    this.axis = svg("path", { class: "attn-axis" });
    this.topped = text({ class: "attn-name" });
    this.factor = text({ class: "attn-name", "text-anchor": "middle" }); // above the first bar that shrinks
    this.goal = svg("path", { class: "attn-reach" });
    this.bars = svg("svg", { role: "img", class: "attn-sums" }, this.axis, text({ x: 2, y: 160 }, "s"), text({ x: 2, y: 178 }, "v"), ...this.keys.flatMap(Object.values), this.factor, this.topped);
    this.totals = svg("svg", { class: "attn-sums attn-totals", "aria-hidden": true }, ...this.lines.flatMap(({ blocks, ticks, ...more }) => [...blocks, ...Object.values(more), ...ticks]), ...this.discs, this.balance, this.goal);
    this.next = range(8).map((tile) => attn.button(`tile ${tile}`, () => this.taken.includes(tile) || this.set({ order: this.state.order + tile })));
    this.arrivals = html("div", { class: "attn-arrivals", role: "group", "aria-label": "Which tile arrives next?" }, ...this.next);
    this.rows = range(9).map(() => range(6).map(() => html("td")));
    const table = attn.table("State of the query after each tile", ["tile", "shrink", "top", "total", "pooled", "output"], this.rows);
    this.answer = html("p", { class: "attn-answer" });
    const key = (kind, text) => html("b", { class: kind }, text);
    this.merging = html("div", {}, html("p", {}, "One query. Bars: exp(score − top) of ", key("attn-of-beam", "the keys so far"), " and of ", key("attn-of-new", "the last tile"), "; dashed: before it came. Discs: weights"),
      this.bars, this.arrivals, this.totals, this.answer, html("details", {}, html("summary", {}, "The numbers after each tile"), table));
    this.picture.append(this.merging);
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
    put(this.totals, { viewBox: `0 0 ${wide} 154` });
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
    const shrunk = old.findIndex((x) => x > 0);
    this.factor.textContent = shrunk < 0 ? "" : `× ${number(shrink)}`;
    this.topped.textContent = last ? `top ${number(last.top, 2)}${last.top > before.top && sums[1] ? `, was ${number(before.top, 2)}` : ""}` : "";
    put(this.topped, { x: wide, y: 14, "text-anchor": "end" });
    put(this.factor, { x: 24 + pitch * shrunk + pitch / 2, y: floor - 5 - high * (old[shrunk] ?? 0) });
    const comes = this.order + order.at(-1) === order; // what comes falls from its bar into both sums
    if (comes) for (const j of fresh) this.glides.get("keys").now[j] = e[j];
    this.glide("keys", e, (e) => this.keys.forEach(({ bar, weight }, j) => {
      put(bar, { y: floor - high * e[j], height: high * e[j] });
      put(weight, { y: floor - 5 - high * Math.max(e[j], 0) });
    }), 900);

    // The most that a sum can be in any order is as long as the drawing is wide.
    const most = (v) => Math.max(...keys.map((t) => attn.sum(keys.map((j) => (S[j] <= S[t] ? Math.exp(S[j] - S[t]) * v(j) : 0)))));
    const room = wide - left - 56, parts = ["total", "pooled", "output"], ends = [most(() => 1), most((j) => V[j]), Math.max(...keys.map((j) => V[j]))], scales = ends.map((end) => room / end);
    const goals = this.lines.slice(0, 2).flatMap((_, i) => {
      let at = left;
      const places = new Map(arrived.map((j) => [j, [at, 6 + 44 * i, e[j] * (i ? V[j] : 1) * scales[i], 18, at += e[j] * (i ? V[j] : 1) * scales[i]]]));
      return S.flatMap((_, j) => places.get(j)?.slice(0, 4) ?? [at, 6 + 44 * i, 0, 18]);
    });
    const up = this.arrivals.offsetHeight + 182 - floor, falling = this.glides?.get("blocks")?.now;
    if (comes) for (const j of fresh) for (const i of [0, 1]) falling.splice(32 * i + 4 * j, 4, 24 + pitch * j + (pitch - fat) / 2, -up - high * e[j], fat, high * e[j]);
    this.order = order;
    this.glide("blocks", goals, (now) => this.lines.slice(0, 2).forEach(({ blocks }, i) => blocks.forEach((block, j) => {
      const [x, y, width, height] = now.slice(32 * i + 4 * j);
      put(block, { x, y, width: Math.max(0, width - (width > 3)), height, class: fresh.includes(j) ? "attn-weight" : "attn-score" });
    })), 900);
    this.lines.forEach(({ ghost, value, axis, ticks }, i) => {
      const was = i < 2 && shrink < 1 ? scales[i] * before[parts[i]] : 0, step = [0.25, 0.5, 1, 2, 5, 10, 20, 50, 100].find((step) => ends[i] / step < 7), y = [4, 48, 104][i];
      let free = 0;
      const marks = i < 2 ? ticks.map((_, k) => k * step) : [...V].sort((a, b) => a - b); // a mean stands among what it is of
      put(ghost, { width: was });
      value.textContent = last ? number(now[parts[i]]) : "–";
      if (i < 2) put(value, { x: left + Math.max(was, scales[i] * now[parts[i]]) + 5 });
      ticks.forEach((tick, k) => {
        const x = left + scales[i] * marks[k], there = marks[k] <= ends[i] + 1e-9 && x >= free;
        if (there) free = x + 24;
        put(tick, { x });
        tick.textContent = there ? (i < 2 ? String(marks[k]) : number(marks[k], marks[k] % 1 ? 1 : 0)) : "";
      });
      put(axis, { d: `M${left} ${y + 22.5}H${left + room}` + marks.filter((mark) => mark <= ends[i]).map((mark) => `M${left + scales[i] * mark} ${y + 20}v5`).join("") });
    });
    put(this.goal, { d: `M${left + scales[2] * this.whole} 84V126`, "stroke-width": 2 });
    this.goal.style.visibility = this.answer.style.visibility = taken.length === this.all.length ? "visible" : "hidden";
    this.glide("mean", [...e.map((x) => x / (now.total || 1)), now.output], (shares) => {
      this.discs.forEach((disc, j) => put(disc, { cx: left + scales[2] * V[j], cy: 125 - 20 * Math.sqrt(shares[j]), r: 20 * Math.sqrt(shares[j]), class: fresh.includes(j) ? "attn-weight" : "attn-score" }));
      const x = left + scales[2] * shares[8];
      put(this.balance, { d: `M${x} 127l-7 12h14Z`, visibility: last ? "visible" : "hidden" });
      put(this.lines[2].value, { x: x + 9 });
    }, 900);
    return !last ? "Nothing has arrived. Press a tile." : !sums[1] ? `Tile ${last.tile} is the first: its larger score, ${number(last.top, 2)}, is the top.`
      : shrink < 1 ? `Tile ${last.tile} raises the top from ${number(before.top, 2)} to ${number(last.top, 2)}: all that was summed shrinks to ${number(shrink)} of itself.`
        : `Tile ${last.tile} brings no larger score: what was summed stays as it is.`;
  }

  draw() {
    const { number } = attn, { S, V } = this.numbers, { all, taken, sums } = this, last = sums.at(-1);
    const fill = (rows, values) => rows.forEach((cell, i) => { cell.textContent = values[i]; });
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
    return `${news} ${merged}${taken.length === all.length ? `; all at once ${number(this.whole)}` : ""}.`;
  }
});
