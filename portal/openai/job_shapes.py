"""Our jobs, events and versions as OpenAI's fine-tuning jobs, events and checkpoints."""

from __future__ import annotations

from typing import Any

from django.db.models import IntegerField, OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce

from engine.grader_spec import shown
from portal.billing.models import DailyUsage, Kind
from portal.jobs.models import Job, JobEvent, State
from portal.openai.base import seconds
from portal.openai.names import tuned

_STATUS = {State.SUBMITTED: "queued"}  # the others are called the same
_WARNINGS = ("warning", "finding", "rollout_lost", "paused")


def for_showing(jobs: Any) -> Any:
    """``jobs`` (a queryset) with all that ``job`` needs, in a number of queries that does not grow with them."""
    used = DailyUsage.objects.filter(tenant=OuterRef("tenant"), source=OuterRef("public_id"), kind=Kind.TRAINED).order_by().values("source")
    total = Subquery(used.annotate(total=Sum("quantity")).values("total"), output_field=IntegerField())
    return jobs.select_related("tenant", "dataset", "reward").prefetch_related("metadata").annotate(trained_tokens=Coalesce(total, 0))


def job(found: Job) -> dict[str, Any]:
    spec, origin = found.spec, found.dataset.recipe.get("origin") or {}
    failed = found.state == State.FAILED
    return {
        "id": found.public_id,
        "object": "fine_tuning.job",
        "created_at": seconds(found.submitted_at),
        "finished_at": seconds(found.ended_at),
        "estimated_finish": None,
        "model": found.base_model,
        "fine_tuned_model": tuned(found, found.version) if found.state == State.SUCCEEDED else None,
        "organization_id": found.tenant.public_id,
        "status": _STATUS.get(State(found.state), found.state),
        "error": {"code": f"{found.attribution or 'platform'}_error", "message": found.state_reason, "param": None} if failed else None,
        "training_file": origin.get("training_file", found.dataset.public_id),
        "validation_file": origin.get("validation_file"),
        "result_files": [],
        "seed": spec["seed"],
        "trained_tokens": found.trained_tokens,
        "integrations": [],
        "metadata": {pair.key: pair.value for pair in found.metadata.all()},
        "method": {
            "type": "reinforcement",
            "reinforcement": {"grader": shown(spec["grader"]), "hyperparameters": _hyperparameters(spec)},
        },
        "user_provided_suffix": found.name,
    }


def event(found: JobEvent) -> dict[str, Any]:
    return {
        "id": f"ftevent-{found.job.public_id}-{found.seq}",
        "object": "fine_tuning.job.event",
        "created_at": seconds(found.at),
        "level": _level(found),
        "message": _message(found),
        "type": "metrics" if found.kind in ("step", "eval") else "message",
        "data": _metrics(found) if found.kind in ("step", "eval") else {"kind": found.kind},
    }


def checkpoint(found: JobEvent, held_out: dict[int, float]) -> dict[str, Any]:
    """``found``: a ``step``. ``held_out``: mean rewards of the versions that were evaluated."""
    version = found.data["version"]
    metrics = {"step": version, "train_mean_reward": _reward(found)}
    if version in held_out:
        metrics["full_valid_mean_reward"] = held_out[version]
    return {
        "id": f"ftckpt-{found.job.public_id}-{version}",
        "object": "fine_tuning.job.checkpoint",
        "created_at": seconds(found.at),
        "fine_tuned_model_checkpoint": tuned(found.job, version),
        "fine_tuning_job_id": found.job.public_id,
        "step_number": version,
        "metrics": metrics,
    }


def _hyperparameters(spec: dict[str, Any]) -> dict[str, Any]:
    rollout, train = spec["rollout"], spec["train"]
    return {
        "batch_size": rollout["prompts_per_step"],
        "n_epochs": max(1, round(train["steps"] * rollout["prompts_per_step"] / spec["dataset"]["train_rows"])),
        "eval_interval": spec["eval"]["every"],
        "eval_samples": spec["eval"]["max_rows"],
        "steps": train["steps"],
        "learning_rate": train["learning_rate"],
        "group_size": rollout["group_size"],
        "max_prompt_tokens": rollout["max_prompt_tokens"],
        "max_new_tokens": rollout["max_new_tokens"],
        "temperature": rollout["temperature"],
        "loss": train["loss"],
        "advantage": train["advantage"],
        "kl_coefficient": train["kl_coefficient"],
        "lora_rank": spec["lora"]["rank"],
        "lora_alpha": spec["lora"]["alpha"],
    }


def _level(found: JobEvent) -> str:
    if found.kind == "ended" and found.data.get("state") == State.FAILED:
        return "error"
    return "warn" if found.kind in _WARNINGS else "info"


def _message(found: JobEvent) -> str:
    data, kind = found.data, found.kind
    if kind == "step":
        reward = _reward(found)
        return f"Step {data.get('version')} is committed" + (f": mean reward {reward:.3f}" if reward is not None else "")
    if kind == "eval":
        mean = data.get("reward_mean")
        return f"Step {data.get('version')} is evaluated" + (f": held-out reward {mean:.3f}" if mean is not None else "")
    if kind == "ended":
        verb = "was" if data.get("state") == State.CANCELLED else "has"
        return f"The job {verb} {data.get('state')}: {data.get('reason', '')}".rstrip(": ")
    words = data.get("message") or data.get("title") or data.get("reason")
    return str(words) if words else kind.replace("_", " ").capitalize()


def _metrics(found: JobEvent) -> dict[str, Any]:
    data = found.data
    if found.kind == "eval":
        return {"step": data.get("version"), "full_valid_mean_reward": data.get("reward_mean")}
    return {"step": data.get("version"), "train_mean_reward": _reward(found), **{name: data.get(name) for name in ("seconds", "tokens")}}


def _reward(found: JobEvent) -> float | None:
    return (found.data.get("rollout") or {}).get("reward_mean")
