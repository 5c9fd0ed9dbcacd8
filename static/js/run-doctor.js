// The doctor's findings: all of them in the panel, and each beside the chart that it speaks of.
import { $, el, icon } from "./dom.js";

export function showFindings(findings) {
  const standing = [...findings.values()];
  const key = standing.map((finding) => `${finding.code}@${finding.last_step}`).join(" ");
  const list = $("#doctor-findings");
  $("#doctor-none").hidden = standing.length > 0;
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...standing.map(whole));
  for (const figure of document.querySelectorAll("figure[data-chart]")) besideChart(figure, standing.filter((finding) => finding.chart === figure.dataset.chart));
}

function besideChart(figure, findings) {
  figure.querySelector(".chart-findings")?.remove();
  if (!findings.length) return;
  const notes = findings.map((finding) => el("p", { class: "chart-finding" }, icon("alert"), el("span", {}, `${finding.title}. ${finding.advice}`)));
  figure.querySelector("figcaption").after(el("div", { class: "chart-findings" }, ...notes));
}

function whole(finding) {
  return el("li", { class: "finding" }, icon("alert"), el("div", {}, el("p", { class: "strong" }, finding.title), el("p", { class: "small soft" }, finding.evidence), el("p", { class: "small" }, finding.advice)));
}
