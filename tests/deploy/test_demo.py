from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.demo import logins, plan, screen
from deploy.demo.client import Refused, Tenant
from deploy.demo.follow import Followed
from deploy.demo.report import all_succeeded, report
from engine.models.tasks import split_of
from engine.spec import parse_job

ORDER = plan.orders("tiny-math", None)[0]
BLOB = {"sha256": "0" * 64, "bytes": 1}


def step(number: int, reward: float, *, start: float, kl: float = 0.001) -> dict[str, Any]:
    spans = [
        {"phase": "rollout", "start": start, "end": start + 1.0},
        {"phase": "train", "start": start + 1.0, "end": start + 1.5},
        {"phase": "commit", "start": start + 1.5, "end": start + 1.6},
    ]
    return {"version": number, "rollout": {"reward_mean": reward}, "mismatch_kl": kl, "spans": spans}


def event(seq: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "at": f"2026-01-01T00:00:{seq:02}+00:00", "data": data}


def finished(*rewards: float, start: float = 0.0, state: str = "succeeded") -> Followed:
    view = Followed(order=ORDER, job=f"job-{start}")
    steps = [event(number, "step", **step(number, reward, start=start + 2 * number)) for number, reward in enumerate(rewards, 1)]
    last = len(steps)
    ending = event(last + 2, "ended", state=state, reason="", ttfs_seconds=1.23456, tpts_seconds=0.5, completion_seconds=9.0)
    view.take([*steps, event(last + 1, "eval", version=0, reward_mean=0.25), ending])
    return view


# the plan


@pytest.mark.parametrize("model", ["tiny-math", "smollm2-135m", "some/model"])
def test_every_planned_job_is_one_that_the_schema_accepts(model: str):
    for order in plan.orders(model, None):
        parse_job({**order.spec, "dataset": {"version": "v", "train": BLOB, "train_rows": 64}, "grader": order.grader})


def test_three_tenants_train_different_tasks_long_enough_to_show_something():
    orders = plan.orders("tiny-math", None)
    assert len({order.task for order in orders}) == len({order.email for order in orders}) == 3
    assert all(order.spec["train"]["steps"] >= 30 for order in orders)
    assert all(order.spec["rollout"]["prompts_per_step"] * order.spec["rollout"]["group_size"] >= 64 for order in orders)


def test_the_first_and_the_last_three_steps_see_the_same_prompts():
    for order in [*plan.orders("tiny-math", None), *plan.orders("tiny-math", 0.0)]:
        train_rows = order.rows - round(order.rows * plan.EVAL_SHARE)
        assert train_rows == 3 * order.spec["rollout"]["prompts_per_step"]


def test_the_control_run_differs_in_the_learning_rate_and_in_how_much_it_samples():
    usual, control = (plan.orders("tiny-math", rate)[0].spec for rate in (None, 0.0))
    assert control["train"].pop("learning_rate") == 0 != usual["train"].pop("learning_rate")
    sampled = [spec["rollout"].pop("prompts_per_step") * spec["rollout"].pop("group_size") for spec in (usual, control)]
    held_out = [spec["eval"].pop("max_rows") for spec in (usual, control)]
    assert (sampled, held_out) == ([128, 384], [96, 144])
    assert usual == control


def test_no_prompt_of_a_dataset_comes_twice():
    prompts = [json.loads(line)["prompt"] for line in ORDER.dataset().splitlines()]
    assert len(prompts) == len(set(prompts)) == ORDER.rows
    assert {split_of(prompt) for prompt in prompts} == {"train"}


# following a job


def test_a_view_says_where_its_job_is():
    view = Followed(order=ORDER)
    view.take([event(1, "waiting", reason="the KV budget is full", position=2)])
    assert (view.facts.phase, view.reason, view.last_seq) == ("waiting", "the KV budget is full", 1)


