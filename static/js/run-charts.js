// Which charts a run has and what each draws. Points come from the reducer's steps and evals; nothing is computed twice.
import { Chart } from "./chart.js";
import { el } from "./dom.js";
import { PART } from "./figures.js";
import { compact, duration, length, number, percent, shortDuration, tiny } from "./format.js";

const LARGE_AXIS = 54;
const VERSION = "policy version";
const STEP = { label: "step", text: (point) => (point.first < point.x ? `${point.first}–${point.x}` : String(point.x)) };

/** Chronological order inside a step; the stack is drawn in this order from the ground up. */
export const PHASES = [
  ["wait_rollout", "waiting for others", "--phase-wait-rollout"],
  ["rollout", "rollout", "--phase-rollout"],
  ["env", "environment", "--phase-env"],
  ["reward", "reward", "--phase-reward"],
  ["wait_train", "waiting for the trainer", "--phase-wait-train"],
  ["train", "training", "--phase-train"],
  ["commit", "commit", "--phase-commit"],
];
/** Told apart by dash as well as by colour. */
export const COMPONENT_LINES = [["--phase-rollout"], ["--chart-eval", [6, 3]], ["--phase-env", [2, 3]], ["--phase-commit", [8, 3, 2, 3]], ["--phase-reward", [1, 3]], ["--phase-train", [10, 4]]];

export function makeCharts(root, view) {
  const figures = new Map([...root.querySelectorAll("figure[data-chart]")].map((figure) => [figure.dataset.chart, figure]));
  const charts = [rewardChart(figures.get("reward"), view), latencyChart(figures.get("latency"), view)];
  for (const small of SMALL) charts.push(smallChart(figures.get(small.name), small, view));
  return Object.assign(charts, { addComponents: (parts) => charts.push(componentChart(figures.get("components"), parts, view)) });
}

/** `steps`: the state's, perhaps with exact ones in the place of buckets where somebody looks closer. */
export function drawCharts(charts, state, steps = state.steps) {
  const room = state.stepsPlanned <= 120 ? state.stepsPlanned : Math.min(state.stepsPlanned, Math.max(30, Math.ceil(state.version * 1.2)));
  const parts = Object.keys(steps.at(-1)?.f ?? {}).filter((name) => name.startsWith(PART));
  // A reward of several parts tells their names with the first step only: a Python grader may return any.
  if (parts.length > 1 && charts.addComponents) {
    charts.addComponents(parts.map((name) => name.slice(PART.length)));
    charts.addComponents = null;
  }
  for (const { chart, points } of charts) chart.update(points({ ...state, steps }), room);
}

const at = (step) => ({ x: step.version, first: step.first ?? step.version, broken: step.broken });

function rewardChart(figure, view) {
  const chart = new Chart(figure, {
    height: 280,
    axisSize: LARGE_AXIS,
    xLabel: VERSION,
    series: [
      { label: "reward + std", kind: "edge" },
      { label: "reward − std", kind: "edge" },
      { label: "reward", token: "--chart-line", width: 2.25 },
      { label: "held-out", token: "--chart-eval", kind: "dots" },
    ],
    bands: [[1, 2]],
    range: rewardRange,
    tick: (tick) => number(tick, 2),
    columns: [
      STEP,
      { label: "mean", key: "mean", text: (point) => number(point.y[2]) },
      { label: "standard deviation", key: "std", text: (point) => number(point.std) },
      { label: "held-out", key: "eval", text: (point) => number(point.y[3]) },
    ],
  }, view);
  return { chart, points: rewardPoints };
}

/** Steps and evaluations on one axis of versions; version 0 has an evaluation but no step. Rewards outside 0–1 widen the axis. */
export function rewardPoints(state) {
  const byVersion = new Map();
  for (const step of state.steps) {
    const { reward: mean, reward_std: std } = step.f;
    const range = step.low ? { low: [null, null, step.low.reward, null], high: [null, null, step.high.reward, null] } : {};
    byVersion.set(step.version, { ...at(step), std, y: [...(step.low ? [null, null] : band(step.f)), mean, null], ...range });
  }
  for (const evaluation of state.evals) {
    const point = byVersion.get(evaluation.version) ?? { x: evaluation.version, first: evaluation.version, std: null, y: [null, null, null, null] };
    byVersion.set(evaluation.version, { ...point, y: [...point.y.slice(0, 3), evaluation.reward_mean] });
  }
  return [...byVersion.values()].sort((a, b) => a.x - b.x);
}

/** Mean ± std, within what was really given out; nothing when no completion of the step could be graded. */
function band({ reward: mean, reward_std: std, reward_min: min, reward_max: max }) {
  if (!Number.isFinite(mean) || !Number.isFinite(std)) return [null, null];
  return [Math.min(mean + std, max ?? Infinity), Math.max(mean - std, min ?? -Infinity)];
}

