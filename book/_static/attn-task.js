/* What a figure asks of its reader, and how its state travels in an address. */

/* A figure may have "static tasks", which come one after the other. Each has
     ask      the question, with what to do
     guesses  answers to choose from, { key: text }, before the reader tries (a task without them begins at once)
     right    (figure, met) => the key of the right guess
     done     (figure, met) => whether the reader has seen enough; met is a Map of the task's own, to remember what was shown
     seen     (figure, met) => what was to be seen, in a sentence or two
     shows    (figure) => what of the state is set once it is done, so that one sees what "seen" says
     opens    what of the state "Next task" sets, where the task before may have left it otherwise
     yet      (figure, met) => what was shown so far, or what is still missing */
attn.Task = class {
  constructor(figure) {
    this.figure = figure;
    this.tasks = figure.constructor.tasks ?? [];
    this.part = attn.html("div", { class: "attn-task", role: "group", "aria-label": "Task" });
    this.verdict = attn.html("p", { class: "attn-verdict", role: "status", "aria-live": "polite" });
    this.part.hidden = !this.tasks.length;
    this.begin(0);
  }

  get task() { return this.tasks[this.number]; }

  begin(number) {
    Object.assign(this, { number, guess: null, done: false, met: new Map() });
    if (!this.task) return;
    const { ask, guesses = {} } = this.task, many = this.tasks.length > 1;
    const name = attn.html("strong", {}, many ? `Task ${number + 1} of ${this.tasks.length}. ` : "Task. ");
    this.buttons = Object.entries(guesses).map(([key, text]) => [key, attn.button(text, () => this.take(key))]);
    this.next = attn.button("Next task", () => {
      this.begin(number + 1);
      this.part.firstChild.focus(); // the button that had the focus is gone
      this.figure.set(structuredClone(this.task.opens ?? {}));
    });
    this.next.hidden = true;
    const choices = attn.html("div", { class: "attn-buttons", role: "group", "aria-label": "Your guess" }, ...this.buttons.map(([, button]) => button));
    choices.hidden = !this.buttons.length;
    this.say(this.buttons.length ? "Guess first, then try." : "");
    this.part.replaceChildren(attn.html("p", { tabindex: -1 }, name, ...attn.typeset(ask)),
      attn.html("div", { class: "attn-room" }, choices, attn.html("div", {}, this.next, this.verdict)));
    this.mark();
  }

  get guessed() { return this.guess ? `Your guess: ${this.task.guesses[this.guess]}. Now try.` : ""; }

  take(key) {
    if (this.done) return;
    this.guess = key;
    this.say(this.guessed);
    this.mark();
    this.figure.set({});
  }

  /* After each redraw. */
  look() {
    const { task, figure } = this;
    if (!task || this.done || (task.guesses && !this.guess)) return;
    if (!task.done(figure, this.met)) return void (task.yet && this.say(`${this.guessed} ${task.yet(figure, this.met)}`.trim()));
    this.done = true;
    const right = task.guesses && task.right(figure, this.met);
    const judged = !right ? "Done. " : right === this.guess ? "As you guessed. " : `You guessed “${task.guesses[this.guess]}”; it is “${task.guesses[right]}”. `;
    this.say(judged + task.seen(figure, this.met));
    this.next.hidden = this.number + 1 === this.tasks.length;
    if (this.part.contains(document.activeElement)) this.part.firstChild.focus(); // the guesses go
    this.mark(right);
    figure.set(task.shows?.(figure) ?? {}); // a picture may now show what it kept back
  }

  mark(right) {
    for (const [key, button] of this.buttons) {
      button.setAttribute("aria-pressed", key === this.guess);
      button.classList.toggle("attn-right", key === right);
    }
    this.part.classList.toggle("attn-done", this.done);
  }

  say(words) { this.verdict.replaceChildren(...attn.typeset(words)); }
};

Object.assign(attn, (() => {
  "use strict";
  /* The address of a state: the figure's name and what differs from its start, "#attn-scale--power-9--scale-root". Other
     signs than letters and digits are written as their codes, since the theme takes each address for a selector. */
  const coded = (text) => encodeURIComponent(text).replace(/[-_.!~*'()]/g, (sign) => "%" + sign.charCodeAt(0).toString(16)).replaceAll("%", "_");
  const decoded = (text) => decodeURIComponent(text.replaceAll("_", "%"));
  const address = ({ localName, state, constructor: { start } }) => {
    const changed = Object.entries(state).filter(([key, value]) => key in start && JSON.stringify(value) !== JSON.stringify(start[key]));
    const words = changed.map(([key, value]) => coded(key) + "-" + coded(typeof value === "string" ? value : JSON.stringify(value)));
    return "#" + [localName, ...(words.length ? words : [""])].join("--");
  };

  // An address comes from anywhere: what is not of the kind that the figure begins with, or what no control could set, stays out.
  const alike = (a, b) => typeof a === typeof b && Array.isArray(a) === Array.isArray(b)
    && (!Array.isArray(a) || (a.length === b.length && a.every((x, i) => alike(x, b[i]))));
  const state_of = (figure, words) => {
    const { start } = figure.constructor, state = structuredClone(start);
    for (const word of words) {
      try {
        const [key, text] = word.split("-").map(decoded), value = typeof start[key] === "string" ? text : JSON.parse(text);
        if (Object.hasOwn(start, key) && alike(value, start[key]) && (figure.fits[key]?.(value) ?? true)) state[key] = value;
      } catch {
        continue; // no state is written like that
      }
    }
    return state;
  };

  /* Links to the figure, in the text too, set its state. */
  const follow_links = (figure) => {
    const follow = () => {
      const [name, ...words] = location.hash.slice(1).split("--");
      if (name !== figure.localName || !words.length) return;
      figure.set(state_of(figure, words));
      figure.scrollIntoView({ block: "nearest" });
    };
    addEventListener("hashchange", follow);
    addEventListener("click", ({ target }) => { // the same link once more changes no address
      if (target.closest("a.attn-state")?.hash === location.hash) follow();
    });
    // The formulas above the figure are drawn late, and push it down.
    addEventListener("load", () => Promise.resolve(window.MathJax?.startup?.promise).then(follow));
    follow();
  };

  const foot = (figure) => {
    const link = attn.html("a", { href: "#", "aria-label": "Link to this state", title: "Link to this state" }, "Link");
    figure.syncs.push(() => { link.href = address(figure); });
    return attn.html("div", { class: "attn-foot" }, attn.button("Again", () => figure.again()), link);
  };

  return { address, follow_links, foot };
})());
