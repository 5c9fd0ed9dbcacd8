"""The schema against the service: what a tester makes of it, by every kind of caller, meets no fault and nothing that is not documented."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
import schemathesis
import yaml
from django.core.management import call_command
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.specs.openapi import checks as conformance

from tests.portal.cli.test_marl import answered
from tests.portal.test_tenancy_table import bearer
from tests.portal.world import World

EXAMPLES = 3
# Their effect is the end of what the other operations need, or no end at all.
# Uploads are multipart forms with files, which the tester makes of numbers: tests/portal/datasets is about them.
LEFT_OUT = {("POST", "/api/v1/datasets/"), ("DELETE", "/api/v1/organisation/"), ("GET", "/api/v1/jobs/{public_id}/events/stream/")}
WANTED = (
    checks.not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
)


def schema(tmp_path: Any) -> Any:
    place = tmp_path / "schema.yaml"
    call_command("spectacular", "--file", str(place))
    return schemathesis.openapi.from_dict(yaml.safe_load(place.read_text()))


def sent(case: Any, client: Client) -> httpx.Response:
    case.headers = {name: value for name, value in (case.headers or {}).items() if name.lower() != "authorization"}
    ready = case.as_transport_kwargs(base_url="http://testserver")
    ready = {name: ready[name] for name in ("method", "url", "params", "headers", "data", "json", "files") if name in ready}
    ready["headers"] = {**dict(ready.get("headers") or {}), "Authorization": client.defaults["HTTP_AUTHORIZATION"]}
    request = httpx.Request(**ready)
    response = answered(request)
    response.request = request
    response.elapsed = timedelta()
    return response


@pytest.mark.parametrize("role", ["owner", "viewer", "stranger"])
def test_each_operation_answers_as_the_schema_says(world: World, tmp_path: Any, role: str) -> None:
    tenant, person = {"owner": (world.sums, world.alice), "viewer": (world.sums, world.vera), "stranger": (world.other, world.charlie)}[
        role
    ]
    client, faults, seen = bearer(tenant, person), [], 0
    for result in schema(tmp_path).get_all_operations():
        operation = result.ok()
        if (operation.method.upper(), operation.path) in LEFT_OUT:
            continue
        seen += 1

        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def one(case: Any) -> None:
            case.validate_response(sent(case, client), checks=WANTED)

        try:
            one()
        except (Exception, BaseExceptionGroup) as fault:  # all are told at once
            faults.append(f"{operation.method.upper()} {operation.path}: {fault}")
    assert faults == []
    assert seen >= 40
