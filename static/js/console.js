// The operators' overview: asks the server every two seconds and draws what it says. What does not answer is said, never guessed.
import { drawGantt, drawHistogram, drawKv } from "./console-charts.js";
import { $, write } from "./dom.js";
import { fillFairness, fillJobs, fillNext, fillTraining, fillWorkers } from "./console-tables.js";
import { count, duration, percent } from "./format.js";

const EVERY_MS = 2000;
const SLOWEST_MS = 15_000;
const page = JSON.parse($("#console-data").textContent);
let zoom = 900;
let timer = 0;
let failures = 0;
let asking = null;
let last = null;

function tell(tone, text) {
  $("#console-link").dataset.tone = tone;
  write("#console-link", text);
}

async function ask() {
  clearTimeout(timer);
  asking?.abort();
  const mine = (asking = new AbortController());
  try {
    const response = await fetch(`${page.live}?engine=${encodeURIComponent(page.engine)}&zoom=${zoom}`, { headers: { Accept: "application/json" }, signal: mine.signal });
    if (response.status === 401) return tell("bad", "you are signed out");
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    const seen = await response.json();
    draw(seen);
    failures = 0;
    if (seen.engine.late_seconds) tell("warn", `the engine is slow: what it does is ${duration(seen.engine.late_seconds)} old`);
    else tell("good", "live");
    document.body.classList.remove("console-stale");
  } catch (error) {
    if (mine.signal.aborted) return;
    failures += 1;
    document.body.classList.add("console-stale");
    tell("warn", `${error.message}; what you see is old, trying again`);
  }
  if (!document.hidden) timer = setTimeout(ask, Math.min(SLOWEST_MS, EVERY_MS * 2 ** failures));
}

function draw(seen) {
  const { engine } = seen;
  last = seen;
  $("#console-body").removeAttribute("aria-busy");
  $("#console-away").hidden = !engine.away;
  write("#console-away-why", engine.away);
  showAdmission(engine);
  showTiles(seen);
  drawGantt($("#gantt"), seen);
  $("#gantt-none").hidden = Object.keys(seen.gantt).length > 0;
  drawKv(seen);
  drawHistogram("ttfs", seen.ttfs, "jobs");
  drawHistogram("tpts", seen.tpts, "steps");
  fillNext(seen, page);
  fillTraining(seen);
  fillFairness(seen, page);
  fillJobs(seen, page);
  fillWorkers(seen);
}

const ADMISSION = { open: ["good", "admission open"], paused: ["warn", "admission paused"], drain: ["bad", "draining"] };

function showAdmission({ admission }) {
  const [tone, text] = ADMISSION[admission] ?? ["plain", "admission unknown"];
  $("#admission").className = `badge badge-${tone}`;
  write("#admission", text);
  for (const link of document.querySelectorAll("[data-when]")) link.hidden = !link.dataset.when.split(" ").includes(admission);
}

function showTiles({ busy, ttfs, tpts, lag, due, engine, steps, pulses }) {
  tile("rollout", percent(busy.rollout), `${count(steps)} steps in 15 min`);
  tile("train", percent(busy.train), engine.training.queue.length === 1 ? "1 batch waits" : `${count(engine.training.queue.length)} batches wait`);
  tile("idle", percent(busy.idle), "neither had work");
  tile("ttfs", duration(ttfs.p50), ttfs.count ? `90 % under ${duration(ttfs.p90)}` : "no first step yet");
  tile("tpts", duration(tpts.p50), tpts.count ? `90 % under ${duration(tpts.p90)}` : "no pair of steps yet");
  tile("lag", lag.behind === null ? "–" : count(lag.behind), lag.behind ? `for ${duration(lag.seconds)}` : `stored ${duration(pulses.ingester.lag_seconds)} late`);
  const oldest = Math.max(due.submission_seconds ?? 0, due.command_seconds ?? 0);
  const outbox = due.outbox === null ? "nothing is billed outside" : `bills: ${count(due.outbox)}, oldest ${duration(due.outbox_seconds)}`;
  tile("due", count(due.submissions + due.commands), oldest ? `oldest ${duration(oldest)}` : outbox);
  tile("slots", engine.slots ? `${engine.slots.used} / ${engine.slots.total}` : "–", engine.rollouts ? `${engine.rollouts.running} roll out${engine.rollouts.limit === null ? "" : ` of ${engine.rollouts.limit}`}` : "");
}

function tile(name, value, note) {
  write(`#tile-${name}`, value);
  write(`#note-${name}`, note);
}

for (const button of document.querySelectorAll("[data-zoom]")) {
  button.addEventListener("click", () => {
    zoom = Number(button.dataset.zoom);
    for (const other of document.querySelectorAll("[data-zoom]")) other.setAttribute("aria-pressed", String(other === button));
    ask();
  });
}
window.addEventListener("resize", () => last && drawGantt($("#gantt"), last));
document.addEventListener("visibilitychange", () => !document.hidden && ask());
ask();
