/* Chapter 1: move the query among 32 cars and see whom it asks. */
customElements.define("attn-pooling", class extends attn.Figure {
  static title = "Attention pooling over 32 cars";
  static start = { weight: 2.7, power: 110, kernel: "gaussian", bandwidth: 0.3 };
  static tasks = [{
    ask: "Press “narrow window”: the star stands on a light car, and the answer is 33.7 miles, nearly its 33.9. What will the answer be at bandwidth 2?",
    guesses: { same: "about 34, as before", light: "about 28, as the light cars", all: "about 23, near the mean of all" },
    right: ({ output }) => (output > 31 ? "same" : output > 25.5 ? "light" : "all"), // half way between two guesses
    done: ({ state: { weight, power, kernel, bandwidth } }) => weight === 1.8 && power === 66 && kernel === "gaussian" && bandwidth === 2,
    seen: ({ output, shares, all }) => `The answer is ${attn.number(output, 1)}, the mean of all ${attn.number(all, 1)} (dashed): every car pulls now, the nearest with ${attn.number(Math.max(...shares))}, the farthest with ${attn.number(Math.min(...shares))}; an even share is ${attn.number(1 / 32)}.`,
  }, {
    ask: "With other kernels there are places without any answer. Find one.",
    done: ({ empty }) => empty,
    seen: ({ state: { kernel, bandwidth } }) =>
      `The ${kernel} kernel ends, here at bandwidth ${bandwidth}, and no car stands within it: all weights are 0, and 0/0 is no mean.`,
  }];
  // Weight in thousand lb, horsepower, miles per gallon: attn_tutor.data.load_cars().
  static cars = `Mazda RX4,2.62,110,21
Mazda RX4 Wag,2.875,110,21
Datsun 710,2.32,93,22.8
Hornet 4 Drive,3.215,110,21.4
Hornet Sportabout,3.44,175,18.7
Valiant,3.46,105,18.1
Duster 360,3.57,245,14.3
Merc 240D,3.19,62,24.4
Merc 230,3.15,95,22.8
Merc 280,3.44,123,19.2
Merc 280C,3.44,123,17.8
Merc 450SE,4.07,180,16.4
Merc 450SL,3.73,180,17.3
Merc 450SLC,3.78,180,15.2
Cadillac Fleetwood,5.25,205,10.4
Lincoln Continental,5.424,215,10.4
Chrysler Imperial,5.345,230,14.7
Fiat 128,2.2,66,32.4
Honda Civic,1.615,52,30.4
Toyota Corolla,1.835,65,33.9
Toyota Corona,2.465,97,21.5
Dodge Challenger,3.52,150,15.5
AMC Javelin,3.435,150,15.2
Camaro Z28,3.84,245,13.3
Pontiac Firebird,3.845,175,19.2
Fiat X1-9,1.935,66,27.3
Porsche 914-2,2.14,91,26
Lotus Europa,1.513,113,30.4
Ford Pantera L,3.17,264,15.8
Ferrari Dino,2.77,175,19.7
Maserati Bora,3.57,335,15
Volvo 142E,2.78,109,21.4
`.trim().split("\n").map((line) => line.split(",")).map(([name, ...numbers]) => [name, ...numbers.map(Number)]);

  build() {
    const { html, svg, range } = attn, cars = this.constructor.cars;
    this.names = cars.map((car) => car[0]);
    this.values = cars.map((car) => [car[3]]);
    this.all = attn.sum(this.values.flat()) / cars.length;
    const features = cars.map((car) => car.slice(1, 3)), columns = attn.transpose(features);
    this.mean = columns.map((column) => attn.sum(column) / cars.length);
    this.deviation = columns.map((column, l) =>
      Math.sqrt(attn.sum(column.map((x) => (x - this.mean[l]) ** 2)) / cars.length));
    this.keys = features.map((car) => this.standardise(car));

    this.choice("kernel", "Kernel", { gaussian: "Gaussian", boxcar: "boxcar", triangular: "triangular", epanechnikov: "Epanechnikov" });
    this.slider("bandwidth", "Bandwidth", [0.05, 2, 0.05], (x) => x.toFixed(2));
    // The kernel against the distance from the star, and where the cars stand on it.
    this.curve = svg("path", { class: "attn-curve" });
    this.edge = svg("path", { class: "attn-reach" });
    this.places = cars.map(() => svg("circle", { r: 2.5 }));
    this.controls.append(svg("svg", { viewBox: "0 0 190 58", class: "attn-kernel", "aria-hidden": true }, svg("path", { class: "attn-axis", d: "M4 40H186" }), this.edge, this.curve, ...this.places,
      svg("text", { x: 4, y: 54 }, "0"), svg("text", { x: 186, y: 54, "text-anchor": "end" }, "distance, in deviations: 4")));
    this.presets("Case", {
      "narrow window": { weight: 1.8, power: 66, kernel: "gaussian", bandwidth: 0.05 },
      "wide window": { weight: 1.8, power: 66, kernel: "gaussian", bandwidth: 2 },
      "query far from all keys": { weight: 5.3, power: 60, kernel: "gaussian", bandwidth: 0.05 },
    });

    // The names of the axes stand outside the field, which is closed: what is too wide ends at its frame.
    this.plane = svg("svg", { class: "attn-plane" });
    const text = (words, more) => svg("text", more, words), middle = { "text-anchor": "middle" };
    this.field = [svg("rect"), svg("rect", { class: "attn-axis" })];
    this.ticks = [2, 3, 4, 5].map((weight) => [weight, text(String(weight), { y: 278, ...middle })]);
    this.names_of_axes = [text("weight (1000 lb)", { y: 296, ...middle }), text("mpg", { y: 14 })];
    const stops = range(9).map((i) => svg("stop", { offset: i / 8, "stop-color": `rgb(${attn.colour("cividis", i / 8)})` }));
    // Beside it the miles, as tall as the field. From each car a thread as thick as its weight; the answer is where they balance.
    this.beam = svg("rect", { width: 10, y: this.miles(33.9), height: this.miles(10.4) - this.miles(33.9), fill: "url(#attn-economy)" });
    this.marks = [15, 20, 25, 30].map((miles) => [miles, text(String(miles), { y: this.miles(miles) + 4 })]);
    this.level = svg("path", { class: "attn-reach" }); // the mean of all
    this.threads = cars.map(() => svg("path", { class: "attn-thread" }));
    this.mark = svg("path", { class: "attn-mark", d: "M0 0l12-7v14Z" });
    this.answer = text("", { class: "attn-answer" });
    this.plane.append(svg("clipPath", { id: "attn-field" }, this.field[0]), svg("linearGradient", { id: "attn-economy", x1: 0, x2: 0, y1: 1, y2: 0 }, ...stops), this.field[1],
      ...[100, 200, 300].map((y) => text(String(y), { x: 32, y: this.y(y) + 4, "text-anchor": "end" })), text("horsepower", { x: 0, y: 14 }),
      ...this.ticks.map(([, part]) => part), ...this.names_of_axes, this.beam, this.level, ...this.marks.map(([, part]) => part), ...this.threads);
    this.dots = cars.map(([name, , y, economy]) => this.plane.appendChild(svg("circle", {
      class: "attn-key", cy: this.y(y), fill: `rgb(${attn.colour("cividis", (economy - 10.4) / 23.5)})` },
      svg("title", {}, `${name}, ${economy} mpg`))));
    this.nearest = this.plane.appendChild(svg("ellipse", { class: "attn-part", "clip-path": "url(#attn-field)" })); // as far as the car that counts most, in deviations
    this.reach = this.plane.appendChild(svg("ellipse", { class: "attn-reach", "clip-path": "url(#attn-field)" }));
    this.handle = this.plane.appendChild(svg("g", { class: "attn-handle", tabindex: 0, role: "slider",
      "aria-label": "Query: the arrow keys move it", "aria-valuemin": 1.5, "aria-valuemax": 5.5 },
      svg("circle", { r: 22, class: "attn-grip" }),
      svg("path", { d: "M" + range(10).map((i) => {
        const r = i % 2 ? 4 : 10, angle = Math.PI * i / 5;
        return [r * Math.sin(angle), -r * Math.cos(angle)].map((x) => x.toFixed(1));
      }).join("L") + "Z" })));
    this.label = this.plane.appendChild(svg("text", { class: "attn-name" }));
    this.plane.append(this.mark, this.answer);
    attn.drag(this, this.plane, this.handle, (x, y) => this.move(1.4 + (x - 38) / this.unit, 30 + (262 - y) / 0.734),
      (dx, dy) => this.move(this.state.weight + 0.02 * dx, this.state.power + 2 * dy));

    this.picture.append(this.plane, html("p", {}, "Dashed: the bandwidth, and beside mpg the mean of all. Thin: as far as the nearest car, in standard deviations."));
    this.fit(this.plane);
  }

  x(weight) { return 38 + this.unit * (weight - 1.4); }
  y(power) { return 262 - 0.734 * (power - 30); }
  miles(mpg) { return 262 - 9.4 * (mpg - 9.5); }

  /* What depends on the room alone. */
  size(wide) {
    this.wide = wide;
    const axis = wide - 72, field = axis - Math.max(36, 0.13 * wide) - 38;
    [this.axis, this.unit] = [axis, field / 4.25];
    this.plane.setAttribute("viewBox", `0 0 ${wide} 302`);
    for (const part of this.field) attn.put(part, { x: 38, y: 22, width: field, height: 240 });
    for (const [weight, tick] of this.ticks) attn.put(tick, { x: this.x(weight) });
    for (const [i, name] of this.names_of_axes.entries()) attn.put(name, { x: [38 + field / 2, axis - 8][i] });
    for (const [, mark] of this.marks) attn.put(mark, { x: axis + 16 });
    attn.put(this.beam, { x: axis });
    attn.put(this.level, { d: `M${axis - 14} ${this.miles(this.all)}h24` });
    this.dots.forEach((dot, j) => attn.put(dot, { cx: this.x(this.constructor.cars[j][1]) }));
  }

  /* The weight that a car gets before the row is divided by its sum. */
  draw_kernel(query) {
    const { kernel, bandwidth } = this.state, end = 4, y = (x) => 38 - 32 * x, x = (distance) => 4 + 182 * distance / end;
    const at = (distance) => attn[kernel + "_kernel"]([[0]], [[distance]], bandwidth)[0][0];
    attn.put(this.curve, { d: "M" + attn.range(183).map((k) => `${4 + k} ${y(at(end * k / 182))}`).join("L") });
    attn.put(this.edge, { d: `M${x(bandwidth)} 6V40` });
    this.places.forEach((place, j) => {
      const distance = Math.hypot(...this.keys[j].map((value, l) => value - query[l]));
      attn.put(place, { cx: Math.min(186, x(distance)), cy: y(at(distance)), fill: `rgb(${attn.colour("cividis", (this.values[j][0] - 10.4) / 23.5)})` });
    });
  }

  standardise(car) { return car.map((x, l) => (x - this.mean[l]) / this.deviation[l]); }

  move(weight, power) {
    const within = (x, low, high) => Math.min(high, Math.max(low, x));
    this.set({ weight: +within(weight, 1.5, 5.5).toFixed(2), power: Math.round(within(power, 50, 340)) });
  }

  draw() {
    const { weight, power, kernel, bandwidth } = this.state, { number } = attn, wide = this.plane.clientWidth || 640;
    if (this.wide !== wide) this.size(wide);
    const query = [this.standardise([weight, power])];
    // The Gaussian is softmax of the scores, as on the page: it has an answer even where its kernel rounds to 0.
    const scores = this.keys.map((key) => -attn.sum(key.map((x, l) => (x - query[0][l]) ** 2)) / (2 * bandwidth ** 2));
    const A = kernel === "gaussian" ? attn.softmax([scores])
      : attn.normalize(attn[kernel + "_kernel"](query, this.keys, bandwidth)), shares = this.shares = A[0];
    const empty = this.empty = attn.sum(shares) === 0, output = attn.matmul(A, this.values)[0][0];
    this.output = output;

    const place = `${weight.toFixed(2)} thousand pounds, ${power} horsepower`;
    this.handle.setAttribute("aria-valuenow", weight);
    this.handle.setAttribute("aria-valuetext", place);

    // Whoever points at a car, with the mouse, a finger or the arrow keys, reads its name.
    const [x, y] = [this.x(weight), this.y(power)];
    const distances = this.dots.map((dot) => Math.hypot(dot.getAttribute("cx") - x, dot.getAttribute("cy") - y));
    const nearest = distances.indexOf(Math.min(...distances)), right = x > 0.4 * wide;
    this.label.textContent = distances[nearest] < 12 ? `${this.names[nearest]}, ${this.values[nearest][0]} mpg` : "";
    for (const [name, value] of Object.entries({ x: x + (right ? -16 : 16), y: y < 60 ? y + 24 : y - 14, "text-anchor": right ? "end" : "start" }))
      this.label.setAttribute(name, value);

    const first = shares.indexOf(Math.max(...shares));
    this.mark.classList.toggle("attn-empty", empty);
    this.glide("all", [weight, power, bandwidth, empty ? 8.4 : output, ...shares], ([weight, power, bandwidth, answer, ...shares]) => {
      const [cx, cy] = [this.x(weight), this.y(power)], { axis } = this;
      this.handle.setAttribute("transform", `translate(${cx} ${cy})`);
      const from = this.standardise([weight, power]), far = Math.hypot(...this.keys[first].map((x, l) => x - from[l]));
      for (const [ring, radius] of [[this.reach, bandwidth], [this.nearest, empty ? 0 : far]])
        attn.put(ring, { cx, cy, rx: this.unit * radius * this.deviation[0], ry: 0.734 * radius * this.deviation[1] });
      this.mark.setAttribute("transform", `translate(${axis + 11} ${this.miles(answer)})`);
      attn.put(this.answer, { x: axis + 26, y: this.miles(answer) + 4 });
      for (const [miles, mark] of this.marks) mark.classList.toggle("attn-empty", Math.abs(miles - answer) < 2);
      this.dots.forEach((dot, j) => {
        const [x, y, end] = [+dot.getAttribute("cx"), +dot.getAttribute("cy"), this.miles(this.values[j][0])];
        dot.setAttribute("r", Math.sqrt(9 + 300 * shares[j]));
        attn.put(this.threads[j], { visibility: shares[j] < 5e-4 ? "hidden" : "visible", d: `M${x} ${y}C${(x + axis) / 2} ${y} ${(x + axis) / 2} ${end} ${axis} ${end}`, "stroke-width": 26 * shares[j] });
      });
    });
    const count = shares.filter((share) => share >= 5e-4).length; // what is printed as 0.001 and more
    this.draw_kernel(query[0]);
    this.answer.textContent = empty ? "0/0" : number(output, 2);
    return `The query stands at ${place}. ` + (empty
      ? "No car lies within reach: the window is empty, all weights are 0, and so is their sum."
      : `${count} of 32 cars have a weight of 0.001 or more. ${this.names[first]} counts most, ${number(shares[first])}. The answer is ${number(output, 2)} mpg.`);
  }
});
