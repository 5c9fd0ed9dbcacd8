"""``/v1/files``: a file for fine-tuning is a dataset of ours, checked whole when it is uploaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.http import Http404, StreamingHttpResponse
from django.utils import timezone
from rest_framework import parsers, status
from rest_framework.request import Request
from rest_framework.response import Response

from portal.datasets.actions import create_dataset, parse_plan
from portal.datasets.content import lines
from portal.datasets.models import Dataset
from portal.datasets.removal import delete_dataset
from portal.errors import Invalid
from portal.names import file_name
from portal.openai import fields
from portal.openai.base import View, page, seconds
from portal.streaming import body
from tenants.models import Tenant

PURPOSE = "fine-tune"


class Files(View):
    noun = "datasets"
    parser_classes = (parsers.MultiPartParser,)

    def get(self, request: Request) -> Response:
        asked = fields.checked(dict(request.query_params.items()), fields.FILE_LIST)
        datasets = self.tenant.datasets.order_by("-id")
        if asked.get("purpose", PURPOSE) != PURPOSE:
            datasets = datasets.none()
        return Response(page(request, datasets, shown, default=100))

    def post(self, request: Request) -> Response:
        given = fields.checked(dict(request.data.items()), fields.FILE)  # an empty body is no form, but a plain dict
        file = given.get("file")
        if file is None or isinstance(file, str):
            raise Invalid([("file", "send it as a part of a multipart form")])
        if given.get("purpose") != PURPOSE:
            raise Invalid([("purpose", f"must be {PURPOSE}: files are for fine-tuning only")])
        # All rows are for training: what is held out comes as a file of its own.
        plan = parse_plan({"eval_share": 0}, file.name)
        name = Path(file_name(file.name)).stem[:100]
        return Response(shown(create_dataset(self.tenant, request.user, name, file, plan=plan)), status.HTTP_200_OK)


class File(View):
    noun = "datasets"

    def get(self, request: Request, file_id: str) -> Response:
        return Response(shown(owned(self.tenant, file_id)))

    def delete(self, request: Request, file_id: str) -> Response:
        delete_dataset(self.tenant, request.user, owned(self.tenant, file_id), timezone.now())
        return Response({"id": file_id, "object": "file", "deleted": True})


class Content(View):
    noun = "datasets"

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """OpenAI's clients ask for application/binary here, which nobody renders."""
        return super().perform_content_negotiation(request, force=True)

    def get(self, request: Request, file_id: str) -> StreamingHttpResponse:
        """The rows as JSON Lines, whatever the file was and whatever kind is asked for."""
        dataset = owned(self.tenant, file_id)
        response = StreamingHttpResponse(body(request._request, lines(dataset)), content_type="application/jsonl")
        response["Content-Disposition"] = f'attachment; filename="{dataset.public_id}.jsonl"'
        return response


def owned(tenant: Tenant, file_id: str) -> Dataset:
    dataset = tenant.datasets.filter(public_id=file_id).first()
    if dataset is None:
        raise Http404
    return dataset


def shown(dataset: Dataset) -> dict[str, Any]:
    return {
        "id": dataset.public_id,
        "object": "file",
        "bytes": dataset.train_bytes + dataset.eval_bytes,
        "created_at": seconds(dataset.created_at),
        "filename": dataset.recipe.get("filename") or f"{dataset.name}.jsonl",
        "purpose": PURPOSE,
        "status": "processed",
        "status_details": None,
        "expires_at": None,
    }
