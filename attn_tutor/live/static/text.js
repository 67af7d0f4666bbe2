/* Python to edit where it stands. */
attnLive.Text = class extends attnLive.Kept {
  static most = 50_000; // letters that are coloured: of more, each key would have to wait

  /* block holds the text's <pre>; the rest is what Kept takes, but for the area. */
  constructor({ block, name, run, ...rest }) {
    const { html, button } = attnLive;
    const area = html("textarea", { "aria-label": name, "aria-keyshortcuts": "Shift+Enter", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off" });
    super({ area, ...rest });
    this.pre = block.querySelector("pre");
    this.printed = this.pre.textContent && [...this.pre.childNodes]; // coloured as the book colours it
    this.pre.setAttribute("aria-hidden", "true");
    const editor = html("div", { class: "attn-editor" });
    this.pre.replaceWith(editor);
    editor.append(this.pre, area);
    this.reset = button("Reset", () => this.change(this.book));
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        run(event.shiftKey);
      } else if (event.key === "Enter") this.indent(event);
      else if (event.key === "Backspace") this.outdent(event);
    });
    this.shown();
  }

  shown() {
    this.reset.hidden = this.text === this.book;
    if (this.printed && this.text === this.book) this.pre.replaceChildren(...this.printed);
    else if (this.text.length > attnLive.Text.most) this.pre.textContent = this.text + "\n";
    else this.pre.innerHTML = attnLive.painted(this.text) + "\n";
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
