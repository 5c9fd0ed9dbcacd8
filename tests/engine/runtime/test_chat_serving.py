"""``POST /generate`` on the real engine with the bundled model: what is answered, by whom, and beside what."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import httpx
import pytest

from tests.engine.engines import TestEngine, running_engine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(590)]

SUM = [{"role": "user", "content": "3+4="}]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory):
    with running_engine(tmp_path_factory.mktemp("state"), start_deadline_seconds=400) as engine:
        yield engine


@pytest.fixture(scope="module")
def job(engine: TestEngine) -> str:
    """A job of tenant-0 that has learnt to add, five versions long."""
    (job,) = engine.play(["add"], steps=5, prompts=16)
    return job


async def chat(engine: TestEngine, **changes: Any) -> list[dict[str, Any]]:
    async with (
        engine.client() as client,
        client.generate(**{"tenant": "tenant-0", "messages": SUM, "temperature": 0, "max_new_tokens": 8, **changes}) as lines,
    ):
        return [line async for line in lines]


def text(lines: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(line["text"] for line in lines if line["type"] == "delta" and line["index"] == index)


def test_the_base_model_answers_the_same_greedily_and_the_second_time_from_its_cache(engine: TestEngine):
    long = [{"role": "user", "content": "1+1=2 " * 12 + "3+4="}]
    first, second = (engine.run(chat(engine, messages=long)) for _ in range(2))
    assert text(first) == text(second)
    assert first[-1]["type"] == "usage" and first[-1]["completion_tokens"] >= 1
    assert (first[-1]["cached_tokens"], second[-1]["cached_tokens"] > 0) == (0, True)


def test_versions_are_their_own_models_and_what_is_not_the_tenants_is_not_there(engine: TestEngine, job: str):
    def logprob(**asked: Any) -> float:
        (first, *_) = [told for line in engine.run(chat(engine, top_logprobs=3, **asked)) for told in line.get("logprobs", [])]
        assert first["top"][0]["logprob"] == first["logprob"] and len(first["top"]) == 3  # greedy
        return first["logprob"]

    base, fresh, trained = logprob(), logprob(job=job, version=0), logprob(job=job, version=5)
    assert base == pytest.approx(fresh, abs=1e-4)
    assert trained == logprob(job=job)
    assert abs(trained - base) > 1e-3
    for stranger in ({"tenant": "tenant-1"}, {"version": 6}):
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            engine.run(chat(engine, job=job, **stranger))


def test_seeds_and_stops_and_several_answers(engine: TestEngine):
    asked = {"temperature": 1.0, "seed": 5, "n": 3, "top_logprobs": 0}
    first, second = (engine.run(chat(engine, **asked)) for _ in range(2))
    assert [text(first, k) for k in range(3)] == [text(second, k) for k in range(3)]
    assert all(math.isfinite(told["logprob"]) for line in first for told in line.get("logprobs", []))

    whole = text(engine.run(chat(engine, messages=[{"role": "user", "content": "reverse abc="}])))
    stopped = engine.run(chat(engine, messages=[{"role": "user", "content": "reverse abc="}], stop=[whole[1]]))
    assert text(stopped) == whole[0]
    assert [line["finish_reason"] for line in stopped if line["type"] == "end"] == ["stop"]


async def crowded(engine: TestEngine, job: str) -> dict[str, Any]:
    """Chats of two adapters and the base while another job trains; then a client that leaves in the middle of a long answer."""
    async with engine.client() as client:
        cursor = await client.last_offset()
        await client.submit("beside", engine.submission("max", 1, steps=5))
        asked = [{"job": job, "version": version} for version in (1, 5)] * 3 + [{}] * 3
        answers = await asyncio.gather(*(chat(engine, **one) for one in asked))
        steps = [event async for event in client.follow(["beside"], after=cursor) if event["kind"] == "step"]
        async with client.generate(tenant="tenant-0", messages=SUM, temperature=1.0, max_new_tokens=240, n=8, stop=["\x00"]) as lines:
            await anext(lines)
        while (await client.status())["sampler"].get("chat_completions"):
            await asyncio.sleep(0.05)
    return {"answers": answers, "steps": len(steps)}


def test_chats_and_a_job_go_on_beside_one_another_and_nothing_is_left_of_a_client_that_went_away(engine: TestEngine, job: str):
    seen = engine.run(crowded(engine, job), seconds=150)
    assert [answer[-1]["type"] for answer in seen["answers"]] == ["usage"] * 9
    assert seen["steps"] == 5
    assert engine.violations() == []
