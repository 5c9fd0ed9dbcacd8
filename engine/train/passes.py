"""A step's passes over its completions: one that only scores, and one per optimizer update that differentiates.

With a single update the policy that is differentiated is the one that was sampled from, so the pass that differentiates scores as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from engine.spec import JobSpec
from engine.train.base import TokenScorer
from engine.train.batch import StepBatch
from engine.train.figures import TokenFigures
from engine.train.lora import Adapters
from engine.train.losses import PolicyTokens, StepTotals
from engine.train.objective import objective
from engine.train.pack import MicroBatch, pack, plan, share_of_rank, token_count
from engine.train.token_table import TokenTable


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
class StepPasses:
    """``old`` and ``base``: log-probabilities at the step's first version and of the base, for steps of several updates.

    ``scored``: at the step's first version, for whoever looks at single tokens afterwards.
    """

    model: RankModel
    batch: StepBatch
    spec: JobSpec
    figures: TokenFigures
    scored: TokenTable
    old: TokenTable | None = None
    base: TokenTable | None = None

    @torch.no_grad()
    def score(self, members: Sequence[int]) -> None:
        """Count ``members`` in the figures, and keep their log-probabilities where tables are."""
        for micro in self._micro_batches(members):
            base_BT = self._base_logprobs(micro)
            logprobs_BT, entropy_BT = self._scores(micro)
            self._count(micro, logprobs_BT, entropy_BT, base_BT)
            for table, values_BT in ((self.old, logprobs_BT), (self.base, base_BT)):
                if table is not None and values_BT is not None:
                    table.put(micro, values_BT)
        for table in (self.old, self.base):
            if table is not None:
                table.share(self.model.world_size)

    def differentiate(self, members: Sequence[int], totals: StepTotals) -> None:
        """Add this rank's share of one update's gradient to the active adapter's."""
        for micro in self._micro_batches(members):
            base_BT = self._base_logprobs(micro) if self.base is None else self.base.get(micro)
            logprobs_BT, entropy_BT = self._scores(micro)
            if self.old is None:
                self._count(micro, logprobs_BT, entropy_BT, base_BT)
            found = objective(
                self.spec.train,
                self._tokens(micro, logprobs_BT),
                totals,
                sampler_logprobs_BT=micro.sampler_logprobs_BT,
                base_logprobs_BT=base_BT,
            )
            found.loss.backward()
            self.figures.add_update(found, micro.mask_BT)

    def _micro_batches(self, members: Sequence[int]) -> Iterator[MicroBatch]:
        model, trajectories = self.model, self.batch.trajectories
        lengths = [token_count(t) for t in trajectories]
        batches = plan(lengths, members, max_tokens=min(model.max_tokens, self.spec.train.micro_batch_tokens))
        for mine in share_of_rank(batches, rank=model.rank, world_size=model.world_size):
            yield pack(trajectories, mine, device=model.device)

    def _scores(self, micro: MicroBatch) -> tuple[Tensor, Tensor]:
        return self.model.scorer(micro.ids_BT, micro.mask_BT, self.spec.rollout.temperature)

    @torch.no_grad()
    def _base_logprobs(self, micro: MicroBatch) -> Tensor | None:
        """At the job's temperature, like the policy's; None for a job that does not ask for the distance."""
        if not self.spec.train.kl_coefficient:
            return None
        with self.model.adapters.off():
            return self._scores(micro)[0]

    def token_mismatch(self) -> list[float]:
        """log π_trainer − log π_sampler of each sampled token, at the step's first version, in the trajectories' order; the same on all
        ranks, which must all ask.
        """
        self.scored.share(self.model.world_size)
        sampler = chain.from_iterable(t.logprobs for t in self.batch.trajectories)
        return [trainer - sampled for trainer, sampled in zip(self.scored.values(), sampler, strict=True)]

    def _count(self, micro: MicroBatch, logprobs_BT: Tensor, entropy_BT: Tensor, base_BT: Tensor | None) -> None:
        self.scored.put(micro, logprobs_BT)
        self.figures.add(
            logprobs_BT=logprobs_BT,
            sampler_logprobs_BT=micro.sampler_logprobs_BT,
            entropy_BT=entropy_BT,
            mask_BT=micro.mask_BT,
            base_logprobs_BT=base_BT,
        )

    def _tokens(self, micro: MicroBatch, logprobs_BT: Tensor) -> PolicyTokens:
        advantages = [self.batch.advantages.values[index] for index in micro.members] or [0.0]
        return PolicyTokens(
            logprobs_BT=logprobs_BT,
            old_logprobs_BT=logprobs_BT.detach() if self.old is None else self.old.get(micro),
            advantages_B=torch.tensor(advantages, dtype=torch.float32, device=micro.ids_BT.device),
            mask_BT=micro.mask_BT.to(torch.float32),
        )


def open_passes(model: RankModel, batch: StepBatch, spec: JobSpec, *, updates: int) -> StepPasses:
    """The passes of a step of ``updates`` updates, all that needs no gradient already scored."""
    counts = [t.sampled_tokens for t in batch.trajectories]
    several = updates > 1
    old = TokenTable(counts, device=model.device) if several else None
    base = TokenTable(counts, device=model.device) if several and spec.train.kl_coefficient else None
    scored = TokenTable(counts, device=model.device)
    passes = StepPasses(model=model, batch=batch, spec=spec, figures=TokenFigures(), scored=scored, old=old, base=base)
    passes.score([*batch.training, *batch.silent] if several else batch.silent)
    return passes
