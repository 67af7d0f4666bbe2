/* attn_tutor.torch.LanguageModel with rotary positions, in single precision: a row of 32-bit numbers for each token.
   Weights come in half precision, in the order of torch's parameters(), as base64. */
Object.assign(attn, (() => {
  "use strict";
  /* 16-bit floating-point numbers, little-endian, as base64: their sign, exponent and fraction. */
  const halves = (text) => {
    const letters = atob(text), numbers = new Float32Array(letters.length / 2);
    for (let i = 0; i < numbers.length; i++) {
      const bits = letters.charCodeAt(2 * i) + 256 * letters.charCodeAt(2 * i + 1);
      const exponent = (bits >> 10) & 31, fraction = bits & 1023;
      const size = exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24;
      numbers[i] = bits >> 15 ? -size : size;
    }
    return numbers;
  };

  /* x Wᵀ + b for all rows x: four rows and two columns at a time, since reading a number takes longer than multiplying it.
     Where fewer are left, the last is computed again. */
  const apply = ({ W, b }, X) => {
    const m = b.length, n = W.length / m, Y = X.map(() => new Float32Array(m));
    for (let k = 0; k < X.length; k += 4) {
      const four = [0, 1, 2, 3].map((more) => Math.min(k + more, X.length - 1)), [x_p, x_q, x_r, x_s] = four.map((i) => X[i]), [y_p, y_q, y_r, y_s] = four.map((i) => Y[i]);
      for (let o = 0; o < m; o += 2) {
        const u = Math.min(o, m - 2), v = u + 1;
        let pu = b[u], qu = pu, ru = pu, su = pu, pv = b[v], qv = pv, rv = pv, sv = pv;
        for (let i = 0, w = u * n; i < n; i++, w++) {
          const w_u = W[w], w_v = W[w + n];
          pu += x_p[i] * w_u;
          qu += x_q[i] * w_u;
          ru += x_r[i] * w_u;
          su += x_s[i] * w_u;
          pv += x_p[i] * w_v;
          qv += x_q[i] * w_v;
          rv += x_r[i] * w_v;
          sv += x_s[i] * w_v;
        }
        y_p[u] = pu;
        y_q[u] = qu;
        y_r[u] = ru;
        y_s[u] = su;
        y_p[v] = pv;
        y_q[v] = qv;
        y_r[v] = rv;
        y_s[v] = sv;
      }
    }
    return Y;
  };

  const normed = ({ gain, shift }, X) => X.map((x) => {
    let mean = 0, variance = 0;
    for (const value of x) mean += value / x.length;
    for (const value of x) variance += (value - mean) ** 2 / x.length;
    const unit = 1 / Math.sqrt(variance + 1e-5);
    return x.map((value, l) => (value - mean) * unit * gain[l] + shift[l]);
  });

  // erf to 1.5e-7: Abramowitz and Stegun (1964), 7.1.26.
  const erf = (x) => {
    const t = 1 / (1 + 0.3275911 * Math.abs(x));
    const rest = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return Math.sign(x) * (1 - rest * Math.exp(-x * x));
  };
  const gelu = (X) => {
    for (const x of X) for (let i = 0; i < x.length; i++) x[i] *= (1 + erf(x[i] / Math.SQRT2)) / 2;
    return X;
  };

  /* Each pair of entries of each head, turned by its own angle times the position. */
  const turned = (x, position, width, base = 10000) => {
    const y = new Float32Array(x.length);
    for (let pair = 0; pair < width; pair += 2) {
      const angle = position * base ** (-pair / width), cos = Math.cos(angle), sin = Math.sin(angle);
      for (let l = pair; l < x.length; l += width) { // the same pair of every head
        y[l] = cos * x[l] - sin * x[l + 1];
        y[l + 1] = sin * x[l] + cos * x[l + 1];
      }
    }
    return y;
  };
  const add = (X, Y) => X.forEach((x, i) => { for (let l = 0; l < x.length; l++) x[l] += Y[i][l]; });

  const LanguageModel = class {
    constructor({ n_tokens, d, n_heads, n_layers, weights }) {
      const numbers = halves(weights);
      let place = 0;
      const take = (n) => numbers.subarray(place, place += n);
      const linear = (n_in, n_out) => ({ W: take(n_in * n_out), b: take(n_out) }), norm = () => ({ gain: take(d), shift: take(d) });
      Object.assign(this, { d, n_heads, n_layers, width: d / n_heads, embedding: take(n_tokens * d) });
      this.blocks = attn.range(n_layers).map(() => ({
        q: linear(d, d), k: linear(d, d), v: linear(d, d), out: linear(d, d),
        norm_1: norm(), norm_2: norm(), widen: linear(d, 4 * d), narrow: linear(4 * d, d),
      }));
      this.norm = norm();
      this.head = linear(d, n_tokens);
    }

    /* What a text has left behind in the model, and how it is read: heads that are off, "layer.head"; whether later tokens
       are hidden; whether queries and keys know their positions. */
    reading({ off = [], causal = true, positions = true } = {}) {
      const layers = this.blocks.map(() => ({ rows: [], keys: [], values: [], weights: [] })); // weights[i][h], a row
      return { off: new Set(off), causal, positions, ids: [], logits: [], layers };
    }

    /* Go on reading to the end of these tokens. What the reading has of their beginning it keeps: in causal blocks later
       tokens change nothing. */
    read(ids, reading) {
      let kept = 0;
      while (kept < ids.length && ids[kept] === reading.ids[kept]) kept += 1;
      if (kept === ids.length && kept === reading.ids.length) return reading;
      if (!reading.causal) kept = 0;
      reading.kept = kept;
      for (const list of [reading.ids, reading.logits, ...reading.layers.flatMap(Object.values)]) list.length = kept;
      const fresh = ids.slice(kept), rows = fresh.map((id) => this.embedding.slice(id * this.d, (id + 1) * this.d));
      reading.ids.push(...fresh);
      this.blocks.forEach((_, layer) => {
        this.look(layer, rows, reading);
        this.hear(layer, rows, reading);
      });
      return this.guess(rows, reading);
    }

    /* The same tokens read with other heads off. What the blocks below the first such head have done is taken over, and so
       are the weights of its own block: they come before what its heads say. */
    switched(off, { layers: before, ...reading }) {
      const changes = (layer) => attn.range(this.n_heads).some((h) => reading.off.has(`${layer}.${h}`) !== off.includes(`${layer}.${h}`));
      const first = this.blocks.findIndex((_, layer) => changes(layer)), kept = (layer) => first < 0 || layer <= first;
      const layers = before.map((lists, layer) => Object.fromEntries(Object.entries(lists).map(([name, list]) => [name, kept(layer) ? [...list] : []])));
      const now = { ...reading, kept: 0, off: new Set(off), ids: [...reading.ids], layers };
      if (first < 0) return { ...now, logits: [...reading.logits] };
      const rows = layers[first].rows.map((x) => x.slice());
      for (let layer = first; layer < this.n_layers; layer++) {
        if (layer > first) this.look(layer, rows, now);
        this.hear(layer, rows, now);
      }
      return this.guess(rows, { ...now, logits: [] });
    }

    /* One block, first half: where the rows look. */
    look(layer, rows, { causal, positions, layers }) {
      const block = this.blocks[layer], { keys, values, weights, rows: before } = layers[layer], start = keys.length;
      const z = normed(block.norm_1, rows), turn = (X) => (positions ? X.map((x, i) => turned(x, start + i, this.width)) : X);
      before.push(...rows.map((x) => x.slice()));
      keys.push(...turn(apply(block.k, z)));
      values.push(...apply(block.v, z));
      turn(apply(block.q, z)).forEach((query, i) => weights.push(attn.range(this.n_heads).map((h) =>
        this.weigh(query, keys, causal ? start + i + 1 : keys.length, h * this.width))));
    }

    /* Second half: what attention and the small network add to each row. */
    hear(layer, rows, { off, layers }) {
      const block = this.blocks[layer], { values, weights } = layers[layer];
      const found = weights.slice(weights.length - rows.length).map((heads) => {
        const sum = new Float32Array(this.d);
        heads.forEach((A, h) => off.has(`${layer}.${h}`) || this.gather(sum, A, values, h * this.width));
        return sum;
      });
      add(rows, apply(block.out, found));
      add(rows, apply(block.narrow, gelu(apply(block.widen, normed(block.norm_2, rows)))));
    }

    guess(rows, reading) {
      reading.logits.push(...apply(this.head, normed(this.norm, rows)));
      return reading;
    }

    /* The weights of one query of one head: softmax of the scaled products with the keys that it sees. */
    weigh(query, keys, seen, from) {
      const A = new Float32Array(seen), scale = 1 / Math.sqrt(this.width);
      let top = -Infinity, total = 0;
      for (let j = 0; j < seen; j++) {
        const key = keys[j];
        let product = 0;
        for (let l = from; l < from + this.width; l++) product += query[l] * key[l];
        A[j] = product * scale;
        if (A[j] > top) top = A[j];
      }
      for (let j = 0; j < seen; j++) total += A[j] = Math.exp(A[j] - top);
      for (let j = 0; j < seen; j++) A[j] /= total;
      return A;
    }

    gather(found, A, values, from) {
      for (let j = 0; j < A.length; j++) {
        const weight = A[j], value = values[j];
        for (let l = from; l < from + this.width; l++) found[l] += weight * value[l];
      }
    }
  };

  /* Probabilities of the k largest logits, divided by the temperature; at 0 the largest has all. */
  const top_k = (logits, k, temperature) => {
    const order = [...logits.keys()].sort((a, b) => logits[b] - logits[a]), p = new Array(logits.length).fill(0);
    if (temperature === 0) p[order[0]] = 1;
    else {
      const kept = order.slice(0, k), [shares] = attn.softmax([kept.map((c) => logits[c] / temperature)]);
      kept.forEach((c, i) => { p[c] = shares[i]; });
    }
    return p;
  };
  /* What one of those would be drawn by a number from 0 to 1. */
  const pick = (p, u) => {
    let left = u;
    const found = p.findIndex((share) => (left -= share) < 0);
    return found < 0 ? p.findLastIndex((share) => share > 0) : found;
  };
  /* Minus the logarithm of the probability that each row of logits gives the token after it. */
  const losses = ({ ids, logits }) => logits.slice(0, -1).map((row, i) => {
    const top = Math.max(...row);
    return top + Math.log(row.reduce((total, x) => total + Math.exp(x - top), 0)) - row[ids[i + 1]];
  });

  return { apply, normed, gelu, turned, LanguageModel, top_k, pick, losses };
})());
