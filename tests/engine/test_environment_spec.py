"""What environments do to a job's size: all turns and all that is added between them lie in one context."""

from __future__ import annotations

import pytest

from engine.spec import ModelInfo, SpecError, check_against, kv_bytes, parse_job

STAND_IN = {"type": "stand_in", "tool_turns": 3, "latency": {"median_seconds": 0.5}, "max_observation_tokens": 10}


def spec(environment=None, **rollout):
    raw = {
        "base_model": "tiny",
        "dataset": {"version": "d", "train": {"sha256": "0" * 64, "bytes": 1}, "train_rows": 9},
        "grader": {"type": "string_check"},
        "rollout": {"prompts_per_step": 2, "group_size": 4, "max_prompt_tokens": 20, "max_new_tokens": 30} | rollout,
    }
    return parse_job(raw if environment is None else raw | {"environment": environment})


def model(context: int) -> ModelInfo:
    targets = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    sizes = {"kv_bytes_per_token": 1, "kv_budget_bytes": 1, "job_slots": 1, "max_rank": 64}
    return ModelInfo(name="tiny", max_context_tokens=context, target_modules=targets, **sizes)


def test_a_job_has_a_single_turn_unless_it_says_otherwise():
    assert spec().environment.type == "single_turn"
    assert spec().context_tokens == 20 + 30


def test_the_context_holds_every_turn_and_every_observation_that_is_read():
    assert spec(STAND_IN).context_tokens == 20 + 4 * 30 + 3 * 10
    assert spec(STAND_IN | {"answer_turn": False}).context_tokens == 20 + 3 * 30 + 2 * 10


def test_the_cache_is_reserved_for_the_whole_context():
    assert kv_bytes(spec(STAND_IN), 7) == 7 * 170 * 8


def test_turns_that_exceed_the_model_s_context_are_refused_with_the_sum():
    check_against(spec(STAND_IN), model(170))
    with pytest.raises(SpecError, match=r"rollout.max_new_tokens: .* 20 \+ 4 turns of 30 \+ 30 of the environment = 170"):
        check_against(spec(STAND_IN), model(169))


TOOLS = {"type": "tools", "max_calls": 3, "max_observation_tokens": 40}


def test_a_tool_loop_has_a_turn_more_than_calls_unless_told_otherwise():
    assert spec(TOOLS).context_tokens == 20 + 4 * 30 + 3 * 40
    assert spec(TOOLS | {"max_turns": 2}).context_tokens == 20 + 2 * 30 + 40


def test_a_limit_on_a_completions_tokens_bounds_its_context():
    assert spec(TOOLS | {"max_tokens": 50}).context_tokens == 20 + 50
    assert spec(TOOLS | {"max_tokens": 5000}).context_tokens == 20 + 4 * 30 + 3 * 40
    with pytest.raises(SpecError, match=r"got 20 \+ environment.max_tokens 50 = 70"):
        check_against(spec(TOOLS | {"max_tokens": 50}), model(69))


def test_an_endpoint_that_the_engine_does_not_offer_is_refused():
    job = spec(TOOLS | {"search": {"source": {"type": "endpoint", "name": "wiki"}}})
    check_against(job, model(1000).model_copy(update={"search_endpoints": ("wiki",)}))
    with pytest.raises(SpecError, match=r"environment.search.source.name: this engine has no search endpoint wiki; it offers none"):
        check_against(job, model(1000))


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        ({"type": "sandbox"}, "environment"),
        (STAND_IN | {"tool_turns": 0}, "environment.tool_turns"),
        (STAND_IN | {"latency": {"median_seconds": -1}}, "environment.latency.median_seconds"),
        ({"type": "single_turn", "tools": []}, "environment.tools"),
        (TOOLS | {"search": {"source": {"type": "endpoint", "name": ""}}}, "environment.search.source.name"),
        (TOOLS | {"tools": ["shell"]}, "environment.tools.0"),
        (TOOLS | {"tools": ["search", "search"]}, "environment.tools"),
        (TOOLS | {"max_observation_tokens": 8}, "environment.max_observation_tokens"),
    ],
)
def test_a_wrong_environment_is_refused_by_its_field(environment, field):
    with pytest.raises(SpecError) as caught:
        spec(environment)

    assert caught.value.problems[0][0] == field
