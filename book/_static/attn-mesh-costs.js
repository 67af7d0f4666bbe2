/* What a layer of attention costs on a mesh of H100s: attention_cost of attn_tutor.ledger, by whose numbers in
   attn-ledger-data.js it computes. */
attn.mesh = (() => {
  "use strict";
  /* Seconds of one layer, part by part, or null where the mesh does not fit. */
  const cost = (n, context, tensor, exchange) => {
    const { machines: { H100 }, layer: { heads: all, kv_heads: groups, width } } = attn.ledger;
    const { operations_per_second: flops, link_bytes_per_second: link, network_bytes_per_second: network, link_hop_seconds: hop, network_hop_seconds: leap,
      start_seconds: start, node_gpus: node, number_bytes: bytes } = H100;
    if (n % context || all % tensor || (exchange === "all-to-all" && (all / tensor) % context)) return null;
    const tokens = n / context, here = all / tensor, kv = Math.ceil(groups / tensor);
    const joint = (span) => (span <= node ? [link, hop] : [network, leap]);
    const project = 4 * tokens * all * width * (here + kv) * width / flops;
    const attend = 4 * here * width * (n * (n + 1) / 2) / context / flops;
    const block = 2 * tokens * kv * width * bytes, near = Math.min(context, Math.max(1, Math.floor(node / tensor)));
    const sending = (span) => { const [rate, hop] = joint(span); return start + hop + block / rate; };
    const inner = exchange === "double ring" ? near : context, outer = context / inner, work = attend / context;
    const round = sending(inner * tensor), far = sending(context * tensor), idle = (inner - 1) * Math.max(0, round - work);
    let swaps, travel = outer > 1 ? far : round, traffic = outer * (inner - 1) * round + (outer - 1) * far;
    let wait = outer * idle + (outer - 1) * Math.max(0, far - inner * work - idle);
    if (exchange === "all-to-all") {
      // Queries, keys and values go to whoever has their head, and outputs come back.
      const reach = joint(context * tensor)[1], rate = Math.max((near - 1) / link, (context - near) / network), slice = tokens * width * bytes / context;
      swaps = [here + 2 * Math.max(kv, context), here].map((rows) => (context === 1 ? 0 : start + reach + slice * rows * rate));
      wait = traffic = travel = swaps[0] + swaps[1];
    }
    const [inside, step] = joint(tensor), share = tokens * all * width * bytes / tensor;
    const reduce = tensor === 1 ? 0 : start + 2 * (tensor - 1) * (step + share / inside);
    return { project, attend, wait, reduce, traffic, travel, swaps, work, inner, outer, round, far, inside: near > 1 ? start + hop + block / link : 0, near: context * tensor <= node, step: exchange === "all-to-all" ? attend : work };
  };

  /* Who is busy when: the first steps of a ring, one round of the inner rings of a double ring, or one swap and what follows. */
  const schedule = (c, exchange) => {
    const blocks = { work: [], idle: [], near: [], far: [] };
    if (!c) return { blocks, span: 1 };
    const { work, inner, outer, round, far, travel, near } = c;
    if (exchange === "all-to-all") {
      const [there, end] = [c.swaps[0], c.swaps[0] + c.attend], span = travel + c.attend;
      if (travel) for (const swap of [[0, there], [end, span]]) blocks.idle.push(swap), blocks[near ? "near" : "far"].push(swap);
      blocks.work.push([there, end]);
      return { blocks, span };
    }
    const double = exchange === "double ring", steps = double ? inner : Math.min(inner, 5), pause = Math.max(0, round - work);
    for (const k of attn.range(steps)) {
      const from = k * (work + pause), more = k < inner - 1;
      blocks.work.push([from, from + work]);
      if (!more) continue;
      blocks[double || near ? "near" : "far"].push([from, from + round]);
      if (!double && !near && c.inside) blocks.near.push([from, from + c.inside]); // to a neighbour in the node, who then waits for the others
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
    const logs = Object.values(ways).flatMap(Object.values).filter((value) => value).map(Math.log), middle = (Math.min(...logs) + Math.max(...logs)) / 2;
    const half = Math.max(Math.LN10, Math.max(...logs) - Math.min(...logs)) / 2, [low, high] = [middle - half, middle + half]; // at least a factor of 10
    const places = []; // of names
    const x = (h) => 90 + (wide - 130) * h / 6, y = (value) => 60 - 38 * (Math.log(value) - low) / (high - low || 1);
    return [svg("text", { y: 40 }, "80 layers,"), svg("text", { y: 54 }, "tried (log)"), svg("path", { d: `M82 76H${wide}` }), svg("text", { y: 93 }, "share heads"),
      ...range(7).map((h) => svg("text", { x: x(h), y: 93, "text-anchor": "middle", class: h === heads ? "attn-name" : "" }, 2 ** h)),
      ...Object.entries(ways).sort(([way]) => (way === exchange ? 1 : -1)).flatMap(([way, tries]) => {
        const points = Object.entries(tries).filter(([, value]) => value), now = way === exchange;
        return [svg("path", { class: now ? "attn-now" : "", d: points.map(([h, value], k) => (k ? "L" : "M") + x(h) + " " + y(value)).join("") }),
          ...Object.entries(tries).map(([h, value]) => (value ? svg("circle", { class: now ? "attn-now" : "", cx: x(h), cy: y(value), r: now && +h === heads ? 6 : 4 })
            : svg("path", { class: now ? "attn-now" : "", d: `M${x(h) - 4} 68l8 8m0 -8l-8 8` }))),
          ...points.filter(() => now).map(([h, value]) => { // above its dot, or below where another dot stands above
            const above = Object.values(ways).some((other) => other[h] && other !== tries && y(other[h]) < y(value) && y(other[h]) > y(value) - 24);
            return svg("text", { x: x(h), y: y(value) + (above ? 19 : -9), "text-anchor": "middle", class: "attn-halo" }, time(1000 * value));
          }),
          ...points.slice(0, 1).filter(() => !now).map(([h, value]) => {
            const near = Math.abs(y(ways[exchange][h] ?? Infinity) - y(value)) < 24;
            const place = { x: x(h) + (near ? 28 : -4), y: y(value) - 9 };
            while (places.some((other) => Math.abs(other.x - place.x) < 130 && Math.abs(other.y - place.y) < 13)) place.y += 13;
            places.push(place);
            return svg("text", place, `${way}, ${time(1000 * value)}`);
          })];
      })];
  };

  const units = [["days", 864e5], ["hours", 36e5], ["min", 6e4], ["s", 1000], ["ms", 1]];
  /* Milliseconds in the largest unit of which there are two or more, seconds from one on. */
  const time = (ms, digits = 2) => {
    const [unit, size] = units.find(([unit, size]) => ms >= (unit === "s" ? 1 : 2) * size) ?? units.at(-1);
    return `${attn.number(ms / size, digits)} ${unit}`;
  };

  return { cost, schedule, tried, time };
})();
