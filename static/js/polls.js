// What refreshes itself by htmx asks ever less often while nobody answers, so that an outage fills neither log nor console, and says since
// when it is old. It asks again at once when the browser is online again or the page is looked at.
import { el, write } from "./dom.js";
import { clock } from "./format.js";

const FIRST_PAUSE_MS = 4_000;
const LAST_PAUSE_MS = 15_000;
let failures = 0;
let until = 0;
let since = null;

/** The element that asked, if it asks by itself; the event may come from another when its answer has taken its place. */
function poll(event) {
  const element = event.detail.requestConfig?.elt ?? event.detail.elt;
  return element?.getAttribute?.("hx-trigger")?.startsWith("every") ? element : null;
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (poll(event) && Date.now() < until) event.preventDefault();
});
document.addEventListener("htmx:sendError", failed);
document.addEventListener("htmx:responseError", (event) => event.detail.xhr.status >= 500 && failed(event));
document.addEventListener("htmx:afterRequest", (event) => event.detail.successful && poll(event) && answered());
addEventListener("online", () => (until = 0));
document.addEventListener("visibilitychange", () => (until = 0));

function failed(event) {
  const element = poll(event);
  if (!element) return;
  since ??= new Date();
  until = Date.now() + Math.min(LAST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures);
  failures += 1;
  say(element);
}

function answered() {
  failures = until = 0;
  since = null;
  document.querySelector("#polls-failed")?.remove();
}

function say(element) {
  const box = document.querySelector("#polls-failed") ?? el("p", { id: "polls-failed", class: "notice notice-warn", role: "status" });
  if (!box.isConnected) element.before(box);
  write(box, `Connection lost. What you see was true at ${clock(since)}; it is tried again by itself.`);
}
