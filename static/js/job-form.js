// The job form: presets fill fields in, and what the job asks for is computed beside it as one types. The server checks everything again.
import { $, write } from "./dom.js";
import { bytes, count as number } from "./format.js";

const form = $("#job-form");

if (form) {
  const models = JSON.parse($("#models-data").textContent);
  const presets = JSON.parse($("#presets-data").textContent);
  const count = (x) => (x > 0 ? number(x) : "–");
  const value = (name) => Number(form.elements[name].value);
  const hasTools = () => form.elements["environment.type"].value === "tools";

  /** [tokens of its own, tokens with everything that tools add] of one completion at its longest. */
  function longest() {
    const own = value("rollout.max_new_tokens");
    if (!hasTools()) return [own, own];
    const turns = value("environment.max_turns") || value("environment.max_calls") + 1;
    const told = turns * own + (turns - 1) * value("environment.max_observation_tokens");
    const most = Math.min(told, value("environment.max_tokens") || told);
    return [Math.min(turns * own, most), most];
  }

  const estimate = () => {
    const completions = value("rollout.prompts_per_step") * value("rollout.group_size");
    const [own, told] = longest();
    const context = value("rollout.max_prompt_tokens") + told;
    const total = completions * value("train.steps");
    write("#estimate-completions", count(completions));
    write("#estimate-context", `${count(context)} tokens`);
    write("#estimate-total", count(total));
    write("#estimate-tokens", count(total * own));
    $("#tool-fields").hidden = !hasTools();
    showKv(models[form.elements.base_model.value], completions * context, context);
  };

  function showKv(model, tokens, context) {
    if (!model || !(tokens > 0)) {
      write("#estimate-kv", "–");
      write("#estimate-note", "");
      $("#estimate-bar").value = 0;
      return;
    }
    const needed = tokens * model.kv_bytes_per_token;
    const share = needed / model.kv_budget_bytes;
    write("#estimate-kv", `${bytes(needed)} of ${bytes(model.kv_budget_bytes)}`);
    $("#estimate-bar").value = Math.min(1, share);
    write("#estimate-note", note(model, share, context));
  }

  function note(model, share, context) {
    if (context > model.max_context_tokens) return `${model.name} takes at most ${count(model.max_context_tokens)} tokens of prompt and completion together.`;
    if (share > 1) return "Larger than the engine's whole budget: it will run alone, and wait for that.";
    const beside = Math.floor(1 / share);
    return beside > 1 ? `${count(Math.min(beside, model.job_slots))} jobs of this size run at the same time.` : "It leaves little room for others, so it may wait longer for a place.";
  }

  function fill(name, x) {
    if (Array.isArray(x)) for (const box of form.querySelectorAll(`[name="${name}"]`)) box.checked = x.includes(box.value);
    else form.elements[name].value = x ?? "";
  }

  form.addEventListener("input", (event) => {
    if (event.target.name === "preset") for (const [name, x] of Object.entries(presets[event.target.value])) fill(name, x);
    estimate();
  });
  estimate();
}
