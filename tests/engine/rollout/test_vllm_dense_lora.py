"""The dense products against a plain loop, and against vLLM's own operators; end to end against an engine without them."""

from __future__ import annotations

import asyncio

import pytest

from engine import device
from engine.rollout.sampling import SampleParams

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

SLOTS, RANK, WIDTH = 8, 4, 32
SLICES = (24, 8, 8)  # as q, k and v of one layer


class Layer:
    """Slot tensors as vLLM lays them out: A [slots, 1, r, H], B [slots, 1, O, r], one pair per slice. Slot s serves adapter id 100 + s."""

    def __init__(self, dtype, *, slices=SLICES, seed=0):
        import torch

        torch.manual_seed(seed)
        self.slices = slices
        self.a = tuple(torch.randn(SLOTS, 1, RANK, WIDTH).to(dtype) for _ in slices)
        self.b = tuple(torch.randn(SLOTS, 1, size, RANK).to(dtype) for size in slices)

    def by_loop(self, y, x, slots):
        """Row by row in float64: the definition."""
        import torch

        y = y.double()
        for t, slot in enumerate(slots):
            if slot >= 0:
                parts = [b[slot, 0].double() @ (a[slot, 0].double() @ x[t].double()) for a, b in zip(self.a, self.b, strict=True)]
                y[t] += torch.cat(parts)
        return y

    def by(self, wrapper, y, x):
        y = y.clone()
        wrapper.add_lora_linear(y, x, self.a, self.b, 1.0, self.slices)
        return y


def wrapper(kind, slots):

    made = kind(1024, 64, device="cpu")
    tell(made, slots)
    return made


def tell(made, slots):
    from vllm.lora.layers import LoRAMapping

    ids = tuple(100 + slot if slot >= 0 else 0 for slot in slots)
    made.update_metadata(LoRAMapping(ids, ids, is_prefill=True), [100 + s for s in range(SLOTS)], SLOTS, 99)


def inputs(rows, dtype):
    import torch

    torch.manual_seed(7)
    return torch.randn(rows, sum(SLICES)).to(dtype), torch.randn(rows, WIDTH).to(dtype)


ROWS = {
    "one adapter": [3] * 20,
    "all slots": [s for s in range(SLOTS) for _ in range(3)],
    "few of many, mixed": [6, 1, 6, 6, 1, 1, 6],
    "rows without an adapter": [-1, 2, -1, 5, 2, -1],
    "one adapter and rows without": [2, -1, 2],
    "no adapter at all": [-1, -1, -1],
    "one job's prompts beside others' tokens": [*[4] * 120, 1, 6, 2, 6],
    "prompts beside tokens and rows without an adapter": [-1, *[4] * 120, 1, -1, 6],
}


@pytest.mark.parametrize("slots", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.5)])
def test_each_row_gets_its_own_adapter_and_no_other(slots, dtype, tolerance):
    import torch

    from engine.rollout.vllm_dense_lora import DensePunica

    layer = Layer(getattr(torch, dtype))
    y, x = inputs(len(slots), getattr(torch, dtype))

    found = layer.by(wrapper(DensePunica, slots), y, x)

    torch.testing.assert_close(found.double(), layer.by_loop(y, x, slots), atol=tolerance, rtol=0.02)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.5)])
def test_it_equals_vllms_own_operators(dtype, tolerance):
    import torch
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    from engine.rollout.vllm_dense_lora import DensePunica

    slots = [0, 5, 5, 2, 0, 7, 2] * 4
    layer = Layer(getattr(torch, dtype))
    y, x = inputs(len(slots), getattr(torch, dtype))

    dense, own = (layer.by(wrapper(kind, slots), y, x) for kind in (DensePunica, PunicaWrapperCPU))

    torch.testing.assert_close(dense, own, atol=tolerance, rtol=0.02)


def test_a_slot_that_is_rewritten_is_seen():
    import torch

    from engine.rollout.vllm_dense_lora import DensePunica

    slots, layer = [1, 4, 1], Layer(torch.float32)
    y, x = inputs(3, torch.float32)
    made = wrapper(DensePunica, slots)
    layer.by(made, y, x)

    layer.a[2][4] = 0.5
    layer.b[0][1, 0, :4, :2].copy_(torch.ones(4, 2))

    torch.testing.assert_close(layer.by(made, y, x).double(), layer.by_loop(y, x, slots), atol=1e-4, rtol=1e-4)


def test_adapters_may_come_and_go_from_step_to_step():
    import torch

    from engine.rollout.vllm_dense_lora import DensePunica

    layer, made = Layer(torch.float32), wrapper(DensePunica, [0])
    prompts = [2] * 150
    for slots in ([0, 1], [1], [1, -1], [-1], [2, 3, 4, 5], [*prompts, 3, 4], [5], [0, 5], [7]):
        y, x = inputs(len(slots), torch.float32)
        tell(made, slots)
        torch.testing.assert_close(layer.by(made, y, x).double(), layer.by_loop(y, x, slots), atol=1e-4, rtol=1e-4)


