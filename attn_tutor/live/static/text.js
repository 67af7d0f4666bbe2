/* A text to edit where it stands, and to keep on disk: each change is kept a moment later, and in the browser until then. */
attnLive.Text = class {
  /* block holds the text's <pre>; book is the book's text, kept what the reader has saved, or null; put(text, was) saves. */
  constructor({ block, name, key, book, kept, put, run }) {
    const { html, button } = attnLive;
    Object.assign(this, { book, kept, put, key: `attn-live ${attnLive.page} ${key}` });
    this.pre = block.querySelector("pre");
    this.printed = this.pre.textContent && [...this.pre.childNodes]; // coloured as the book colours it
    this.area = html("textarea", { "aria-label": name, spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off" });
    this.pre.setAttribute("aria-hidden", "true");
    const editor = html("div", { class: "attn-editor" });
    this.pre.replaceWith(editor);
    editor.append(this.pre, this.area);
    this.note = html("p", { class: "attn-note", role: "status" });
    this.reset = button("Reset", () => this.change(this.book));
    this.area.addEventListener("input", () => this.edited());
    this.area.addEventListener("blur", () => this.save());
    this.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        run(event.shiftKey);
      } else if (event.key === "Enter") this.indent(event);
      else if (event.key === "Backspace") this.outdent(event);
    });
    const draft = localStorage.getItem(this.key);
    this.area.value = draft ?? kept ?? book;
    this.shown();
    if (this.unsaved) this.save();
    else localStorage.removeItem(this.key);
  }

  get text() { return this.area.value; }

  /* What is to be on disk: nothing, if the text is the book's. */
  get wanted() { return this.text === this.book ? null : this.text; }

  get unsaved() { return this.wanted !== this.kept; }

  change(text) {
    this.area.value = text;
    this.edited();
    this.save();
  }

  edited() {
    try {
      localStorage.setItem(this.key, this.text);
    } catch { /* no room: the disk will have it in a moment */ }
    this.shown();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.save(), 500);
  }

  shown() {
    this.reset.hidden = this.text === this.book;
    if (this.printed && this.text === this.book) this.pre.replaceChildren(...this.printed);
    else this.pre.innerHTML = attnLive.painted(this.text) + "\n";
  }

  /* One save at a time, and after it another if the text has moved on. */
  async save() {
    clearTimeout(this.timer);
    if (!this.unsaved || this.saving) return this.saving;
    this.saving = this.write();
    await this.saving;
    this.saving = null;
    return this.again && this.save();
  }

  /* Whether the disk holds this text. It is asked even if nothing was changed here, since an editor may have changed it there. */
  async confirmed() {
    await this.save();
    return !this.unsaved && this.write();
  }

  async write() {
    const { wanted, kept, text } = this;
    this.again = false;
    try {
      await this.put(wanted, kept);
      this.kept = wanted;
      this.again = this.unsaved;
      if (this.text === text) localStorage.removeItem(this.key);
      this.note.replaceChildren();
      return true;
    } catch (error) {
      if (error.status === 409) this.differ(error.content.there);
      else if (error.status === 400) this.note.textContent = `Not kept: ${error.message}.`;
      else {
        this.note.textContent = `Not on disk yet (${error.status ? error.message : "the server does not answer"}). The browser keeps your text and tries again.`;
        this.timer = setTimeout(() => this.save(), 3000);
      }
      return false;
    }
  }

  /* Two windows have changed one text: the reader chooses, and neither is lost before. */
  differ(there) {
    const settle = (text) => {
      this.kept = there;
      this.note.replaceChildren();
      this.change(text);
      this.area.focus();
    };
    const { button } = attnLive;
    this.note.replaceChildren("This text was changed in another window or editor. ",
      button("Take that text", () => settle(there ?? this.book)), " ", button("Keep mine", () => settle(this.text)));
  }

  insert(event, text) {
    event.preventDefault();
    document.execCommand("insertText", false, text); // which "undo" knows
  }

  /* A new line begins where the one before began, or four further after a colon. */
  indent(event) {
    const line = this.text.slice(0, this.area.selectionStart).split("\n").at(-1);
    this.insert(event, "\n" + line.match(/^ */)[0] + (/:\s*(#.*)?$/.test(line) ? "    " : ""));
  }

  /* At the beginning of a line four spaces go at once. Tab is left to those who walk through the page with it. */
  outdent(event) {
    const { selectionStart: at, selectionEnd: end } = this.area, line = this.text.slice(0, at).split("\n").at(-1);
    if (at !== end || !/^( {4})+$/.test(line)) return;
    event.preventDefault();
    this.area.setSelectionRange(at - 4, at);
    document.execCommand("delete");
  }
};

/* Python with the classes of Pygments, so that it looks as the book's code does. */
attnLive.painted = (text) => {
  const words = "and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield";
  const string = `[rbfRBF]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?)`;
  const kinds = { c1: "#.*", s2: string, kc: "\\b(?:None|True|False)\\b", k: `\\b(?:${words})\\b`, mi: "\\b\\d[\\w.]*", n: "\\w+", o: "[-+*/%@=<>&|^~!]+" };
  const all = new RegExp(Object.entries(kinds).map(([kind, form]) => `(?<${kind}>${form})`).join("|"), "g");
  const safe = (part) => part.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt()};`);
  let html = "", last = 0;
  for (const found of text.matchAll(all)) {
    const [kind] = Object.entries(found.groups).find(([, part]) => part !== undefined);
    html += `${safe(text.slice(last, found.index))}<span class="${kind}">${safe(found[0])}</span>`;
    last = found.index + found[0].length;
  }
  return html + safe(text.slice(last));
};
