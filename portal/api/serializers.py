"""The API's shapes. A job's configuration is not repeated here: its schema is ``engine.spec``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils.datastructures import MultiValueDict
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from engine.grader_spec import shown
from engine.spec import DoctorSpec, EvalSpec, LoraSpec, RolloutSpec, TrainSpec, WarmStart
from portal.billing import costs
from portal.datasets.models import Dataset
from portal.jobs import reach, standstill
from portal.jobs.models import Job
from portal.rewards.models import Reward


class Closed(serializers.Serializer):
    """A request's body. An unknown field, and one of a form that comes twice, is refused by its name: silence would be a promise."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping) and (unknown := [name for name in data if name not in self.fields]):
            words = f"is not known; leave it out. Known are {', '.join(self.fields)}."
            raise serializers.ValidationError({name[:100]: [words] for name in unknown})
        if isinstance(data, MultiValueDict) and (twice := [name for name, values in data.lists() if len(values) > 1]):
            raise serializers.ValidationError({name: ["is given twice"] for name in twice})
        return super().to_internal_value(data)


def valid(shape: type[serializers.Serializer], request: Any) -> dict[str, Any]:
    """The request's body as ``shape`` reads it. Raises DRF's ``ValidationError``, each field named."""
    form = shape(data=request.data)
    form.is_valid(raise_exception=True)
    return form.validated_data


class ClosedInTheSchema(OpenApiSerializerExtension):
    target_class = Closed
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        return {**auto_schema._map_serializer(self.target, direction, bypass_extensions=True), "additionalProperties": False}


class BlobFields(serializers.Serializer):
    rows = serializers.IntegerField()
    sha256 = serializers.CharField()
    bytes = serializers.IntegerField()


class DatasetOut(serializers.ModelSerializer):
    id = serializers.CharField(source="public_id")
    train = serializers.SerializerMethodField()
    eval = serializers.SerializerMethodField()
    columns = serializers.ListField(child=serializers.CharField())
    report = serializers.JSONField()

    class Meta:
        model = Dataset
        fields = ("id", "name", "status", "rows", "train", "eval", "columns", "report", "created_at")

    @extend_schema_field(BlobFields)
    def get_train(self, dataset: Dataset) -> dict[str, Any]:
        return {"rows": dataset.train_rows, "sha256": dataset.train_sha256, "bytes": dataset.train_bytes}

    @extend_schema_field(BlobFields(allow_null=True))
    def get_eval(self, dataset: Dataset) -> dict[str, Any] | None:
        return {"rows": dataset.eval_rows, "sha256": dataset.eval_sha256, "bytes": dataset.eval_bytes} if dataset.eval_rows else None


class RewardOut(serializers.ModelSerializer):
    id = serializers.CharField(source="public_id")
    grader = serializers.JSONField(source="shown_grader", help_text="Without `signing_secret`, which is only ever written.")

    class Meta:
        model = Reward
        fields = ("id", "name", "grader", "created_at")


class RewardIn(Closed):
    name = serializers.CharField()
    grader = serializers.JSONField(help_text='For example {"type": "numeric", "reference": "{{item.answer}}"}.')


class RestartingFields(serializers.Serializer):
    part = serializers.ChoiceField(choices=reach.PARTS)
    since = serializers.DateTimeField()


class JobsOut(serializers.ListSerializer):
    """A page of jobs: whether their engines can be reached, and serve, is looked at once for all."""

    def to_representation(self, data: Any) -> Any:
        jobs = list(data)
        self.child.away, self.child.halts = reach.away(jobs), standstill.of_jobs(jobs)
        return super().to_representation(jobs)


class JobOut(serializers.ModelSerializer):
    away: dict[int, datetime] | None = None
    halts: dict[int, standstill.Standstill] | None = None

    id = serializers.CharField(source="public_id")
    dataset = serializers.CharField(source="dataset.public_id")
    reward = serializers.CharField(source="reward.public_id")
    spec = serializers.SerializerMethodField()
    steps = serializers.IntegerField()
    cost_micros = serializers.SerializerMethodField()
    engine_away_since = serializers.SerializerMethodField()
    engine_restarting = serializers.SerializerMethodField()

    class Meta:
        model = Job
        list_serializer_class = JobsOut
        fields = (
            *("id", "name", "state", "state_reason", "attribution", "version", "steps", "last_seq"),
            *("dataset", "reward", "base_model", "spec", "cost_micros", "submitted_at", "ended_at", "archived_at"),
            *("engine_away_since", "engine_restarting"),
        )

    @extend_schema_field(serializers.JSONField())
    def get_spec(self, job: Job) -> dict[str, Any]:
        return {**job.spec, "grader": shown(job.spec["grader"])}

    def get_cost_micros(self, job: Job) -> int:
        """What it has cost so far, in micro-units."""
        return costs.of(job)

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_engine_away_since(self, job: Job) -> datetime | None:
        """Since when the job's engine cannot be reached; null when it can. The job goes on by itself when the engine is back."""
        return reach.since(job) if self.away is None else self.away.get(job.pk)

    @extend_schema_field(RestartingFields(allow_null=True))
    def get_engine_restarting(self, job: Job) -> dict[str, Any] | None:
        """The part of the engine that the job needs next, while none of that kind serves, and since when; null when it waits for none.

        The job goes on by itself when the part is back.
        """
        halt = standstill.of_job(job) if self.halts is None else self.halts.get(job.pk)
        return RestartingFields(halt).data if halt else None


