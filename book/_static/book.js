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
  window.MathJax?.startup.promise.then(() => {
    document.querySelectorAll('mjx-container[display="true"]').forEach((formula) => watch.observe(formula));
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
