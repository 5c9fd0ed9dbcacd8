from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from engine.grader_spec import HttpGrader
from engine.rewards.graders import GradeResult
from engine.rewards.outbound import Outbound
from engine.rewards.pool import GraderPool
from engine.sealed import Sealer
from tests.engine.rewards.servers import Names, Server, http

SECRET = "an honest secret of some length"
SEALER = Sealer(bearer="shared with the portal")
NOW = 1_800_000_000.7


def grader(port: int, **changes) -> HttpGrader:
    values = {"type": "http", "url": "https://grader.example.com/", "signing_secret": SECRET, "seconds": 5.0, **changes}
    # The door lets https alone through; the loopback speaks without TLS here.
    return HttpGrader(**values).model_copy(update={"url": f"http://grader.example.com:{port}/grade"})


async def ask(server: Server, *, owner: str = "ten_a/job_1", **changes) -> GradeResult:
    outbound = Outbound(resolve=Names(["127.0.0.1"]), allowed=lambda address: address == "127.0.0.1")
    pool = GraderPool(outbound=outbound, now=lambda: NOW, sealer=SEALER)
    async with server.running():
        try:
            return await pool.grade(grader(server.port, **changes), '{"x": 1}', {"answer": "42"}, owner=owner, row=7)
        finally:
            await pool.close()


async def test_the_request_holds_what_is_graded_and_a_signature_of_it():
    server = Server(answers=lambda _: http(b'{"reward": 0.5}'))
    result = await ask(server)
    (asked,) = server.asked
    signed = hmac.new(SECRET.encode(), b"1800000000." + asked.body, hashlib.sha256).hexdigest()

    assert (asked.headers["marlaas-timestamp"], asked.headers["marlaas-signature"]) == ("1800000000", f"v1={signed}")
    assert json.loads(asked.body) == {
        "grader": "http",
        "sample": {"output_text": '{"x": 1}', "output_json": {"x": 1}, "tool_calls": []},
        "item": {"answer": "42"},
    }
    assert (result.reward, result.components) == (0.5, {"http": 0.5})


async def test_null_does_not_apply_and_components_are_kept():
    server = Server(answers=lambda _: http(b'{"reward": null, "components": {"style": 3}}'))

    assert await ask(server) == GradeResult(reward=None, components={"style": 3.0, "http": None})


async def test_a_failure_is_tried_once_more_under_the_same_key():
    server = Server(answers=lambda number: http(b'{"reward": 1}') if number else http(b"", 503))
    result = await ask(server)

    assert result.reward == 1.0
    assert len(server.asked) == 2
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 1


@pytest.mark.parametrize(
    ("body", "status", "why", "kind", "times"),
    [
        (b"", 500, "status 500", "http", 2),
        (b"1", 200, 'no "reward"', "http", 2),
        (b"<html>", 200, "no JSON", "http", 2),
        (b"\xff", 200, "no JSON", "http", 2),
        (b'{"reward": NaN}', 200, "no JSON", "http", 2),
        (b'{"reward": "1"}', 200, "the reward is a str", "bad_value", 1),
        (b'{"reward": 1e999}', 200, "not finite", "bad_value", 1),
        (b'{"reward": 2}', 200, "the reward 2 lies outside of 0 to 1", "bad_value", 1),
        (b'{"reward": 1, "components": [1]}', 200, "components", "bad_value", 1),
        (b"x" * 70_000, 200, "longer than 65536 bytes", "http", 1),
        (b"", 302, "redirect", "http", 1),
    ],
)
async def test_what_is_no_reward_is_invalid_and_names_row_and_grader(body, status, why, kind, times):
    server = Server(answers=lambda _: http(body, status))
    result = await ask(server, name="ours")

    assert (result.reward, result.kind, len(server.asked)) == (None, kind, times)
    assert result.invalid.startswith("row 7: ours: ")
    assert why in result.invalid


async def test_a_silent_endpoint_is_invalid():
    result = await ask(Server(answers=lambda _: None), seconds=0.1)

    assert (result.kind, "within 0.1 s" in result.invalid) == ("timeout", True)


async def test_a_sealed_secret_signs_as_the_secret_itself():
    server = Server(answers=lambda _: http(b'{"reward": 0.5}'))
    sealed = SEALER.seal(SECRET, tenant="ten_a")
    result = await ask(server, signing_secret=sealed)
    (asked,) = server.asked
    signed = hmac.new(SECRET.encode(), b"1800000000." + asked.body, hashlib.sha256).hexdigest()

    assert (result.reward, asked.headers["marlaas-signature"]) == (0.5, f"v1={signed}")


async def test_a_secret_that_was_sealed_for_another_tenant_signs_nothing():
    server = Server(answers=lambda _: http(b'{"reward": 0.5}'))
    result = await ask(server, owner="ten_b/job_1", signing_secret=SEALER.seal(SECRET, tenant="ten_a"))

    assert (result.reward, result.kind, server.asked) == (None, "http", [])
    assert "make the reward again with a new one" in result.invalid
