"""All that an organisation has, as one zip archive that is written while it is sent: nothing of it is held whole."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder

from engine.blobs import BlobMissing, BlobStore
from engine.grader_spec import shown
from portal import gateway
from portal.datasets.models import Dataset
from portal.jobs import engines
from portal.jobs.models import Job
from portal.streaming import CHUNK_BYTES, chunks_of
from tenants.models import Tenant

_PAGE = 500
README = """All that {name} has in MARLaaS, as of {now}.

organisation.json  members, invitations and API tokens (without their secrets)
audit.jsonl        who did what, one entry a line
datasets/ID/       dataset.json, train.jsonl and, where there is one, eval.jsonl
rewards/ID.json    each reward's grader; secrets that are only ever written are left out
jobs/ID/           job.json, events.jsonl and the latest adapter in PEFT's layout (adapter.zip)
billing.csv        every entry of the ledger; amounts in millionths
"""


def archive(tenant: Tenant, now: datetime) -> Iterator[bytes]:
    """The archive's bytes. An adapter that the engine cannot give now is named in a file of its place instead."""
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, chunks in _files(tenant, now):
            with zipped.open(zipfile.ZipInfo(name, now.timetuple()[:6]), "w", force_zip64=True) as entry:
                for chunk in chunks:
                    entry.write(chunk)
                    yield from pipe.take()
    yield from pipe.take()


def _files(tenant: Tenant, now: datetime) -> Iterator[tuple[str, Iterable[bytes]]]:
    yield "README.txt", [README.format(name=tenant.name, now=f"{now:%Y-%m-%d %H:%M} UTC").encode()]
    yield "organisation.json", [_json(_organisation(tenant))]
    yield "audit.jsonl", (_line(_fields(entry, "actor", "id", "tenant")) for entry in tenant.audit.order_by("id").iterator(_PAGE))
    for dataset in tenant.datasets.all():
        yield from _dataset(dataset)
    for reward in tenant.rewards.all():
        facts = {"id": reward.public_id, "name": reward.name, "grader": shown(reward.grader), "created_at": reward.created_at}
        yield f"rewards/{reward.public_id}.json", [_json(facts)]
    for job in tenant.jobs.select_related("dataset", "reward"):
        yield from _job(job)
    yield "billing.csv", _entries(tenant)


def _organisation(tenant: Tenant) -> dict[str, Any]:
    tokens = tenant.api_tokens.select_related("user")
    return {
        "id": tenant.public_id,
        "name": tenant.name,
        "created_at": tenant.created_at,
        "require_mfa": tenant.require_mfa,
        "members": [{"email": m.user.email, "role": m.role, "since": m.created_at} for m in tenant.memberships.select_related("user")],
        "invitations": [_fields(invited, "id", "tenant", "secret_hash", "invited_by") for invited in tenant.invitations.all()],
        "api_tokens": [{**_fields(token, "id", "tenant", "secret_hash", "user"), "person": token.user.email} for token in tokens],
    }


def _dataset(dataset: Dataset) -> Iterator[tuple[str, Iterable[bytes]]]:
    folder = f"datasets/{dataset.public_id}"
    yield f"{folder}/dataset.json", [_json(_fields(dataset, "id", "tenant", "created_by"))]
    store = BlobStore(settings.BLOBS_DIR)
    for split in ("train", "eval"):
        if ref := dataset.blob(split):
            try:
                yield f"{folder}/{split}.jsonl", chunks_of(store.open(ref))
            except BlobMissing:
                yield f"{folder}/{split}.missing.txt", [b"The rows are not in the store any more.\n"]


def _job(job: Job) -> Iterator[tuple[str, Iterable[bytes]]]:
    folder = f"jobs/{job.public_id}"
    facts = _fields(job, "id", "tenant", "created_by", "dataset", "reward", "spec")
    spec = {**job.spec, "grader": shown(job.spec["grader"])}
    yield f"{folder}/job.json", [_json({**facts, "dataset": job.dataset.public_id, "reward": job.reward.public_id, "spec": spec})]
    yield f"{folder}/events.jsonl", (_line(event.as_dict()) for event in job.events.order_by("seq").iterator(_PAGE))
    if not job.version:
        return
    try:
        with engines.of(job).adapter(job.public_id, "latest") as answer:
            yield f"{folder}/adapter.zip", answer.iter_bytes(CHUNK_BYTES)
    except (gateway.EngineDown, gateway.EngineRefused) as error:
        yield f"{folder}/adapter.missing.txt", [f"The engine could not give it: {error}\n".encode()]


def _entries(tenant: Tenant) -> Iterator[bytes]:
    names = ("at", "source_type", "source", "step", "attempt", "kind", "model", "quantity", "price_micros", "amount_micros", "reason", "by")
    yield _csv(names)
    for entry in tenant.entries.order_by("id").iterator(_PAGE):
        yield _csv([getattr(entry, name) for name in names])


def _fields(row: Any, *without: str) -> dict[str, Any]:
    return {field.name: field.value_from_object(row) for field in row._meta.concrete_fields if field.name not in without}


def _json(value: Any) -> bytes:
    return (json.dumps(value, cls=DjangoJSONEncoder, indent=1, ensure_ascii=False) + "\n").encode()


def _line(value: Any) -> bytes:
    return (json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False) + "\n").encode()


def _csv(values: Iterable[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow(values)
    return out.getvalue().encode()


class _Pipe(io.RawIOBase):
    """What ``zipfile`` writes into and a response reads out of."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def take(self) -> Iterator[bytes]:
        parts, self._parts = self._parts, []
        yield from parts
