"""The real engine against transformers + peft, and what must never leak from one adapter to another."""

from __future__ import annotations

import asyncio

import pytest

from engine.ports import LoadRefused, PortError
from engine.rollout.sampling import SampleParams

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

PROMPT = [10, 20, 30, 41, 52]


def held(sampler) -> dict[str, int]:
    return sampler.stats()["kv_tokens"]


def params(seed: int = 1, *, temperature: float = 1.0, tokens: int = 12) -> SampleParams:
    return SampleParams(max_new_tokens=tokens, temperature=temperature, seed=seed)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_its_logprobs_are_those_of_transformers_and_peft(sampler, base, adapter_files, new_ref, temperature):
    files = adapter_files(1)
    ref = await sampler.load(new_ref(), files)

    sampled = await sampler.sample(ref, PROMPT, params(temperature=temperature))

    expected = base.logprobs(files, PROMPT, sampled.completion_ids, temperature=temperature)
    assert sampled.logprobs == pytest.approx(expected, abs=1e-5)


async def test_adapters_of_different_rank_share_a_batch_and_stay_apart(sampler, base, adapter_files, new_ref):
    files = [adapter_files(2, rank=16), adapter_files(3, rank=8), adapter_files(4, rank=4, targets=("q_proj", "down_proj"))]
    refs = [await sampler.load(new_ref(), f) for f in files]
    before = sampler.stats()["decode_steps_with_2_adapters"]

    sampled = await asyncio.gather(*(sampler.sample(ref, PROMPT, params(seed)) for seed in range(4) for ref in refs))

    for i, one in enumerate(sampled):
        expected = base.logprobs(files[i % 3], PROMPT, one.completion_ids, temperature=1.0)
        assert one.logprobs == pytest.approx(expected, abs=1e-5)
    assert sampler.stats()["decode_steps_with_2_adapters"] > before


async def test_a_new_version_is_really_sampled(sampler, base, adapter_files, new_ref):
    job, prompt = "grows", list(range(3, 83)) * 2  # longer than a cache block, so that stale blocks would be found
    old, new = adapter_files(5), adapter_files(6)
    first = await sampler.load(new_ref(job, version=1), old)
    await sampler.sample(first, prompt, params())
    second = await sampler.load(new_ref(job, version=2), new)
    await sampler.unload(job, keep_version=2)

    sampled = await sampler.sample(second, prompt, params())

    assert sampled.cached_tokens == 0
    assert sampled.logprobs == pytest.approx(base.logprobs(new, prompt, sampled.completion_ids, temperature=1.0), abs=1e-5)


async def test_tenants_share_no_cache_for_the_same_prompt(sampler, adapter_files, new_ref):
    files, prompt = adapter_files(7), list(range(3, 83)) * 2
    alice = await sampler.load(new_ref(tenant="alice"), files)
    bob = await sampler.load(new_ref(tenant="bob"), files)
    await sampler.sample(alice, prompt, params(1))

    again, other = await sampler.sample(alice, prompt, params(2)), await sampler.sample(bob, prompt, params(3))

    assert (again.cached_tokens > 0, other.cached_tokens) == (True, 0)


async def test_the_same_seed_samples_the_same_tokens(sampler, adapter_files, new_ref):
    ref = await sampler.load(new_ref(), adapter_files(8))

    first, second, third = [await sampler.sample(ref, PROMPT, params(seed)) for seed in (5, 5, 6)]

    assert first.completion_ids == second.completion_ids != third.completion_ids


async def test_an_untrained_adapter_is_served(sampler, base, adapter_files, new_ref):
    files = adapter_files(9, std=0.0)
    ref = await sampler.load(new_ref(version=0), files)

    sampled = await sampler.sample(ref, PROMPT, params())

    assert sampled.logprobs == pytest.approx(base.logprobs(None, PROMPT, sampled.completion_ids, temperature=1.0), abs=1e-5)


async def test_an_adapter_that_the_engine_ignores_is_refused_by_the_probe(sampler, adapter_files, new_ref, monkeypatch):
    from engine.rollout import vllm_adapters as adapters

    files, ref = renamed(adapter_files(10), "model.layers", "model.lagers"), new_ref()
    facts = adapters.AdapterFacts(rank=16, names=("wrong",), does_nothing=False)
    monkeypatch.setattr(adapters, "inspect", lambda *_, **__: facts)

    there = await sampler.load(ref, files)
    with pytest.raises(LoadRefused, match="without effect"):
        await sampler.sample(there, PROMPT, params())
    with pytest.raises(PortError, match="not loaded"):
        await sampler.sample(ref, PROMPT, params())


async def test_an_adapter_with_wrong_names_is_refused_before_it_is_loaded(sampler, adapter_files, new_ref):
    with pytest.raises(LoadRefused, match="no LoRA weight"):
        await sampler.load(new_ref(), renamed(adapter_files(10), "lora_A.weight", "lora_A.default.weight"))


async def test_a_barely_trained_adapter_is_served(sampler, adapter_files, new_ref):
    ref = await sampler.load(new_ref(), adapter_files(11, std=1e-8))

    assert (await sampler.sample(ref, PROMPT, params())).completion_ids


async def test_an_adapter_in_use_is_removed_after_its_last_request(sampler, adapter_files, new_ref):
    ref = await sampler.load(new_ref(), adapter_files(12))
    running = asyncio.create_task(sampler.sample(ref, PROMPT, params(tokens=60)))
    await asyncio.sleep(0)
    await sampler.unload(ref.job)

    assert len((await running).completion_ids) > 0
    assert ref not in sampler.loaded()


async def test_cancelling_a_sample_frees_its_place(sampler, adapter_files, new_ref):
    ref = await sampler.load(new_ref(), adapter_files(13))
    running = asyncio.create_task(sampler.sample(ref, PROMPT, params(tokens=200)))
    await sampler.sample(ref, PROMPT, params(2, tokens=2))

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await sampler.sample(ref, PROMPT, params(2, tokens=2))

    assert sampler.stats()["running"] <= 1


async def test_it_says_for_whom_the_cache_holds_tokens_and_lets_go_of_them(sampler, adapter_files, new_ref):
    bob, alice = [await sampler.load(new_ref(tenant=name), adapter_files(15)) for name in ("bob", "alice")]
    running = [asyncio.create_task(sampler.sample(bob, PROMPT, params(seed, tokens=200))) for seed in range(8)]
    while held(sampler).get("bob", 0) < 2 * len(PROMPT):
        await sampler.sample(alice, PROMPT, params(tokens=1))

    await asyncio.gather(*running)

    while held(sampler):  # until the engine core has looked once more
        await asyncio.sleep(0)


async def test_a_long_prompt_beside_many_does_not_kill_the_engine(sampler, adapter_files, new_ref):
    """Cutting a seeded request's prompt into chunks is fatal to vLLM 0.32 on CPUs."""
    ref = await sampler.load(new_ref(), adapter_files(14))
    prompts = [[3 + i, *range(3, 83), *range(3, 83), 40] for i in range(60)]

    sampled = await asyncio.gather(*(sampler.sample(ref, prompt, params(i, tokens=2)) for i, prompt in enumerate(prompts)))

    assert len(sampled) == 60


def renamed(files, old, new):
    import safetensors.torch

    tensors = safetensors.torch.load(files["adapter_model.safetensors"])
    changed = safetensors.torch.save({name.replace(old, new): tensor for name, tensor in tensors.items()})
    return {**files, "adapter_model.safetensors": changed}
