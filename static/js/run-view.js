// Fills the head of the run page from the state: badge, phase and why, figures, certificate, warnings, buttons.
import { $, el, icon, write } from "./dom.js";
import { clock, count, duration, number, percent, signed, tiny } from "./format.js";
import { derive, latestWarnings, phaseText, standingWarnings } from "./run-state.js";
import { showTools } from "./run-tools.js";
import { localise } from "./times.js";

const OPEN = ["submitted", "queued", "running", "paused"];

export function showHead(state) {
  const facts = derive(state);
  showBadge(state);
  showPhase(state);
  showFigures(state, facts);
  showCertificate(facts.last);
  showTools(facts.last?.rollout ? facts.last : null);
  showWarnings(standingWarnings(state));
  showEnd(state.ended);
  showActions(state);
}

function showBadge(state) {
  const badge = $("#run-state");
  badge.className = `badge badge-${state.state}`;
  write(badge, state.state);
}

function showPhase(state) {
  const { title, why } = phaseText(state);
  write("#run-phase", title);
  write("#run-why", why);
  Object.assign($("#run-now").dataset, { phase: state.phase.name, state: state.state });
  showRequest(state);
}

/** Requested (by this page), acknowledged (by the engine's event), and then over: the three are told apart. */
function showRequest({ request, ended, state, version }) {
  const box = $("#run-request");
  const { asked } = box.dataset;
  if (ended || request?.kind === "stop" || (asked === "pause" && (request || state === "paused"))) delete box.dataset.asked;
  box.hidden = !request && !box.dataset.asked;
  if (box.dataset.asked) write("#run-request-text", `${asked === "pause" ? "Pause" : "Stop"} requested. The engine has not acknowledged it yet.`);
  else if (request) write("#run-request-text", `${requestText(request.kind)} Acknowledged ${clock(request.at)}, at step ${count(version)}.`);
}

const requestText = (kind) => (kind === "pause" ? "Pause requested. The running step commits first, then the job holds." : "Stop requested. Generation is aborted; a training step that has started still commits.");

function showFigures(state, facts) {
  write("#run-step", count(state.version));
  write("#run-step-note", facts.idleSteps ? `${count(facts.idleSteps)} without an update: the model did not change` : "");
  const bar = $("#run-progress");
  bar.value = state.version;
  bar.classList.toggle("progress-good", state.state === "succeeded");
  write("#run-reward", number(facts.rewardNow, 2));
  const gain = facts.rewardNow === null || state.version < 4 ? null : facts.rewardNow - facts.rewardFirst;
  write("#run-gain", gain === null ? "mean of the last 3 steps" : `${signed(gain)} since the first 3 steps`);
  const better = facts.evalLast === null ? null : facts.evalLast - facts.evalFirst;
  write("#run-eval", number(facts.evalLast ?? facts.evalFirst, 2));
  write("#run-eval-gain", better === null ? "measured before step 1" : `${signed(better)} since version 0`);
  write("#run-eta", state.ended ? duration(state.ended.completion_seconds) : duration(facts.etaSeconds));
  write("#run-eta-label", state.ended ? "Took" : "Time left");
  write("#run-tpts", facts.tptsSeconds === null ? "no pace to tell it from yet" : `${duration(facts.tptsSeconds)} a step`);
  write("#run-ttfs", duration(facts.ttfsSeconds));
  write("#run-tokens", count(facts.tokens.sampled));
  const evaluated = facts.tokens.evaluated ? `${count(facts.tokens.evaluated)} of them in evaluations · ` : "";
  write("#run-tokens-more", `${evaluated}${count(facts.tokens.prefill)} prefill · ${count(facts.tokens.trained)} trained`);
}

/** "64 of 64 completions sampled from version 17": what the trainer checked before it took the batch. */
function showCertificate(step) {
  const panel = $("#certificate");
  $("#certificate-none").hidden = Boolean(step?.certificate);
  $("#certificate-some").hidden = !step?.certificate;
  if (!step?.certificate) return;
  const { completions, on_policy: onPolicy, version, mismatch_kl: mismatch, max_ratio: ratio } = step.certificate;
  panel.dataset.holds = String(onPolicy === completions);
  write("#certificate-text", `${onPolicy} of ${completions} completions sampled from version ${version}`);
  write("#certificate-step", `Step ${step.step}${step.skipped ? `, committed without an update (${step.skipped.replace("_", " ")})` : ""}`);
  write("#certificate-mismatch", tiny(mismatch ?? step.mismatch_kl));
  write("#certificate-ratio", number(ratio, 3));
  write("#certificate-attempt", String(step.attempt));
  write("#certificate-clip", percent(step.clip_share));
}

function showWarnings(warnings) {
  const box = $("#run-warnings");
  const key = warnings.map(({ code, at }) => `${code}@${at}`).join(" ");
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  box.replaceChildren(...latestWarnings(warnings).slice(-3).map(notice));
}

function notice(warning) {
  const who = warning.attribution ? ` (${warning.attribution})` : "";
  const often = warning.times > 1 && !warning.counts ? ` · ${warning.times} times so far` : "";
  const advice = warning.advice ? el("p", { class: "small soft" }, warning.advice) : null;
  return el("div", { class: "notice notice-warn" }, icon("alert"), el("div", {}, el("p", {}, `${warning.message ?? warning.code}${who}${often}`), advice));
}

function showEnd(ended) {
  const box = $("#run-ended");
  const time = box.querySelector("time");
  if (!ended?.at || !box.hidden || !time) return;
  time.dateTime = new Date(ended.at).toISOString();
  box.hidden = false;
  localise(box);
}

/** Buttons follow the state that the events tell, never the click. */
function showActions(state) {
  const open = OPEN.includes(state.state);
  const stopping = state.request?.kind === "stop" || $("#run-request").dataset.asked === "cancel";
  const show = { cancel: open, pause: !stopping && (state.state === "running" || state.state === "queued"), resume: !stopping && state.state === "paused" };
  for (const [action, visible] of Object.entries(show)) {
    const form = $(`form[data-action="${action}"]`);
    if (!form) continue;
    form.hidden = !visible;
    form.querySelector("button").disabled = stopping || (action === "pause" && state.request?.kind === "pause");
  }
  const download = $("#run-download");
  download.hidden = state.version === 0;
  $("#tab-playground").hidden = state.version === 0;
  write("#run-download-label", `Adapter v${state.version}`);
}