export function rewardRange(min, max) {
  if (min === null) return [0, 1];
  if (min >= 0 && max <= 1) return [0, 1];
  const room = (max - min || 1) * 0.08;
  return [min - room, max + room];
}

function latencyChart(figure, view) {
  const layers = [...PHASES].reverse();
  const chart = new Chart(figure, {
    height: 240,
    axisSize: LARGE_AXIS,
    xLabel: VERSION,
    series: layers.map(([, label, token]) => ({ label, token, kind: "bars" })),
    range: (_, max) => [0, (max || 1) * 1.08],
    tick: shortDuration,
    columns: [
      STEP,
      { label: "total", text: (point) => duration(point.total) },
      ...PHASES.map(([key, label]) => ({ label, key, text: (point) => duration(point.seconds[key]) })),
    ],
  }, view);
  return { chart, points: latencyPoints };
}

/** Bars overpaint each other, tallest first: layer k holds the sum of phase k and of all phases below it. */
export function latencyPoints(state) {
  return state.steps.map((step) => {
    const seconds = Object.fromEntries(PHASES.map(([key]) => [key, step.f[`seconds_${key}`]]));
    const sums = [];
    let total = 0;
    for (const [key] of PHASES) sums.unshift((total += seconds[key] ?? 0));
    return { ...at(step), y: sums, total, seconds };
  });
}

/** `lines`: [name in the legend (none for a single line), colour, figure, dash]. */
const SMALL = [
  { name: "length", text: length, log: true, lines: [["mean", "--chart-line", "length"], ["longest", "--chart-axis", "length_max", [4, 3]]] },
  { name: "truncated", text: percent, share: true, lines: [["", "--chart-line", "truncated"]] },
  { name: "signal", text: percent, share: true, lines: [["right", "--phase-env", "right"], ["wrong", "--chart-bad", "wrong", [4, 3]]] },
  { name: "entropy", text: (x) => number(x), log: true, lines: [["", "--chart-line", "entropy"]] },
  { name: "mismatch", text: tiny, log: true, lines: [["", "--chart-line", "mismatch_kl"]] },
  { name: "clip", text: percent, share: true, lines: [["below", "--chart-eval", "clip_low_share", [4, 3]], ["above", "--chart-line", "clip_high_share"], ["both", "--chart-axis", "clip_share", [1, 3]]] },
  { name: "kl", text: tiny, log: true, lines: [["", "--chart-line", "base_kl"]] },
  { name: "gradient", text: (x) => number(x), log: true, lines: [["", "--chart-line", "grad_norm"]] },
  { name: "rate", text: tiny, log: true, lines: [["", "--chart-line", "learning_rate"]] },
  { name: "throughput", text: length, log: true, lines: [["", "--chart-line", "tokens_per_second"]] },
];

function smallChart(figure, { name, text, lines, share, log }, view) {
  const chart = new Chart(figure, {
    name,
    height: 118,
    axisSize: 46,
    log,
    series: lines.map(([label, token, , dash]) => ({ label, token, dash, width: 1.75 })),
    range: share ? (_, max) => [0, Math.min(1, Math.max(0.1, (max ?? 0) * 1.15))] : undefined,
    tick: share ? (tick) => `${compact(100 * tick)} %` : compact,
    columns: [{ ...STEP, quiet: true }, ...lines.map(([label], i) => ({ label, key: label, text: (point) => text(point.y[i]) }))],
  }, view);
  return { chart, points: pointsOf(lines.map(([, , figure]) => figure)) };
}

/** The mean of each component of the reward; a finding of the doctor's about components stands beside it. */
function componentChart(figure, parts, view) {
  figure.classList.remove("chart-hidden");
  const lines = parts.map((name, i) => ({ label: name, token: COMPONENT_LINES[i % COMPONENT_LINES.length][0], dash: COMPONENT_LINES[i % COMPONENT_LINES.length][1], width: 1.75 }));
  const keys = figure.querySelector(".chart-keys");
  keys?.replaceChildren(...lines.map((line, i) => el("span", { class: `key key-part-${i % COMPONENT_LINES.length}` }, `${line.label} `, el("output", { class: "key-value", "data-key": `part-${i}`, "aria-hidden": "true" }))));
  const chart = new Chart(figure, {
    name: "components",
    height: 180,
    axisSize: LARGE_AXIS,
    series: lines,
    range: rewardRange,
    tick: (tick) => number(tick, 2),
    columns: [STEP, ...lines.map(({ label }, i) => ({ label, key: `part-${i}`, text: (point) => number(point.y[i]) }))],
  }, view);
  return { chart, points: pointsOf(parts.map((name) => `${PART}${name}`)) };
}

function pointsOf(names) {
  const values = (f) => names.map((name) => f[name] ?? null);
  return ({ steps }) => steps.map((step) => ({ ...at(step), y: values(step.f), ...(step.low ? { low: values(step.low), high: values(step.high) } : {}) }));
}
