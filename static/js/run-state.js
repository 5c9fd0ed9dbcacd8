// The run page's truth: a pure function of the job's numbered events. First load, live updates and reconnects all go through `absorb`.
// Events at or below `seq` are ignored, a jump beyond seq + 1 stops with `gap`, so no event is lost and none counts twice.
import { figures, TOKENS, unpack } from "./figures.js";
import { clock } from "./format.js";

const LOG_KEPT = 2000;
const NEWS_STEPS = 10;
const REDONE = new Set(["rollout_lost", "train_lost"]);

export function initial({ steps, submittedAt = null, state = "submitted" }) {
  return {
    seq: 0,
    stepsPlanned: steps,
    submittedAt,
    state,
    stateReason: "",
    phase: { name: "submitted", since: submittedAt, version: null, attempt: null, reason: "", position: null },
    version: 0,
    steps: [],
    evals: [],
    warnings: [],
    findings: new Map(),
    log: [],
    request: null,
    ended: null,
    before: { firstAt: null, firstRewards: [], tokens: {} },
  };
}

/** The state at the number up to which the server has summed the history up (portal/jobs/overview.py); the events go on from there. */
export function resume(state, { seq, history, base }) {
  if (!base) return state;
  const steps = history.flatMap(unpack);
  const resumed = {
    ...state,
    seq,
    state: base.state,
    request: base.request,
    steps,
    version: steps.at(-1)?.version ?? 0,
    evals: base.evals,
    findings: new Map(base.findings.map((finding) => [finding.code, finding])),
    phase: { ...state.phase, name: base.state === "paused" ? "paused" : "committed", since: steps.at(-1)?.at ?? null },
    before: { firstAt: base.first_at, firstRewards: base.first_rewards, tokens: base.tokens },
  };
  for (const { kind, at, data } of base.warnings) KINDS[kind](resumed, data, at);
  return { ...resumed, state: base.state, phase: { ...resumed.phase, name: base.state === "paused" ? "paused" : "committed" } };
}

/** (state, events in order) → { state, gap }. With a gap the state holds all that came before it. */
export function absorb(state, events) {
  const fresh = events.filter((event) => event.seq > state.seq);
  if (!fresh.length) return { state, gap: false };
  const draft = { ...state, steps: [...state.steps], evals: [...state.evals], warnings: [...state.warnings], findings: new Map(state.findings), log: [...state.log] };
  for (const event of fresh) {
    if (event.seq <= draft.seq) continue;
    if (event.seq !== draft.seq + 1) return { state: draft, gap: true };
    draft.seq = event.seq;
    draft.log.push(event);
    KINDS[event.kind]?.(draft, event.data, event.at);
  }
  if (draft.log.length > 2 * LOG_KEPT) draft.log = draft.log.slice(-LOG_KEPT);
  return { state: draft, gap: false };
}

/** The states are the portal's (portal/jobs/lifecycle.py): any work moves a queued job to running, and no other. */
const works = (draft) => {
  if (draft.state === "queued") draft.state = "running";
};

const phase = (draft, name, at, more = {}) => {
  draft.phase = { name, since: at, version: null, attempt: null, reason: "", position: null, ...more };
};

/** The time `seconds` after `at`, in milliseconds; null where the engine could not say. */
const later = (at, seconds) => (seconds == null ? null : new Date(at).getTime() + 1000 * seconds);

/** An ending that the portal found out by itself (the engine refused the job or was replaced) has no event: it comes with the history. */
export function overrule(state, job) {
  const over = ["succeeded", "failed", "cancelled"].includes(job.state);
  if (!over || state.ended || job.last_seq > state.seq) return state;
  const ended = { state: job.state, reason: job.state_reason, at: job.ended_at };
  return { ...state, state: job.state, stateReason: job.state_reason, request: null, ended, phase: { ...state.phase, name: "ended", since: job.ended_at } };
}