def test_layers_do_not_share_their_stacks():
    import torch

    from engine.rollout.vllm_dense_lora import DensePunica

    slots, layers = [0, 3], [Layer(torch.float32, seed=s) for s in range(3)]
    y, x = inputs(2, torch.float32)
    made = wrapper(DensePunica, slots)
    for layer in layers * 2:
        torch.testing.assert_close(layer.by(made, y, x).double(), layer.by_loop(y, x, slots), atol=1e-4, rtol=1e-4)


def test_only_slots_in_use_are_multiplied():
    import torch

    from engine.rollout.vllm_dense_lora import step_rows

    assert step_rows(torch.tensor([5, 5, 2])).slots == (2, 5)
    assert step_rows(torch.tensor([1, 2, 3, 4]), slots_before=(0, 1, 2, 3, 4)).slots == (0, 1, 2, 3, 4)
    assert step_rows(torch.tensor([1, 2]), slots_before=(0, 1, 2)).slots == (1, 2)


def test_a_slot_in_use_keeps_its_place_and_a_new_one_takes_that_of_another():
    from engine.rollout.vllm_dense_lora import places_of

    assert places_of({4, 9, 6}, before=(4, 5, 6)) == (4, 9, 6)
    assert places_of({4, 9, 6, 7}, before=(4, 6)) == (4, 6, 7, 9)
    assert places_of({6}, before=(4, 5, 6)) == (6,)


@pytest.fixture
def stacks():
    from engine.rollout.vllm_dense_lora import Stacks

    class Watched(Stacks):
        def _write(self, place, slot, *stacked):
            written.append((place, slot))
            super()._write(place, slot, *stacked)

    written: list[tuple[int, int]] = []
    return Watched(), written


@pytest.mark.parametrize(
    ("slots", "ids", "expected"),
    [
        ((0, 3, 2), (10, 11, 12, 16), [(1, 3)]),  # another slot in the second place
        ((0, 1, 2), (10, 11, 14, 13), [(2, 2)]),  # another adapter in slot 2
        ((0, 1, 2), (10, 11, 12, 15), []),  # another adapter in a slot that no row uses
        ((0, 1, 2), (10, 11, 12, 13), [(0, 0), (1, 1), (2, 2)]),  # nothing explains the change
    ],
)
def test_a_new_adapter_costs_the_writing_of_its_own_place_only(stacks, slots, ids, expected):
    import torch

    layer, (made, written) = Layer(torch.float32), stacks
    made.refresh(layer.a, layer.b, (0, 1, 2), (10, 11, 12, 13))
    written.clear()
    layer.a[0][3] = 1.0
    made.refresh(layer.a, layer.b, slots, ids)
    assert written == expected


def test_stacks_are_as_wide_as_the_widest_adapter_in_them():
    import torch

    from engine.rollout.vllm_dense_lora import Stacks

    layer, made = Layer(torch.float32), Stacks()
    for narrow, rank in ((0, 1), (1, 2), (2, 0)):
        for a in layer.a:
            a[narrow, 0, rank:] = 0.0
    for slots, rank in (((0,), 1), ((0, 1), 2), ((0, 2), 2), ((0, 3), RANK), ((0, 1), RANK), ((2,), 1)):
        made.refresh(layer.a, layer.b, slots, tuple(range(SLOTS)))
        assert made.a_SHR.shape == (len(slots), WIDTH, len(SLICES) * rank)


@pytest.mark.asyncio(loop_scope="session")
async def test_an_engine_without_it_samples_the_same(sampler, base, vllm_environment, adapter_files, new_ref, folder):
    from engine.rollout.vllm_worker import VllmSampler

    sparse = device.profile("cpu", rollout_cores=(min(device.available_cores()),), kv_gib=0.25, dense_lora=False)
    files = [adapter_files(21), adapter_files(22, rank=8)]
    dense_answers = await _answers(sampler, files, new_ref)
    other = await VllmSampler.start(base.sampler_config(sparse, folder))
    try:
        sparse_answers = await _answers(other, files, new_ref)
    finally:
        await other.close()

    for dense, own in zip(dense_answers, sparse_answers, strict=True):
        assert dense.completion_ids == own.completion_ids
        assert dense.logprobs == pytest.approx(own.logprobs, abs=1e-5)


async def _answers(sampler, files, new_ref):
    refs = [await sampler.load(new_ref(), f) for f in files]
    params = [SampleParams(max_new_tokens=12, temperature=1.0, seed=seed) for seed in range(6)]
    return await asyncio.gather(*(sampler.sample(ref, [10, 20, 30 + i], p) for ref in refs for i, p in enumerate(params)))
