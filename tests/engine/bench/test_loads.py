from __future__ import annotations

import pytest

from engine.bench.loads import LOADS, PEER_LM, WORKLOADS, bench_jobs
from engine.blobs import BlobStore
from engine.data import Datasets
from engine.spec import parse_job


@pytest.fixture
def blobs(tmp_path) -> BlobStore:
    return BlobStore(tmp_path)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_workload_is_made_of_valid_jobs(workload, blobs):
    specs = [parse_job(job.spec) for job in bench_jobs(workload, 3, blobs)]

    assert {spec.lora.rank for spec in specs} == {8}
    assert all(spec.context_tokens <= 256 for spec in specs)


def test_the_regimes_are_compared_on_eight_prompts_of_eight_completions(blobs):
    specs = [parse_job(job.spec) for workload in ("reasoning", "agentic", "mixed") for job in bench_jobs(workload, 3, blobs)]

    assert {(spec.rollout.prompts_per_step, spec.rollout.group_size, spec.rollout.max_new_tokens) for spec in specs} == {(8, 8, 24)}


def test_a_mixed_workload_is_a_third_each(blobs):
    kinds = [job.kind for job in bench_jobs("mixed", 9, blobs)]

    assert [kinds.count(kind) for kind in ("reasoning", "agentic", "slow-agentic")] == [3, 3, 3]


def test_a_job_is_the_same_each_time_it_is_asked_for(blobs):
    assert bench_jobs("agentic", 3, blobs) == bench_jobs("agentic", 3, blobs)


def test_jobs_of_one_load_differ_in_seed_and_rows(blobs):
    first, second = bench_jobs("reasoning", 2, blobs)

    assert first.spec["seed"] != second.spec["seed"]
    assert first.spec["dataset"]["train"] != second.spec["dataset"]["train"]


def test_agentic_jobs_act_twice_and_then_answer(blobs):
    environment = parse_job(bench_jobs("agentic", 1, blobs)[0].spec).environment

    assert (environment.tool_turns, environment.answer_turn, environment.latency.cap_seconds) == (2, True, 3.0)


def test_the_chat_models_prompts_carry_no_system_message_of_its_template(blobs):
    dataset = PEER_LM.dataset(blobs, seed=1)

    (row,) = Datasets(blobs).rows(dataset.train, [0])

    assert [message["role"] for message in row.messages] == ["system", "user"]
    assert row.messages[0]["content"] == ""


def test_every_load_has_a_name_of_its_own():
    assert all(name == load.name for name, load in LOADS.items())
