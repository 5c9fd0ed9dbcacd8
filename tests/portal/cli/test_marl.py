"""The command line against the real API, by a transport that ends in Django's handler."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.test import Client
from typer.testing import CliRunner, Result

from portal.cli import config
from portal.cli.client import Client as client_of
from portal.cli.client import Failed
from portal.cli.curve import curve
from portal.cli.main import app
from portal.cli.watching import Watched
from portal.jobs import delivery
from portal.jobs.models import Job, JobEvent, State
from tenants import tokens
from tenants.models import Membership, Role
from tests.portal import fake_script
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World, additions

ROOT = Path(__file__).resolve().parents[3]


def answered(request: httpx.Request, *, to_the_end: bool = True) -> httpx.Response:
    """By Django, in this process and transaction. Unless ``to_the_end``, nothing is read of a stream of events: it may have none."""
    kind = request.headers.get("Content-Type", "")
    headers = {name: value for name, value in request.headers.items() if name not in ("content-type", "content-length", "host")}
    answer = Client().generic(request.method, request.url.raw_path.decode(), request.read(), content_type=kind, headers=headers)
    return httpx.Response(answer.status_code, headers=dict(answer.items()), content=_body(answer, to_the_end))


def _body(answer: Any, to_the_end: bool) -> bytes:
    if not answer.streaming:
        return answer.content
    return b"".join(answer) if to_the_end or not answer.is_async else b""


class Marl:
    def __init__(self, text: str, home: Path):
        self.home = home
        self.environment = {"MARL_URL": "http://testserver", "MARL_TOKEN": text, "XDG_CONFIG_HOME": str(home), "COLUMNS": "160"}

    def __call__(self, *words: str, code: int = 0, **more: Any) -> Result:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            result = CliRunner().invoke(app, list(words), obj=httpx.MockTransport(answered), **more)
        failed = result.exception.exit_code if isinstance(result.exception, Failed) else result.exit_code
        assert failed == code, (result.output, result.exception)
        return result

    def json(self, *words: str, **more: Any) -> Any:
        return json.loads(self("--json", *words, **more).stdout)


@pytest.fixture
def marl(world: World, tmp_path: Path) -> Marl:
    _, text = tokens.issue(world.sums, world.bob, "cli", datetime.now(UTC))
    return Marl(text, tmp_path / "home")


def finished(world: World, steps: int = 3) -> Job:
    job, seq = world.job(), 0
    for version in range(steps):
        for _, kind, data in fake_script.step_events(job.public_id, job.spec, version, 0.0):
            seq += 1
            JobEvent.objects.create(tenant=job.tenant, job=job, seq=seq, kind=kind, at=NOW, data=data)
    JobEvent.objects.create(tenant=job.tenant, job=job, seq=seq + 1, kind="ended", at=NOW, data={"state": "succeeded", "reason": ""})
    Job.objects.filter(pk=job.pk).update(state=State.SUCCEEDED, version=steps, last_seq=seq + 1)
    return job


def test_a_checkout_has_the_command_without_an_installation() -> None:
    said = subprocess.run([sys.executable, "-m", "portal.cli", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "Fine-tune models" in said.stdout


def test_a_whole_job_from_a_terminal(world: World, marl: Marl, tmp_path: Path) -> None:
    rows, grader = tmp_path / "sums.jsonl", tmp_path / "grader.json"
    rows.write_bytes(additions(40).read())
    grader.write_text('{"type": "string_check"}')
    dataset = marl.json("datasets", "upload", str(rows))
    reward = marl.json("rewards", "create", "exact", str(grader))
    job = marl.json("jobs", "create", "--dataset", dataset["id"], "--reward", reward["id"], "--model", "tiny-math", "--steps", "7")
    assert (job["steps"], job["state"]) == (7, "submitted")
    assert [found["id"] for found in marl.json("jobs", "list")] == [job["id"]]
    assert "cancel is on its way" in marl("jobs", "cancel", job["id"]).stdout
    assert Job.objects.get().commands.get().kind == "cancel"


def test_a_reward_is_deleted_when_that_was_confirmed(world: World, marl: Marl) -> None:
    reward = world.reward().public_id
    marl("rewards", "delete", reward, input="n\n", code=1)
    assert marl.json("rewards", "delete", reward, "--yes") == {"id": reward, "deleted": True}
    assert not world.sums.rewards.exists()


def test_a_dataset_is_deleted_when_that_was_confirmed(world: World, marl: Marl) -> None:
    dataset = world.dataset().public_id
    marl("datasets", "delete", dataset, input="n\n", code=1)
    assert [row["id"] for row in marl.json("datasets", "list")] == [dataset]
    assert "is deleted" in marl("datasets", "delete", dataset, "--yes").stdout
    assert marl.json("datasets", "list") == []
    marl("datasets", "delete", dataset, "--yes", code=4)


def test_a_login_keeps_a_token_that_opens_and_only_its_owner_may_read(world: World, marl: Marl) -> None:
    text = marl.environment.pop("MARL_TOKEN")
    marl("jobs", "list", code=3)
    said = marl("login", "--url", "http://testserver/", input=f"{text}\n").stdout
    assert ("bob@example.org, member of Sums" in said, text in said) == (True, False)
    place = config.path({"XDG_CONFIG_HOME": str(marl.home)})
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert marl.json("whoami")["email"] == "bob@example.org"


def test_a_token_that_opens_nothing_is_not_kept(world: World, marl: Marl) -> None:
    marl("login", "--token", "mrl_live_x", code=3)
    assert not config.path({"XDG_CONFIG_HOME": str(marl.home)}).exists()


def test_what_is_wrong_is_told_by_field_and_by_exit_code(world: World, marl: Marl) -> None:
    refused = marl("jobs", "create", "--dataset", "ds_x", code=1).exception
    assert {problem["field"] for problem in refused.problems} >= {"dataset", "reward", "base_model"}
    marl("jobs", "show", "job_aaaaaaaaaaaaaaaaaaaa", code=4)
    marl("jobs", "create", "--steps", "none", code=2)
    marl("datasets", "upload", "no-such-file", code=2)


@pytest.mark.django_db(transaction=True)  # the stream reads in a thread of its own
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators")
def test_watching_into_a_file_gives_each_event_once_and_the_ending_as_exit_code(world: World, marl: Marl) -> None:
    job = finished(world)
    lines = [json.loads(line) for line in marl("--json", "jobs", "watch", job.public_id).stdout.splitlines()]
    assert [event["seq"] for event in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["kind"] == "ended"
    Job.objects.filter(pk=job.pk).update(state=State.FAILED)
    marl("jobs", "watch", job.public_id, code=1)
    Job.objects.filter(pk=job.pk).update(state=State.CANCELLED)
    marl("jobs", "watch", job.public_id, code=6)


def test_logs_are_all_events_one_a_line(world: World, marl: Marl) -> None:
    job = finished(world)
    assert len(marl("jobs", "logs", job.public_id).stdout.splitlines()) == job.events.count()
    assert len(marl("jobs", "logs", job.public_id, "--after", "2").stdout.splitlines()) == job.events.count() - 2


def test_an_adapter_comes_whole(world: World, marl: Marl, engine: FakeEngine, tmp_path: Path) -> None:
    job = world.job()
    delivery.deliver(job.pk, NOW)
    engine.emit(job.public_id, "step", version=1)
    place = tmp_path / "adapter.zip"
    told = marl.json("adapters", "download", job.public_id, "-o", str(place))
    assert (place.read_bytes()[:2], told["bytes"]) == (b"PK", place.stat().st_size)


def test_an_adapter_that_is_not_there_leaves_no_file(world: World, marl: Marl, tmp_path: Path) -> None:
    job = world.job()
    delivery.deliver(job.pk, NOW)
    marl("adapters", "download", job.public_id, "--version", "7", "-o", str(tmp_path / "adapter.zip"), code=4)
    assert list(tmp_path.glob("*adapter*")) == []


@pytest.mark.parametrize("where", ["nowhere/a.zip", "file/a.zip"])
def test_an_adapter_that_cannot_be_written_is_a_wrong_usage_in_one_line(
    world: World, marl: Marl, engine: FakeEngine, tmp_path: Path, where: str
) -> None:
    job = world.job()
    delivery.deliver(job.pk, NOW)
    engine.emit(job.public_id, "step", version=1)
    (tmp_path / "file").touch()
    refused = marl("adapters", "download", job.public_id, "-o", str(tmp_path / where), code=2).exception
    assert f"{where} cannot be written" in str(refused)


@pytest.mark.parametrize("address", ["notaurl", "ftp://site", "http://", "http://[", "http://x:port"])
def test_an_address_that_is_none_is_a_wrong_usage_that_names_who_gave_it(world: World, marl: Marl, address: str) -> None:
    assert "--url" in marl("login", "--url", address, "--token", "x", code=2).output
    marl.environment["MARL_URL"] = address
    assert "MARL_URL" in marl("jobs", "list", code=2).output


def test_a_site_that_does_not_answer_is_named_with_its_port() -> None:
    def refused(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    client = client_of(config.Config(url="http://127.0.0.1:8899", token="t"), httpx.MockTransport(refused))
    with pytest.raises(Failed, match=r"127\.0\.0\.1:8899 does not answer"):
        client.get("/jobs/")


def test_a_job_that_is_paused_is_said_to_be_paused_already(world: World, marl: Marl) -> None:
    job = world.job()
    assert "pause is on its way" in marl("jobs", "pause", job.public_id).stdout
    Job.objects.filter(pk=job.pk).update(state=State.PAUSED)
    assert "paused already" in marl("jobs", "pause", job.public_id).stdout


def test_a_reward_is_tried_on_a_text(world: World, marl: Marl, tmp_path: Path) -> None:
    grader = tmp_path / "grader.json"
    grader.write_text('{"type": "numeric"}')
    run = marl.json("rewards", "test", str(grader), "--output", "It is 42", "--item", '{"answer": "42"}')
    assert run["cases"][0]["outcomes"][0]["reward"] == 1.0
    marl("rewards", "test", str(grader), "--output", "x", "--item", "[", code=2)


def test_a_name_of_a_job_is_no_markup_for_the_terminal(world: World, marl: Marl) -> None:
    world.job(name="[bold]loud[/bold]")
    assert "[bold]loud[/bold]" in marl("jobs", "list").stdout


def test_the_curve_rises_from_the_lower_left_to_the_upper_right() -> None:
    lines = curve([0.0, 0.5, 1.0], width=10, height=4)
    assert (lines[-1][0] != " ", lines[0][-1] != " ", lines[0][0], lines[-1][-1]) == (True, True, " ", " ")
    assert {len(line) for line in lines} == {10}
    assert curve([], width=3, height=2) == ["   ", "   "]
    assert curve([0.7], width=3, height=1) != ["   "]


def test_what_one_watches_is_folded_from_the_events(world: World) -> None:
    job = finished(world)
    seen = Watched(name="x", steps=3)
    for event in job.events.order_by("seq"):
        seen.take(event.as_dict())
    assert (seen.state, seen.version, len(seen.rewards)) == ("succeeded", 3, 3)
    seen.draw(80)


def test_retention_is_looked_at_and_set_when_that_was_confirmed(world: World, marl: Marl) -> None:
    marl("retention", "set", "--completions", "30", "--yes", code=3)
    Membership.objects.filter(tenant=world.sums, user=world.bob).update(role=Role.ADMIN)
    job = finished(world)
    Job.objects.filter(pk=job.pk).update(ended_at=NOW - timedelta(days=4000))
    said = marl("retention", "set", "--completions", "30", "--versions", "30", input="n\n", code=1).output
    assert "completions of 1 job and 2 checkpoints would go" in said
    assert marl.json("retention", "set", "--versions", "30", "--look")["due"]["versions"] == 2
    assert "for ever" in marl("retention", "show").stdout
    assert marl.json("retention", "set", "--completions", "30", "--yes")["completions_days"] == 30
    assert marl.json("retention", "set", "--completions", "forever", "--yes")["completions_days"] is None
    marl("retention", "set", "--versions", "soon", code=2)
    marl("retention", "set", code=2)
