/* The book's letters are made before the first line is drawn, or lines would move when they come. */
for (const letters of document.fonts) if (letters.family.includes("Book")) letters.load();

document.addEventListener("DOMContentLoaded", () => {
  /* Closed with Escape, the contents of a narrow page leave the focus nowhere: it goes back to their button. */
  for (const side of ["primary", "secondary"])
    document.getElementById(`pst-${side}-sidebar-modal`)?.addEventListener("close", () => {
      document.querySelector(`.${side}-toggle`).focus();
    });

  /* Sentences to judge: all answers at once. */
  const said = [...document.querySelectorAll("details.said")], all = document.createElement("button");
  const closed = () => said.some(({ open }) => !open);
  const name = () => { all.textContent = closed() ? "Open all" : "Close all"; };
  all.type = "button";
  all.className = "said-all";
  all.addEventListener("click", () => {
    const open = closed();
    for (const fold of said) fold.open = open;
  });
  for (const fold of said) fold.addEventListener("toggle", name);
  name();
  said[0]?.closest("section").before(all);

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
  document.querySelectorAll("pre, .pst-scrollable-table-container, figure:has(img)").forEach((block) => watch.observe(block));
  window.MathJax?.startup.promise.then(() => {
    document.querySelectorAll('mjx-container[display="true"]').forEach((formula) => watch.observe(formula));
  });
});

/* What moved to a further page is found at its old address too. */
{
  const follow = () => {
    const mark = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (mark?.matches("a.moved")) location.replace(mark.href);
  };
  addEventListener("DOMContentLoaded", follow);
  addEventListener("hashchange", follow);
}

/* Paper is white. */
{
  const page = document.documentElement.dataset;
  let shown;
  addEventListener("beforeprint", () => { [shown, page.theme] = [page.theme, "light"]; });
  addEventListener("afterprint", () => { page.theme = shown; });
}

/* Copying takes the focus away from the button and gives it to nobody. */
document.addEventListener("click", ({ target }) => {
  const button = target.closest(".copybtn");
  if (button) setTimeout(() => button.focus());
});
