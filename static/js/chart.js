// One chart: a uPlot inside <figure class="chart">, with what uPlot lacks: a name, a keyboard cursor, a live readout and a table twin.
// The plot is an ARIA slider over its points: arrow keys, Home and End move the crosshair and a screen reader hears the readout.
// Plus and minus zoom around it, 0 goes back to live. A chart is drawn only while it can be seen.
import uPlot from "../vendor/uplot/uPlot.esm.js";
import { smoothed } from "./chart-view.js";
import { el, write } from "./dom.js";
import { colour, fontFamily } from "./tokens.js";

const CROSSHAIR = uPlot.sync("run");
const TABLE_ROWS = 500;
const MANY_BARS = 300;
// Beyond so many points for each pixel lines are drawn a pixel wide: wider ones take several times as long and show no more.
const DENSE = 2;
const ZOOM = { "+": 0.5, "=": 0.5, "-": 2, _: 2 };

/**
 * `series`: [{ label, token, kind: "line" | "bars" | "edge" | "dots", width, dash }] without the x series; `bands`: [[upper, lower]] (1-based);
 * `columns`: [{ label, text(point), key }] for the table and the readout; one with `key` is shown beside that key of the legend, a
 * `quiet` one only in the table and to screen readers, the others in the head. `range(min, max)` of y; `tick(y)` labels its axis; `xTick(x)` the other;
 * `log`: may be drawn on a logarithmic scale. `points` are given to `update`, each with `x` and `y[]`, `broken` where a step was no number, and with
 * `low[]` and `high[]` where it stands for several steps. `view`: a View, shared by the charts of a page.
 */
