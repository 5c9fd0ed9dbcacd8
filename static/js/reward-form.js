// Shows the fields of the chosen kind, and what its templates become on a real row. It grades nothing: that is the engine's business.
import { $, write } from "./dom.js";

const form = $("#reward-form");
const items = JSON.parse($("#example-items").textContent);
const rules = JSON.parse($("#reward-rules").textContent);
const REFERENCE = /\{\{\s*(item|sample)\.([^{}]+?)\s*\}\}/g;
// Which field of a kind says what is graded, and which what it is held against.
const GRADED = ["input", "code_input", "prompt"];
const COMPARED = ["reference", "tests", "json_schema"];

function sampled(path, answer) {
  if (path === "output_text") return answer;
  if (path === "tool_calls") return [];
  const [head, ...keys] = path.split(".");
  if (head !== "output_json") return undefined;
  try {
    return keys.reduce((at, key) => at?.[key], JSON.parse(answer));
  } catch {
    return undefined;
  }
}

function fill(template, item, answer) {
  let missing = "";
  const text = template.replace(REFERENCE, (whole, source, path) => {
    const value = source === "sample" ? sampled(path, answer) : item[path];
    if (value === undefined) missing = whole;
    return value === undefined ? whole : typeof value === "string" ? value : JSON.stringify(value);
  });
  return { text, missing };
}

function show(name, field, item, answer) {
  $(`#example-${name}-box`).hidden = !field;
  if (!field) return;
  const { text, missing } = fill(form.elements[field].value, item, answer);
  const element = $(`#example-${name}`);
  element.toggleAttribute("data-missing", Boolean(missing));
  const where = missing.includes("sample.") ? "is not in this answer" : "is not in this row";
  write(element, missing ? `${missing} ${where}` : text);
}

function update() {
  const type = form.elements.type.value;
  for (const box of document.querySelectorAll("[data-for]")) box.hidden = !box.dataset.for.split(" ").includes(type);
  const { rule, fields } = rules[type] ?? { rule: "", fields: [] };
  const item = items[$("#example-source").value] ?? {};
  const answer = $("#example-answer").value;
  write("#example-item", JSON.stringify(item, null, 1));
  show("input", GRADED.find((name) => fields.includes(name)), item, answer);
  show("reference", COMPARED.find((name) => fields.includes(name)), item, answer);
  write("#example-rule", rule);
}

document.addEventListener("input", update);
document.addEventListener("change", update);
update();
