/* What the reader types is kept on disk a moment later, and in the browser until then: a cell, an answer, a panel's text. */
attnLive.Kept = class {
  /* area is where it is typed, book what stands there first, kept what the reader has saved, or null; put(text, was) saves. */
  constructor({ area, key, book, kept, put }) {
    Object.assign(this, { area, book, kept, put, key: `attn-draft ${attnLive.page} ${key}`, note: attnLive.html("p", { class: "attn-note", role: "status" }) });
    area.addEventListener("input", () => this.edited());
    area.addEventListener("blur", () => this.save());
    // A draft knows what was on disk when it was begun, so that it goes over nothing that was written there since.
    const [draft, was] = JSON.parse(localStorage.getItem(this.key)) ?? [];
    area.value = draft ?? kept ?? book;
    if (draft !== undefined) this.kept = was;
    this.held = true;
    this.save();
    if (!this.unsaved) localStorage.removeItem(this.key);
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
      localStorage.setItem(this.key, JSON.stringify([this.text, this.kept]));
      this.held = true;
    } catch { this.held = false; } // no room: the disk will have it in a moment
    this.shown();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.save(), 500);
  }

  shown() {}

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
      else if ([400, 413].includes(error.status)) this.note.textContent = `Not kept: ${error.message}.`;
      else {
        this.note.textContent = `Not on disk yet (${error.status ? error.message : "the server does not answer"}). `
          + (this.held ? "The browser keeps your text and tries again." : "Leave this page open: the browser tries again, and has no room to keep so long a text.");
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
};
