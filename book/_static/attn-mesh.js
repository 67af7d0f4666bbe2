/* Chapter 12: choose a length and a mesh of H100s, and see where the time of an attention layer goes.
   Needs attn-ledger-data.js, attn-mesh-costs.js: what a layer costs on it, and what was tried. */
customElements.define("attn-mesh", class extends attn.Figure {
  static title = "Seconds of attention against the mesh";
  static start = { length: 20, gpus: 10, heads: 0, exchange: "ring" };
  static parts = { project: "projections", attend: "attention", wait: "waiting", reduce: "adding up heads" };

  static quickest = (met) => [...met].filter(([, seconds]) => seconds).reduce((a, b) => (b[1] < a[1] ? b : a))[0];
  static tasks = [{
    ask: "A million tokens on 1,024 GPUs, in a ring. How many GPUs should share the heads, so that the 80 layers take the least time? Try all four.",
    guesses: { 0: "1", 2: "4", 3: "8", 4: "16" },
    right: (figure, met) => String(this.quickest(met)),
    done: ({ state: { length, gpus, heads, exchange }, total }, met) => {
      if (length === 20 && gpus === 10 && exchange === "ring" && total) met.set(heads, total);
      return [0, 2, 3, 4].every((tried) => met.has(tried));
    },
    yet: (figure, met) => `${[0, 2, 3, 4].filter((tried) => met.has(tried)).length} of 4 tried.`,
    seen: (figure, met) => [...met].sort(([a], [b]) => a - b).map(([heads, seconds]) => `${2 ** heads}: ${attn.number(seconds, 2)} s`).join(", ")
      + ". With few the ring's blocks are too short to hide the traffic; beyond eight the heads leave the node.",
  }, {
    ask: "The same GPUs and tokens, but nobody shares heads. What do tokens best meet by? Try all three.",
    opens: { length: 20, gpus: 10, heads: 0, exchange: "ring" },
    guesses: { ring: "a ring", "double ring": "a double ring", "all-to-all": "an all-to-all" },
    right: (figure, met) => this.quickest(met),
    done: ({ state: { length, gpus, heads, exchange }, total }, met) => {
      if (length === 20 && gpus === 10 && heads === 0) met.set(exchange, total);
      return met.size === 3;
    },
    yet: (figure, met) => `${met.size} of 3 tried.`,
    seen: (figure, met) => ["ring", "double ring", "all-to-all"].map((way) => `${way}: ${met.get(way) ? attn.number(met.get(way), 2) + " s" : "does not fit"}`).join(", ")
      + ". In a double ring each adapter carries an eighth of what one of them carries in one ring.",
  }];

  build() {
    const { html, svg } = attn, power = (k) => (2 ** k).toLocaleString("en-US");
    this.slider("length", "Tokens", [13, 24, 1], power);
    this.slider("gpus", "GPUs", [0, 13, 1], power);
    this.slider("heads", "GPUs that share heads", [0, 6, 1], power);
    this.choice("exchange", "Tokens meet by", { ring: "ring", "double ring": "double ring", "all-to-all": "all-to-all" });
    this.clock = 0.65; // how much of the time bar has gone by
    this.player("Play", 40, () => {
      this.clock = this.played && this.clock < 1 ? Math.min(1, this.clock + 0.01) : 0;
      this.played = true;
      this.pass();
      return this.clock < 1;
    });
    this.play = this.controls.lastChild;
    this.presets("Tokens on GPUs", {
      "8,192 on 8": { length: 13, gpus: 3, heads: 3, exchange: "ring" },
      "131,072 on 64, ring": { length: 17, gpus: 6, heads: 0, exchange: "ring" },
      "131,072 on 64, all-to-all": { length: 17, gpus: 6, heads: 0, exchange: "all-to-all" },
      "a million on 1,024": { length: 20, gpus: 10, heads: 0, exchange: "ring" },
    });

    this.machine = svg("g");
    this.messages = svg("g", { class: "attn-messages" });
    this.cursor = svg("path", { class: "attn-cursor-line" });
    const blocks = (kind) => attn.range(8).map(() => svg("rect", { class: kind, height: 15, width: 0, x: 62 }));
    this.blocks = { work: blocks("attn-score"), idle: blocks("attn-idle"), near: blocks("attn-weight"), far: blocks("attn-weight") };
    this.spans = svg("text", { y: 91, "text-anchor": "end" });
    this.step = svg("text", { y: 165, x: 0 });
    this.drawing = svg("svg", { class: "attn-mesh-drawing", "aria-hidden": true }, this.machine, this.messages, ...Object.values(this.blocks).flat(),
      ...["a GPU", "NVLink", "network"].map((name, i) => svg("text", { x: 0, y: 107 + 20 * i }, name)), this.cursor, this.spans, this.step);
    const tone = (kind, text) => html("b", { class: kind }, text), stage = html("div", {}, html("p", {}, "Boxes: nodes; frames: GPUs that share heads. ", tone("attn-of-beam", "Blue computes"), ", ",
      tone("attn-of-greedy", "red waits"), ". Dots: ", this.sent = html("span"), "."), this.drawing);
    this.picture.append(stage);
    this.fit(stage);

    const parts = Object.entries(this.constructor.parts);
    this.bar = parts.map(([part]) => svg("rect", { class: `attn-of-${part}`, y: 36, height: 32 }));
    this.end = svg("text", { class: "attn-name", y: 57 });
    this.labels = parts.map(([part, name]) => {
      const ms = svg("text", { y: 25, "text-anchor": "middle" });
      return { tie: svg("path", { class: `attn-of-${part}` }), name: svg("text", { class: `attn-name attn-of-${part}`, y: 12, "text-anchor": "middle" }, name), ms, width: 7.4 * name.length + 8 };
    });
    this.chart = svg("svg", { role: "img", class: "attn-costs attn-mesh-drawing" }, ...this.bar, this.end, ...this.labels.flatMap(({ tie, name, ms }) => [tie, name, ms]));
    this.tries = new Map(); // of each length and number of GPUs, { way: { how many share heads: seconds of 80 layers } }
    this.tried = svg("svg", { class: "attn-tried attn-mesh-drawing", "aria-hidden": true });
    this.answer = html("p", { class: "attn-answer" });
    stage.append(this.answer, this.chart, this.tried);
  }

  /* How wide a drawing is, in its own units; on the narrowest screens it shrinks, so that its words have room. */
  wide() { return Math.max(350, this.drawing.parentNode.clientWidth || 700); }

  /* A layer's time, cut into its parts; the names stand above their pieces, side by side. */
  lay_bar(now, fits) {
    const wide = this.wide(), { put, sum } = attn, { time } = attn.mesh;
    put(this.chart, { viewBox: `0 0 ${wide} 70` });
    // The bar of the longest that was tried on these GPUs fills the room.
    const longest = Math.max(sum(now), ...Object.values(this.tries.get(this.on) ?? {}).flatMap(Object.values).map((seconds) => seconds / 0.08));
    this.glide("bar", [...now, longest || 1], (ms) => {
      let x = 0;
      const places = this.bar.map((rect, i) => {
        const width = (wide - 120) * ms[i] / ms[4], from = x;
        put(rect, { x, width });
        return from + (x += width, width) / 2;
      });
      put(this.end, { x: x + 5 });
      let free = wide + 4;
      const right = this.labels.map(({ width }, i) => Math.max(width / 2 + sum(this.labels.slice(0, i).map((label) => label.width)), places[i]));
      for (const i of [3, 2, 1, 0]) {
        const { tie, name, ms: text, width } = this.labels[i], x = Math.min(right[i], free - width / 2);
        free = x - width / 2;
        put(name, { x });
        put(text, { x });
        put(tie, { d: `M${places[i]} 36V35L${x} 29` });
      }
    });
    this.labels.forEach(({ ms, name, tie }, i) => {
      ms.textContent = fits ? time(now[i]) : "–";
      for (const part of [ms, name, tie]) put(part, { opacity: now[i] ? 1 : 0.4, visibility: fits && (now[i] || part !== tie) ? "visible" : "hidden" });
    });
    this.end.textContent = fits ? time(sum(now)) : "does not fit";
  }

  /* Seconds of all that was tried with these tokens on these GPUs. */
  lay_tries(seconds) {
    const { heads, exchange } = this.state, wide = this.wide();
    if (!this.tries.has(this.on)) this.tries.set(this.on, {});
    const ways = this.tries.get(this.on);
    (ways[exchange] ??= {})[heads] = seconds;
    this.tried.setAttribute("viewBox", `0 0 ${wide} 96`);
    this.tried.replaceChildren(...attn.mesh.tried(ways, heads, exchange, wide));
  }

  /* The first nodes, with what goes between those who hold tokens, and the time bar. */
  lay_out(c, gpus, tensor) {
    const { svg, put, range } = attn, { exchange } = this.state, wide = this.wide(), per = Math.min(8, gpus), nodes = Math.ceil(gpus / 8);
    const shown = Math.min(nodes, wide < 500 ? 2 : 4), room = nodes > shown ? 64 : 4, gap = 14, box = Math.min(320, (wide - room - gap * (shown - 1)) / shown), pitch = box / per;
    const x = (g) => Math.floor(g / 8) * (box + gap) + pitch * (g % 8 + 0.5) + 2, radius = Math.min(9, pitch / 2 - 3), all = shown * per;
    const members = c ? range(Math.ceil(all / tensor)).map((m) => [x(m * tensor), x(Math.min(all, (m + 1) * tensor) - 1)]) : [];
    const line = ([, a], [b]) => `M${a + radius + 2} 30H${b - radius - 2}`, mid = ([a, b]) => (a + b) / 2, links = [];
    const ends = (row, low, last = row.at(-1)[1]) => // the way back, from beyond the picture where nodes are left out
      `M${row === members && nodes > shown ? `${last + radius + 2} 30H${wide - 8}` : `${last} 40`}V${low}H${mid(row[0])}V41`;
    const apart = (i) => Math.floor((i + 1) * tensor / 8) > Math.floor(i * tensor / 8); // a member and the next, in other nodes
    const ring = (row, low, first = 0) => row.length > 1 && links.push(...row.slice(1).map((to, i) => [line(row[i], to), first + i, apart(first + i)]), [ends(row, low), first + row.length - 1, row === members && nodes > 1]);
    const inside = Math.max(1, per / tensor), spans = nodes > 1 || per > tensor;
    if (c && spans && exchange === "ring") ring(members, 70);
    if (c && exchange === "double ring") {
      const teams = range(Math.ceil(members.length / inside)).map((i) => members.slice(i * inside, (i + 1) * inside));
      teams.forEach((team, i) => ring(team, 54, i * inside));
      const middle = (team) => mid([team[0][0], team.at(-1)[1]]), [first, last] = [teams[0], teams.at(-1)].map(middle);
      if (nodes > 1 && teams.length > 1) links.push(...teams.slice(1).map((team, i) => [`M${middle(teams[i]) + 5} 56V72H${middle(team) - 5}V58`, null]),
        [`M${nodes > shown ? wide - 8 : last} ${nodes > shown ? 78 : 56}V78H${first}V58`, null]);
    }
    const half = Math.floor(members.length / 2); // each sends to each: its messages are shown on their way to one far from it
    if (c && spans && exchange === "all-to-all" && half) members.forEach((from, i) => {
      const to = members[(i + half) % members.length];
      links.push([`M${mid(from)} 41Q${(mid(from) + mid(to)) / 2} 112 ${mid(to)} 41`, i]);
    });
    this.machine.replaceChildren(...range(shown).map((i) => svg("rect", { class: "attn-node", x: i * (box + gap) + 1, y: 8, width: box, height: 52, rx: 6 })),
      ...(tensor > 1 ? members.map(([a, b]) => svg("rect", { class: "attn-team", x: a - radius - 3, y: 16, width: b - a + 2 * radius + 6, height: 28, rx: 13 })) : []),
      ...links.map(([d]) => svg("path", { class: "attn-link", d })), ...range(all).map((g) => svg("circle", { class: "attn-gpu", cx: x(g), cy: 30, r: radius })),
      svg("text", { x: wide - 13, y: 52, "text-anchor": "end" }, nodes > shown ? `… ${nodes.toLocaleString("en-US")}` : ""));
    this.fits_in = Boolean(c);
    this.play.disabled = !c;
    this.sent.textContent = exchange === "all-to-all" ? "Q, K, V, then O: one way of all" : "blocks of K and V";
    const paths = this.machine.querySelectorAll(".attn-link"), sent = () => svg("circle", { r: 4 });
    this.round = Math.max(1, exchange === "double ring" ? inside : gpus / tensor); // who hand a block round
    this.links = links.map(([, from, far = exchange === "all-to-all" && nodes > 1], i) => ({ path: paths[i], from, far, dot: sent() })); // from whom: null of a node to a node
    this.held = range(c ? all : 0).map((g) => ({ member: Math.floor(g / tensor), dot: svg("circle", { cx: x(g), cy: 30, r: radius / 2 }) }));
    this.messages.replaceChildren(...[...this.links, ...this.held].map(({ dot }) => dot));
    put(this.drawing, { viewBox: `0 0 ${wide} 168` });

    const { blocks, span } = this.timing = attn.mesh.schedule(c, exchange);
    this.scale = (wide - 66) / span;
    Object.entries(this.blocks).forEach(([kind, rects]) => rects.forEach((rect, i) => {
      const [from, to] = blocks[kind][i] ?? [0, 0];
      put(rect, { x: 62 + this.scale * from, width: Math.max(0, this.scale * (to - from) - (to > from)), y: { near: 115, far: 135 }[kind] ?? 95 });
    }));
    put(this.spans, { x: wide });
    this.step.textContent = c ? `a step: ${attn.mesh.time(1e3 * c.step, 3)}` + (gpus <= tensor ? "" : exchange === "all-to-all" ? `, swaps: ${c.swaps.map((seconds) => attn.number(1e3 * seconds)).join(" and ")} ms` : `, a message: ${attn.mesh.time(1e3 * c.travel, 3)}`) : "";
    const whole = c && c.attend + c.wait; // what is drawn may be its first steps
    this.spans.textContent = c ? `attention${span < 0.999 * whole ? `, ${attn.mesh.time(1e3 * span)}` : ""} of ${attn.mesh.time(1e3 * whole)}` : "";
    this.pass();
  }

  /* What the clock shows: who waits, and how far the messages are. */
  pass() {
    const { put } = attn, { blocks, span } = this.timing, now = this.clock * span, busy = blocks.work.some(([from, to]) => from <= now && now <= to);
    this.machine.classList.toggle("attn-waits", !busy && this.fits_in);
    this.machine.classList.toggle("attn-untouched", !this.fits_in);
    put(this.cursor, { d: this.fits_in ? `M${62 + this.scale * now} 92V152` : "" });
    const step = this.state.exchange === "all-to-all" ? 0 : Math.max(0, blocks.work.findLastIndex(([from]) => from <= now));
    const { round } = this, tint = (member, k) => { // of a block by who had it first
      const place = member % round, first = member - place + (place - k % round + round) % round;
      return `hsl(${55 + 14 * (first % 8)} 65% ${first % 2 ? 35 : 55}%)`; // neither blue nor red, which say who works
    };
    this.held.forEach(({ member, dot }) => { dot.style.fill = tint(member, step); });
    this.links.forEach(({ path, from, far, dot }) => {
      const all = from === null || far ? blocks.far : blocks.near;
      const k = all.findLastIndex(([start]) => start <= now), [start, end] = all[k] ?? [0, 1], share = Math.min(1, (now - start) / (end - start));
      const { x, y } = path.getPointAtLength(share * path.getTotalLength());
      dot.style.fill = from === null ? "" : tint(from, k);
      put(dot, { cx: x, cy: y, visibility: k < 0 ? "hidden" : "visible" });
    });
  }

  draw() {
    const { length, gpus, heads, exchange } = this.state, { number } = attn;
    const n = 2 ** length, tensor = 2 ** heads, context = 2 ** (gpus - heads);
    const whole = (x) => x.toLocaleString("en-US");
    const c = context < 1 ? null : attn.mesh.cost(n, context, tensor, exchange);
    const now = Object.keys(this.constructor.parts).map((part) => (c ? 1e3 * c[part] : 0)), total = this.total = c && 0.08 * attn.sum(now); // of 80 layers
    this.on = `${length} ${gpus}`;
    this.lay_out(c, 2 ** gpus, tensor);
    this.lay_tries(total);
    this.lay_bar(now, c);
    const why = context < 1 ? `${tensor} cannot share heads among so few GPUs.` : `an all-to-all over ${whole(context)} GPUs needs as many heads, and each has ${64 / tensor}.`;
    this.answer.textContent = c ? `80 layers: ${attn.mesh.time(1000 * total)}, ${whole(n / context)} token${n > context ? "s" : ""} ${tensor > 1 ? "in each frame" : "on each GPU"}` : `Does not fit: ${why}`;
    const mesh = `${whole(n)} tokens on ${whole(2 ** gpus)} GPU${gpus ? "s" : ""}`;
    const sentence = mesh + (c ? `, context ${whole(context)} × tensor ${tensor}, ${exchange}: ${number(total, 2)} seconds for 80 layers, `
      + `${number(8000 * c.wait / total, 0)} percent of them waiting.` : `: ${why}`);
    this.chart.setAttribute("aria-label", sentence);
    return sentence;
  }
});
