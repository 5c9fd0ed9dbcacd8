// The console's tables. They are filled anew with each look, unless somebody's focus is in them: a link must not vanish under a finger.
import { hue } from "./console-charts.js";
import { $, el, write } from "./dom.js";
import { bytes, count, duration, percent } from "./format.js";

function fill(selector, rows) {
  const parent = $(selector);
  if (!parent.contains(document.activeElement)) parent.replaceChildren(...rows);
}

const cell = (label, ...children) => el("td", { "data-label": label }, ...children);
const num = (label, text) => el("td", { class: "num", "data-label": label }, text);
const badge = (tone, text) => el("span", { class: `badge badge-${tone}` }, text);

function jobCell(seen, job, tenant) {
  return el("td", {}, el("span", { class: "strong wrap-anywhere" }, seen.jobs[job] ?? job), el("div", { class: "tiny faint wrap-anywhere" }, `${seen.tenants[tenant] ?? tenant} · ${job}`));
}

export function fillNext(seen) {
  const { next, line } = seen.engine;
  write("#line-count", line > next.length ? `the first ${next.length} of ${count(line)}` : `${count(line)} in line`);
  const rows = next.map((entry) =>
    el("tr", {}, jobCell(seen, entry.job, entry.tenant), el("td", { class: "full small" }, entry.why_not), num("KV", bytes(entry.kv_bytes)), num("In", duration(entry.next_seconds))),
  );
  fill("#next", rows.length ? rows : [nothing(4, "Nobody waits for a place.")]);
}

const nothing = (columns, words) => el("tr", {}, el("td", { colspan: columns, class: "small soft full" }, words));

export function fillTraining(seen) {
  const { running, queue } = seen.engine.training;
  const items = [
    ...running.map((job) => el("li", {}, `${seen.jobs[job] ?? job} `, badge("running", "training"))),
    ...queue.map((job) => el("li", { class: "wrap-anywhere" }, seen.jobs[job] ?? job)),
  ];
  fill("#training", items.length ? items : [el("li", { class: "soft console-none" }, "No batch waits for the trainer.")]);
}

export function fillFairness(seen, page) {
  const rows = seen.fairness.map((row) => {
    const bar = el("progress", { class: "progress", max: 1, value: row.served, "aria-label": `${seen.tenants[row.tenant] ?? row.tenant}: share served` });
    const name = el("a", { href: page.tenant.replace("ten_0", row.tenant) }, seen.tenants[row.tenant] ?? row.tenant);
    const mark = el("i", { class: `lane hue-${hue(row.tenant)}`, "aria-hidden": "true" });
    return el("tr", {}, el("td", { class: "wrap-anywhere" }, mark, " ", name), cell("Served", el("span", { class: "share" }, el("span", { class: "num tiny" }, percent(row.served)), bar)), num("Due", row.due === null ? "–" : percent(row.due)), num("Weight", row.weight === null ? "–" : String(row.weight)));
  });
  fill("#fair", rows.length ? rows : [nothing(4, "Nobody was served in this time.")]);
}

export function fillJobs(seen, page) {
  const { open, versions } = seen.engine;
  write("#jobs-count", count(open.length));
  $("#jobs-none").hidden = open.length > 0 || Boolean(seen.engine.away);
  fill("#jobs", open.map((job) => jobRow(seen, page, job, versions[job.job] ?? [])));
}

function jobRow(seen, page, job, versions) {
  const held = job.phase === "held" || job.pausing;
  const hold = held ? ["job-resume", "Resume", ""] : ["job-pause", "Pause", ""];
  const links = [["job-priority", "Priority", ""], ...(job.stopping ? [] : [hold]), ["job-stop", "Stop", " button-danger"]].map(([deed, words, more]) =>
    el("a", { class: `button button-small${more}`, href: `${page.act}?deed=${deed}&about=${job.job}` }, words, el("span", { class: "sr" }, ` ${seen.jobs[job.job] ?? job.job}`)),
  );
  const phase = job.code || job.stopping ? badge(job.stopping ? "bad" : "paused", job.phase) : badge("running", job.phase);
  const why = job.code ? el("div", { class: "tiny faint" }, job.reason) : null;
  const memory = versions.length ? versions.map((version) => `v${version}`).join(", ") : "–";
  return el(
    "tr", {}, jobCell(seen, job.job, job.tenant), el("td", { class: "full" }, phase, why), num("Step", `${count(job.version)} / ${count(job.steps)}`),
    num("Priority", String(job.priority)), num("In memory", memory), num("Ends in", duration(job.eta_seconds)), el("td", { class: "right full" }, el("span", { class: "row" }, ...links)),
  );
}

export function fillWorkers(seen) {
  const sandbox = seen.engine.sandbox;
  write("#sandbox", sandbox?.tier ? `sandbox: ${sandbox.tier}` : "");
  const rows = [
    ...seen.engine.workers.map((worker) => workerRow(`engine: ${worker.name}`, worker.alive, worker.heard_seconds, worker.busy ? `${count(worker.busy)} calls under way` : "idle")),
    ...Object.entries(seen.pulses).map(([kind, pulse]) => workerRow(`portal: ${kind}`, pulse.alive, pulse.seconds, pulse.error ?? "")),
  ];
  fill("#workers", rows);
}

function workerRow(name, alive, heard, more) {
  const when = heard === null || heard === undefined ? "never" : `${duration(heard)} ago`;
  return el("tr", {}, el("td", {}, name), el("td", {}, badge(alive ? "good" : "bad", alive ? "up" : "down")), cell("Heard", when), el("td", { class: "small soft full" }, more));
}
