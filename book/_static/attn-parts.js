/* Every number that chapter 9's model makes of a text, in the order in which they are computed, and its arithmetic. A part has what it is of, a label
   if it is drawn, its name, the stage in which it comes, its rows (value) and how number j of row i comes about (made): a sum of products of a row
   (left, found at from) with a column (right, found at other), or words (says) with the numbers that they need. */
attn.sentence_parts = (model) => {
  const { apply, normed, gelu, turned, range, number, letter: seen_as } = attn, { d, width, n_heads } = model, { factor } = attn, parts = {};
  const part = (name, of, label, words, stage, value, made, more) => { parts[name] = { of, label, name: words, stage, value, made, ...more }; };
  const linear = (name, of, label, words, stage, from, layer, letter) => part(name, of, label, words, stage, (v) => apply(layer, v[from]), (i, j, v) => {
    const left = v[from][i], n = left.length;
    return { left, right: layer.W.subarray(j * n, (j + 1) * n), from: (k) => ({ part: from, column: k }), names: [`the line ${parts[from].label}`, `column ${j} of ${letter}`], plus: layer.b[j], lit: [[from, 0, n]] };
  });
  const norm = (name, of, stage, from, layer) => part(name, of, "norm", "norm", stage, (v) => normed(layer, v[from]), (i, j, v) => {
    const x = v[from][i], mean = attn.sum([...x]) / d, deviation = Math.sqrt(attn.sum([...x].map((a) => (a - mean) ** 2)) / d + 1e-5);
    return { says: `(${factor(x[j])} − mean ${factor(mean)}) / deviation ${factor(deviation)} · gain ${factor(layer.gain[j])} + shift ${factor(layer.shift[j])}`, needs: [[from, j]], lit: [[from, 0, d]] };
  });
  const plus = (name, of, stage, a, b) => part(name, of, name[0] === "y" ? "Y" : "Z", "stream", stage, (v) => attn.add(v[a], v[b]), (i, j, v) =>
    ({ says: `${factor(v[a][i][j])} + ${factor(v[b][i][j])}`, needs: [[a, j], [b, j]], lit: [[a, j, j + 1], [b, j, j + 1]] }), { stream: true });
  part("x0", "embedding", "X", "embedding", 0, (v) => v.ids.map((id) => model.embedding.slice(id * d, (id + 1) * d)),
    () => ({ says: "looked up in the row that the embedding has for this character, wherever it stands", needs: [], lit: [] }), { stream: true });
  model.blocks.forEach((layer, b) => {
    const of = `attention of block ${b}`, mlp = `MLP of block ${b}`, stage = 2 * b + 1, seen = (i) => range(i + 1);
    norm(`n${b}`, of, stage, `x${b}`, layer.norm_1);
    for (const [letter, words] of [["q", "query"], ["k", "key"], ["v", "value"]]) {
      linear(letter + b, of, letter, words, stage, `n${b}`, layer[letter], "W_" + letter);
      if (letter === "v") continue;
      part((letter === "q" ? "t" : "u") + b, of, `${letter} turned`, `turned ${words}`, stage, (v) => v[letter + b].map((x, p) => turned(x, p, width)), (i, j, v) => {
        const x = v[letter + b][i], pair = j % 2 ? [j - 1, j] : [j, j + 1], angle = i * 10000 ** (-(pair[0] % width) / width);
        return { says: j % 2 ? `sin ${number(angle, 2)} · ${factor(x[pair[0]])} + cos ${number(angle, 2)} · ${factor(x[j])}` : `cos ${number(angle, 2)} · ${factor(x[j])} − sin ${number(angle, 2)} · ${factor(x[pair[1]])}`,
          needs: pair.map((c) => [letter + b, c]), lit: [[letter + b, pair[0], pair[1] + 1]] };
      });
    }
    for (const h of range(n_heads)) {
      const S = `s${b}${h}`, A = `a${b}${h}`, cut = (x) => x.subarray(h * width, (h + 1) * width);
      part(S, of, "", "score", stage, (v) => v[`t${b}`].map((q, i) => seen(i).map((j) => attn.sum([...cut(q)].map((x, l) => x * cut(v[`u${b}`][j])[l])) / Math.sqrt(width))), (i, j, v) => ({
        left: cut(v[`t${b}`][i]), right: cut(v[`u${b}`][j]), from: (k) => ({ part: `t${b}`, column: h * width + k }), other: (k) => ({ part: `u${b}`, column: h * width + k, at: j }),
        names: [`the turned query’s part for head ${h}`, `the turned key of “${seen_as(v.text[j])}” at ${j}`], scale: Math.sqrt(width), lit: [...["t", "u"].map((from) => [from + b, h * width, (h + 1) * width]), [A, j, j + 1]],
      }), { head: h });
      part(A, of, `head ${h}`, "weight", stage, (v) => v[S].map((row) => attn.softmax([row])[0]), (i, j, v) => {
        const top = Math.max(...v[S][i]), total = attn.sum(v[S][i].map((s) => Math.exp(s - top)));
        return { says: `exp(${number(v[S][i][j], 2)} − ${number(top, 2)}) / ${number(total, 2)}, the sum over all characters up to here (${number(top, 2)} is the largest score)`, needs: [[S, j]], lit: ["t", "u"].map((from) => [from + b, h * width, (h + 1) * width]) };
      }, { head: h });
    }
    part(`o${b}`, of, "heads", "output of the heads", stage, (v) => v[`v${b}`].map((_, i) => {
      const found = new Float32Array(d);
      for (const h of range(n_heads)) model.gather(found, v[`a${b}${h}`][i], v[`v${b}`], h * width);
      return found;
    }), (i, j, v) => {
      const h = Math.floor(j / width), A = `a${b}${h}`;
      return { left: v[A][i], right: seen(i).map((k) => v[`v${b}`][k][j]), from: (k) => ({ part: A, column: k }), other: (k) => ({ part: `v${b}`, column: j, at: k }),
        names: [`the weights of head ${h}`, `column ${j} of the values v`], lit: [[A, 0, i + 1]] };
    });
    linear(`p${b}`, of, "adds", "addition", stage, `o${b}`, layer.out, "W_o");
    plus(`y${b}`, of, stage, `x${b}`, `p${b}`);
    norm(`m${b}`, mlp, stage + 1, `y${b}`, layer.norm_2);
    linear(`h${b}`, mlp, "hidden", "hidden number", stage + 1, `m${b}`, layer.widen, "W_1");
    part(`g${b}`, mlp, "GELU", "GELU", stage + 1, (v) => gelu(v[`h${b}`].map((x) => x.slice())), (i, j, v) =>
      ({ says: `${factor(v[`h${b}`][i][j])} · ${number(v[`h${b}`][i][j] ? v[`g${b}`][i][j] / v[`h${b}`][i][j] : 0.5, 2)}, the share of a normal variable below it`, needs: [[`h${b}`, j]], lit: [[`h${b}`, j, j + 1]] }));
    linear(`f${b}`, mlp, "adds", "addition", stage + 1, `g${b}`, layer.narrow, "W_2");
    plus(`x${b + 1}`, mlp, stage + 1, `y${b}`, `f${b}`);
  });
  norm("l", "the guess", 5, "x2", model.norm);
  linear("z", "the guess", "logits", "logit", 5, "l", model.head, "the head");
  part("r", "the guess", "odds", "odds", 5, (v) => attn.softmax(v.z.map((row) => [...row])), (i, j, v) => {
    const top = Math.max(...v.z[i]), total = attn.sum([...v.z[i]].map((x) => Math.exp(x - top)));
    return { says: `exp(${number(v.z[i][j], 2)} − ${number(top, 2)}) / ${number(total, 2)}, the sum over the ${v.z[i].length} characters (${number(top, 2)} is the largest logit)`, needs: [["z", j]], lit: [["z", j, j + 1]] };
  });
  return parts;
};

