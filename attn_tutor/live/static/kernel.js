/* One kernel for the page, started at the first run: Jupyter's kernel protocol over its WebSocket. */
const attnLive = {
  page: DOCUMENTATION_OPTIONS.pagename,
  restarted: "Restarted: Python has forgotten its variables.",

  html(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  },

  button(name, press) {
    const made = attnLive.html("button", { type: "button" }, name);
    made.addEventListener("click", press);
    return made;
  },

  /* A request to the server this page came from. Its cookie says who we are, the header that no other site's page asks. */
  async ask(method, path, body) {
    const token = document.cookie.match(/(?:^|; )_xsrf=([^;]*)/)?.[1] ?? "";
    const headers = { "Content-Type": "application/json", "X-XSRFToken": token };
    const sent = body && JSON.stringify(body);
    // A page that closes lets a short text go on its way; of more than 64 KiB browsers refuse to promise that.
    const answer = await fetch(path, { method, headers, body: sent, keepalive: sent?.length < 20000 });
    const text = await answer.text(), content = text && JSON.parse(text);
    if (!answer.ok) throw Object.assign(new Error(content.message || answer.statusText), { status: answer.status, content });
    return content;
  },
};

attnLive.Kernel = class {
  /* tell(words, busy) hears of every change. */
  constructor(tell) {
    Object.assign(this, { tell, runs: new Map() });
    tell("Nothing runs yet. Shift-Enter runs a cell.", false);
  }

  get busy() { return this.runs.size > 0; }

  /* Python that was begun before the page was loaded anew, or in another window, may still run. */
  async join() {
    try {
      const sessions = await attnLive.ask("GET", "/api/sessions");
      if (sessions.some(({ path }) => path === `${attnLive.page}.ipynb`)) await this.connect();
    } catch { /* the next run says so */ }
  }

  connect() {
    this.socket ??= this.start();
    this.socket.catch(() => { this.socket = null; });
    return this.socket;
  }

  async start() {
    this.tell("Starting Python …", true);
    // A new name each time, so that the server repeats nothing that Python said to the last.
    Object.assign(this, { me: crypto.randomUUID(), python: null });
    // The server has one session for a path, so a second window, or the page loaded anew, meets the same kernel.
    const path = attnLive.page + ".ipynb", name = path;
    const { kernel } = await attnLive.ask("POST", "/api/sessions", { path, name, type: "notebook", kernel: { name: "python3" } });
    this.id = kernel.id;
    const socket = new WebSocket(`ws://${location.host}/api/kernels/${this.id}/channels?session_id=${this.me}`);
    socket.onmessage = ({ data }) => { if (typeof data === "string") this.hear(JSON.parse(data)); }; // a widget's are not
    await new Promise((open, fail) => {
      socket.onopen = open;
      socket.onerror = () => fail(new Error("The server does not answer."));
    });
    socket.onclose = () => this.lose("The server is gone. What you wrote stays in this page; start it again: make live.");
    // Until this is done, Python is busy, be it with what was begun before.
    const ready = this.send(socket, "get_ipython().config.InlineBackend.figure_formats = {'retina'}", { silent: true });
    this.runs.set(ready, { show() {}, done() {} });
    this.tell("Python is busy …", true);
    // A Python that another window restarts may go without a word: while one waits, it is asked for its name.
    const asking = setInterval(() => {
      if (socket.readyState !== WebSocket.OPEN) clearInterval(asking);
      else if (this.busy) this.post(socket, "control", "kernel_info_request", {});
    }, 2000);
    return socket;
  }

  /* Between two runs another window may restart Python, and the way to the old one misses words of the new. */
  async recognise() {
    const socket = await this.socket.catch(() => null);
    if (socket) {
      this.post(socket, "control", "kernel_info_request", {});
      await new Promise((told) => { this.told = told; });
    }
    this.asked = null;
  }

  send(socket, code, options = {}) {
    return this.post(socket, "shell", "execute_request",
      { code, silent: false, store_history: true, user_expressions: {}, allow_stdin: false, stop_on_error: true, ...options });
  }

  post(socket, channel, msg_type, content) {
    const msg_id = crypto.randomUUID();
    const header = { msg_id, session: this.me, username: "", date: new Date().toISOString(), msg_type, version: "5.3" };
    socket.send(JSON.stringify({ header, parent_header: {}, metadata: {}, channel, buffers: [], content }));
    return msg_id;
  }

  /* Run code; show(type, content) hears what it puts out. The promise says "ok", "error", "aborted" or "gone". */
  async run(code, show) {
    let socket;
    try {
      if (this.socket && !this.busy) await (this.asked ??= this.recognise());
      socket = await this.connect();
    } catch (error) {
      show("error", { traceback: [`Python did not start: ${error.message}`] });
      this.tell("Python did not start.", false);
      return "gone";
    }
    return new Promise((done) => {
      this.runs.set(this.send(socket, code), { show, done });
      this.tell("Running …", true);
    });
  }

  hear({ header, parent_header, content }) {
    // Python signs what it says: with a new name it was restarted, be it by another window.
    const signed = content.execution_state === "busy" || header.msg_type === "kernel_info_reply";
    if (signed && header.session !== (this.python ??= header.session)) {
      if (!this.runs.has(parent_header.msg_id)) return this.lose(attnLive.restarted);
      this.python = header.session; // nobody had noticed: what the new Python begins goes on, and what came before is lost
      for (const [id, { show, done }] of this.runs) {
        if (id === parent_header.msg_id) break;
        this.runs.delete(id);
        show("error", { traceback: [attnLive.restarted] });
        done("gone");
      }
    }
    if (header.msg_type === "kernel_info_reply") this.told?.();
    if (header.msg_type === "status" && ["restarting", "dead"].includes(content.execution_state))
      return this.lose("Python ended and was started anew. Its variables are gone: run the cells above again.");
    const id = parent_header.msg_id, run = this.runs.get(id);
    if (!run) return this.other(header, parent_header, content);
    // The answer and the end of the output come on two channels, in either order.
    if (header.msg_type === "execute_reply") run.status = content.status;
    else if (header.msg_type !== "status") run.show(header.msg_type, content);
    else if (content.execution_state === "idle") run.idle = true;
    if (run.status !== "aborted" && !(run.status && run.idle)) return undefined;
    this.runs.delete(id);
    run.done(run.status);
    if (!this.busy) this.tell("Ready.", false);
    return undefined;
  }

  /* What another window runs can be interrupted here too. */
  other(header, { msg_type, session }, { execution_state }) {
    if (this.busy || header.msg_type !== "status" || msg_type !== "execute_request" || session === this.me) return;
    if (execution_state === "busy") this.tell("Another window of this page runs something …", true);
    else this.tell("Ready.", false);
  }

  /* The kernel or the way to it is gone, and with it what ran there; the next run begins anew. */
  async lose(words) {
    const lost = [...this.runs.values()], socket = this.socket;
    this.runs.clear();
    this.socket = null;
    this.told?.();
    for (const { show, done } of lost) {
      show("error", { traceback: [words] });
      done("gone");
    }
    this.tell(words, false);
    const open = await socket?.catch(() => null);
    if (!open) return;
    open.onclose = null;
    open.close();
  }

  async interrupt() {
    if (this.id) await this.order("interrupt");
  }

  async restart() {
    if (this.id && await this.order("restart")) this.lose(attnLive.restarted);
  }

  async order(what) {
    try {
      await attnLive.ask("POST", `/api/kernels/${this.id}/${what}`);
      return true;
    } catch (error) {
      this.tell(`It did not ${what}: ${error.message}`, this.busy);
      return false;
    }
  }
};
