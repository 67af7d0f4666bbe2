/* What parts are made of. A part has at (its place), wide and tall (of a number), size and stage, and named: its rows' words stand
   beside it, up to this stage (Infinity: always), keyed: the initials of its columns below it, and far: no rays come from it or go to it; or drawn(i, j), the place of a number in a part that shows it. And
     value(values, state)    its numbers (an input has none: its numbers are in the state)
     lit(i, j, values)       the numbers that made one, [[name, row, column, what it gives], …]
     formula(i, j), says(values, i, j, state), means(row's word, column's word, i, j, values)   the same in letters, numbers, words */
attn.flow = (() => {
  "use strict";
  const { range, transpose, matmul } = attn;
  const sub = (...numbers) => numbers.map((k) => "₀₁₂₃"[k]).join("");
  const whole = (x) => x === 0 || (Math.abs(x) > 0.5 && Math.abs(x - Math.round(x)) < 1e-9); // 0.00 is not 0
  const places = (x) => (Math.abs(x) >= 100 ? 0 : Math.abs(x) >= 10 ? 1 : 2);
  const short = (x) => (x === -Infinity ? "−∞" : attn.number(x, whole(x) ? 0 : places(x)));
  const fine = (x, digits) => (digits === 2 || whole(x) ? short(x) : attn.number(x, digits));
  const factor = (x, digits = 2) => (x < 0 ? `(${fine(x, digits)})` : fine(x, digits));
  /* How many decimals the numbers in a sum need so that it comes out as x, which is printed with two at most. */
  const decimals = (x, sum) => {
    const print = (y) => attn.number(y, places(x)), printed = (digits) => (a) => (isFinite(a) ? +fine(a, digits).replace("−", "-") : a);
    return [2, 3, 4, 5].find((digits) => print(sum(printed(digits))) === print(x)) ?? 6;
  };
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
        const one = turn(v[L], left)[i], other = turn(v[R], !right)[j], sum = (printed) => scale(state) * attn.sum(one.map((a, k) => printed(a) * printed(other[k])));
        const digits = decimals(sum(Number), sum), terms = one.map((a, k) => `${factor(a, digits)} · ${factor(other[k], digits)}`).join(" + ");
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
    says: (v, i, j, state) => {
      if (!mask(state)[i].includes(true)) return "a row with nothing permitted";
      const row = v[S][i], share = (printed) => Math.exp(printed(row[j])) / attn.sum(row.map((s) => Math.exp(printed(s)))), digits = decimals(share(Number), share);
      return `exp ${factor(row[j], digits)} / (${row.map((s) => "exp " + factor(s, digits)).join(" + ")})`;
    },
    means: (one, other) => `The share of ${other} in what ${one} hears.`,
  });
  const output = (A, V) => ({ ...product(A, V), means: (one) => `What ${one} hears: the values, each times its weight.` });
  const part = (at, wide, size, stage, made) => ({ at, wide, tall: 24, size, stage, ...made });
  const list = (names) => (names.length > 1 ? names.slice(0, -1).join(", ") + " and " : "") + names.at(-1);

  return { sub, short, factor, decimals, same, entry, product, scores, weights, output, part, list };
})();
