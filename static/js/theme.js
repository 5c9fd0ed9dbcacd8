// Runs before the first paint (a plain script in <head>), so that a remembered choice never flashes the other theme.
(() => {
  const kept = localStorage.getItem("theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
