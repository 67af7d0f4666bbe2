/* What all figures that move have in common: a state, controls that show and change it, one redraw a frame, and a
   sentence for those who listen, which only they get where the picture says it. What stands between the tags is the still
   figure: it shows without scripts and in print.
   A subclass has title, start (its state), build() and draw(), which returns the sentence; tasks are in attn-task.js. */
attn.Figure = class extends HTMLElement {
  connectedCallback() {
    if (this.live) return;
    this.classList.add("attn-figure");
    this.state = structuredClone(this.constructor.start);
    this.redraws = 0;
    this.syncs = [];
    this.fits = {}; // for each key of the state, what its control can show
    const still = attn.html("div", { class: "attn-still" });
    still.append(...this.childNodes);
    this.controls = attn.html("div", { class: "attn-controls" });
    this.picture = attn.html("div", { class: "attn-picture" });
    this.words = attn.html("p", { class: "attn-words visually-hidden", role: "status", "aria-live": "polite" });
    this.task = new attn.Task(this);
    this.live = attn.html("div", { class: "attn-live", role: "group", "aria-label": this.constructor.title },
      this.task.part, this.controls, this.picture, this.words, attn.foot(this));
    this.append(still, this.live);
    this.build();
    attn.follow_links(this);
    this.redraw();
    this.say();
  }

  set(change) {
    Object.assign(this.state, change);
    this.frame ??= requestAnimationFrame(() => this.redraw());
  }

  redraw() {
    this.frame = null;
    this.redraws += 1;
    for (const sync of this.syncs) sync();
    this.sentence = this.draw();
    this.task.look();
    // A voice reads each change to the end: it hears only where the figure comes to rest.
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.say(), 300);
  }

  say() {
    if (this.told !== this.sentence) this.words.replaceChildren(...attn.typeset(this.told = this.sentence));
  }

  /* Back to the start, with the tasks anew. */
  again() {
    this.stop?.();
    this.task.begin(0);
    this.set(structuredClone(this.constructor.start));
  }

  slider(key, name, [min, max, step], show = String) {
    this.fits[key] = (value) => value >= min && value <= max;
    const input = attn.html("input", { type: "range", min, max, step, "aria-label": name }), shown = attn.html("span");
    input.addEventListener("input", () => this.set({ [key]: +input.value }));
    this.control(attn.html("label", {}, name + ": ", shown, input), () => {
      input.value = this.state[key];
      shown.textContent = show(this.state[key]);
      input.setAttribute("aria-valuetext", shown.textContent);
    });
  }

  choice(key, name, options) {
    this.fits[key] = (value) => Object.hasOwn(options, value);
    const select = attn.html("select", { "aria-label": name }, ...Object.entries(options).map(([value, text]) => attn.html("option", { value }, text)));
    select.addEventListener("change", () => this.set({ [key]: select.value }));
    this.control(attn.html("label", {}, name, select), () => { select.value = this.state[key]; });
  }

  /* A list and a button: what is chosen counts when the button is pressed, so that arrow keys can walk through the list. */
  commit(key, name, options, verb) {
    this.fits[key] = (value) => Object.hasOwn(options, value);
    const select = attn.html("select", { "aria-label": name }, ...Object.entries(options).map(([value, text]) => attn.html("option", { value }, text)));
    const button = attn.button(verb, () => this.set({ [key]: select.value }));
    let shown;
    this.control(attn.html("div", { class: "attn-commit" }, attn.html("label", {}, name, select), button), () => {
      if (shown !== this.state[key]) select.value = shown = this.state[key]; // a choice that waits for the button stays
    });
  }

  check(key, name) {
    const box = attn.html("input", { type: "checkbox" });
    box.addEventListener("change", () => this.set({ [key]: box.checked }));
    this.control(attn.html("label", { class: "attn-check" }, box, name), () => { box.checked = this.state[key]; });
  }

  button(name, press) {
    this.control(attn.button(name, () => this.set(press(this.state))), () => {});
  }

  /* Buttons that set part of the state at once; the one that holds is pressed. */
  presets(name, options) {
    const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
    const buttons = Object.entries(options).map(([text, change]) => [attn.button(text, () => this.set(structuredClone(change))), change]);
    const { html } = attn;
    this.control(html("div", { class: "attn-buttons", role: "group", "aria-label": name }, html("span", {}, name + ":"), ...buttons.map(([button]) => button)), () => {
      for (const [button, change] of buttons)
        button.setAttribute("aria-pressed", Object.keys(change).every((key) => same(change[key], this.state[key])));
    });
  }

  /* A button that lets time pass: step() every so many milliseconds until it says false, or the button is pressed again.
     Readers who want reduced motion see the end at once. */
  player(name, pause, step) {
    const button = attn.button(name, () => {
      if (this.stop) return this.stop();
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
        while (step());
        return undefined;
      }
      if (!step()) return undefined; // the first at once
      const timer = setInterval(() => step() || this.stop?.(), pause);
      button.textContent = "Stop";
      this.stop = () => {
        clearInterval(timer);
        button.textContent = name;
        this.stop = null;
      };
    });
    this.control(button, () => {});
  }

  /* What is drawn in pixels, so that letters are as large on a phone, is drawn anew where there is more or less room. */
  fit(part) {
    let wide = 0;
    new ResizeObserver(([{ contentRect: { width } }]) => {
      if (width && width !== wide) this.set({});
      wide = width;
    }).observe(part);
  }

  /* Numbers glide from what is painted to what the state says, where motion is welcome: slowly off and slowly in. Where they
     are on their way already, as under a slider, they follow at once. What a hand drags stays under it. */
  glide(name, goal, paint, time = 500) {
    const glides = this.glides ??= new Map(), before = glides.get(name), from = before?.now, begun = performance.now();
    const still = this.dragged || from?.length !== goal.length || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const mine = { now: goal, under_way: true }, pace = before?.under_way ? (x) => 1 - (1 - x) ** 3 : (x) => x * x * (3 - 2 * x);
    glides.set(name, mine);
    const frame = () => {
      if (glides.get(name) !== mine) return; // another way has begun
      const share = still ? 1 : Math.min(1, (performance.now() - begun) / time);
      mine.under_way = share < 1;
      mine.now = share < 1 ? goal.map((x, i) => from[i] + (x - from[i]) * pace(share)) : goal;
      paint(mine.now);
      if (share < 1) requestAnimationFrame(frame);
    };
    frame();
  }

  control(part, sync) {
    this.controls.append(part);
    this.syncs.push(sync);
  }
};

