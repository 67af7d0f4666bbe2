/* What the search page finds: sections, gathered by page, and quoted. Their words are in sections.js, which
   book/_ext/search_sections.py writes; Sphinx's own index knows which page has a word, and not where or how often. */
{
  const TITLE = 2; // a title's word counts so much more
  const CHAPTER = 1.5; // so much more, for chapters explain what other pages name and list
  const NEXT = 0.5; // what each section adds to its page, beside the one before

  const stems = new Map(), stemmer = new Stemmer();
  const stem = (word) => stems.get(word) ?? stems.set(word, stemmer.stemWord(word)).get(word);
  // Words of a question say nothing of what it is about.
  const asking = "what why how when which who where do does did can should i my we you".split(" ");
  const kept = (text) => {
    const words = splitQuery(text.toLowerCase()).filter((word) => !stopwords.includes(word)), about = words.filter((word) => !asking.includes(word));
    return about.length ? about : words;
  };
  const wordsOf = (text) => kept(text).map(stem);
  // What a hyphen joins is also found as one word.
  const joined = (text) => [...text.toLowerCase().matchAll(/[a-z]+(?:-[a-z]+)+/g)].map(([word]) => stem(word.replaceAll("-", "")));
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

  const isTerm = ({ id }) => id.startsWith("term-"); // an entry of the glossary
  const allNames = new Map(PAGES["book/glossary"].sections.filter(isTerm).flatMap(({ title }) =>
    title.split(", ").map((name) => [name.toLowerCase(), title])));

  const sections = Object.entries(PAGES).flatMap(([page, { title: pageTitle, sections }]) =>
    sections.map((section, place) => {
      const { id, title, terms, prose, words } = section;
      const text = `${pageTitle} ${title} ${prose} ${words}`, all = wordsOf(text), counts = new Map();
      for (const word of [...all, ...joined(text)]) counts.set(word, (counts.get(word) ?? 0) + 1);
      return {
        ...section, page, counts, length: all.length,
        // Where a chapter first uses a term of the glossary, that counts as its title does.
        names: new Set(wordsOf(`${title} ${terms.map((term) => allNames.get(term))}`)),
        full: place ? `${pageTitle} › ${title}` : pageTitle,
        address: place ? `${page}.html#${id}` : `${page}.html`,
      };
    }));
  const mean = sum(sections.map(({ length }) => length)) / sections.length;
  const holders = new Map(); // of each word: in how many sections it is
  for (const { counts } of sections) for (const word of counts.keys()) holders.set(word, (holders.get(word) ?? 0) + 1);

  /* Whether so many letters put in, left out, changed or swapped with the next make one word of the other. */
  const near = (a, b, slips) => {
    if (a === b) return true;
    if (!slips || Math.abs(a.length - b.length) > slips) return false;
    let i = 0;
    while (a[i] === b[i]) i++;
    const [x, y] = [a.slice(i), b.slice(i)];
    return near(x.slice(1), y.slice(1), slips - 1) || near(x.slice(1), y, slips - 1) || near(x, y.slice(1), slips - 1)
      || (x[0] === y[1] && x[1] === y[0] && near(x.slice(2), y.slice(2), slips - 1));
  };

  /* The words that one which is nowhere stands for: those that begin with it; or that differ by a slip, a long one by two;
     or that contain it. */
  const meant = (word) => {
    if (word.length < 3) return [];
    const known = [...holders.keys()], begun = known.filter((x) => x.startsWith(word));
    if (begun.length) return begun;
    for (const slips of word.length > 7 ? [1, 2] : word.length > 3 ? [1] : []) {
      const found = known.filter((x) => x[0] === word[0] && near(x, word, slips));
      if (found.length) return found;
    }
    return known.filter((x) => x.includes(word));
  };

  /* The words of a query without their slips; of several that may be meant, the one that most sections have. */
  const mended = (query) => wordsOf(query).map((word) => {
    const [first, ...others] = holders.has(word) ? [word] : meant(word);
    return others.reduce((best, x) => (holders.get(x) > holders.get(best) ? x : best), first ?? word);
  }).join();

  /* The words that are asked for, each with how rare it is. */
  const ask = (query) =>
    [...new Set(wordsOf(query))].flatMap((word) => {
      const alike = holders.has(word) ? [word] : meant(word);
      const held = Math.max(...alike.map((word) => holders.get(word)));
      return alike.length ? [{ alike, rarity: Math.log(1 + (sections.length - held + 0.5) / (held + 0.5)) }] : [];
    });

  /* BM25 (Robertson & Zaragoza, 2009): what is rare counts more, and what stands in a short section. */
  const score = ({ counts, names, length }, asked) => {
    const often = ({ alike }) => sum(alike.map((word) => counts.get(word) ?? 0));
    const has = asked.filter(often);
    if (sum(has.map(({ rarity }) => rarity)) < sum(asked.map(({ rarity }) => rarity)) / 3) return 0;
    return sum(has.map((word) => {
      const n = often(word), inTitle = word.alike.some((x) => names.has(x));
      return word.rarity * (2.5 * n / (n + 1.5 * (0.25 + 0.75 * length / mean)) + (inTitle ? TITLE : 0));
    }));
  };

  /* Plain questions whose words stand everywhere, and the sections that answer them, behind the glossary. */
  const PINNED = {
    attention: ["book/01_queries_keys_values.html"], "causal mask": ["book/03_masked_softmax.html#the-causal-mask"],
    "attention is all you need": ["book/04_self_attention.html"],
    "kv cache": ["book/10_fast_attention/one_token.html", "book/13_cheaper_memory.html"], "q k v": ["book/01_queries_keys_values.html"],
    quantization: ["book/13_cheaper_memory.html#round-eight-bits"], "mask polarity": ["book/notation.html#rosetta-table"],
    "run on gpu": ["book/intro.html#how-to-run"],
  };
  const pinned = new Map(Object.entries(PINNED).map(([question, places]) => [wordsOf(question).join(), places]));

  /* The pages that answer, best first, each as its sections, best first. A term of the glossary stands for all its names,
     and its entry is the first answer. */
  const find = (query) => {
    const words = mended(query), same = (name) => wordsOf(name).join() === words;
    const entry = sections.find((section) => isTerm(section) && section.title.split(", ").some(same));
    const questions = (entry?.title.split(", ") ?? [query]).map(ask);
    const pages = new Map();
    const pins = pinned.get(words) ?? [];
    for (const section of sections) {
      const fit = Math.max(...questions.map((asked) => score(section, asked))), pin = pins.indexOf(section.address);
      const worth = section === entry ? Infinity : pin < 0 ? fit : 1e6 - pin;
      if (worth) pages.set(section.page, [...(pages.get(section.page) ?? []), { ...section, worth }]);
    }
    const whole = ([best, ...others]) =>
      sum([best, ...others].map(({ worth }, place) => worth * NEXT ** place)) * (/^\d/.test(best.full) ? CHAPTER : 1);
    for (const found of pages.values()) found.sort((a, b) => b.worth - a.worth);
    return { found: [...pages.values()].sort((a, b) => whole(b) - whole(a)), asked: questions.flat() };
  };

  /* The sentence with most of what is asked for, and the next where that is short. */
  const quote = ({ id, prose }, asked) => {
    if (isTerm({ id })) return prose; // whole
    const sentences = prose.split(/\n|(?<=[.?!]) (?![[(\d])/);
    const worth = sentences.map((sentence) => {
      const words = new Set(wordsOf(sentence));
      return sum(asked.map(({ alike, rarity }) => (alike.some((word) => words.has(word)) ? rarity : 0)));
    });
    const best = worth.indexOf(Math.max(...worth));
    const length = sentences[best].length < 100 ? 2 : 1;
    return sentences.slice(best, best + length).join(" ");
  };

  /* An element with text, whose formulas MathJax draws; marked words within them would hide them from it. */
  const make = (tag, text, attributes) => {
    const made = Object.assign(document.createElement(tag), attributes);
    text.split(/(\\\(.*?\\\))/).forEach((part, place) => {
      const formula = Object.assign(document.createElement("span"), { className: "nohighlight", textContent: part });
      made.append(place % 2 ? formula : part);
    });
    return made;
  };

  Search.query = (query) => {
    const { found, asked } = find(query), marked = kept(query).filter((word) => word.length > 2);
    for (const [best, ...others] of found) {
      const item = document.createElement("li");
      item.append(make("a", best.full, { href: best.address }), make("p", quote(best, asked), { className: "context" }));
      const good = others.filter(({ worth }) => worth > best.worth / 2);
      for (const { title, address } of good.slice(0, 2)) {
        const line = make("p", "", { className: "context" });
        line.append(make("a", title, { href: address }));
        item.append(line);
      }
      for (const word of marked) _highlightText(item, word, "highlighted");
      Search.output.append(item);
    }
    localStorage.setItem("sphinx_highlight_terms", marked.join(" ")); // the page that is opened marks them too
    _finishSearch(found.length);
    window.MathJax?.startup?.promise.then(() => MathJax.typesetPromise([Search.output]));
  };

  /* Results come as one types. */
  document.addEventListener("DOMContentLoaded", () => {
    let resting;
    for (const field of document.querySelectorAll("main input[name=q], article input[name=q]"))
      field.addEventListener("input", () => {
        clearTimeout(resting);
        resting = setTimeout(() => {
          if (!field.value.trim()) return;
          document.getElementById("search-results").replaceChildren();
          Search.performSearch(field.value);
        }, 200);
      });
  });
}
