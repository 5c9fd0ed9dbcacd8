"""The loop of issue 2 without sampler, scheduler and store: the trainer alone must make the bundled model better."""

from __future__ import annotations

import random

import pytest

from engine.models.tasks import rows
from engine.spec import LORA_TARGETS
from engine.trajectory import RolloutBatch, Trajectory
from tests.engine.train.recorded import make_request, make_spec

pytestmark = pytest.mark.engine

PROMPTS, GROUP, STEPS = 16, 8, 12


class Sampler:
    """Transformers and PEFT, sampling at temperature 1 from a snapshot."""

    def __init__(self, home):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from engine.models.registry import BUNDLED_DIR

        self.base = AutoModelForCausalLM.from_pretrained(BUNDLED_DIR)
        self.tokenizer = AutoTokenizer.from_pretrained(BUNDLED_DIR)
        self.home = home
        self.model = None

    def load(self, snapshot):
        from peft import PeftModel, set_peft_model_state_dict
        from safetensors.torch import load

        if self.model is None:
            for name in ("adapter_model.safetensors", "adapter_config.json"):
                (self.home / name).write_bytes(snapshot[name])
            self.model = PeftModel.from_pretrained(self.base, self.home)
        set_peft_model_state_dict(self.model, load(snapshot["adapter_model.safetensors"]))

    def sample(self, prompts: list[str]) -> list[tuple[list[int], list[int], list[float], str]]:
        """(prompt ids, completion ids, log-probabilities, text) per prompt."""
        import torch

        batch = self.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left", return_token_type_ids=False)
        settings = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 8}
        with torch.no_grad():
            out = self.model.generate(**batch, **settings, output_logits=True, return_dict_in_generate=True)
        sampled = out.sequences[:, batch["input_ids"].shape[1] :]
        logprobs = torch.stack(out.logits, 1).log_softmax(-1).gather(-1, sampled.unsqueeze(-1)).squeeze(-1)
        return [self._cut(prompt, *pair) for prompt, *pair in zip(prompts, sampled.tolist(), logprobs.tolist(), strict=True)]

    def _cut(self, prompt, ids, logprobs):
        end = ids.index(self.tokenizer.eos_token_id) + 1 if self.tokenizer.eos_token_id in ids else len(ids)
        return self.tokenizer.encode(prompt), ids[:end], logprobs[:end], self.tokenizer.decode(ids[:end], skip_special_tokens=True)


def roll_out(sampler: Sampler, chosen: list[dict], version: int, *, group: int = GROUP) -> RolloutBatch:
    items = [(row, sample, item) for row, item in enumerate(chosen) for sample in range(group)]
    drawn = sampler.sample([item["prompt"] for _, _, item in items])
    trajectories = [
        Trajectory(
            job="a",
            policy_version=version,
            attempt=1,
            load_id=version + 1,
            row=row,
            sample=sample,
            seed=0,
            prompt_ids=prompt_ids,
            completion_ids=ids,
            logprobs=logprobs,
            text=text,
            finish_reason="stop",
            reward=float(text == item["answer"]),
        )
        for (row, sample, item), (prompt_ids, ids, logprobs, text) in zip(items, drawn, strict=True)
    ]
    return RolloutBatch(job="a", policy_version=version, attempt=1, group_size=group, trajectories=trajectories)


def test_reinforcement_lifts_the_sampled_reward_and_stays_on_policy(one_rank, tmp_path):
    import torch

    from engine.models.registry import BUNDLED_DIR
    from engine.train.worker import TrainWorker

    torch.manual_seed(1)
    spec = make_spec(rank=16, alpha=32, targets=LORA_TARGETS, train__learning_rate=1e-3)
    worker, sampler, rng = TrainWorker(BUNDLED_DIR), Sampler(tmp_path), random.Random(1)
    data, snapshot, rewards = rows("add", count=300, seed=1), worker.fresh("a", spec), []
    for version in range(STEPS):
        sampler.load(snapshot)
        batch = roll_out(sampler, rng.sample(data, PROMPTS), version)
        rewards.append(sum(t.reward for t in batch.trajectories) / len(batch.trajectories))
        result = worker.step(make_request("a", spec, snapshot, batch, version=version))
        snapshot = result.snapshot
        assert result.metrics["mismatch_kl"] < 1e-8
        assert result.metrics["max_ratio"] < 1 + 1e-3
    assert sum(rewards[-3:]) / 3 > sum(rewards[:2]) / 2 + 0.2, rewards
