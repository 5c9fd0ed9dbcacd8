// Marking jobs in the list. While some are marked the list does not refresh itself: a mark must not vanish under the hand.
import { $, write } from "./dom.js";

const unmarked = $("#bulk-count").textContent; // it says what this person may do with marks
const marked = () => document.querySelectorAll("#jobs input[name=job]:checked");

document.addEventListener("change", (event) => {
  if (!event.target.matches("#jobs input[name=job]")) return;
  const count = marked().length;
  write("#bulk-count", count ? `${count} marked. The list holds still meanwhile.` : unmarked);
});

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.id === "jobs" && marked().length) event.preventDefault();
});

// Only stopping asks first.
$("#bulk").addEventListener(
  "submit",
  (event) => {
    if (event.submitter?.hasAttribute("data-unasked")) event.currentTarget.dataset.sure = "yes";
    else if (!marked().length) event.currentTarget.dataset.sure = "yes";
  },
  { capture: true },
);
