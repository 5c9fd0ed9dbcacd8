// Which charts a run has and what each draws. Points come from the reducer's steps and evals; nothing is computed twice.
import { Chart } from "./chart.js";
import { compact, duration, length, number, percent, shortDuration, tiny } from "./format.js";

const LARGE_AXIS = 54;
const STEP = { label: "step", text: (point) => String(point.x) };

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

export function makeCharts(root) {
  const figures = new Map([...root.querySelectorAll("figure[data-chart]")].map((figure) => [figure.dataset.chart, figure]));
  const charts = [rewardChart(figures.get("reward")), latencyChart(figures.get("latency"))];
  for (const small of SMALL) charts.push(smallChart(figures.get(small.name), small));
  return charts;
}

export function drawCharts(charts, state) {
  const room = state.stepsPlanned <= 120 ? state.stepsPlanned : Math.min(state.stepsPlanned, Math.max(30, Math.ceil(state.version * 1.2)));
  for (const { chart, points } of charts) chart.update(points(state), room);
}

function rewardChart(figure) {
  const chart = new Chart(figure, {
    height: 280,
    axisSize: LARGE_AXIS,
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
  });
  return { chart, points: rewardPoints };
}

/** Steps and evaluations on one axis of versions; version 0 has an evaluation but no step. Rewards outside 0–1 widen the axis. */
export function rewardPoints(state) {
  const byVersion = new Map();
  for (const step of state.steps) {
    const { reward_mean: mean, reward_std: std } = step.rollout;
    byVersion.set(step.version, { x: step.version, std, y: [...band(step.rollout), mean, null] });
  }
  for (const evaluation of state.evals) {
    const point = byVersion.get(evaluation.version) ?? { x: evaluation.version, std: null, y: [null, null, null, null] };
    byVersion.set(evaluation.version, { ...point, y: [...point.y.slice(0, 3), evaluation.reward_mean] });
  }
  return [...byVersion.values()].sort((a, b) => a.x - b.x);
}

/** Mean ± std, within what was really given out; nothing when no completion of the step could be graded. */
function band({ reward_mean: mean, reward_std: std, reward_min: min, reward_max: max }) {
  if (!Number.isFinite(mean) || !Number.isFinite(std)) return [null, null];
  return [Math.min(mean + std, max ?? Infinity), Math.max(mean - std, min ?? -Infinity)];
}

function rewardRange(min, max) {
  if (min === null) return [0, 1];
  if (min >= 0 && max <= 1) return [0, 1];
  const room = (max - min || 1) * 0.08;
  return [min - room, max + room];
}

function latencyChart(figure) {
  const layers = [...PHASES].reverse();
  const chart = new Chart(figure, {
    height: 240,
    axisSize: LARGE_AXIS,
    series: layers.map(([, label, token]) => ({ label, token, kind: "bars" })),
    range: (_, max) => [0, (max || 1) * 1.08],
    tick: shortDuration,
    columns: [
      STEP,
      { label: "total", text: (point) => duration(point.total) },
      ...PHASES.map(([key, label]) => ({ label, key, text: (point) => duration(point.seconds[key]) })),
    ],
  });
  return { chart, points: latencyPoints };
}

/** Bars overpaint each other, tallest first: layer k holds the sum of phase k and of all phases below it. */
export function latencyPoints(state) {
  return state.steps.map((step) => {
    const sums = [];
    let total = 0;
    for (const [key] of PHASES) sums.unshift((total += step.seconds[key] ?? 0));
    return { x: step.version, y: sums, total, seconds: step.seconds };
  });
}

/** `lines`: [name in the legend (none for a single line), colour, value of a step]. */
const SMALL = [
  { name: "length", text: length, lines: [["mean", "--chart-line", (step) => step.rollout.length_mean], ["longest", "--chart-axis", (step) => step.rollout.length_max]] },
  { name: "truncated", text: percent, share: true, lines: [["", "--chart-line", (step) => step.rollout.truncated / step.rollout.completions]] },
  { name: "signal", text: percent, share: true, lines: [["right", "--phase-env", (step) => step.rollout.groups_all_right / step.rollout.groups], ["wrong", "--chart-bad", (step) => step.rollout.groups_all_wrong / step.rollout.groups]] },
  { name: "entropy", text: (x) => number(x), lines: [["", "--chart-line", (step) => step.entropy]] },
  { name: "mismatch", text: tiny, lines: [["", "--chart-line", (step) => step.mismatch_kl]] },
  { name: "clip", text: percent, share: true, lines: [["", "--chart-line", (step) => step.clip_share]] },
  { name: "kl", text: tiny, lines: [["", "--chart-line", (step) => step.base_kl ?? null]] },
  { name: "gradient", text: (x) => number(x), lines: [["", "--chart-line", (step) => step.grad_norm]] },
];

function smallChart(figure, { name, text, lines, share }) {
  const chart = new Chart(figure, {
    name,
    height: 118,
    axisSize: 46,
    series: lines.map(([label, token]) => ({ label, token, width: 1.75 })),
    range: share ? (_, max) => [0, Math.min(1, Math.max(0.1, (max ?? 0) * 1.15))] : undefined,
    tick: share ? (tick) => `${compact(100 * tick)} %` : compact,
    columns: [{ ...STEP, quiet: true }, ...lines.map(([label], i) => ({ label, key: label, text: (point) => text(point.y[i]) }))],
  });
  return { chart, points: (state) => state.steps.map((step) => ({ x: step.version, y: lines.map(([, , value]) => value(step)) })) };
}
