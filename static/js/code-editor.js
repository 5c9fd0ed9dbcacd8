// A textarea for Python with colours, line numbers and marked lines. The textarea stays what it is: it holds the text, and works without us.
import { el } from "./dom.js";
import { tokens } from "./python-tokens.js";

const INDENT = "    ";
const MOST_COLOURED = 30_000;

function lines(source, coloured) {
  const found = [[]];
  for (const [kind, text] of coloured ? tokens(source) : [["other", source]]) {
    text.split("\n").forEach((part, index) => {
      if (index) found.push([]);
      if (part) found.at(-1).push(kind === "other" ? part : el("span", { class: `code-${kind}` }, part));
    });
  }
  return found;
}

function paint(pre, source, bad = new Map()) {
  const painted = lines(source, source.length <= MOST_COLOURED).map((parts, index) =>
    el("span", { class: bad.has(index + 1) ? "code-line is-bad" : "code-line" }, ...parts, "\n"),
  );
  pre.replaceChildren(...painted);
}

/** The lines that the page says something about: number → text. Those that came with the source itself win. */
function marks(area) {
  const found = new Map();
  for (const element of document.querySelectorAll("[data-error-line]")) {
    found.set(Number(element.dataset.errorLine), element.dataset.errorText ?? "See the message below the source.");
  }
  if (area.dataset.errorLine) return new Map([[Number(area.dataset.errorLine), "See the message below the source."]]);
  return found;
}

function enhance(area) {
  const gutter = el("div", { class: "code-gutter", "aria-hidden": "true" });
  const back = el("pre", { class: "code-paint", "aria-hidden": "true" });
  const box = el("div", { class: "code-editor" }, gutter);
  const help = el("p", { class: "help", id: `${area.id}_keys` }, "Tab indents, Shift and Tab take it back. To leave with the Tab key, press Escape first.");
  area.replaceWith(box);
  box.append(el("div", { class: "code-stage" }, back, area));
  box.after(help);
  area.setAttribute("aria-describedby", [area.getAttribute("aria-describedby"), help.id].filter(Boolean).join(" "));
  area.classList.add("code-area");

  let bad = marks(area);
  const follow = () => {
    back.scrollTop = gutter.scrollTop = area.scrollTop;
    back.scrollLeft = area.scrollLeft;
  };
  const draw = () => {
    paint(back, area.value, bad);
    const count = area.value.split("\n").length;
    if (gutter.childElementCount !== count || gutter.dataset.marked !== [...bad.keys()].join()) {
      const number = (n) => el("span", { class: bad.has(n) ? "is-bad" : null, title: bad.get(n) }, String(n));
      gutter.replaceChildren(...Array.from({ length: count }, (_, index) => number(index + 1)));
      gutter.dataset.marked = [...bad.keys()].join();
    }
    follow();
  };
  area.addEventListener("input", () => {
    delete area.dataset.errorLine; // it is about the text as it was
    bad = new Map();
    draw();
  });
  area.addEventListener("scroll", follow);
  keys(area);
  document.addEventListener("htmx:afterSettle", () => {
    bad = marks(area);
    draw();
  });
  draw();
}

function keys(area) {
  let leaving = false;
  area.addEventListener("keydown", (event) => {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Tab" && !leaving) {
      event.preventDefault();
      if (event.shiftKey) indent(area, (line) => line.replace(/^ {1,4}|^\t/, ""));
      else if (area.selectionStart !== area.selectionEnd) indent(area, (line) => (line ? INDENT + line : line));
      else insert(area, INDENT);
    }
    if (event.key === "Enter") {
      event.preventDefault();
      const line = area.value.slice(area.value.lastIndexOf("\n", area.selectionStart - 1) + 1, area.selectionStart);
      insert(area, `\n${line.match(/^[ \t]*/)[0]}${/:\s*(#.*)?$/.test(line) ? INDENT : ""}`);
    }
    leaving = event.key === "Escape" || (leaving && event.key === "Shift");
  });
  area.addEventListener("blur", () => (leaving = false));
}

/** As if it was typed, so that undo takes it back. */
function insert(area, text) {
  if (!document.execCommand("insertText", false, text)) {
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

function indent(area, change) {
  const start = area.value.lastIndexOf("\n", area.selectionStart - 1) + 1;
  const found = area.value.indexOf("\n", Math.max(area.selectionEnd - 1, start));
  const end = found === -1 ? area.value.length : found;
  const caret = area.selectionStart === area.selectionEnd;
  area.setSelectionRange(start, end);
  const changed = area.value.slice(start, end).split("\n").map(change).join("\n");
  insert(area, changed);
  area.setSelectionRange(caret ? start + changed.length : start, start + changed.length);
}

function paintAll(root = document) {
  for (const pre of root.querySelectorAll("pre[data-code=python]:not([data-painted])")) {
    paint(pre, pre.textContent);
    pre.dataset.painted = "";
  }
}

for (const area of document.querySelectorAll("textarea[data-editor=python]")) enhance(area);
document.addEventListener("htmx:afterSettle", () => paintAll());
paintAll();
