/* What a layer of attention costs on a mesh of H100s. The model is attention_cost of attn_tutor.ledger, with 64 query heads and
   8 heads of keys and values of width 128. */
attn.mesh = (() => {
  "use strict";
  /* Seconds of one layer, part by part, or null where the mesh does not fit. */
  const cost = (n, context, tensor, exchange) => {
    const flops = 989.4e12, link = 450e9, network = 50e9, node = 8, start = 8.4e-6, width = 128, all = 64, bytes = 2;
    if (n % context || all % tensor || (exchange === "all-to-all" && (all / tensor) % context)) return null;
    const tokens = n / context, here = all / tensor, kv = Math.ceil(8 / tensor);
    const joint = (span) => (span <= node ? [link, 3.4e-6] : [network, 14e-6]);
    const project = 4 * tokens * all * width * (here + kv) * width / flops;
    const attend = 4 * here * width * (n * (n + 1) / 2) / context / flops;
    const block = 2 * tokens * kv * width * bytes, near = Math.min(context, Math.max(1, Math.floor(node / tensor)));
    const sending = (span) => { const [rate, hop] = joint(span); return start + hop + block / rate; };
    const inner = exchange === "double ring" ? near : context, outer = context / inner, work = attend / context;
    const round = sending(inner * tensor), far = sending(context * tensor), idle = (inner - 1) * Math.max(0, round - work);
    let travel = outer > 1 ? far : round, traffic = outer * (inner - 1) * round + (outer - 1) * far;
    let wait = outer * idle + (outer - 1) * Math.max(0, far - inner * work - idle);
    if (exchange === "all-to-all") {
      const part = 2 * tokens * (here + Math.max(kv, context)) * width * bytes / context, hop = joint(context * tensor)[1];
      travel = context === 1 ? 0 : 2 * (start + hop) + Math.max((near - 1) * part / link, (context - near) * part / network);
      wait = traffic = travel;
    }
    const [inside, step] = joint(tensor), share = tokens * all * width * bytes / tensor;
    const reduce = tensor === 1 ? 0 : start + 2 * (tensor - 1) * (step + share / inside);
    return { project, attend, wait, reduce, traffic, travel, work, inner, outer, round, far, near: context * tensor <= node, step: exchange === "all-to-all" ? attend : work };
  };

  /* Who is busy when: the first steps of a ring, one round of the inner rings of a double ring, or one swap and what follows. */
  const schedule = (c, exchange) => {
    const blocks = { work: [], idle: [], near: [], far: [] };
    if (!c) return { blocks, span: 1 };
    const { work, inner, outer, round, far, travel, near } = c;
    if (exchange === "all-to-all") {
      if (travel) blocks.idle.push([0, travel]) && blocks[near ? "near" : "far"].push([0, travel]);
      blocks.work.push([travel, travel + c.attend]);
      return { blocks, span: travel + c.attend };
    }
    const double = exchange === "double ring", steps = double ? inner : Math.min(inner, 5), pause = Math.max(0, round - work);
    for (const k of attn.range(steps)) {
      const from = k * (work + pause), more = k < inner - 1;
      blocks.work.push([from, from + work]);
      if (!more) continue;
      blocks[double || near ? "near" : "far"].push([from, from + round]);
      if (pause) blocks.idle.push([from + work, from + work + pause]);
    }
    let span = Math.max(blocks.work.at(-1)[1], blocks.idle.at(-1)?.[1] ?? 0);
    if (double && outer > 1) {
      blocks.far.push([0, far]);
      if (far > span) blocks.idle.push([span, span = far]);
    }
    return { blocks, span };
  };

  /* What was tried: seconds against how many share heads, a line for each way to meet, { way: { how many share heads: seconds } }. */
  const tried = (ways, heads, exchange, wide) => {
    const { svg, range, number } = attn;
    const logs = Object.values(ways).flatMap(Object.values).filter((value) => value).map(Math.log), [low, high] = [Math.min(...logs), Math.max(...logs)];
    const x = (h) => 90 + (wide - 130) * h / 6, y = (value) => 60 - 38 * (Math.log(value) - low) / (high - low || 1);
    return [svg("text", { y: 40 }, "80 layers,"), svg("text", { y: 54 }, "tried (log)"), svg("path", { d: `M82 76H${wide}` }), svg("text", { y: 93 }, "share heads"),
      ...range(7).map((h) => svg("text", { x: x(h), y: 93, "text-anchor": "middle", class: h === heads ? "attn-name" : "" }, 2 ** h)),
      ...Object.entries(ways).sort(([way]) => (way === exchange ? 1 : -1)).flatMap(([way, tries]) => {
        const points = Object.entries(tries).filter(([, value]) => value), now = way === exchange;
        return [svg("path", { class: now ? "attn-now" : "", d: points.map(([h, value], k) => (k ? "L" : "M") + x(h) + " " + y(value)).join("") }),
          ...Object.entries(tries).map(([h, value]) => (value ? svg("circle", { class: now ? "attn-now" : "", cx: x(h), cy: y(value), r: now && +h === heads ? 6 : 4 })
            : svg("path", { class: now ? "attn-now" : "", d: `M${x(h) - 4} 68l8 8m0 -8l-8 8` }))),
          ...points.filter(() => now).map(([h, value]) => svg("text", { x: x(h), y: y(value) - 9, "text-anchor": "middle" }, number(value, 2) + " s")),
          ...points.slice(0, 1).filter(() => !now).map(([h, value]) => {
            const near = Math.abs(y(ways[exchange][h] ?? Infinity) - y(value)) < 24;
            return svg("text", near ? { x: x(h) + 28, y: y(value) - 9 } : { x: x(h) - 4, y: y(value) - 9 }, way);
          })];
      })];
  };

  const time = (ms) => (ms < 1000 ? `${attn.number(ms, 2)} ms` : `${attn.number(ms / 1000, 2)} s`);

  return { cost, schedule, tried, time };
})();
