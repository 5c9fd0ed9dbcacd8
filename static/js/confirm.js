// Asks before what cannot be undone: forms with data-confirm (the question), data-confirm-detail and data-confirm-action (the verb).
import { $, write } from "./dom.js";

const dialog = $("#confirm");

/** Resolves to whether the person said yes. Escape and a click outside the box mean no. */
export function confirmed(form) {
  write("#confirm-title", form.dataset.confirm);
  write("#confirm-detail", form.dataset.confirmDetail ?? "");
  write("#confirm-yes", form.dataset.confirmAction ?? "Go on");
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

/** Ordinary forms: hold the submission, ask, then go on. Forms of the run page send themselves. */
for (const form of document.querySelectorAll("form[data-confirm]:not([data-action])")) {
  form.addEventListener("submit", async (event) => {
    if (form.dataset.sure) return;
    event.preventDefault();
    if (!(await confirmed(form))) return;
    form.dataset.sure = "yes";
    form.requestSubmit(event.submitter);
  });
}
