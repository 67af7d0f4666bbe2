/* The drawings of attn-puzzle.js. Each is { part, and what changes it }. */
attn.puzzle_drawings = (() => {
  "use strict";
  const { range } = attn, to = (part, is) => Object.entries(is).forEach(([name, value]) => part.setAttribute(name, value));
  const drawing = (viewBox, is = { class: "attn-clock", "aria-hidden": true }) => {
    const part = attn.svg("svg", { viewBox, ...is }), put = (tag, is, ...text) => part.appendChild(attn.svg(tag, is, ...text));
    return { part, put, box: (x, y, width, height, kind = "") => put("rect", { x, y, width, height, class: kind }),
      word: (x, y, text = "", kind = "") => put("text", { x, y, class: "attn-mid " + kind }, text) };
  };

  /* A bar of the letters that a token writes, or of one number up to 9. */
  const fill = ({ parts, frame, x }, row) => {
    const number = row?.length === 1;
    let from = x;
    frame.style.display = row ? "" : "none";
    parts.forEach(([part, text], c) => {
      const y = row?.[c] ?? 0, width = Math.max(0, Math.min(64 * (number ? y / 9 : y), x + 64 - from)), kind = "attn-mid attn-is-" + (number ? "n" : "abcd"[c]);
      to(part, { x: from, width, class: kind });
      to(text, { x: number ? x + 32 : from + width / 2, class: kind + (text.matches(".attn-unasked") ? " attn-unasked" : "") });
      text.textContent = number ? (c ? "" : +y.toFixed(1)) : width > 12 ? "abcd"[c] : "";
      from += width;
    });
  };

  /* The weights of each layer, what its tokens write, and below it the hidden texts. */
  const maps = (n, many) => {
    const tall = many > 1 && n > 4 ? 23 : 27, right = 52 + 34 * n, width = right + 160, block = 36 + tall * n, height = many * block + 30, tiles = [];
    const { part, box, word } = drawing(`0 0 ${width} ${height}`, { role: "img", style: `max-width: ${1.25 * width}px` });
    const tile = (x, y, wide = 32) => [box(x, y, wide, tall - 2), word(x + 16, y + tall / 2 - 1)];
    const bar = (x, y) => ({ parts: [..."abcd"].map(() => tile(x, y, 0)), frame: box(x, y, 64, tall - 2, "attn-axis"), x });
    const layers = range(many).map((layer) => {
      const top = layer * block, last = layer === many - 1;
      const heads = [[18, many > 1 ? `layer ${layer + 1}` : "query"], [right + 32, last ? "writes" : "passes on"], [right + 104, last ? "must write" : ""]];
      for (const [x, text] of heads) word(x, top + 12, text, "attn-small");
      for (const j of range(n)) tiles.push([j, ...tile(40 + 34 * j, top)]);
      return range(n).map((i) => {
        const y = top + 30 + tall * i;
        tiles.push([i, ...tile(0, y)]);
        return { cells: range(n).map((j) => tile(40 + 34 * j, y)), given: bar(right, y), asked: last && bar(right + 72, y), mark: word(right + 148, y + tall / 2 - 1, "", "attn-tick") };
      });
    });
    const lamps = range(8).map((k) => {
      const x = width - 20 * (8 - k);
      box(x, height - 20, 16, 18, "attn-axis");
      return box(x, height - 2, 16, 0);
    });
    const score = word(0, height - 11, "", "attn-start");
    return {
      part,
      paint: (weights, outs) => layers.forEach((rows, layer) => rows.forEach(({ cells, given }, i) => {
        cells.forEach(([box, text], j) => {
          const w = weights[layer][i][j];
          to(box, { style: w === 0 ? "" : `fill: rgb(${attn.colour("viridis", w)})` });
          to(text, { style: `fill: ${w > 0.55 ? "#000" : "#fff"}` });
          text.textContent = w < 0.005 ? "" : w > 0.995 ? "1" : attn.number(w, 2).slice(1);
        });
        fill(given, outs[layer][i]);
      })),
      // Of the hidden texts only how much of each is right
      show: (x, wants, right, shares) => {
        for (const [i, ...parts] of tiles) {
          for (const part of parts) to(part, { class: `attn-mid attn-is-${x[i].letter}` });
          parts[1].textContent = x[i].letter + (x[i].number || "");
        }
        const first = right.indexOf(false);
        layers.at(-1).forEach(({ cells, given, asked, mark }, i) => {
          for (const [box, text] of [...cells, ...given.parts]) {
            to(box, { opacity: wants[i] ? 1 : 0.3 });
            text.classList.toggle("attn-unasked", !wants[i]); // on a pale ground
          }
          fill(asked, wants[i]);
          mark.textContent = right[i] ? "✓" : wants[i] ? "✗" : "";
          for (const frame of [given.frame, mark]) frame.classList.toggle("attn-first-wrong", i === first);
        });
        lamps.forEach((lamp, k) => to(lamp, { style: `height: ${18 * shares[k]}px; transform: translateY(${-18 * shares[k]}px)`, class: "attn-is-" + (shares[k] === 1 ? "c" : "n") }));
        score.textContent = `Hidden texts: ${shares.filter((share) => share === 1).length} of ${shares.length}`;
      },
    };
  };

  /* The places round a clock, and the hand of each query. */
  const clock = () => {
    const { part, put, word } = drawing("-90 -60 180 120");
    put("circle", { r: 38, class: "attn-axis" });
    const hands = [[1, 0], [0, 1], [-1, 0], [0, -1]].map(([x, y], i) => {
      put("circle", { cx: 38 * x, cy: -38 * y, r: 4 });
      word(51 * x, -51 * y, i);
      return [put("path", { class: "attn-curve" }), word(0, 0, i, "attn-name attn-hand")];
    });
    return { part, paint: (asks) => hands.forEach(([hand, name], i) => {
      const scale = 28 / Math.max(1, ...asks.map((row) => Math.hypot(...row))), [x, y] = [scale * asks[i][0], -scale * asks[i][1]];
      to(hand, { d: `M0 0L${x} ${y}` });
      to(name, { x, y });
    }) };
  };

  /* For each place its scores over the rank, the highest marked; it should stand on the line. */
  const curves = () => {
    const { part, put, word } = drawing("0 0 320 112");
    const hills = range(4).map((p) => {
      const X = (r) => 13 + 80 * p + 18 * r;
      word(40 + 80 * p, 8, `p = ${p}`, "attn-small");
      put("path", { d: `M${X(p)} 20V90`, class: "attn-part" });
      for (const r of range(4)) word(X(r), 102, "abcd"[r], "attn-small");
      return [X, put("polyline", { class: "attn-curve" }), put("circle", { r: 4, cy: 26, class: "attn-mark" })];
    });
    return { part, paint: (asks) => hills.forEach(([X, curve, dot], p) => {
      const score = (r) => asks[p][0] * r + asks[p][1] * r * r, tops = range(4).map(score), top = Math.max(...tops);
      to(curve, { points: range(31).map((k) => [X(k / 10), Math.min(90, 26 + 7 * (top - score(k / 10)))]).join(" ") });
      to(dot, { cx: X(tops.indexOf(top)) });
    }) };
  };

  return { maps, clock, curves };
})();
