from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.engine

# w per token: ½, 3 and, behind the mask, 100.
RATIOS, MASK = [0.5, 3.0, 100.0], [1.0, 1.0, 0.0]


def weights(*, level: str = "token", mode: str = "truncate", cap: float = 2.0, ratios=RATIOS):
    import torch

    from engine.train.importance import importance_weights

    old_BT = torch.tensor([[-1.0] * len(ratios)], dtype=torch.float64)
    sampler_BT = old_BT - torch.tensor([ratios], dtype=torch.float64).log()
    found_BT, capped_BT = importance_weights(old_BT, sampler_BT, torch.tensor([MASK[: len(ratios)]]), level=level, mode=mode, cap=cap)
    return found_BT[0].tolist(), capped_BT[0].tolist()


@pytest.mark.parametrize(
    ("level", "mode", "cap", "expected", "capped"),
    [
        ("token", "truncate", 2.0, [0.5, 2.0], [False, True]),
        ("token", "mask", 2.0, [0.5, 0.0], [False, True]),
        ("token", "truncate", 5.0, [0.5, 3.0], [False, False]),
        ("sequence", "truncate", 2.0, [1.5, 1.5], [False, False]),  # ½ · 3, the masked token left out
        ("sequence", "truncate", 1.2, [1.2, 1.2], [True, True]),
        ("sequence", "mask", 1.2, [0.0, 0.0], [True, True]),
        ("token", "off", 2.0, [1.0, 1.0], [False, False]),
    ],
)
def test_weights_by_hand(level, mode, cap, expected, capped):
    found, bounded = weights(level=level, mode=mode, cap=cap)
    assert found[:2] == pytest.approx(expected)
    assert bounded[:2] == capped


@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_a_weight_that_is_not_a_number_stays_one_so_that_the_step_is_skipped(mode):
    found, capped = weights(mode=mode, ratios=[math.nan])
    assert math.isnan(found[0])
    assert capped == [False]


def test_no_gradient_flows_through_the_correction():
    import torch

    from engine.train.importance import importance_weights

    old_BT = torch.zeros(1, 2, requires_grad=True)
    found_BT, _ = importance_weights(old_BT, torch.ones(1, 2), torch.ones(1, 2), level="token", mode="truncate", cap=2.0)
    assert not found_BT.requires_grad
