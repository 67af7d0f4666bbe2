/* Chapter 9, train it here: the loss as it falls, and a sample every hundred steps, on the book's prose or on your text. */
document.addEventListener("attn-live", ({ detail: live }) => {
  const before = document.getElementById("exercises");
  if (attnLive.page !== "book/09_transformer" || !before) return;
  const { html, button } = attnLive;
  // What a message to the server may hold is 10 MB.
  const area = html("textarea", { id: "attn-corpus", rows: 4, spellcheck: "false", maxlength: 2_000_000 });
  const seed = html("input", { id: "attn-seed", type: "number", value: 0, min: 0, max: 9999 });
  const said = html("p", { role: "status" }), samples = html("ol", { class: "attn-samples" }), chart = html("div");
  let losses = [];

  const NS = "http://www.w3.org/2000/svg";
  const svg = (tag, attributes, text = "") => {
    const made = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  };
  const draw = (of) => {
    const x = (step) => 40 + 350 * step / of, top = Math.max(...losses.map(([, loss]) => loss), 4), y = (loss) => 150 - 140 * loss / top;
    const [step, loss] = losses.at(-1);
    const picture = svg("svg", { viewBox: "0 0 400 180", role: "img", "aria-label": `The loss has fallen to ${loss.toFixed(2)} nats after ${step} steps.` });
    for (let nats = 0; nats <= top; nats++)
      picture.append(svg("path", { d: `M40 ${y(nats)}H390`, class: "attn-grid" }), svg("text", { x: 32, y: y(nats) + 4, "text-anchor": "end" }, nats));
    for (let k = 0; k <= 4; k++) picture.append(svg("text", { x: x(of * k / 4), y: 165, "text-anchor": "middle" }, of * k / 4));
    picture.append(svg("text", { x: 215, y: 178, "text-anchor": "middle" }, "steps"), svg("text", { x: 44, y: 12 }, "loss (nats)"),
      svg("path", { d: "M" + losses.map(([a, b]) => `${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("L"), class: "attn-curve" }));
    chart.replaceChildren(picture);
  };

  const run = async (code) => {
    begin.disabled = on.disabled = !(stop.disabled = false);
    said.textContent = "It begins …";
    const words = await live.hear(`from attn_tutor.live import training as _training\n${code}_run.run()`, "training", ({ step, of, loss, sample }) => {
      losses.push([step, loss]);
      draw(of);
      if (sample !== undefined) {
        samples.prepend(html("li", { value: step }, sample));
        said.textContent = `Step ${step} of ${of}: loss ${loss.toFixed(2)}.`; // said aloud every hundred steps
      }
    });
    begin.disabled = !(stop.disabled = true);
    on.disabled = !losses.length;
    const [step, loss] = losses.at(-1) ?? [0, 0];
    said.textContent = words || `After ${step} steps the loss is ${loss.toFixed(2)}.`;
  };
  const begin = button("Train", () => {
    losses = [];
    samples.replaceChildren();
    chart.replaceChildren();
    return run(`_run = _training.Training(${JSON.stringify(area.value)}, ${Number(seed.value)})\n`);
  });
  const stop = button("Stop", () => live.kernel.interrupt());
  const on = button("Go on", () => run("if '_run' not in globals(): raise RuntimeError('Python has forgotten this training: Train begins another')\n"));
  stop.disabled = on.disabled = true;
  before.before(html("div", { class: "attn-ask", role: "group", "aria-label": "Train it here" },
    html("p", {}, html("strong", {}, "Train it here."), " The model of this chapter, on your machine: 800 steps, which you can stop and go on with. Another seed is another model."),
    html("label", { for: "attn-corpus" }, "Now your data: paste a text of 2,000 characters or more (of a long one the first two million stay), or leave this empty for the book's prose"), area,
    html("div", { class: "attn-tools" }, html("label", { for: "attn-seed" }, "Seed"), seed, begin, stop, on), said, chart,
    html("p", {}, "What it writes, a sample every hundred steps, the newest first:"), samples));
});
