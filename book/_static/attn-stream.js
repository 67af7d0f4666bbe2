/* The stream of one character of chapter 9's model: the text, a ribbon of fine threads into which four parts write, and the odds at its end. */
attn.Stream = class {
  static names = ["x0", "y0", "x1", "y1", "x2"];
  static adds = ["p0", "f0", "p1", "f1"];

  constructor(figure) {
    const { html, svg, range } = attn, { names } = attn.Stream, { most } = figure.constructor, { parts } = figure;
    this.figure = figure;
    const boxes = [["a00", "attention", 0], ["g0", "MLP", 0], ["a10", "attention", 1], ["g1", "MLP", 1]];
    this.fan = range(4).map((h) => range(most).map(() => svg("path", { class: `attn-head-${h}` })));
    this.pipes = range(4).map(() => [svg("path"), svg("path")]);
    this.ribbon = html("canvas", { "aria-hidden": "true", width: names.length });
    this.front = html("span", { class: "attn-front" });
    this.whose = html("span", { class: "attn-chosen" });
    this.ribbon.addEventListener("pointerdown", ({ offsetX, offsetY }) => {
      const { clientWidth, clientHeight, height } = this.ribbon, place = (x, n) => Math.max(0, Math.min(n - 1, Math.floor(x * n)));
      figure.open(names[place(offsetX / clientWidth, names.length)], { column: place(offsetY / clientHeight, height) });
    });
    this.drawing = svg("svg", { "aria-hidden": "true" }, ...this.fan.flat(), ...this.pipes.flat());
    this.lengths = range(4).map(() => html("small")); // of the additions
    this.labels = names.map((name, k) => html("span", { style: `left: calc(${20 * k}% + ${k ? 15 : 7}px)` }, parts[name].label, ...(k ? [html("sub", {}, String((k - 1) >> 1)), this.lengths[k - 1]] : [])));
    this.way = html("div", { class: "attn-way" }, ...this.labels, html("div", { class: "attn-ribbon" }, this.ribbon, this.front, this.whose), this.drawing,
      ...boxes.map(([name, title, b], k) => figure.opener(name, { style: `left: ${20 * (k + 1)}%` }, html("b", {}, title), html("small", {}, `block ${b}`))));
    this.twin = { canvas: html("canvas", { "aria-hidden": "true" }), named: html("span") };
    this.twin.strip = html("div", { class: "attn-strip" }, this.twin.named, this.twin.canvas);
    this.colours = html("small");
    this.odds = range(4).map(() => {
      const name = html("button", { type: "button" }), bar = html("td", { class: "attn-bar" });
      name.addEventListener("click", () => figure.set({ part: "r", column: +name.value }));
      return { name, bar, row: [html("th", { scope: "row" }, name), bar] };
    });
    this.part = html("div", { class: "attn-through" }, figure.line.line, this.way, html("small", {}, "Red foot: the loss of a letter. Threads: orange below 0, violet above."), attn.table("The next character’s odds", ["", ""], this.odds.map(({ row }) => row)));
  }

  show(text, at, part, shown, row) {
    const { figure } = this, { stage } = figure.state;
    this.whose.textContent = attn.letter(text[at]);
    this.labels.forEach((label, k) => label.classList.toggle("attn-here", attn.Stream.names[k] === figure.drawn_part));
    figure.glide("front", [stage], ([now]) => {
      const share = Math.min(1, (now + 1) / 5);
      this.ribbon.style.clipPath = `inset(0 ${100 - 100 * share}% 0 0)`;
      Object.assign(this.front.style, { left: `${100 * share}%`, opacity: +(share < 1) });
    }, figure.stop ? 1200 : 500);
    this.lay_lines(at, part, shown);
    this.lay_pipes(text + at, Math.hypot(...row));
    this.show_odds(text, at, stage === 5);
    this.show_twin(text, at, figure.drawn_part);
  }

  /* Where a part stands. */
  place(k) { return this.way.clientWidth * (k + 1) / 5; }

  /* From the letters that the open attention looks at, a line as thick as each weight. */
  lay_lines(at, { of, head }, shown) {
    const { values, line } = this.figure, b = of.at(-1), looks = of[0] === "a", foot = 40, seen = looks && shown(`a${b}0`);
    this.drawing.setAttribute("viewBox", `0 0 ${this.way.clientWidth} 94`);
    this.fan.forEach((lines, h) => lines.slice(0, looks ? at + 1 : 0).forEach((path, k) => {
      const { offsetLeft, offsetWidth } = line.letters[k], from = offsetLeft + offsetWidth / 2, to = this.place(2 * b) + 9 * h - 13.5;
      path.setAttribute("d", `M${from} 0C${from} ${foot / 2} ${to} ${foot / 2} ${to} ${foot}`);
    }));
    const weights = this.fan.flatMap((lines, h) => lines.map((_, k) => (seen && k <= at && (head === undefined || head === h) ? values[`a${b}${h}`][at][k] : 0)));
    this.figure.glide("fan", weights, (now) => this.fan.flat().forEach((path, k) => path.setAttribute("stroke-width", now[k] < 0.02 ? 0 : 7 * now[k])));
  }

  /* From the stream into each part and back, as thick as the addition is long, once it was opened for this character. */
  lay_pipes(of, length) {
    const { adds } = attn.Stream, { figure } = this, reach = Math.min(30, this.way.clientWidth / 16);
    if (this.opened?.of !== of) this.opened = { of };
    if (adds.includes(figure.drawn_part)) this.opened[figure.drawn_part] = length;
    this.lengths.forEach((text, k) => { text.textContent = adds[k] in this.opened ? attn.number(this.opened[adds[k]], 1) : ""; });
    figure.glide("pipes", adds.map((name) => 1.5 * (this.opened[name] ?? 1.3)), (now) => this.pipes.forEach(([up, down], k) => {
      up.setAttribute("d", `M${this.place(k) - reach} 94V78`);
      down.setAttribute("d", `M${this.place(k)} 78V94`);
      down.setAttribute("stroke-width", now[k]);
    }));
  }

  /* The colours of a line: odds as weights have them; else orange below 0 and violet above, clear at 0 (by the root, so that small ones show) and full
     from the largest number of the line on, or from half the largest of the stream and all that is added to it. */
  colour(name) {
    if (name === "r") return (x) => attn.colour("viridis", x);
    const scale = this.scale(name);
    return (x) => [...(x < 0 ? [224, 116, 8] : [118, 90, 190]), 255 * Math.sqrt(Math.min(1, Math.abs(x) / scale))];
  }

  scale(name) {
    const v = this.figure.values, largest = (of) => v[of].reduce((top, row) => row.reduce((a, x) => Math.max(a, Math.abs(x)), top), 1e-9);
    v.scales ??= { stream: Math.max(...attn.Stream.names.map(largest)) / 2 };
    return v.scales[/[xypf]/.test(name) ? "stream" : name] ??= largest(name);
  }

  /* What the colours mean; and above the line that is open the same line of the equal letter before, to see where the two differ. */
  show_twin(text, at, name) {
    const { parts, values } = this.figure, { canvas, named, strip } = this.twin, before = at ? text.lastIndexOf(text[at], at - 1) : -1, { label, bar } = parts[name], line = values[name][before];
    this.colours.textContent = /[ars]/.test(name[0]) ? "" : `orange < 0 < violet, full at ±${attn.number(this.scale(name), 2)}`;
    strip.hidden = !line || !label || name[0] === "a" || line.length === 256;
    if (strip.hidden) return;
    bar.parentNode.before(strip);
    named.textContent = `${label}, at ${before}`;
    attn.paint_strip(canvas, line.length, [...line].map(this.colour(name)));
  }

  /* The ribbon, of the colours of all lines. */
  paint(colours) {
    const columns = attn.Stream.names.map((name) => colours.get(name));
    Object.assign(this.ribbon, { width: columns.length, height: columns[0].length });
    attn.pixels(this.ribbon, columns[0].flatMap((_, row) => columns.map((column) => column[row])));
  }

  show_odds(text, at, shown) {
    const row = this.figure.values.r[at], order = attn.range(row.length).sort((a, b) => row[b] - row[a]);
    this.odds.forEach(({ name, bar }, k) => {
      const letter = attn.lm.alphabet[order[k]];
      name.value = order[k];
      name.disabled = !shown;
      name.textContent = shown ? `“${attn.letter(letter)}”` + (letter === text[at + 1] ? " ✓" : "") : "–";
      bar.textContent = shown ? attn.number(row[order[k]]) : "–";
      bar.style.setProperty("--share", shown ? row[order[k]] : 0);
    });
  }
};

/* A frame about some numbers of a line, or none; in a map they are of one row. */
attn.frame_numbers = (frame, span, { width, height }, row) => {
  frame.hidden = !span;
  if (!span) return;
  const [from, to] = span, one = to - from === 1, top = row ?? (one ? Math.floor(from / width) : 0), tall = row !== undefined || one ? 1 : height;
  const places = { left: one ? from % width : from, width: Math.min(width, to - from) };
  for (const [side, at] of Object.entries(places)) frame.style[side] = `${100 * at / width}%`;
  Object.assign(frame.style, { top: `${100 * top / height}%`, height: `${100 * tall / height}%` });
};

/* The numbers of a line as colours, in four rows where there are 256. */
attn.paint_strip = (canvas, n, colours) => {
  canvas.width = n === 256 ? 64 : n;
  canvas.height = n / canvas.width;
  attn.pixels(canvas, colours);
};
