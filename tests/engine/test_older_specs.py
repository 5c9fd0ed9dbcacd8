from typing import Any

import pytest

from engine.spec import SpecError, parse_job

WAIT = {"median_seconds": 0.5, "sigma": 0.5, "cap_seconds": 3.0}


def spec_with(**rollout: Any) -> dict[str, Any]:
    dataset = {"version": "v1", "train": {"sha256": "0" * 64, "bytes": 1}, "train_rows": 100}
    return {"base_model": "tiny-math", "dataset": dataset, "grader": {"type": "string_check"}, "rollout": rollout}


def test_a_job_of_the_first_release_without_a_tool_wait_is_read_from_its_journal():
    assert parse_job(spec_with(tool_wait=None)) == parse_job(spec_with())


def test_a_tool_wait_of_the_first_release_has_become_an_environment():
    environment = parse_job(spec_with(tool_wait=WAIT)).environment
    assert (environment.type, environment.most_turns, environment.latency.median_seconds) == ("stand_in", 1, 0.5)


@pytest.mark.parametrize("raw", [{"rollout": 3}, 3, {"rollout": {"tool_wiat": None}}])
def test_what_no_release_ever_said_is_refused_as_before(raw):
    with pytest.raises(SpecError):
        parse_job(raw)
