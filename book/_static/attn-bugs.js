/* A layer with causal, grouped-query attention and rotary positions, right or with a bug of the failure gallery in it. */
Object.assign(attn, (() => {
  "use strict";
  const { range, matmul, sum } = attn, turn = (X) => range(X[0].length).map((b) => range(X.length).map((a) => X[a][b]));
  const heads = 4, width = 4, n = 4; // 4 query heads share 2 of keys and values; 4 sentences of 4 tokens

  /* [the gallery's words, its address there, what would have shown it] */
  const bugs = {
    reshape: ["reshape in place of transpose", "reshape-or-view-in-place-of-transpose", "change the last token, and outputs before it change: a head's rows are not the tokens"],
    axis: ["softmax over the batch", "implicit-dimension-choice-for-softmax", "rows do not sum to 1, and change another sentence: the weights change"],
    batch: ["batch_first left out", "batch-first-left-out", "change another sentence, and this one's outputs change, whichever head you look at"],
    transpose: ["weight matrix not transposed", "converted-weights-load-and-the-outputs-are-wrong", "by hand and layer disagree for every head, with all positions 0 too"],
    repeat: ["repeat in place of repeat_interleave", "repeat-in-place-of-repeat-interleave-for-gqa-heads", "by hand and layer agree for heads 0 and 3, and disagree for 1 and 2"],
    inverted: ["inverted mask", "inverted-attention-mask", "the weights lie above the diagonal, and the last row has none"],
    large: ["a mask that adds −10,000", "value-cannot-be-converted-to-type-half-without-overflow", "inputs times 100 make scores below −10,000, and hidden keys get weight"],
    nan: ["an empty row gives NaN", "loss-is-nan-after-the-first-step-with-left-padding", "make token 0 a pad, and its row is NaN: it may see nothing"],
    mixed: ["mask repeated for the wrong heads", "attention-mask-repeated-for-the-wrong-heads", "head 1 of a sentence of four words does not see the last: it has the mask of another sentence"],
    lowest: ["finfo.min masks add up to −∞", "finfo-min-masks-add-up-to-inf", "make token 0 a pad, and its row gets weights on keys that are hidden once"],
    layout: ["RoPE half split, weights interleaved", "rope-interleaved-or-half-split", "by hand and layer disagree, and agree with all positions 0"],
    bfloat: ["RoPE in bfloat16", "rope-in-bfloat16-loses-positions", "move all positions by 1,000, and the weights change"],
    unscaled: ["no √d", "missing-scale-no-sqrt-of-d", "the layer's differences are twice those by hand, and √4 is 2"],
    twice: ["√d twice", "t5-has-no-sqrt-of-d-and-sdpa-adds-one", "the layer's differences are half of those by hand"],
    first: ["is_causal with a cache", "is-causal-with-a-kv-cache-sees-only-the-first-key", "step by step, each query sees key 0 alone"],
    same: ["one buffer for all cached keys", "kv-cache-in-which-all-keys-are-the-same", "step by step, each row of weights is level"],
    dropout: ["dropout in eval()", "model-eval-and-outputs-still-change", "call it twice, and the outputs differ"],
    future: ["no causal mask", "loss-goes-to-zero-and-generated-text-is-nonsense", "there are weights above the diagonal, and rows sum to 1"],
    bias: ["bias added for each rank", "bias-added-once-for-each-tensor-parallel-rank", "on two GPUs every output moves by the same vector, and no weight does"],
    fused: ["fused QKV weights cut in two", "fused-qkv-weights-split-across-gpus-give-garbage", "on two GPUs weights and outputs are others; hidden keys stay hidden"],
    local: ["every rank starts at position 0", "context-parallel-every-rank-starts-at-position-0", "on two GPUs query 0 sees key 2, the first of the other GPU"],
  };

  const turned = (x, p, half) => {
    const y = [...x];
    for (const i of [0, 1]) {
      const [a, b] = half ? [i, i + 2] : [2 * i, 2 * i + 1], angle = p * 10000 ** (-i / 2);
      y[a] = Math.cos(angle) * x[a] - Math.sin(angle) * x[b];
      y[b] = Math.sin(angle) * x[a] + Math.cos(angle) * x[b];
    }
    return y;
  };
  const bfloat16 = (p) => {
    const unit = p ? 2 ** (Math.floor(Math.log2(p)) - 7) : 1, low = Math.floor(p / unit), rest = p / unit - low;
    return unit * (rest > 0.5 || (rest === 0.5 && low % 2) ? low + 1 : low);
  };
  const split = (Y, count, reshape) => range(count).map((h) => range(n).map((i) =>
    (reshape ? Y.flat().slice((h * n + i) * width, (h * n + i + 1) * width) : Y[i].slice(h * width, (h + 1) * width))));

  /* Softmax of scores that a list of true and false hides, as the bug has it. */
  const weigh = (bug, row, causal, real) => {
    const sees = causal.map((c, j) => c && real[j]), { MAX_VALUE } = Number;
    const [soft] = attn.softmax([row.map((s, j) => {
      if (bug === "large") return sees[j] ? s : s - 1e4;
      if (bug === "lowest") return s + (causal[j] ? 0 : -MAX_VALUE) + (real[j] ? 0 : -MAX_VALUE);
      return sees[j] ? s : -Infinity;
    })]);
    return ["large", "lowest", "nan"].includes(bug) ? soft : soft.map((w, j) => (sees[j] ? w : 0));
  };

  /* X: sentences of tokens of width 8; real[b][j]: no pad; W: its four matrices and the bias; how it is called:
     shift (of positions), flat (all positions 0), cached (step by step), gpus (1 or 2), call (the how-manieth).
     Returns the weights [sentence][head][query][key] and the outputs [sentence][query][column]. */
  const layer = (bug, X, real, W, { shift = 0, flat = false, cached = false, gpus = 1, call = 0 } = {}) => {
    if (bug === "batch") {
      const { A, O } = layer("none", turn(X), real, W, { shift, flat, cached, gpus });
      return { A, O: turn(O) };
    }
    const place = range(n).map((i) => (flat ? 0 : bug === "bfloat" ? bfloat16(shift + i) : shift + i)), chance = attn.random(7919 * (call + 1));
    const scale = { unscaled: 1, twice: 1 / width }[bug] ?? 1 / Math.sqrt(width), two = gpus === 2;
    const parts = X.map((x) => {
      let [Q, K, V] = [W.q, bug === "transpose" ? attn.transpose(W.k) : W.k, W.v].map((M) => matmul(x, M));
      if (bug === "fused" && two) {
        const halves = Q.map((q, i) => [0, 16].map((start) => [...q, ...K[i], ...V[i]].slice(start, start + 16)));
        [Q, K, V] = [[0, 8], [8, 12], [12, 16]].map(([a, b]) => halves.map((both) => both.flatMap((half) => half.slice(a, b))));
      }
      const at = (H) => H.map((rows) => rows.map((row, i) => turned(row, place[i], bug === "layout")));
      const cut = (Y, count) => split(Y, count, bug === "reshape");
      return { Q: at(cut(Q, heads)), K: at(cut(K, 2)), V: cut(V, 2) };
    });
    const group = (h) => (bug === "repeat" ? h % 2 : Math.floor(h / 2));
    const A = parts.map(({ Q, K }, b) => range(heads).map((h) => range(n).map((i) => {
      const keys = K[group(h)], row = range(n).map((j) => scale * sum(Q[h][i].map((q, l) => q * keys[bug === "same" && cached ? i : j][l])));
      let causal = range(n).map((j) => bug === "future" || j <= i), mine = real[bug === "mixed" ? (b * heads + h) % real.length : b];
      if (bug === "first" && cached) causal = range(n).map((j) => j === 0);
      if (bug === "local" && two) causal = range(n).map((j) => j % 2 <= i % 2);
      if (bug === "inverted") [causal, mine] = [causal.map((c, j) => !(c && mine[j])), mine.map(() => true)];
      if (bug === "axis") return row.map((s, j) => (causal[j] && mine[j] ? s : -Infinity));
      const weights = weigh(bug, row, causal, mine);
      return bug === "dropout" ? weights.map((w) => (chance() < 0.25 ? 0 : w / 0.75)) : weights;
    })));
    if (bug === "axis") { // in place of the keys, the sentences are compared
      const scores = structuredClone(A);
      A.forEach((sentence, b) => sentence.forEach((head, h) => head.forEach((row, i) => row.forEach((_, j) => {
        const over = scores.map((S) => S[h][i][j]);
        row[j] = scores[b][h][i][j] === -Infinity ? 0 : attn.softmax([over])[0][b];
      }))));
    }
    const O = A.map((sentence, b) => {
      const H = sentence.map((weights, h) => matmul(weights, parts[b].V[group(h)]));
      const merged = range(n).map((i) => (bug === "reshape" ? H.flat(2).slice(16 * i, 16 * i + 16) : H.flatMap((rows) => rows[i])));
      return matmul(merged, W.o).map((row) => row.map((x, c) => x + W.b[c] * (bug === "bias" ? gpus : 1)));
    });
    return { A, O, parts };
  };

  return { bugs, layer };
})());
