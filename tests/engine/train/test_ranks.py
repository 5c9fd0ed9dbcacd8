from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import pytest

from engine import mismatch
from tests.engine.train.recorded import make_batch, make_request, make_spec

pytestmark = pytest.mark.engine

# float32 sums in another order: the gradients of one and of two ranks differ by rounding only.
TOLERANCE = 1e-6
DEADLINE_SECONDS = 100


def one_rank_of_two(rank: int, base_dir: str, home: str) -> None:
    """In a process of its own: take the steps and leave gradient and result behind."""
    import torch

    from engine.settings import load
    from engine.train.worker import TrainWorker

    torch.set_num_threads(1)
    settings = load(state=home, device="cpu", model=base_dir)
    worker = TrainWorker.start(settings, rank=rank, world_size=2, init_method=f"file://{home}/rendezvous")
    found = [((result.snapshot, result.token_mismatch), result.metrics, gradient) for result, gradient in take_steps(worker)]
    Path(home, f"rank{rank}.pickle").write_bytes(pickle.dumps(found))
    torch.distributed.destroy_process_group()


def take_steps(worker):
    """A step of several micro-batches, one with a single micro-batch (a rank has nothing), one with no signal at all, and one of several
    updates, whose minibatches fall to other ranks than scored them.
    """
    spec = make_spec(train__micro_batch_tokens=64)
    roomy = make_spec()
    updates = {"train__loss": "gspo", "train__epochs": 2, "train__minibatches": 2, "train__kl_coefficient": 0.1}
    several = make_spec(train__micro_batch_tokens=64, **updates)
    start = worker.fresh("a", spec)
    requests = [
        make_request("a", spec, start),
        make_request("a", roomy, start),
        make_request("a", roomy, start, make_batch("a", rewards=[1.0] * 12)),
        make_request("a", several, start),
    ]
    for request in requests:
        result = worker.step(request)
        yield result, worker.model.adapters.activate(spec.lora).gradient_P.clone()


@pytest.fixture(scope="module")
def two_ranks(base_dir, tmp_path_factory):
    home = tmp_path_factory.mktemp("ranks")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=one_rank_of_two, args=(rank, str(base_dir), str(home))) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(DEADLINE_SECONDS)
        process.kill()
    return [pickle.loads((home / f"rank{rank}.pickle").read_bytes()) for rank in range(2)]


def test_two_ranks_compute_the_gradient_of_one(worker, two_ranks):
    for (result, gradient), ((_, told), metrics, sharded) in zip(take_steps(worker), two_ranks[0], strict=True):
        assert (sharded - gradient).abs().max() <= TOLERANCE
        assert metrics["grad_norm"] == pytest.approx(result.metrics["grad_norm"], rel=1e-5)
        assert metrics["mismatch_kl"] == pytest.approx(result.metrics["mismatch_kl"], rel=1e-5)
        assert metrics["max_ratio"] == pytest.approx(result.metrics["max_ratio"], rel=1e-5)
        assert metrics["clip_share"] == pytest.approx(result.metrics["clip_share"])
        tokens = [len(told) // 2]
        assert mismatch.decode(told, tokens)[0] == pytest.approx(mismatch.decode(result.token_mismatch, tokens)[0], abs=1e-2)
        assert (metrics["skipped"], metrics["updates"]) == (result.metrics["skipped"], result.metrics["updates"])


def test_all_ranks_agree_and_only_the_first_returns_the_snapshot(two_ranks):
    for (files, metrics, gradient), (nothing, same_metrics, same_gradient) in zip(*two_ranks, strict=True):
        assert all(files) and not any(nothing)
        assert metrics == same_metrics
        assert (gradient == same_gradient).all()
