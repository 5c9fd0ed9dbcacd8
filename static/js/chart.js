// One chart: a uPlot inside <figure class="chart">, with what uPlot lacks: a name, a keyboard cursor, a live readout and a table twin.
// The plot is an ARIA slider over its points: arrow keys, Home and End move the crosshair and a screen reader hears the readout.
import uPlot from "../vendor/uplot/uPlot.esm.js";
import { el, write } from "./dom.js";
import { colour, fontFamily } from "./tokens.js";

const CROSSHAIR = uPlot.sync("run");
const TABLE_ROWS = 500;

/**
 * `series`: [{ label, token, kind: "line" | "bars" | "edge" | "dots", width, dash }] without the x series; `bands`: [[upper, lower]] (1-based);
 * `columns`: [{ label, text(point), key }] for the table and the readout; one with `key` is shown beside that key of the legend, a
 * `quiet` one only in the table and to screen readers, the others in the head. `range(min, max)` of y; `tick(y)` labels its axis; `points` are given to `update`, each with `x` and `y[]`.
 */
export class Chart {
  constructor(figure, spec) {
    this.figure = figure;
    this.spec = spec;
    this.points = [];
    this.at = null;
    this.plot = null;
    this.stage = figure.querySelector(".chart-stage");
    this.readout = figure.querySelector(".chart-readout");
    this.table = figure.querySelector(".chart-table");
    this.stage.addEventListener("keydown", (event) => this.#key(event));
    this.stage.addEventListener("blur", () => this.#point(null));
    this.table?.addEventListener("toggle", () => this.#fillTable());
    new ResizeObserver(() => this.#resize()).observe(this.stage);
    document.addEventListener("themechange", () => this.#rebuild());
  }

  /** Draws `points` (ascending x). `xMax` reserves room for points that are still to come. */
  update(points, xMax) {
    const grewBy = points.length - this.points.length;
    this.points = points;
    this.xMax = xMax;
    this.figure.dataset.points = points.length;
    this.figure.classList.toggle("chart-waiting", points.length === 0);
    if (!points.length) return;
    if (!this.plot) this.#build();
    else this.plot.setData(this.#data());
    this.#describe();
    if (grewBy) this.#fillTable();
  }

  #data() {
    const columns = [this.points.map((point) => point.x)];
    this.spec.series.forEach((_, i) => columns.push(this.points.map((point) => finite(point.y[i]))));
    return columns;
  }

  #build() {
    this.stage.querySelector(".u-wrap")?.parentElement.remove();
    this.plot = new uPlot(this.#options(), this.#data(), this.stage);
  }

  #rebuild() {
    if (!this.plot) return;
    this.plot.destroy();
    this.plot = null;
    this.#build();
  }

  #resize() {
    if (this.plot) this.plot.setSize(this.#size());
  }

  #size() {
    return { width: Math.max(200, this.stage.clientWidth), height: this.spec.height };
  }

  #options() {
    const axis = { stroke: colour("--chart-axis"), font: `11px ${fontFamily()}`, ticks: { show: false } };
    const grid = { stroke: colour("--chart-grid"), width: 1 };
    return {
      ...this.#size(),
      padding: [10, 10, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: CROSSHAIR.key, setSeries: false },
        drag: { x: false, y: false },
        points: { size: (_, i) => (this.spec.series[i - 1].kind === "bars" ? 0 : 7), width: 2, stroke: colour("--surface"), fill: (_, i) => this.#stroke(this.spec.series[i - 1]) },
        y: false,
      },
      hooks: { setCursor: [(plot) => this.#follow(plot.cursor.idx)] },
      scales: {
        x: { time: false, range: () => this.#xRange() },
        y: { range: (_, min, max) => (this.spec.range ?? padded)(min, max) },
      },
      axes: [
        { ...axis, size: 26, gap: 6, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000], space: 44 },
        { ...axis, size: this.spec.axisSize ?? 46, gap: 6, grid, space: this.spec.height < 160 ? 34 : 44, values: (_, ticks) => ticks.map((tick) => this.spec.tick(tick)) },
      ],
      series: [{}, ...this.spec.series.map((series) => this.#series(series))],
      bands: (this.spec.bands ?? []).map((pair) => ({ series: pair, fill: colour("--chart-band") })),
    };
  }

  #stroke(series) {
    return series.kind === "edge" ? "transparent" : colour(series.token);
  }

  #series(series) {
    const stroke = this.#stroke(series);
    const base = { label: series.label, stroke, width: series.width ?? 1.75, dash: series.dash, spanGaps: true };
    if (series.kind === "bars") return { ...base, width: 0, fill: stroke, paths: uPlot.paths.bars({ size: [0.72, 36, 1] }), points: { show: false } };
    if (series.kind === "edge") return { ...base, width: 0, points: { show: false } };
    if (series.kind === "dots") return { ...base, width: 1.25, points: { show: true, size: 7, width: 1.75, stroke, fill: colour("--surface") } };
    return { ...base, points: { show: (plot) => plot.data[0].length < 3, size: 5, fill: stroke } };
  }

  /** From version 0 on, with room for half a bar on both sides: charts above each other share their axis. */
  #xRange() {
    const last = this.points.at(-1).x;
    return [Math.min(this.points[0].x, 0) - 0.6, Math.max(last, this.xMax ?? last, 1) + 0.6];
  }

  #follow(index) {
    this.at = index ?? null;
    this.#describe();
  }

  /** Tells of the point under the crosshair, or of the last one. */
  #describe() {
    const point = this.points[this.at] ?? this.points.at(-1);
    const told = this.spec.columns.map((column) => ({ ...column, text: column.text(point) }));
    const line = (columns) => columns.map(({ label, text }) => `${label} ${text}`.trim()).join(" · ");
    write(this.readout, line(told.filter(({ key, quiet }) => !key && !quiet)));
    for (const { key, text } of told) if (key) write(this.figure.querySelector(`[data-key="${key}"]`), text);
    const slider = this.stage;
    slider.setAttribute("aria-valuemin", this.points[0].x);
    slider.setAttribute("aria-valuemax", this.points.at(-1).x);
    slider.setAttribute("aria-valuenow", point.x);
    slider.setAttribute("aria-valuetext", line(told));
  }

  #key(event) {
    const last = this.points.length - 1;
    const from = this.at ?? last + 1;
    const jump = Math.max(1, Math.round(last / 10));
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, PageUp: from - jump, PageDown: from + jump, Home: 0, End: last }[event.key];
    if (event.key === "Escape") return this.#point(null);
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.#point(Math.min(last, Math.max(0, to)));
  }

  #point(index) {
    if (!this.plot) return;
    if (index === null) return this.plot.setCursor({ left: -10, top: -10 });
    this.plot.setCursor({ left: this.plot.valToPos(this.points[index].x, "x"), top: 10 });
    this.#follow(index);
  }

  #fillTable() {
    if (!this.table?.open) return;
    const shown = this.points.slice(-TABLE_ROWS).reverse();
    const head = el("tr", {}, ...this.spec.columns.map((column) => el("th", { scope: "col", class: "num" }, column.label || this.spec.name)));
    const rows = shown.map((point) => el("tr", {}, ...this.spec.columns.map((column) => el("td", { class: "num" }, column.text(point)))));
    this.table.querySelector("table").replaceChildren(el("thead", {}, head), el("tbody", {}, ...rows));
  }
}

const finite = (y) => (Number.isFinite(y) ? y : null);

function padded(min, max) {
  if (min === null || max === null) return [0, 1];
  const room = (max - min || Math.abs(max) || 1) * 0.12;
  return [min >= 0 ? Math.max(0, min - room) : min - room, max + room];
}
