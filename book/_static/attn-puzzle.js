/* Puzzles: set small matrices until every token writes what it must, in hidden texts too.
   Needs attn-puzzles.js, attn-puzzle-drawings.js: the puzzles and their drawings. */
customElements.define("attn-puzzle", class extends attn.Figure {
  static title = "Puzzles of attention";
  static start = { puzzle: "mean", word: 0, numbers: "" }; // numbers as text, "" as the puzzle opens

  build() {
    const { html, puzzles, button } = attn, row = (...parts) => html("div", { class: "attn-buttons" }, ...parts);
    this.all = Object.keys(puzzles);
    this.fits.puzzle = (puzzle) => this.all.includes(puzzle);
    this.fits.numbers = (text) => /^(-?\d( -?\d)*)?$/.test(text);
    this.presets("Puzzle", Object.fromEntries(this.all.map((puzzle) => [puzzles[puzzle].name, { puzzle }])));
    this.slider("word", "Text", [0, 2, 1], () => this.text);
    [this.range, this.chips] = [this.controls.querySelector("input"), [...this.controls.querySelectorAll("button")]];

    this.ask = html("p", { tabindex: -1 });
    this.next = button("Next puzzle", () => {
      this.set({ puzzle: this.all.find((puzzle) => puzzle !== this.state.puzzle && !this.kept(puzzle).solved) ?? this.all[0] });
      this.ask.focus(); // the button that had the focus is gone
    });
    this.why = html("select", { "aria-label": "It cannot be done, because" }, ...Object.entries({
      "": "choose", sum: "only means can be written", zero: "no weight is ever exactly 0", future: "a mask hides what is needed",
      own: "in one head a key adds the same beside any neighbour", order: "attention does not know the order",
    }).map(([value, text]) => html("option", { value }, text)));
    this.claims = html("details", {}, html("summary", {}, "It cannot be done …"), html("div", { class: "attn-commit" }, "because", this.why, button("Claim it", () => this.claim())));
    this.task.part.replaceChildren(this.ask, row(this.next, button("Hint", () => this.help()), this.claims), this.task.verdict);
    this.task.part.hidden = false;

    this.guest = row("Your own numbers are kept.", button("Back to mine", () => this.set({ puzzle: this.state.puzzle })),
      button("Keep these", () => {
        this.keep({ numbers: this.state.numbers });
        this.set({});
      }));
    [this.less, this.more] = [-1, 1].map((d) => button(d < 0 ? "−" : "+", () => this.edit(this.held, this.flat[this.held] + d)));
    this.steps = row(this.less, this.more, "or drag, ↑ ↓, type");
    [this.setting, this.drawn] = [html("div", { class: "attn-setting" }), html("div")];
    this.picture.append(this.setting, this.drawn);
    Object.assign(this.state, this.open(this.state));
  }

  /* What the reader's machine keeps of a puzzle, with what is added now. */
  kept(puzzle = this.state.puzzle, change = null) {
    const name = "attn-puzzle-" + puzzle;
    try {
      const found = { ...JSON.parse(localStorage.getItem(name)), ...change };
      if (change) localStorage.setItem(name, JSON.stringify(found));
      return found;
    } catch {
      return {}; // it keeps nothing; one can play all the same
    }
  }

  keep(change) { this.kept(this.state.puzzle, change); }

  /* Whether other numbers are shown than those that the reader left here. */
  get foreign() { return Boolean(this.kept().numbers) && this.kept().numbers !== this.state.numbers; }

  set(change) { super.set(change.puzzle ? this.open(change) : change); }

  /* A puzzle that comes without numbers opens with the reader's own. */
  open({ puzzle, numbers, word = 0 }) {
    Object.assign(this, { given: 0, wrong: 0, claimed: null, failing: [], tell: "", touched: false });
    return { puzzle, word, numbers: numbers || (this.kept(puzzle).numbers ?? "") };
  }

  again() {
    this.open(this.state);
    this.set({ word: 0, numbers: "" });
  }

  get puzzle() { return attn.puzzles[this.state.puzzle]; }
  get texts() { return [...this.puzzle.words, ...this.failing]; }
  get text() { return this.texts[this.state.word] ?? this.texts[0]; }
  get hidden() { return this.puzzle.hidden.split(" ").filter((text) => !this.failing.includes(text)).slice(0, 8); }
  get opening() { return this.puzzle.boards.flatMap(({ start }) => start.flat()); }
  get limits() { return this.puzzle.boards.flatMap(({ start, limits = [-9, 9] }) => start.flat().map(() => limits)); }

  /* All numbers of the boards; what does not fit the puzzle is as it opens. */
  get flat() {
    const { limits } = this, given = this.state.numbers.split(" ").map(Number);
    return given.length === limits.length && given.every((x, k) => limits[k][0] <= x && x <= limits[k][1]) ? given : this.opening;
  }

  tokens(text) { return [...text.matchAll(/([a-d])(\d?)/g)].map(([, letter, number]) => ({ letter, number: +number })); }

  /* The weights, outputs and queries of each layer. */
  run(text) {
    const { flat, puzzle: { boards, layers } } = this, set = boards.map(({ start }) => start.map((row) => row.map(() => flat.shift())));
    const sharp = boards.at(-1).limits?.[0] ? set.at(-1)[0][0] : 1, maps = [], outs = [], asks = [];
    for (const layer of layers) {
      const { Q, K, V, mask = Q.map(() => K.map(() => true)) } = layer(this.tokens(text), set, outs.at(-1));
      asks.push(Q);
      maps.push(attn.masked_softmax(attn.dot_score(Q, K).map((row) => row.map((s) => sharp * s)), mask));
      outs.push(attn.matmul(maps.at(-1), V));
    }
    return [maps, outs, asks];
  }

  /* Whether each token writes what it must; null where nothing is asked. */
  judge(text) {
    const x = this.tokens(text), out = this.run(text)[1].at(-1), near = x[0].number ? 0.15 : 0.03;
    return this.puzzle.wants(x).map((row, i) => row && row.every((y, c) => Math.abs(y - out[i][c]) <= near));
  }

  edit(k, x) {
    const [least, most] = this.limits[k], flat = this.flat.with(k, Math.max(least, Math.min(most, x))).join(" "), numbers = flat === this.opening.join(" ") ? "" : flat;
    if (numbers === this.state.numbers) return;
    if (!this.foreign) this.keep({ numbers });
    this.touched = true;
    this.set({ numbers });
  }

  help() {
    const { hints } = this.puzzle, fails = this.hidden.find((text) => this.judge(text).includes(false));
    this.given = this.given % (hints.length + Boolean(fails)) + 1;
    const hint = hints[this.given - 1];
    this.tell = hint ? `Hint ${this.given} of ${hints.length}: ${hint}` : `${fails} was hidden, and fails.`;
    if (!hint) this.failing = [fails];
    this.set(hint ? {} : { word: 3 });
  }

  claim() {
    const reason = this.why.value;
    if (!reason || this.claimed === this.state.numbers) this.tell = reason ? "Change a number before you claim again." : "Choose the reason, too.";
    else if (reason === this.puzzle.reason) this.keep({ solved: true });
    else {
      this.claimed = this.state.numbers;
      this.tell = `That does not forbid it here. Wrong claims so far: ${this.wrong += 1}.`;
    }
    this.set({});
  }

  /* The page of another puzzle. */
  lay() {
    const { html, table } = attn, { boards, picture, layers } = this.puzzle;
    Object.assign(this, { held: 0, knobs: [] });
    this.why.value = "";
    this.claims.open = false;
    this.setting.replaceChildren(...boards.map((board) => {
      const { name, says, rows, columns, start } = board;
      const made = table(html("span", {}, html("b", {}, ...attn.typeset(name)), ": " + says), [...(rows ? [""] : []), ...columns],
        start.map((row, i) => [...(rows ? [html("th", { scope: "row" }, rows[i])] : []), ...row.map((_, j) => html("td", {}, this.knob(board, i, j)))]));
      made.className = "attn-board";
      for (const head of made.querySelectorAll("th")) if (/^[a-d]$/.test(head.textContent)) head.className = "attn-is-" + head.textContent;
      return made;
    }), this.steps, this.guest);
    this.steps.hidden = boards[0].press;
    this.maps = attn.puzzle_drawings.maps(this.tokens(this.text).length, layers.length);
    this.drawn.replaceChildren(this.maps.part);
    this.side = picture && attn.puzzle_drawings[picture]();
    if (picture) this[picture === "clock" ? "setting" : "drawn"].append(this.side.part);
  }

  /* A number that is dragged, typed or nudged, or a cell that is pressed. */
  knob({ name, rows, columns, press, limits = [-9, 9] }, i, j) {
    const k = this.knobs.length, part = press ? attn.button("", () => this.edit(k, 1 - this.flat[k]))
      : attn.html("div", { role: "spinbutton", "aria-valuemin": limits[0], "aria-valuemax": limits[1] });
    let from = null, minus = false; // a sign may come before its digit
    part.className = press ? "attn-cell" : "attn-knob";
    part.ariaLabel = [name, ...(rows ? [rows[i]] : []), columns[j]].join(", ");
    this.knobs.push(part);
    part.addEventListener("focus", () => this.hold(k));
    part.addEventListener("keydown", (event) => {
      const { key } = event, now = this.flat[k], way = { ArrowLeft: -1, ArrowRight: 1, ...(press && { ArrowUp: -4, ArrowDown: 4 }) }[key];
      const x = /^\d$/.test(key) ? (minus ? -key : +key) : { ArrowUp: now + 1, ArrowDown: now - 1, "+": now + 1, "-": -now }[key];
      minus = key === "-";
      if (!way && (press || x === undefined)) return;
      event.preventDefault();
      if (way) this.knobs[k + way]?.focus();
      else this.edit(k, x);
    });
    if (!press) part.addEventListener("pointerdown", (event) => {
      from = [this.flat[k], event.clientX - event.clientY];
      part.setPointerCapture(event.pointerId);
      part.focus({ preventScroll: true });
    });
    part.addEventListener("pointermove", ({ clientX, clientY }) => from && this.edit(k, from[0] + Math.round((clientX - clientY - from[1]) / 12)));
    part.addEventListener("lostpointercapture", () => { from = null; });
    return part;
  }

  hold(k) {
    this.held = k;
    this.knobs.forEach((part, l) => {
      part.tabIndex = l === k ? 0 : -1;
      part.classList.toggle("attn-chosen", l === k);
    });
    this.less.ariaLabel = "Lower " + this.knobs[k].ariaLabel;
    this.more.ariaLabel = "Raise " + this.knobs[k].ariaLabel;
  }

  draw() {
    const { puzzle, all, state: { puzzle: key }, text, texts, hidden, flat } = this, many = (list, kind = true) => list.filter((yes) => yes === kind).length, passes = (list) => !list.includes(false);
    if (this.laid !== key) {
      this.laid = key;
      this.lay();
    }
    const x = this.tokens(text), right = this.judge(text), judged = hidden.map((other) => this.judge(other));
    const passed = many(judged.map(passes)), solved = passed === hidden.length && texts.every((other) => passes(this.judge(other)));
    if (solved && this.touched) this.keep({ solved });
    const known = all.map((other) => Boolean(this.kept(other).solved)), done = Boolean(solved || (puzzle.reason && this.kept().solved));

    const { press } = puzzle.boards[0];
    flat.forEach((y, k) => {
      const part = this.knobs[k];
      part.textContent = press ? (y ? "sees" : "") : attn.number(y, 0);
      part[press ? "ariaPressed" : "ariaValueNow"] = press ? y > 0 : y;
      part.style = `--tint: ${5 * Math.abs(y)}%; --hue: var(--attn-${y < 0 ? "alarm" : "accent"})`;
    });
    this.hold(this.held);
    this.guest.hidden = !this.foreign;
    this.range.max = texts.length - 1;
    this.chips.forEach((chip, k) => chip.classList.toggle("attn-right", known[k]));
    this.maps.show(x, puzzle.wants(x), right, judged.map((list) => many(list) / (many(list) + many(list, false))));
    const now = this.run(text);
    this.glide("all", now.flat(4), (numbers) => {
      let k = 0;
      const [weights, outs, [asks]] = now.map((part) => part.map((M) => M.map((row) => row.map(() => numbers[k++]))));
      this.maps.paint(weights, outs);
      this.side?.paint(asks);
    });

    this.ask.replaceChildren(attn.html("strong", {}, `Puzzle ${all.indexOf(key) + 1} of ${all.length}. `), puzzle.ask);
    this.next.hidden = !done;
    this.claims.hidden = done;
    const verdict = done ? (puzzle.reason ? "Right, it cannot be done. " : "Solved. ") + puzzle.learnt : this.tell || (passes(right) ? "This text is right. Try the others." : "");
    if (this.task.verdict.textContent !== verdict) this.task.say(verdict);
    this.task.part.classList.toggle("attn-done", done);
    return this.maps.part.ariaLabel = `${puzzle.name}: ${many(right)} of ${many(right) + many(right, false)} tokens of ${text} are right, and ${passed} of ${hidden.length} hidden texts. `
      + `Solved so far: ${many(known)} of ${all.length} puzzles.`;
  }
});
