// Shows the fields of the chosen grader, and what its templates become on a real row. It grades nothing: that is the engine's business.
import { $, write } from "./dom.js";

const form = $("#reward-form");
const items = JSON.parse($("#example-items").textContent);
const REFERENCE = /\{\{\s*(item|sample)\.([^\s{}]+)\s*\}\}/g;
const RULES = {
  numeric: "Right when the last number in the graded text is within the tolerance of the number it is compared with.",
  string_check: "Right when the graded text fits the text it is compared with, in the way chosen above.",
  math: "Right when both are the same mathematically, whatever the notation.",
};

function fill(template, item, answer) {
  let missing = "";
  const text = template.replace(REFERENCE, (whole, source, path) => {
    const value = source === "sample" ? { output_text: answer }[path] : path.split(".").reduce((at, key) => at?.[key], item);
    if (value === undefined) missing = whole;
    return value === undefined ? whole : typeof value === "string" ? value : JSON.stringify(value);
  });
  return { text, missing };
}

function show(target, { text, missing }) {
  const element = $(target);
  element.toggleAttribute("data-missing", Boolean(missing));
  write(element, missing ? `${missing} is not in this row` : text);
}

function update() {
  const type = form.elements.type.value;
  for (const box of document.querySelectorAll("[data-for]")) box.hidden = box.dataset.for !== type;
  const item = items[$("#example-source").value] ?? {};
  const answer = $("#example-answer").value;
  write("#example-item", JSON.stringify(item, null, 1));
  show("#example-input", fill(form.elements.input.value, item, answer));
  show("#example-reference", fill(form.elements.reference.value, item, answer));
  write("#example-rule", RULES[type] ?? "");
}

document.addEventListener("input", update);
document.addEventListener("change", update);
update();
