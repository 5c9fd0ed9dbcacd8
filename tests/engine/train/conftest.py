"""One trainer for all tests of this folder: a random model of tiny-math's shape and a process group of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from engine.models.make_tiny_math import build_model, build_tokenizer

    home = tmp_path_factory.mktemp("base")
    tokenizer = build_tokenizer()
    build_model(tokenizer, seed=3).save_pretrained(home)
    tokenizer.save_pretrained(home)
    return home


@pytest.fixture(scope="session")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    import torch
    import torch.distributed as dist

    from engine.train.worker import join_ranks

    torch.set_num_threads(1)
    meeting = tmp_path_factory.mktemp("group") / "rendezvous"
    join_ranks(backend="gloo", init_method=f"file://{meeting}", rank=0, world_size=1, timeout_seconds=60)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def worker(base_dir: Path, one_rank: None):
    """Shared on purpose: no test may see what another left in it."""
    from engine.train.worker import TrainWorker

    return TrainWorker(base_dir)
