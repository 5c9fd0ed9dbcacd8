// Keeps what is typed on the server, a moment after the typing stops. A form that is no draft yet becomes one: 201 names its address.
import { $, write } from "./dom.js";

const PAUSE_MS = 800;
const KEEPALIVE_BYTES = 60_000; // a browser sends no more than 64 kB from a page that closes
const form = $("#reward-form[data-autosave]");
let timer = 0;
let sending = null;

function body() {
  const data = new FormData(form);
  data.set("do", "save");
  return data;
}

function post(options = {}) {
  const address = form.getAttribute("action") || location.pathname;
  return fetch(address, { method: "POST", body: body(), headers: { "X-Requested-With": "autosave" }, redirect: "manual", ...options });
}

async function keep() {
  clearTimeout(timer);
  timer = 0;
  write("#kept", "Keeping…");
  try {
    const response = await post();
    if (response.status === 201) becomeDraft(response.headers.get("Location"));
    write("#kept", response.ok ? "Kept. A reload loses nothing." : await refusal(response));
  } catch {
    write("#kept", "Not kept: the connection was lost. It is tried again when you type on.");
  }
}

async function refusal(response) {
  if (response.status === 422) return `Not kept: ${await response.text()}.`;
  return response.status === 401 || response.type === "opaqueredirect" ? "Not kept: you are signed out." : `Not kept: the server answered ${response.status}.`;
}

function becomeDraft(address) {
  form.setAttribute("action", address);
  history.replaceState(null, "", address);
}

form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => (sending = keep().finally(() => (sending = null))), PAUSE_MS);
});

// A draft that is just being made must have its address before the form is sent, or there would be two.
form.addEventListener("submit", async (event) => {
  clearTimeout(timer);
  timer = 0;
  if (!sending) return;
  event.preventDefault();
  await sending;
  form.requestSubmit(event.submitter);
});

addEventListener("pagehide", () => {
  if (!timer || !form.getAttribute("action")) return;
  const size = [...body().values()].reduce((sum, value) => sum + String(value).length, 0);
  if (size < KEEPALIVE_BYTES) post({ keepalive: true });
});
