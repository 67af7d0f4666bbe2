/* Chapter 9: the trained language model reads what one types, shows where its heads look, and writes on.
   Needs attn-transformer.js, attn-text.js, attn-lm-data.js: the model and its weights. */

/* Of all pieces of nine characters the one that stands there most often, and how often. */
attn.most_common = (text) => {
  const times = new Map();
  for (const i of attn.range(text.length - 8)) times.set(text.slice(i, i + 9), (times.get(text.slice(i, i + 9)) ?? 0) + 1);
  return [...times].reduce((a, b) => (b[1] > a[1] ? b : a));
};

customElements.define("attn-lm", class extends attn.Figure {
  static title = "A language model at work";
  static start = {
    text: "The query is compared with each key, and the weights sum to 1.", at: 17, off: "",
    causal: true, positions: true, temperature: 0.7, k: 10,
  };
  static texts = {
    "like its book": this.start.text,
    "held out": "So the words set how strong each wave is and where it peaks.",
    "another subject": "The dog sleeps in the garden, and nobody wakes it.",
    "a beginning": "Attention",
  };
  static most = 128; // characters: twice as many as it was trained on
  static tasks = [{
    ask: "The model keeps the keys and values of what it has read. Type one more letter at the end. Of how many characters must it compute them now?",
    guesses: { all: "of all", half: "of some", one: "of that letter alone" },
    right: ({ state: { text }, fresh }) => (fresh === 1 ? "one" : fresh === text.length ? "all" : "half"),
    done: ({ state: { text } }, met) => {
      if (!met.has("text")) met.set("text", text);
      const before = met.get("text");
      if (text !== before && !(text.startsWith(before) && text.length === before.length + 1)) met.set("text", text); // another text
      return text !== met.get("text");
    },
    seen: ({ state: { text, causal }, fresh }) => `Of ${fresh}${fresh < text.length ? " (underlined)" : ""}, and of ${text.length - fresh} they were kept. `
      + (causal ? "No earlier character can see the new one, so nothing of theirs has changed." : "Without the mask every character sees the new one, so all must be computed anew."),
  }, {
    opens: { causal: true, positions: true, off: "" },
    ask: "Take away the causal mask. Now each character sees the one that it has to guess. What will the loss of the text do?",
    guesses: { falls: "fall, nearly to 0", stays: "stay", rises: "rise" },
    right: (figure, met) => {
      const [whole, lifted] = met.get(figure.state.text);
      return lifted > whole + 0.05 ? "rises" : lifted < whole - 0.05 ? "falls" : "stays";
    },
    done: ({ state, whole, lost, rise }, met) => {
      if (!state.causal && state.positions && !state.off && state.text.length > 20) met.set(state.text, [whole, lost, rise]);
      return met.has(state.text);
    },
    seen: ({ state: { text } }, met) => {
      const [whole, lifted, rise] = met.get(text);
      return `With the mask ${attn.number(whole, 2)} nats a character, without it ${attn.number(lifted, 2)}: more at ${rise.filter((x) => x > 0).length} of ${rise.length} characters. `
        + "The answer stood there, but nothing in training taught these weights to look to the right.";
    },
  }, {
    ask: "Take away one thing at a time: the heads of block 0, the heads of block 1, the positions. Which does the model miss most?",
    opens: { causal: true, positions: true, off: "" },
    guesses: { "block 0 off": "heads of block 0", "block 1 off": "heads of block 1", positions: "positions" },
    right: (figure, met) => [...met].reduce((a, b) => (b[1] > a[1] ? b : a))[0],
    done: ({ state, lost, constructor: { sets } }, met) => {
      const name = Object.keys(sets).find((set) => sets[set] === state.off);
      if (state.causal && state.positions && state.off && name) met.set(name, lost);
      if (state.causal && !state.positions && !state.off) met.set("positions", lost);
      return met.size === 3;
    },
    seen: ({ whole }, met) => `Whole, the model loses ${attn.number(whole, 2)} nats a character; without the heads of block 0 ${attn.number(met.get("block 0 off"), 2)}, `
      + `without those of block 1 ${attn.number(met.get("block 1 off"), 2)}, without positions ${attn.number(met.get("positions"), 2)}.`,
  }, {
    ask: "At temperature 0 the model always takes the likeliest character. Type a beginning of your own, or choose “a beginning”: will what it then writes on go round in circles?",
    opens: { causal: true, positions: true, off: "", temperature: 0 },
    guesses: { new: "no, each phrase is new", round: "yes, words come again" },
    right: ({ state: { text } }) => (attn.most_common(text)[1] > 1 ? "round" : "new"),
    done: ({ state: { text }, written }) => written === text && text.length >= 64,
    seen: ({ state: { text } }) => {
      const [piece, times] = attn.most_common(text);
      return times < 2 ? "No nine characters of it stand there twice." : `“${piece.trim()}” stands ${times} times in it. `
        + "The likeliest continuation of a common phrase is a common phrase; a temperature above 0 breaks the circle.";
    },
  }];
  static sets = { "all on": "", "block 0 off": "0.0 0.1 0.2 0.3", "block 1 off": "1.0 1.1 1.2 1.3" };

  build() {
    const { most, texts, sets } = this.constructor, { html, range } = attn, known = attn.lm.alphabet;
    this.model = new attn.LanguageModel(attn.lm);
    this.model_whole = this.model.reading();
    this.names = range(this.model.n_layers).flatMap((layer) => range(this.model.n_heads).map((h) => `${layer}.${h}`));
    this.fits.off = (off) => off.split(" ").every((name) => !name || this.names.includes(name));
    attn.text_box(this, known, most, 1);
    this.presets("Texts", Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, { text, at: text.length - 1 }])));
    this.presets("Heads", Object.fromEntries(Object.entries(sets).map(([name, off]) => [name, { off }])));
    this.check("causal", "causal mask");
    this.check("positions", "positions");
    this.slider("temperature", "Temperature", [0, 1.5, 0.1], (x) => x.toFixed(1));
    this.slider("k", "Likeliest kept (top-k)", [1, known.length, 1]);
    this.player("Write on", 60, () => this.write());

    this.line = new attn.TextLine(this, most);
    this.key = html("p");
    this.guess = html("p", { class: "attn-answer" });
    this.cached = html("p");
    this.losses = range(3).map(() => html("td", { class: "attn-bar" }));
    const named = ["this text, as set", "the whole model", "it, on held-out text"];
    const losses = attn.table(`Loss, nats a character; full: a blind guess, ${attn.number(Math.log(known.length), 2)}`, ["", ""], named.map((name, i) => [html("th", { scope: "row" }, name), this.losses[i]]));
    this.next = range(4).map(() => [html("th", { scope: "row" }), html("td", { class: "attn-bar" })]);
    const next = attn.table("What comes next?", ["character", "probability"], this.next);
    this.nextName = next.caption;
    for (const table of [next, losses]) table.tHead.remove();
    // Characters stand in columns: above each what it cost, below it what every head gives it. Longer texts scroll.
    this.rows = this.names.map((name) => this.row(name));
    this.columns = html("div", {}, this.line.line, ...this.rows.map(({ strip }) => strip));
    this.reads = html("div", { class: "attn-reads" }, html("div", {}, ...this.rows.map(({ label }) => label)), this.columns, html("div", {}, html("span", {}, "looks most"), ...this.rows.map(({ most }) => most)));
    this.picture.append(html("div", {}, this.key, this.reads), next, html("div", {}, losses, this.guess, this.cached));
  }

  /* A head: on or off, its weights as a strip, and at which character it looks most. */
  row(name) {
    const { html } = attn, on = html("input", { type: "checkbox", "aria-label": `block ${name[0]}, head ${name[2]} on` });
    on.addEventListener("change", () => this.set({ off: this.names.filter((other) => (other === name ? !on.checked : this.off.has(other))).join(" ") }));
    this.syncs.push(() => { on.checked = !this.off.has(name); });
    const strip = html("canvas", { height: 1, "aria-hidden": "true" });
    strip.addEventListener("pointerdown", ({ offsetX }) => this.line.choose(Math.floor(offsetX / strip.clientWidth * strip.width)));
    return { name, strip, most: html("span"), label: html("label", { class: "attn-check" }, on, name) };
  }

  get off() { return new Set(this.state.off.split(" ")); }

  encode(text) { return [...text].map((letter) => attn.lm.alphabet.indexOf(letter)); }

  /* The text read by the model as it is set; what was read before is kept, also for the setting before this one. */
  read(text) {
    const { off, causal, positions } = this.state, { reading, before } = this, set = [off, causal, positions].join();
    if (reading?.set !== set) {
      const goes_on = reading?.causal === causal && reading.positions === positions;
      const next = before?.set === set ? before : goes_on ? this.model.switched([...this.off], reading) : this.model.reading({ off: this.off, causal, positions });
      [this.reading, this.before] = [Object.assign(next, { set }), reading];
    }
    return this.model.read(this.encode(text), this.reading);
  }

  probabilities(at) { return attn.top_k(this.reading.logits[at], this.state.k, this.state.temperature); }

  /* One character more, and whether to go on. */
  write() {
    const { text } = this.state, { most } = this.constructor;
    if (!text || text.length === most) return false;
    this.read(text);
    this.chance ??= attn.random(7919);
    const next = text + attn.lm.alphabet[attn.pick(this.probabilities(text.length - 1), this.chance())];
    if (this.state.temperature === 0) this.written = next;
    this.set({ text: next, at: next.length - 1 });
    return next.length % 64 !== 0;
  }

  again() {
    this.chance = null;
    super.again();
  }

  draw() {
    const { text, causal } = this.state, { number, sum } = attn, at = Math.min(this.state.at, text.length - 1);
    for (const part of [...this.picture.children]) part.classList.toggle("attn-empty", !text);
    if (!text) return "There is no text yet. Type a character, and the model guesses the next.";
    const reading = this.read(text), lost = attn.losses(reading);
    const mean = (xs) => sum(xs) / xs.length;
    const whole = attn.losses(this.model.read(this.encode(text), this.model_whole));
    this.whole = mean(whole);
    this.lost = mean(lost);
    this.rise = lost.map((loss, i) => loss - whole[i]);
    this.changed = Boolean(this.state.off || !causal || !this.state.positions);
    [this.lost, this.whole, attn.lm.held_out].forEach((x, i) => {
      this.losses[i].textContent = x === x ? number(x, 2) : "–";
      this.losses[i].style.setProperty("--share", x === x ? Math.min(1, x / Math.log(attn.lm.alphabet.length)) : 0);
    });
    this.show_line(text, at, lost, whole);
    this.show_heads(text, at);
    this.fresh = text.length - reading.kept;
    this.line.letters.forEach((letter, i) => {
      letter.classList.toggle("attn-fresh", reading.kept > 0 && i >= reading.kept && i < text.length);
      letter.classList.toggle("attn-came", i === at + 1);
    });
    this.cached.textContent = reading.kept ? `Underlined: keys computed last; ${reading.kept} were kept.` : "All keys were computed at the last change.";
    return this.show_next(text, at, lost) + ` The text loses ${this.lost === this.lost ? number(this.lost, 2) : "–"} nats a character, `
      + `held-out text ${number(attn.lm.held_out, 2)}.` + (text.length > 64 ? " Beyond 64 characters the model meets distances that it never saw in training." : "")
      + (text.length === this.constructor.most ? ` It has ${text.length} characters, as many as this figure reads: take some away to write on.` : "")
      + (causal ? "" : " The mask is lifted.") + (this.unknown ? " Letters that the model does not know were left out." : "");
  }

  /* What both models lose of a character, the loss that one of them has more upon it. */
  show_line(text, at, lost, whole) {
    this.line.show(text, at, [], lost.map((loss, i) => Math.min(loss, whole[i])));
    this.line.letters.forEach((part, i) => {
      part.style.setProperty("--more", Math.abs(this.rise[i - 1] ?? 0) / 5);
      part.style.setProperty("--foot", this.rise[i - 1] < 0 ? "var(--attn-back)" : "var(--attn-alarm)");
    });
    for (const [name, value] of Object.entries({ n: text.length, at })) this.columns.style.setProperty(`--${name}`, value);
    const unit = this.line.line.offsetWidth / text.length, left = unit * (at + 0.5) - this.columns.scrollLeft, room = this.columns.clientWidth;
    if (this.line.swept !== at && (left < 0 || left > room)) this.columns.scrollLeft += left - 0.7 * room;
    this.key.textContent = "Bars: the loss of each character, full at 5 nats" + (this.changed ? `; red: more than the whole model's, at ${this.rise.filter((x) => x > 0).length} of ${this.rise.length}; green: less.` : ".") + (this.unknown ? " Letters that the model does not know were left out." : "");
  }

  weights(head, at) { return this.reading.layers[+head[0]].weights[at][+head[2]]; }

  show_heads(text, at) {
    for (const row of this.rows) {
      const { name, strip, most } = row, A = this.weights(name, at), top = A.indexOf(Math.max(...A)), back = at - top, off = this.off.has(name);
      strip.classList.toggle("attn-untouched", off);
      if (row.drawn !== A || strip.width !== text.length) { // a reading keeps the weights that do not change
        row.drawn = A;
        strip.width = text.length;
        const brush = strip.getContext("2d");
        A.forEach((weight, j) => {
          brush.fillStyle = `rgb(${attn.colour("viridis", weight)})`;
          brush.fillRect(j, 0, 1, 1);
        });
      }
      most.textContent = off ? "off" : `${back === 0 ? "itself" : back > 0 ? `${back} back` : `${-back} ahead`}: ${attn.number(A[top], 2)}`;
    }
  }

  /* The likeliest characters, and the sentence about the one that came. */
  show_next(text, at, lost) {
    const p = this.probabilities(at), letters = attn.lm.alphabet, wanted = text[at + 1];
    const order = attn.range(p.length).sort((a, b) => p[b] - p[a]);
    const { temperature, k } = this.state;
    this.nextName.textContent = `After “${attn.letter(text[at])}” at position ${at}, temperature ${attn.number(temperature, 1)}, of the likeliest ${k}`;
    this.next.forEach(([name, bar], i) => {
      const share = p[order[i]];
      name.textContent = share ? `“${attn.letter(letters[order[i]])}”` + (letters[order[i]] === wanted ? " ✓" : "") : "–";
      bar.textContent = share ? attn.number(share) : "";
      bar.style.setProperty("--share", share);
    });
    this.guess.textContent = wanted === undefined ? "The text ends here: write on."
      : `“${attn.letter(wanted)}” (dashed) came: ${attn.number(Math.exp(-lost[at]), 2)} at temperature 1, a loss of ${attn.number(lost[at], 2)}.`;
    const likeliest = `After “${attn.letter(text[at])}” at position ${at}, “${attn.letter(letters[order[0]])}” is the likeliest, ${attn.number(p[order[0]])}.`;
    return wanted === undefined ? likeliest : `${likeliest} “${attn.letter(wanted)}” came; at temperature 1 the model had given it ${attn.number(Math.exp(-lost[at]), 2)}.`;
  }
});
