"""Each loss against numbers worked by hand, and against its formula written again in plain double precision."""

from __future__ import annotations

import math
import random

import pytest

pytestmark = pytest.mark.engine

LOW, HIGH = 0.2, 0.3


def made(logprobs, old, advantages, mask=None):
    """``PolicyTokens`` in double precision; ``logprobs_BT`` is a leaf that takes the gradient."""
    import torch

    from engine.train.losses import PolicyTokens

    new_BT, old_BT, advantages_B = (torch.tensor(x, dtype=torch.float64) for x in (logprobs, old, advantages))
    mask_BT = torch.ones_like(new_BT) if mask is None else torch.tensor(mask, dtype=torch.float64)
    return PolicyTokens(logprobs_BT=new_BT.requires_grad_(), old_logprobs_BT=old_BT, advantages_B=advantages_B, mask_BT=mask_BT)


def run(loss: str, tokens, *, completions: float, tokens_total: float = 1, longest: int = 1, dual: float | None = None):
    """(the loss, its gradient by the log-probabilities, the ``TokenLoss``)."""
    from engine.train.losses import LOSSES, Clip, StepTotals

    totals = StepTotals(completions=completions, tokens=tokens_total, longest=longest)
    found = LOSSES[loss](tokens, totals, Clip(low=LOW, high=HIGH, dual=dual))
    found.total.backward()
    return found.total.item(), tokens.logprobs_BT.grad.tolist(), found


def one_token(loss: str, *, ratio: float, advantage: float, dual: float | None = None):
    value, ((gradient,),), found = run(loss, made([[-1.0 + math.log(ratio)]], [[-1.0]], [advantage]), completions=1, dual=dual)
    return value, gradient, found


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "gspo"])
@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "gradient", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, ""),  # on-policy: plain policy gradient
        (1.2, 2.0, -2.4, -2.4, ""),  # within the range
        (1.5, 2.0, -2.6, 0.0, "high"),  # above 1 + high: held at 1.3 · 2
        (0.5, 2.0, -1.0, -1.0, ""),  # too low, but better: not clipped
        (0.5, -2.0, 1.6, 0.0, "low"),  # below 1 − low: held at 0.8 · −2
        (1.5, -2.0, 3.0, 3.0, ""),  # too high, and worse: not clipped
    ],
)
def test_the_ratio_is_clipped_where_it_would_gain(loss, ratio, advantage, value, gradient, clipped):
    found_value, found_gradient, found = one_token(loss, ratio=ratio, advantage=advantage)
    assert (found_value, found_gradient) == (pytest.approx(value), pytest.approx(gradient))
    assert (found.clipped_low_BT.item(), found.clipped_high_BT.item()) == (clipped == "low", clipped == "high")


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "gspo"])
@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "gradient"),
    [
        (5.0, -2.0, 6.0, 0.0),  # above the dual bound: held at 3 · −2
        (2.5, -2.0, 5.0, 5.0),  # below it
        (0.5, -2.0, 1.6, 0.0),  # the lower end holds as before
        (5.0, 2.0, -2.6, 0.0),  # good completions know no dual clip
    ],
)
def test_the_dual_clip_bounds_bad_completions_only(loss, ratio, advantage, value, gradient):
    found_value, found_gradient, found = one_token(loss, ratio=ratio, advantage=advantage, dual=3.0)
    assert (found_value, found_gradient) == (pytest.approx(value), pytest.approx(gradient))
    assert found.clipped_high_BT.item() == (ratio == 5.0)


@pytest.mark.parametrize(("ratio", "weight"), [(1.0, 1.0), (1.5, 1.3), (0.5, 0.8)])
@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_cispo_clips_the_weight_and_keeps_the_gradient(ratio, weight, advantage):
    _, gradient, found = one_token("cispo", ratio=ratio, advantage=advantage)
    assert gradient == pytest.approx(-weight * advantage)
    assert (found.clipped_low_BT.item(), found.clipped_high_BT.item()) == (ratio < 0.8, ratio > 1.3)


# Two completions of one and of three tokens, in a step of four completions and ten tokens whose longest could have five.
SHORT_AND_LONG = {"logprobs": [[-1.0] * 3] * 2, "old": [[-1.0] * 3] * 2, "advantages": [1.0, 2.0], "mask": [[1, 0, 0], [1, 1, 1]]}


