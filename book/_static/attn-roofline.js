/* What a causal layer of attention moves in tiles, of 131,072 tokens and 64 heads of width 128 that share 8 heads of keys,
   on an H100 in bfloat16: the numbers of attn_tutor/ledger.py, and the roofline of that GPU. */
Object.assign(attn, (() => {
  "use strict";
  const { html, svg, put, number } = attn, d = 128, peak = 989.4e12, bandwidth = 3.35e12, ridge = peak / bandwidth, fast = 227 * 1024;

  /* What tiles of T by T move, or the textbook. Eight heads of a token share a tile. */
  const bill = (T) => {
    const n = 131072, h = 64, groups = 8, tokens = T * groups / h, blocks = n / tokens;
    const pairs = T ? n * (n + 1) / 2 : n * n, operations = 4 * h * pairs * d;
    const read = T ? tokens * blocks * (blocks + 1) / 2 : n, trips = T ? 0 : 8 * 2 * h * pairs;
    const bytes = 2 * 2 * h * n * d + read * 2 * 2 * groups * d + trips, compute = operations / peak, move = bytes / bandwidth;
    return { operations, bytes, room: T ? 2 * (4 * T * d + T * T) : 0, intensity: operations / bytes, seconds: Math.max(compute, move), bound: compute > move ? "arithmetic" : "memory" };
  };

  const x = (intensity) => 46 + 26.5 * Math.log2(intensity), y = (rate) => 206 - 68 * Math.log10(rate / 3e12);
  const roof = (intensity) => y(Math.min(peak, bandwidth * intensity)), whole = (n) => n.toLocaleString("en-US"), rounded = (x) => whole(Math.floor(x + 0.5));
  const Roofline = class {
    constructor(figure) {
      this.figure = figure;
      const book = bill().intensity, text = (x, y, words, anchor = "start") => svg("text", { x, y, "text-anchor": anchor }, words);
      this.dot = svg("circle", { class: "attn-mark", r: 6 });
      this.size = svg("text", { class: "attn-name", "text-anchor": "end" });
      const full = x(bill(2 * (Math.sqrt(d * d + fast / 8) - d)).intensity); // where 4 T d + T² numbers of two bytes are all that fits
      this.chart = svg("svg", { viewBox: "0 0 400 246", role: "img" }, svg("path", { class: "attn-region", d: `M46 206V${roof(1)}L${x(ridge)} ${roof(ridge)}V206Z` }),
        svg("path", { class: "attn-region attn-of-arithmetic", d: `M${x(ridge)} ${roof(ridge)}H396V206H${x(ridge)}Z` }), svg("path", { class: "attn-axis", d: "M46 8V206H396" }),
        text(x(ridge) - 8, 196, "memory is the brake", "end"), text(x(ridge) + 8, 196, "arithmetic is the brake"),
        svg("path", { class: "attn-reach", d: `M${full} 60V182` }), text(full - 6, 178, "such a tile fits", "end"), text(full + 6, 178, "it does not"),
        svg("polyline", { class: "attn-curve", points: [1, ridge, 8192].map((a) => `${x(a)},${roof(a)}`).join(" ") }),
        ...[8, 32, 295, 4096].map((a) => text(x(a), 222, whole(a), "middle")), ...[10, 100, 1000].map((a) => text(40, y(a * 1e12) + 4, whole(a), "end")),
        text(220, 240, "operations for each byte of slow memory", "middle"), text(52, 16, "10¹² operations a second"), text(x(book) + 12, roof(book) + 14, "textbook"),
        svg("rect", { class: "attn-score", width: 10, height: 10, x: x(book) - 5, y: roof(book) - 5 }), this.dot, this.size);
      const named = ["operations (10¹²)", "moved from and to slow memory (GB)", "time by this bill (ms)", "a tile in fast memory (KiB)"], { controls } = figure;
      this.bars = named.map((name, i) => [0, 1].map((tiles) => {
        const y = 16 + 50 * i + 15 * tiles;
        return i === 3 && !tiles ? null : { bar: svg("rect", { class: tiles ? "attn-mark" : "attn-score", x: 0, y, height: 12 }), value: svg("text", { class: "attn-name", y: y + 10 }) };
      }));
      this.limit = svg("path", { class: "attn-reach", d: `M${this.room(fast)} 176V194` });
      this.cut = svg("path", { class: "attn-cut", d: "M209 199l4 -20M215 199l4 -20" }); // through a bar that is longer than there is room
      this.tanks = svg("svg", { viewBox: "0 0 330 198", role: "img", class: "attn-tanks" }, ...named.map((name, i) => text(0, 11 + 50 * i + 15 * (i === 3), name)),
        ...this.bars.flat().flatMap((pair) => (pair ? Object.values(pair) : [])), this.limit, text(this.room(fast) + 4, 176, "227: no more fits"), this.cut);
      figure.controls = html("div", { class: "attn-controls" });
      figure.slider("power", "Rows T of a tile of the layer", [3, 13, 1], (power) => whole(2 ** power));
      this.part = html("div", {}, figure.controls, html("p", {}, "131,072 tokens, 64 heads, bfloat16, on an H100: ", html("b", { class: "attn-of-beam" }, "the textbook"), " and ", html("b", { class: "attn-of-greedy" }, "tiles of T by T")),
        html("div", { class: "attn-beside" }, this.chart, this.tanks));
      figure.controls = controls;
    }

    room(bytes) { return Math.min(225, 200 * bytes / fast); }

    show(T) {
      const bills = [bill(), bill(T)], [book, tiles] = bills, fits = tiles.room <= fast;
      [["operations", 1e12], ["bytes", 1e9], ["seconds", 1e-3], ["room", 1024]].forEach(([part, unit], i) => this.bars[i].forEach((pair, c) => {
        if (!pair) return;
        const width = i === 3 ? this.room(tiles.room) : 200 * bills[c][part] / Math.max(book[part], tiles[part]);
        put(pair.bar, { width });
        put(pair.value, { x: width + 5 });
        pair.value.textContent = rounded(bills[c][part] / unit) + (i === 3 && !fits ? ", too much" : "");
      }));
      put(this.cut, { visibility: 200 * tiles.room / fast > 225 ? "visible" : "hidden" });
      this.size.textContent = `T = ${whole(T)}${fits ? "" : ", too large"}`;
      this.figure.glide("dot", [x(tiles.intensity), roof(tiles.intensity)], ([x, y]) => {
        put(this.dot, { cx: x, cy: y });
        const below = x > 256, after = below && x < 320; // where the line does not run
        put(this.size, { x: Math.min(398, x + (after ? -20 : below ? 20 : -8)), y: y + (below ? 20 : -8), "text-anchor": after ? "start" : "end" });
      });
      put(this.chart, { "aria-label": `Roofline: the textbook does ${number(book.intensity, 1)} operations for each byte, tiles ${number(tiles.intensity, 1)}; the roof bends at 295.` });
      return `Tiles of ${whole(T)} rows move ${rounded(tiles.bytes / 1e9)} GB, the textbook ${rounded(book.bytes / 1e9)}; they wait for ${tiles.bound}${fits ? "" : " and do not fit into 227 KiB"}.`;
    }
  };

  return { bill, rounded, Roofline };
})());
