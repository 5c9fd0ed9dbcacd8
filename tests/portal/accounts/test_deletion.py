from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from portal.accounts import deletion, export, tasks
from portal.billing.models import Entry
from portal.datasets.models import Dataset
from portal.jobs import delivery
from portal.jobs.models import Job, State
from tenants.access import Forbidden, Refused
from tenants.models import Tenant
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World


def furnish(world: World, engine: FakeEngine) -> Job:
    """Alice has one of everything, among it a job that the engine took."""
    world.upload(), world.sheet(), world.lab_run(), world.probe()
    job = world.job()
    delivery.deliver(job.pk, NOW)
    return job


def end(job: Job, engine: FakeEngine) -> None:
    Job.objects.filter(pk=job.pk).update(state=State.CANCELLED)
    engine.emit(job.public_id, "ended", outcome="cancelled")


def rows_of(tenant: Tenant) -> dict[str, int]:
    return {m.__name__: n for m in deletion.owned_models() if (n := m._base_manager.filter(tenant=tenant).count())}


def delete(world: World) -> Tenant:
    deletion.delete_tenant(world.sums, world.alice, "Sums", NOW)
    return Tenant.objects.get(pk=world.sums.pk)


def test_nobody_belongs_to_a_deleted_organisation_from_that_moment_on(world: World, engine: FakeEngine) -> None:
    furnish(world, engine)
    pages, api = world.client(world.bob), world.api(world.bob)
    delete(world)
    assert pages.get("/jobs/").status_code == 403
    assert api.get("/api/v1/jobs/").status_code == 401


def test_a_purge_waits_for_its_jobs_to_end(world: World, engine: FakeEngine) -> None:
    job = furnish(world, engine)
    gone = delete(world)
    assert job.commands.get().kind == "cancel"
    assert not deletion.purge(gone, NOW)
    assert Job.objects.filter(pk=job.pk).exists()


def test_a_purge_waits_for_the_engine(world: World, engine: FakeEngine) -> None:
    job = furnish(world, engine)
    gone = delete(world)
    end(job, engine)
    engine.down = True
    assert not deletion.purge(gone, NOW)
    engine.down = False
    tasks.sweep()
    assert Tenant.objects.get(pk=gone.pk).purged_at


def test_files_adapters_and_rows_are_gone_and_the_ledger_stays(world: World, engine: FakeEngine, settings) -> None:
    job = furnish(world, engine)
    entries = Entry.objects.filter(tenant=world.sums).count()
    gone = delete(world)
    end(job, engine)
    Tenant.objects.filter(pk=gone.pk).update(deleted_at="2100-01-01T00:00Z")  # the files are of today
    gone.refresh_from_db()
    assert deletion.purge(gone, NOW)
    assert engine.deleted == {job.public_id}
    left = [path for path in Path(settings.BLOBS_DIR).rglob("*") if path.is_file()]
    assert left == []
    kept = rows_of(gone)
    assert {model._meta.app_label for model in deletion.owned_models() if model.__name__ in kept} <= {"billing"}
    gone.refresh_from_db()
    assert (gone.name, kept["Entry"]) == ("Deleted organisation", entries)


def test_bytes_that_another_organisation_has_too_stay_its(world: World, engine: FakeEngine) -> None:
    mine, theirs = world.dataset(), world.dataset(world.charlie)
    assert mine.train_sha256 == theirs.train_sha256
    gone = delete(world)
    Tenant.objects.filter(pk=gone.pk).update(deleted_at="2100-01-01T00:00Z")
    gone.refresh_from_db()
    assert deletion.purge(gone, NOW)
    archive = b"".join(export.archive(world.other, NOW))
    assert f"datasets/{theirs.public_id}/train.jsonl" in zipfile.ZipFile(io.BytesIO(archive)).namelist()
    assert Dataset.objects.get() == theirs


def test_purging_again_changes_nothing(world: World, engine: FakeEngine) -> None:
    gone = delete(world)
    assert deletion.purge(gone, NOW)
    gone.refresh_from_db()
    assert deletion.purge(gone, NOW)


def test_what_its_owner_did_not_delete_is_never_purged(world: World) -> None:
    with pytest.raises(ValueError, match="not deleted"):
        deletion.purge(world.sums, NOW)


def test_only_an_owner_who_writes_the_name_deletes(world: World) -> None:
    with pytest.raises(Forbidden):
        deletion.delete_tenant(world.sums, world.bob, "Sums", NOW)
    with pytest.raises(Refused):
        deletion.delete_tenant(world.sums, world.alice, "sum", NOW)
    assert world.sums.memberships.count() == 3


def test_an_export_has_everything_and_no_secret(world: World, engine: FakeEngine) -> None:
    job = furnish(world, engine)
    engine.emit(job.public_id, "step", version=1)
    Job.objects.filter(pk=job.pk).update(version=1)
    zipped = zipfile.ZipFile(io.BytesIO(b"".join(export.archive(world.sums, NOW))))
    assert zipped.testzip() is None
    names = zipped.namelist()
    rows = zipped.read(f"datasets/{job.dataset.public_id}/train.jsonl").splitlines()
    assert len(rows) == job.dataset.train_rows
    assert f"jobs/{job.public_id}/adapter.zip" in names
    assert json.loads(zipped.read(f"jobs/{job.public_id}/job.json"))["dataset"] == job.dataset.public_id
    assert {member["email"] for member in json.loads(zipped.read("organisation.json"))["members"]} >= {
        "alice@example.org",
        "bob@example.org",
    }
    assert not any(b"secret_hash" in zipped.read(name) for name in names)


def test_an_export_while_the_engine_is_down_says_what_is_missing(world: World, engine: FakeEngine) -> None:
    job = furnish(world, engine)
    Job.objects.filter(pk=job.pk).update(version=1)
    engine.down = True
    names = zipfile.ZipFile(io.BytesIO(b"".join(export.archive(world.sums, NOW)))).namelist()
    assert f"jobs/{job.public_id}/adapter.missing.txt" in names
