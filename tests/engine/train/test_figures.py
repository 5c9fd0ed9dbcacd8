from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.engine


def figures_of(trainer: list[float], sampler: list[float], mask: list[bool]):
    import torch

    from engine.train.figures import TokenFigures

    figures = TokenFigures()
    figures.add(
        logprobs_BT=torch.tensor([trainer]),
        sampler_logprobs_BT=torch.tensor([sampler]),
        entropy_BT=torch.ones(1, len(trainer)),
        mask_BT=torch.tensor([mask]),
    )
    return figures


def test_mismatch_is_the_k3_estimate_over_sampled_tokens():
    figures = figures_of([-1.0, -2.0, -9.0], [-1.5, -1.75, 0.0], [True, True, False])
    by_hand = (math.exp(0.5) - 1 - 0.5) + (math.exp(-0.25) - 1 + 0.25)
    assert figures.mismatch_kl == pytest.approx(by_hand)
    assert (figures.tokens, figures.entropy) == (2, 2.0)


def test_the_largest_ratio_counts_in_both_directions():
    assert figures_of([-1.0, -3.0], [-1.5, -1.0], [True, True]).log_ratio_max == pytest.approx(2.0)


def test_equal_distributions_have_no_mismatch():
    assert figures_of([-1.0, -2.0], [-1.0, -2.0], [True, True]).mismatch_kl == 0.0


def test_a_micro_batch_without_sampled_tokens_adds_nothing():
    assert figures_of([-1.0], [-5.0], [False]).tokens == 0


def test_the_distance_to_the_base_is_k3_over_sampled_tokens():
    import torch

    from engine.train.figures import TokenFigures

    figures, mask_BT = TokenFigures(), torch.tensor([[True, False]])
    policy_BT, base_BT = torch.tensor([[-1.0, -7.0]]), torch.tensor([[-1.5, 0.0]])
    figures.add(logprobs_BT=policy_BT, sampler_logprobs_BT=policy_BT, entropy_BT=policy_BT, mask_BT=mask_BT, base_logprobs_BT=base_BT)
    assert figures.base_kl == pytest.approx(math.exp(-0.5) - 1 + 0.5)


def test_updates_add_up_what_they_clipped_and_capped():
    import torch

    from engine.train.figures import TokenFigures
    from engine.train.objective import Objective

    low_BT, high_BT, capped_BT = (torch.tensor([row]) for row in ([True, False, False], [False, True, False], [True, True, False]))
    found = Objective(loss=torch.tensor(0.5), clipped_low_BT=low_BT, clipped_high_BT=high_BT, capped_BT=capped_BT)
    figures = TokenFigures()
    for _ in range(2):
        figures.add_update(found, torch.tensor([[True, True, False]]))
    assert (figures.loss, figures.updated, figures.clipped_low, figures.clipped_high, figures.capped) == (1.0, 4, 2, 2, 4)
