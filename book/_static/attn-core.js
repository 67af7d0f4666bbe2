/* The formulas of attn_tutor.numpy in double precision: same names, rows are queries, masks true = may attend.
   A matrix is an array of rows. Classic script: browsers refuse modules from file://. */
const attn = (() => {
  "use strict";
  const sum = (xs) => xs.reduce((a, b) => a + b, 0);
  const range = (n) => Array.from({ length: n }, (_, i) => i);
  const transpose = (A) => A[0].map((_, j) => A.map((row) => row[j]));
  const dot = (a, b) => a.reduce((total, x, l) => total + x * b[l], 0);
  const pairs = (Q, K, f) => Q.map((q) => K.map((k) => f(q, k)));
  const matmul = (A, B) => pairs(A, transpose(B), dot);
  const add = (A, B) => A.map((row, i) => row.map((x, j) => x + B[i][j]));

  const dot_score = (Q, K) => pairs(Q, K, dot);
  const scaled_dot_score = (Q, K) => pairs(Q, K, (q, k) => dot(q, k) / Math.sqrt(q.length));

  const distance = (q, k, bandwidth) => Math.hypot(...q.map((x, l) => x - k[l])) / bandwidth;
  const kernel = (f) => (Q, K, bandwidth = 1) => pairs(Q, K, (q, k) => f(distance(q, k, bandwidth)));
  const gaussian_kernel = kernel((u) => Math.exp(-u * u / 2));
  const boxcar_kernel = kernel((u) => (u <= 1 ? 1 : 0));
  const triangular_kernel = kernel((u) => Math.max(0, 1 - u));
  const epanechnikov_kernel = kernel((u) => 0.75 * Math.max(0, 1 - u * u));
  const normalize = (W) => W.map((row) => row.map((w) => w / (sum(row) || 1)));

  // A row of -Infinity alone gives NaN, as in NumPy.
  const softmax = (S) => S.map((row) => {
    const top = Math.max(...row), e = row.map((x) => Math.exp(x - top)), total = sum(e);
    return e.map((x) => x / total);
  });
  const fill = (S, mask, hidden) => S.map((row, i) => row.map((s, j) => (mask[i][j] ? s : hidden)));
  const masked_softmax = (S, mask) =>
    softmax(fill(S, mask, -Infinity)).map((row, i) => row.map((w, j) => (mask[i][j] ? w : 0)));
  const causal_mask = (n, m = n) => range(n).map((i) => range(m).map((j) => j <= i + m - n));
  const entropy = (row) => -sum(row.map((w) => (w ? w * Math.log(w) : 0)));

  // Park and Miller's generator: the same numbers between 0 and 1 wherever the seed is the same.
  const random = (seed) => () => (seed = seed * 16807 % 2147483647) / 2147483647;

  const sinusoidal_encoding = (n, d, base = 10000) => range(n).map((p) => range(d).map((c) =>
    Math[c % 2 ? "cos" : "sin"](p * base ** (-(c - c % 2) / d))));
  const rotary = (X, positions, base = 10000) => X.map((row, p) => row.map((x, c) => {
    const angle = positions[p] * base ** (-(c - c % 2) / row.length), [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    return c % 2 ? row[c - 1] * sin + x * cos : x * cos - row[c + 1] * sin;
  }));

  return {
    sum, range, transpose, matmul, add, dot_score, scaled_dot_score, gaussian_kernel, boxcar_kernel, triangular_kernel,
    epanechnikov_kernel, normalize, softmax, fill, masked_softmax, causal_mask, entropy, random,
    sinusoidal_encoding, rotary,
  };
})();
