"""The portal's processes together on a real Valkey: what is stored and shown stays whole whichever of them is killed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import websockets

from tests.browser.stack import Stack, free_port
from tests.portal.world import additions
from tests.support import secrets

pytestmark = [pytest.mark.stack, pytest.mark.timeout(180)]
DEADLINE_SECONDS = 150.0


class Away(httpx.TransportError):
    """The site says that it cannot answer now: to be asked again."""


class Person:
    """Alice, or whose address it is, by API token and by socket."""

    def __init__(self, stack: Stack, email: str = "alice@example.org"):
        self.stack = stack
        self.email = email
        seeded = stack.manage("seed_tenant", "--email", email, "--password", "correct horse", "--name", "Sums", "--token")
        self.token = json.loads(seeded)["token"]
        self.http = httpx.Client(base_url=f"{stack.url}/api/v1", headers={"Authorization": f"Bearer {self.token}"}, timeout=20)
        dataset = self.http.post("/datasets/", data={"name": "sums"}, files={"file": ("sums.jsonl", additions(40))}).json()
        reward = self.http.post("/rewards/", json={"name": "exact", "grader": {"type": "string_check"}}).json()
        self.order = {"dataset": dataset["id"], "reward": reward["id"], "base_model": "tiny-math"}

    def start(self, steps: int) -> str:
        answer = self.http.post("/jobs/", json={**self.order, "train": {"steps": steps}})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def job(self, job: str) -> dict[str, Any]:
        answer = self.http.get(f"/jobs/{job}/")
        if answer.status_code == 503:
            raise Away(answer.text)
        return answer.json()

    def wait(self, job: str, reached: Any) -> dict[str, Any]:
        """The job as soon as ``reached(job)``; asks again every tenth of a second, up to the deadline."""
        return eventually(lambda: (found := self.job(job)) and (found if reached(found) else None))

    def events(self, job: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while page := self.http.get(f"/jobs/{job}/events/", params={"after": found[-1]["seq"] if found else 0}).json()["events"]:
            found += page
        return found

    def cookie(self) -> str:
        with httpx.Client(base_url=self.stack.url, follow_redirects=True) as browser:
            browser.get("/accounts/login/")
            form = {"login": self.email, "password": "correct horse", "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
            browser.post("/accounts/login/", data=form)
            return browser.cookies["sessionid"]

    def socket(self, job: str, after: int) -> Any:
        url = f"{self.stack.url.replace('http', 'ws')}/ws/jobs/{job}/?after={after}"
        return websockets.connect(url, additional_headers={"Cookie": f"sessionid={self.session}"}, origin=self.stack.url, max_size=None)

    @property
    def session(self) -> str:
        if not hasattr(self, "_session"):
            self._session = self.cookie()
        return self._session


def eventually(found: Any) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        try:
            if (value := found()) is not None:
                return value
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("not reached within the deadline")


def ended(job: dict[str, Any]) -> bool:
    return job["ended_at"] is not None


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("stack"), port=free_port(), engine_port=free_port(), speed=20.0, slots=8)
    stack.commands["worker"] += ("--beat",)  # the sweeper is under test here
    try:
        yield stack.start()
    finally:
        stack.stop()


@pytest.fixture(scope="module")
def alice(stack: Stack) -> Person:
    return Person(stack)


def whole(alice: Person, job: str, steps: int) -> None:
    """The job succeeded; its events have no gap and no double, its steps every version once."""
    events = alice.events(job)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["data"]["version"] for event in events if event["kind"] == "step"] == list(range(1, steps + 1))
    assert alice.job(job)["state"] == "succeeded"


async def follow(alice: Person, job: str, *, until: str = "ended", seconds: float = DEADLINE_SECONDS) -> list[dict[str, Any]]:
    """The events that the socket brings until one of the kind ``until``; connects again where it was, as a page does."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(seconds):
        while not found or found[-1]["kind"] != until:
            try:
                async with alice.socket(job, found[-1]["seq"] if found else 0) as socket:
                    while not found or found[-1]["kind"] != until:
                        found += json.loads(await socket.recv()).get("events", [])
            except (OSError, websockets.WebSocketException):
                await asyncio.sleep(0.1)
    return found


