/* Chapter 9, train it here: the loss as it falls, and a sample every hundred steps, on the book's prose or on your text. */
document.addEventListener("attn-live", ({ detail: live }) => {
  const before = document.getElementById("exercises");
  if (attnLive.page !== "book/09_transformer" || !before) return;
  const { html, button } = attnLive, { svg } = attn;
  const area = html("textarea", { id: "attn-corpus", rows: 4, spellcheck: "false", maxlength: 2_000_000 });
  const seed = html("input", { id: "attn-seed", type: "number", value: 0, min: 0, max: 9999 });
  const said = html("p", { role: "status" }), samples = html("ol", { class: "attn-samples" }), chart = html("div");
  const notes = [live.keep("my text", area), live.keep("my seed", seed)];

  const draw = (losses, of) => {
    const x = (step) => 40 + 350 * step / of, top = Math.max(...losses.map(([, loss]) => loss), 4), y = (loss) => 160 - 135 * loss / top;
    const [step, loss] = losses.at(-1);
    const picture = svg("svg", { viewBox: "0 0 400 200", role: "img", "aria-label": `The loss has fallen to ${loss.toFixed(2)} nats after ${step} steps.` });
    for (let nats = 0; nats <= top; nats++)
      picture.append(svg("path", { d: `M40 ${y(nats)}H390`, class: "attn-axis" }), svg("text", { x: 32, y: y(nats) + 4, "text-anchor": "end" }, nats));
    for (let k = 0; k <= 4; k++) picture.append(svg("text", { x: x(of * k / 4), y: 176, "text-anchor": "middle" }, of * k / 4));
    picture.append(svg("text", { x: 215, y: 194, "text-anchor": "middle" }, "steps"), svg("text", { x: 8, y: 12 }, "loss (nats)"),
      svg("path", { d: "M" + losses.map(([a, b]) => `${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("L"), class: "attn-curve" }));
    chart.replaceChildren(picture);
  };

  const run = async (code) => {
    let last = [0, 0];
    begin.disabled = on.disabled = !(stop.disabled = false);
    said.textContent = "It begins …";
    const words = await live.hear(`from attn_tutor.live import training as _training\n${code}_run.run()`, "training", ({ losses, of, sample }) => {
      const [step, loss] = last = losses.at(-1);
      draw(losses, of);
      if (sample !== null) {
        samples.prepend(html("li", { value: step }, sample));
        said.textContent = `Step ${step} of ${of}: loss ${loss.toFixed(2)}.`; // said aloud every hundred steps
      }
    });
    begin.disabled = on.disabled = !(stop.disabled = true);
    said.textContent = words || (last[0] ? `After ${last[0]} steps the loss is ${last[1].toFixed(2)}.` : "Stopped.");
  };
  const begin = button("Train", () => {
    samples.replaceChildren();
    chart.replaceChildren();
    return run(`_run = _training.Training(${JSON.stringify(area.value)}, ${Number(seed.value)})\n`);
  });
  const stop = button("Stop", () => live.kernel.interrupt());
  const on = button("Go on", () => run("if '_run' not in globals(): raise RuntimeError('Python has no training to go on with, or has forgotten it: Train begins one')\n"));
  stop.disabled = true;
  before.before(html("div", { class: "attn-live attn-ask", role: "group", "aria-label": "Train it here" },
    html("p", {}, html("strong", {}, "Train it here."), " The model of this chapter, on your machine: 800 steps, which you can stop and go on with. Another seed is another model."),
    html("label", { for: "attn-corpus" }, "Now your data: paste a text of 2,000 characters or more (of a long one the first two million stay), or leave this empty for the book's prose"), html("div", { class: "attn-text" }, area),
    html("div", { class: "attn-tools" }, html("label", { for: "attn-seed" }, "Seed"), seed, begin, stop, on), ...notes, said, chart,
    html("p", {}, "What it writes, a sample every hundred steps, the newest first:"), samples));
});
