/* Chapter 9: its trained language model, alive. A text; below it the stream of one character, a ribbon into which four parts write; the part that is
   open, with its weights or its hidden numbers; and one number of it with the numbers that it comes from.
   Needs attn-transformer.js, attn-text.js, attn-parts.js, attn-stream.js, attn-lm-data.js: the model, a text to type, its parts, their stream, its weights. */
customElements.define("attn-sentence", class extends attn.Figure {
  static title = "One sentence through the whole model";
  static start = { text: "The query is compared", at: 17, stage: 5, part: "a02", column: 12 };
  static most = 32; // characters: more would make the maps too small
  static stages = ["the characters", "attention of block 0", "the MLP of block 0", "attention of block 1", "the MLP of block 1", "the odds"];
  static texts = { "of the book": { text: this.start.text, at: 17 }, "held out": { text: "So the words set how strong", at: 26 }, "another subject": { text: "The dog sleeps in the garden", at: 27 } };
  static tasks = [{
    shows: (figure) => ({ part: "t0", column: figure.first_difference.column }),
    ask: "Touch two equal letters, one after the other, such as the two “e” of “The query”. In which line do they first differ?",
    guesses: { x0: "the embedding", q0: "the query", t0: "the turned query", y0: "the stream after attention" },
    right: (figure) => figure.first_difference.name,
    done: (figure, met) => {
      const { text, at } = figure.state, letter = text[at];
      if (met.get("text") !== text) met.clear();
      met.set("text", text);
      if (letter === undefined || letter === " " || figure.line.swept === at) return false;
      met.set(letter, new Set([...met.get(letter) ?? [], at]));
      figure.pair = [...met.get(letter)].slice(0, 2);
      return figure.pair.length === 2;
    },
    seen: (figure) => {
      const [i, j] = figure.pair, { most } = figure.first_difference;
      return `The “${figure.state.text[i]}” at ${i} and at ${j} have the same embedding, norm and query. The turned queries, below each other now, differ, in one number by ${attn.number(most, 2)}: `
        + "the positions turn queries and keys, and reach the stream through what attention finds.";
    },
  }, {
    ask: "Each block adds twice to the stream. Which of the four additions is the longest for this character? Open the four boxes and touch “adds” in each.",
    guesses: { p0: "attention of block 0", f0: "MLP of block 0", p1: "attention of block 1", f1: "MLP of block 1" },
    right: (figure, met) => ["p0", "f0", "p1", "f1"].reduce((a, b) => (met.get(b) > met.get(a) ? b : a)),
    done: ({ state: { part, text, at }, length }, met) => {
      if (met.get("of") !== text + at) met.clear();
      met.set("of", text + at);
      if (/^[pf]/.test(part)) met.set(part, length);
      return met.size === 5;
    },
    yet: (figure, met) => `${met.size - 1} of 4 seen.`,
    seen: (figure, met) => "Lengths: " + ["p0", "f0", "p1", "f1"].map((part) => `${figure.parts[part].of} ${attn.number(met.get(part), 2)}`).join(", ")
      + `. Over the ${figure.state.text.length} characters here the longest is ${attn.longest_additions(figure.parts, figure.values).join(", ")}: what a part adds depends on what it reads.`,
  }];

  build() {
    const { html, range } = attn, { most, texts, stages } = this.constructor, known = attn.lm.alphabet;
    this.model = new attn.LanguageModel(attn.lm);
    this.parts = attn.sentence_parts(this.model);
    this.fits.part = (part) => part in this.parts;
    this.fits.column = (column) => Number.isInteger(column) && column >= 0;
    attn.text_box(this, known, most, 1, "Text:");
    this.presets("Texts", texts);
    this.slider("stage", "Shown", [0, 5, 1], (stage) => (stage < 5 ? "up to " : "all, up to ") + stages[stage]);
    this.player("Send it through", 1500, () => {
      const stage = (this.state.stage + 1) % 6;
      this.set({ stage, part: ["x0", "p0", "f0", "p1", "f1", "r"][stage] });
      return stage < 5;
    });
    this.button("Write the likeliest", ({ text }) => {
      if (!text || text.length === most) return {};
      const row = this.compute(text).z.at(-1), next = text + known[row.indexOf(Math.max(...row))];
      return { text: next, at: next.length - 1 };
    });

    this.line = new attn.TextLine(this, most);
    this.lines = Object.entries(this.parts).filter(([, part]) => part.label);
    this.groups = Object.entries(Object.groupBy(this.lines, ([, part]) => part.of)).map(([of, lines]) => {
      const maps = lines.filter(([name]) => name[0] === "a"), chips = lines.filter((line) => !maps.includes(line)).map(([name, { label }]) => this.opener(name, {}, label));
      return [of, html("div", {}, html("div", { class: "attn-buttons", role: "group", "aria-label": of }, html("b", {}, of + ":"), ...chips),
        ...(maps.length ? [html("div", { class: "attn-four" }, ...maps.map(([name, part]) => this.build_strip(name, part)))] : []))];
    });
    this.strips = this.lines.filter(([name]) => name[0] !== "a").map(([name, part]) => [name, this.build_strip(name, part)]);
    this.stream = new attn.Stream(this);
    this.formula = html("p", { class: "attn-answer" });
    this.factors = range(3).map((k) => {
      const button = html("button", { type: "button" });
      button.addEventListener("click", () => this.set(button.to));
      return button;
    });
    const steps = [["‹", "before"], ["›", "after"]].map(([sign, name], k) => {
      const button = attn.button(sign, () => this.move(2 * k - 1));
      button.setAttribute("aria-label", "Number " + name);
      return button;
    });
    this.words.classList.remove("visually-hidden"); // the arithmetic stands nowhere else
    const told = html("div", { class: "attn-told" }, html("div", { class: "attn-buttons" }, ...steps, this.formula,
      html("div", { class: "attn-buttons", role: "group", "aria-label": "Where it comes from" }, ...this.factors)), this.words);
    this.picture.append(this.stream.part, html("div", { class: "attn-blocks" }, ...this.groups.map(([, group]) => group), told, html("div", { class: "attn-sources" }, ...this.strips.map(([, strip]) => strip))));
    this.fit(this.stream.way);
    this.picture.addEventListener("keydown", (event) => this.key(event));
  }

  /* A button that shows a part, and sends the text as far. */
  opener(name, attributes, ...inside) {
    const button = attn.html("button", { type: "button", ...attributes }, ...inside);
    button.addEventListener("click", () => this.open(name));
    this.syncs.push(() => button.setAttribute("aria-pressed", this.values && (button.parentNode === this.stream.way ? this.parts[name].of === this.parts[this.shown_part].of : this.state.part === name)));
    return button;
  }

  open(name, more) { this.set({ part: name, stage: Math.max(this.state.stage, this.parts[name].stage), ...more }); }

  /* A line: its label and its numbers as colours, in four rows where there are 256, in a square where each character has weights. */
  build_strip(name, part) {
    const { html } = attn, square = name[0] === "a";
    const canvas = html("canvas", { "aria-hidden": "true" }), mark = html("span", { class: "attn-here" }), lit = html("span", { class: "attn-lit" }), row = html("span", { class: "attn-row" });
    const bar = html("div", { class: "attn-numbers", role: "slider", "aria-label": `${part.name}${part.head === undefined ? "" : ` of head ${part.head}`}, ${part.of}: the arrow keys choose a number`, "aria-valuemin": 0 }, canvas, lit, mark, ...(square ? [row] : []));
    Object.assign(part, { canvas, mark, lit_part: lit, row, bar });
    const choose = (event) => {
      const box = bar.getBoundingClientRect(), place = (at, size, n) => Math.max(0, Math.min(n - 1, Math.floor(at / size * n)));
      const x = place(event.clientX - box.left, box.width, canvas.width), y = place(event.clientY - box.top, box.height, canvas.height);
      if (square) this.set({ part: name, at: y, column: Math.min(x, y) });
      else this.set({ part: name, column: y * canvas.width + x, at: this.row_of(name) });
    };
    bar.addEventListener("pointerdown", choose);
    bar.addEventListener("pointermove", (event) => event.buttons && choose(event));
    return html("div", { class: square ? `attn-map-of-head attn-head-${part.head}` : "attn-strip" }, part.named = html("span", {}, part.label), bar);
  }

  /* Arrows walk along a line and from line to line. */
  key(event) {
    if (!event.target.matches(".attn-numbers")) return;
    const { key } = event, along = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[key], down = { ArrowUp: -1, ArrowDown: 1 }[key];
    if (!along && !down) return;
    event.preventDefault();
    if (along) return void this.move(along);
    const here = this.lines.findIndex(([name]) => name === this.drawn_part), [name, part] = this.lines[Math.max(0, Math.min(this.lines.length - 1, here + down))];
    Object.assign(this.state, { part: name });
    this.redraw(); // only what is shown takes the focus
    part.bar.focus();
  }

  move(by) {
    const { at, column } = this.state, last = this.values[this.drawn_part][at].length - 1;
    this.set({ column: Math.max(0, Math.min(last, Math.min(last, column) + by)) });
  }

  /* Every number that the model makes of a text. */
  compute(text) {
    if (this.computed?.text !== text) {
      const v = this.computed = { text, ids: [...text].map((letter) => attn.lm.alphabet.indexOf(letter)) };
      for (const [name, { value }] of Object.entries(this.parts)) v[name] = value(v);
    }
    return this.computed;
  }

  /* The character of which a line is shown: the chosen one, or whose key meets its query. */
  row_of(name) { return this.parts[this.drawn_part].head !== undefined && name[0] === "u" ? this.column : Math.min(this.state.at, this.state.text.length - 1); }

  /* The part that is open; where it is not shown yet, the characters. */
  get shown_part() { return this.parts[this.state.part].stage <= this.state.stage ? this.state.part : "x0"; }

  /* The first line in which two chosen characters differ, and by how much. */
  get first_difference() {
    const [i, j] = this.pair, apart = (name) => [...this.values[name][i]].map((x, c) => Math.abs(x - this.values[name][j][c]));
    const name = ["x0", "q0", "t0", "y0"].find((part) => Math.max(...apart(part)) > 1e-6), most = Math.max(...apart(name));
    return { name, most, column: apart(name).indexOf(most) };
  }

  draw() {
    const { text, stage } = this.state, { parts } = this, { number } = attn, at = Math.min(this.state.at, text.length - 1);
    for (const part of this.picture.children) part.classList.toggle("attn-empty", !text);
    if (!text) return "There is no text yet. Type a character, and the model guesses the next.";
    const v = this.values = this.compute(text), shown = (name) => parts[name].stage <= stage;
    const name = this.drawn_part = this.shown_part, row = v[name][at], j = this.column = Math.min(this.state.column, row.length - 1);
    this.length = Math.hypot(...row);
    this.line.show(text, at, name[0] === "a" ? row : [], stage < 5 ? v.ids.map(() => 0) : attn.losses({ ids: v.ids, logits: v.z }));
    const flat = this.lines.filter(([of]) => of[0] !== "a"), squares = this.lines.filter(([of]) => of[0] === "a");
    const part = parts[name], made = part.made(at, j, v), x = row[j], sources = made.lit.map(([of]) => of);
    const opened = { a: [], M: [`h${part.of.at(-1)}`, `g${part.of.at(-1)}`], t: ["l", "z", "r"] }[part.of[0]] ?? [];
    for (const [of, group] of this.groups) if (!(group.hidden = of !== part.of)) group.firstChild.append(this.stream.colours);
    for (const [of, strip] of this.strips) {
      const { label, named } = parts[of], letter = attn.letter(text[this.row_of(of)]);
      strip.hidden = ![name, ...opened, ...sources].includes(of);
      named.textContent = label + (part.head === undefined ? "" : ` “${letter}”`);
    }
    this.stream.show(text, at, part, shown, row);
    this.glide("lines", flat.flatMap(([of]) => [...v[of][this.row_of(of)]].map((x) => (shown(of) ? x : 0))), (now) => this.paint_lines(flat, now));
    this.glide("maps", squares.flatMap(([of]) => v[of].flatMap((row) => [...row].map((x) => (shown(of) ? x : 0)))), (now) => this.paint_maps(squares, now, text.length));

    for (const [of, other] of this.lines) {
      const { bar, mark, lit_part, canvas } = other, here = of === name, n = v[of][at].length, lit = made.lit.find(([from]) => from === of);
      const told = here ? `number ${j} of “${attn.letter(text[at])}”: ${number(x, 2)}` : shown(of) ? "not chosen" : "not shown yet";
      for (const [key, value] of Object.entries({ tabindex: here - 1, "aria-valuemax": n - 1, "aria-valuenow": here * j, "aria-valuetext": told })) bar.setAttribute(key, value);
      bar.classList.toggle("attn-unseen", !shown(of));
      const of_row = of[0] === "a" ? at : undefined;
      attn.frame_numbers(mark, here && [j, j + 1], canvas, of_row);
      attn.frame_numbers(lit_part, lit?.slice(1), canvas, of_row);
      if (of[0] === "a") for (const [side, rows] of [["top", at], ["bottom", text.length - 1 - at]]) other.row.style[side] = `${100 * rows / text.length}%`;
    }
    return this.show_sum(name, at, j, x, made);
  }

  paint_lines(lines, now) {
    let k = 0;
    const stream = new Map();
    for (const [name, { canvas, stage }] of lines) {
      const n = this.values[name][0].length, colours = [...now.slice(k, k + n)].map(this.stream.colour(name));
      attn.paint_strip(canvas, n, stage <= this.state.stage ? colours : []);
      stream.set(name, colours);
      k += n;
    }
    this.stream.paint(stream);
  }

  paint_maps(maps, now, n) {
    let k = 0;
    for (const [, { canvas, stage }] of maps) {
      canvas.width = canvas.height = n;
      const colours = attn.range(n * n).map((c) => (c % n > Math.floor(c / n) ? null : attn.colour("viridis", now[k++])));
      attn.pixels(canvas, stage <= this.state.stage ? colours : []);
    }
  }

  /* How the chosen number comes about: in a line, in words, and with the numbers to which one can go on. */
  show_sum(name, at, j, x, made) {
    const part = this.parts[name], { number, factor } = attn, letter = `“${attn.letter(this.state.text[at])}”`;
    const of = name === "r" || name === "z" ? `for “${attn.letter(attn.lm.alphabet[j])}”` : /[as]/.test(name[0]) ? `on “${attn.letter(this.state.text[j])}” at ${j}` : `number ${j}`;
    this.formula.textContent = `${part.name} of ${letter}, ${of}: ${number(x, /[ra]/.test(name[0]) ? 3 : 2)}`;
    const go = (to, text) => ({ to: { at, ...to }, text });
    let { says } = made, chips;
    if (made.left) {
      const sum = attn.sum_in_words(made), [first] = sum.order, other = made.other?.(first);
      says = sum.says;
      chips = sum.order.map((k, n) => go(made.from(k), sum.written[n]));
      if (other) chips = [chips[0], go(other, `${factor(made.right[first])}: ${this.parts[other.part].name}`)];
    } else chips = made.needs.map(([from, c]) => go({ part: from, column: c }, `${this.parts[from].name}: ${number(this.values[from][at][c], 2)}`));
    this.factors.forEach((button, k) => {
      button.hidden = !chips[k];
      if (chips[k]) [button.to, button.textContent] = [chips[k].to, chips[k].text];
    });
    return `${part.of[0].toUpperCase()}${part.of.slice(1)}, ${letter} at ${at}: ${says}.` + (/[xypf]/.test(name) ? ` The whole line has the length ${number(this.length, 2)}.` : "");
  }
});