def test_the_reason_for_waiting_goes_away_with_the_waiting():
    view = Followed(order=ORDER)
    view.take([event(1, "waiting", reason="the KV budget is full"), event(2, "admitted")])
    assert view.reason == ""


def test_events_of_kinds_it_does_not_know_are_counted_and_ignored():
    view = Followed(order=ORDER)
    view.take([event(1, "invented_later", x=1)])
    assert (view.last_seq, view.facts.phase) == (1, "submitted")


def test_a_succeeded_job_is_done_only_when_its_last_evaluation_is_in():
    view = finished(0.1, 0.2)
    assert not view.done
    view.take([event(9, "eval", version=view.facts.steps, reward_mean=0.9)])
    assert view.done


def test_a_failed_job_is_done_at_once():
    assert finished(0.1, state="failed").done


# the report


def test_the_report_has_the_promised_shape():
    found = report([finished(0.1, 0.2, 0.3, 0.8, 0.9, 1.0)], wall_seconds=12.34, sampler_before={}, sampler_after={})
    job = found["jobs"][0]
    assert found.keys() == {"jobs", "wall_s", "rollout_overlap", "train_rollout_overlap", "decode_steps_with_2_adapters"}
    assert (job["reward_first3"], job["reward_last3"], job["ttfs_s"], job["heldout_first"], job["steps"]) == (0.2, 0.9, 1.235, 0.25, 6)


def test_overlap_is_measured_between_jobs():
    alone = report([finished(0.5)], wall_seconds=1, sampler_before={}, sampler_after={})
    together = report([finished(0.5), finished(0.5, start=0.5)], wall_seconds=1, sampler_before={}, sampler_after={})
    assert (alone["rollout_overlap"], alone["train_rollout_overlap"]) == (0.0, 0.0)
    assert together["rollout_overlap"] > 0.2 and together["train_rollout_overlap"] == 0.5


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [((100, 50), (200, 130), 0.8), ((0, 0), (10, 1), 0.1), ((100, 50), (20, 10), 0.5), ((5, 5), (5, 5), 0.0)],
)
def test_only_decode_steps_of_this_run_count(before: tuple[int, int], after: tuple[int, int], share: float):
    first, last = ({"decode_steps": steps, "decode_steps_with_2_adapters": shared} for steps, shared in (before, after))
    assert report([], wall_seconds=1, sampler_before=first, sampler_after=last)["decode_steps_with_2_adapters"] == share


def test_success_means_that_every_job_succeeded():
    good, bad = finished(0.5), finished(0.5, state="failed")
    assert (all_succeeded([good]), all_succeeded([good, bad]), all_succeeded([])) == (True, False, False)


# the rest


def test_a_sparkline_spans_the_whole_scale_and_shows_the_newest():
    assert screen.sparkline([9.0, 0.0, 0.5, 1.0], 3) == "▁▅█"


def test_the_password_is_made_once_and_only_its_owner_reads_it(tmp_path: Path):
    first = logins.password(tmp_path)
    assert logins.password(tmp_path) == first
    assert (tmp_path / "demo-password").stat().st_mode & 0o777 == 0o600


async def test_a_tenant_uploads_rewards_and_starts_with_its_own_token():
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(201, json={"id": f"id-{len(asked)}"})

    tenant = Tenant("http://site", "mrl_token", ORDER, transport=httpx.MockTransport(answer))
    assert await tenant.start_job() == "id-3"
    body = json.loads(asked[2].content)
    assert (body["dataset"], body["reward"], asked[2].headers["authorization"]) == ("id-1", "id-2", "Bearer mrl_token")
    await tenant.close()


async def test_a_refusal_is_shown_with_what_the_site_said():
    tenant = Tenant("http://site", "t", ORDER, transport=httpx.MockTransport(lambda _: httpx.Response(400, text="line 3 is broken")))
    with pytest.raises(Refused, match=r"POST /datasets/ for Abacus Labs: 400 line 3 is broken"):
        await tenant.start_job()
    await tenant.close()
