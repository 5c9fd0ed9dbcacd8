"""The reference: reinforcement learning written plainly with transformers, PEFT and ``torch.optim``; no Ray, no vLLM, no engine.train.

One completion at a time, no padding, no micro-batches; losses are the papers' formulas as sums over Python lists of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from engine.spec import JobSpec
from engine.trajectory import Trajectory

ADDED = 5  # tokens of the environment behind the first sampled one, where a completion has turns


def load_peft(base: Path, adapter: Path, *, trainable: bool = False) -> Any:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter, is_trainable=trainable)


def plain_logprobs(model: Any, trajectory: Trajectory, temperature: float) -> Any:
    """log p of each sampled token at ``temperature``."""
    import torch

    ids = torch.tensor([trajectory.prompt_ids + trajectory.completion_ids])
    table = torch.log_softmax(model(input_ids=ids).logits[0] / temperature, -1)
    first = len(trajectory.prompt_ids)
    sampled = [k for k in range(len(trajectory.completion_ids)) if not trajectory.turns or k < 1 or k > ADDED]
    return torch.stack([table[first + k - 1, trajectory.completion_ids[k]] for k in sampled])


def plain_advantages(rewards: Sequence[float], group: int, kind: str) -> list[float]:
    found = []
    for start in range(0, len(rewards), group):
        own = list(rewards[start : start + group])
        mean = fmean(own)
        if max(own) == min(own):
            found += [0.0] * group
        elif kind == "rloo":
            found += [reward - (sum(own) - reward) / (group - 1) for reward in own]
        else:
            scale = {"unscaled": 1.0, "grpo": stdev(own) + 1e-4, "batch": stdev(rewards) + 1e-4}[kind]
            found += [(reward - mean) / scale for reward in own]
    return found


class PlainLoop:
    """``spec`` on ``model``, of which only the adapter is trainable. ``step`` once per batch."""

    def __init__(self, model: Any, spec: JobSpec):
        import torch

        self.model, self.spec = model, spec
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=spec.train.learning_rate, weight_decay=spec.train.weight_decay)

    def step(self, trajectories: Sequence[Trajectory], group: int, updates: Sequence[Sequence[int]] | None = None) -> list[float]:
        """The loss of each update. ``updates``: which completions each has (all of them, once, if not said)."""
        import torch

        train, temperature = self.spec.train, self.spec.rollout.temperature
        advantages = plain_advantages([t.reward for t in trajectories], group, train.advantage)
        with torch.no_grad():
            old = [plain_logprobs(self.model, t, temperature) for t in trajectories]
            with self.model.disable_adapter():
                base = [plain_logprobs(self.model, t, temperature) for t in trajectories] if train.kl_coefficient else old
        losses = []
        updates = updates or [range(len(trajectories))]
        parts = len(updates) // train.epochs
        for members in updates:
            self.optimizer.zero_grad()
            loss = parts * sum(self._share(trajectories, i, advantages[i], old[i], base[i]) for i in members if advantages[i])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.parameters, train.max_grad_norm)
            self.optimizer.step()
            losses.append(loss.item())
        return losses

    def _share(self, trajectories: Sequence[Trajectory], index: int, advantage: float, old: Any, base: Any) -> Any:
        """What one completion adds to the step's loss."""
        import torch

        train = self.spec.train
        new = plain_logprobs(self.model, trajectories[index], self.spec.rollout.temperature)
        importance = torch.exp(old - torch.tensor(trajectories[index].logprobs))
        if train.importance_level == "sequence":
            importance = importance.prod().expand_as(new)
        above = importance > train.importance_cap
        importance = importance.clamp(max=train.importance_cap) if train.importance == "truncate" else importance * ~above
        ratio = torch.exp(new - old)
        if train.loss == "gspo":
            ratio = (ratio.log().sum() / len(new)).exp().expand_as(new)
        clipped = ratio.clamp(1 - train.clip_low, 1 + train.clip_high)
        gain = clipped.detach() * advantage * new if train.loss == "cispo" else torch.minimum(ratio * advantage, clipped * advantage)
        if train.dual_clip and advantage < 0:
            gain = gain.clamp(min=train.dual_clip * advantage)
        terms = train.kl_coefficient * self._distance(new, base) - gain * importance
        count, total = len(trajectories), sum(len(t.logprobs) for t in trajectories)
        if train.loss in ("grpo", "gspo"):
            return terms.mean() / count
        return terms.sum() / (total if train.loss in ("dapo", "cispo") else count * self.spec.rollout.max_new_tokens)

    def _distance(self, new: Any, base: Any) -> Any:
        """k1 is spelled out as a penalty on the reward: the distance still to come, times ∇log π."""
        import torch

        difference = new - base
        if self.spec.train.kl_estimator == "k2":
            return difference**2 / 2
        if self.spec.train.kl_estimator == "k3":
            return torch.exp(-difference) - 1 + difference
        still = torch.stack([difference[t:].sum() for t in range(len(new))]).detach()
        return difference.detach() + still * (new - new.detach())

    def gradients(self) -> dict[str, Any]:
        """By PEFT's key names, as the last update left them."""
        return {name.replace(".default.", "."): p.grad for name, p in self.model.named_parameters() if p.requires_grad}

    def weights(self) -> dict[str, Any]:
        return {name.replace(".default.", "."): p.detach() for name, p in self.model.named_parameters() if p.requires_grad}
