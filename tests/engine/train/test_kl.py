"""The estimators by hand, and their gradients against the exact divergence, summed over everything a small policy can say."""

from __future__ import annotations

import itertools
import math

import pytest

pytestmark = pytest.mark.engine

VOCABULARY, LENGTH = 3, 3


@pytest.mark.parametrize(("estimator", "value"), [("k1", 0.5), ("k2", 0.125), ("k3", math.exp(-0.5) - 1 + 0.5)])
def test_estimates_by_hand(estimator, value):
    import torch

    from engine.train.kl import kl_estimate

    assert kl_estimate(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), estimator).item() == pytest.approx(value)


def policy(seed: int):
    """Logits of a policy whose next token depends on the place and on the token before: of shape (LENGTH, before, next)."""
    import torch

    return torch.randn(LENGTH, VOCABULARY, VOCABULARY, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def logprobs_of(logits, sequences):
    """log π of each token of each sequence, of shape BT."""
    import torch

    table = logits.log_softmax(-1)
    return torch.stack([torch.stack([table[t, s[t - 1] if t else 0, s[t]] for t in range(LENGTH)]) for s in sequences])


def every_sequence():
    return list(itertools.product(range(VOCABULARY), repeat=LENGTH))


def expected_gradient(estimator: str):
    """E over π of the gradient of the penalties' sum, and the gradient of the exact KL(π ‖ base)."""
    import torch

    from engine.train.kl import kl_penalty

    logits, base = policy(1).requires_grad_(), policy(2)
    new_BT, base_BT = logprobs_of(logits, every_sequence()), logprobs_of(base, every_sequence())
    chances_B = new_BT.sum(-1).exp()
    penalty_BT = kl_penalty(new_BT, base_BT, torch.ones_like(new_BT), estimator)
    (estimated,) = torch.autograd.grad((chances_B.detach() * penalty_BT.sum(-1)).sum(), logits, retain_graph=True)
    (exact,) = torch.autograd.grad((chances_B * (new_BT - base_BT).sum(-1)).sum(), logits)
    return estimated, exact, (chances_B * penalty_BT.sum(-1)).sum().item(), (chances_B * (new_BT - base_BT).sum(-1)).sum().item()


def test_k1_descends_the_exact_divergence_of_whole_sequences():
    estimated, exact, value, divergence = expected_gradient("k1")
    assert exact.abs().max() > 0.05
    assert (estimated - exact).abs().max() < 1e-12
    assert value == pytest.approx(divergence)


def test_k3_estimates_the_divergence_without_bias():
    _, _, value, divergence = expected_gradient("k3")
    assert value == pytest.approx(divergence)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_penalty_pulls_every_estimator_towards_the_base(estimator):
    import torch

    estimated, exact, *_ = expected_gradient(estimator)
    assert torch.nn.functional.cosine_similarity(estimated.flatten(), exact.flatten(), dim=0) > 0.8


def test_masked_tokens_are_no_part_of_what_is_still_to_come():
    import torch

    from engine.train.kl import kl_penalty

    new_BT = torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True)
    base_BT = torch.tensor([[-1.5, -9.0, -3.25]])
    kl_penalty(new_BT, base_BT, torch.tensor([[1.0, 0.0, 1.0]]), "k1")[0, [0, 2]].sum().backward()
    assert new_BT.grad.tolist() == [[0.75, 0.0, 0.25]]


def test_an_unknown_estimator_is_named():
    import torch

    from engine.train.kl import kl_estimate

    with pytest.raises(ValueError, match="'k4'; there are k1, k2 and k3"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")
