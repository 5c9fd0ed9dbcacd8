"""One training step: decode → score → (differentiate → reduce → update) per minibatch → encode.

A pure function of its request. The model, its adapters and the ranks are only where the arithmetic happens: whatever a step needs is
copied in from the snapshot, and whatever it leaves behind is overwritten by the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch.distributed as dist
from torch import Tensor

from engine import mismatch
from engine.ports import PortError, TrainRequest
from engine.spec import JobSpec
from engine.train.adamw import AdamWState, adamw_update
from engine.train.batch import StepBatch, open_batch
from engine.train.figures import TokenFigures
from engine.train.lora import AdapterShape
from engine.train.losses import StepTotals
from engine.train.minibatches import plan_updates
from engine.train.passes import RankModel, StepPasses, open_passes
from engine.train.schedule import learning_rate_at
from engine.train.snapshot import TrainerRecord, TrainerState, adamw_state, decode_snapshot

MAX_EXPONENT = 700.0  # exp overflows a float64 beyond
LARGE_REWARD = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOutcome:
    state: TrainerState
    shape: AdapterShape
    metrics: dict[str, Any]
    token_mismatch: bytes


def take_step(model: RankModel, request: TrainRequest) -> StepOutcome:
    """Version + 1 of the job and what happened on the way; the same on every rank.

    A step is whole: when the gradient of one of its updates is not finite, none of them counts.

    Raises ``StaleBatch`` or ``PortError`` before any work for a request that does not fit together, and ``PortError`` blamed on the user
    or the reward after too many non-finite steps in a row.
    """
    batch, spec = open_batch(request), request.spec
    shape = model.adapters.activate(spec.lora)
    state = decode_snapshot(request.snapshot, shape.slots, version=request.version)
    shape.values_P.copy_(state.values_P)
    shape.gradient_P.zero_()
    updates = plan_updates(batch.training, batch.group_size, spec.train, seed=state.record.seed, version=request.version)
    passes = open_passes(model, batch, spec, updates=len(updates))
    moments = adamw_state(state, model.device)
    rate = learning_rate_at(spec.train, request.version)
    grad_norms = _update_all(passes, updates, shape, moments, rate)
    passes.figures.reduce(model.world_size)
    token_mismatch = mismatch.encode(passes.token_mismatch())
    skipped = _why_skip(batch, grad_norms)
    record = _count(state.record, skipped)
    _check_patience(record, spec, batch)
    return StepOutcome(
        state=_trained(state, shape, moments, record) if skipped is None else replace(state, record=record),
        shape=shape,
        metrics=_metrics(batch, passes.figures, request, record, skipped, grad_norms, rate),
        token_mismatch=token_mismatch,
    )


def _update_all(
    passes: StepPasses, updates: list[tuple[int, ...]], shape: AdapterShape, moments: AdamWState, learning_rate: float
) -> list[float]:
    """Apply the updates to ``shape`` and ``moments``; the norms of their gradients. Ends early at one that is not finite."""
    train, grad_norms = passes.spec.train, []
    totals = passes.batch.totals(passes.spec, parts=len(updates) // train.epochs) if updates else None
    for members in updates:
        grad_norms.append(_accumulate(passes, members, totals, shape))
        if not math.isfinite(grad_norms[-1]):
            break
        shape.gradient_P.mul_(min(1.0, train.max_grad_norm / (grad_norms[-1] + 1e-6)))
        adamw_update(shape.values_P, shape.gradient_P, moments, learning_rate=learning_rate, weight_decay=train.weight_decay)
    return grad_norms


def _accumulate(passes: StepPasses, members: tuple[int, ...], totals: StepTotals, shape: AdapterShape) -> float:
    """Leave one update's gradient, of all ranks, in the adapter; its norm."""
    shape.gradient_P.zero_()
    passes.differentiate(members, totals)
    if passes.model.world_size > 1:
        dist.all_reduce(shape.gradient_P)
    return float(shape.gradient_P.norm())


