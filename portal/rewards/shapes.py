"""The shapes of the Lab in the API."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from engine.grader_spec import parse_grader
from portal.api import serializers as shapes
from portal.rewards.figures import Line, by_kind, figures, lines_of, source_errors
from portal.rewards.lab import sources_of
from portal.rewards.models import LabRun
from portal.rewards.run_view import accept_from


@extend_schema_field({"type": "object"})
class AnObject(serializers.JSONField):
    """Any object: a JSON field that says "anything or null" would have null be valid twice."""


@extend_schema_field({"type": "array", "items": {}})
class AList(serializers.JSONField):
    """Any list, for the same reason."""


class GraderIn(shapes.Closed):
    grader = serializers.JSONField(help_text='For example {"type": "numeric", "reference": "{{item.answer}}"}.')


class LinedProblem(shapes.ProblemOut):
    line = serializers.IntegerField(allow_null=True, help_text="Of the source, from 1.")


class ValidOut(serializers.Serializer):
    valid = serializers.BooleanField()
    grader = AnObject(allow_null=True, help_text="With its defaults filled in, and without `signing_secret`.")
    problems = LinedProblem(many=True)


class RunOut(serializers.ModelSerializer):
    """``figures`` are there as far as cases are graded; ``kinds`` only for the adversarial corpus."""

    id = serializers.CharField(source="public_id")
    reward = serializers.CharField(source="reward.public_id", default=None, allow_null=True)
    figures = serializers.SerializerMethodField()
    source_errors = serializers.SerializerMethodField()
    kinds = serializers.SerializerMethodField()
    base_model = serializers.SerializerMethodField(help_text="Whose engine grades; null: the first one.")

    class Meta:
        model = LabRun
        fields = (
            *("id", "state", "note", "reward", "on", "repeats", "base_model", "total", "done", "printed"),
            *("figures", "source_errors", "kinds", "created_at", "ended_at"),
        )

    def get_base_model(self, run: LabRun) -> str | None:
        return run.base_model or None

    @extend_schema_field(OpenApiTypes.OBJECT)
    def get_figures(self, run: LabRun) -> dict[str, Any]:
        found = figures(self._lines(run))
        names = ("graded", "invalid", "not_applicable", "mean", "lowest", "highest", "differing", "judge_tokens")
        latency = {"p50_ms": found.p50_milliseconds, "p99_ms": found.p99_milliseconds}
        return {**{name: getattr(found, name) for name in names}, **latency, "histogram": found.bins, "errors": dict(found.error_kinds)}

    @extend_schema_field(serializers.ListField(child=serializers.JSONField()))
    def get_source_errors(self, run: LabRun) -> list[dict[str, Any]]:
        found = source_errors(self._lines(run), sources_of(run.grader))
        return [{name: getattr(error, name) for name in ("part", "line", "text", "message", "cases")} for error in found]

    @extend_schema_field(serializers.ListField(child=serializers.JSONField(), allow_null=True))
    def get_kinds(self, run: LabRun) -> list[dict[str, Any]] | None:
        if run.on["type"] != "corpus":
            return None
        kinds = by_kind(self._lines(run), accept_from(self.context.get("accept_from"), parse_grader(run.grader).bounds))
        return [
            {
                **{name: getattr(kind, name) for name in ("group", "kind", "cases", "ungraded")},
                "false_accepts": [line.number for line in kind.false_accepts],
                "false_rejects": [line.number for line in kind.false_rejects],
            }
            for kind in kinds
        ]

    def _lines(self, run: LabRun) -> list[Line]:
        if not hasattr(run, "lines"):
            run.lines = lines_of(run.cases.all(), parse_grader(run.grader).name)
        return run.lines


class CaseOut(serializers.Serializer):
    number = serializers.IntegerField()
    case = serializers.JSONField(help_text="text and item; of a dataset row its number, of the corpus its kind and whether it is right.")
    outcomes = AList(
        allow_null=True, help_text="One for each time that it was graded: reward, components, error {kind, message, line}, seconds."
    )


class CasesOut(serializers.Serializer):
    cases = CaseOut(many=True)
    next = serializers.IntegerField(allow_null=True, help_text="Ask for the cases after this number next; null at the end.")
