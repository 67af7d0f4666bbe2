/* Questions to remember (book/_ext/recall.py): whether one knew the answer, when each is asked again, and which pages
   were read. All of it stays in this browser: localStorage has {asked: {question: [step before, knew it, day]}, read: {page: day}}. */
document.addEventListener("DOMContentLoaded", () => {
  const KEY = "attn-recall", AFTER = [1, 1, 3, 7, 21, 60]; // days, by step; step 0 is "not known"
  const DAY = 864e5, root = new URL(document.documentElement.dataset.content_root, location.href).href;
  const pageOf = (address) => address.split("#")[0].replace(root, "");
  const here = pageOf(location.href);

  const today = () => Math.floor((Date.now() - new Date().getTimezoneOffset() * 6e4) / DAY); // it begins at midnight
  const step = ([before, knew]) => (knew ? Math.min(before + 1, AFTER.length - 1) : 0);
  const due = (record) => record[2] + AFTER[step(record)];
  const date = (day) => new Date(day * DAY).toLocaleDateString("en-GB", { day: "numeric", month: "long", timeZone: "UTC" });
  const when = (day) => (day === today() + 1 ? "tomorrow" : `on ${date(day)}`);
  const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

  let memory = { asked: {}, read: {} };
  const look = () => {
    try { memory = { ...memory, ...JSON.parse(localStorage.getItem(KEY)) }; } catch { /* it is blocked, or another's */ }
  };
  const change = (apply) => {
    look(); // another tab may have written
    apply();
    try { localStorage.setItem(KEY, JSON.stringify(memory)); } catch { /* kept until the page is left */ }
    mark();
  };

  const html = (tag, attributes = {}, ...inside) => {
    const part = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))
      if (name.startsWith("on")) part.addEventListener(name.slice(2), value);
      else part.setAttribute(name, value);
    part.append(...inside);
    return part;
  };

  const questions = [...document.querySelectorAll("details.recall")].map((fold) => {
    const badge = html("span", { class: "recall-mark" }), says = html("span", { role: "status" });
    const buttons = [true, false].map((knew) => html("button", {
      type: "button",
      onclick: () => {
        change(() => {
          const old = memory.asked[fold.id] ?? [0, false, 0];
          // Said twice on one day, the last word counts.
          memory.asked[fold.id] = [old[2] === today() ? old[0] : step(old), knew, today()];
          if (!listed && questions.every(({ fold: { id } }) => memory.asked[id])) memory.read[here] = today();
        });
        go_on(fold);
      },
    }, knew ? "I knew it" : "Not yet"));
    fold.querySelector("summary").append(badge);
    fold.append(html("p", { class: "recall-said" }, ...buttons, says));
    const draw = () => {
      const record = memory.asked[fold.id], now = record && due(record) <= today(), open = !record || now || record[2] === today();
      buttons.forEach((button, i) => {
        button.hidden = !open;
        button.setAttribute("aria-pressed", record?.[2] === today() && record[1] === !i);
      });
      says.textContent = record && !now ? `Asked again ${when(due(record))}.` : "";
      badge.textContent = now ? "due" : record?.[1] ? "✓" : "";
    };
    return { fold, draw };
  });

  /* The page Remember: what is due, or all. */
  const list = document.querySelector(".recall-list"), listed = Boolean(list);
  const records = () => Object.entries(memory.asked);
  const is_due = ([, record]) => due(record) <= today();
  const total = html("p", { class: "recall-total", role: "status" });
  const views = ["What is due", "All questions"].map((name, i) =>
    html("button", { type: "button", onclick: () => show(i === 0) }, name));
  const show = (only_due) => {
    views.forEach((view, i) => view.setAttribute("aria-pressed", only_due === !i));
    const wanted = new Set(records().filter(is_due).map(([id]) => id));
    for (const { fold } of questions) {
      fold.hidden = only_due && !wanted.has(fold.id);
      fold.open = false;
    }
    for (const page of list.querySelectorAll(".recall-page"))
      page.hidden = only_due && !page.querySelector("details:not([hidden])");
  };
  const go_on = (fold) => { // from one that is due to the next
    if (!listed || views[0].getAttribute("aria-pressed") !== "true") return;
    const left = questions.map(({ fold }) => fold).filter((x) => !x.hidden), next = left[left.indexOf(fold) + 1];
    fold.open = !next;
    next?.querySelector("summary").focus();
  };
  const tell = () => {
    const all = records(), now = all.filter(is_due).length, next = Math.min(...all.map(([, record]) => due(record)));
    const known = all.filter(([, [, knew]]) => knew).length;
    total.textContent = [
      now ? `${count(now, "question")} due today.` : all.length ? `Nothing is due today; the next ${when(next)}.`
        : "You have answered no question yet. Answer some here, or on the pages as you read them.",
      `You knew ${known} of ${questions.length}.`,
    ].slice(0, all.length ? 2 : 1).join(" ");
  };
  const save = () => {
    const address = URL.createObjectURL(new Blob([JSON.stringify(memory)], { type: "application/json" }));
    html("a", { href: address, download: "attn-memory.json" }).click();
    URL.revokeObjectURL(address);
  };
  const take = async ({ target }) => {
    let given;
    try { given = JSON.parse(await target.files[0].text()); } catch { given = {}; }
    const whole = (x) => Number.isInteger(x) && x >= 0;
    const answers = Object.entries(given?.asked ?? {}).filter(([id, x]) =>
      document.getElementById(id) && whole(x?.[0]) && whole(x[2]));
    const newer = answers.filter(([id, x]) => !(memory.asked[id]?.[2] >= x[2]));
    change(() => {
      for (const [id, [before, knew, day]] of newer) memory.asked[id] = [before, Boolean(knew), day];
      for (const [page, day] of Object.entries(given?.read ?? {})) if (whole(day)) memory.read[page] ??= day;
    });
    show(records().length > 0);
    total.textContent = answers.length ? `${count(newer.length, "answer")} taken from the file. ${total.textContent}`
      : "This file holds no memory of this book.";
    target.value = "";
  };

  /* What the book asks no more is never due. The page writes nothing else of its own, for it may have read too early. */
  const forget = () => {
    const gone = records().filter(([id]) => !document.getElementById(id));
    if (gone.length) change(() => gone.forEach(([id]) => delete memory.asked[id]));
  };

  /* Pages that were read have a mark wherever a link leads to them. */
  const mark = () => {
    for (const { draw } of questions) draw();
    for (const link of document.querySelectorAll(":is(.bd-sidebar-primary, .main-line, .page-head, .recall-page > p) a[href]"))
      link.classList.toggle("recall-read", !link.hash && pageOf(link.href) in memory.read);
    if (listed) tell();
  };

  look();
  if (listed) {
    forget();
    const file = html("input", { type: "file", accept: ".json", hidden: "", onchange: take });
    list.before(html("div", { class: "recall-desk" }, total, html("p", {}, ...views,
      html("button", { type: "button", onclick: save }, "Save to a file"),
      html("button", { type: "button", onclick: () => file.click() }, "Take from a file"), file)));
    show(records().length > 0);
  }
  mark();
  addEventListener("storage", () => {
    const first = !records().length;
    look();
    if (listed) forget();
    if (listed && first) show(true);
    mark();
  });

  const head = document.querySelector(".page-head"), end = document.querySelector(".prev-next-footer");
  if (!head) return;
  const mine = questions.map(({ fold }) => memory.asked[fold.id]).filter(Boolean), now = records().filter(is_due).length;
  const parts = [
    here in memory.read && `Read on ${date(memory.read[here])}.`,
    mine.length && `You knew ${mine.filter(([, knew]) => knew).length} of its ${count(questions.length, "question")}.`,
  ].filter(Boolean);
  const line = html("p", { class: "recall-state" }, parts.join(" "));
  if (now) line.append(" ", html("a", { href: `${root}book/remember.html` }, `${count(now, "question")} of the book due today`), ".");
  if (line.textContent) head.append(line);
  new IntersectionObserver(([{ isIntersecting }], watch) => {
    if (!isIntersecting) return;
    watch.disconnect();
    change(() => { memory.read[here] ??= today(); });
  }).observe(end);
});
