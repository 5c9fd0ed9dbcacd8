// Uploading with progress and cancel. The server answers 201 with the address of the next page, or 422 with the list of problems.
import { $, write } from "./dom.js";
import { bytes } from "./format.js";

const form = $("#upload-form");
const drop = $("#drop");
const input = drop.querySelector("input[type=file]");
const problems = $("#problems");
const progress = $("#upload-progress");
const submit = form.querySelector(".form-foot button");

const showFile = () => {
  const file = input.files[0];
  if (!file) return;
  write("#drop-name", `${file.name} · ${bytes(file.size)}`);
  problems.replaceChildren();
};

for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, () => (drop.dataset.over = ""));
for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => delete drop.dataset.over);
input.addEventListener("change", showFile);
showFile(); // a reload keeps the chosen file

form.addEventListener("submit", (event) => {
  event.preventDefault();
  send(new FormData(form));
});

function send(data) {
  const request = new XMLHttpRequest();
  request.open("POST", form.action);
  request.setRequestHeader("X-Requested-With", "upload");
  request.upload.addEventListener("progress", (event) => event.lengthComputable && show(event.loaded, event.total));
  request.upload.addEventListener("load", () => write("#upload-text", "Checking every line…"));
  request.addEventListener("load", () => answer(request));
  request.addEventListener("error", () => stop("The connection was lost. Nothing was stored; try again."));
  request.addEventListener("abort", () => stop("Cancelled. Nothing was stored."));
  $("#upload-cancel").onclick = () => request.abort();
  problems.replaceChildren();
  busy(true);
  request.send(data);
}

function show(loaded, total) {
  $("#upload-bar").value = loaded / total;
  write("#upload-text", `Uploading ${bytes(loaded)} of ${bytes(total)}`);
}

function answer(request) {
  if (request.status === 201) return location.assign(request.getResponseHeader("Location"));
  if (request.status !== 422) return stop(`The server answered ${request.status}. Nothing was stored.`);
  busy(false);
  // Our own fragment, rendered by the server from the same template as the page: names and values in it are escaped there.
  const page = new DOMParser().parseFromString(request.responseText, "text/html");
  problems.replaceChildren(...page.body.childNodes);
  problems.scrollIntoView({ block: "nearest" });
}

function stop(text) {
  busy(false);
  const box = document.createElement("p");
  box.className = "notice notice-warn";
  box.setAttribute("role", "alert");
  box.textContent = text;
  problems.replaceChildren(box);
}

function busy(on) {
  progress.hidden = !on;
  submit.disabled = on;
  $("#upload-bar").value = 0;
  write("#upload-text", "Uploading…");
}
