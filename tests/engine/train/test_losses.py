from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.engine

KNOBS = {"clip_low": 0.2, "clip_high": 0.3, "importance_cap": 2.0}


def one_token(*, ratio: float, advantage: float, importance: float = 1.0, weight: float = 1.0):
    """The loss of one token with these ratios; its ``logprobs`` are a leaf that takes the gradient."""
    import torch

    from engine.train.losses import grpo_loss

    old_BT = torch.tensor([[-1.0]], dtype=torch.float64)
    logprobs_BT = (old_BT + math.log(ratio)).requires_grad_()
    terms = grpo_loss(
        logprobs_BT=logprobs_BT,
        old_logprobs_BT=old_BT,
        sampler_logprobs_BT=old_BT - math.log(importance),
        advantages_B=torch.tensor([advantage], dtype=torch.float64),
        mask_BT=torch.ones(1, 1, dtype=torch.float64),
        weights_BT=torch.full((1, 1), weight, dtype=torch.float64),
        **KNOBS,
    )
    terms.loss.backward()
    return terms, logprobs_BT.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),  # on-policy: plain policy gradient
        (1.2, 2.0, -2.4, -2.4),  # within the range
        (1.5, 2.0, -2.6, 0.0),  # above 1 + clip_high: held at 1.3 · 2
        (0.5, 2.0, -1.0, -1.0),  # too low, but better: not clipped
        (0.5, -2.0, 1.6, 0.0),  # below 1 − clip_low: held at 0.8 · −2
        (1.5, -2.0, 3.0, 3.0),  # too high, and worse: not clipped
    ],
)
def test_the_ratio_is_clipped_where_it_would_gain(ratio, advantage, loss, gradient):
    terms, found = one_token(ratio=ratio, advantage=advantage)
    assert terms.loss.item() == pytest.approx(loss)
    assert found == pytest.approx(gradient)
    assert terms.clipped_BT.item() == (gradient == 0.0)


@pytest.mark.parametrize(("importance", "counted"), [(0.5, 0.5), (1.0, 1.0), (1.9, 1.9), (7.0, 2.0)])
def test_the_importance_weight_is_truncated_at_its_cap(importance, counted):
    terms, gradient = one_token(ratio=1.0, advantage=1.0, importance=importance)
    assert terms.loss.item() == pytest.approx(-counted)
    assert gradient == pytest.approx(-counted)


def test_masked_tokens_count_for_nothing():
    import torch

    from engine.train.losses import grpo_loss

    logprobs_BT = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    terms = grpo_loss(
        logprobs_BT=logprobs_BT,
        old_logprobs_BT=logprobs_BT.detach(),
        sampler_logprobs_BT=torch.tensor([[-1.0, -1.0]]),
        advantages_B=torch.tensor([1.0]),
        mask_BT=torch.tensor([[1.0, 0.0]]),
        weights_BT=torch.tensor([[1.0, 1.0]]),
        **KNOBS,
    )
    terms.loss.backward()
    assert terms.loss.item() == -1.0
    assert logprobs_BT.grad.tolist() == [[-1.0, 0.0]]


def test_each_completion_weighs_the_same_whatever_its_length():
    from engine.train.losses import grpo_weight

    assert 5 * grpo_weight(completion_tokens=5, graded_completions=4) == pytest.approx(0.25)
    assert 50 * grpo_weight(completion_tokens=50, graded_completions=4) == pytest.approx(0.25)


def test_the_loss_equals_an_independent_double_precision_reference():
    import random

    import torch

    from engine.train.losses import grpo_loss

    rng = random.Random(5)
    table = [[[rng.uniform(-3, -0.1) for _ in range(3)] for _ in range(4)] for _ in range(6)]  # 6 completions, 4 tokens: new, old, sampler
    advantages = [rng.gauss(0, 1) for _ in range(6)]
    weights = [[rng.random() for _ in range(4)] for _ in range(6)]
    expected = 0.0
    for rows, advantage, row_weights in zip(table, advantages, weights, strict=True):
        for (new, old, sampler), weight in zip(rows, row_weights, strict=True):
            ratio = math.exp(new - old)
            clipped = min(max(ratio, 0.8), 1.3)
            expected -= weight * min(math.exp(old - sampler), 2.0) * min(ratio * advantage, clipped * advantage)
    new_BT, old_BT, sampler_BT = torch.tensor(table).unbind(-1)
    terms = grpo_loss(
        logprobs_BT=new_BT,
        old_logprobs_BT=old_BT,
        sampler_logprobs_BT=sampler_BT,
        advantages_B=torch.tensor(advantages),
        mask_BT=torch.ones(6, 4),
        weights_BT=torch.tensor(weights),
        **KNOBS,
    )
    assert terms.loss.item() == pytest.approx(expected, rel=1e-5)
