/* A text to type, and as a line of characters or tokens, one of which is chosen: a pointer over it or the arrow keys set the figure's state "at". */
Object.assign(attn, (() => {
  "use strict";
  /* A character as one sees it. */
  const letter = (character) => ({ " ": "␣", "\n": "⏎" })[character] ?? character;

  const TextLine = class {
    constructor(figure, most, part = "Character") {
      const { html } = attn;
      this.line = html("div", { class: "attn-line", tabindex: 0, role: "slider", "aria-valuemin": 0,
        "aria-label": `${part} that looks: the arrow keys choose it` });
      this.letters = attn.range(most).map(() => this.line.appendChild(html("span")));
      this.choose = (at) => figure.set({ at: Math.max(0, Math.min(this.text.length - 1, at)) });
      // Not "pointerover": it comes too when a new text moves under a pointer that rests.
      for (const kind of ["pointermove", "pointerdown"])
        this.line.addEventListener(kind, ({ target }) => {
          const at = this.letters.indexOf(target);
          if (at < 0 || (kind === "pointermove" && at === figure.state.at)) return;
          this.swept = kind === "pointermove" ? at : null; // a pointer on its way has not chosen it
          this.choose(at);
        });
      this.line.addEventListener("keydown", (event) => {
        const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -most, End: most }[event.key];
        if (!way) return;
        event.preventDefault();
        this.swept = null;
        this.choose(figure.state.at + way);
      });
    }

    /* Coloured by the weights of the chosen character, from 0 to 1; a red foot is as dark as the loss of its character. */
    show(text, at, weights, losses) {
      this.text = text;
      this.letters.forEach((part, i) => {
        part.hidden = i >= text.length;
        if (part.hidden) return;
        if (part.textContent !== letter(text[i])) part.textContent = letter(text[i]); // new text costs a new layout
        part.classList.toggle("attn-chosen", i === at);
        part.style.setProperty("--loss", i ? Math.min(1, losses[i - 1] / 5).toFixed(2) : 0);
        if (i < weights.length) attn.paint(part, "viridis", weights[i]);
        else part.style.background = part.style.color = "";
      });
      for (const [name, value] of Object.entries({ valuemax: text.length - 1, valuenow: at, valuetext: `“${letter(text[at])}” at position ${at}` }))
        this.line.setAttribute(`aria-${name}`, value);
    }
  };

  /* A box to type in: what the model has no letter for stays out, and is counted. */
  const text_box = (figure, known, most, rows = 2, name = "Text: type what you like") => {
    const { html } = attn;
    const box = html("textarea", { rows, maxlength: most, placeholder: "Type something: the model guesses how it goes on", spellcheck: "false", autocapitalize: "off", "aria-label": "Text" });
    box.addEventListener("input", () => {
      const text = [...box.value].filter((letter) => known.includes(letter)).join("");
      figure.unknown = box.value.length - text.length;
      box.value = text;
      figure.set({ text, at: text.length - 1 });
    });
    figure.fits.text = (text) => text.length <= most && [...text].every((letter) => known.includes(letter));
    figure.fits.at = (at) => Number.isInteger(at) && at >= 0;
    figure.control(html("label", { class: "attn-text" }, name, box), () => {
      if (box.value === figure.state.text) return;
      box.value = figure.state.text;
      figure.unknown = 0;
    });
  };

  return { letter, TextLine, text_box };
})());
