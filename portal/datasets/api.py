"""Datasets in the REST API: the same check as in the browser, answered at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema_view
from rest_framework import exceptions, parsers, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api import serializers as shapes
from portal.api.auth import tenant_of
from portal.api.choices import chosen
from portal.api.numbers import parameter, whole
from portal.api.parameters import documented
from portal.api.parsers import JSONParser
from portal.api.views import CHANGED, MISSING, REFUSED, TenantViews
from portal.datasets import measure, removal
from portal.datasets.actions import create_dataset, parse_plan
from portal.datasets.models import Dataset
from portal.datasets.preview import MAX_NEEDLE, PAGE_ROWS, raw_page
from portal.jobs import catalog
from portal.names import file_name

MAX_ROWS = 200


class DatasetOut(shapes.DatasetOut):
    class Meta(shapes.DatasetOut.Meta):
        fields = (*shapes.DatasetOut.Meta.fields, "series", "version", "recipe", "lengths")

    recipe = serializers.JSONField()
    lengths = serializers.JSONField()


class DatasetIn(shapes.Closed):
    """A multipart form."""

    name = serializers.CharField(required=False, help_text="The file's name when left out.")
    file = serializers.FileField(help_text="JSON Lines, CSV or Parquet, with `messages` or `prompt`, or other columns and a `mapping`.")
    eval_file = serializers.FileField(required=False, help_text="Held-out rows, instead of a share of the others.")
    eval_share = serializers.FloatField(required=False, default=0.1, min_value=0, max_value=0.9, help_text="Share of prompts held out.")
    seed = serializers.IntegerField(required=False, default=0, min_value=0, max_value=2**31 - 1, help_text="The split's.")
    mapping = serializers.CharField(
        required=False,
        help_text='Columns as JSON, as in `{"prompt": "question", "answer": "answer", "extract": "hash"}`. Else as proposed.',
    )
    encoding = serializers.CharField(required=False, help_text="utf-8, windows-1252 or utf-16, where it is not recognised.")
    model = serializers.CharField(required=False, help_text="Count prompt lengths in this base model's tokens.")
    series = serializers.CharField(required=False, help_text="A dataset of which this is a new version.")


class RowOut(serializers.Serializer):
    row = serializers.IntegerField()
    messages = serializers.JSONField()
    item = serializers.JSONField()


class RowsOut(serializers.Serializer):
    rows = RowOut(many=True)
    next = serializers.IntegerField(allow_null=True, help_text="Ask for the rows from this one on next; null at the end.")


class LengthsIn(shapes.Closed):
    model = serializers.CharField(help_text="One of GET /models.")


_SPLIT = OpenApiParameter("split", str, enum=["train", "eval"])
_FROM = parameter("from", "Rows from this number on.")
_QUERY = OpenApiParameter("q", str, description="Only rows that contain this text, whatever the case.")
_LIMIT = parameter("limit", least=1, most=MAX_ROWS, default=PAGE_ROWS)


@extend_schema_view(list=documented(DatasetOut(many=True), REFUSED), retrieve=documented(DatasetOut, MISSING))
class Datasets(TenantViews):
    noun = relation = "datasets"
    serializer_class = DatasetOut
    queryset = Dataset.objects.none()
    parser_classes = (parsers.MultiPartParser,)

    @documented(DatasetOut, {**REFUSED, 409: shapes.ErrorOut}, 201, request={"multipart/form-data": DatasetIn})
    def create(self, request: Request) -> Response:
        """Upload one. The whole file is looked at; with anything wrong in it nothing is stored, and each fault is told with its line."""
        form = DatasetIn(data=request.data)
        form.is_valid(raise_exception=True)
        given = form.validated_data
        file = given["file"]
        options = {name: given[name] for name in ("eval_share", "seed", "encoding", "series") if name in given}
        plan = parse_plan({**options, "mapping": _mapping(given.get("mapping")), "model": _model(given.get("model"))}, file.name)
        name = given.get("name") or Path(file_name(file.name)).stem
        dataset = create_dataset(tenant_of(request), request.user, name, file, eval_file=given.get("eval_file"), plan=plan)
        return Response(DatasetOut(dataset).data, status=status.HTTP_201_CREATED)

    @documented(None, CHANGED, 204)
    def destroy(self, request: Request, public_id: str) -> Response:
        """Delete it for good. One that jobs were made of stays."""
        removal.delete_dataset(tenant_of(request), request.user, self.get_object(), timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @documented(RowsOut, {**MISSING, 400: shapes.ErrorOut}, parameters=[_SPLIT, _FROM, _QUERY, _LIMIT])
    @action(detail=True, methods=["get"], pagination_class=None)
    def rows(self, request: Request, public_id: str) -> Response:
        """A page of rows. A search reads on for a moment only: ``next`` may come with few rows or none."""
        asked = request.query_params
        split = chosen(asked, "split", ("train", "eval"), "train")
        where = {"start": whole(asked, "from", 0), "limit": whole(asked, "limit", PAGE_ROWS, least=1, most=MAX_ROWS)}
        found = raw_page(self.get_object(), split, needle=asked.get("q", "")[:MAX_NEEDLE], **where)
        return Response({"rows": found.rows, "next": found.next_row})

    @documented(OpenApiTypes.OBJECT, CHANGED, 202, request=LengthsIn)
    @action(detail=True, methods=["post"], parser_classes=[JSONParser])
    def lengths(self, request: Request, public_id: str) -> Response:
        """Measure the prompts in a base model's tokens; the figures are in the dataset's ``lengths`` when they are there."""
        dataset = self.get_object()  # before the body is looked at: what is not there is a 404, whatever is sent
        form = LengthsIn(data=request.data)
        form.is_valid(raise_exception=True)
        model = _model(form.validated_data["model"])
        measure.begin(dataset, model, timezone.now())
        return Response(dataset.lengths.get(model, {}), status=status.HTTP_202_ACCEPTED)


def _mapping(text: str | None) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise exceptions.ValidationError({"mapping": ["is no JSON"]}) from None


def _model(name: str | None) -> str:
    if name and name not in {info.name for info in catalog.known_models(timezone.now())}:
        raise exceptions.ValidationError({"model": [f"there is no base model {name[:80]}"]})
    return name or ""
