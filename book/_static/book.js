/* The keyboard must reach what scrolls. The theme sees to it once; what a tab or a fold shows later is seen to here. */
document.addEventListener("DOMContentLoaded", () => {
  const watch = new ResizeObserver((entries) => {
    for (const { target } of entries) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
  });
  document.querySelectorAll("pre").forEach((block) => watch.observe(block));
});
