from __future__ import annotations

import json
import math
from dataclasses import replace
from statistics import fmean

import pytest
from msgspec import structs

from engine import mismatch
from engine.ports import PortError
from engine.trajectory import StaleBatch, Turn
from tests.engine.train.recorded import GROUP, make_batch, make_request, make_spec

pytestmark = pytest.mark.engine

ADAPTER, OPTIMIZER = "adapter_model.safetensors", "optimizer.safetensors"


def gradient_of(worker, request):
    """The step's gradient, clipped as it was applied."""
    worker.step(request)
    return worker.model.adapters.activate(request.spec.lora).gradient_P.clone()


def record(snapshot) -> dict:
    return json.loads(snapshot["trainer.json"])


def nan_batch(version: int = 0):
    return make_batch("a", version=version, logprobs=[math.nan] * 3, completion_ids=[5, 6, 7])


def test_a_step_moves_the_adapter_and_the_optimizer(worker):
    spec = make_spec()
    start = worker.fresh("a", spec)
    result = worker.step(make_request("a", spec, start))
    assert result.snapshot[ADAPTER] != start[ADAPTER]
    assert result.snapshot[OPTIMIZER] != start[OPTIMIZER]
    assert record(result.snapshot) | {"version": 1, "updates": 1} == record(result.snapshot)
    assert result.metrics["skipped"] is None


def test_metrics_count_what_was_trained_and_certify_the_version(worker):
    spec = make_spec()
    rewards = [1.0] * GROUP + [0.0, 1.0, None, 0.0] + [0.0] * GROUP
    batch = make_batch("a", rewards=rewards)
    metrics = worker.step(make_request("a", spec, worker.fresh("a", spec), batch)).metrics
    trained = sum(len(batch.trajectories[index].completion_ids) for index in (GROUP, GROUP + 1, GROUP + 3))
    assert metrics["tokens"] == {"trained": trained}
    assert (metrics["groups"], metrics["zero_signal_groups"]) == (3, 2)
    assert metrics["certificate"] | {"completions": 12, "on_policy": 12, "version": 0} == metrics["certificate"]


EVERY_PART = {"train__kl_coefficient": 0.2, "train__kl_estimator": "k1", "train__importance_level": "sequence"}


@pytest.mark.parametrize(
    ("budget_tokens", "train"),
    [
        (64, {}),
        (100, {}),
        (150, {}),
        (64, {"train__loss": "dr_grpo"}),
        (64, {"train__loss": "dapo"}),
        (64, {"train__loss": "cispo"}),
        (64, {"train__loss": "gspo", **EVERY_PART}),
        (64, {"train__loss": "gspo", "train__epochs": 2, "train__minibatches": 2, **EVERY_PART}),
    ],
)
def test_the_gradient_of_a_batch_is_that_of_its_chunks(worker, budget_tokens, train):
    import torch

    whole, chunked = make_spec(**train), make_spec(train__micro_batch_tokens=budget_tokens, **train)
    start = worker.fresh("a", whole)
    one = gradient_of(worker, make_request("a", whole, start))
    many = gradient_of(worker, make_request("a", chunked, start))
    assert one.abs().max() > 1e-3
    torch.testing.assert_close(many, one, rtol=1e-4, atol=1e-7)


def test_a_step_that_exceeds_the_memory_is_split_into_what_fits(worker, monkeypatch):
    import torch

    from engine.train import passes

    spec = make_spec()
    request = make_request("a", spec, worker.fresh("a", spec))
    whole = gradient_of(worker, request)
    widths = []
    real = passes.pack
    monkeypatch.setattr(passes, "pack", lambda *a, **k: widths.append((micro := real(*a, **k)).ids_BT.numel()) or micro)
    monkeypatch.setattr(worker, "model", replace(worker.model, max_tokens=40))
    torch.testing.assert_close(gradient_of(worker, request), whole, rtol=1e-4, atol=1e-7)
    assert len(widths) > 3
    assert max(widths) <= 40


def test_the_gradient_is_clipped_to_the_asked_norm(worker):
    spec = make_spec(train__max_grad_norm=0.01)
    request = make_request("a", spec, worker.fresh("a", spec))
    assert float(gradient_of(worker, request).norm()) == pytest.approx(0.01, rel=1e-3)
    assert worker.step(request).metrics["grad_norm"] > 0.02


def test_several_updates_count_as_one_step_and_train_each_token_once_per_epoch(worker):
    spec = make_spec(train__epochs=2, train__minibatches=3)
    batch = make_batch("a")
    result = worker.step(make_request("a", spec, worker.fresh("a", spec), batch))
    assert record(result.snapshot) | {"version": 1, "updates": 6} == record(result.snapshot)
    assert result.metrics["updates"] == 6
    assert result.metrics["tokens"] == {"trained": 2 * sum(len(t.completion_ids) for t in batch.trajectories)}


