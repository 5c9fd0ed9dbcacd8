// The step table, the checkpoints and the event log. Newest first, and only as many rows as someone has asked for: 10,000 steps stay quick.
import { $, el, icon, write } from "./dom.js";
import { clock, count, duration, length, number, percent, tiny } from "./format.js";

const PAGE = 50;

export class Tables {
  constructor({ adapter_url: adapterUrl, continue_url: continueUrl, playground_url: playgroundUrl }) {
    this.adapterUrl = adapterUrl;
    this.continueUrl = continueUrl;
    this.playgroundUrl = playgroundUrl;
    this.shown = { steps: PAGE, events: PAGE };
    this.state = null;
    for (const name of ["steps", "events"]) {
      $(`#${name}-more`).addEventListener("click", () => {
        this.shown[name] += PAGE;
        this.show(this.state);
      });
    }
  }

  show(state) {
    this.state = state;
    fill($("#steps tbody"), state.steps, this.shown.steps, (step) => step.version, stepRow);
    fill($("#events"), state.log, this.shown.events, (event) => event.seq, eventRow);
    fill($("#checkpoints"), state.steps, 6, (step) => step.version, (step) => this.#checkpoint(step));
    this.#counts(state);
  }

  #counts(state) {
    $("#steps-more").hidden = state.steps.length <= this.shown.steps;
    $("#events-more").hidden = state.log.length <= this.shown.events;
    $("#steps-none").hidden = state.steps.length > 0;
    $("#checkpoints-none").hidden = state.steps.length > 0;
    write("#steps-count", count(state.steps.length));
    write("#events-count", count(state.log.length));
    write("#checkpoints-count", count(state.steps.length));
  }

  #checkpoint(step) {
    const href = this.adapterUrl.replace("/0/", `/${step.version}/`);
    const facts = `reward ${number(step.rollout.reward_mean, 2)} · ${clock(step.at)}`;
    const name = el("div", { class: "grow" }, el("div", { class: "strong num" }, `Version ${step.version}`), el("div", { class: "tiny faint num" }, facts));
    const link = el("a", { class: "button button-quiet button-small", href, "aria-label": `Download the adapter of version ${step.version}` }, icon("download"));
    const begin = { class: "button button-quiet button-small", href: `${this.continueUrl}${step.version}`, "aria-label": `Start a job from version ${step.version}`, title: "Start a job from it" };
    const talk = { class: "button button-quiet button-small", href: `${this.playgroundUrl}${step.version}`, "aria-label": `Try version ${step.version} in the playground`, title: "Try it in the playground" };
    return el("li", { class: "checkpoint", title: `sha256 ${step.adapter_sha256}` }, name, el("a", talk, icon("play")), el("a", begin, icon("arrow")), link);
  }
}

/** Keeps the children of `parent` in step with the newest `limit` of `items`: adds at the top, never rebuilds what is there. */
function fill(parent, items, limit, key, row) {
  const newest = items.slice(-limit);
  const known = new Set([...parent.children].map((child) => child.dataset.key));
  const wanted = new Set(newest.map((item) => String(key(item))));
  for (const child of [...parent.children]) if (!wanted.has(child.dataset.key)) child.remove();
  const made = newest.filter((item) => !known.has(String(key(item))));
  const top = Number(parent.firstElementChild?.dataset.key ?? -1);
  for (const item of made) {
    const element = row(item);
    element.dataset.key = key(item);
    if (key(item) > top) parent.prepend(element);
  }
  const older = made.filter((item) => key(item) < top).reverse();
  for (const item of older) {
    const element = row(item);
    element.dataset.key = key(item);
    parent.append(element);
  }
}

function stepRow(step) {
  const r = step.rollout;
  const seconds = Object.values(step.seconds).reduce((sum, x) => sum + x, 0);
  const cells = [
    String(step.step), number(r.reward_mean), number(r.reward_std), length(r.length_mean), percent(r.truncated / r.completions),
    `${r.groups_all_right} / ${r.groups_all_wrong}`, count(r.invalid), number(step.entropy), tiny(step.mismatch_kl), number(step.grad_norm),
    duration(seconds), count(step.tokens.sampled), clock(step.at),
  ];
  const row = el("tr", { class: step.skipped ? "skipped" : null }, ...cells.map((text) => el("td", { class: "num" }, text)));
  if (step.skipped) row.title = `Committed without an update: ${step.skipped.replace("_", " ")}`;
  return row;
}

function eventRow(event) {
  const summary = el("summary", {}, el("span", { class: "event-seq" }, String(event.seq)), el("time", { datetime: event.at, title: event.at }, clock(event.at)), el("code", {}, event.kind), el("span", { class: "event-text" }, eventText(event)));
  const details = el("details", { class: "event" }, summary);
  // The raw data is written out only when somebody opens it.
  details.addEventListener("toggle", () => details.childElementCount === 1 && details.append(el("pre", { tabindex: 0 }, JSON.stringify(event.data, null, 2))), { once: true });
  return el("li", {}, details);
}

const TEXT = {
  accepted: (d) => (d.kv_bytes ? `needs ${(d.kv_bytes / 1e6).toFixed(1)} MB of KV cache` : ""),
  waiting: (d) => d.reason,
  admitted: () => "has a place among the running jobs",
  rollout_started: (d) => `version ${d.version}, attempt ${d.attempt}`,
  rollout_ready: (d) => `version ${d.version}: ${d.summary?.completions ?? "?"} completions, reward ${number(d.summary?.reward_mean, 2)}`,
  rollout_lost: (d) => d.reason,
  train_started: (d) => `on version ${d.version}, attempt ${d.attempt}`,
  train_lost: (d) => d.reason,
  step: (d) => `version ${d.version} committed, reward ${number(d.rollout?.reward_mean, 2)}`,
  eval: (d) => `version ${d.version}: held-out reward ${number(d.reward_mean, 2)} on ${d.rows} rows${d.comparison ? `, ${d.comparison.verdict}` : ""}`,
  finding: (d) => `${d.title}. ${d.evidence}`,
  finding_over: (d) => `${d.code.replace(/_/g, " ")} is over`,
  pause_requested: (d) => d.reason,
  stop_requested: (d) => d.reason,
  warning: (d) => d.message,
  ended: (d) => [d.state, d.reason].filter(Boolean).join(": "),
};

const eventText = (event) => String(TEXT[event.kind]?.(event.data) ?? "");
