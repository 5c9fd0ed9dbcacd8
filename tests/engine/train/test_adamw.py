from __future__ import annotations

import pytest

pytestmark = pytest.mark.engine


def train(values_P, gradients, **knobs):
    import torch

    from engine.train.adamw import AdamWState, adamw_update

    state = AdamWState(mean_P=torch.zeros_like(values_P), square_P=torch.zeros_like(values_P), updates=0)
    for gradient_P in gradients:
        adamw_update(values_P, gradient_P, state, **knobs)
    return state


def test_it_agrees_with_torch_over_many_updates():
    import torch

    generator = torch.Generator().manual_seed(0)
    start_P = torch.randn(50, generator=generator)
    gradients = [torch.randn(50, generator=generator) for _ in range(20)]
    ours_P, theirs_P = start_P.clone(), start_P.clone().requires_grad_()
    train(ours_P, gradients, learning_rate=1e-2, weight_decay=0.1)
    optimizer = torch.optim.AdamW([theirs_P], lr=1e-2, weight_decay=0.1)
    for gradient_P in gradients:
        theirs_P.grad = gradient_P
        optimizer.step()
    torch.testing.assert_close(ours_P, theirs_P.detach(), rtol=1e-5, atol=1e-6)


def test_a_learning_rate_of_zero_leaves_every_bit_but_moves_the_moments():
    import torch

    values_P = torch.tensor([1.5, -0.0, 3e-9])
    before = values_P.numpy().tobytes()
    state = train(values_P, [-torch.ones(3)], learning_rate=0.0, weight_decay=0.1)
    assert values_P.numpy().tobytes() == before
    assert state.updates == 1
    assert state.mean_P.tolist() == pytest.approx([-0.1] * 3)