def test_entropy_and_mismatch_are_those_of_the_sampled_version_whatever_the_updates_did(worker):
    one, many = make_spec(), make_spec(train__epochs=3, train__minibatches=3, train__learning_rate=0.1)
    start = worker.fresh("a", one)
    found = [worker.step(make_request("a", spec, start)).metrics for spec in (one, many)]
    for figure in ("entropy", "mismatch_kl", "max_ratio"):
        assert found[1][figure] == pytest.approx(found[0][figure], rel=1e-5)
    assert (found[0]["clip_share"], found[1]["clip_share"] > 0.1) == (0.0, True)


def test_other_seeds_and_versions_deal_other_minibatches_and_a_repeated_step_the_same(worker):
    snapshots = {}
    for seed in (0, 1):
        spec = make_spec(seed=seed, train__minibatches=3)
        start = worker.fresh("a", make_spec()) | {"trainer.json": json.dumps({"version": 0, "seed": seed}).encode()}
        request = make_request("a", spec, start)
        snapshots[seed] = worker.step(request).snapshot[ADAPTER]
        assert worker.step(request).snapshot[ADAPTER] == snapshots[seed]
    assert snapshots[0] != snapshots[1]


def test_the_schedule_decides_the_rate_of_the_step(worker):
    spec = make_spec(train__schedule="cosine", train__steps=4, train__warmup_steps=1, train__learning_rate=0.02)
    snapshot, rates = worker.fresh("a", spec), []
    for version in range(4):
        result = worker.step(make_request("a", spec, snapshot, version=version))
        snapshot = result.snapshot
        rates.append(result.metrics["learning_rate"])
    assert rates == pytest.approx([0.01, 0.02, 0.015, 0.005])


def test_truncated_completions_are_compared_but_not_learned_from(worker):
    import msgspec

    spec, masking = make_spec(), make_spec(train__mask_truncated=True)
    start, batch = worker.fresh("a", spec), make_batch("a")
    cut = [msgspec.structs.replace(t, finish_reason="length") if t.sample == 0 else t for t in batch.trajectories]
    batch = msgspec.structs.replace(batch, trajectories=cut)
    everyone, rest = (worker.step(make_request("a", s, start, batch)).metrics["tokens"]["trained"] for s in (spec, masking))
    assert everyone - rest == sum(len(t.completion_ids) for t in cut if t.sample == 0)
    everything = msgspec.structs.replace(batch, trajectories=[msgspec.structs.replace(t, finish_reason="length") for t in cut])
    assert worker.step(make_request("a", masking, start, everything)).metrics["skipped"] == "no_signal"


def test_masked_completions_do_not_count_in_the_mean_of_the_loss(worker):
    import msgspec

    from engine.train.batch import open_batch

    spec = make_spec(train__mask_truncated=True)
    batch = make_batch("a", rewards=[1.0, 0.0, None, 0.0, *[1.0] * 8])
    cut = msgspec.structs.replace(batch.trajectories[0], finish_reason="length")
    opened = open_batch(make_request("a", spec, {}, msgspec.structs.replace(batch, trajectories=[cut, *batch.trajectories[1:]])))
    assert opened.training == (1, 3)
    assert opened.counted == (1, 3, *range(4, 12))
    assert opened.totals(spec, parts=2).completions == 5.0


def test_length_is_a_matter_of_the_reward_where_the_job_says_so(worker):
    import msgspec

    lengths, batch = [2, 4, 6, 8] * 3, make_batch("a", rewards=[1.0] * 12)
    sized = [
        msgspec.structs.replace(t, completion_ids=[5] * n, logprobs=[-4.0] * n) for t, n in zip(batch.trajectories, lengths, strict=True)
    ]
    batch = msgspec.structs.replace(batch, trajectories=sized)
    plain, shaped = (make_spec(rollout__max_new_tokens=8, **more) for more in ({}, {"train__overlong_buffer_tokens": 4}))
    start = worker.fresh("a", plain)
    assert worker.step(make_request("a", plain, start, batch)).metrics["skipped"] == "no_signal"
    metrics = worker.step(make_request("a", shaped, start, batch)).metrics
    assert metrics["skipped"] is None
    assert metrics["overlong_penalty"] == pytest.approx(-(0 + 0 + 0.5 + 1) / 4)


