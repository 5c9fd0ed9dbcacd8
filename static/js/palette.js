// The keyboard: Ctrl+K and / search, g and a letter go to a page, c begins a job, ? lists them. Nothing happens while somebody types or has a dialog open.
import { $, el } from "./dom.js";

const WAIT_MS = 120;
const CHORD_MS = 1500;
const palette = $("#palette");
const keys = $("#keys");

// What a viewer would be refused is not in the page.
const commands = [...document.querySelectorAll("#palette-commands a")].map((link) => ({ kind: link.dataset.kind, name: link.textContent, url: link.getAttribute("href"), key: link.dataset.key }));
const pages = () => [...document.querySelectorAll(".nav a")].map((link) => ({ kind: "Page", name: link.textContent.trim(), url: link.getAttribute("href") }));

let shown = [];
let at = 0;
let asked = 0;
let timer = 0;

function open() {
  if (palette.open) return;
  $("#palette-input").value = "";
  palette.showModal();
  look();
}

/** Commands at once, the tenant's things as soon as the server has found them; an answer to an older question is dropped. */
async function look() {
  const wanted = $("#palette-input").value.trim().toLowerCase();
  const mine = ++asked;
  const own = [...pages(), ...commands].filter(({ name }) => name.toLowerCase().includes(wanted));
  show(own);
  const response = await fetch(`${palette.dataset.searchUrl}?q=${encodeURIComponent(wanted)}`, { headers: { Accept: "application/json" } }).catch(() => null);
  if (mine !== asked || !response?.ok) return;
  const { found } = await response.json();
  show(wanted ? [...found, ...own] : [...own, ...found]);
}

function show(items) {
  shown = items;
  at = 0;
  const list = $("#palette-list");
  list.replaceChildren(...items.map((item, i) => el("li", { id: `palette-${i}`, role: "option", "aria-selected": "false", class: "palette-item", "data-i": i }, el("span", { class: "palette-kind tiny faint" }, item.kind), el("span", { class: "clip" }, item.name))));
  if (!items.length) list.append(el("li", { class: "palette-none small faint", role: "presentation" }, "Nothing is called that."));
  mark();
}

function mark() {
  for (const item of $("#palette-list").children) item.setAttribute("aria-selected", String(item.dataset.i === String(at)));
  const chosen = document.getElementById(`palette-${at}`);
  $("#palette-input").setAttribute("aria-activedescendant", chosen?.id ?? "");
  chosen?.scrollIntoView({ block: "nearest" });
}

function go(item) {
  if (item) location.assign(item.url);
}

$("#palette-input")?.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(look, WAIT_MS);
});
$("#palette-input")?.addEventListener("keydown", (event) => {
  const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (move && shown.length) {
    event.preventDefault();
    at = (at + move + shown.length) % shown.length;
    mark();
  }
  if (event.key === "Enter") go(shown[at]);
});
$("#palette-list")?.addEventListener("click", (event) => go(shown[event.target.closest("[data-i]")?.dataset.i]));
for (const dialog of [palette, keys]) dialog?.addEventListener("click", (event) => event.target === dialog && dialog.close());

const typing = (target) => target.closest?.("input, textarea, select, [contenteditable=true], [role=slider]");
let chord = 0;

function pressed(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return open();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || $("dialog[open]")) return;
  if (chord && Date.now() - chord < CHORD_MS) {
    chord = 0;
    return go(pages().find(({ name }) => name.toLowerCase().startsWith(event.key.toLowerCase())));
  }
  const command = commands.find(({ key }) => key === event.key);
  const act = command ? () => go(command) : { g: () => (chord = Date.now()), "?": () => keys.showModal(), "/": () => ($("[data-search]") ? $("[data-search]").focus() : open()) }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

$("[data-open-keys]")?.addEventListener("click", () => keys.showModal());
if (palette) document.addEventListener("keydown", pressed);
