// Whether the job's engine can be reached: while it cannot, the page says so in the place of a phase that nobody knows to be true.
import { $, write } from "./dom.js";
import { clock } from "./format.js";
import { localise } from "./times.js";

/** `since`: an ISO time, or null when the engine answers. Shows or takes away the notice. */
export function showReach(since, state) {
  const box = $("#run-away");
  const away = since !== null && !state.ended;
  if (away) {
    box.querySelector("time").dateTime = since;
    localise(box);
  }
  box.hidden = !away;
}

/** What a page whose engine is away says in the place of the phase; call after the head is shown. */
export function overruleHead(since, state) {
  if (since === null || state.ended) return;
  write("#run-phase", "Engine away");
  write("#run-why", `Not heard of since ${clock(since)}. ${state.state === "paused" ? "The job is paused." : "It goes on by itself when the engine is back."}`);
  $("#run-now").dataset.phase = "away";
  write("#run-eta", "–");
  write("#run-tpts", "not while the engine is away");
}