/* Of how many characters each of the four additions is the longest. */
attn.longest_additions = (parts, values) => {
  const names = ["p0", "f0", "p1", "f1"], count = new Map();
  for (const i of values.ids.keys()) {
    const lengths = names.map((part) => Math.hypot(...values[part][i])), { of } = parts[names[lengths.indexOf(Math.max(...lengths))]];
    count.set(of, (count.get(of) ?? 0) + 1);
  }
  return [...count].map(([of, times]) => `that of the ${of} (${times})`);
};

/* A sum of products in words: the three largest, the rest together, a bias, and what all is divided by. */
attn.sum_in_words = ({ left, right, names, plus, scale }) => {
  const { number, sum, range, factor } = attn, products = [...left].map((a, k) => a * right[k]);
  const order = range(products.length).sort((a, b) => Math.abs(products[b]) - Math.abs(products[a])).slice(0, 3), many = products.length - order.length;
  const written = order.map((k) => `${factor(left[k])} · ${factor(right[k])}`), rest = sum(products) - sum(order.map((k) => products[k]));
  const says = `${names[0]} times ${names[1]}: ${written.join(" + ")}` + (many ? `, ${many} smaller products, together ${number(rest, 2)}` : "")
    + (plus === undefined ? "" : `, and the bias ${number(plus, 2)}`) + (scale ? `; all that divided by √${left.length}` : "");
  return { order, says, written };
};

/* A number in a product, always with two digits, so that the sum can be checked. */
attn.factor = (x) => (x < 0 ? `(${attn.number(x, 2)})` : attn.number(x, 2));
