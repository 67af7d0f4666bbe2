// Redraws the lines of attn_tutor.figures.head_view for the chosen layer, head and query.
(() => {
  const view = document.currentScript.parentElement;
  const [, heads, n, m] = view.dataset.shape.split(",").map(Number);
  const weights = Uint8Array.from(atob(view.dataset.weights), letter => letter.charCodeAt(0));
  const [layer, head, query] = view.querySelectorAll("select");
  const lines = view.querySelector("g"), said = view.querySelector("output");
  const ROW = 24, LEFT = 150, RIGHT = 290, LEAST = 5;

  function draw() {
    const start = (Number(layer.value) * heads + Number(head.value)) * n * m;
    const only = Number(query.value) - 1; // -1 is all
    lines.replaceChildren();
    for (let i = 0; i < n; i++) {
      if (only >= 0 && i !== only) continue;
      for (let j = 0; j < m; j++) {
        const level = weights[start + i * m + j];
        if (level < LEAST) continue;
        const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
        const places = { x1: LEFT, y1: ROW * i + ROW / 2, x2: RIGHT, y2: ROW * j + ROW / 2 };
        for (const name in places) line.setAttribute(name, places[name]);
        line.setAttribute("stroke-opacity", (level / 255).toFixed(3));
        lines.append(line);
      }
    }
    view.querySelectorAll("[data-query]").forEach((word, i) => word.setAttribute("opacity", only < 0 || i === only ? 1 : 0.4));
    said.textContent = only < 0 ? "" : summary(weights.subarray(start + only * m, start + (only + 1) * m));
  }

  function summary(row) {
    const best = row.indexOf(Math.max(...row));
    return `most on ${best}: ${view.querySelectorAll("[data-key]")[best].textContent}, ${(row[best] / 255).toFixed(2)}`;
  }

  for (const choice of [layer, head, query]) choice.addEventListener("change", draw);
  view.querySelectorAll("[data-query]").forEach((word, i) => {
    word.style.cursor = "pointer";
    word.addEventListener("click", () => {
      query.value = Number(query.value) === i + 1 ? 0 : i + 1;
      draw();
    });
  });
  view.querySelector("p").hidden = false;
  draw();
})();
