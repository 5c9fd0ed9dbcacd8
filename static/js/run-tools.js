// What the last step's completions did with their tools, and why they ended. There only for jobs that have tools.
import { $, write } from "./dom.js";
import { count, duration, number } from "./format.js";

const ENDINGS = { stop: "answered", length: "out of tokens", calls: "no calls left", seconds: "no time left", turns: "no turns left" };

const listed = (counts, names = {}) =>
  Object.entries(counts)
    .sort((a, b) => b[1] - a[1])
    .map(([kind, n]) => `${names[kind] ?? kind.replaceAll("_", " ")} ${count(n)}`)
    .join(" · ");

export function showTools(step) {
  if (!$("#tools") || !step) return;
  const { completions, tool_calls: calls = 0, tool_failures: failures = {}, tool_seconds: seconds = 0, finish_reasons: endings = {} } = step.rollout;
  $("#tools-none").hidden = true;
  $("#tools-some").hidden = false;
  write("#tools-calls", `${count(calls)}, ${number(calls / completions, 1)} a completion`);
  write("#tools-seconds", calls ? `${duration(seconds / calls)} a call` : "–");
  write("#tools-failed", listed(failures) || "none");
  write("#tools-endings", listed(endings, ENDINGS) || "–");
}