@pytest.mark.parametrize("changes", [{"version": 1}, {"job": "b"}, {"attempt": 2}])
def test_trajectories_of_another_step_are_refused(worker, changes):
    spec = make_spec()
    request = make_request("a", spec, worker.fresh("a", spec))
    with pytest.raises(StaleBatch):
        worker.step(replace(request, **changes))


def test_one_stale_trajectory_spoils_the_batch(worker):
    import msgspec

    spec = make_spec()
    batch = make_batch("a")
    stale = msgspec.structs.replace(batch.trajectories[3], policy_version=7)
    mixed = msgspec.structs.replace(batch, trajectories=[*batch.trajectories[:3], stale, *batch.trajectories[4:]])
    with pytest.raises(StaleBatch, match="sample 3"):
        worker.step(make_request("a", spec, worker.fresh("a", spec), mixed))


def test_a_snapshot_of_another_version_is_refused(worker):
    spec = make_spec()
    with pytest.raises(PortError, match="version 0, the step trains from version 1"):
        worker.step(make_request("a", spec, worker.fresh("a", spec), version=1))


def test_a_snapshot_of_another_rank_is_refused(worker):
    with pytest.raises(PortError, match="does not fit the adapter"):
        worker.step(make_request("a", make_spec(rank=4), worker.fresh("a", make_spec(rank=2))))


def test_equal_rewards_are_no_signal_and_cost_nothing(worker):
    spec = make_spec()
    start = worker.fresh("a", spec)
    result = worker.step(make_request("a", spec, start, make_batch("a", rewards=[1.0] * 12)))
    assert result.metrics["skipped"] == "no_signal"
    assert result.metrics["tokens"] == {"trained": 0}
    assert (result.snapshot[ADAPTER], result.snapshot[OPTIMIZER]) == (start[ADAPTER], start[OPTIMIZER])
    assert record(result.snapshot) | {"version": 1, "updates": 0, "no_signal_steps": 1} == record(result.snapshot)


def test_a_step_in_which_nothing_could_be_graded_is_no_signal(worker):
    spec = make_spec()
    batch = make_batch("a", rewards=[None] * 12)
    assert worker.step(make_request("a", spec, worker.fresh("a", spec), batch)).metrics["skipped"] == "no_signal"


def test_a_nonfinite_gradient_is_skipped_recorded_and_forgotten(worker):
    spec = make_spec()
    start = worker.fresh("a", spec)
    poisoned = worker.step(make_request("a", spec, start, nan_batch()))
    assert poisoned.metrics["skipped"] == "nonfinite"
    assert poisoned.metrics["loss"] is None
    assert (poisoned.snapshot[ADAPTER], poisoned.snapshot[OPTIMIZER]) == (start[ADAPTER], start[OPTIMIZER])
    healed = worker.step(make_request("a", spec, poisoned.snapshot, version=1))
    assert healed.metrics["skipped"] is None
    assert record(healed.snapshot) | {"nonfinite_steps": 1, "nonfinite_in_row": 0} == record(healed.snapshot)


def test_a_step_whose_last_update_is_not_finite_leaves_nothing_of_the_first_ones(worker, monkeypatch):
    from engine.train import step

    spec, real = make_spec(train__epochs=3), step.adamw_update
    start = worker.fresh("a", spec)

    def breaking_at_the_second(values_P, gradient_P, moments, **knobs):
        real(values_P, gradient_P, moments, **knobs)
        if moments.updates == 2:
            values_P.fill_(math.inf)

    monkeypatch.setattr(step, "adamw_update", breaking_at_the_second)
    result = worker.step(make_request("a", spec, start))
    assert (result.metrics["skipped"], result.metrics["updates"], result.metrics["grad_norm"]) == ("nonfinite", 0, None)
    assert (result.snapshot[ADAPTER], result.snapshot[OPTIMIZER]) == (start[ADAPTER], start[OPTIMIZER])
    assert record(result.snapshot)["updates"] == 0


def test_nonfinite_steps_in_a_row_fail_the_job_with_advice_and_leave_others_alone(worker):
    spec = make_spec(train__max_nonfinite_steps=2)
    healthy = worker.step(make_request("b", spec, worker.fresh("b", spec)))
    once = worker.step(make_request("a", spec, worker.fresh("a", spec), nan_batch())).snapshot
    with pytest.raises(PortError, match=r"2 steps in a row; lower train\.learning_rate") as caught:
        worker.step(make_request("a", spec, once, nan_batch(1), version=1))
    assert caught.value.attribution == "user"
    assert worker.step(make_request("b", spec, worker.fresh("b", spec))).snapshot == healthy.snapshot


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logprobs": [-1.0], "completion_ids": [5, 6]}, "1 log-probabilities for 2 sampled tokens"),
        ({"prompt_ids": []}, "the prompt has no tokens"),
        (
            {"logprobs": [-1.0], "completion_ids": [5, 6], "turns": [Turn(sampled=1, added=0, text="")]},
            "turns of 1 tokens in a completion of 2",
        ),
        ({"reward": math.inf}, "the reward is inf"),
    ],
)
def test_a_malformed_completion_is_named_and_refused(worker, changes, message):
    spec = make_spec()
    with pytest.raises(PortError, match=f"row 0, sample 0: {message}"):
        worker.step(make_request("a", spec, worker.fresh("a", spec), make_batch("a", **changes)))


