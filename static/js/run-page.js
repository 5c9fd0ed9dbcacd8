// Wires the run page: history over HTTP, then the live socket, both through one reducer; one redraw per frame however many events arrive.
import { confirmed } from "./confirm.js";
import { $, write } from "./dom.js";
import { View } from "./chart-view.js";
import { unpack } from "./figures.js";
import { clock } from "./format.js";
import { drawCharts, makeCharts } from "./run-charts.js";
import { showFindings } from "./run-doctor.js";
import { showEvaluation } from "./run-evaluation.js";
import { overruleHead, showReach } from "./run-reach.js";
import { follow } from "./run-socket.js";
import { absorb, initial, overrule, resume } from "./run-state.js";
import { Tables } from "./run-tables.js";
import { showTimeline } from "./run-timeline.js";
import { showHead } from "./run-view.js";

const page = JSON.parse($("#run-data").textContent);
const title = document.title;
const view = new View();
const charts = makeCharts(document, view);
const tables = new Tables(page);
let state = initial({ steps: page.steps, submittedAt: page.submitted_at, state: page.state });
let drawing = 0;
let catchingUp = null;
let connection = null;
let heard = new Date(); // when the socket last told something
let reach = { since: page.engine_away_since, restarting: page.engine_restarting }; // of the engine; the portal's own silence is the socket's affair
let link = { kind: "opening" };
let closer = { range: null, steps: [] };

function draw() {
  drawing = 0;
  showHead(state);
  overruleHead(reach, state);
  showReach(reach, state);
  showEvaluation(state, page);
  drawCharts(charts, state, stepsInView());
  showTimeline(state, until());
  showFindings(state.findings);
  tables.show(state);
  document.title = `${state.version}/${state.stepsPlanned} ${title}`;
  showRange();
  if (state.ended) connection?.stop();
}

function take(events) {
  heard = new Date();
  const { state: next, gap } = absorb(state, events);
  become(next);
  if (gap) catchUp();
}

/** A hidden page draws no frames: it is brought up to date once a second, so that its title stays true. */
function become(next) {
  if (next !== state && !drawing) drawing = document.hidden ? setTimeout(draw, 1000) : requestAnimationFrame(draw);
  state = next;
}

/** The state's steps, with exact ones in the place of buckets where somebody has zoomed in. */
function stepsInView() {
  if (!closer.steps.length) return state.steps;
  const [from, to] = [closer.steps[0].version, closer.steps.at(-1).version];
  return [...state.steps.filter((step) => step.version < from), ...closer.steps, ...state.steps.filter((step) => step.first > to)];
}

/** Nothing is followed any more when a run is over. */
function showRange() {
  const { range } = closer;
  $("#zoom-live").hidden = range === null;
  write("#zoom-live", state.ended ? "Show all" : "Back to live");
  write("#zoom-words", range ? `Versions ${Math.max(0, Math.ceil(range[0]))} to ${Math.floor(range[1])}` : state.ended ? "All steps" : "Following");
}

/** A zoom into buckets asks for the exact steps, once the hand rests. Following goes on as soon as the zoom ends. */
async function lookCloser(range) {
  closer = { range, steps: [] };
  showRange();
  if (range && state.steps.some((step) => step.low && step.version >= range[0] && step.first <= range[1])) {
    const response = await fetch(`${page.figures_url}?from=${Math.max(1, Math.floor(range[0]))}&to=${Math.ceil(range[1])}`, { headers: { Accept: "application/json" } });
    if (closer.range !== range || !response.ok) return;
    closer.steps = unpack(await response.json());
  }
  drawCharts(charts, state, stepsInView());
}

let resting = 0;
view.onChange((changes) => {
  if (!("range" in changes)) return;
  clearTimeout(resting);
  resting = setTimeout(() => lookCloser(changes.range), changes.range ? 150 : 0);
});
$("#zoom-live").addEventListener("click", () => view.live());
$("#log-scale").addEventListener("change", (event) => view.set({ log: event.target.checked }));
$("#smoothing").addEventListener("input", (event) => {
  view.set({ smoothing: Number(event.target.value) });
  write("#smoothing-words", view.smoothing ? view.smoothing.toFixed(2) : "raw");
});

