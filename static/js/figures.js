// What a committed step came to, as flat figures: the same names as portal/jobs/figures.py, which makes them for old steps. A test holds both together.
export const PHASES = ["wait_rollout", "rollout", "env", "reward", "wait_train", "train", "commit"];
export const TOKENS = ["prefill", "sampled", "trained", "judge"];
export const PART = "part:";
const OF_STEP = ["loss", "grad_norm", "entropy", "clip_share", "clip_low_share", "clip_high_share", "importance_capped_share", "mismatch_kl", "max_ratio", "base_kl", "overlong_penalty", "learning_rate"];
const OF_ROLLOUT = {
  reward: "reward_mean", reward_std: "reward_std", reward_min: "reward_min", reward_max: "reward_max", length: "length_mean", length_max: "length_max",
  invalid: "invalid", groups_all_right: "groups_all_right", groups_all_wrong: "groups_all_wrong", groups_dropped: "groups_dropped", tool_calls: "tool_calls",
};
const SHARES = { truncated: ["truncated", "completions"], right: ["groups_all_right", "groups"], wrong: ["groups_all_wrong", "groups"], tokens_per_second: ["sampled_tokens", "rollout_seconds"] };

const known = (x) => (Number.isFinite(x) ? x : null);

/** `step`: the data of a step event. Unknown and non-finite figures are null. */
export function figures(step) {
  const rollout = step.rollout ?? {};
  const found = {};
  for (const [name, field] of Object.entries(OF_ROLLOUT)) found[name] = known(rollout[field]);
  for (const [name, [part, whole]] of Object.entries(SHARES)) found[name] = rollout[whole] ? known(rollout[part] / rollout[whole]) : null;
  for (const name of OF_STEP) found[name] = known(step[name]);
  for (const kind of TOKENS) found[`tokens_${kind}`] = known(step.tokens?.[kind]);
  for (const phase of PHASES) found[`seconds_${phase}`] = known(step.seconds?.[phase]);
  for (const [name, part] of Object.entries(rollout.parts ?? {})) found[`${PART}${name}`] = known(part.mean);
  return found;
}

/** A segment of portal/jobs/series.py as points { version, first, at, broken, f, low?, high? }; with `low` and `high` it stands for several steps. */
export function unpack(segment) {
  const coarse = Boolean(segment.mean);
  const pick = (columns, i) => Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[i] ?? null]));
  return segment.versions.map((version, i) => {
    const point = { step: version, version, at: new Date(1000 * segment.at[i]).toISOString() };
    if (!coarse) return { ...point, first: version, skipped: segment.skipped[i], broken: segment.skipped[i] === "nonfinite" ? 1 : 0, f: pick(segment.columns, i) };
    return { ...point, first: segment.first[i], skipped: null, broken: segment.broken[i], f: pick(segment.mean, i), low: pick(segment.low, i), high: pick(segment.high, i) };
  });
}
