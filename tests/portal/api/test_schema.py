"""The schema against the service: what a tester makes of it, by every kind of caller, meets no fault and nothing that is not documented."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import schemathesis
import yaml
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import checks
from schemathesis.specs.openapi import checks as conformance

from portal.jobs import delivery
from tenants.models import Tenant
from tests.portal import history
from tests.portal.cli.test_marl import answered
from tests.portal.test_tenancy import things
from tests.portal.test_tenancy_table import CALLERS, caller
from tests.portal.world import NOW, World

pytestmark = pytest.mark.timeout(600)  # hundreds of calls; the first role also waits for the database and the schema
WANTED = (
    checks.not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
)
# Who gets further than the door is asked more often.
EXAMPLES = defaultdict(lambda: 1, owner=4, admin=2, member=2, viewer=2, stranger=2)
# For how many operations they get more than a refusal, at least; the others get nothing but these.
OPENED = {"owner": 56, "admin": 52, "member": 44, "viewer": 34, "stranger": 22}
SHUT = {"anonymous": {401}, "revoked": {401}, "scopeless": {403}, "suspended": {403}}

WHO_AM_I = "GET /api/v1/me/"  # open to whoever is known


@dataclass(frozen=True, kw_only=True)
class Operation:
    """``name``: method and path; ``cases``: what the tester makes of it; ``for_all``: it asks for no token."""

    name: str
    noun: str
    cases: SearchStrategy
    for_all: bool


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> list[Operation]:
    place = tmp_path_factory.mktemp("schema") / "schema.yaml"
    call_command("spectacular", "--file", str(place))
    schema = yaml.safe_load(place.read_text())
    found = [result.ok() for result in schemathesis.openapi.from_dict(schema).get_all_operations()]
    return [_operation(one, schema["paths"][one.path][one.method]) for one in found]


def _operation(one: Any, said: dict[str, Any]) -> Operation:
    noun = one.path.removeprefix("/api/v1/").split("/")[0]
    name = f"{one.method.upper()} {one.path}"
    return Operation(name=name, noun=noun, cases=one.as_strategy(), for_all=said.get("security", [{}]) == [{}])


def sent(case: Any, client: Client) -> httpx.Response:
    """The case by this caller; whatever it did is undone."""
    ready = case.as_transport_kwargs(base_url="http://testserver")
    ready = {name: ready[name] for name in ("method", "url", "params", "headers", "data", "json", "files") if name in ready}
    headers = {name: value for name, value in dict(ready.get("headers") or {}).items() if name.lower() != "authorization"}
    if ready.get("files"):
        ready["files"] = [(name, (part[0], _as_sent(part[1]), *part[2:])) for name, part in ready["files"]]
    ready["headers"] = {**headers, **({"Authorization": client.defaults[_WHO]} if _WHO in client.defaults else {})}
    request = httpx.Request(**ready)
    with transaction.atomic():
        response = answered(request, to_the_end=False)
        transaction.set_rollback(True)
    response.request = request
    response.elapsed = timedelta()
    return response


def _as_sent(part: Any) -> bytes:
    """A field of a form, of which the tester makes numbers too."""
    return part if isinstance(part, bytes) else str(part).encode()


_WHO = "HTTP_AUTHORIZATION"


def told(operation: Operation, names: dict[str, str], client: Client, examples: int) -> Iterator[int | Exception]:
    """The status of each answer, and each fault: once with made-up ids, once with those of Alice's things."""
    heard: list[int] = []

    def one(case: Any) -> None:
        for known in ({}, names) if case.path_parameters else ({},):
            case.path_parameters = {name: known.get(name, made_up) for name, made_up in (case.path_parameters or {}).items()}
            response = sent(case, client)
            heard.append(response.status_code)
            case.validate_response(response, checks=WANTED)

    try:
        _often(examples)(given(case=operation.cases)(one))()
    except (Exception, BaseExceptionGroup) as fault:  # all are told at once
        yield fault
    yield from heard


def _often(examples: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def things_that_have_run(world: World) -> dict[str, dict[str, str]]:
    """What Alice has, with two steps of her job."""
    known = things(world)
    job = world.sums.jobs.get(public_id=known["jobs"]["public_id"])
    delivery.deliver(job.pk, NOW)
    history.play(job, 2)
    return {**known, "jobs": {**known["jobs"], "version": "1"}}


@pytest.mark.parametrize("name", CALLERS)
def test_each_operation_answers_as_the_schema_says(world: World, operations: list[Operation], settings: Any, name: str) -> None:
    settings.API_CALLS_PER_MINUTE = {"token": 10_000, "tenant": 10_000}
    client, known = caller(world, name).api, things_that_have_run(world)
    if name == "suspended":
        Tenant.objects.filter(pk=world.sums.pk).update(suspended_at=datetime.now(UTC))
    faults, heard = [], {}
    for operation in operations:
        answers = list(told(operation, known.get(operation.noun, {}), client, EXAMPLES[name]))
        heard[operation.name] = {answer for answer in answers if isinstance(answer, int)}
        faults += [f"{operation.name}: {fault}" for fault in answers if not isinstance(fault, int)]
    assert faults == []
    assert len(operations) >= 80
    closed = {operation.name: heard[operation.name] for operation in operations if not operation.for_all}
    if name in SHUT:
        assert {one: got for one, got in closed.items() if got - SHUT[name]} == ({} if SHUT[name] == {401} else {WHO_AM_I: {200}})
    else:
        assert sum(any(status < 300 for status in got) for got in closed.values()) >= OPENED[name]