Object.assign(attn, (() => {
  "use strict";
  const make = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const html = (tag, attributes = {}, ...children) => make(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) =>
    make(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  const put = (node, attributes) => make(node, attributes, []);
  const button = (name, press) => {
    const made = html("button", { type: "button" }, name);
    made.addEventListener("click", press);
    return made;
  };
  const table = (caption, head, rows) => html("table", {}, html("caption", {}, caption),
    html("thead", {}, html("tr", {}, ...head.map((name) => html("th", { scope: "col" }, name)))),
    html("tbody", {}, ...rows.map((cells) => html("tr", {}, ...cells))));

  /* A heat map, one row a query. Columns from the one after "painted" stay plain. */
  const heat = (caption, n, columns, painted = columns.length) => {
    const cells = attn.range(n).map(() => columns.map(() => html("td")));
    const heads = attn.range(n).map(() => html("th", { scope: "row" }));
    const map = table(caption, ["", ...columns], heads.map((head, i) => [head, ...cells[i]]));
    map.classList.add("attn-heat");
    const names = [...map.tHead.rows[0].cells].slice(1);
    const show = (A, rows, palette = "viridis", share = (x) => x, text = (x) => (x === 0 ? "0" : number(x))) => A.forEach((line, i) => {
      heads[i].textContent = rows[i];
      line.forEach((x, j) => {
        cells[i][j].textContent = text(x);
        if (j < painted && x === x) paint(cells[i][j], palette, share(x));
        cells[i][j].classList.toggle("attn-nan", Number.isNaN(x));
      });
    });
    return { map, names, cells, show };
  };

  // A true minus, and no minus before 0.000.
  const number = (x, digits = 3) => {
    const text = Math.abs(x).toFixed(digits);
    return Number.isNaN(x) ? "NaN" : (x < 0 && +text ? "−" : "") + text;
  };
  const row = (xs, digits = 3) => "(" + xs.map((x) => number(x, digits)).join(", ") + ")";

  // The maps of the book's figures, at nine places each.
  const maps = Object.fromEntries(Object.entries({
    viridis: "440154472d7b3b528b2c728e21918c28ae805ec962addc30fde725",
    cividis: "00224e1a386f434e6c61656f7d7c789b9476bcae6cdec958fee838",
    PuOr: "7f3b08be630aef9e3cfed7a2f6f6f7cecde4988dbe5d37902d004b",
  }).map(([name, hex]) => [name, hex.match(/../g).map((part) => parseInt(part, 16))]));
  const colour = (map, share) => {
    const x = 8 * Math.min(1, Math.max(0, share)), i = Math.min(7, Math.floor(x));
    return attn.range(3).map((c) => Math.round(maps[map][3 * i + c] * (i + 1 - x) + maps[map][3 * i + 3 + c] * (x - i)));
  };
  const paint = (cell, map, share) => {
    const rgb = colour(map, share);
    const light = attn.sum(rgb.map((c, i) => [0.2126, 0.7152, 0.0722][i] * (c / 255) ** 2.2));
    cell.style.background = `rgb(${rgb})`;
    cell.style.color = light > 0.18 ? "#000" : "#fff";
  };

  /* The colours of a canvas, pixel by pixel, row by row, with or without their opacity; null stays clear. */
  const pixels = (canvas, colours) => {
    const brush = canvas.getContext("2d"), image = brush.createImageData(canvas.width, canvas.height);
    colours.forEach((rgb, i) => rgb && image.data.set([...rgb, 255].slice(0, 4), 4 * i));
    brush.putImageData(image, 0, 0);
  };

  /* A point that a pointer or the arrow keys move. place(x, y) gets the pointer in the picture's own units, step(dx, dy)
     an arrow, ten times as far with Shift; Home and End go along x as far as there is room. */
  const drag = (figure, picture, handle, place, step) => {
    const at = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
      place.call(figure, point.x, point.y);
    };
    handle.addEventListener("pointerdown", (event) => {
      figure.dragged = handle;
      handle.setPointerCapture(event.pointerId);
    });
    handle.addEventListener("pointermove", (event) => figure.dragged && at(event));
    handle.addEventListener("touchstart", (event) => event.preventDefault()); // or the page scrolls under the finger
    for (const end of ["pointerup", "pointercancel"]) handle.addEventListener(end, () => { figure.dragged = null; });
    picture.addEventListener("click", (event) => {
      at(event);
      handle.focus({ preventScroll: true });
      handle.classList.add("attn-pointed"); // a browser takes this focus for one of the keyboard, and would frame it
    });
    for (const end of ["keydown", "blur"]) handle.addEventListener(end, () => handle.classList.remove("attn-pointed"));
    handle.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], Home: [-1e3, 0], End: [1e3, 0] }[event.key];
      if (!way) return;
      event.preventDefault();
      step.call(figure, ...way.map((d) => d * (event.shiftKey ? 10 : 1)));
    });
  };

  /* "W_q" with its letter below the line, on a page or in a drawing. */
  const typeset = (text, tag = "sub") => text.split(/(?<=[A-Z])_(\w)(?!\w)/).flatMap((piece, k) => (!piece ? [] : k % 2
    ? (tag === "sub" ? html("sub", {}, piece) : svg("tspan", { dy: 3, "font-size": 9 }, piece))
    : (tag === "sub" ? piece : svg("tspan", { dy: k ? -3 : 0 }, piece))));

  return { html, svg, typeset, put, button, table, heat, number, row, colour, paint, pixels, drag };
})());
