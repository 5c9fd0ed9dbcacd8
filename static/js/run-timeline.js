// The phases of the last steps on a clock: own work in colour, waiting behind others hatched. Plain SVG, drawn from the spans of the step events.
import { $, el, write } from "./dom.js";
import { clock, duration } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const SHOWN = 24;
const ROW = 16;
const WORDS = {
  wait_rollout: "waiting for others",
  rollout: "rollout, environment and reward",
  wait_train: "waiting for the trainer",
  train: "training",
  commit: "commit",
};
const LIVE = { rollout: "rollout", ready: "wait_train", training: "train", waiting: "wait_rollout", accepted: "wait_rollout", admitted: "wait_rollout", committed: "wait_rollout" };
const TRACKS = { wait_rollout: 0, rollout: 1, wait_train: 0, train: 2, commit: 2 };
const NAMES = ["waiting", "rollout", "training"];
const LEFT = 62;

/** `spans`: [{ phase, start, end, step, open }], in seconds; the phase that runs now ends at `now`. */
export function spansOf(state, now) {
  const whole = state.steps.slice(-SHOWN).flatMap((step) => (step.spans ?? []).map((span) => ({ ...span, step: step.step })));
  const phase = LIVE[state.phase.name];
  const since = Math.max(Date.parse(state.phase.since) / 1000, whole.at(-1)?.end ?? 0);
  if (phase && !state.ended && state.state !== "paused" && now > since) whole.push({ phase, start: since, end: now, step: state.version + 1, open: true });
  return whole.filter((span) => span.end > span.start);
}

export function showTimeline(state, now = Date.now() / 1000) {
  const figure = $("#timeline");
  if (!figure) return;
  const spans = spansOf(state, now);
  $("#timeline-none").hidden = spans.length > 0;
  $("#timeline-some").hidden = spans.length === 0;
  if (!spans.length) return;
  const [from, to] = [Math.min(...spans.map((span) => span.start)), Math.max(...spans.map((span) => span.end))];
  draw($("#timeline-plot"), spans, from, Math.max(to, from + 1));
  tell(spans, to - from);
  fillTable(spans);
}

function draw(svg, spans, from, to) {
  const width = Math.max(280, svg.parentElement.clientWidth);
  const height = NAMES.length * (ROW + 6) + 20;
  const x = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT - 4);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  const labels = NAMES.map((name, track) => text(0, track * (ROW + 6) + 12, name));
  const bars = spans.map((span) => bar(span, x(span.start), Math.max(1, x(span.end) - x(span.start))));
  const ends = [text(LEFT, height - 4, clock(from * 1000)), text(width - 4, height - 4, clock(to * 1000), "end")];
  svg.replaceChildren(svg.querySelector("defs"), ...labels, ...bars, ...ends);
}

function bar(span, x, width) {
  const rect = document.createElementNS(SVG, "rect");
  const values = { x: x.toFixed(1), y: TRACKS[span.phase] * (ROW + 6), width: width.toFixed(1), height: ROW, rx: 2, class: `span span-${span.phase.replace("_", "-")}` };
  for (const [name, value] of Object.entries(values)) rect.setAttribute(name, value);
  const title = document.createElementNS(SVG, "title");
  title.textContent = `Step ${span.step}: ${WORDS[span.phase]} ${duration(span.end - span.start)}${span.open ? " so far" : ""}`;
  rect.append(title);
  return rect;
}

function text(x, y, content, anchor = "start") {
  const element = document.createElementNS(SVG, "text");
  for (const [name, value] of Object.entries({ x, y, "text-anchor": anchor, class: "span-label" })) element.setAttribute(name, value);
  element.textContent = content;
  return element;
}

/** Own work and waiting in one sentence: whose fault are the seconds? */
function tell(spans, seconds) {
  const sum = (...phases) => spans.filter((span) => phases.includes(span.phase)).reduce((total, span) => total + span.end - span.start, 0);
  const waiting = sum("wait_rollout", "wait_train");
  const share = Math.round((100 * waiting) / Math.max(seconds, waiting));
  write("#timeline-words", `${duration(sum("rollout", "train", "commit"))} of own work, ${duration(waiting)} (${share} %) waiting behind others in the last ${duration(seconds)}.`);
}

function fillTable(spans) {
  const table = $("#timeline-table");
  if (!table.closest("details").open) return;
  const rows = [...spans].reverse().map((span) => [`${span.step}`, WORDS[span.phase], clock(span.start * 1000), duration(span.end - span.start)]);
  table.replaceChildren(...rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, cell)))));
}
