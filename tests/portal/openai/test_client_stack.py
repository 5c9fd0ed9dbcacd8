"""The unmodified ``openai`` package drives a whole reinforcement job, over the real portal and the real engine with the bundled model."""

from __future__ import annotations

import io
import json
import random
import secrets
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.browser.stack import Stack, answers, free_port
from tests.support.secrets import generated_in
from tests.support.secrets import told as told_in

pytestmark = [pytest.mark.stack, pytest.mark.timeout(580)]
ENGINE_SECONDS, JOB_SECONDS = 400.0, 200.0

PYTHON = {
    "type": "python",
    "name": "exact",
    "source": "def grade(sample, item):\n    return 1.0 if sample['output_text'].strip() == item['answer'] else 0.0\n",
}
MULTI = {
    "type": "multi",
    "name": "both",
    "graders": {
        "exact": {
            "type": "string_check",
            "name": "exact",
            "input": "{{sample.output_text}}",
            "reference": "{{item.answer}}",
            "operation": "eq",
        },
        "near": {"type": "text_similarity", "name": "near", "input": "{{sample.output_text}}", "reference": "{{item.answer}}"},
    },
    "calculate_output": "0.8 * exact + 0.2 * near",
}
HYPERPARAMETERS = {"batch_size": 8, "steps": 4, "group_size": 4, "max_new_tokens": 8, "max_prompt_tokens": 16, "lora_rank": 8}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("stack"), port=free_port(), engine_port=free_port())
    stack.environment |= {"MARLAAS_KV_GIB": "0.25", "MARLAAS_JOB_SLOTS": "4", "MARLAAS_OBJECT_STORE_MB": "80"}
    stack.environment["MARLAAS_ENGINE_SECRET"] = secrets.token_hex(16)
    stack.commands["engine"] = (sys.executable, "-m", "engine", "serve")
    try:
        stack.start()
        eventually(lambda: answers(f"{stack.environment['MARLAAS_ENGINE_URL']}/healthz") or None, seconds=ENGINE_SECONDS)
        yield stack
    finally:
        stack.stop()


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[OpenAI]:
    seeded = stack.manage("seed_tenant", "--email", "alice@example.org", "--password", "correct horse", "--name", "Sums", "--token")
    with OpenAI(base_url=f"{stack.url}/v1", api_key=json.loads(seeded)["token"], timeout=120) as client:
        yield client


def eventually(found: Callable[[], Any], *, seconds: float = JOB_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (value := found()) is not None:
            return value
        time.sleep(0.2)
    raise AssertionError("not reached within the deadline")


def sums(count: int, seed: int) -> io.BytesIO:
    chance = random.Random(seed)
    pairs = [(chance.randrange(10), chance.randrange(10)) for _ in range(count)]
    file = io.BytesIO("".join(json.dumps({"prompt": f"{a}+{b}=", "answer": str(a + b)}) + "\n" for a, b in pairs).encode())
    file.name = "sums.jsonl"
    return file


def job_of(client: OpenAI, grader: dict[str, Any], **more: Any) -> Any:
    training = client.files.create(file=sums(48, seed=1), purpose="fine-tune")
    asked = {**HYPERPARAMETERS, **more.pop("hyperparameters", {})}
    method = {"type": "reinforcement", "reinforcement": {"grader": grader, "hyperparameters": asked}}
    return client.fine_tuning.jobs.create(model="tiny-math", training_file=training.id, method=method, **more)


def ended(client: OpenAI, job: str) -> Any:
    return eventually(lambda: (found := client.fine_tuning.jobs.retrieve(job)).finished_at and found)


def told(client: OpenAI, job: str) -> list[str]:
    """What the job's events say, for the one who reads a failure."""
    return [event.message for event in client.fine_tuning.jobs.list_events(job)]


def test_the_whole_way(client: OpenAI) -> None:
    graders = client.fine_tuning.alpha.graders
    assert graders.validate(grader=PYTHON).grader.name == "exact"
    assert graders.run(grader=PYTHON, item={"answer": "7"}, model_sample="7").reward == 1.0
    assert graders.run(grader=MULTI, item={"answer": "7"}, model_sample="8").reward < 0.5

    held_out = client.files.create(file=sums(8, seed=2), purpose="fine-tune")
    job = job_of(client, PYTHON, suffix="adder", seed=3, validation_file=held_out.id, metadata={"of": "the whole way"})
    other = job_of(client, MULTI)
    assert [found.id for found in client.fine_tuning.jobs.list(metadata={"of": "the whole way"})] == [job.id]
    assert {found.id for found in client.fine_tuning.jobs.list(limit=1)} == {job.id, other.id}  # it pages by itself

    done = ended(client, job.id)
    assert (done.status, done.fine_tuned_model) == ("succeeded", f"{job.id}@4"), told(client, job.id)
    assert done.trained_tokens and done.validation_file == held_out.id
    multi = ended(client, other.id)
    assert multi.status == "succeeded", told(client, other.id)

    events = list(client.fine_tuning.jobs.list_events(job.id, limit=5))
    assert len({event.id for event in events}) == len(events) > 5
    assert "The job has succeeded" in events[0].message
    checkpoints = list(client.fine_tuning.jobs.checkpoints.list(job.id, limit=3))
    assert [checkpoint.step_number for checkpoint in checkpoints] == [4, 3, 2, 1]
    assert checkpoints[0].fine_tuned_model_checkpoint == f"{job.id}@4"
    assert 0 <= checkpoints[0].metrics.full_valid_mean_reward <= 1

    assert {model.id for model in client.models.list()} == {"tiny-math", f"{job.id}@4", f"{other.id}@4"}
    stream_and_whole_are_the_same(client, f"{job.id}@2")
    answer = client.chat.completions.create(model="adder", messages=[{"role": "user", "content": "3+4="}], max_tokens=8, n=2)
    assert (answer.model, len(answer.choices)) == ("adder@4", 2)
    what_is_not_there_is_an_error_of_its_kind(client, job.id)
    files_are_read_and_deleted(client, multi.training_file)


def files_are_read_and_deleted(client: OpenAI, used: str) -> None:
    spare = client.files.create(file=sums(8, seed=4), purpose="fine-tune")
    rows = [json.loads(line) for line in client.files.content(spare.id).text.splitlines()]
    assert [(row["prompt"], row["answer"]) for row in rows] == [tuple(json.loads(line).values()) for line in sums(8, seed=4)]
    assert client.files.delete(spare.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(spare.id)
    with pytest.raises(openai.ConflictError, match="one job was made of it"):
        client.with_options(max_retries=0).files.delete(used)


def stream_and_whole_are_the_same(client: OpenAI, model: str) -> None:
    asked: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "3+4="}], "temperature": 0, "max_tokens": 8}
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content != ""
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == len(whole.choices[0].logprobs.content)
    assert {chunk.model for chunk in chunks} == {model}