class EventOut(serializers.Serializer):
    seq = serializers.IntegerField()
    kind = serializers.CharField()
    at = serializers.DateTimeField()
    data = serializers.JSONField()


class EventsOut(serializers.Serializer):
    events = EventOut(many=True)
    last = serializers.IntegerField(help_text="Ask for what comes after this number next.")


class ComparisonOut(serializers.Serializer):
    against = serializers.IntegerField()
    rows = serializers.IntegerField()
    before = serializers.FloatField()
    after = serializers.FloatField()
    difference = serializers.FloatField()
    low = serializers.FloatField(allow_null=True, help_text="The 95 % interval's lower end.")
    high = serializers.FloatField(allow_null=True)
    wins = serializers.IntegerField()
    losses = serializers.IntegerField()
    ties = serializers.IntegerField()
    invalid = serializers.IntegerField()
    unit_range = serializers.BooleanField(help_text="Every reward lay in 0–1.")
    verdict = serializers.CharField()


class EvalOut(serializers.Serializer):
    version = serializers.IntegerField()
    rows = serializers.IntegerField()
    reward_mean = serializers.FloatField(allow_null=True)
    invalid = serializers.IntegerField()
    temperature = serializers.FloatField()
    comparison = ComparisonOut(allow_null=True, help_text="With version 0, row by row; null for version 0 itself.")
    at = serializers.DateTimeField()


class EvaluationOut(serializers.Serializer):
    best = serializers.IntegerField(allow_null=True, help_text="The version with the highest held-out reward.")
    evaluations = EvalOut(many=True)


class FindingOut(serializers.Serializer):
    code = serializers.CharField()
    title = serializers.CharField()
    chart = serializers.CharField()
    first_step = serializers.IntegerField()
    last_step = serializers.IntegerField()
    evidence = serializers.CharField()
    numbers = serializers.DictField(child=serializers.FloatField())
    advice = serializers.CharField()
    at = serializers.DateTimeField()
    over_at = serializers.DateTimeField(default=None, allow_null=True, help_text="Since when it is over, or null.")


class DoctorOut(serializers.Serializer):
    standing = FindingOut(many=True)
    over = FindingOut(many=True)


class TokenOut(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    expires_at = serializers.DateTimeField()


class TenantOut(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()


class MeOut(serializers.Serializer):
    email = serializers.EmailField()
    tenant = TenantOut()
    role = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    token = TokenOut(allow_null=True)


class ProblemOut(serializers.Serializer):
    field = serializers.CharField()
    message = serializers.CharField()


class ErrorBody(serializers.Serializer):
    message = serializers.CharField()
    type = serializers.CharField()
    param = serializers.CharField(allow_null=True)
    code = serializers.CharField()
    problems = ProblemOut(many=True)


class ErrorOut(serializers.Serializer):
    error = ErrorBody()


def job_request_schema() -> dict[str, Any]:
    """JSON schema of POST /jobs, made of the engine's own models."""
    parts = {"rollout": RolloutSpec, "lora": LoraSpec, "train": TrainSpec, "eval": EvalSpec, "doctor": DoctorSpec, "warm_start": WarmStart}
    properties: dict[str, Any] = {
        "name": {"type": "string", "maxLength": 100},
        "dataset": {"type": "string", "description": "A dataset's id (ds_…)."},
        "reward": {"type": "string", "description": "A reward's id (rw_…)."},
        "base_model": {"type": "string", "description": "One of GET /models."},
        **{name: model.model_json_schema() for name, model in parts.items()},
        "environment": {
            "type": "object",
            "description": "What happens between a completion's turns. tools: calls to search, python and calculator, with limits; "
            "its search.source is bundled, corpus (dataset: the id of a dataset with title and text) or endpoint (name: one of the "
            "operator's). stand_in: a wait in the place of a tool, for benchmarks.",
            "required": ["type"],
            "properties": {"type": {"type": "string", "enum": ["single_turn", "tools", "stand_in"]}},
        },
        "budget": {
            "type": "object",
            "description": "The job pauses at a committed step before it goes beyond. micros: money in micro-units; tokens: of all kinds.",
            "additionalProperties": False,
            "properties": {name: {"type": "integer", "minimum": 1} for name in ("micros", "tokens")},
        },
        "seed": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    }
    properties["warm_start"]["required"] = ["job"]  # no version: the latest
    return {"type": "object", "additionalProperties": False, "required": ["dataset", "reward", "base_model"], "properties": properties}