export class Chart {
  constructor(figure, spec, view) {
    this.figure = figure;
    this.spec = spec;
    this.view = view;
    this.points = [];
    this.at = null;
    this.plot = null;
    this.seen = false;
    this.stage = figure.querySelector(".chart-stage");
    this.readout = figure.querySelector(".chart-readout");
    this.table = figure.querySelector(".chart-table");
    this.stage.addEventListener("keydown", (event) => this.#key(event));
    this.stage.addEventListener("blur", () => this.#point(null));
    this.table?.addEventListener("toggle", () => this.#fillTable());
    figure.querySelector(".chart-png")?.addEventListener("click", () => this.#save());
    new ResizeObserver(() => this.#resize()).observe(this.stage);
    new IntersectionObserver((entries) => this.#see(entries.at(-1).isIntersecting), { rootMargin: "300px" }).observe(this.stage);
    document.addEventListener("themechange", () => this.#rebuild());
    view.onChange((changes) => ("range" in changes && Object.keys(changes).length === 1 ? this.#draw() : this.#rebuild()));
  }

  /** Draws `points` (ascending x). `xMax` reserves room for points that are still to come. */
  update(points, xMax) {
    const grewBy = points.length - this.points.length;
    this.points = points;
    this.xMax = xMax;
    this.figure.dataset.points = points.length;
    this.figure.classList.toggle("chart-waiting", points.length === 0);
    if (!points.length) return;
    this.#draw();
    this.#describe();
    if (grewBy) this.#fillTable();
  }

  /** The plot as it stands, as a file. */
  #save() {
    this.plot?.ctx.canvas.toBlob((blob) => {
      const link = el("a", { href: URL.createObjectURL(blob), download: `${this.figure.dataset.chart}.png` });
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }

  #see(seen) {
    this.seen = seen;
    if (seen) this.#draw();
  }

  #draw() {
    if (!this.seen || !this.points.length) return;
    if (!this.plot || this.shape !== this.#shape()) return this.#rebuild();
    this.plot.setData(this.#data());
    this.figure.dataset.drawn = this.points.length;
  }

  #rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.seen || !this.points.length) return;
    this.shape = this.#shape();
    this.plot = new uPlot(this.#options(), this.#data(), this.stage);
    this.figure.dataset.drawn = this.points.length;
  }

  /** What the plot's series hang on: when it changes, the plot is made anew. */
  #shape() {
    return [this.#ranged().length, this.points.length > MANY_BARS, this.#isDense(), this.view.smoothing, this.#isLog()].join();
  }

  #isDense() {
    return this.points.length > DENSE * this.#size().width;
  }

  #isLog() {
    return Boolean(this.view.log && this.spec.log && this.points.some(({ y }) => y.some((value) => value > 0)));
  }

  /** Places of the series that are smoothed, and of those that have a least and a greatest. */
  #smooth() {
    return this.view.smoothing ? this.#lines() : [];
  }

  #ranged() {
    return this.points.some((point) => point.low) ? this.#lines() : [];
  }

  #lines() {
    return this.spec.series.map((series, i) => [series, i]).filter(([{ kind }]) => !kind || kind === "line").map(([, i]) => i);
  }

  #data() {
    const xs = this.points.map((point) => point.x);
    const least = this.#isLog() ? 0 : -Infinity;
    const column = (of) =>
      this.points.map((point) => {
        const y = of(point);
        return Number.isFinite(y) && y > least ? y : null;
      });
    const columns = this.spec.series.map((_, i) => column((point) => point.y[i]));
    const means = this.#smooth().map((i) => smoothed(xs, columns[i], this.view.smoothing));
    const ranges = this.#ranged().flatMap((i) => [column((point) => point.high?.[i]), column((point) => point.low?.[i])]);
    return [xs, ...columns, ...means, ...ranges];
  }

  /** Also called once when it begins to be watched, when nothing has changed: a plot that is set to its own size is drawn again. */
  #resize() {
    if (!this.plot) return;
    const { width, height } = this.#size();
    if (this.plot.width !== width || this.plot.height !== height) this.plot.setSize({ width, height });
  }

  #size() {
    return { width: Math.max(200, this.stage.clientWidth), height: this.spec.height };
  }

  #options() {
    const axis = { stroke: colour("--chart-axis"), font: `11px ${fontFamily()}`, ticks: { show: false } };
    const grid = { stroke: colour("--chart-grid"), width: 1 };
    const steps = { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000] };
    const xAxis = this.spec.xTick ? { values: (_, ticks) => ticks.map((tick) => this.spec.xTick(tick)) } : steps;
    return {
      ...this.#size(),
      padding: [10, 10, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: CROSSHAIR.key, setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => this.view.live() },
        points: { size: (_, i) => (this.#isMarked(i) ? 7 : 0), width: 2, stroke: colour("--surface"), fill: (_, i) => this.#stroke(this.spec.series[i - 1]) },
        y: false,
      },
      hooks: {
        setCursor: [(plot) => this.#follow(plot.cursor.idx)],
        setSelect: [(plot) => this.#selected(plot)],
        draw: [(plot) => this.#markBroken(plot)],
      },
      scales: {
        x: { time: false, range: () => this.#xRange() },
        y: this.#isLog() ? { distr: 3 } : { range: (_, min, max) => (this.spec.range ?? padded)(min, max) },
      },
      axes: [
        { ...axis, size: this.spec.xLabel ? 38 : 26, gap: 6, grid: { show: false }, space: 44, label: this.spec.xLabel, labelSize: 14, labelFont: axis.font, ...xAxis },
        { ...axis, size: this.spec.axisSize ?? 46, gap: 6, grid, space: this.spec.height < 160 ? 34 : 44, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : this.spec.tick(tick))) },
      ],
      series: [{}, ...this.#series()],
      bands: this.#bands(),
    };
  }

  #isMarked(i) {
    const series = this.spec.series[i - 1];
    return series && series.kind !== "bars" && series.kind !== "edge";
  }

  #stroke(series) {
    return !series || series.kind === "edge" ? "transparent" : colour(series.token);
  }

  #series() {
    const drawn = this.spec.series.map((series) => this.#one(series));
    const means = this.#smooth().map((i) => ({ ...this.#one(this.spec.series[i]), width: (this.spec.series[i].width ?? 1.75) + 0.5, points: { show: false } }));
    if (means.length) for (const i of this.#lines()) drawn[i].alpha = 0.3;
    const edges = this.#ranged().flatMap(() => [1, 2].map(() => ({ stroke: "transparent", width: 0, points: { show: false } })));
    return [...drawn, ...means, ...edges];
  }

  #bands() {
    const from = 1 + this.spec.series.length + this.#smooth().length;
    const own = (this.spec.bands ?? []).map((pair) => ({ series: pair, fill: colour("--chart-band") }));
    return [...own, ...this.#ranged().map((_, k) => ({ series: [from + 2 * k, from + 2 * k + 1], fill: colour("--chart-band") }))];
  }

  #one(series) {
    const stroke = this.#stroke(series);
    const width = this.#isDense() ? 1 : (series.width ?? 1.75);
    const base = { label: series.label, stroke, width, dash: series.dash, spanGaps: true };
    if (series.kind === "bars") return { ...base, width: 0, fill: stroke, paths: this.points.length > MANY_BARS ? uPlot.paths.stepped({ align: -1 }) : uPlot.paths.bars({ size: [0.72, 36, 1] }), points: { show: false } };
    if (series.kind === "edge") return { ...base, width: 0, points: { show: false } };
    if (series.kind === "dots") return { ...base, width: 1.25, points: { show: true, size: 7, width: 1.75, stroke, fill: colour("--surface") } };
    return { ...base, points: { show: (plot) => plot.data[0].length < 3, size: 5, fill: stroke } };
  }

  /** What is zoomed to; else from version 0 on, with room for half a bar on both sides: charts above each other share their axis. */
  #xRange() {
    if (this.view.range) return this.view.range;
    const last = this.points.at(-1).x;
    if (this.spec.xTick) return [Math.min(this.points[0].x, 0), this.xMax ?? last];
    return [Math.min(this.points[0].x, 0) - 0.6, Math.max(last, this.xMax ?? last, 1) + 0.6];
  }

  #selected(plot) {
    const { left, width } = plot.select;
    if (width === 0) return;
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (width > 6) this.#zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  #zoom(from, to) {
    const least = this.spec.xTick ? 0 : 1;
    const middle = (from + to) / 2;
    const half = Math.max(least, (to - from) / 2);
    const [first, last] = [this.points[0].x - 1, Math.max(this.points.at(-1).x, this.xMax ?? 0) + 1];
    if (!this.spec.xTick && middle - half <= first && middle + half >= last) return this.view.live();
    this.view.zoom([middle - half, middle + half]);
  }

