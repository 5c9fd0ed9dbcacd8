"""What the sampler does when vLLM is slow, stuck or gone: a stand-in takes vLLM's place, no engine is started."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from engine.ports import LoadRefused, PortError, SamplerDied
from engine.rollout.sampling import SampleParams

pytestmark = [pytest.mark.engine]


BASE_LOGPROB = -2.0


class StandIn:
    """``AsyncLLM`` as far as loads go: ``hold`` keeps ``add_lora`` from answering, ``error`` is what it raises; ``hold_removal``,
    ``removal_error`` likewise of ``remove_lora``. What it generates has the log-probability of the base model under ``ignored`` ids of
    adapters, another under the rest; requests for one token, which are probes, wait for ``hold_probe``.
    """

    def __init__(self):
        self.hold: asyncio.Event | None = None
        self.hold_removal: asyncio.Event | None = None
        self.removal_error: Exception | None = None
        self.error: Exception | None = None
        self.hold_probe: asyncio.Event | None = None
        self.ignored: set[int] = set()
        self.loaded: set[int] = set()
        self.answered: list[tuple[int, int]] = []  # (adapter, most tokens)

    async def generate(self, prompt, params, request_id, *, lora_request, priority):
        lora_id = lora_request.lora_int_id
        if params.max_tokens == 1 and self.hold_probe is not None:
            await self.hold_probe.wait()
        assert lora_id in self.loaded
        likely = SimpleNamespace(logprob=BASE_LOGPROB if lora_id in self.ignored else BASE_LOGPROB - 1)
        logprobs = [dict.fromkeys(range(8), likely)] if params.max_tokens == 1 else SimpleNamespace(logprobs=[BASE_LOGPROB])
        said = SimpleNamespace(token_ids=[1], logprobs=logprobs, finish_reason="length")
        self.answered.append((lora_id, params.max_tokens))
        yield SimpleNamespace(outputs=[said], num_cached_tokens=0)

    async def add_lora(self, request):
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        self.loaded.add(request.lora_int_id)

    async def remove_lora(self, lora_id):
        if self.hold_removal is not None:
            await self.hold_removal.wait()
        if self.removal_error is not None:
            raise self.removal_error
        self.loaded.discard(lora_id)


async def removed(sampler):
    await asyncio.gather(*sampler._leaving, return_exceptions=True)
    await asyncio.sleep(0)


@pytest.fixture
def stand_in():
    return StandIn()


@pytest.fixture
def sampler(base, vllm_environment, folder, stand_in):
    from engine.rollout.counters import Counters
    from engine.rollout.vllm_worker import VllmSampler

    folder.mkdir()
    config = base.sampler_config(vllm_environment, folder, call_seconds=0.05)
    sampler = VllmSampler(config, stand_in, Counters.create(folder / "counters"))
    sampler._base_probe = dict.fromkeys(range(8), BASE_LOGPROB)
    return sampler


@pytest.fixture(scope="module")
def untrained(adapter_files):
    return adapter_files(51, std=0.0)


@pytest.fixture(scope="module")
def trained(adapter_files):
    return adapter_files(52)


FOUR_TOKENS = SampleParams(max_new_tokens=4, temperature=1.0, seed=1)


async def test_a_load_that_never_answers_means_that_the_sampler_is_dead(sampler, stand_in, untrained, new_ref):
    stand_in.hold = asyncio.Event()

    with pytest.raises(SamplerDied, match=r"did not load .* within 0.05 s"):
        await sampler.load(new_ref(), untrained)

    assert sampler.died.is_set()


async def test_an_engine_that_is_gone_means_that_the_sampler_is_dead(sampler, stand_in, untrained, new_ref):
    from vllm.v1.engine.exceptions import EngineDeadError

    stand_in.error = EngineDeadError()

    with pytest.raises(SamplerDied):
        await sampler.load(new_ref(), untrained)

    assert sampler.died.is_set()


async def test_a_refused_load_leaves_the_sampler_alive_and_no_files(sampler, stand_in, untrained, new_ref, folder):
    stand_in.error = ValueError("expected target modules")

    with pytest.raises(LoadRefused, match="expected target modules"):
        await sampler.load(new_ref(), untrained)

    assert (sampler.died.is_set(), list(folder.glob("adapter-*"))) == (False, [])


async def test_two_callers_share_one_load(sampler, stand_in, untrained, new_ref):
    refs = await asyncio.gather(*(sampler.load(new_ref("shared"), untrained) for _ in range(2)))

    assert (refs[0], len(stand_in.loaded)) == (refs[1], 1)


async def test_a_job_that_leaves_while_its_adapter_loads_leaves_nothing_behind(sampler, stand_in, untrained, new_ref):
    stand_in.hold = asyncio.Event()
    loading = asyncio.create_task(sampler.load(new_ref("leaver"), untrained))
    await asyncio.sleep(0)
    loading.cancel()
    leaving = asyncio.create_task(sampler.unload("leaver"))
    await asyncio.sleep(0)

    stand_in.hold.set()
    await leaving
    await removed(sampler)

    assert (sampler.loaded(), stand_in.loaded) == ([], set())


async def test_every_load_has_an_id_of_its_own(sampler, stand_in, untrained, new_ref):
    for _ in range(3):
        await sampler.load(new_ref("again"), untrained)
        await sampler.unload("again")
    await sampler.load(new_ref("again"), untrained)
    await removed(sampler)

    assert stand_in.loaded == {4}


async def test_the_next_version_does_not_wait_for_the_last_one_to_be_removed(sampler, stand_in, untrained, new_ref):
    first = await sampler.load(new_ref("steps", version=1), untrained)
    stand_in.hold_removal = asyncio.Event()
    await sampler.unload("steps", keep_version=2)
    second = await sampler.load(new_ref("steps", version=2), untrained)
    assert (sampler.loaded(), stand_in.loaded) == ([second], {1, 2})

    stand_in.hold_removal.set()
    await removed(sampler)

    assert (sampler.loaded(), stand_in.loaded, first.version) == ([second], {2}, 1)


async def test_an_engine_that_removes_nothing_any_more_is_dead(sampler, stand_in, untrained, new_ref):
    await sampler.load(new_ref("stuck"), untrained)
    stand_in.hold_removal = asyncio.Event()

    await sampler.unload("stuck")
    await removed(sampler)

    assert sampler.died.is_set()


async def test_a_removal_that_fails_is_told_in_the_log(sampler, stand_in, untrained, new_ref, caplog):
    ref = await sampler.load(new_ref("clings"), untrained)
    stand_in.removal_error = ValueError("no such adapter")

    await sampler.unload("clings")
    await removed(sampler)

    assert (sampler.died.is_set(), f"could not remove {ref.name}" in caplog.text, "no such adapter" in caplog.text) == (False, True, True)


async def test_requests_do_not_wait_for_the_probe_but_their_answers_do(sampler, stand_in, trained, new_ref):
    stand_in.hold_probe = asyncio.Event()
    ref = await sampler.load(new_ref("fast"), trained)
    sampling = asyncio.create_task(sampler.sample(ref, [1], FOUR_TOKENS))
    while (1, 4) not in stand_in.answered:
        await asyncio.sleep(0)

    assert not sampling.done()
    stand_in.hold_probe.set()
    assert (await sampling).completion_ids == [1]
    assert stand_in.answered == [(1, 4), (1, 1)]


async def test_what_the_engine_ignores_is_refused_to_all_who_sampled_with_it_and_removed(sampler, stand_in, trained, new_ref):
    stand_in.ignored = {1, 2}
    ref = await sampler.load(new_ref("mute"), trained)

    found = await asyncio.gather(*(sampler.sample(ref, [1], FOUR_TOKENS) for _ in range(3)), return_exceptions=True)
    await removed(sampler)

    assert [(type(one), "without effect" in str(one)) for one in found] == [(LoadRefused, True)] * 3
    assert (sampler.loaded(), stand_in.loaded) == ([], set())


async def test_a_refused_adapter_is_tried_again_once_it_has_gone(sampler, stand_in, trained, new_ref):
    stand_in.ignored = {1, 2}
    ref = await sampler.load(new_ref("mute"), trained)
    with pytest.raises(LoadRefused):
        await sampler.sample(ref, [1], FOUR_TOKENS)

    again = await sampler.load(new_ref("mute"), trained)

    assert (await sampler.sample(again, [1], FOUR_TOKENS)).completion_ids == [1]


async def test_a_chat_waits_for_the_probe_before_its_first_piece(sampler, stand_in, trained, new_ref):
    stand_in.ignored = {1, 2}
    ref = await sampler.load(new_ref("mute"), trained)

    with pytest.raises(LoadRefused, match="without effect"):
        async for _ in sampler.stream(ref, [1], FOUR_TOKENS):
            pass

    assert (1, 4) not in stand_in.answered


async def test_an_adapter_stays_until_its_probe_has_been_answered(sampler, stand_in, trained, new_ref):
    stand_in.hold_probe = asyncio.Event()
    await sampler.load(new_ref("leaver"), trained)
    await sampler.unload("leaver")

    assert stand_in.loaded == {1}
    stand_in.hold_probe.set()
    while stand_in.loaded:
        await asyncio.sleep(0)
    assert sampler.loaded() == []


async def test_a_probe_that_never_answers_means_that_the_sampler_is_dead(sampler, stand_in, trained, new_ref):
    stand_in.hold_probe = asyncio.Event()
    ref = await sampler.load(new_ref("stuck"), trained)

    with pytest.raises(PortError, match=r"did not probe within 0.05 s"):
        await sampler.sample(ref, [1], FOUR_TOKENS)

    assert sampler.died.is_set()