// One function per kind of engine/events.py. A kind that is missing here is kept in the log and changes nothing else.
const KINDS = {
  accepted(draft, data, at) {
    draft.submittedAt = data.submitted_at ?? draft.submittedAt ?? at;
    draft.state = "queued";
    phase(draft, "accepted", at);
  },
  waiting(draft, data, at) {
    const forecast = [data.next_seconds, data.eta_seconds].map((seconds) => later(at, seconds));
    phase(draft, "waiting", at, { reason: data.reason ?? "", position: data.position ?? null, forecast });
  },
  admitted(draft, data, at) {
    works(draft);
    phase(draft, "admitted", at);
  },
  rollout_started(draft, data, at) {
    works(draft);
    phase(draft, "rollout", at, { version: data.version, attempt: data.attempt });
  },
  rollout_ready(draft, data, at) {
    works(draft);
    phase(draft, "ready", at, { version: data.version, attempt: data.attempt });
  },
  rollout_lost(draft, data, at) {
    warn(draft, at, { code: "rollout_lost", message: `The rollout of version ${data.version} was lost and is being redone: ${data.reason ?? "no reason given"}`, attribution: data.attribution, version: data.version });
    phase(draft, "waiting", at, { reason: "its rollout is being redone" });
  },
  train_started(draft, data, at) {
    works(draft);
    phase(draft, "training", at, { version: data.version, attempt: data.attempt });
  },
  train_lost(draft, data, at) {
    warn(draft, at, { code: "train_lost", message: `Training on version ${data.version} was lost and is being redone from the same batch: ${data.reason ?? "no reason given"}`, attribution: data.attribution, version: data.version });
    phase(draft, "ready", at, { version: data.version, attempt: data.attempt });
  },
  step(draft, data, at) {
    works(draft);
    const before = draft.steps.at(-1)?.at ?? null;
    const broken = data.skipped === "nonfinite" ? 1 : 0;
    draft.steps.push({ ...data, at, first: data.version, broken, f: figures(data), tptsSeconds: before ? (new Date(at) - new Date(before)) / 1000 : null });
    draft.version = data.version;
    phase(draft, "committed", at, { version: data.version });
  },
  eval(draft, data, at) {
    draft.evals.push({ ...data, at });
  },
  finding(draft, data) {
    draft.findings.set(data.code, data);
  },
  finding_over(draft, data) {
    draft.findings.delete(data.code);
  },
  pause_requested(draft, data, at) {
    draft.request = { kind: "pause", at };
  },
  paused(draft, data, at) {
    draft.state = "paused";
    draft.stateReason = data.reason ?? "";
    draft.request = null;
    phase(draft, "paused", at);
  },
  resumed(draft, data, at) {
    if (draft.state === "paused") draft.state = "queued";
    draft.stateReason = "";
    draft.request = null;
    phase(draft, "waiting", at, { reason: "resumed; waiting for a place" });
  },
  stop_requested(draft, data, at) {
    draft.request = { kind: "stop", at, reason: data.reason ?? "" };
  },
  warning(draft, data, at) {
    warn(draft, at, { code: data.code, message: data.message, advice: data.advice, version: data.step ?? data.version, counts: data.late !== undefined });
  },
  ended(draft, data, at) {
    draft.state = data.state;
    draft.stateReason = data.reason ?? "";
    draft.request = null;
    draft.ended = { ...data, at };
    phase(draft, "ended", at);
  },
};

/** `counts`: its message says how often; the latest one stands for those before. */
function warn(draft, at, { code, message, attribution = null, advice = "", version = null, counts = false }) {
  draft.warnings.push({ at, code, message, attribution, advice, version, counts });
}

/** Everything that the page derives rather than stores. Seconds; null where it cannot be known yet. */
export function derive(state) {
  const last = state.steps.at(-1) ?? null;
  const firstAt = state.before.firstAt ?? state.steps[0]?.at ?? null;
  const ttfs = firstAt && state.submittedAt ? (new Date(firstAt) - new Date(state.submittedAt)) / 1000 : null;
  const gaps = state.steps.slice(-8).map((step) => step.tptsSeconds).filter((seconds) => Number.isFinite(seconds));
  const recent = mean(gaps);
  const open = !state.ended && state.state !== "paused";
  return {
    last,
    ttfsSeconds: state.ended?.ttfs_seconds ?? ttfs,
    tptsSeconds: state.ended?.tpts_seconds ?? (last && last.version > 1 && firstAt ? (new Date(last.at) - new Date(firstAt)) / 1000 / (last.version - 1) : null),
    etaSeconds: open && recent !== null ? recent * Math.max(0, state.stepsPlanned - state.version) : null,
    rewardNow: mean(state.steps.slice(-3).map((step) => step.f.reward)),
    rewardFirst: mean(state.before.firstRewards.length ? state.before.firstRewards : state.steps.slice(0, 3).map((step) => step.f.reward)),
    evalFirst: state.evals[0]?.reward_mean ?? null,
    evalLast: state.evals.length > 1 ? state.evals.at(-1).reward_mean : null,
    tokens: sumTokens(state),
    idleSteps: idleSteps(state.steps),
  };
}