def _why_skip(batch: StepBatch, grad_norms: list[float]) -> str | None:
    if not batch.training:
        return "no_signal"
    return None if all(map(math.isfinite, grad_norms)) else "nonfinite"


def _trained(state: TrainerState, shape: AdapterShape, moments: AdamWState, record: TrainerRecord) -> TrainerState:
    """The state behind the updates, on the CPU."""
    values_P: Tensor = shape.values_P.to("cpu", copy=True)
    record = replace(record, updates=moments.updates)
    return replace(state, values_P=values_P, mean_P=moments.mean_P.cpu(), square_P=moments.square_P.cpu(), record=record)


def _count(record: TrainerRecord, skipped: str | None) -> TrainerRecord:
    nonfinite = skipped == "nonfinite"
    return replace(
        record,
        version=record.version + 1,
        no_signal_steps=record.no_signal_steps + (skipped == "no_signal"),
        nonfinite_steps=record.nonfinite_steps + nonfinite,
        nonfinite_in_row=record.nonfinite_in_row + 1 if nonfinite else 0,
    )


def _check_patience(record: TrainerRecord, spec: JobSpec, batch: StepBatch) -> None:
    if record.nonfinite_in_row < spec.train.max_nonfinite_steps:
        return
    largest = max(abs(t.reward) for t in batch.trajectories if t.reward is not None)
    raise PortError(
        f"the gradient was not finite in {record.nonfinite_in_row} steps in a row; lower train.learning_rate "
        f"(now {spec.train.learning_rate:g}), or check the reward's range (largest: {largest:g})",
        attribution="reward" if largest > LARGE_REWARD else "user",
    )


def _metrics(
    batch: StepBatch,
    figures: TokenFigures,
    request: TrainRequest,
    record: TrainerRecord,
    skipped: str | None,
    grad_norms: list[float],
    learning_rate: float,
) -> dict[str, Any]:
    """The trainer's part of ``StepData``. Figures that came out non-finite are None, never a made-up number.

    ``grad_norm`` is the largest of the step's updates, ``loss`` their mean.
    """
    train, tokens, updated = request.spec.train, max(1, figures.tokens), max(1, figures.updated)
    mismatch_kl, max_ratio = _finite(figures.mismatch_kl / tokens), math.exp(min(figures.log_ratio_max, MAX_EXPONENT))
    return {
        "loss": _finite(figures.loss / max(1, len(grad_norms))),
        "grad_norm": _largest(grad_norms),
        "entropy": _finite(figures.entropy / tokens),
        "clip_share": _finite((figures.clipped_low + figures.clipped_high) / updated),
        "clip_low_share": _finite(figures.clipped_low / updated),
        "clip_high_share": _finite(figures.clipped_high / updated),
        "importance_capped_share": _finite(figures.capped / updated),
        "mismatch_kl": mismatch_kl,
        "max_ratio": max_ratio,
        "base_kl": _finite(figures.base_kl / tokens) if train.kl_coefficient else None,
        "overlong_penalty": batch.mean_penalty,
        "learning_rate": learning_rate,
        "updates": len(grad_norms) if skipped is None else 0,
        "skipped": skipped,
        "tokens": {"trained": batch.trained_tokens * train.epochs if skipped is None else 0},
        "groups": batch.advantages.groups,
        "zero_signal_groups": batch.advantages.zero_signal_groups,
        "nonfinite_in_row": record.nonfinite_in_row,
        "certificate": {
            "completions": len(batch.trajectories),
            "on_policy": len(batch.trajectories),  # open_batch refuses the whole batch otherwise
            "version": request.version,
            "load_ids": sorted({t.load_id for t in batch.trajectories}),
            "mismatch_kl": mismatch_kl,
            "max_ratio": max_ratio,
        },
    }


def _largest(grad_norms: list[float]) -> float | None:
    """None when one is not finite: ``max`` would overlook it."""
    return max(grad_norms, default=0.0) if all(map(math.isfinite, grad_norms)) else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
