// Every <time data-local> in the viewer's own zone, UTC in the tooltip. Fragments that htmx swaps in are done again, and what is told as
// "just now" twice a minute, on a page that stays open.
import { write } from "./dom.js";
import { clock, moment } from "./format.js";

const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60]];
const AGAIN_MS = 30_000;

export function relative(date, now = new Date()) {
  const seconds = (date - now) / 1000;
  for (const [unit, size] of UNITS) if (Math.abs(seconds) >= size) return RELATIVE.format(Math.round(seconds / size), unit);
  return "just now";
}

export function localise(root) {
  for (const element of root.querySelectorAll("time[datetime][data-local]")) {
    const date = new Date(element.dateTime);
    const fresh = Math.abs(Date.now() - date) < 6 * 86400 * 1000;
    const today = Math.abs(Date.now() - date) < 12 * 3600 * 1000;
    write(element, element.dataset.local === "relative" && fresh ? relative(date) : element.dataset.local === "clock" && today ? clock(date) : moment(date));
    element.title = `${moment(date)} here · ${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  }
}

localise(document);
setInterval(() => document.hidden || localise(document), AGAIN_MS);
document.addEventListener("visibilitychange", () => document.hidden || localise(document));
document.addEventListener("htmx:afterSwap", (event) => localise(event.target.parentElement ?? document));
