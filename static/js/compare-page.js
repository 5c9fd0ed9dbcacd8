// Curves of several runs over each other. Each run keeps its colour in every comparison; where two meet, the dash tells them apart.
import { View } from "./chart-view.js";
import { Chart } from "./chart.js";
import { $, write } from "./dom.js";
import { compact, count, duration, length, number, shortDuration, tiny } from "./format.js";

const DASHES = [undefined, [7, 4], [2, 3], [10, 4, 2, 4]];
const AXES = {
  step: { label: "policy version", tick: (x) => String(x), text: (x) => `step ${x}` },
  seconds: { label: "since submission", tick: shortDuration, text: duration },
  tokens: { label: "tokens", tick: (x) => (x >= 1e6 ? `${compact(x / 1e6)} M` : count(x)), text: (x) => `${count(x)} tokens` },
  money: { label: "cost", tick: compact, text: (x) => number(x, 4) },
};
const WORDS = { length, mismatch_kl: tiny, base_kl: tiny, tokens_per_second: length };

/** Points on one axis from runs that each have their own: at every x of any run, what each run had come to. */
export function together(curves, metric, axis) {
  const columns = curves.map((curve) => pairs(curve, metric, axis));
  const xs = [...new Set(columns.flatMap((column) => column.map(([x]) => x)))].sort((a, b) => a - b);
  const at = columns.map((column) => new Map(column));
  const last = columns.map(() => null);
  return xs.map((x) => {
    const y = at.map((known) => known.get(x) ?? null);
    y.forEach((value, i) => value !== null && (last[i] = value));
    return { x, first: x, y, shown: [...last] };
  });
}

function pairs(curve, metric, axis) {
  const xs = curve.x[axis];
  if (metric !== "held_out") return xs.map((x, i) => [x, curve.y[metric][i]]).filter(([, y]) => y !== null);
  const place = (version) => (axis === "step" ? version : version === 0 ? 0 : (xs[curve.x.step.findIndex((step) => step >= version)] ?? null));
  return curve.evals.map(([version, reward]) => [place(version), reward]).filter(([x]) => x !== null);
}

function makeChart(figure, curves, axis, view) {
  const metric = figure.dataset.chart;
  const told = WORDS[metric] ?? ((x) => number(x));
  const x = AXES[axis];
  const kind = metric === "held_out" ? "dots" : "line";
  const spec = {
    name: metric,
    height: 220,
    axisSize: 54,
    log: true,
    xLabel: x.label,
    xTick: axis === "step" ? undefined : x.tick,
    series: curves.map((curve) => ({ label: curve.name, token: `--series-${curve.colour}`, dash: DASHES[curve.dash % DASHES.length], kind })),
    tick: compact,
    columns: [{ label: "", text: (point) => x.text(point.x) }, ...curves.map((curve, i) => ({ label: short(curve.name), quiet: curves.length > 3, text: (point) => told(point.shown[i]) }))],
  };
  new Chart(figure, spec, view).update(together(curves, metric, axis));
}

const short = (name) => (name.length > 18 ? `${name.slice(0, 17)}…` : name);

const data = $("#curves-data");
if (data) {
  const curves = JSON.parse(data.textContent);
  const axis = $("#c-x").value;
  const view = new View();
  for (const figure of document.querySelectorAll("figure[data-chart]")) makeChart(figure, curves, axis, view);
  view.onChange(({ range }) => {
    if (range === undefined) return;
    $("#zoom-live").hidden = range === null;
    write("#zoom-words", range ? `${AXES[axis].text(range[0] < 0 ? 0 : Math.round(range[0] * 100) / 100)} to ${AXES[axis].text(Math.round(range[1] * 100) / 100)}` : "All of it");
  });
  $("#zoom-live").addEventListener("click", () => view.live());
  $("#log-scale").addEventListener("change", (event) => view.set({ log: event.target.checked }));
  $("#smoothing").addEventListener("input", (event) => {
    view.set({ smoothing: Number(event.target.value) });
    write("#smoothing-words", view.smoothing ? view.smoothing.toFixed(2) : "raw");
  });
  $("#c-x").addEventListener("change", (event) => event.target.form.requestSubmit());
}
