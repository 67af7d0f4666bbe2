/* One drawing of the data flow of attention, for the figures that need it: matrices of numbers to touch. A number that is
   touched lights up those that made it, with a ray from each group, and says its arithmetic; + and − change an input. What
   is not shown yet has no formula, but its room: no step moves the page.
   A subclass has parts, { name: a part }, in the order in which they are computed; see attn.flow below. */
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
      const next = stage < last ? stage + 1 : 0, part = Object.keys(parts).find((name) => parts[name].stage === next && parts[name].at && (parts[name].value || !next));
      return { stage: next, at: `${part}${Math.min(2, parts[part].size[0] - 1)}0` };
    });
    this.button("Undo changes", () => Object.fromEntries(this.inputs.map((name) => [name, start[name]])));
    const tip = this.localName + "-tip";
    this.arrows = arrows.map(([to, d, tone = ""]) => [to, svg("path", { class: "attn-axis " + tone, d, "marker-end": `url(#${tip})` })]);
    this.rays = attn.range(3).map(() => svg("path", { class: "attn-ray" }));
    this.width = width;
    const feet = Object.values(parts).filter(({ at }) => at).map(({ at, size }) => at[1] + size[0] * attn.flow.tall);
    this.drawing = svg("svg", { role: "group", "aria-label": title, class: "attn-flow", viewBox: `0 0 ${width} ${Math.max(...feet) + 14}`, style: `--wide: ${width}px` },
      svg("marker", { id: tip, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" },
        svg("path", { d: "M0 0L8 4L0 8Z" })), ...grounds, ...this.arrows.map(([, arrow]) => arrow), ...this.rays);
    this.cells = new Map();
    this.headings = new Map();
    this.names = [];
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

  build_part(name, { at: [x, y], wide, size: [n, m], named, heading }) {
    const { svg, range, flow } = attn, { tokens } = this.constructor, tall = flow.tall;
    this.headings.set(name, svg("text", { x: x + m * wide / 2, y: y - 6, "text-anchor": "middle", class: "attn-heading" }, ...flow.typeset(heading ?? name, "tspan")));
    this.drawing.append(this.headings.get(name));
    if (named) {
      this.names.push([name, svg("g", {}, ...range(n).map((i) => svg("text", { x: x - 5, y: y + tall * (i + 0.5), "text-anchor": "end", class: "attn-row-name" }, tokens[i])))]);
      this.drawing.append(this.names.at(-1)[1]);
    }
    for (const i of range(n)) for (const j of range(m)) {
      const cell = svg("g", { class: "attn-number", role: "button", transform: `translate(${x + j * wide} ${y + i * tall})` });
      const text = svg("text", { x: wide / 2, y: tall / 2, "text-anchor": "middle" });
      cell.append(svg("rect", { width: wide, height: tall }), text, svg("path", { d: `M${wide} 0h-7l7 7Z` }));
      const key = name + i + j;
      this.cells.set(key, { cell, text, name, i, j, wide, x: x + (j + 0.5) * wide, y: y + (i + 0.5) * tall });
      cell.addEventListener("focus", () => this.state.at !== key && this.set({ at: key }));
      cell.addEventListener("click", () => cell.focus({ preventScroll: true }));
      this.drawing.append(cell);
    }
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

  /* From the middle of each group of lit numbers, a ray to the one that they make. */
  aim(lit, to) {
    const groups = [...new Set(lit.map(({ name }) => name))].map((name) => {
      const group = lit.filter((at) => at.name === name), mean = (axis) => attn.sum(group.map((at) => at[axis])) / group.length, x = mean("x"), y = mean("y");
      return [x, y, to.x, to.y];
    });
    const ends = attn.range(3).flatMap((k) => groups[k] ?? groups[0] ?? [to.x, to.y, to.x, to.y]);
    this.glide("rays", ends, (now) => this.rays.forEach((ray, k) => {
      const [x, y, u, v] = now.slice(4 * k), flat = Math.abs(u - x) > Math.abs(v - y);
      ray.setAttribute("d", flat ? `M${x} ${y}C${(x + u) / 2} ${y} ${(x + u) / 2} ${v} ${u} ${v}` : `M${x} ${y}C${x} ${(y + v) / 2} ${u} ${(y + v) / 2} ${u} ${v}`);
    }));
  }

  /* Rows of a part that differ from those of the start under the same settings. */
  rows_changed(name) { return this.changed[name].flatMap((row, i) => (row.includes(true) ? i : [])); }

  draw() {
    const { parts, start, tokens } = this.constructor, { state, chosen: { name, i, j } } = this, { short, same, typeset, entry } = attn.flow;
    const values = this.values = this.compute(state);
    const before = this.compute({ ...state, ...Object.fromEntries(this.inputs.map((input) => [input, start[input]])) });
    this.changed = Object.fromEntries(Object.keys(parts).map((part) => [part, values[part].map((row, k) => row.map((x, l) => !same(x, before[part][k][l])))]));
    for (const [of, drawn] of [...this.headings, ...this.arrows]) drawn.classList.toggle("attn-empty", !this.shown({ name: of }));
    for (const [of, drawn] of this.names) drawn.classList.toggle("attn-empty", !this.shown({ name: of }) || parts[of].named < state.stage);
    const part = parts[name], made = new Set(part.lit?.(i, j, values).map(([from, k, l]) => parts[from].drawn?.(k, l) ?? from + k + l));
    for (const [key, at] of this.cells) {
      const x = values[at.name][at.i][at.j], { pairs, kind, weight } = parts[at.name], chosen = at.name === name && at.i === i && at.j === j;
      const is = { unseen: !this.shown(at), chosen, lit: made.has(key), new: this.changed[at.name][at.i][at.j], lost: Number.isNaN(x),
        plus: kind === "gradient" && x > 0, minus: kind === "gradient" && x < 0 };
      const words = `${at.name}, ${weight ? `row ${at.i}` : tokens[at.i]}, ${pairs ? tokens[at.j] : `column ${at.j}`}: `;
      this.show(at, Object.keys(is).filter((one) => is[one]), words, x, kind === "weights");
    }
    const all = [...this.cells.values()], here = this.chosen, goal = all.map((at) => values[at.name][at.i][at.j]);
    this.glide("numbers", goal, (now) => all.forEach(({ text }, k) => {
      const shown = short(Number.isNaN(now[k]) ? goal[k] : now[k]);
      if (text.textContent !== shown) text.textContent = shown;
    }));
    this.aim([...made].map((key) => this.cells.get(key)), here);
    const left = this.box.scrollWidth / this.width * here.x - this.box.scrollLeft; // on a phone the drawing scrolls
    if (left < 0 || left > this.box.clientWidth) this.box.scrollLeft += left - this.box.clientWidth / 2;
    const sums = part.says ? part.says(values, i, j, state) : "an input", x = values[name][i][j];
    this.formula.replaceChildren(...typeset(entry(name, i, j) + (part.formula ? " = " + part.formula(i, j, state) : ", an input"), "sub"));
    this.means.textContent = part.means(tokens[i], tokens[j], i, j, values);
    const fixed = !this.inputs.includes(name);
    this.edit.classList.toggle("attn-empty", fixed);
    for (const [button, verb] of [[this.less, "Lower"], [this.more, "Raise"]]) button.setAttribute("aria-label", `${verb} ${entry(name, i, j)} by 1`);
    return `${entry(name, i, j)} ${part.says ? "= " + sums : "is " + sums}${part.says ? " = " : ", now "}${short(x)}. ${this.tell()}`;
  }
};

/* What parts are made of. A part has at (its place), wide (of a number), size and stage, and named: its rows' words stand
   beside it, up to this stage (Infinity: always); or drawn(i, j), the place of a number in a part that shows it. And
     value(values, state)    its numbers (an input has none: its numbers are in the state)
     lit(i, j, values)       the numbers that made one, [[name, row, column], …]
     formula(i, j), says(values, i, j, state), means(row's word, column's word, i, j, values)   the same in letters, numbers, words */
attn.flow = (() => {
  "use strict";
  const { range, transpose, matmul } = attn, tall = 24;
  const sub = (...numbers) => numbers.map((k) => "₀₁₂₃"[k]).join("");
  const whole = (x) => x === 0 || (Math.abs(x) > 0.5 && Math.abs(x - Math.round(x)) < 1e-9); // 0.00 is not 0
  const short = (x) => (x === -Infinity ? "−∞" : attn.number(x, whole(x) || Math.abs(x) >= 10 ? 0 : 2));
  const factor = (x) => (x < 0 ? `(${short(x)})` : short(x));
  const same = (a, b) => Object.is(a, b) || Math.abs(a - b) < 1e-9;
  const entry = (name, i, j) => name.replaceAll("'", "") + (name === "r" ? sub(i) : sub(i, j));
  // "W_q" with its letter below the line, on a page or in a drawing.
  const typeset = (text, tag) => text.split(/_(\w)/).flatMap((piece, k) => (!piece ? [] : k % 2
    ? (tag === "sub" ? attn.html("sub", {}, piece) : attn.svg("tspan", { dy: 3, "font-size": 9 }, piece))
    : (tag === "sub" ? piece : attn.svg("tspan", { dy: k ? -3 : 0 }, piece))));
  const vector = (name, k, row) => (name = name.replaceAll("'", ""), row
    ? (/^d?[XQKVO][⁰¹]?$/.test(name) ? name.toLowerCase() + sub(k) : `row ${k} of ${name}`)
    : `column ${k} of ${name}`);

  /* L R, or with the transpose of either, times scale(state), which by(state) writes. */
  const product = (L, R, { left = false, right = false, scale = () => 1, by = () => "" } = {}) => {
    const turn = (M, turned) => (turned ? transpose(M) : M);
    return {
      value: (v, state) => matmul(turn(v[L], left), turn(v[R], right)).map((row) => row.map((x) => x * scale(state))),
      lit: (i, j, v) => range(v[L][0].length && turn(v[L], left)[0].length).flatMap((k) => [left ? [L, k, i] : [L, i, k], right ? [R, j, k] : [R, k, j]]),
      formula: (i, j, state) => `${vector(L, i, !left)} · ${vector(R, j, right)}${by(state)}`,
      says: (v, i, j, state) => {
        const b = turn(v[R], !right)[j], terms = turn(v[L], left)[i].map((a, k) => `${factor(a)} · ${factor(b[k])}`).join(" + ");
        return by(state) ? `(${terms})${by(state)}` : terms;
      },
    };
  };

  /* Scores that a mask may forbid, mask(state) true = may attend, and their weights. */
  const scores = (Q, K, mask, scaled) => {
    const free = product(Q, K, { right: true, ...scaled });
    return {
      ...free, pairs: true,
      value: (v, state) => attn.fill(free.value(v, state), mask(state), -Infinity),
      says: (v, i, j, state) => (mask(state)[i][j] ? free.says(v, i, j, state) : "forbidden by the mask"),
      means: (one, other) => `How well the query of ${one} fits the key of ${other}.`,
    };
  };
  const weights = (S, mask) => ({
    pairs: true, kind: "weights",
    value: (v, state) => attn.masked_softmax(v[S], mask(state)),
    lit: (i, j, v) => range(v[S][i].length).map((k) => [S, i, k]),
    formula: (i, j) => `exp ${entry(S, i, j)} / sum of exp over row ${i} of ${S}`,
    says: (v, i, j, state) => (mask(state)[i].includes(true)
      ? `exp ${factor(v[S][i][j])} / (${v[S][i].map((s) => "exp " + factor(s)).join(" + ")})` : "a row with nothing permitted"),
    means: (one, other) => `The share of ${other} in what ${one} hears.`,
  });
  const output = (A, V) => ({ ...product(A, V), means: (one) => `What ${one} hears: the values, each times its weight.` });
  const part = (at, wide, size, stage, made) => ({ at, wide, size, stage, ...made });
  const list = (names) => (names.length > 1 ? names.slice(0, -1).join(", ") + " and " : "") + names.at(-1);

  return { tall, sub, short, factor, same, entry, typeset, product, scores, weights, output, part, list };
})();
