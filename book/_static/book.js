document.addEventListener("DOMContentLoaded", () => {
  /* Closed with Escape, the contents of a narrow page leave the focus nowhere: it goes back to their button. */
  for (const side of ["primary", "secondary"])
    document.getElementById(`pst-${side}-sidebar-modal`)?.addEventListener("close", () => {
      document.querySelector(`.${side}-toggle`).focus();
    });

  const SCROLLING = { tabindex: 0, role: "group", "aria-label": "Formula, scrolls sideways" };
  /* The keyboard must reach what scrolls. The theme sees to it once; what a tab or a fold shows later is seen to here,
     and formulas, which the theme does not know. */
  const watch = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const scrolls = target.scrollWidth > target.clientWidth;
      if (!target.matches("mjx-container")) target.tabIndex = scrolls ? 0 : -1;
      else if (scrolls) for (const [name, value] of Object.entries(SCROLLING)) target.setAttribute(name, value);
      else for (const name in SCROLLING) target.removeAttribute(name);
    }
  });
  document.querySelectorAll("pre, .pst-scrollable-table-container").forEach((block) => watch.observe(block));
  /* A comma does not begin a line, and a bracket does not end one, because a formula stands between. */
  const hold = (formula) => {
    const { previousSibling: before, nextSibling: after } = formula;
    const opening = before instanceof Text ? before.data.match(/[([“‘]*$/)[0] : "";
    const closing = after instanceof Text ? after.data.match(/^[.,;:!?)\]”’]*/)[0] : "";
    if (!opening && !closing) return;
    const whole = document.createElement("span");
    whole.style.whiteSpace = "nowrap";
    formula.replaceWith(whole);
    whole.append(opening, formula, closing);
    if (opening) before.data = before.data.slice(0, -opening.length);
    if (closing) after.data = after.data.slice(closing.length);
  };
  window.MathJax?.startup.promise.then(() => {
    document.querySelectorAll('mjx-container[display="true"]').forEach((formula) => watch.observe(formula));
    document.querySelectorAll("span.math").forEach(hold);
  });
});

/* Paper is white. */
{
  const page = document.documentElement.dataset;
  let shown;
  addEventListener("beforeprint", () => { [shown, page.theme] = [page.theme, "light"]; });
  addEventListener("afterprint", () => { page.theme = shown; });
}

/* From a file the search finds, but may not read the pages that it found to quote them. */
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

/* Copying takes the focus away from the button and gives it to nobody. */
document.addEventListener("click", ({ target }) => {
  const button = target.closest(".copybtn");
  if (button) setTimeout(() => button.focus());
});

/* Of what the search finds, pages with the words in their title stand first, chapters before others, and then the
   glossary, each entry by its own word. Sphinx lists the best last. */
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return; // on every page but one
  const plain = (title) => title.replace(/<[^>]*>/g, "").toLowerCase();
  // Sphinx keeps capitals in the anchor alone.
  const inItsCase = (entry, id) => [...entry].map((x, i) => (id[i]?.toLowerCase() === x ? id[i] : x)).join("");
  const find = Search._performSearch; // its own, of the pinned Sphinx
  Search._performSearch = (query, ...terms) => {
    const words = query.toLowerCase().split(/\s+/), glossary = {};
    for (const [entry, places] of Object.entries(Search._index.indexentries))
      for (const [, id] of places) if (id.startsWith("term-")) glossary[`#${id}`] = inItsCase(entry, id.slice(5));
    const rank = ([page, title, anchor]) => {
      if (page.endsWith("/glossary") && glossary[anchor]) return 1;
      if (anchor || !words.every((word) => plain(title).includes(word))) return 0;
      return title.includes("section-number") ? 3 : 2;
    };
    // With its number before it Sphinx takes a page's title for another than that of its first heading, and lists both.
    const twice = ([, title]) => /^<span.*<\/span>(.*) > \1$/.test(title);
    const all = find(query, ...terms), entries = all.some((found) => rank(found) === 1);
    const again = ([page, , anchor]) => entries && !anchor && page.endsWith("/glossary"); // its entry says more
    const once = all.filter((found) => !twice(found) && !again(found));
    return once.sort((a, b) => rank(a) - rank(b)).map((found) => {
      if (rank(found) === 1) found[1] = `Glossary: ${glossary[found[2]]}`;
      return found;
    });
  };
});
