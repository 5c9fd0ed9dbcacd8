"""One training step: decode → score → differentiate → reduce → update → encode.

A pure function of its request. The model, its adapters and the ranks are only where the arithmetic happens: whatever a step needs is
copied in from the snapshot, and whatever it leaves behind is overwritten by the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from engine.ports import PortError, TrainRequest
from engine.spec import JobSpec
from engine.train.adamw import adamw_update
from engine.train.base import TokenScorer
from engine.train.batch import StepBatch, open_batch
from engine.train.figures import TokenFigures
from engine.train.lora import Adapters, AdapterShape
from engine.train.losses import grpo_loss, grpo_weight
from engine.train.pack import MicroBatch, pack, plan, share_of_rank, token_count
from engine.train.snapshot import TrainerRecord, TrainerState, adamw_state, decode_snapshot

MAX_EXPONENT = 700.0  # exp overflows a float64 beyond
LARGE_REWARD = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class RankModel:
    """What one rank holds for good: the sharded base with its adapter modules, and its place among the ranks.

    ``max_tokens``: what fits into its memory at once; a job's own ``micro_batch_tokens`` may be lower, never higher.
    """

    scorer: TokenScorer
    adapters: Adapters
    device: str
    rank: int
    world_size: int
    max_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOutcome:
    state: TrainerState
    shape: AdapterShape
    metrics: dict[str, Any]


def take_step(model: RankModel, request: TrainRequest) -> StepOutcome:
    """Version + 1 of the job and what happened on the way; the same on every rank.

    Raises ``StaleBatch`` or ``PortError`` before any work for a request that does not fit together, and ``PortError`` blamed on the user
    or the reward after too many non-finite steps in a row.
    """
    batch = open_batch(request)
    shape = model.adapters.activate(request.spec.lora)
    state = decode_snapshot(request.snapshot, shape.slots, version=request.version)
    shape.values_P.copy_(state.values_P)
    shape.gradient_P.zero_()
    figures = _accumulate(model, batch, request.spec)
    if model.world_size > 1:
        dist.all_reduce(shape.gradient_P)
    figures.reduce(model.world_size)
    grad_norm = float(shape.gradient_P.norm())
    skipped = _why_skip(batch, grad_norm)
    values_P, state = _update(model, shape, state, request.spec, grad_norm) if skipped is None else (state.values_P, state)
    record = _count(state.record, skipped)
    _check_patience(record, request.spec, batch)
    return StepOutcome(
        state=replace(state, values_P=values_P, record=record),
        shape=shape,
        metrics=_metrics(batch, figures, request, record, skipped, grad_norm),
    )


def _accumulate(model: RankModel, batch: StepBatch, spec: JobSpec) -> TokenFigures:
    """Leave this rank's share of the step's gradient in the active adapter, and return its share of the figures.

    Completions without signal are scored too, for the figures, but not differentiated.
    """
    figures = TokenFigures()
    lengths = [token_count(t) for t in batch.trajectories]
    for members, learns in ((batch.training, True), (batch.silent, False)):
        batches = plan(lengths, members, max_tokens=min(model.max_tokens, spec.train.micro_batch_tokens))
        for mine in share_of_rank(batches, rank=model.rank, world_size=model.world_size):
            micro = pack(batch.trajectories, mine, device=model.device)
            with torch.set_grad_enabled(learns):
                _score(model.scorer, micro, batch, spec, figures)
    return figures


def _score(scorer: TokenScorer, micro: MicroBatch, batch: StepBatch, spec: JobSpec, figures: TokenFigures) -> None:
    logprobs_BT, entropy_BT = scorer(micro.ids_BT, micro.mask_BT, spec.rollout.temperature)
    figures.add(logprobs_BT=logprobs_BT, sampler_logprobs_BT=micro.sampler_logprobs_BT, entropy_BT=entropy_BT, mask_BT=micro.mask_BT)
    if not torch.is_grad_enabled():
        return
    advantages_B, weights_B = _per_completion(micro, batch)
    mask_BT = micro.mask_BT.to(torch.float32)
    terms = grpo_loss(
        logprobs_BT=logprobs_BT,
        # One epoch on fresh trajectories: the policy that is differentiated is the one that was sampled from.
        old_logprobs_BT=logprobs_BT.detach(),
        sampler_logprobs_BT=micro.sampler_logprobs_BT,
        advantages_B=advantages_B,
        mask_BT=mask_BT,
        weights_BT=weights_B.unsqueeze(-1) * mask_BT,
        clip_low=spec.train.clip_low,
        clip_high=spec.train.clip_high,
        importance_cap=spec.train.importance_cap,
    )
    terms.loss.backward()
    figures.loss += terms.loss.item()
    figures.clipped += terms.clipped_BT.sum().item()


def _per_completion(micro: MicroBatch, batch: StepBatch) -> tuple[Tensor, Tensor]:
    """Advantages and loss weights of the micro-batch's rows, of shape B; zeros for the row of an empty one."""
    rows = [(batch.advantages.values[i], batch.trajectories[i].sampled_tokens) for i in micro.members]
    pairs = [(value, grpo_weight(completion_tokens=tokens, graded_completions=batch.graded)) for value, tokens in rows] or [(0.0, 0.0)]
    advantages_B, weights_B = torch.tensor(pairs, dtype=torch.float32, device=micro.ids_BT.device).unbind(-1)
    return advantages_B, weights_B


def _why_skip(batch: StepBatch, grad_norm: float) -> str | None:
    if not batch.training:
        return "no_signal"
    return None if math.isfinite(grad_norm) else "nonfinite"


def _update(model: RankModel, shape: AdapterShape, state: TrainerState, spec: JobSpec, grad_norm: float) -> tuple[Tensor, TrainerState]:
    """Clip the gradient to ``max_grad_norm`` and apply AdamW. Returns the new weights and the state with its new moments, on the CPU."""
    shape.gradient_P.mul_(min(1.0, spec.train.max_grad_norm / (grad_norm + 1e-6)))
    moments = adamw_state(state, model.device)
    adamw_update(
        shape.values_P,
        shape.gradient_P,
        moments,
        learning_rate=spec.train.learning_rate,
        weight_decay=spec.train.weight_decay,
    )
    record = replace(state.record, updates=moments.updates)
    return shape.values_P.to("cpu", copy=True), replace(state, mean_P=moments.mean_P.cpu(), square_P=moments.square_P.cpu(), record=record)


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
    batch: StepBatch, figures: TokenFigures, request: TrainRequest, record: TrainerRecord, skipped: str | None, grad_norm: float
) -> dict[str, Any]:
    """The trainer's part of ``StepData``. Figures that came out non-finite are None, never a made-up number."""
    tokens = max(1, figures.tokens)
    mismatch_kl, max_ratio = _finite(figures.mismatch_kl / tokens), math.exp(min(figures.log_ratio_max, MAX_EXPONENT))
    return {
        "loss": _finite(figures.loss),
        "grad_norm": _finite(grad_norm),
        "entropy": _finite(figures.entropy / tokens),
        "clip_share": _finite(figures.clipped / tokens),
        "mismatch_kl": mismatch_kl,
        "max_ratio": max_ratio,
        "learning_rate": request.spec.train.learning_rate,
        "skipped": skipped,
        "tokens": {"trained": batch.trained_tokens if skipped is None else 0},
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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
