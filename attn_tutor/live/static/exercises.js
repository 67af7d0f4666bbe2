/* An exercise that asks for a function has an editor with its first line, and a button that checks it. */
attnLive.Exercise = class {
  constructor(live, { label, name, stub, kept }) {
    const { html, button } = attnLive;
    Object.assign(this, { live, name });
    const block = html("div", { class: "highlight" }, html("pre"));
    const put = (text, was) => attnLive.ask("PUT", `/live/answers/${name}`, { text, was });
    this.text = new attnLive.Text({ block, name: `Your ${name}, Python`, key: `answer ${name}`, book: stub, kept, put, run: () => this.check() });
    this.output = new attnLive.Output("What the checker says");
    const tools = html("div", { class: "attn-tools", role: "group", "aria-label": `Your ${name}` },
      button("Check", () => this.check()), this.text.reset);
    const part = html("div", { class: "attn-exercise" }, block, tools, this.text.note, this.output.part);
    document.getElementById(label).append(part);
  }

  async check() {
    const text = this.text.text;
    if (!await this.text.confirmed()) return;
    this.output.clear();
    this.live.say(`Checking ${this.name} …`);
    let right = false;
    const status = await this.live.kernel.run(`from attn_tutor.live.checking import check as _check; _check("${this.name}")`, (type, content) => {
      right ||= content.data?.["application/vnd.attn-tutor.verdict+json"]?.right ?? false;
      this.output.show(type, content);
      this.output.part.classList.toggle("attn-right", right);
    });
    this.live.say(this.output.part.querySelector("p:not(.attn-own-name)")?.textContent ?? "");
    if (status === "ok") await attnLive.ask("PUT", `/live/verdicts/${this.name}`, { text: right ? text : null });
  }
};
