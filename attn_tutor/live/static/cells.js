/* The cells of a page, to run and to change where they stand, and the bar that says what Python does. */
attnLive.Cell = class {
  constructor(live, part, number, { id, book, kept }) {
    const { html, button } = attnLive;
    Object.assign(this, { live, part, number, name: `Cell ${number}` });
    const block = part.querySelector(".cell_input .highlight");
    const put = (text, was) => attnLive.ask("PUT", `/live/cells/${attnLive.page}`, { name: id, text, was });
    this.text = new attnLive.Text({ block, name: `${this.name}, Python`, key: id, book, kept, put, run: (on) => this.enter(on) });
    this.output = new attnLive.Output("Your output");
    const printed = part.querySelector(".cell_output");
    // Above the book's output, of which a caption stays, or where that would stand.
    if (printed) printed.before(this.output.part);
    else part.append(this.output.part);
    this.text.reset.addEventListener("click", () => this.forget());
    this.state = html("span", { class: "attn-state" });
    const tools = html("div", { class: "attn-tools", role: "group", "aria-label": this.name },
      button("Run", () => this.run()), button("Run all above", () => live.run(number)), this.text.reset, this.state);
    part.querySelector(".cell_input").append(tools, this.text.note);
    this.printed = Boolean(printed);
    this.text.area.addEventListener("input", () => this.compare());
    this.compare();
  }

  /* A changed text does not stand unmarked above what the book's put out. */
  compare() {
    if (this.part.classList.contains("attn-ran")) return;
    const other = this.printed && this.text.text !== this.text.book;
    this.state.textContent = other ? "Changed and not run: the output is the book's." : "";
  }

  /* Shift-Enter goes on to the next cell, Ctrl-Enter stays. */
  async enter(on) {
    if (on) this.live.after(this)?.text.area.focus();
    await this.run();
  }

  async run() {
    this.text.save();
    this.output.clear();
    this.part.classList.add("attn-ran");
    this.state.textContent = "waits";
    let clock;
    const status = await this.live.kernel.run(this.text.text, (type, content) => {
      if (type === "execute_input") clock = this.count();
      else this.output.show(type, content);
    });
    clearInterval(clock);
    this.state.textContent = { ok: "done", error: "stopped at an error", aborted: "not run, after an error above", gone: "Python is gone" }[status];
    this.live.say(`${this.name}: ${this.state.textContent}.`);
    return status;
  }

  /* The seconds of a run, while it runs. */
  count() {
    const since = performance.now(), tick = () => { this.state.textContent = `running, ${Math.round((performance.now() - since) / 1000)} s`; };
    tick();
    return setInterval(tick, 1000);
  }

  forget() {
    this.output.clear();
    this.part.classList.remove("attn-ran");
    this.compare();
  }

  /* Out of its fold, to be seen. */
  open() {
    for (let fold = this.part.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    const solution = this.part.closest(".toggle-hidden");
    if (solution) solution.querySelector(".toggle-button")?.click();
    this.part.scrollIntoView({ block: "nearest" });
  }
};

attnLive.Page = class {
  constructor({ cells, exercises, panels }) {
    const { html, button } = attnLive;
    this.panels = panels;
    this.texts = [];
    this.words = html("span", { class: "attn-said" });
    this.voice = html("span", { class: "visually-hidden", role: "status" });
    this.stop = button("Interrupt", () => this.kernel.interrupt());
    this.kernel = new attnLive.Kernel((words, busy) => this.tell(words, busy));
    this.code = cells; // also what the page does not show
    this.cells = [];
    const parts = [...document.querySelectorAll("article .cell:has(.cell_input pre)")];
    cells.forEach((cell, i) => {
      // The page shows them in the order of the notebook, but for those that it leaves out.
      const place = parts.findIndex((part) => part.querySelector(".cell_input pre").textContent.trim() === cell.book.trim());
      if (place < 0) return;
      const [part] = parts.splice(0, place + 1).slice(-1);
      this.cells.push(new attnLive.Cell(this, part, i + 1, cell));
    });
    const up = "../".repeat(attnLive.page.split("/").length - 1);
    this.bar = html("div", { class: "attn-bar-live", role: "region", "aria-label": "Run this page" },
      this.words, this.stop, button("Run all", () => this.run(cells.length + 1)), button("Restart", () => this.kernel.restart()),
      html("a", { href: `${up}progress.html` }, "Progress"), this.voice);
    document.querySelector("article.bd-article").append(this.bar);
    document.documentElement.classList.add("attn-is-live");
    this.exercises = exercises.map((exercise) => new attnLive.Exercise(this, exercise));
    this.texts.push(...[...this.cells, ...this.exercises].map(({ text }) => text));
    addEventListener("pagehide", () => this.texts.forEach((text) => text.save()));
    // The browser asks before it leaves a text that neither it nor the disk has.
    addEventListener("beforeunload", (event) => this.texts.some((text) => text.unsaved && !text.held) && event.preventDefault());
    this.kernel.join();
  }

  /* What is typed into a panel outlives a reload as a cell does. */
  keep(name, area) {
    const put = (text, was) => attnLive.ask("PUT", `/live/cells/${attnLive.page}`, { name, text, was });
    const text = new attnLive.Kept({ area, key: name, book: area.value, kept: this.panels[name], put });
    this.texts.push(text);
    return text.note;
  }

  tell(words, busy) {
    this.words.textContent = words;
    this.stop.disabled = !busy;
  }

  say(words) { this.voice.textContent = words; }

  after(cell) { return this.cells[this.cells.indexOf(cell) + 1]; }

  /* Run code that tells the page something, of a kind of its own; in return the words of its error, or none. */
  async hear(code, kind, take) {
    let words = "";
    const status = await this.kernel.run(code, (type, { data, evalue, traceback }) => {
      const found = data?.[`application/vnd.attn-tutor.${kind}+json`];
      if (found !== undefined) take(found);
      if (type === "error") words = evalue ?? traceback[0];
    });
    return status === "ok" ? "" : words;
  }

  /* All cells above the one with this number, in the order of the notebook. */
  async run(number) {
    const runs = this.code.slice(0, number - 1).map(({ book, kept }, i) => {
      const cell = this.cells.find((one) => one.number === i + 1);
      return cell ? [cell.run(), cell] : [this.kernel.run(kept ?? book, () => {})];
    });
    for (const [run, cell] of runs)
      if (await run !== "ok") return cell?.open();
    return undefined;
  }
};

document.addEventListener("DOMContentLoaded", async () => {
  if (!document.querySelector("article .cell")) return;
  try {
    attnLive.live = new attnLive.Page(await attnLive.ask("GET", `/live/cells/${attnLive.page}`));
  } catch (error) {
    if (error.status === 404) return; // a page with no notebook behind it
    document.querySelector("article.bd-article").prepend(attnLive.html("p", { class: "attn-note", role: "alert" }, `This page does not run: ${error.message}.`));
    return;
  }
  document.dispatchEvent(new CustomEvent("attn-live", { detail: attnLive.live }));
});
