// "Did it get better?": what the evaluations say, in the words of the engine, and the best checkpoint.
import { $, write } from "./dom.js";
import { number } from "./format.js";

/** What the panel says: { verdict, note, best, last }. `best` and `last` are versions, null where there is nothing to open. */
export function evaluationText(state, evalRows) {
  const last = state.evals.at(-1) ?? null;
  if (!evalRows) return { verdict: "Nobody can tell", note: "This dataset has no held-out rows. Give it some, and copy the job.", best: null, last: null };
  if (!last) return { verdict: "Not measured yet", note: "The first evaluation runs beside the first step.", best: null, last: null };
  if (!Number.isFinite(last.reward_mean)) return { verdict: "Not measured", note: `None of the ${last.rows} answers of version ${last.version} could be graded.`, best: bestOf(state.evals), last: null };
  if (last.version === 0) return { verdict: `Begins at ${number(last.reward_mean, 3)}`, note: `${heldOut(last.rows)}, before the first step.`, best: null, last: null };
  const compared = last.comparison;
  const note = compared
    ? `Version ${last.version} against version ${compared.against}, ${heldOut(compared.rows)}: ${compared.wins} won, ${compared.losses} lost, ${compared.ties} the same.`
    : `Version ${last.version} was not compared row by row.`;
  return { verdict: sentence(compared?.verdict ?? `Held-out reward ${number(last.reward_mean, 3)}`), note, best: bestOf(state.evals), last: compared ? last.version : null };
}

/** The earliest of those with the highest held-out reward, as the engine chooses. */
export function bestOf(evals) {
  const measured = evals.filter((one) => Number.isFinite(one.reward_mean));
  return measured.reduce((best, one) => (best === null || one.reward_mean > best.reward_mean ? one : best), null)?.version ?? null;
}

export function showEvaluation(state, page) {
  const { verdict, note, best, last } = evaluationText(state, page.eval_rows);
  write("#better-verdict", verdict);
  write("#better-note", note);
  $("#better-rows").hidden = last === null;
  if (last !== null) $("#better-rows").href = page.evaluation_url.replace("/0/", `/${last}/`);
  showBest(best, state, page);
}

function showBest(best, state, page) {
  $("#better-best").hidden = best === null;
  if (best === null) return;
  const reward = state.evals.find((one) => one.version === best).reward_mean;
  write("#better-best-text", best === 0 ? `No version beats the one it began with (${number(reward, 3)}).` : `Best: version ${best}, held-out reward ${number(reward, 3)}`);
  $("#better-best-actions").hidden = best === 0;
  $("#better-download").href = page.adapter_url.replace("/0/", `/${best}/`);
  const begin = $("#better-continue"); // viewers have none
  if (begin) begin.href = `${page.continue_url}${best}`;
}

const heldOut = (rows) => `${rows} held-out ${rows === 1 ? "row" : "rows"}`;
const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
