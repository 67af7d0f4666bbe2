/* What a causal layer of attention moves in tiles, of 131,072 tokens and 64 heads of width 128 that share 8 heads of keys,
   on an H100 in bfloat16: the numbers of attn_tutor/ledger.py, and the roofline of that GPU. */
Object.assign(attn, (() => {
  "use strict";
  const { html, svg, put, number } = attn, peak = 989.4e12, bandwidth = 3.35e12, fast = 227 * 1024;

  /* What tiles of T by T move, or the textbook. Eight heads of a token share a tile. */
  const bill = (T) => {
    const n = 131072, h = 64, groups = 8, d = 128, tokens = T * groups / h, blocks = n / tokens;
    const pairs = T ? n * (n + 1) / 2 : n * n, operations = 4 * h * pairs * d;
    const read = T ? tokens * blocks * (blocks + 1) / 2 : n, trips = T ? 0 : 8 * 2 * h * pairs;
    const bytes = 2 * 2 * h * n * d + read * 2 * 2 * groups * d + trips, compute = operations / peak, move = bytes / bandwidth;
    return { operations, bytes, room: T ? 2 * (4 * T * d + T * T) : 0, intensity: operations / bytes, seconds: Math.max(compute, move), bound: compute > move ? "arithmetic" : "memory" };
  };

  const x = (intensity) => 46 + 26.5 * Math.log2(intensity), y = (rate) => 150 - 48 * Math.log10(rate / 3e12);
  const roof = (intensity) => y(Math.min(peak, bandwidth * intensity)), whole = (n) => n.toLocaleString("en-US");
  const Roofline = class {
    constructor(figure) {
      this.figure = figure;
      const book = bill().intensity, text = (x, y, words, anchor = "start") => svg("text", { x, y, "text-anchor": anchor }, words);
      this.dot = svg("circle", { class: "attn-mark", r: 6 });
      this.size = svg("text", { class: "attn-name", "text-anchor": "end" });
      this.chart = svg("svg", { viewBox: "0 0 400 190", role: "img" }, svg("path", { class: "attn-axis", d: "M46 8V150H396" }),
        svg("polyline", { class: "attn-curve", points: [1, peak / bandwidth, 8192].map((a) => `${x(a)},${roof(a)}`).join(" ") }),
        ...[8, 32, 295, 4096].map((a) => text(x(a), 166, whole(a), "middle")), ...[10, 100, 1000].map((a) => text(40, y(a * 1e12) + 4, whole(a), "end")),
        text(220, 184, "operations for each byte of slow memory", "middle"), text(52, 16, "10¹² operations a second"), text(x(book) + 12, roof(book) + 14, "textbook"),
        svg("rect", { class: "attn-score", width: 10, height: 10, x: x(book) - 5, y: roof(book) - 5 }), this.dot, this.size);
      const named = ["operations (10¹²)", "slow memory (GB)", "a tile needs (KiB)", "at least (ms)"], { controls } = figure;
      this.cells = named.map(() => [html("td"), html("td")]);
      figure.controls = html("div", { class: "attn-controls" });
      figure.slider("power", "Rows T of a tile of the layer", [3, 13, 1], (power) => whole(2 ** power));
      this.part = html("div", {}, figure.controls, html("div", { class: "attn-beside" }, this.chart,
        attn.table("131,072 tokens, 64 heads, bfloat16, on an H100", ["", "textbook", "tiles"], named.map((name, i) => [html("th", { scope: "row" }, name), ...this.cells[i]]))));
      figure.controls = controls;
    }

    show(T) {
      const bills = [bill(), bill(T)], [book, tiles] = bills, fits = tiles.room <= fast;
      [["operations", 1e12], ["bytes", 1e9], ["room", 1024], ["seconds", 1e-3]].forEach(([part, unit], i) =>
        bills.forEach((bill, c) => { this.cells[i][c].textContent = bill[part] ? number(bill[part] / unit, 0) : "–"; }));
      if (!fits) this.cells[2][1].textContent += " > 227";
      this.size.textContent = `T = ${whole(T)}${fits ? "" : ", too large"}`;
      this.figure.glide("dot", [x(tiles.intensity), roof(tiles.intensity)], ([x, y]) => {
        put(this.dot, { cx: x, cy: y });
        const below = x > 256, after = below && x < 320; // where the line does not run
        put(this.size, { x: x + (after ? -20 : below ? 20 : -8), y: y + (below ? 20 : -8), "text-anchor": after ? "start" : "end" });
      });
      put(this.chart, { "aria-label": `Roofline: the textbook does ${number(book.intensity, 1)} operations for each byte, tiles ${number(tiles.intensity, 1)}; the roof bends at 295.` });
      return `In tiles of ${whole(T)} rows the layer moves ${number(tiles.bytes / 1e9, 0)} GB, the textbook ${number(book.bytes / 1e9, 0)}; it waits for ${tiles.bound}, and such a tile ${fits ? "fits into" : "does not fit into"} 227 KiB.`;
    }
  };

  return { bill, Roofline };
})());
