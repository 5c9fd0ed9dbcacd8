from __future__ import annotations

import pytest

pytestmark = pytest.mark.engine

from engine.trajectory import Turn  # noqa: E402
from tests.engine.train.recorded import make_batch  # noqa: E402


def test_no_micro_batch_exceeds_its_tokens_and_every_completion_is_in_one():
    from engine.train.pack import plan

    lengths = [7, 3, 9, 4, 4, 8, 1, 9]
    batches = plan(lengths, range(8), max_tokens=18)
    assert sorted(index for batch in batches for index in batch) == list(range(8))
    assert all(len(batch) * max(lengths[index] for index in batch) <= 18 for batch in batches)


def test_a_completion_longer_than_the_budget_goes_alone():
    from engine.train.pack import plan

    assert plan([100, 4, 4], range(3), max_tokens=10) == [(0,), (1, 2)]


def test_nothing_to_do_is_no_micro_batch():
    from engine.train.pack import plan

    assert plan([5, 5], [], max_tokens=10) == []


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_all_ranks_get_the_same_number_of_micro_batches(world_size):
    from engine.train.pack import share_of_rank

    batches = [(0,), (1,), (2,), (3,)]
    shares = [share_of_rank(batches, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert len({len(share) for share in shares}) == 1
    assert sorted(batch for share in shares for batch in share if batch) == batches


def test_tensors_hold_the_sampled_ids_and_mask_exactly_the_completions():
    from engine.train.pack import pack

    trajectories = make_batch("a").trajectories
    micro = pack(trajectories, (5, 0), device="cpu")
    for row, index in enumerate((5, 0)):
        t, mask_T = trajectories[index], micro.mask_BT[row]
        assert micro.ids_BT[row, : len(t.prompt_ids)].tolist() == t.prompt_ids
        assert micro.ids_BT[row][mask_T].tolist() == t.completion_ids
        assert micro.sampler_logprobs_BT[row][mask_T].tolist() == pytest.approx(t.logprobs)
        assert not mask_T[: len(t.prompt_ids)].any()


def test_what_an_environment_added_between_turns_is_masked_out():
    from engine.train.pack import pack

    turns = [Turn(sampled=2, added=3, text=""), Turn(sampled=1, added=0, text="")]
    (t, *_) = make_batch(
        "a", prompt_ids=[9, 9], completion_ids=[4, 5, 90, 91, 92, 6], logprobs=[-1.0, -2.0, -3.0], turns=turns
    ).trajectories
    micro = pack([t], (0,), device="cpu")
    assert micro.ids_BT.tolist() == [[9, 9, 4, 5, 90, 91, 92, 6]]
    assert micro.mask_BT.tolist() == [[False, False, True, True, False, False, False, True]]
    assert micro.sampler_logprobs_BT.tolist() == [[0, 0, -1, -2, 0, 0, 0, -3]]


def test_an_empty_share_becomes_work_that_masks_nothing_in():
    from engine.train.pack import pack

    micro = pack([], (), device="cpu")
    assert micro.ids_BT.shape == (1, 2)
    assert not micro.mask_BT.any()
