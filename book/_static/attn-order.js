/* Needs attn-permute.js: the front page asks its one question, of whole words, and all the rest waits for chapter 4. */
customElements.define("attn-order", class extends customElements.get("attn-permute") {
  static title = "Change the order of the words";
  static tokens = ["DOG", "BITES", "MAN"];

  static tasks = [{
    ask: "Swap DOG and MAN. Whose output changes?",
    guesses: { all: "all three", two: "these two", none: "none" },
    right: () => "none",
    done: ({ state: { order } }) => order.join("") !== "012",
    seen: () => "Each word keeps its output. Attention by itself does not notice the order of the words.",
  }];

  choices() {
    this.presets("Order", { "DOG BITES MAN": { order: [0, 1, 2] }, "MAN BITES DOG": { order: [2, 1, 0] } });
  }
});