@pytest.mark.parametrize(
    ("loss", "gradient"),
    [
        ("grpo", [[-1 / 4, 0, 0], [-2 / 12] * 3]),  # each completion a quarter, whatever its length
        ("dr_grpo", [[-1 / 20, 0, 0], [-2 / 20] * 3]),  # each token a fifth of a quarter
        ("dapo", [[-1 / 10, 0, 0], [-2 / 10] * 3]),  # each token a tenth
        ("gspo", [[-1 / 4, 0, 0], [-2 / 12] * 3]),
        ("cispo", [[-1 / 10, 0, 0], [-2 / 10] * 3]),
    ],
)
def test_each_loss_weighs_tokens_as_it_says_and_masked_ones_not_at_all(loss, gradient):
    _, found, _ = run(loss, made(**SHORT_AND_LONG), completions=4, tokens_total=10, longest=5)
    assert found == [pytest.approx(row) for row in gradient]


def test_gspo_clips_whole_completions_by_their_geometric_mean():
    # Token ratios 4 and 1/2: each would be clipped or not by itself, but their geometric mean is √2 > 1.3.
    new = [[-1.0 + math.log(4.0), -1.0 + math.log(0.5)]]
    value, gradient, found = run("gspo", made(new, [[-1.0, -1.0]], [1.0]), completions=1)
    assert value == pytest.approx(-1.3)
    assert gradient == [[0.0, 0.0]]
    assert found.clipped_high_BT.tolist() == [[True, True]]
    value, gradient, _ = run("gspo", made(new, [[-1.0, -1.0]], [-1.0]), completions=1)
    assert value == pytest.approx(math.sqrt(2))
    assert gradient == [pytest.approx([math.sqrt(2) / 2] * 2)]


def drawn(completions: int = 6, width: int = 5):
    """Random new and old log-probabilities, lengths and advantages, far enough apart that every branch is taken."""
    rng = random.Random(5)
    new, old = ([[rng.uniform(-3, -0.1) for _ in range(width)] for _ in range(completions)] for _ in range(2))
    lengths = [rng.randint(1, width) for _ in range(completions)]
    return new, old, lengths, [rng.gauss(0, 1) for _ in range(completions)]


def plain_loss(loss: str, new, old, lengths, advantages, *, longest: int, dual: float | None) -> float:
    """The formulas of the papers, token by token."""
    count, total = len(lengths), sum(lengths)
    result = 0.0
    for new_row, old_row, length, advantage in zip(new, old, lengths, advantages, strict=True):
        ratios = [math.exp(a - b) for a, b in zip(new_row[:length], old_row[:length], strict=True)]
        if loss == "gspo":
            ratios = [math.prod(ratios) ** (1 / length)] * length
        for ratio, logprob in zip(ratios, new_row, strict=False):
            clipped = min(max(ratio, 1 - LOW), 1 + HIGH)
            gain = clipped * advantage * logprob if loss == "cispo" else min(ratio * advantage, clipped * advantage)
            if dual is not None and advantage < 0:
                gain = max(gain, dual * advantage)
            share = {"grpo": 1 / length / count, "gspo": 1 / length / count, "dr_grpo": 1 / longest / count}.get(loss, 1 / total)
            result -= gain * share
    return result


@pytest.mark.parametrize("dual", [None, 1.5])
@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "gspo", "cispo"])
def test_every_loss_equals_its_formula(loss, dual):
    new, old, lengths, advantages = drawn()
    dual = None if loss == "cispo" else dual
    mask = [[float(t < length) for t in range(5)] for length in lengths]
    value, _, _ = run(loss, made(new, old, advantages, mask), completions=6, tokens_total=sum(lengths), longest=7, dual=dual)
    assert value == pytest.approx(plain_loss(loss, new, old, lengths, advantages, longest=7, dual=dual), rel=1e-12)
    if dual is not None and loss != "gspo":
        assert value != pytest.approx(plain_loss(loss, new, old, lengths, advantages, longest=7, dual=None))


def test_the_spec_offers_exactly_the_losses_there_are():
    from engine.train.losses import LOSSES
    from engine.train_spec import TrainSpec

    assert tuple(LOSSES) == TrainSpec.model_fields["loss"].annotation.__args__
