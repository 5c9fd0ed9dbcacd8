// Whether the job's engine can be reached, and the part of it that the job needs next serves: while not, the page says so in the place of a phase that nobody knows to be true.
import { $, write } from "./dom.js";
import { clock } from "./format.js";
import { localise } from "./times.js";

/** `since`: an ISO time, or null when the engine answers; `restarting`: { part, since } or null. Shows or takes away the notices. */
export function showReach({ since, restarting }, state) {
  const away = since !== null && !state.ended;
  const halted = !away && restarting !== null && !state.ended;
  show($("#run-away"), away && since);
  show($("#run-restarting"), halted && restarting.since);
  if (halted) write("#run-restarting-part", restarting.part);
}

function show(box, since) {
  if (since) {
    box.querySelector("time").dateTime = since;
    localise(box);
  }
  box.hidden = !since;
}

/** What such a page says in the place of the phase; call after the head is shown. */
export function overruleHead({ since, restarting }, state) {
  if (state.ended) return;
  if (since !== null) {
    say("Engine away", `Not heard of since ${clock(since)}. ${state.state === "paused" ? "The job is paused." : "It goes on by itself when the engine is back."}`);
    write("#run-tpts", "not while the engine is away");
  } else if (restarting !== null) {
    say(`${restarting.part === "sampler" ? "Sampler" : "Trainer"} restarting`, `Since ${clock(restarting.since)}. Your job goes on by itself when it is back.`);
    write("#run-tpts", `not while the ${restarting.part} restarts`);
  }
}

function say(title, why) {
  write("#run-phase", title);
  write("#run-why", why);
  $("#run-now").dataset.phase = "away";
  write("#run-eta", "–");
}
