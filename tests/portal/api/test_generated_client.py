"""The schema is good enough for a typed client: one is generated from it here and now, and drives a job over HTTP."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest
from django.core.management import call_command

from tenants import tokens
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import World, additions

pytestmark = pytest.mark.django_db(transaction=True)  # the server has a thread and a connection of its own
NAME = "marl_generated"
# What it would call to format is not ours to have; and it knows no archives.
CONFIG = {"post_hooks": [], "content_type_overrides": {"application/zip": "application/octet-stream"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a client that was generated without a warning."""
    folder = tmp_path_factory.mktemp("client")
    schema, config = folder / "schema.yaml", folder / "config.json"
    call_command("spectacular", "--file", str(schema))
    config.write_text(json.dumps(CONFIG))
    options = ("--path", schema, "--output-path", folder / NAME, "--meta", "none", "--config", config, "--fail-on-warning")
    command = [sys.executable, "-m", "openapi_python_client", "generate", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield folder / NAME
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def part(name: str) -> ModuleType:
    return importlib.import_module(f"{NAME}.{name}")


def operation(name: str) -> Any:
    """Of the noun that its name begins with."""
    return part(f"api.{name.partition('_')[0]}.api_v1_{name}")


def test_each_operation_of_the_schema_has_its_function(made: Path) -> None:
    names = {path.stem for path in (made / "api").glob("*/api_v1_*.py")}
    assert len(names) > 55
    assert {"api_v1_jobs_create", "api_v1_datasets_create", "api_v1_organisation_export_retrieve"} <= names


def test_its_types_are_those_of_the_answers(made: Path) -> None:
    hints = get_type_hints(part("models").JobOut, None, vars(part("models")))  # what is nested is imported for type checkers only
    assert {name: hints[name] for name in ("id", "version", "submitted_at")} == {"id": str, "version": int, "submitted_at": datetime}
    assert hints["state"]("running").value == "running"


def test_it_drives_a_job(made: Path, world: World, engine: FakeEngine, live_server: Any) -> None:
    models, types = part("models"), part("types")
    _, text = tokens.issue(world.sums, world.bob, "generated", datetime.now(UTC))
    with part("client").AuthenticatedClient(base_url=live_server.url, token=text) as client:
        file = types.File(payload=additions(40), file_name="rows.jsonl", mime_type="application/jsonl")
        dataset = operation("datasets_create").sync(client=client, body=models.DatasetInRequest(file=file, name="sums"))
        reward = operation("rewards_create").sync(client=client, body=models.RewardInRequest(name="exact", grader={"type": "math"}))
        order = models.ApiV1JobsCreateBody(dataset=dataset.id, reward=reward.id, base_model="tiny-math")
        job, again = (operation("jobs_create").sync(client=client, body=order, idempotency_key="once") for _ in range(2))
        assert isinstance(job, models.JobOut)
        assert (job.id, job.state.value) == (again.id, "submitted")

        listed = operation("jobs_list").sync(client=client, limit=1)
        assert [found.id for found in listed.results] == [job.id]
        refused = operation("jobs_list").sync_detailed(client=client, limit=0)
        assert (refused.status_code, refused.parsed.error.param) == (400, "limit")
        missing = operation("jobs_retrieve").sync_detailed("job_nowhere", client=client)
        assert (missing.status_code, missing.parsed.error.code) == (404, "not_found")
        cancelled = operation("jobs_cancel_create").sync(job.id, client=client)
        assert cancelled.id == job.id
