/* Chapter 1: move the query among 32 cars and see whom it asks. */
customElements.define("attn-pooling", class extends attn.Figure {
  static title = "Attention pooling over 32 cars";
  static start = { weight: 2.7, power: 110, kernel: "gaussian", bandwidth: 0.3 };
  static tasks = [{
    ask: "The thirstiest car goes 10.4 miles on a gallon, the thriftiest 33.9. Can the answer lie outside that range? Try every kernel, and places near the edge.",
    guesses: { yes: "yes", no: "no" },
    right: (figure, met) => (met.get("least") < 10.4 || met.get("most") > 33.9 ? "yes" : "no"),
    done: ({ state: { kernel }, output, empty }, met) => {
      met.set(kernel);
      if (!empty) met.set("least", Math.min(output, met.get("least") ?? Infinity)).set("most", Math.max(output, met.get("most") ?? -Infinity));
      return ["gaussian", "boxcar", "triangular", "epanechnikov"].every((name) => met.has(name)) && met.get("least") < 15 && met.get("most") > 26;
    },
    seen: (figure, met) => `Your answers went from ${attn.number(met.get("least"), 1)} to ${attn.number(met.get("most"), 1)}. Each is a mean of the cars, with weights that sum to 1; no mean lies outside.`,
  }, {
    ask: "Yet there are places without any answer. Find one.",
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
    const features = cars.map((car) => car.slice(1, 3)), columns = attn.transpose(features);
    this.mean = columns.map((column) => attn.sum(column) / cars.length);
    this.deviation = columns.map((column, l) =>
      Math.sqrt(attn.sum(column.map((x) => (x - this.mean[l]) ** 2)) / cars.length));
    this.keys = features.map((car) => this.standardise(car));

    this.choice("kernel", "Kernel", { gaussian: "Gaussian", boxcar: "boxcar", triangular: "triangular", epanechnikov: "Epanechnikov" });
    this.slider("bandwidth", "Bandwidth", [0.05, 2, 0.05], (x) => x.toFixed(2));
    this.presets("Case", {
      "narrow window": { weight: 1.8, power: 66, kernel: "gaussian", bandwidth: 0.05 },
      "wide window": { weight: 1.8, power: 66, kernel: "gaussian", bandwidth: 2 },
      "query far from all keys": { weight: 5.3, power: 60, kernel: "gaussian", bandwidth: 0.3 },
    });

    // The names of the axes and the legend stand outside the field, which is closed: what is too wide ends at its frame.
    this.plane = svg("svg", { viewBox: "0 0 400 340", class: "attn-plane" });
    const field = { x: 44, y: 34, width: 352, height: 268 };
    this.plane.append(svg("clipPath", { id: "attn-field" }, svg("rect", field)), svg("rect", { class: "attn-axis", ...field }));
    for (const x of [2, 3, 4, 5]) this.plane.append(svg("text", { x: this.x(x), y: 318, "text-anchor": "middle" }, String(x)));
    for (const y of [100, 200, 300]) this.plane.append(svg("text", { x: 38, y: this.y(y) + 4, "text-anchor": "end" }, String(y)));
    this.plane.append(svg("text", { x: 220, y: 336, "text-anchor": "middle" }, "weight (1000 lb)"), svg("text", { x: 6, y: 20 }, "horsepower"));
    const stops = range(9).map((i) => svg("stop", { offset: i / 8, "stop-color": `rgb(${attn.colour("cividis", i / 8)})` }));
    this.plane.append(svg("linearGradient", { id: "attn-economy" }, ...stops),
      svg("rect", { x: 240, y: 10, width: 100, height: 10, fill: "url(#attn-economy)" }),
      svg("text", { x: 234, y: 20, "text-anchor": "end" }, "10"), svg("text", { x: 346, y: 20 }, "34 mpg"));
    this.mark = this.plane.appendChild(svg("path", { class: "attn-mark", d: "M0 0l5 9h-10Z" })); // the answer, under the colours
    this.dots = cars.map(([name, x, y, economy]) => this.plane.appendChild(svg("circle", {
      class: "attn-key", cx: this.x(x), cy: this.y(y), fill: `rgb(${attn.colour("cividis", (economy - 10.4) / 23.5)})` },
      svg("title", {}, `${name}, ${economy} mpg`))));
    this.reach = this.plane.appendChild(svg("ellipse", { class: "attn-reach", "clip-path": "url(#attn-field)" }));
    this.handle = this.plane.appendChild(svg("g", { class: "attn-handle", tabindex: 0, role: "slider",
      "aria-label": "Query: the arrow keys move it", "aria-valuemin": 1.5, "aria-valuemax": 5.5 },
      svg("circle", { r: 22, class: "attn-grip" }),
      svg("path", { d: "M" + range(10).map((i) => {
        const r = i % 2 ? 4 : 10, angle = Math.PI * i / 5;
        return [r * Math.sin(angle), -r * Math.cos(angle)].map((x) => x.toFixed(1));
      }).join("L") + "Z" })));
    this.label = this.plane.appendChild(svg("text", { class: "attn-name" }));
    attn.drag(this, this.plane, this.handle, (x, y) => this.move(1.4 + (x - 44) / 83, 40 + (294 - y) / 0.82),
      (dx, dy) => this.move(this.state.weight + 0.02 * dx, this.state.power + 2 * dy));

    this.rows = range(5).map(() => [html("th", { scope: "row" }), html("td", { class: "attn-bar" }), html("td")]);
    this.answer = html("p", { class: "attn-answer" });
    this.picture.append(this.plane, html("div", {},
      attn.table("The five that count most", ["car", "attention", "mpg"], this.rows), this.answer));
  }

  x(weight) { return 44 + 83 * (weight - 1.4); }
  y(power) { return 294 - 0.82 * (power - 40); }
  standardise(car) { return car.map((x, l) => (x - this.mean[l]) / this.deviation[l]); }

  move(weight, power) {
    const within = (x, low, high) => Math.min(high, Math.max(low, x));
    this.set({ weight: +within(weight, 1.5, 5.5).toFixed(2), power: Math.round(within(power, 50, 340)) });
  }

  draw() {
    const { weight, power, kernel, bandwidth } = this.state, { number } = attn;
    const query = [this.standardise([weight, power])];
    // The Gaussian is softmax of the scores, as on the page: it has an answer even where its kernel rounds to 0.
    const scores = this.keys.map((key) => -attn.sum(key.map((x, l) => (x - query[0][l]) ** 2)) / (2 * bandwidth ** 2));
    const A = kernel === "gaussian" ? attn.softmax([scores])
      : attn.normalize(attn[kernel + "_kernel"](query, this.keys, bandwidth)), shares = A[0];
    const empty = this.empty = attn.sum(shares) === 0, output = attn.matmul(A, this.values)[0][0];
    this.output = output;

    const place = `${weight.toFixed(2)} thousand pounds, ${power} horsepower`;
    this.handle.setAttribute("aria-valuenow", weight);
    this.handle.setAttribute("aria-valuetext", place);

    // Whoever points at a car, with the mouse, a finger or the arrow keys, reads its name.
    const [x, y] = [this.x(weight), this.y(power)];
    const distances = this.dots.map((dot) => Math.hypot(dot.getAttribute("cx") - x, dot.getAttribute("cy") - y));
    const nearest = distances.indexOf(Math.min(...distances)), right = x > 220;
    this.label.textContent = distances[nearest] < 12 ? `${this.names[nearest]}, ${this.values[nearest][0]} mpg` : "";
    for (const [name, value] of Object.entries({ x: x + (right ? -16 : 16), y: y < 60 ? y + 24 : y - 14, "text-anchor": right ? "end" : "start" }))
      this.label.setAttribute(name, value);

    const order = shares.map((_, j) => j).sort((a, b) => shares[b] - shares[a]);
    this.rows.forEach(([name, share, economy], place) => {
      const j = order[place], asked = shares[j] > 0;
      name.textContent = asked ? this.names[j] : "–";
      share.textContent = number(shares[j]);
      economy.textContent = asked ? this.values[j][0].toFixed(1) : "–";
    });
    this.mark.classList.toggle("attn-empty", empty);
    this.glide("all", [weight, power, bandwidth, empty ? 10.4 : output, ...shares], ([weight, power, bandwidth, answer, ...shares]) => {
      const [cx, cy] = [this.x(weight), this.y(power)];
      this.handle.setAttribute("transform", `translate(${cx} ${cy})`);
      for (const [name, value] of Object.entries({ cx, cy, rx: 83 * bandwidth * this.deviation[0], ry: 0.82 * bandwidth * this.deviation[1] }))
        this.reach.setAttribute(name, value);
      this.mark.setAttribute("transform", `translate(${240 + 100 * (answer - 10.4) / 23.5} 21)`);
      this.dots.forEach((dot, j) => dot.setAttribute("r", Math.sqrt(9 + 500 * shares[j])));
      this.rows.forEach(([, share], place) => share.style.setProperty("--share", shares[order[place]]));
    });
    const count = shares.filter((share) => share > 0).length;
    this.answer.textContent = empty ? "No answer: all weights are 0" : `Answer: ${number(output, 2)} mpg`;
    return `The query stands at ${place}. ` + (empty
      ? "No car lies within reach: the window is empty, all weights are 0, and so is their sum."
      : `${count} of 32 cars have a weight above 0. ${this.names[order[0]]} counts most, ${number(shares[order[0]])}. The answer is ${number(output, 2)} mpg.`);
  }
});
