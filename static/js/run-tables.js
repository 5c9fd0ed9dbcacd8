// The step table, the checkpoints and the event log. Newest first, and only as many rows as someone has asked for: 10,000 steps stay quick.
import { $, el, icon, write } from "./dom.js";
import { unpack } from "./figures.js";
import { clock, count, duration, length, number, percent, tiny } from "./format.js";

const PAGE = 50;
const PHASES = ["wait_rollout", "rollout", "env", "reward", "wait_train", "train", "commit"];

export class Tables {
  constructor(page) {
    this.page = page;
    this.shown = { steps: PAGE, events: PAGE };
    this.older = { steps: [], events: [] };
    this.state = null;
    this.fetching = false;
    for (const name of ["steps", "events"]) $(`#${name}-more`).addEventListener("click", () => this.#more(name));
  }

  show(state) {
    this.state = state;
    fill($("#steps tbody"), this.#all("steps"), this.shown.steps, (step) => step.version, stepRow);
    fill($("#events"), this.#all("events"), this.shown.events, (event) => event.seq, eventRow);
    fill($("#checkpoints"), state.steps.filter((step) => !step.low), 6, (step) => step.version, (step) => this.#checkpoint(step));
    this.#counts(state);
  }

  /** What is in hand, oldest first: the state's own, after what was fetched when somebody asked for more. */
  #all(name) {
    const own = name === "steps" ? this.state.steps.filter((step) => !step.low) : this.state.log;
    const key = (item) => (name === "steps" ? item.version : item.seq);
    const first = own.length ? key(own[0]) : Infinity;
    const older = this.older[name].filter((item) => key(item) < first);
    // A log that was shortened meanwhile no longer meets what was fetched: then that is fetched again when it is asked for.
    if (older.length && own.length && key(older.at(-1)) !== first - 1) return (this.older[name] = []), own;
    return [...older, ...own];
  }

  /** Older ones are asked for only when they are wanted: a long history is never loaded whole. */
  async #more(name) {
    if (this.fetching) return;
    this.shown[name] += PAGE;
    const all = this.#all(name);
    const first = all.length ? (name === "steps" ? all[0].version : all[0].seq) : this.#total(name) + 1;
    if (all.length < this.shown[name] && first > 1) this.older[name] = [...(await this.#fetch(name, first)), ...this.older[name].filter((item) => (item.seq ?? item.version) >= first)];
    this.show(this.state);
  }

  async #fetch(name, first) {
    this.fetching = true;
    const from = Math.max(1, first - 10 * PAGE);
    const url = name === "steps" ? `${this.page.figures_url}?from=${from}&to=${first - 1}` : `${this.page.events_url}?after=${from - 1}`;
    const answer = await fetch(url, { headers: { Accept: "application/json" } })
      .then((response) => response.json())
      .finally(() => (this.fetching = false));
    return name === "steps" ? unpack(answer) : answer.events.filter((event) => event.seq < first);
  }

  #total(name) {
    return name === "steps" ? this.state.version : this.state.seq;
  }

  #counts(state) {
    for (const name of ["steps", "events"]) $(`#${name}-more`).hidden = this.#total(name) <= this.shown[name];
    $("#steps-none").hidden = state.version > 0;
    $("#checkpoints-none").hidden = state.version > 0;
    write("#steps-count", count(state.version));
    write("#events-count", count(state.seq));
    write("#checkpoints-count", count(state.version));
  }

  #checkpoint(step) {
    const href = this.page.adapter_url.replace("/0/", `/${step.version}/`);
    const facts = `reward ${number(step.f.reward, 2)} · ${clock(step.at)}`;
    const name = el("div", { class: "grow" }, el("div", { class: "strong num" }, `Version ${step.version}`), el("div", { class: "tiny faint num" }, facts));
    const link = el("a", { class: "button button-quiet button-small", href, "aria-label": `Download the adapter of version ${step.version}` }, icon("download"));
    const begin = { class: "button button-quiet button-small", href: `${this.page.continue_url}${step.version}`, "aria-label": `Start a job from version ${step.version}`, title: "Start a job from it" };
    const talk = { class: "button button-quiet button-small", href: `${this.page.playground_url}${step.version}`, "aria-label": `Try version ${step.version} in the playground`, title: "Try it in the playground" };
    return el("li", { class: "checkpoint", title: step.adapter_sha256 ? `sha256 ${step.adapter_sha256}` : null }, name, el("a", talk, icon("play")), ...(this.page.continue_url ? [el("a", begin, icon("arrow"))] : []), link);
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
  const f = step.f;
  const seconds = PHASES.reduce((sum, phase) => sum + (f[`seconds_${phase}`] ?? 0), 0);
  const cells = [
    String(step.version), number(f.reward), number(f.reward_std), length(f.length), percent(f.truncated),
    `${count(f.groups_all_right)} / ${count(f.groups_all_wrong)}`, count(f.invalid), number(f.entropy), tiny(f.mismatch_kl), number(f.grad_norm),
    duration(seconds), count(f.tokens_sampled), clock(step.at),
  ];
  const row = el("tr", { class: step.broken ? "broken" : step.skipped ? "skipped" : null }, ...cells.map((text) => el("td", { class: "num" }, text)));
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
