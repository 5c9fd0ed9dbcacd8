from __future__ import annotations

import pytest

from tests.engine.train.recorded import make_batch

pytestmark = pytest.mark.engine


def test_what_was_put_in_one_split_comes_out_in_any_other():
    import torch

    from engine.train.pack import pack
    from engine.train.token_table import TokenTable

    trajectories = make_batch("a").trajectories
    table = TokenTable([t.sampled_tokens for t in trajectories], device="cpu")
    for members in ((7, 2, 0), (1, 3, 4, 5), (11, 10, 9, 8, 6)):
        micro = pack(trajectories, members, device="cpu")
        table.put(micro, micro.sampler_logprobs_BT)
    for members in ((0, 1, 2, 3), (4,), (11, 5, 10), ()):
        micro = pack(trajectories, members, device="cpu")
        assert torch.equal(table.get(micro), micro.sampler_logprobs_BT)
