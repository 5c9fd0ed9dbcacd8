// One prompt, several models: each pane streams its answer by itself and has it graded when it is whole.
import { $, write } from "./dom.js";
import { events } from "./sse.js";

const form = $("#playground");
const panes = [...document.querySelectorAll("[data-pane]")];
const token = form?.elements.csrfmiddlewaretoken?.value;
const error = $("#playground-error");
const rowField = $("#playground-item"); // not form.elements.item, which is the collection's own method
const temperature = $("#playground-temperature");
let running = null; // the AbortController of the answers under way
let row = null; // the row that the prompt was taken from, while it is unchanged

$("[data-go]")?.addEventListener("change", (event) => location.assign(event.target.value));
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!running) ask();
});
form?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit($("#playground-send"));
});
$("#playground-cancel")?.addEventListener("click", () => running?.abort());
$("#playground-row")?.addEventListener("click", takeRow);
for (const pane of panes) pane.querySelector("[data-step]")?.addEventListener("input", () => mark(pane));
panes.forEach(mark);
for (const way of form?.elements.draw ?? []) way.addEventListener("change", () => (temperature.value = way.value === "sampled" ? temperature.dataset.sampled : "0"));
// The two ways are names for temperatures: one that is typed chooses between them.
temperature?.addEventListener("input", () => (form.elements.draw.value = Number(temperature.value) === 0 && temperature.value !== "" ? "likeliest" : "sampled"));

function mark(pane) {
  pane.toggleAttribute("data-off", modelOf(pane) === null);
}

/** The model of a pane, or null where no step is chosen. */
function modelOf(pane) {
  if (!pane.dataset.job) return pane.dataset.model;
  const step = pane.querySelector("[data-step]").value.trim();
  return step === "" ? null : `${pane.dataset.job}@${step}`;
}

function complain(text) {
  error.hidden = !text;
  write(error.lastElementChild, text ?? "");
}

async function ask() {
  complain(null);
  if (!form.elements.prompt.value.trim()) {
    complain("Write a prompt first, or take a row of the dataset.");
    form.elements.prompt.focus();
    return;
  }
  let item;
  try {
    item = itemOf();
  } catch (refused) {
    complain(`The row is no JSON object: ${refused.message}`);
    rowField.closest("details").open = true;
    rowField.focus();
    return;
  }
  running = new AbortController();
  busy(true);
  const order = orderOf();
  const asked = panes.filter((pane) => modelOf(pane) !== null);
  await Promise.all(asked.map((pane) => answer(pane, { ...order, seed: order.seed ?? freshSeed(), model: modelOf(pane) }, item, running.signal)));
  running = null;
  busy(false);
}

/** Of one column: with a seed in common, one unlucky draw would be all columns', and look like the fault of a model. */
const freshSeed = () => Math.floor(Math.random() * 2 ** 31);

function busy(is) {
  $("#playground-send").disabled = is;
  $("#playground-cancel").hidden = !is;
}

function orderOf() {
  const fields = form.elements;
  const number = (name) => (fields[name].value.trim() === "" ? null : Number(fields[name].value));
  const system = fields.system.value.trim() ? [{ role: "system", content: fields.system.value }] : [];
  const turns = row ? row.messages.filter((message) => message.role !== "system") : [{ role: "user", content: fields.prompt.value }];
  return {
    messages: [...system, ...turns],
    temperature: number("temperature"),
    top_p: number("top_p"),
    max_completion_tokens: number("max_completion_tokens"),
    seed: number("seed"),
    stop: fields.stop.value || null,
    stream: true,
    stream_options: { include_usage: true },
  };
}

/** The row for the reward, or null where nothing is to be graded. */
function itemOf() {
  const text = rowField?.value.trim();
  if (!text) return null;
  const item = JSON.parse(text);
  if (item === null || typeof item !== "object" || Array.isArray(item)) throw new Error("write it as {\"answer\": \"42\"}");
  return item;
}

