"""One vLLM engine for all tests of this folder (its start takes 8–15 s), on a random model of tiny-math's shape."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from engine import device
from engine.ports import AdapterRef, Snapshot
from tests.engine.rollout.real import RealBase

MAX_RANK = 16
JOB_SLOTS = 6


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> RealBase:
    return RealBase.make(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def vllm_environment() -> device.DeviceProfile:
    profile = device.profile("cpu", rollout_cores=(min(device.available_cores()),), kv_gib=0.5)
    os.environ.update(profile.vllm_env)
    os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"
    return profile


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sampler(base: RealBase, vllm_environment: device.DeviceProfile, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator:
    from engine.rollout.vllm_worker import VllmSampler

    started = await VllmSampler.start(base.sampler_config(vllm_environment, tmp_path_factory.mktemp("sampler") / "adapters"))
    yield started
    await started.close()


@pytest.fixture
def new_ref() -> Callable[..., AdapterRef]:
    """Refs of jobs that no other test knows."""
    return _new_ref


_counter = iter(range(1, 10**9))


def _new_ref(job: str = "", *, version: int = 1, tenant: str = "alice") -> AdapterRef:
    number = next(_counter)
    return AdapterRef(tenant=tenant, job=job or f"job-{number}", version=version, load_id=number)


@pytest.fixture(scope="session")
def adapter_files(base: RealBase) -> Callable[..., Snapshot]:
    return base.adapter


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    """A trainer's process group of one, for tests in which a trainer looks at what was sampled."""
    import torch
    import torch.distributed as dist

    from engine.train.worker import join_ranks

    torch.set_num_threads(1)
    join_ranks(backend="gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1, timeout_seconds=60)
    yield
    dist.destroy_process_group()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "adapters"
