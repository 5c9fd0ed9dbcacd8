"""A changed adapter is what is sampled: every commit of two tenants' jobs, held against transformers + peft on the same files."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from engine.epoch import claim
from engine.ports import Snapshot
from engine.rollout.sampling import SampleParams
from engine.store import Store
from tests.engine.train.recorded import make_request, make_spec

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

VERSIONS, TOKENS = 20, 8
# One prompt for both tenants and all versions, longer than a cache block: stale or foreign blocks would be found.
PROMPT = list(range(3, 83)) * 2
SPECS = {
    "alice": make_spec(rank=8, targets=("q_proj", "v_proj", "down_proj"), alpha=32, seed=1, train__learning_rate=3e-2),
    "bob": make_spec(rank=4, targets=("k_proj", "o_proj", "up_proj"), alpha=16, seed=2, train__learning_rate=3e-2),
}
TOLERANCE = 1e-4


class Reference:
    """transformers + peft, with one base model for all adapters."""

    def __init__(self, base):
        self._model = base.model()

    def greedy(self, files: Snapshot) -> tuple[list[int], list[float]]:
        """(token ids, log-probabilities) of the likeliest completion."""
        import torch

        ids, logprobs = list(PROMPT), []
        with _loaded(self._model, files) as model, torch.no_grad():
            for _ in range(TOKENS):
                scores_V = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
                ids.append(int(scores_V.argmax()))
                logprobs.append(float(scores_V.max()))
        return ids[len(PROMPT) :], logprobs

    def logprobs(self, files: Snapshot, completion_ids: list[int]) -> list[float]:
        import torch

        with _loaded(self._model, files) as model, torch.no_grad():
            scores_TV = model(torch.tensor([PROMPT + completion_ids])).logits[0, len(PROMPT) - 1 : -1].log_softmax(-1)
        return scores_TV[torch.arange(len(completion_ids)), torch.tensor(completion_ids)].tolist()


class _loaded:
    """The adapter's files on ``model`` inside of the block, and off it afterwards."""

    def __init__(self, model, files: Snapshot):
        self._model, self._files = model, files

    def __enter__(self):
        from peft import PeftModel

        with tempfile.TemporaryDirectory() as home:
            for name, data in self._files.items():
                (Path(home) / name).write_bytes(data)
            self._tuned = PeftModel.from_pretrained(self._model, home)
        return self._tuned

    def __exit__(self, *_: object) -> None:
        self._tuned.unload()


def commit_next(trainer, store: Store, tenant: str, version: int) -> Snapshot:
    """Train ``version`` from the one before and commit it; the adapter's files as the store has them."""
    job, spec = f"versions-{tenant}", SPECS[tenant]
    request = make_request(job, spec, store.snapshot(job, version - 1), version=version - 1)
    store.commit(job, version, trainer.step(request).snapshot, {})
    return store.adapter(job, version)


async def test_every_committed_version_is_what_is_sampled(sampler, base, one_rank, new_ref, tmp_path):
    from engine.train.worker import TrainWorker

    trainer, store, reference = TrainWorker(base.path), Store(tmp_path / "jobs", claim(tmp_path)), Reference(base)
    before: dict[str, Snapshot] = {}
    for tenant, spec in SPECS.items():
        store.create(f"versions-{tenant}", trainer.fresh(f"versions-{tenant}", spec))
        before[tenant] = store.adapter(f"versions-{tenant}", 0)
    seen: dict[str, list[list[int]]] = {tenant: [] for tenant in SPECS}
    for version in range(1, VERSIONS + 1):
        files = {tenant: commit_next(trainer, store, tenant, version) for tenant in SPECS}
        first, again = await sampled_twice(sampler, new_ref, files, version)
        for tenant in SPECS:
            expected_ids, expected_logprobs = reference.greedy(files[tenant])
            one = first[tenant]
            assert one.completion_ids == again[tenant].completion_ids == expected_ids, (tenant, version)
            assert one.logprobs == pytest.approx(expected_logprobs, abs=TOLERANCE)
            assert again[tenant].logprobs == pytest.approx(expected_logprobs, abs=TOLERANCE)
            # Nothing of the version before, nor of the other tenant, was taken for this one's; its own is found the second time.
            assert (one.cached_tokens, again[tenant].cached_tokens > 0) == (0, True)
            stale = reference.logprobs(before[tenant], expected_ids)
            assert max(abs(a - b) for a, b in zip(stale, expected_logprobs, strict=True)) > 10 * TOLERANCE
            seen[tenant].append(expected_ids)
        before = files
    # The words change too, and not only their probabilities.
    assert all(len(set(map(tuple, completions))) > 1 for completions in seen.values())
    assert seen["alice"] != seen["bob"]


async def sampled_twice(sampler, new_ref, files: dict[str, Snapshot], version: int):
    """Both tenants' greedy completions of the one prompt, in one batch, and then once more."""
    greedy = SampleParams(max_new_tokens=TOKENS, temperature=0.0, seed=0, ignore_eos=True)
    refs = {}
    for tenant, adapter in files.items():
        refs[tenant] = await sampler.load(new_ref(f"versions-{tenant}", version=version, tenant=tenant), adapter)
        await sampler.unload(f"versions-{tenant}", keep_version=version)
    rounds = []
    for _ in range(2):
        together = await asyncio.gather(*(sampler.sample(ref, PROMPT, greedy) for ref in refs.values()))
        rounds.append(dict(zip(refs, together, strict=True)))
    return rounds