/** Of those that are numbers: a step whose gradings all failed has no reward, and none is not 0. */
function mean(given) {
  const values = given.filter((value) => Number.isFinite(value));
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

/** Committed steps that changed nothing; null in a history so long that its old steps come in buckets, which do not tell. */
const idleSteps = (steps) => (steps.some((step) => step.low) ? null : steps.filter((step) => step.skipped).length);

/** Of the events in hand, and of what the server had summed up before them; `sampled` with what evaluations sampled, as the bill has it. */
function sumTokens({ steps, evals, before }) {
  const evaluated = evals.reduce((sum, one) => sum + (one.sampled_tokens ?? 0), 0);
  const total = Object.fromEntries(TOKENS.map((kind) => [kind, before.tokens[kind] ?? 0]));
  for (const step of steps) if (step.rollout) for (const kind of TOKENS) total[kind] += step.tokens?.[kind] ?? 0;
  return { ...total, sampled: total.sampled + evaluated, evaluated };
}

const PHASES = {
  submitted: ["Handing over", "The job is on its way to the engine."],
  accepted: ["Accepted", "The engine has the job and is looking for a place."],
  waiting: ["Waiting", ""],
  admitted: ["Starting", "It has a place among the running jobs; its first rollout is next."],
  rollout: ["Rollout", "Sampling and grading completions from version {v}."],
  ready: ["Ready to train", "Its batch from version {v} is graded and waits for the trainer."],
  training: ["Training", "One optimizer step on the completions of version {v}."],
  committed: ["Committed", "Version {v} is on disk; its next rollout is being placed."],
  evaluating: ["Evaluating", "All steps are committed; the evaluations that are still due run, or wait for their turn, before the job ends."],
  paused: ["Paused", "Nothing runs until it is resumed. Its versions are kept."],
  ended: ["Finished", ""],
};

/** What the job is doing now and why, in words: { title, why }. */
export function phaseText({ phase, state, stateReason, ended, version, stepsPlanned }) {
  const name = phase.name === "committed" && version >= stepsPlanned ? "evaluating" : phase.name;
  const [title, sentence] = PHASES[name] ?? [name, ""];
  if (ended) return { title: { succeeded: "Succeeded", failed: "Failed", cancelled: "Cancelled" }[state] ?? title, why: sentenceCase(stateReason || `Ended at version ${version}`) };
  const why = phase.reason || stateReason || sentence.replace("{v}", String(phase.version ?? version));
  const parts = [why];
  if (phase.position) parts.push(phase.position === 1 ? "Next in the queue" : `Place ${phase.position} in the queue`);
  if (phase.forecast) parts.push(forecastText(...phase.forecast));
  if (phase.attempt > 1) parts.push(`Attempt ${phase.attempt}`);
  return { title, why: parts.filter(Boolean).map(sentenceCase).join(" ") };
}

/** From the pace of the last steps; jobs that are yet to come are not in it, hence "about". */
function forecastText(begins, ends) {
  if (begins === null) return "";
  return ends === null ? `Goes on about ${clock(begins)}` : `Goes on about ${clock(begins)} and ends about ${clock(ends)}`;
}

function sentenceCase(text) {
  const end = /[.!?…]$/.test(text) ? "" : ".";
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${end}`;
}

/**
 * Those that still say something of now: what one step met is news for the next few, work that was lost only until it is done again, and of
 * a run that is over the events tell.
 */
export function standingWarnings({ warnings, ended, version }) {
  const stands = (warning) => warning.version === null || warning.version > version - (REDONE.has(warning.code) ? 1 : NEWS_STEPS);
  return ended ? [] : warnings.filter(stands);
}

/** The latest warning of each code with how often it came, oldest first: eighteen equal boxes say no more than one. */
export function latestWarnings(warnings) {
  const latest = new Map();
  for (const warning of warnings) {
    const times = (latest.get(warning.code)?.times ?? 0) + 1;
    latest.delete(warning.code);
    latest.set(warning.code, { ...warning, times });
  }
  return [...latest.values()];
}