  /** A step whose numbers were not finite is a red line with a cross, never a gap that nobody sees. */
  #markBroken(plot) {
    const { ctx, bbox } = plot;
    const [from, to] = this.#xRange();
    const broken = this.points.filter((point) => point.broken && point.x >= from && point.x <= to);
    if (!broken.length) return;
    ctx.save();
    ctx.strokeStyle = colour("--chart-bad");
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.beginPath();
    for (const { x } of broken) cross(ctx, plot.valToPos(x, "x", true), bbox.top, bbox.height);
    ctx.stroke();
    ctx.restore();
  }

  #follow(index) {
    this.at = index ?? null;
    this.#describe();
  }

  /** Tells of the point under the crosshair, or of the last one. */
  #describe() {
    const point = this.points[this.at] ?? this.points.at(-1);
    if (!point) return;
    const told = this.spec.columns.map((column) => ({ ...column, text: column.text(point) }));
    const line = (columns) => columns.map(({ label, text }) => `${label} ${text}`.trim()).join(" · ");
    const not = point.broken ? "not finite · " : "";
    write(this.readout, not + line(told.filter(({ key, quiet }) => !key && !quiet)));
    for (const { key, text } of told) if (key) write(this.figure.querySelector(`[data-key="${CSS.escape(key)}"]`), text);
    const slider = this.stage;
    slider.setAttribute("aria-valuemin", this.points[0].x);
    slider.setAttribute("aria-valuemax", this.points.at(-1).x);
    slider.setAttribute("aria-valuenow", point.x);
    slider.setAttribute("aria-valuetext", not + line(told));
  }

  #key(event) {
    const last = this.points.length - 1;
    const from = this.at ?? last + 1;
    const jump = Math.max(1, Math.round(last / 10));
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, PageUp: from - jump, PageDown: from + jump, Home: 0, End: last }[event.key];
    if (event.key === "Escape" && this.at === null && this.view.range) return this.view.live();
    if (event.key === "Escape") return this.#point(null);
    if (event.key === "0") return this.view.live();
    if (last >= 0 && ZOOM[event.key]) return this.#zoomBy(ZOOM[event.key], event);
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.#point(Math.min(last, Math.max(0, to)));
  }

  #zoomBy(factor, event) {
    event.preventDefault();
    const [from, to] = this.#xRange();
    const middle = this.at === null ? (from + to) / 2 : this.points[this.at].x;
    const half = ((to - from) / 2) * factor;
    this.#zoom(middle - half, middle + half);
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
    const rows = shown.map((point) => el("tr", { class: point.broken ? "broken" : null }, ...this.spec.columns.map((column) => el("td", { class: "num" }, column.text(point)))));
    this.table.querySelector("table").replaceChildren(el("thead", {}, head), el("tbody", {}, ...rows));
  }
}

function cross(ctx, x, top, height) {
  const size = 4 * devicePixelRatio;
  ctx.moveTo(x, top + 2 * size);
  ctx.lineTo(x, top + height);
  ctx.moveTo(x - size, top);
  ctx.lineTo(x + size, top + 2 * size);
  ctx.moveTo(x + size, top);
  ctx.lineTo(x - size, top + 2 * size);
}

function padded(min, max) {
  if (min === null || max === null) return [0, 1];
  const room = (max - min || Math.abs(max) || 1) * 0.12;
  return [min >= 0 ? Math.max(0, min - room) : min - room, max + room];
}
