"""The main job on real parts, undisturbed and with each of its processes killed once in mid-run."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest

from tests.engine.engines import TestEngine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(500)]

TASKS = ["add", "max", "reverse"]
# vLLM and transformers compute in another order; in float32 they have agreed to a few 1e-7.
LOGPROB_TOLERANCE = 1e-4


@pytest.fixture(scope="session")
def undisturbed(engine: TestEngine) -> dict[str, Any]:
    return engine.play(TASKS, steps=12, prompts=16)


def test_three_tenants_jobs_succeed_beside_one_another(undisturbed):
    assert {view.state for view in undisturbed.values()} == {"succeeded"}
    assert all(view.lost == 0 for view in undisturbed.values())


def test_sampler_and_trainer_agree_on_every_step(undisturbed):
    gaps = [abs(data["mismatch_kl"]) for view in undisturbed.values() for data in view.committed]

    assert max(gaps) < 1e-4


def test_rewards_rise_on_every_task(undisturbed):
    # Twelve small steps; the whole rise takes the demo's thirty.
    assert all(sum(view.rewards[-3:]) > sum(view.rewards[:3]) for view in undisturbed.values())


def test_the_downloaded_adapter_gives_the_served_log_probabilities(engine, undisturbed, tmp_path):
    job = next(iter(undisturbed))
    archive, batch = engine.run(_served(engine, job))
    zipfile.ZipFile(io.BytesIO(archive)).extractall(tmp_path)

    expected = _peft_logprobs(tmp_path, batch["trajectories"][:32])

    assert batch["version"] == 11
    for trajectory, logprobs in zip(batch["trajectories"][:32], expected, strict=True):
        assert logprobs == pytest.approx(trajectory["logprobs"], abs=LOGPROB_TOLERANCE)


@pytest.mark.parametrize("title", ["ray::ManagerActor", "VLLM::EngineCore", "ray::RolloutActor", "ray::TrainActor"])
def test_a_part_is_killed_in_mid_run(engine, title):
    killed: list[int] = []

    def kill_once(view) -> None:
        if not killed and view.step == 3:
            killed.append(engine.kill(title))

    views = engine.play(TASKS, on_step=kill_once, steps=10, prompts=16)

    assert killed
    assert {view.state for view in views.values()} == {"succeeded"}
    assert [[data["version"] for data in view.committed] for view in views.values()] == [list(range(1, 11))] * len(TASKS)
    assert engine.run(engine.until_healthy())["ok"]
    assert engine.violations() == []


async def _served(engine: TestEngine, job: str) -> tuple[bytes, dict[str, Any]]:
    """The adapter of the last version that was sampled from, and what it sampled."""
    async with engine.client() as client:
        return await client.adapter(job, 11), await client.rollouts(job, 11)


def _peft_logprobs(adapter, trajectories) -> list[list[float]]:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from engine.models.registry import BUNDLED_DIR

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BUNDLED_DIR, dtype=torch.float32), adapter).eval()
    with torch.no_grad():
        return [_completion_logprobs(model, t["prompt_ids"], t["completion_ids"]) for t in trajectories]


def _completion_logprobs(model, prompt_ids: list[int], completion_ids: list[int]) -> list[float]:
    import torch

    ids_1T = torch.tensor([prompt_ids + completion_ids])
    logprobs_TV = model(ids_1T).logits[0].log_softmax(-1)
    at = range(len(prompt_ids) - 1, len(prompt_ids) + len(completion_ids) - 1)
    return [logprobs_TV[position, token].item() for position, token in zip(at, completion_ids, strict=True)]