def test_tokens_of_an_environment_are_not_counted_as_trained(worker):
    spec, turns = make_spec(), [Turn(sampled=2, added=3, text=""), Turn(sampled=1, added=0, text="")]
    batch = make_batch("a", completion_ids=[4, 5, 90, 91, 92, 6], logprobs=[-4.0] * 3, turns=turns)
    assert worker.step(make_request("a", spec, worker.fresh("a", spec), batch)).metrics["tokens"] == {"trained": 12 * 3}


def test_empty_completions_are_no_reason_to_fail(worker):
    spec = make_spec()
    batch = make_batch("a", completion_ids=[], logprobs=[])
    assert worker.step(make_request("a", spec, worker.fresh("a", spec), batch)).metrics["skipped"] == "no_signal"


def test_a_learning_rate_of_zero_keeps_the_adapter_to_the_byte(worker):
    spec = make_spec(train__learning_rate=0.0)
    start = worker.fresh("a", spec)
    result = worker.step(make_request("a", spec, start))
    assert result.snapshot[ADAPTER] == start[ADAPTER]
    assert result.metrics["skipped"] is None
    assert result.metrics["grad_norm"] > 0


def test_a_call_that_raises_leaves_the_next_one_unharmed(worker):
    spec = make_spec()
    request = make_request("a", spec, worker.fresh("a", spec))
    expected = worker.step(request).snapshot
    for broken in (replace(request, batch=b"no batch"), replace(request, snapshot={}), replace(request, version=3)):
        with pytest.raises(Exception):  # noqa: B017
            worker.step(broken)
        assert worker.step(request).snapshot == expected


def test_seconds_come_from_the_given_clock(worker):
    spec = make_spec()
    request = make_request("a", spec, worker.fresh("a", spec))
    ticks = iter([10.0, 12.5])
    real, worker._clock = worker._clock, lambda: next(ticks)
    try:
        assert worker.step(request).seconds == 2.5
    finally:
        worker._clock = real


@pytest.mark.parametrize("train", [{}, {"train__epochs": 2, "train__minibatches": 3}, {"train__micro_batch_tokens": 64}])
def test_a_step_tells_by_how_much_it_differs_from_the_sampler_on_each_token(worker, train):
    spec, batch = make_spec(**train), make_batch("a", rewards=[1.0] * GROUP + [0.0, 1.0, None, 0.0] + [0.0] * GROUP)
    result = worker.step(make_request("a", spec, worker.fresh("a", spec), batch))
    found = mismatch.decode(result.token_mismatch, [t.sampled_tokens for t in batch.trajectories])
    told = [difference for completion in found for difference in completion]
    assert fmean(math.expm1(d) - d for d in told) == pytest.approx(result.metrics["mismatch_kl"], rel=1e-2)
    assert math.exp(max(map(abs, told))) == pytest.approx(result.metrics["max_ratio"], rel=1e-2)


def test_what_the_sampler_said_wrong_of_one_token_shows_at_that_token(worker):
    spec, batch = make_spec(), make_batch("a")
    request = make_request("a", spec, worker.fresh("a", spec), batch)
    counts = [t.sampled_tokens for t in batch.trajectories]
    before = mismatch.decode(worker.step(request).token_mismatch, counts)
    logprobs = list(batch.trajectories[5].logprobs)
    logprobs[1] -= 0.5
    wrong = structs.replace(batch, trajectories=[*batch.trajectories])
    wrong.trajectories[5] = structs.replace(batch.trajectories[5], logprobs=logprobs)
    after = mismatch.decode(worker.step(make_request("a", spec, request.snapshot, wrong)).token_mismatch, counts)
    moved = [(i, j) for i, one in enumerate(after) for j, value in enumerate(one) if abs(value - before[i][j]) > 0.1]
    assert moved == [(5, 1)]
    assert after[5][1] - before[5][1] == pytest.approx(0.5, abs=0.01)
