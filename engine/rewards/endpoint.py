"""Rewards from a tenant's own endpoint: one signed POST per completion, and what its answer must be.

    POST url      {"grader": name, "sample": {"output_text", "output_json", "tool_calls"}, "item": {…}}
    answer 200    {"reward": number or null, "components": {name: number, …}}          components may be left out

``MARLaaS-Signature: v1=<hex>`` is the HMAC-SHA256, under the grader's ``signing_secret``, of ``<MARLaaS-Timestamp>.<body>``; refuse
timestamps older than five minutes. A request that is sent again carries the same ``Idempotency-Key``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any

from engine.grader_spec import HttpGrader
from engine.rewards.graders import HTTP, TIMEOUT, GradeResult, GradingFailed, checked_components, checked_reward
from engine.rewards.outbound import Late, Outbound, Unreachable
from engine.rewards.sample import NotJson, Sample, parse_json

MAX_REQUEST_BYTES = 4 * 2**20
MAX_ANSWER_BYTES = 64 * 1024


def signature(secret: str, timestamp: str, body: bytes) -> str:
    return "v1=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


async def ask(
    outbound: Outbound,
    grader: HttpGrader,
    sample: Sample,
    item: Mapping[str, Any],
    *,
    owner: str,
    now: Callable[[], float],
    secret: str,
) -> GradeResult:
    """``now``: seconds since 1970; ``secret``: the grader's, opened. Raises ``GradingFailed``."""
    body = json.dumps({"grader": grader.name, "sample": sample.as_dict(), "item": dict(item)}).encode()
    if len(body) > MAX_REQUEST_BYTES:
        raise GradingFailed(HTTP, f"row and completion are larger than {MAX_REQUEST_BYTES} bytes")
    timestamp = str(int(now()))
    headers = {
        "MARLaaS-Timestamp": timestamp,
        "MARLaaS-Signature": signature(secret, timestamp, body),
        "Idempotency-Key": hashlib.sha256(body).hexdigest()[:32],
    }
    try:
        reply = await outbound.post(grader.url, body=body, headers=headers, seconds=grader.seconds, max_bytes=MAX_ANSWER_BYTES, owner=owner)
    except Late as error:  # once more: on the way to an endpoint an answer may be lost, as none is in the sandbox
        raise GradingFailed(TIMEOUT, f"the endpoint: {error}", retry=True) from error
    except Unreachable as error:
        raise GradingFailed(HTTP, f"the endpoint: {error}", retry=error.retry) from error
    if reply.status != 200:
        raise GradingFailed(HTTP, f"the endpoint answers with status {reply.status}", retry=True)
    return _result(reply.body, grader)


def _result(body: bytes, grader: HttpGrader) -> GradeResult:
    try:
        answer = parse_json(body.decode("utf-8"))
    except (NotJson, UnicodeDecodeError):
        raise GradingFailed(HTTP, "the endpoint's answer is no JSON", retry=True) from None
    if not isinstance(answer, dict) or "reward" not in answer:
        raise GradingFailed(HTTP, 'the endpoint\'s answer has no "reward"', retry=True)
    components = checked_components(answer.get("components") or {})
    if answer["reward"] is None:
        return GradeResult(reward=None, components=components)
    return GradeResult(reward=checked_reward(answer["reward"], grader.bounds), components=components)