def what_is_not_there_is_an_error_of_its_kind(client: OpenAI, job: str) -> None:
    hello: Any = [{"role": "user", "content": "3+4="}]
    with pytest.raises(openai.NotFoundError, match="last step"):
        client.chat.completions.create(model=f"{job}@5", messages=hello)
    with pytest.raises(openai.BadRequestError, match="presence_penalty"):
        client.chat.completions.create(model="tiny-math", messages=hello, presence_penalty=1.0)
    with pytest.raises(openai.BadRequestError, match="speed"):
        job_of(client, PYTHON, hyperparameters={"speed": 9})
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="mrl_nothing").models.list()


def test_a_job_is_paused_resumed_and_cancelled(client: OpenAI) -> None:
    job = job_of(client, MULTI, hyperparameters={"steps": 2000})
    jobs = client.fine_tuning.jobs
    eventually(lambda: jobs.retrieve(job.id).status == "running" or None)
    jobs.pause(job.id)
    eventually(lambda: jobs.retrieve(job.id).status == "paused" or None)
    jobs.resume(job.id)
    eventually(lambda: jobs.retrieve(job.id).status in ("queued", "running") or None)
    jobs.cancel(job.id)
    cancelled = ended(client, job.id)
    assert (cancelled.status, cancelled.fine_tuned_model) == ("cancelled", None)


def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(stack: Stack, client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="tiny-math", messages=[{"role": "user", "content": "3+4="}], stream=True, n=8, temperature=2
    )
    next(iter(stream))
    stream.close()
    eventually(lambda: sampling(stack) == 0 or None)


def sampling(stack: Stack) -> int:
    """Completions of chats that the engine has under way."""
    secret = {"Authorization": f"Bearer {stack.environment['MARLAAS_ENGINE_SECRET']}"}
    with urllib.request.urlopen(urllib.request.Request(f"{stack.environment['MARLAAS_ENGINE_URL']}/status", headers=secret)) as answer:
        return json.load(answer)["sampler"].get("chat_completions", 0)


def test_no_log_of_portal_or_engine_tells_a_secret(stack: Stack, client: OpenAI) -> None:
    """The last of this file: the logs are those of all that stands above."""
    known = {"token": client.api_key.rpartition("_")[2][:20], "engine's": stack.environment["MARLAAS_ENGINE_SECRET"]}
    known |= {"password": "correct horse", **generated_in(stack.state)}
    assert len(known) >= 4
    assert told_in(stack.log_dir, known) == []
