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
