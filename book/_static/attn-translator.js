/* attn_tutor.torch.Translator with additive attention, in double precision, and a beam search that shows what it does.
   Weights come as whole steps of a unit for each parameter, in the order of torch's parameters(), as base64. */
Object.assign(attn, (() => {
  "use strict";
  const { range, sum } = attn, sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const dot = (a, b) => {
    let total = 0;
    for (let l = 0; l < a.length; l++) total += a[l] * b[l];
    return total;
  };
  const apply = (W, x, b) => {
    const y = new Float64Array(W.length), numbers = Float64Array.from(x);
    for (let o = 0; o < y.length; o++) y[o] = dot(W[o], numbers) + (b ? b[o] : 0);
    return y;
  };

  /* The next state of a gated recurrent unit, with torch's gates: reset, renew, new. */
  const gru = ([W, U, b, c], x, h) => {
    const from_x = apply(W, x, b), from_h = apply(U, h, c), d = h.length;
    return h.map((old, i) => {
      const reset = sigmoid(from_x[i] + from_h[i]), keep = sigmoid(from_x[d + i] + from_h[d + i]);
      return (1 - keep) * Math.tanh(from_x[2 * d + i] + reset * from_h[2 * d + i]) + keep * old;
    });
  };

  const Translator = class {
    constructor({ words, units, steps }, d = 48, n_symbols = 11) {
      const bytes = Int8Array.from(atob(steps), (letter) => letter.charCodeAt(0));
      let place = 0, count = 0;
      const take = (rows, columns) => {
        const unit = units[count++];
        return range(rows).map(() => Float64Array.from(bytes.subarray(place, place += columns), (step) => step * unit));
      };
      const one = (n) => take(1, n)[0], cell = (inputs) => [take(3 * d, inputs), take(3 * d, d), one(3 * d), one(3 * d)];
      Object.assign(this, { words, d, end: n_symbols - 1, embedding: take(words.length, d), forwards: cell(d), backwards: cell(d),
        symbols: take(n_symbols, d), first: [take(d, 2 * d), one(d)], w_v: one(d), q: take(d, d), k: take(d, 2 * d), cell: cell(3 * d),
        output: [take(n_symbols, 3 * d), one(n_symbols)] });
    }

    /* An annotation for each word, what the score makes of it, and the decoder's first state. */
    read(ids) {
      const X = ids.map((id) => this.embedding[id]), none = new Float64Array(this.d);
      const pass = (cell, rows) => rows.reduce((states, x) => [...states, gru(cell, x, states.at(-1) ?? none)], []);
      const there = pass(this.forwards, X), back = pass(this.backwards, X.toReversed()).reverse();
      this.H = there.map((h, j) => [...h, ...back[j]]);
      this.keys = this.H.map((h) => apply(this.k, h));
      const [W, b] = this.first;
      return { state: apply(W, [...there.at(-1), ...back[0]], b).map(Math.tanh), last: this.end };
    }

    /* One step: the weights of the words, the next state, and the log-probabilities of the next symbol. */
    write({ state, last }) {
      const query = apply(this.q, state), scores = this.keys.map((key) => dot(key.map((k, i) => Math.tanh(query[i] + k)), this.w_v));
      const [weights] = attn.softmax([scores]), context = new Float64Array(2 * this.d);
      this.H.forEach((h, j) => { for (let c = 0; c < context.length; c++) context[c] += weights[j] * h[c]; });
      const next = gru(this.cell, [...this.symbols[last], ...context], state), [W, b] = this.output, logits = apply(W, [...next, ...context], b);
      const top = Math.max(...logits), total = Math.log(sum([...logits].map((x) => Math.exp(x - top))));
      return { weights, state: next, logs: [...logits].map((x) => x - top - total) };
    }
  };

  /* What a beam of width k keeps and drops in each step. next(node) gives the log-probabilities that follow a node and
     what the decoder keeps of it; a node knows its symbols, its score and its parent's rank. Equal ones: the first. */
  const beam_search = (next, start, end, longest, k) => {
    const steps = [];
    let kept = [{ said: [], score: 0, ...start }];
    while (steps.length < longest && kept.some(({ said }) => said.at(-1) !== end)) {
      const all = kept.flatMap((node, parent) => {
        if (node.said.at(-1) === end) return [{ ...node, parent }];
        const { logs, ...more } = next(node);
        return [...logs.keys()].map((last) => ({ ...more, last, parent, said: [...node.said, last], score: node.score + logs[last] }));
      }).filter(({ score }) => score > -Infinity).sort((a, b) => b.score - a.score);
      kept = all.slice(0, k);
      steps.push({ kept, dropped: all.slice(k) });
    }
    return steps;
  };

  return { Translator, beam_search };
})());
