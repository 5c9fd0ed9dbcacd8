// The console's pictures in plain SVG: the timeline over three lanes, the KV cache, and two histograms. Attributes only, no styles.
import { $, write } from "./dom.js";
import { bytes, count, duration, shortDuration } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const LANES = [["rollout", "Rollout"], ["env", "Environment and reward"], ["train", "Training"]];
const ROW = 11;
const HEAD = 20;
const FOOT = 18;
const LEFT = 8;
export const HUES = 6;

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const titled = (element, text) => {
  element.append(svg("title", {}));
  element.lastChild.textContent = text;
  return element;
};

/** A colour for each organisation, the same as long as the page is open. */
const hues = new Map();
export function hue(tenant) {
  if (!hues.has(tenant)) hues.set(tenant, hues.size % HUES);
  return hues.get(tenant);
}

/** One band per lane, one line per job in it; training has one line, since it is one at a time. */
export function drawGantt(target, seen) {
  const width = Math.max(540, target.parentElement.clientWidth);
  const across = (width - LEFT) / seen.zoom;
  const jobs = Object.keys(seen.gantt).sort((a, b) => first(seen.gantt[a]) - first(seen.gantt[b]));
  const parts = [];
  let top = 0;
  for (const [lane, label] of LANES) {
    const rows = jobs.filter((job) => seen.gantt[job][lane]);
    parts.push(text(LEFT, top + 14, label, "gantt-lane"));
    top += HEAD;
    rows.forEach((job, row) => {
      const line = lane === "train" && seen.engine.training.slots === 1 ? 0 : row;
      for (const [start, end] of seen.gantt[job][lane]) {
        const bar = svg("rect", { x: round(LEFT + start * across), y: top + line * ROW, width: round(Math.max(1, (end - start) * across)), height: ROW - 2, rx: 1.5, class: `lane-${lane}` });
        parts.push(titled(bar, `${name(seen, job)}: ${label.toLowerCase()}, ${duration(end - start)}`));
      }
    });
    top += Math.max(1, lane === "train" && seen.engine.training.slots === 1 ? 1 : rows.length) * ROW + 6;
  }
  const ticks = [0, 0.25, 0.5, 0.75].map((share) => grid(LEFT + share * seen.zoom * across, top, `−${shortDuration(seen.zoom * (1 - share))}`));
  target.setAttribute("viewBox", `0 0 ${width} ${top + FOOT}`);
  target.setAttribute("aria-label", jobs.length ? `${jobs.length} jobs over three lanes in the last ${shortDuration(seen.zoom)}; rollout, environment and training` : "No job has worked in this time");
  target.replaceChildren(...ticks.flat(), ...parts);
}

const first = (lanes) => Math.min(...Object.values(lanes).map((bars) => bars[0][0]));
const round = (x) => Number(x.toFixed(1));
const name = (seen, job) => `${seen.jobs[job] ?? job} (${seen.tenants[seen.owners[job]] ?? "?"})`;

function text(x, y, words, kind = "") {
  const element = svg("text", { x: round(x), y, class: kind });
  element.textContent = words;
  return element;
}

const grid = (x, height, words) => [svg("line", { x1: round(x), x2: round(x), y1: 0, y2: height }), text(x + 2, height + 13, words)];

/** Above: what is reserved, by organisation; below, on the same scale: what each really holds. */
export function drawKv({ kv, tenants }) {
  const sum = Object.values(kv.reserved).reduce((total, size) => total + size, 0);
  const scale = 1000 / (Math.max(kv.budget ?? 0, sum, kv.used ?? 0) || 1);
  const called = (tenant) => (tenant ? (tenants[tenant] ?? tenant) : "The base model");
  const holders = [...new Set([...Object.keys(kv.reserved), ...Object.keys(kv.used_by)])];
  const bar = (sizes, y, height) => {
    let left = 0;
    return holders.filter((tenant) => sizes[tenant]).map((tenant) => {
      const size = sizes[tenant];
      const part = svg("rect", { x: left, y, width: size * scale, height, class: `hue-${hue(tenant)}` });
      left += size * scale;
      return titled(part, `${called(tenant)}: ${bytes(size)}`);
    });
  };
  $("#kv").replaceChildren(...bar(kv.reserved, 0, 14), ...bar(kv.used_by, 16, 8));
  if (kv.used && !Object.keys(kv.used_by).length) $("#kv").append(svg("rect", { x: 0, y: 16, width: kv.used * scale, height: 8, class: "used" }));
  const words = `${bytes(sum)} reserved of ${bytes(kv.budget)}, ${bytes(kv.used)} really used`;
  $("#kv").setAttribute("aria-label", words);
  write("#kv-sum", words);
  $("#kv-list").replaceChildren(...holders.map((tenant) => keyed(tenant, `${called(tenant)}: ${bytes(kv.reserved[tenant] ?? 0)} reserved, ${bytes(kv.used_by[tenant] ?? 0)} used`)));
}

export function keyed(tenant, words) {
  const item = document.createElement("li");
  item.className = "usage-key";
  const mark = document.createElement("i");
  mark.className = `lane hue-${hue(tenant)}`;
  mark.setAttribute("aria-hidden", "true");
  item.append(mark, words);
  return item;
}

/** Heights are counts; the axis below tells the times at both ends and in the middle, where bins of equal ratio make it logarithmic. */
export function drawHistogram(id, found, what) {
  const target = document.getElementById(id);
  const tallest = Math.max(1, ...found.bins.map((bin) => bin.rows));
  const across = 480 / Math.max(1, found.bins.length);
  const bars = found.bins.map((bin, n) => {
    const height = (bin.rows / tallest) * 96;
    const bar = svg("rect", { x: round(n * across), y: round(96 - height), width: round(Math.max(1, across - 2)), height: round(height) });
    return titled(bar, `${duration(bin.from)} to ${duration(bin.to)}: ${count(bin.rows)}`);
  });
  target.replaceChildren(...bars);
  showAxis(id, found.bins, tallest, what);
  const words = found.count ? `${count(found.count)}: half under ${duration(found.p50)}, 90 % under ${duration(found.p90)}` : "none in 15 minutes";
  target.setAttribute("aria-label", words);
  write(`#${id}-sum`, words);
}

function showAxis(id, bins, tallest, what) {
  const ends = bins.length ? [bins[0].from, Math.sqrt(bins[0].from * bins.at(-1).to), bins.at(-1).to] : [];
  const ticks = ends.map((seconds) => {
    const tick = document.createElement("span");
    tick.textContent = duration(seconds);
    return tick;
  });
  $(`#${id}-axis`).replaceChildren(...ticks);
  write(`#${id}-most`, bins.length ? `${what}; the highest bar: ${count(tallest)}` : "");
}
