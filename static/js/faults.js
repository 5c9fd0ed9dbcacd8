// The summary of a refused form: it is where the keyboard begins, and each of its lines leads to the field, out of whatever is folded up.
const summary = document.querySelector("[data-faults]");

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-faults] a");
  const field = link && document.getElementById(decodeURIComponent(link.hash.slice(1)));
  if (!field) return;
  event.preventDefault();
  for (let at = field.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  field.focus();
  field.scrollIntoView({ block: "center" });
});

summary?.focus();
