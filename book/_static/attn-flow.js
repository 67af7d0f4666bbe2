/* One drawing of the data flow of attention, for the figures that need it: matrices of numbers to touch, each above a bar from
   the middle of its cell, to the right or, below 0, to the left. A number that is touched lights up those that made it, with a ray from each, as thick as
   its share of the sum, and says its arithmetic; + and − change an input, and so does a hand that drags it up or down. What is
   not shown yet has no formula, but its room: no step moves the page.
   A subclass has parts, { name: a part }, in the order in which they are computed; attn-flow-parts.js has what they are made of. */
attn.Flow = class extends attn.Figure {
  static tokens = ["WEATHER", "IS", "LOVELY", "TODAY"];
  static X = [[2, 0, 0], [1, 1, 0], [0, 2, 0], [0, 0, 2]];
  static largest = 9; // number that an input may hold

  /* Controls for the stages and the drawing, this wide, with arrows [[to a part, path, class], …] and grounds beneath it. */
  build_flow(width, arrows, ...grounds) {
    const { html, svg } = attn, { parts, stages, title, start } = this.constructor, last = stages.length - 1;
    this.fits.at = (at) => this.cells.has(at);
    this.slider("stage", "Shown", [0, last, 1], (stage) => (stage < last ? "up to " : "all, with ") + stages[stage]);
    this.button("Next step", ({ stage }) => {
      const next = stage < last ? stage + 1 : 0, part = stages[next] in parts ? stages[next] : Object.keys(parts).find((name) => parts[name].stage === next && parts[name].at && (parts[name].value || !next));
      return { stage: next, at: `${part}${Math.min(2, parts[part].size[0] - 1)}0` };
    });
    this.button("Undo changes", () => Object.fromEntries(this.inputs.map((name) => [name, start[name]])));
    const tip = this.localName + "-tip";
    this.arrows = arrows.map(([to, d, tone = ""]) => [to, svg("path", { class: "attn-axis " + tone, d, "marker-end": `url(#${tip})` })]);
    this.rays = attn.range(8).map(() => svg("path", { class: "attn-ray" }));
    this.width = width;
    const feet = Object.values(parts).filter(({ at }) => at).map(({ at, size, tall }) => at[1] + size[0] * tall);
    this.drawing = svg("svg", { role: "group", "aria-label": title, class: "attn-flow", viewBox: `0 0 ${width} ${Math.max(...feet) + 14}`, style: `--wide: ${width}px` },
      svg("marker", { id: tip, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" },
        svg("path", { d: "M0 0L8 4L0 8Z" })), ...grounds, ...this.arrows.map(([, arrow]) => arrow), ...this.rays);
    this.cells = new Map();
    this.headings = new Map();
    this.names = [];
    this.initials = [];
    for (const [name, part] of Object.entries(parts)) if (part.at) this.build_part(name, part);
    this.inputs = Object.keys(parts).filter((name) => name in start && parts[name].at);
    for (const name of this.inputs) this.fits[name] = (M) => M.flat().every((x) => Number.isInteger(x) && Math.abs(x) <= this.constructor.largest);
    this.drawing.addEventListener("keydown", (event) => this.key(event));

    this.formula = html("p", { class: "attn-answer" });
    this.means = html("p");
    this.less = attn.button("−", () => this.nudge(-1));
    this.more = attn.button("+", () => this.nudge(1));
    this.edit = html("div", { class: "attn-buttons", role: "group", "aria-label": "Change this input" }, this.less, this.more);
    this.box = html("div", {}, this.drawing);
    this.words.classList.remove("visually-hidden"); // the arithmetic stands nowhere else
    this.picture.append(html("div", { class: "attn-told" }, this.edit, this.formula, this.means, this.words), this.box);
  }

  build_part(name, { at: [x, y], wide, tall, size: [n, m], named, heading, tone = () => "", after, keyed }) {
    const { svg, range } = attn, { tokens } = this.constructor, input = name in this.constructor.start;
    this.headings.set(name, svg("text", { x: x + m * wide / 2, y: y - 6, "text-anchor": "middle", class: "attn-heading" }, ...attn.typeset(heading ?? name, "tspan")));
    this.drawing.append(this.headings.get(name));
    if (named) {
      this.names.push([name, svg("g", {}, ...range(n).map((i) => svg("text", { x: after ? x + m * wide + 5 : x - 5, y: y + tall * (i + 0.5), "text-anchor": after ? "start" : "end", class: "attn-row-name" }, tokens[i])))]);
      this.drawing.append(this.names.at(-1)[1]);
    }
    if (keyed) {
      this.initials.push([name, svg("g", {}, ...range(m).map((j) => svg("text", { x: x + (j + 0.5) * wide, y: y + n * tall + 7, "text-anchor": "middle", class: "attn-row-name" })))]);
      this.drawing.append(this.initials.at(-1)[1]);
    }
    for (const i of range(n)) for (const j of range(m)) {
      const cell = svg("g", { class: "attn-number", role: "button", transform: `translate(${x + j * wide} ${y + i * tall})` });
      const text = svg("text", { x: wide / 2, y: tall / 2 - 1, "text-anchor": "middle" }), key = name + i + j;
      // A bar, and a notch where it ended at the start; a weight, which has a colour instead, gets a corner.
      const [bar, notch] = [svg("path", { class: "attn-amount " + tone(i, j) }), svg("path", { class: "attn-former" })];
      cell.append(svg("rect", { width: wide, height: tall }), bar, notch, text);
      this.cells.set(key, { cell, text, bar, notch, name, i, j, wide, tall, x: x + (j + 0.5) * wide, y: y + (i + 0.5) * tall });
      if (input) this.scrub(cell);
      cell.addEventListener("focus", () => this.state.at !== key && this.set({ at: key }));
      cell.addEventListener("click", () => cell.focus({ preventScroll: true }));
      this.drawing.append(cell);
    }
  }

  /* A mouse that drags an input changes it by 1 every 12 pixels; a finger scrolls the page instead, and has the buttons. */
  scrub(cell) {
    let from;
    cell.classList.add("attn-input");
    cell.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse") cell.setPointerCapture(event.pointerId);
      from = event.clientY;
    });
    cell.addEventListener("pointermove", (event) => {
      const steps = cell.hasPointerCapture(event.pointerId) ? Math.trunc((from - event.clientY) / 12) : 0;
      if (!steps) return;
      from -= 12 * steps;
      cell.focus({ preventScroll: true });
      this.nudge(steps);
    });
  }

  /* Threads from each row of V to each of O, as thick as its weight, for build_flow to put beneath the numbers. They are red where
     what they bring has changed. */
  spin(A, V, O, tone) {
    const n = this.constructor.parts[A].size[0], threads = attn.range(n * n).map((k) => [Math.floor(k / n), k % n, attn.svg("path", { class: "attn-heard " + tone })]);
    (this.spun ??= []).push({ A, V, O, threads });
    return threads.map(([, , thread]) => thread);
  }

  draw_threads({ A, V, O, threads }) {
    const { parts } = this.constructor, { name, i: row } = this.chosen, { wide, size, tall, at: [x, y] } = parts[V], [u, w] = parts[O].at;
    const [from, to] = x < u ? [x + wide * size[1], u] : [x, u + parts[O].wide * parts[O].size[1]], middle = (from + to) / 2;
    for (const [i, j, thread] of threads) {
      thread.classList.toggle("attn-empty", !this.shown({ name: O }));
      thread.classList.toggle("attn-strong", /^[QSAO]/.test(name) && i === row);
      thread.classList.toggle("attn-changed", this.changed[A][i][j] || (this.values[A][i][j] > 0 && this.changed[V][j].includes(true)));
    }
    this.glide(A, this.values[A].flat(), (now) => threads.forEach(([i, j, thread], k) => {
      const [begin, end] = [y + tall * (j + 0.5), w + tall * (i + 0.5)];
      attn.put(thread, { d: `M${from} ${begin}C${middle} ${begin} ${middle} ${end} ${to} ${end}`, "stroke-width": (tall - 2) * now[k] });
    }));
  }

  shown({ name }) { return this.constructor.parts[name].stage <= this.state.stage; }

  /* The number that is looked at; where its stage is not shown yet, the first. */
  get chosen() {
    const cell = this.cells.get(this.state.at);
    return this.shown(cell) ? cell : this.cells.values().next().value;
  }

  /* Arrows go to the nearest number that way, + and − change an input. */
  key(event) {
    const here = this.chosen, way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const change = { "+": 1, "=": 1, "-": -1, "−": -1 }[event.key];
    if (!way && !change) return;
    event.preventDefault();
    if (change) return void this.nudge(change);
    const far = ({ x, y }) => {
      const dx = x - here.x, dy = y - here.y, ahead = dx * way[0] + dy * way[1], aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
      return ahead > 1 && ahead >= aside / 2 ? ahead + 2 * aside : Infinity;
    };
    const next = [...this.cells.values()].filter((cell) => this.shown(cell)).reduce((best, cell) => (far(cell) < far(best) ? cell : best), here);
    next.cell.focus();
  }

  nudge(step) {
    const { name, i, j } = this.chosen, M = this.state[name], { largest } = this.constructor;
    if (!this.inputs.includes(name)) return;
    const x = Math.max(-largest, Math.min(largest, M[i][j] + step));
    this.set({ [name]: M.with(i, M[i].with(j, x)) });
  }

  compute(state) {
    const values = {};
    for (const [name, { value }] of Object.entries(this.constructor.parts)) values[name] = value ? value(values, state) : state[name];
    return values;
  }

  /* Touch the page only where something changed. */
  show(at, is, words, x, painted) {
    const shown = attn.flow.short(x), looks = is.join(" ") + x + painted;
    if (at.looks === looks) return;
    at.looks = looks;
    const { cell } = at;
    cell.setAttribute("class", ["attn-number", ...is.map((one) => "attn-" + one)].join(" "));
    cell.setAttribute("tabindex", is.includes("chosen") ? 0 : -1);
    cell.setAttribute("aria-label", words + (is.includes("unseen") ? "not shown yet" : shown));
    if (painted) cell.setAttribute("style", `--tint: rgb(${attn.colour("viridis", x)}); --on: ${x > 0.55 ? "#000" : "#fff"}`);
  }

  /* From each lit number to the one that they make, from border to border, as thick as its share. */
  aim(lit, to) {
    const from = lit.map(([key, share]) => [this.cells.get(key), share]).filter(([, share]) => share > 0.005);
    const flat = ({ x, y }) => Math.abs(to.x - x) > Math.abs(to.y - y);
    const border = (at, other, along) => (along ? [at.x + Math.sign(other.x - at.x) * at.wide / 2, at.y] : [at.x, at.y + Math.sign(other.y - at.y) * at.tall / 2]);
    const ends = attn.range(8).flatMap((k) => {
      const [at, share] = from[k] ?? [to, 0];
      return [...border(at, to, flat(at)), ...border(to, at, flat(at)), 18 * share];
    });
    this.glide("rays", ends, (now) => this.rays.forEach((ray, k) => {
      const [x, y, u, v, thick] = now.slice(5 * k), flat = Math.abs(u - x) > Math.abs(v - y);
      attn.put(ray, { "stroke-width": thick, d: flat ? `M${x} ${y}C${(x + u) / 2} ${y} ${(x + u) / 2} ${v} ${u} ${v}` : `M${x} ${y}C${x} ${(y + v) / 2} ${u} ${(y + v) / 2} ${u} ${v}` });
    }));
  }

  /* A notch across a bar, below the number. */
  nick(x, tall, long = 6) { return `M${x} ${tall - long}v${long}`; }

  /* Bars of a matrix have one scale: of its largest number, now or at the start. */
  measure(values, before) {
    this.reach = Object.fromEntries(Object.keys(values).map((name) => [name, Math.max(1, ...[values, before].flatMap((all) => all[name].flat()).map(Math.abs).filter(isFinite))]));
  }

  /* Rows of a part that differ from those of the start under the same settings. */
  rows_changed(name) { return this.changed[name].flatMap((row, i) => (row.includes(true) ? i : [])); }

  /* What the inputs are compared with. */
  get origin() { return this.constructor.start; }

  /* The words of the rows. */
  tokens() { return this.constructor.tokens; }

  draw() {
    const { parts } = this.constructor, tokens = this.tokens(), { state, chosen: { name, i, j } } = this, { short, same, entry } = attn.flow;
    const values = this.values = this.compute(state);
    const before = this.before = this.compute({ ...state, ...Object.fromEntries(this.inputs.map((input) => [input, this.origin[input]])) });
    this.changed = Object.fromEntries(Object.keys(parts).map((part) => [part, values[part].map((row, k) => row.map((x, l) => !same(x, before[part][k][l])))]));
    for (const [of, drawn] of [...this.headings, ...this.arrows]) drawn.classList.toggle("attn-empty", !this.shown({ name: of }));
    for (const [of, drawn] of this.names) {
      drawn.classList.toggle("attn-empty", !this.shown({ name: of }) || parts[of].named < state.stage);
      const rows = this.rows_changed(of);
      drawn.childNodes.forEach((name, i) => {
        name.textContent = tokens[i];
        name.classList.toggle("attn-changed", rows.includes(i));
      });
    }
    for (const [of, drawn] of this.initials) {
      drawn.classList.toggle("attn-empty", !this.shown({ name: of }));
      drawn.childNodes.forEach((initial, j) => { initial.textContent = tokens[j][0]; });
    }
    this.measure(values, before);
    const part = parts[name], lit = part.lit?.(i, j, values) ?? [], total = attn.sum(lit.map((one) => Math.abs(one[3] ?? 1))) || 1;
    const made = new Map(lit.map(([from, k, l, share = 1]) => [parts[from].drawn?.(k, l) ?? from + k + l, 2 * Math.abs(share) / total]));
    for (const [key, at] of this.cells) {
      const x = values[at.name][at.i][at.j], { pairs, kind, weight } = parts[at.name], chosen = at.name === name && at.i === i && at.j === j;
      const is = { unseen: !this.shown(at), chosen, lit: made.has(key), new: this.changed[at.name][at.i][at.j], lost: Number.isNaN(x),
        plus: kind === "gradient" && x > 0, minus: kind === "gradient" && x < 0, zero: kind === "gradient" && weight && same(x, 0) };
      const words = `${at.name}, ${weight ? `row ${at.i}` : tokens[at.i]}, ${pairs ? tokens[at.j] : `column ${at.j}`}: `;
      this.show(at, Object.keys(is).filter((one) => is[one]), words, x, kind === "weights");
    }
    const all = [...this.cells.values()], here = this.chosen, goal = all.map((at) => values[at.name][at.i][at.j]);
    const end = ({ wide, name: of }, x) => wide / 2 * (1 + (isFinite(x) ? x / this.reach[of] : 0));
    this.glide("numbers", goal, (now) => all.forEach((at, k) => {
      const shown = short(Number.isNaN(now[k]) ? goal[k] : now[k]);
      if (at.text.textContent !== shown) at.text.textContent = shown;
      if (parts[at.name].kind !== "weights" && !parts[at.name].sum) at.bar.setAttribute("d", `M${at.wide / 2} ${at.tall - 5}H${end(at, now[k])}V${at.tall}H${at.wide / 2}Z`);
    }));
    for (const at of all) {
      const { kind, sum } = parts[at.name];
      if (at.cell.classList.contains("attn-new") && !sum) at.notch.setAttribute("d", kind === "weights" ? `M${at.wide - 11} 1h10v10` : this.nick(end(at, before[at.name][at.i][at.j]), at.tall));
    }
    this.aim([...made].filter(([key]) => !part.far && !parts[this.cells.get(key).name].far), here);
    for (const one of this.spun ?? []) this.draw_threads(one);
    const left = this.box.scrollWidth / this.width * here.x - this.box.scrollLeft; // on a phone the drawing scrolls
    if (left < 48 || left > this.box.clientWidth - 48) this.box.scrollLeft += left - this.box.clientWidth / 2;
    const sums = part.says ? part.says(values, i, j, state) : "an input", x = values[name][i][j];
    this.formula.replaceChildren(...attn.typeset(entry(name, i, j) + (part.formula ? " = " + part.formula(i, j, state) : ", an input")));
    this.means.replaceChildren(...attn.typeset(part.means(tokens[i], tokens[j], i, j, values)));
    const fixed = !this.inputs.includes(name);
    this.edit.classList.toggle("attn-empty", fixed);
    for (const [button, verb] of [[this.less, "Lower"], [this.more, "Raise"]]) button.setAttribute("aria-label", `${verb} ${entry(name, i, j)} by 1`);
    return `${entry(name, i, j)} ${part.says ? "= " + sums : "is " + sums}${part.says ? " = " : ", now "}${short(x)}. ${this.tell()}`;
  }
};