/** What came before the newest events, summed up by the server: a run of ten thousand steps opens as fast as one of ten. */
async function begin() {
  const response = await fetch(page.overview_url, { headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  const found = await response.json();
  state = resume(state, found);
  take(found.events);
  settle(found.job);
}

/** Fetches what lies beyond `seq`, page by page, until nothing is left. One at a time: events that the socket brings meanwhile are merged by seq. */
function catchUp() {
  catchingUp ??= fetchRest()
    .catch((error) => failed(error))
    .finally(() => (catchingUp = null));
  return catchingUp;
}

async function fetchRest() {
  for (;;) {
    const from = state.seq;
    const response = await fetch(`${page.events_url}?after=${from}`, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    const { events, more, job } = await response.json();
    take(events);
    settle(job);
    if (!more || state.seq === from) return;
  }
}

function settle(job) {
  become(overrule(state, job));
}

function failed(error) {
  console.info("history could not be fetched:", error.message);
  $("#run-error").hidden = false;
  write("#run-error-text", `The history could not be loaded: ${error.message}.`);
}

const STATUS = {
  opening: ["Connecting", "quiet"],
  connecting: ["Reconnecting", "warn"],
  live: ["Live", "good"],
  waiting: ["Connection lost", "warn"],
  refused: ["Not connected", "bad"],
  closed: ["Complete", "quiet"],
};

function showStatus(status) {
  link = status;
  const { kind, text, retrySeconds } = status;
  const [label, tone] = kind === "live" && reach.since && !state.ended ? ["Engine away", "warn"] : STATUS[kind];
  const pill = $("#run-link");
  pill.dataset.kind = kind;
  pill.dataset.tone = tone;
  write("#run-link-text", label);
  document.body.classList.toggle("run-stale", kind === "waiting" || kind === "connecting" || kind === "refused");
  $("#run-stale").hidden = !["waiting", "refused"].includes(kind);
  write("#run-stale-text", text ?? `Connection lost. What you see was true at ${clock(heard)}. Trying again in ${Math.max(1, Math.round(retrySeconds ?? 0))} s.`);
}

/** A ping names the last seq: an announcement that got lost is noticed here at the latest. A job that never reached the engine has no events. */
function ping({ last, engine_away_since: since, engine_restarting: restarting }) {
  heard = new Date();
  reached({ since, restarting });
  if (last > state.seq || state.seq === 0) catchUp();
}

function reached(told) {
  if (JSON.stringify(told) === JSON.stringify(reach)) return;
  reach = told;
  showStatus(link);
  draw();
}

/** Until when the running phase is known to have run, in seconds since 1970. */
const until = () => {
  const stopped = reach.since ?? reach.restarting?.since;
  return (stopped ? Date.parse(stopped) : Date.now()) / 1000;
};

function connect() {
  const base = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${page.socket_path}`;
  const listeners = { onEvents: take, onPing: ping, onStatus: showStatus };
  connection = follow({ url: (after) => `${base}?after=${after}`, after: () => state.seq, ...listeners });
}

/** Commands are POSTs that answer 204; the page changes when the event arrives. Without this script the form posts and reloads. */
async function command(event) {
  event.preventDefault();
  const form = event.currentTarget;
  if (form.dataset.confirm && !(await confirmed(form))) return;
  const button = form.querySelector("button");
  button.disabled = true;
  const response = await fetch(form.action, { method: "POST", body: new FormData(form), headers: { Accept: "application/json" } });
  if (response.ok) return asked(form.dataset.action);
  button.disabled = false;
  const answer = await response.json().catch(() => null);
  $("#run-error").hidden = false;
  write("#run-error-text", answer?.error?.message ?? `The request was refused (${response.status}).`);
}

/** The wish is written down; that the engine has taken it is an event, and only that changes what the page says of the job. */
function asked(action) {
  if (action === "resume" || state.request?.kind === "stop" || (action === "pause" && (state.request || state.state === "paused")) || state.ended) return;
  $("#run-request").dataset.asked = action;
  draw();
}

for (const form of document.querySelectorAll("form[data-action]")) form.addEventListener("submit", command);
$("#run-retry").addEventListener("click", () => connection?.retry());
$("#run-error-retry").addEventListener("click", () => {
  $("#run-error").hidden = true;
  catchUp();
});

await begin().catch((error) => failed(error));
document.body.classList.remove("run-loading");
draw();
if (page.stopping) asked("cancel");
if (state.ended) showStatus({ kind: "closed" });
else connect();
// The phase that runs now grows on the timeline between events.
setInterval(() => !document.hidden && !state.ended && showTimeline(state, until()), 1000);
$("#timeline details").addEventListener("toggle", () => showTimeline(state, until()));
