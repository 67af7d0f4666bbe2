/* Chapter 9: random letters twice, read by a model of one block and one of two. Which of them copies, and with which head?
   Needs attn-transformer.js, attn-text.js, attn-induction-data.js: the two models and their weights. */
customElements.define("attn-induction", class extends attn.Figure {
  static title = "One block against two, on a text that repeats";
  static start = { shown: "1 0.0", off: "none", period: 16, text: 1, at: 20 };
  static heads = ["1 0.0", "1 0.1", "2 0.0", "2 0.1", "2 1.0", "2 1.1"];
  /* What was shown of another text is forgotten: halves of other letters and lengths are not comparable. */
  static one_text({ state: { period, text } }, met) {
    const here = `${period} ${text}`;
    if (met.text !== here) met.clear();
    met.text = here;
  }
  static tasks = [{
    ask: "The letters are random, but the second half repeats the first. Which model can guess it? Look at a head of each, on one text with halves of 16 letters or more.",
    guesses: { one: "one block is enough", two: "only two blocks", none: "neither" },
    right: (figure, met) => (met.get("1") < 1 ? "one" : met.get("2") < 1 ? "two" : "none"),
    done: (figure, met) => {
      const { state: { shown, off, period }, lost } = figure;
      this.one_text(figure, met);
      if (off === "none" && period >= 16) met.set(shown[0], lost[1]);
      return met.size === 2;
    },
    seen: (figure, met) => `In the second half one block loses ${attn.number(met.get("1"), 2)} nats a letter, two blocks ${attn.number(met.get("2"), 2)}. `
      + `Blind guessing would lose ${attn.number(Math.log(26), 2)}.`,
  }, {
    ask: "One head of the model of two blocks looks most, from each letter of the second half, at the letter that followed the same place of the first half: the brightest diagonal. Which head? Show all four, on one text.",
    guesses: { "2 0.0": "head 0.0", "2 0.1": "head 0.1", "2 1.0": "head 1.0", "2 1.1": "head 1.1" },
    right: (figure, met) => [...met].reduce((a, b) => (b[1] > a[1] ? b : a))[0],
    done: (figure, met) => {
      const { state: { shown, off }, induction } = figure;
      this.one_text(figure, met);
      if (shown[0] === "2" && off === "none") met.set(shown, induction);
      return met.size === 4;
    },
    seen: (figure, met) => "Weight on what followed in the first half: " + [...met].sort().map(([head, weight]) => `head ${head.slice(2)}: ${attn.number(weight, 2)}`).join(", ") + ".",
  }, {
    ask: "Show head 1.1 and switch off the other heads, one at a time. Without which one does its diagonal fade?",
    opens: { shown: "2 1.1", off: "none" },
    shows: () => ({ off: "0.0" }),
    guesses: { "0.0": "without 0.0", "0.1": "without 0.1", "1.0": "without 1.0", none: "without none of them" },
    right: (figure, met) => {
      const [name, least] = [...met].reduce((a, b) => (b[1] < a[1] ? b : a));
      return least < 0.5 ? name : "none";
    },
    done: (figure, met) => {
      const { state: { shown, off }, induction } = figure;
      this.one_text(figure, met);
      if (shown === "2 1.1" && ["none", "0.0", "0.1", "1.0"].includes(off)) met.set(off, induction);
      return ["0.0", "0.1", "1.0"].every((name) => met.has(name));
    },
    seen: (figure, met) => [...met].sort(([a], [b]) => (b === "none") - (a === "none") || (a < b ? -1 : 1)).map(([off, weight]) => `${off === "none" ? "With all heads" : `Without ${off}`} the diagonal has weight ${attn.number(weight, 2)}.`).join(" ")
      + " Head 0.0 looks one letter back. Head 1.1 looks for a key that says “before me stood your letter”, and only a head of the block below can have written that.",
  }];

  build() {
    const { html, svg } = attn, { heads } = this.constructor;
    this.models = { 1: new attn.LanguageModel(attn.induction[1]), 2: new attn.LanguageModel(attn.induction[2]) };
    this.fits.text = (text) => Number.isInteger(text) && text > 0;
    this.fits.shown = (shown) => heads.includes(shown);
    // All heads' maps, small: one is pressed, and stands below.
    this.minis = heads.map((head) => {
      const map = html("canvas", { "aria-hidden": "true" }), button = attn.button("", () => this.set({ shown: head }));
      button.append(map, head.slice(2));
      return { head, map, button };
    });
    for (const [blocks, name] of [["1", "One block"], ["2", "Two blocks"]]) {
      const mine = this.minis.filter(({ head }) => head[0] === blocks);
      this.control(html("div", { class: "attn-buttons attn-minis", role: "group", "aria-label": name }, name, ...mine.map(({ button }) => button)), () =>
        mine.forEach(({ head, button }) => button.setAttribute("aria-pressed", head === this.state.shown)));
    }
    this.choice("off", "Head switched off", { none: "none", "0.0": "0.0", "0.1": "0.1", "1.0": "1.0", "1.1": "1.1" });
    const options = [...this.controls.lastChild.querySelectorAll("option")]; // the model of one block has no head 1.0
    this.syncs.push(() => options.forEach((option) => { option.disabled = +option.value[0] >= +this.state.shown[0]; }));
    this.slider("period", "Letters in each half", [8, 32, 1]);
    this.button("Draw new letters", ({ text }) => ({ text: text + 1 }));

    this.map = html("canvas", { class: "attn-square", role: "img" });
    for (const kind of ["pointermove", "pointerdown"])
      this.map.addEventListener(kind, ({ offsetY }) => this.line.choose(Math.floor(offsetY / this.map.clientHeight * 2 * this.state.period)));
    this.frame_of_row = html("div", { class: "attn-row" });
    this.line = new attn.TextLine(this, 64);
    this.arcs = svg("svg", { "aria-hidden": "true" });
    const line = html("div", { class: "attn-looks" }, this.line.line, this.arcs);
    this.fit(line);
    this.key = html("p");
    this.chart = svg("svg", { viewBox: "0 0 400 150" });
    this.curve = svg("polyline", { class: "attn-curve" });
    this.other = { curve: svg("polyline", { class: "attn-part" }), name: svg("text", { y: 14, x: 396, "text-anchor": "end" }) }; // the other model, once it was shown
    this.been = new Map(); // letters and model -> losses
    this.half = svg("path", { class: "attn-axis", "stroke-dasharray": "4 3" });
    this.here = svg("path", { class: "attn-frame" }); // the chosen letter
    this.chart.append(svg("path", { class: "attn-axis", d: "M34 8V118H396" }), svg("path", { class: "attn-reach", d: `M34 ${this.y(Math.log(26))}H396` }), this.here, this.half, this.other.curve, this.other.name, this.curve,
      ...["0", Math.log(26).toFixed(2), "6", "9"].map((loss) => svg("text", { x: 28, y: this.y(+loss) + 4, "text-anchor": "end" }, loss)),
      svg("text", { x: 215, y: 140, "text-anchor": "middle" }, "loss of each letter (nats); red: a blind guess; dashed: half"));
    this.measures = attn.range(4).map(() => html("td"));
    const named = ["loss in the first half", "loss in the second half, but its first", "second half: weight one letter back", "second half: on what followed in the first"];
    const measures = attn.table("On average", ["", ""], named.map((name, i) => [html("th", { scope: "row" }, name), this.measures[i]]));
    this.picture.append(html("div", {}, this.name = html("p"), html("div", { class: "attn-map" }, this.map, this.frame_of_row)),
      html("div", {}, line, this.key, this.chart, measures));
  }

  /* With other lengths a letter of the second half is chosen again. */
  set(change) { super.set("period" in change && !("at" in change) ? { ...change, at: Math.round(1.25 * change.period) } : change); }

  /* From the chosen letter to those at which it looks, through the room between the halves. */
  draw_arcs(at, row) {
    const { period, shown } = this.state, from = at - period + 1; // what followed in the first half
    const looks = [[at, row, ""], ...(shown[0] === "2" && shown[2] === "1" && from >= 0 && from < period ? [[from, this.weights("2 0.0")[from], "attn-tone attn-back"]] : [])];
    const place = ({ offsetLeft, offsetWidth, offsetTop, offsetHeight }, low) => [offsetLeft + offsetWidth / 2, offsetTop + (low ? offsetHeight : 0)];
    this.arcs.replaceChildren(...looks.flatMap(([at, row, tone]) => [...row].flatMap((weight, j) => {
      if (weight < 0.02) return [];
      const [x, y] = place(this.line.letters[at], at < period), [to, end] = place(this.line.letters[j], j < period), bend = y === end ? (at < period ? 24 : -24) : 0;
      return [attn.svg("path", { class: tone, d: `M${x} ${y}Q${(x + to) / 2} ${(y + end) / 2 + bend} ${to} ${end}`, "stroke-width": 6 * weight, opacity: Math.min(1, 0.15 + weight) })];
    })));
  }

  y(loss) { return 118 - 12 * Math.min(9, loss); }

  /* The letters, twice. */
  get ids() {
    const { period, text } = this.state, next = attn.random(7919 * text), half = attn.range(period).map(() => Math.floor(26 * next()));
    return [...half, ...half];
  }

  /* The head of this name that is off in a model; the model of one block has no other. */
  off(blocks) { return +this.state.off[0] >= +blocks ? "none" : this.state.off; }

  /* What both models read, kept as long as letters and heads are the same, and the small maps of it. */
  read() {
    const { period, text, off } = this.state, { ids } = this, set = [period, text, off].join();
    if (this.set_read === set) return;
    this.set_read = set;
    this.readings = Object.fromEntries(Object.entries(this.models).map(([blocks, model]) => [blocks, model.read(ids, model.reading({ off: [this.off(blocks)] }))]));
    for (const { head, map } of this.minis) {
      const weights = this.weights(head);
      map.width = map.height = ids.length;
      map.classList.toggle("attn-untouched", this.off(head[0]) === head.slice(2));
      attn.pixels(map, weights.flatMap((row) => ids.map((_, j) => (j < row.length ? attn.colour("viridis", row[j]) : null))));
    }
  }

  weights(head) { return this.readings[head[0]].layers[+head[2]].weights.map((heads) => [...heads[+head[4]]]); }

  draw() {
    const { shown, period } = this.state, { number, sum, range } = attn, { ids } = this, at = Math.min(this.state.at, 2 * period - 1);
    const [blocks, name] = shown.split(" "), off = this.off(blocks), mean = (xs) => sum(xs) / xs.length;
    this.read();
    const weights = this.weights(shown), lost = attn.losses(this.readings[blocks]);
    const second = range(period).map((i) => period + i);
    this.lost = [mean(lost.slice(0, period - 1)), mean(lost.slice(period))]; // the first letter of the second half nobody can know
    this.induction = mean(second.map((i) => weights[i][i - period + 1]));
    const values = [...this.lost, mean(second.map((i) => weights[i][i - 1])), this.induction];
    values.forEach((x, i) => { this.measures[i].textContent = number(x, 2); });

    this.map.width = this.map.height = ids.length;
    this.glide("weights", weights.flatMap((row) => ids.map((_, j) => row[j] ?? -1)), // no key stands after its query
      (now) => attn.pixels(this.map, now.map((weight) => (weight < 0 ? null : attn.colour("viridis", weight)))));
    const letters = ids.map((id) => "abcdefghijklmnopqrstuvwxyz"[id]).join(""), row = weights[at], top = row.indexOf(Math.max(...row));
    this.line.show(letters, at, row, lost);
    Object.assign(this.line.line.style, { maxWidth: `${1.2 * period + 0.1}ch`, fontSize: `${Math.min(1, 25 / period)}rem` }); // a half in each row
    this.line.letters.forEach((part, i) => part.classList.toggle("attn-earlier", i < at && letters[i] === letters[at]));
    this.draw_arcs(at, row);
    for (const [side, i] of [["top", at], ["bottom", ids.length - 1 - at]]) this.frame_of_row.style[side] = `${100 * i / ids.length}%`;
    this.key.textContent = `From “${letters[at]}” at position ${at} this head looks most at “${letters[top]}” at ${top}, ${number(row[top], 2)}. Dashed: an earlier “${letters[at]}”. Red foot: the loss.${blocks === "2" && name[0] === "1" ? " Green: head 0.0 from there." : ""}`;
    const x = (i) => 34 + 362 * i / (ids.length - 1);
    this.half.setAttribute("d", `M${x(period)} 8V118`);
    this.here.setAttribute("d", at ? `M${x(at)} 112v12` : "");
    const points = (losses) => losses.map((loss, i) => `${x(i + 1).toFixed(1)},${this.y(loss).toFixed(1)}`).join(" ");
    this.glide("losses", [...lost], (now) => this.curve.setAttribute("points", points(now)));
    if (off === "none") this.been.set(letters + blocks, [...lost]);
    const other = this.been.get(letters + (3 - blocks));
    this.other.curve.setAttribute("points", other ? points(other) : "");
    this.other.name.textContent = other ? `grey: ${blocks === "1" ? "two blocks" : "one block"}` : "";
    const model_name = blocks === "1" ? "One block" : "Two blocks", without = off === "none" ? "" : ` without head ${off}`;
    this.name.textContent = `${model_name}, head ${name}: rows are queries, columns keys`;
    const sentence = `${model_name}${without}: the first half loses ${number(this.lost[0], 2)} nats a letter, the second ${number(this.lost[1], 2)}. `
      + `In the second half head ${name} puts ${number(this.induction, 2)} on the letter that followed in the first half, and ${number(values[2], 2)} on the letter before.`;
    this.map.setAttribute("aria-label", sentence);
    return sentence;
  }
});
