from __future__ import annotations

import pytest

pytestmark = pytest.mark.engine


def output(name, tokens, *, reason=None, stats=None):
    import numpy as np
    from vllm.v1.engine import EngineCoreOutput
    from vllm.v1.outputs import LogprobsLists

    column = np.array([[token] for token in tokens], dtype=np.int32)
    logprobs = LogprobsLists(column, -column.astype(np.float32), np.ones(len(tokens), dtype=np.int32))
    return EngineCoreOutput(request_id=name, new_token_ids=list(tokens), new_logprobs=logprobs, finish_reason=reason, prefill_stats=stats)


def held(**kinds):
    from engine.rollout.vllm_final_outputs import FinalOutputs

    return FinalOutputs(lambda name: kinds[name])


def test_a_completion_leaves_whole_and_once():
    outputs = held(a=True)
    assert outputs.pass_on([output("a", [5], stats="prefill")]) == []
    assert outputs.pass_on([output("a", [6])]) == []

    (whole,) = outputs.pass_on([output("a", [7], reason=0)])

    assert (whole.new_token_ids, whole.prefill_stats) == ([5, 6, 7], "prefill")
    assert whole.new_logprobs.logprobs.tolist() == [[-5.0], [-6.0], [-7.0]]


def test_a_stream_is_left_alone():
    outputs = held(a=True, b=False)

    assert [o.request_id for o in outputs.pass_on([output("a", [1]), output("b", [2])])] == ["b"]


def test_a_completion_of_one_token_needs_no_holding():
    (whole,) = held(a=True).pass_on([output("a", [5], reason=0)])

    assert whole.new_token_ids == [5]


def test_what_was_held_for_an_aborted_request_is_forgotten():
    outputs = held(a=True)
    outputs.pass_on([output("a", [5])])
    outputs.forget(["a"])

    assert outputs.pass_on([output("a", [9], reason=0)])[0].new_token_ids == [9]


def test_a_step_made_wider_by_a_probe_beside_it_does_no_harm():
    import numpy as np

    outputs = held(a=True)
    wide = output("a", [6])
    wide.new_logprobs = wide.new_logprobs._replace(
        logprob_token_ids=np.full((1, 9), 6, dtype=np.int32), logprobs=np.full((1, 9), -6.0, dtype=np.float32)
    )
    for part in (output("a", [5]), wide):
        outputs.pass_on([part])

    (whole,) = outputs.pass_on([output("a", [7], reason=0)])

    assert whole.new_logprobs.logprobs.tolist() == [[-5.0], [-6.0], [-7.0]]