async function post(url, body, signal) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": token },
    body: JSON.stringify(body),
    signal,
  });
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  throw new Error(said?.error?.message ?? `the server answered ${response.status}`);
}

async function answer(pane, order, item, signal) {
  const part = (name) => pane.querySelector(`[data-${name}]`);
  const text = part("text");
  const began = performance.now();
  let whole = "";
  let first = null;
  let ended = null;
  let usage = null;
  part("empty").hidden = true;
  text.hidden = false;
  text.textContent = "";
  text.toggleAttribute("data-live", true);
  reward(pane, null);
  write(part("figures"), "Waiting for its place");
  try {
    for await (const data of events(await post(form.dataset.chat, order, signal))) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      usage = chunk.usage ?? usage;
      const choice = chunk.choices?.[0];
      ended = choice?.finish_reason ?? ended;
      if (!choice?.delta.content) continue;
      if (first === null) {
        first = performance.now() - began;
        write(part("figures"), "Sampling");
      }
      whole += choice.delta.content;
      text.append(choice.delta.content);
    }
    write(part("figures"), figures(usage, ended, first, performance.now() - began, order));
    if (item && ended) await graded(pane, whole, item, signal);
  } catch (failed) {
    write(part("figures"), failed.name === "AbortError" ? "Stopped" : "Not answered");
    if (failed.name !== "AbortError") reward(pane, failed.message, "bad");
  } finally {
    text.removeAttribute("data-live");
  }
}

function figures(usage, ended, first, all, { temperature, seed }) {
  const parts = usage ? [`${usage.completion_tokens} token${usage.completion_tokens === 1 ? "" : "s"}`] : [];
  if (first !== null) parts.push(`first after ${(first / 1000).toFixed(2)} s`);
  parts.push(`${(all / 1000).toFixed(2)} s`, ended === "length" ? "cut at the longest" : "ended by itself");
  if (temperature !== 0) parts.push(`seed ${seed}`);
  return parts.join(" · ");
}

/** The panes' answers one after the other: the engine grades one at a time for an organisation, and tells a second to come again. */
let grading = Promise.resolve();

async function graded(pane, text, item, signal) {
  reward(pane, "Grading", "quiet");
  const turn = grading.then(async () => (await post(form.dataset.grade, { text, item }, signal)).json());
  grading = turn.catch(() => null);
  const outcome = await turn;
  if (outcome.error) reward(pane, `Not graded: ${outcome.error.message}`, "warn");
  else if (outcome.reward === null) reward(pane, "The reward does not apply", "warn");
  else reward(pane, `Reward ${Number(outcome.reward.toFixed(3))}`, outcome.reward > 0 ? "good" : "bad");
}

function reward(pane, text, tone) {
  const place = pane.querySelector("[data-reward]");
  place.hidden = text === null;
  place.dataset.tone = tone ?? "quiet";
  place.textContent = text ?? "";
}

async function takeRow() {
  complain(null);
  try {
    const response = await fetch(form.dataset.row, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    show(await response.json());
  } catch (failed) {
    complain(`No row came: ${failed.message}`);
  }
}

function show(found) {
  const system = found.messages.filter((message) => message.role === "system");
  const turns = found.messages.filter((message) => message.role !== "system");
  form.elements.system.value = system.map((message) => message.content).join("\n\n");
  form.elements.prompt.value = turns.map((message) => message.content).join("\n\n");
  rowField.value = JSON.stringify(found.item);
  row = found;
  const answer = found.item.answer === undefined ? "" : `, whose answer is ${JSON.stringify(found.item.answer)}`;
  write("#playground-row-note", `Row ${found.row}, ${found.split === "eval" ? "held out" : "of the training rows"}${answer}.`);
}

form?.elements.prompt?.addEventListener("input", () => {
  if (row) write("#playground-row-note", "Changed by hand; the row for the reward is still the same.");
  row = null;
});