async def test_a_job_runs_from_the_api_to_the_socket(alice: Person) -> None:
    job = alice.start(steps=10)
    assert await follow(alice, job) == alice.events(job)
    whole(alice, job, 10)


async def test_a_burst_of_ten_thousand_reaches_watchers_without_gap_or_double(stack: Stack, alice: Person) -> None:
    job = alice.start(steps=400)  # its end comes after the burst, however slow the machine
    watchers = [asyncio.create_task(follow(alice, job)) for _ in range(4)]
    await asyncio.to_thread(alice.wait, job, lambda found: found["state"] == "running")
    for _ in range(10):
        await asyncio.to_thread(engine_burst, stack, job, 1000)
    for watcher in watchers:
        seqs = [event["seq"] for event in await watcher]
        assert len(seqs) > 10_000
        assert seqs == list(range(1, len(seqs) + 1))
    whole(alice, job, 400)


def engine_burst(stack: Stack, job: str, count: int) -> None:
    secret = {"Authorization": f"Bearer {stack.environment['MARLAAS_ENGINE_SECRET']}"}
    url = f"{stack.environment['MARLAAS_ENGINE_URL']}/fake/{job}/burst/{count}"
    assert httpx.post(url, headers=secret, timeout=20).status_code == 200


def test_a_killed_ingester_goes_on_where_it_was(stack: Stack, alice: Person) -> None:
    job = alice.start(steps=20)
    alice.wait(job, lambda found: found["version"] >= 3)
    stack.kill("ingester")
    stack.launch("ingester")
    alice.wait(job, ended)
    whole(alice, job, 20)


async def test_a_watcher_comes_back_after_the_web_process_was_killed(stack: Stack, alice: Person) -> None:
    job = alice.start(steps=40)
    watcher = asyncio.create_task(follow(alice, job))
    await asyncio.to_thread(alice.wait, job, lambda found: found["version"] >= 3)
    stack.kill("web")
    stack.launch("web")
    events = await watcher
    assert events == alice.events(job)
    whole(alice, job, 40)


def test_a_worker_killed_before_it_could_send_loses_no_job(stack: Stack, alice: Person) -> None:
    stack.kill("worker")
    job = alice.start(steps=2)
    stack.launch("worker")
    alice.wait(job, ended)
    whole(alice, job, 2)


def test_jobs_are_taken_and_go_on_while_valkey_is_gone(stack: Stack, alice: Person) -> None:
    running = alice.start(steps=40)
    alice.wait(running, lambda found: found["version"] >= 2)
    stack.kill("valkey")
    late = alice.start(steps=2)
    stack.launch("valkey")
    for job, steps in ((running, 40), (late, 2)):
        alice.wait(job, ended)
        whole(alice, job, steps)


async def test_a_watcher_outlives_valkey(stack: Stack, alice: Person) -> None:
    job = alice.start(steps=40)
    watcher = asyncio.create_task(follow(alice, job))
    await asyncio.to_thread(alice.wait, job, lambda found: found["version"] >= 2)
    stack.kill("valkey")
    stack.launch("valkey")
    assert [event["seq"] for event in await watcher] == [event["seq"] for event in alice.events(job)]


def test_a_cancel_reaches_the_engine_and_comes_back_as_an_event(alice: Person) -> None:
    job = alice.start(steps=500)
    alice.wait(job, lambda found: found["state"] == "running")
    assert alice.http.post(f"/jobs/{job}/cancel/").status_code == 202
    assert alice.wait(job, ended)["state"] == "cancelled"


def test_an_ingester_that_is_told_to_stop_stops(stack: Stack) -> None:
    process = stack.processes["ingester"]
    process.terminate()
    assert process.wait(10) == 0
    stack.launch("ingester")


def test_no_log_of_all_this_tells_a_secret(stack: Stack, alice: Person) -> None:
    """The last of this file, so that it reads what all the others have made the processes say."""
    hidden = alice.token.rpartition("_")[2][:20]
    assert httpx.get(f"{stack.url}/join/inv_x/{hidden}/").status_code == 404
    assert alice.http.get(f"/{alice.token}/").status_code == 404
    known = {"token": hidden, "password": "correct horse", "session": alice.session, **secrets.generated_in(stack.state)}
    assert len(known) >= 5
    assert "/join/inv_x/…/" in stack.log("web")
    assert secrets.told(stack.log_dir, known) == []
