/* What parts are made of. A part has at (its place), wide and tall (of a number), size and stage, and named: its rows' words stand
   beside it, up to this stage (Infinity: always), and far: no rays come from it or go to it; or drawn(i, j), the place of a number in a part that shows it. And
     value(values, state)    its numbers (an input has none: its numbers are in the state)
     lit(i, j, values)       the numbers that made one, [[name, row, column, what it gives], …]
     formula(i, j), says(values, i, j, state), means(row's word, column's word, i, j, values)   the same in letters, numbers, words */
attn.flow = (() => {
  "use strict";
  const { range, transpose, matmul } = attn;
  const sub = (...numbers) => numbers.map((k) => "₀₁₂₃"[k]).join("");
  const whole = (x) => x === 0 || (Math.abs(x) > 0.5 && Math.abs(x - Math.round(x)) < 1e-9); // 0.00 is not 0
  const short = (x) => (x === -Infinity ? "−∞" : attn.number(x, whole(x) || Math.abs(x) >= 100 ? 0 : Math.abs(x) >= 10 ? 1 : 2));
  const factor = (x) => (x < 0 ? `(${short(x)})` : short(x));
  const same = (a, b) => Object.is(a, b) || Math.abs(a - b) < 1e-9;
  const entry = (name, i, j) => name.replaceAll("'", "") + (name === "r" ? sub(i) : sub(i, j));
  const vector = (name, k, row) => (name = name.replaceAll("'", ""), row
    ? (/^d?[XQKVO][⁰¹]?$/.test(name) ? name.toLowerCase() + sub(k) : `row ${k} of ${name}`)
    : `column ${k} of ${name}`);

  /* L R, or with the transpose of either, times scale(state), which by(state) writes. */
  const product = (L, R, { left = false, right = false, scale = () => 1, by = () => "" } = {}) => {
    const turn = (M, turned) => (turned ? transpose(M) : M);
    return {
      value: (v, state) => matmul(turn(v[L], left), turn(v[R], right)).map((row) => row.map((x) => x * scale(state))),
      lit: (i, j, v) => {
        const one = turn(v[L], left)[i], other = turn(v[R], !right)[j];
        return one.flatMap((x, k) => [left ? [L, k, i] : [L, i, k], right ? [R, j, k] : [R, k, j]].map((place) => [...place, x * other[k]]));
      },
      formula: (i, j, state) => `${vector(L, i, !left)} · ${vector(R, j, right)}${by(state)}`,
      says: (v, i, j, state) => {
        const b = turn(v[R], !right)[j], terms = turn(v[L], left)[i].map((a, k) => `${factor(a)} · ${factor(b[k])}`).join(" + ");
        return by(state) ? `(${terms})${by(state)}` : terms;
      },
    };
  };

  /* Scores that a mask may forbid, mask(state) true = may attend, and their weights. */
  const scores = (Q, K, mask, scaled) => {
    const free = product(Q, K, { right: true, ...scaled });
    return {
      ...free, pairs: true,
      value: (v, state) => attn.fill(free.value(v, state), mask(state), -Infinity),
      says: (v, i, j, state) => (mask(state)[i][j] ? free.says(v, i, j, state) : "forbidden by the mask"),
      means: (one, other) => `How well the query of ${one} fits the key of ${other}.`,
    };
  };
  const weights = (S, mask) => ({
    pairs: true, kind: "weights",
    value: (v, state) => attn.masked_softmax(v[S], mask(state)),
    lit: (i, j, v) => range(v[S][i].length).map((k) => [S, i, k, Math.exp(v[S][i][k] - Math.max(...v[S][i]))]),
    formula: (i, j) => `exp ${entry(S, i, j)} / sum of exp over row ${i} of ${S}`,
    says: (v, i, j, state) => (mask(state)[i].includes(true)
      ? `exp ${factor(v[S][i][j])} / (${v[S][i].map((s) => "exp " + factor(s)).join(" + ")})` : "a row with nothing permitted"),
    means: (one, other) => `The share of ${other} in what ${one} hears.`,
  });
  const output = (A, V) => ({ ...product(A, V), means: (one) => `What ${one} hears: the values, each times its weight.` });
  const part = (at, wide, size, stage, made) => ({ at, wide, tall: 24, size, stage, ...made });
  const list = (names) => (names.length > 1 ? names.slice(0, -1).join(", ") + " and " : "") + names.at(-1);

  return { sub, short, factor, same, entry, product, scores, weights, output, part, list };
})();
