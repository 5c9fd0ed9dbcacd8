from __future__ import annotations

import json

import pytest

from engine.bench.learning import CONTROL, LOSSES, META, figures, learning_jobs, parser, report
from engine.blobs import BlobStore
from engine.follow import JobView
from engine.models.tasks import split_of
from engine.spec import TrainSpec, parse_job
from tests.engine.bench.runs import run, step


def options(*words: str):
    return parser().parse_args(words)


def job(kind: str, seed: int, *, first: float, last: float, steps: int = 2) -> JobView:
    view = JobView(job=f"{kind}-{seed}", tenant=f"{kind}-{seed}", task=kind, steps=steps)
    for version in range(1, steps + 1):
        view.take({"kind": "step", "data": step(version, float(version), 1.0, 1.0, 1.0, 1.0, 1.0, mismatch_kl=1e-9)})
    for version, reward in ((0, first), (steps, last)):
        view.take({"kind": "eval", "data": {"version": version, "reward_mean": reward}})
    view.take({"kind": "ended", "data": {"state": "succeeded"}})
    return view


def test_every_loss_and_a_control_are_run_on_every_seed_with_the_default_settings(tmp_path):
    blobs = BlobStore(tmp_path)
    jobs = learning_jobs(blobs, options("--seeds", "2"))

    assert [one.kind for one in jobs] == [*LOSSES, CONTROL] * 2
    specs = [parse_job(one.spec) for one in jobs]
    assert [spec.seed for spec in specs] == [0] * 6 + [1] * 6
    for spec, one in zip(specs, jobs, strict=True):
        asked = {"learning_rate": 0.0} if one.kind == CONTROL else {"loss": one.kind}
        assert spec.train == TrainSpec(**asked)
        assert spec.rollout == type(spec.rollout)()


def test_no_held_out_prompt_is_trained_on(tmp_path):
    blobs = BlobStore(tmp_path)
    dataset = parse_job(learning_jobs(blobs, options("--seeds", "1"))[0].spec).dataset
    prompts = {
        name: {json.loads(line)["messages"][0]["content"] for line in blobs.path(getattr(dataset, name)).read_bytes().splitlines()}
        for name in ("train", "eval")
    }

    assert not prompts["train"] & prompts["eval"]
    assert {split_of(prompt) for prompt in prompts["eval"]} == {"eval"}


def test_lifts_are_told_in_points_with_mean_and_spread():
    jobs = [job("grpo", 0, first=0.5, last=0.9), job("grpo", 1, first=0.4, last=1.0), job(CONTROL, 0, first=0.5, last=0.51)]
    found = figures(run(*jobs), options("--seeds", "2"))

    assert found["grpo"]["lift_points"] == {"mean": 50.0, "std": 14.1421, "by_seed": [40.0, 60.0]}
    assert found["grpo"]["mismatch_kl"] == 1e-9
    assert found[META] | {"every_loss_lifts": True, "control_is_still": True, "holds": True} == found[META]
    assert "It holds." in report(found)


@pytest.mark.parametrize(
    ("loss_last", "control_last"),
    [
        (0.79, 0.5),  # 29 points
        (0.9, 0.47),  # the control moved by three
    ],
)
def test_one_seed_that_falls_short_spoils_the_verdict(loss_last, control_last):
    good = job("grpo", 0, first=0.5, last=0.95)
    found = figures(run(good, job("grpo", 1, first=0.5, last=loss_last), job(CONTROL, 0, first=0.5, last=control_last)), options())

    assert not found[META]["holds"]
    assert "does NOT hold" in report(found)


def test_a_job_that_was_not_measured_at_its_end_has_no_lift_and_fails():
    view = job("grpo", 0, first=0.5, last=0.95)
    del view.heldout[2]
    found = figures(run(view), options("--no-control"))

    assert (found["grpo"]["lift_points"], found[META]["holds"]) == (None, False)


def test_an_unknown_loss_is_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        options("--losses", "grpo,ppo")
    assert "unknown loss 'ppo'" in capsys.readouterr().err
