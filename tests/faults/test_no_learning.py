"""The whole engine with a learning rate of 0: nothing may move."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(500)]

# Nats per token, in float32.
FLOOR = 1e-5


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_five_steps_without_learning_stay_on_the_same_policy(engine, temperature):
    views = engine.play(["add", "max"], steps=5, learning_rate=0.0, temperature=temperature)

    for view in views.values():
        assert view.state == "succeeded"
        assert [data["skipped"] for data in view.committed] == [None] * 5
        assert len({data["adapter_sha256"] for data in view.committed}) == 1
        assert max(data["mismatch_kl"] for data in view.committed) < FLOOR
        assert max(view.rewards) - min(view.rewards) < 0.5  # of 32 completions each, on other prompts
