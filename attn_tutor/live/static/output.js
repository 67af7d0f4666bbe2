/* What a run puts out, shown in place: text with its colours, pictures, tables, errors. */
attnLive.Output = class {
  static most = 100_000; // letters of a stream

  constructor(name) {
    this.part = attnLive.html("div", { class: "attn-own", role: "group", "aria-label": name });
    this.part.hidden = true;
    this.name = name;
  }

  clear() {
    this.part.replaceChildren();
    this.part.hidden = true;
    this.stream = null;
  }

  show(type, content) {
    if (type === "stream") this.write(content.text);
    else if (type === "error") this.add(attnLive.html("pre", { class: "attn-error" }, attnLive.coloured(content.traceback.join("\n"))));
    else if (type === "execute_result" || type === "display_data") this.picture(content.data, content.metadata);
    else if (type === "clear_output") this.clear();
  }

  add(part) {
    this.stream = null;
    if (this.part.hidden) this.part.append(attnLive.html("p", { class: "attn-own-name" }, this.name));
    this.part.hidden = false;
    this.part.append(part);
    this.reach(part);
  }

  /* The keyboard reaches what scrolls. */
  reach(part) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }

  /* Pieces of a stream are one text; a line that ends in a carriage return is written over by the next. */
  write(text) {
    if (!this.stream) {
      const part = attnLive.html("pre");
      this.add(part);
      this.stream = { part, text: "" };
    }
    // Of a loop that prints without end the last is shown, so that the page does not grow with it.
    this.stream.text = (this.stream.text + text).slice(-attnLive.Output.most).replace(/[^\n]*\r(?=[^\r\n])/g, "");
    this.stream.part.replaceChildren(attnLive.coloured(this.stream.text));
    this.reach(this.stream.part);
  }

  picture(data, metadata) {
    const { html } = attnLive, text = (kind) => [data[kind]].flat().join("");
    if (data["text/html"]) {
      const part = html("div", { class: "attn-html" });
      part.innerHTML = text("text/html");
      this.add(part);
      // Scripts that come as text do not run, and those of the package's pictures must.
      for (const script of part.querySelectorAll("script")) script.replaceWith(html("script", {}, script.textContent));
    } else if (data["image/svg+xml"]) {
      const source = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text("image/svg+xml"));
      this.add(html("img", { src: source, alt: "The picture that your run drew" }));
    } else if (data["image/png"]) {
      // Matplotlib draws at twice the size, for sharp screens, and says so.
      const { width } = metadata["image/png"] ?? {};
      const part = html("img", { src: "data:image/png;base64," + data["image/png"], alt: "The picture that your run drew" });
      if (width) part.width = width;
      this.add(part);
    } else if (data["text/plain"]) this.write(text("text/plain") + "\n");
  }
};

/* The colours of a terminal: "\x1b[31m" and what follows it is red, until the next. */
attnLive.coloured = (text) => {
  const whole = new DocumentFragment();
  let classes = [];
  for (const piece of text.split(/(\x1b\[[\d;]*m)/)) {
    if (piece.startsWith("\x1b[")) {
      for (const code of piece.slice(2, -1).split(";").map(Number))
        if (code === 0) classes = [];
        else if (code === 1 || (code >= 30 && code <= 37)) classes.push(`attn-ansi-${code}`);
        else if (code === 39) classes = [];
    } else if (classes.length) whole.append(attnLive.html("span", { class: classes.join(" ") }, piece));
    else whole.append(piece);
  }
  return whole;
};
