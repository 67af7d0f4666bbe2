/* The puzzles of attn-puzzle.js. Each has
     boards          what the reader sets, and how it opens
     layers          (tokens, boards, output of the layer below) => Q, K, V and, if one may not see all, mask
     wants           what each token must write, null where nothing is asked
     words, hidden   texts that are shown, and that only judge. A token is a letter, for some with a number: "a3b1". */
attn.puzzles = (() => {
  "use strict";
  const { range, sum, matmul, causal_mask } = attn;
  const one_hot = (xs, n) => xs.map((x) => range(n).map((k) => +(k === x)));
  const rank = (x) => x.map(({ letter }) => "abcd".indexOf(letter));
  const letters = (x, many = 3) => one_hot(rank(x), many);
  const places = (x) => one_hot(range(x.length), x.length);
  const clock = (x) => x.map((_, p) => [[1, 0], [0, 1], [-1, 0], [0, -1]][p]);
  const numbers = (x) => x.map((token) => [token.number]);
  const ones = (x) => x.map(() => [1]);
  const who = (x, may) => x.map((_, i) => x.map((_, j) => may(i, j)));
  const causal = (x) => causal_mask(x.length);
  const beside = (A, B) => A.map((row, i) => [...row, ...B[i]]);
  const times = (A, c) => A.map((row) => row.map((y) => c * y));
  const mean = (rows) => rows[0]?.map((_, c) => sum(rows.map((row) => row[c])) / rows.length);

  const four = "babc cbaa acbb bbca cacb bacc abac bccb cabb", five = "bbaca caacb bcbab acbca cbaab baabb cccab babca acaab";
  const sharpness = { name: "Sharpness", says: "multiplies all scores", columns: ["times"], start: [[1]], limits: [1, 9] };
  // What a key scores, whoever asks
  const taste = (start) => [{ name: "W_k", says: "what a key scores for its letter, and per step of its place", columns: ["a", "b", "c", "place"], start: [start] }, sharpness];
  const tasting = (value) => [(x, [[W_k]]) => ({ Q: ones(x), K: matmul(beside(letters(x), x.map((_, p) => [p])), W_k.map((y) => [y])), V: value(x), mask: causal(x) })];
  const turn = (start) => [{ name: "W_q", says: "turns a token's direction into the one in which it looks", rows: ["x", "y"], columns: ["x", "y"], start }, sharpness];
  const turning = (mask) => (x, [W_q], below) => ({ Q: matmul(clock(x), W_q), K: clock(x), V: below ?? letters(x), mask: mask?.(x) });

  return {
    mean: {
      name: "Mean", boards: taste([2, 0, -1, 1]), layers: tasting(letters),
      ask: "Each token writes the mean of the letters so far, its own included. All tokens ask alike.",
      wants: (x) => x.map((_, i) => mean(letters(x).slice(0, i + 1))),
      hints: ["A mean has equal weights. What must the scores of a row be like?", "Softmax sees only differences.", "Let a, b and c score alike, and the place nothing."],
      learnt: "Equal scores give equal weights: attention begins as a mean. The sharpness multiplies differences, and there are none.",
      words: ["abcab", "bbacb", "aaaab"], hidden: five,
    },
    first: {
      name: "First", boards: taste([0, 0, 0, 0]), layers: tasting(letters),
      ask: "Each token writes the letter of the first. It is a mean now; make it one letter.",
      wants: (x) => x.map(() => letters(x)[0]),
      hints: ["One key must please all. What has only the first?", "The smallest place. With which sign does the smallest win?", "Place −1, letters 0. The sharpness clears the blur."],
      learnt: "The smallest place wins, with a lead of 4 or more: e⁻⁴ is 0.02. In trained models many heads rest on the first token.",
      words: ["abcab", "bacba", "cabbc"], hidden: five,
    },
    before: {
      name: "Before", layers: [(x, [mask]) => ({ Q: ones(x), K: x.map(() => [0]), V: letters(x), mask: mask.map((row) => row.map(Boolean)) })],
      boards: [{ name: "Mask", says: "rows ask, columns are keys; press to permit or forbid", rows: [0, 1, 2, 3], columns: [0, 1, 2, 3], press: true, limits: [0, 1],
        start: range(4).map((i) => range(4).map((j) => +(j <= i))) }],
      ask: "All scores are 0. Each token writes the mean of the letters before it, without its own; the first writes nothing.",
      wants: (x) => x.map((_, i) => mean(letters(x).slice(0, i)) ?? [0, 0, 0]),
      hints: ["Whom should no token see?", "Itself. What remains for the first?", "Forbid the diagonal. A row without a permitted key writes 0."],
      learnt: "The mask says who is seen, equal scores share it, and a query with no permitted key writes 0.",
      words: ["abca", "bcab", "ccab"], hidden: four,
    },
    like: {
      name: "Like", layers: [(x, [W_q]) => ({ Q: matmul(letters(x), W_q), K: letters(x), V: numbers(x) })],
      boards: [{ name: "W_q", says: "what a token of this letter (row) scores a key of that", rows: ["a", "b", "c"], columns: ["a", "b", "c"], start: [[1, 1, 0], [0, 0, 1], [0, 0, 0]] }, sharpness],
      ask: "Each token writes the mean of the numbers of all tokens with its letter. No mask.",
      wants: (x) => x.map(({ letter }) => mean(numbers(x.filter((other) => other.letter === letter)))),
      hints: ["The first row: whom does an a like now?", "Every letter should like its own. Which matrix is that?", "1 on the diagonal, 0 elsewhere. And sharp."],
      learnt: "The identity finds one's like, and equal scores share evenly. Databases call it GROUP BY.",
      words: ["a3b1a5c2b7", "c4a2c8b6a2", "b9b1b2a4c6"], hidden: "a1a9c5b3c7 b2c8a6c2c5 c3b7a1a5b9 a8b4b6b2c1 c9c1a7b5a3 b6a2c4c8b2 a5c3a1a9b7 c2b8c6a4a6 b1a7b3c5a9",
    },
    back: {
      name: "One back", picture: "clock", boards: turn([[1, 0], [0, 1]]), layers: [turning(causal)],
      ask: "Each token writes the letter of the one before; the first sees only itself. Places stand round a clock, 0 at (1, 0), 1 at (0, 1), 2 at (−1, 0), 3 at (0, −1). Turn the hands.",
      wants: (x) => letters(x).map((_, i) => letters(x)[Math.max(0, i - 1)]),
      hints: ["A hand shows where its token looks. How far must all turn?", "A quarter, backwards. Row x says where (1, 0) goes, row y where (0, 1) goes.", "1 looks at 0, so row y is (1, 0). 2 looks at 1: row x takes (−1, 0) to (0, 1)."],
      learnt: "One back is a quarter turn, the same for every place. So clock hands carry distances (chapter 6).",
      words: ["abbc", "caab", "bcca"], hidden: four,
    },
    backwards: {
      name: "Backwards", picture: "clock", boards: turn([[1, 0], [0, 1]]), layers: [turning()],
      ask: "Write the text backwards: 0 looks at 3, 1 at 2, 2 at 1, 3 at 0. No mask. Does a turn do it?",
      wants: (x) => letters(x).reverse(),
      hints: ["0 and 3 change places, and so do 1 and 2, which are neighbours: no turn does that.", "0 looks at 3, so row x is (0, −1). Now row y.", "A mirror: −1 twice, off the diagonal."],
      learnt: "A mirror and not a turn: off the diagonal the signs are equal, and opposite in “One back”.",
      words: ["abca", "bcab", "acca"], hidden: four,
    },
    newest: {
      name: "Newest a", boards: taste([1, 0, 0, 0]), layers: tasting(numbers),
      ask: "Each token writes the number of the newest a so far, itself included; as long as there is none, its own.",
      wants: (x) => x.map((token, i) => [(x.slice(0, i + 1).findLast(({ letter }) => letter === "a") ?? token).number]),
      hints: ["Two wishes: an a, and new. Give each a score.", "An old a must beat every newer letter. How many places can it lie back?", "Place 1, a 6 or more to outbid five places. And sharp."],
      learnt: "Two wishes in one score: the letter outbids all places, and the place breaks the tie.",
      words: ["b2a5c1a3b4c7", "c4b1a6b3c2a8", "a1b5b2c6a9b3"], hidden: "a7b2c4b1c3b8 b3c1b5c8b2c4 c6a2c9b4b7c1 a3c8b1b6c2c5 b9a1c7c3b2b5 c2c6b8a4b3a9 a5a8b2c7c4b1 b4c5a7b9c6b3 a2b6c1c8b5a7",
    },
    twice: {
      name: "Twice", picture: "clock", boards: turn([[-1, 0], [0, -1]]), layers: [turning(), turning()],
      ask: "Two layers, one W_q: the second reads what the first wrote. After both, each token has the letter two places back, round the clock. No mask.",
      wants: (x) => letters(x).map((_, i) => letters(x)[(i + 2) % 4]),
      hints: ["Half a turn is two steps back, but done twice it comes home.", "Which turn, done twice, is half a turn?", "That of “One back”: rows (0, −1) and (1, 0)."],
      learnt: "The quarter turn does it: its square is −1, as i² = −1. (Others do too.) Layers compose.",
      words: ["abca", "bcab", "caab"], hidden: four,
    },
    sort: {
      name: "Sort", picture: "curves", boards: [{ name: "W_q", says: "what r and r² count, per step of p and for the 1", rows: ["p", "1"], columns: ["r", "r²"], start: [[1, 0], [0, 0]] }, sharpness],
      layers: [(x, [W_q]) => ({ Q: matmul(x.map((_, p) => [p, 1]), W_q), K: rank(x).map((r) => [r, r * r]), V: letters(x, 4) })],
      ask: "Write a text of a, b, c and d sorted: place p must find the letter of rank r = p (a has rank 0, d has 3). Keys know r and r², queries p and 1. No mask.",
      wants: (x) => places(x),
      hints: ["With p · r alone all like the largest rank. The top should be at r = p.", "A hill with its top there is −(p − r)². Multiply it out.", "−p² + 2 p r − r²: the first is the same for all keys, so softmax drops it."],
      learnt: "−(p − r)² is a dot product in disguise: softmax drops −p². So attention can be a Gaussian kernel.",
      words: ["cadb", "bdac", "dbca"], hidden: "abcd dcba badc cdab acdb bcad dacb cbda adbc",
    },
    after: {
      name: "After a", layers: [(x, [[letter], [place]]) => ({ Q: ones(x), K: matmul(beside(letters(x, 4), places(x)), [...letter, ...place].map((y) => [y])), V: letters(x, 4), mask: causal(x) })],
      boards: [{ name: "W_k", says: "what a key scores for its letter", columns: ["a", "b", "c", "d"], start: [[1, 0, 0, 0]] },
        { name: "W_k", says: "and for its place", columns: [0, 1, 2, 3, 4], start: [[0, 0, 0, 0, 0]] }, sharpness],
      ask: "The last token, an a, must write the letter that came right after the earlier a. Nothing is asked of the others. One head.",
      wants: (x) => x.map((_, i) => (i < 4 ? null : letters(x, 4)[1 + rank(x).indexOf(0)])),
      hints: ["Solve one text. What happens to the others?", "Which key should win in abcda, and which in cbada?", "Compare what stands at places 1 and 3 in these two."],
      reason: "own",
      learnt: "In abcda and adcba place 1 must win against 3; in cbada and cdaba 3 against 1. But both pairs have the same letters there, which add the same before one head divides, whatever "
        + "the matrices. The proof is below, at “Impossible”. Two heads can, each with a sum of its own, and so can a layer underneath: see “Two heads” and “Induction”.",
      words: ["abcda", "cbada", "dcaba"], hidden: "adcba cdaba dabca bacda acbda bdaca adbca bcada",
    },
    induction: {
      name: "Induction",
      layers: [(x, [[near]]) => ({ Q: who(x, (i, j) => (j < i ? near[Math.min(i - j, 3) - 1] : 0)), K: places(x), V: letters(x), mask: who(x, (i, j) => j < i) }),
        (x, [, M, [hand]], slot) => {
          const T = letters(x), mix = (a, b) => attn.add(times(T, a), times(slot, b));
          return { Q: beside(mix(M[0][0], M[1][0]), mix(M[0][1], M[1][1])), K: beside(T, slot), V: mix(...hand), mask: causal(x) };
        }],
      boards: [{ name: "Layer 1", says: "scores a key by how far back it is; what it reads goes into the token's slot", columns: ["1", "2", "3+"], start: [[0, 0, 0]] },
        { name: "Layer 2, W_q", says: "scores a key if my part (row) holds its part's letter", rows: ["my letter", "my slot"], columns: ["its letter", "its slot"], start: [[1, 0], [0, 0]] },
        { name: "W_v", says: "what it hands over", columns: ["its letter", "its slot"], start: [[0, 1]] }, sharpness],
      ask: "A token whose letter stood before writes the letter that came after it then, or the mean of several. Layer 1 sees earlier tokens, layer 2 also itself.",
      wants: (x) => x.map(({ letter }, i) => mean(range(i).filter((j) => x[j].letter === letter).map((j) => letters(x)[j + 1])) ?? null),
      hints: ["Layer 1 can tell each token what came before it.", "One back: a slot holds the letter before. Whose slot do you look for?", "My letter against its slot. And of that key you want the letter."],
      learnt: "An induction head: layer 1 writes into each token what came before it, layer 2 finds the token whose slot holds my letter and copies it. Trained models grow the same two steps (9A).",
      words: ["abcabc", "bacbab", "ccabca"], hidden: "cabcaa abacba bbcbab acbacb bcabbc caacab abbcab cbacbb bacabc",
    },
  };
})();
