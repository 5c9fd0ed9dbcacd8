"""Every page: who may see it, what it says when there is nothing, and that it asks the database no more for more rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.jobs.listing import rows
from portal.jobs.models import Job, JobEvent
from portal.notices.models import Notice
from tenants.models import User
from tests.portal import fake_script
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World, jsonl, with_factor

ROOT = Path(__file__).resolve().parents[3]
OWN_PAGES = (
    "/",
    "/jobs/",
    "/jobs/new/",
    "/datasets/",
    "/datasets/new/",
    "/datasets/generate/",
    "/datasets/import/",
    "/rewards/",
    "/rewards/new/",
    "/usage/",
    "/settings/",
    "/settings/members/",
    "/settings/delete/",
    "/organisations/new/",
    "/settings/tokens/",
    "/settings/tokens/new/",
)


def record(job: Job, seq: int, kind: str, data: dict[str, Any]) -> None:
    JobEvent.objects.create(tenant=job.tenant, job=job, seq=seq, kind=kind, at=NOW, data=data)


def play(job: Job, steps: int) -> None:
    """The job's rows as if ``steps`` steps had been reported."""
    seq = 0
    for version in range(steps):
        for _, kind, data in fake_script.step_events(job.public_id, job.spec, version, 0.0):
            record(job, seq := seq + 1, kind, data)
    Job.objects.filter(pk=job.pk).update(state="running", version=steps, last_seq=seq)


@pytest.mark.parametrize("path", OWN_PAGES)
def test_anonymous_people_are_sent_to_the_login(world: World, client: Any, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/accounts/login/?next={path}")


def test_a_script_of_somebody_signed_out_is_told_so_instead(world: World, client: Any) -> None:
    job = world.job()
    events = client.get(f"/jobs/{job.public_id}/events/", headers={"Accept": "application/json"})
    assert (events.status_code, events.json()["error"]["code"]) == (401, "signed_out")
    assert client.get("/jobs/", headers={"HX-Request": "true"}).headers["HX-Refresh"] == "true"


@pytest.mark.parametrize("views", sorted(ROOT.glob("portal/*/views.py")), ids=lambda path: path.parent.name)
def test_no_view_asks_past_the_tenant(views: Path) -> None:
    """Tenancy is a relation: ``request.tenant.jobs``, never ``Job.objects``."""
    assert re.findall(r"\b(?:Job|JobEvent|Dataset|Reward|ApiToken)\.objects\.(?!none)", views.read_text()) == []


@pytest.mark.parametrize("path", OWN_PAGES)
def test_each_page_serves_members_and_the_csp_is_strict(world: World, path: str) -> None:
    answer = world.client(world.bob).get(path)
    assert answer.status_code == 200
    assert "unsafe" not in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", OWN_PAGES)
def test_no_page_has_inline_scripts_or_styles(world: World, path: str) -> None:
    world.job()
    html = world.client(world.alice).get(path).content.decode()
    assert " style=" not in html
    assert "<style" not in html
    assert " onclick=" not in html
    assert all('type="application/json"' in tag or "src=" in tag for tag in html.split("<script")[1:])


def test_a_person_without_an_organisation_is_told_so(world: World) -> None:
    world.bob.memberships.all().delete()
    answer = world.client(world.bob).get("/")
    page = answer.content.decode()
    assert (answer.status_code, "You belong to no organisation" in page, "/organisations/new/" in page) == (200, True, True)
    assert "/console/" not in page and "two-factor authentication first" not in page
    other = world.client(world.bob).get("/jobs/")
    assert (other.status_code, "You belong to no organisation" in other.content.decode()) == (403, True)
    for asked in ({"HX-Request": "true"}, {"Accept": "application/json"}):
        assert world.client(world.bob).get("/", headers=asked).status_code == 403


def test_the_first_operator_is_led_to_a_second_factor_and_then_to_the_console(world: World) -> None:
    operator = User.objects.create_superuser("root@example.org", "correct horse")
    page = world.client(operator).get("/")
    assert (page.status_code, page.context["may_operate"]) == (200, False)
    assert "Set up two-factor authentication</a>" in page.content.decode() and "Open the console" not in page.content.decode()
    page = world.client(with_factor(operator)).get("/").content.decode()
    assert 'href="/console/">Open the console' in page and "/organisations/new/" in page


def test_the_bell_has_one_name_that_says_how_many_are_new(world: World) -> None:
    client = world.client(world.alice)
    assert "aria-label" not in bell(client.get("/").content.decode())
    Notice.objects.create(tenant=world.sums, job=world.job(), seq=1, kind="job.succeeded", at=NOW)
    shown = bell(client.get("/").content.decode())
    assert shown.count("Notifications") == 2 and 'aria-label="Notifications, 1 new"' in shown
    assert ">Notifications</span> <span" in shown  # what is read as text has a space in it, too


def bell(page: str) -> str:
    return page.split('class="bell"')[1].split("</a>")[0]


def test_home_leads_a_newcomer_through_the_first_steps(world: World) -> None:
    client = world.client(world.alice)
    assert "Upload a dataset" in client.get("/").content.decode()
    world.dataset()
    assert client.get("/").context["todo"].title == "Say what a good answer is"
    world.job()
    assert client.get("/").context["begun"]


def test_the_sample_leads_to_a_job_form_that_only_has_to_be_sent(world: World) -> None:
    client = world.client(world.alice)
    form = client.post("/sample/", follow=True).context["form"]
    typed = {name: form[name].value() for name in ("dataset", "reward", "base_model")} | {"base_model": "tiny-math"}
    assert client.post("/jobs/new/", typed).status_code == 302


def test_the_sample_is_made_once(world: World) -> None:
    client = world.client(world.alice)
    client.post("/sample/"), client.post("/sample/")
    assert (world.sums.datasets.count(), world.sums.rewards.count()) == (1, 1)


def test_a_viewer_gets_no_sample(world: World) -> None:
    assert world.client(world.vera).post("/sample/").status_code == 403
    assert not world.sums.datasets.exists()


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/jobs/", "No jobs yet"),
        ("/datasets/", "No datasets yet"),
        ("/rewards/", "No rewards yet"),
        ("/settings/tokens/", "No API tokens yet"),
    ],
)
def test_an_empty_list_says_what_to_do(world: World, path: str, advice: str) -> None:
    assert advice in world.client(world.alice).get(path).content.decode()


def test_a_job_form_without_an_engine_says_so(world: World, engine: FakeEngine) -> None:
    world.dataset(), world.reward()
    engine.down = True
    assert "The engine has not answered yet" in world.client(world.alice).get("/jobs/new/").content.decode()


def test_strangers_find_nothing(world: World) -> None:
    job = world.job()
    stranger = world.client(world.charlie)
    pages = (f"/jobs/{job.public_id}/", f"/jobs/{job.public_id}/events/", f"/jobs/{job.public_id}/adapter/latest/")
    others = (f"/datasets/{job.dataset.public_id}/", f"/rewards/{job.reward.public_id}/")
    assert {path: stranger.get(path).status_code for path in (*pages, *others)} == dict.fromkeys((*pages, *others), 404)
    commands = tuple(f"/jobs/{job.public_id}/{verb}/" for verb in ("cancel", "pause", "resume"))
    assert {path: stranger.post(path).status_code for path in commands} == dict.fromkeys(commands, 404)


def test_a_strangers_things_are_not_offered_on_the_job_form(world: World) -> None:
    dataset, reward = world.dataset(), world.reward()
    world.dataset(world.charlie), world.reward(world.charlie)
    html = world.client(world.charlie).get("/jobs/new/").content.decode()
    assert dataset.public_id not in html
    assert reward.public_id not in html


def test_switching_to_a_strangers_organisation_is_a_404(world: World) -> None:
    assert world.client(world.charlie).post(f"/switch/{world.sums.public_id}/").status_code == 404


def test_switching_changes_what_the_pages_show(world: World) -> None:
    from tenants.models import Membership

    Membership.objects.create(tenant=world.other, user=world.alice)
    client = world.client(world.alice)
    client.post(f"/switch/{world.other.public_id}/")
    assert client.get("/").context["tenant"] == world.other


@pytest.mark.parametrize("jobs", [1, 12])
def test_the_jobs_list_asks_the_same_number_of_queries_for_any_number_of_jobs(world: World, jobs: int) -> None:
    for _ in range(jobs):
        play(world.job(), steps=2)
    client = world.client(world.alice)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert client.get("/jobs/").status_code == 200
    assert len(queries) <= 11


def test_a_row_of_the_list_shows_the_last_rewards_and_what_the_job_does(world: World) -> None:
    job = world.job()
    play(job, steps=3)
    record(job, 100, "rollout_started", {"version": 3, "attempt": 1})
    [row] = rows(Job.objects.all())
    assert len(row.rewards) == 3
    assert row.phase == "rollout"
    assert row.reward == pytest.approx(sum(row.rewards) / 3)


def test_the_list_refreshes_from_the_same_template(world: World) -> None:
    world.job()
    html = world.client(world.alice).get("/jobs/", headers={"HX-Request": "true"}).content.decode()
    assert html.lstrip().startswith('<div id="jobs"')


def test_the_run_pages_history_is_numbered_and_paged(world: World) -> None:
    job = world.job()
    play(job, steps=2)
    client = world.client(world.alice)
    everything = client.get(f"/jobs/{job.public_id}/events/").json()
    rest = client.get(f"/jobs/{job.public_id}/events/?after=3").json()
    assert [event["seq"] for event in everything["events"]] == list(range(1, 9))
    assert rest["events"] == everything["events"][3:]
    assert (rest["last"], rest["more"]) == (8, False)


def test_a_bad_event_number_is_refused(world: World) -> None:
    job = world.job()
    assert world.client(world.alice).get(f"/jobs/{job.public_id}/events/?after=-1").status_code == 400


def test_cancel_is_a_wish_and_leaves_the_state_alone(world: World) -> None:
    job = world.job()
    answer = world.client(world.alice).post(f"/jobs/{job.public_id}/cancel/", headers={"Accept": "application/json"})
    assert answer.status_code == 202
    job.refresh_from_db()
    assert job.state == "submitted"
    assert job.commands.get().kind == "cancel"


@pytest.mark.parametrize(("state", "button"), [("running", "pause"), ("paused", "resume")])
def test_a_job_that_is_being_stopped_offers_neither_pause_nor_resume(world: World, state: str, button: str) -> None:
    job, client = world.job(), world.client(world.alice)
    Job.objects.filter(pk=job.pk).update(state=state)

    def hidden() -> bool:
        form = client.get(f"/jobs/{job.public_id}/").content.decode().split(f'data-action="{button}"')[1].split(">")[0]
        return form.endswith(" hidden")

    assert not hidden()
    client.post(f"/jobs/{job.public_id}/cancel/")
    assert hidden()
    answer = client.post(f"/jobs/{job.public_id}/{button}/", headers={"Accept": "application/json"})
    assert (answer.status_code, "asked to stop" in answer.json()["error"]["message"]) == (409, True)


def test_a_command_that_cannot_be_is_a_conflict_with_a_sentence(world: World) -> None:
    job = world.job()
    answer = world.client(world.alice).post(f"/jobs/{job.public_id}/resume/", headers={"Accept": "application/json"})
    assert answer.status_code == 409
    assert "only a paused job" in answer.json()["error"]["message"]


def test_without_a_script_a_command_answers_with_the_page(world: World) -> None:
    job = world.job()
    answer = world.client(world.alice).post(f"/jobs/{job.public_id}/cancel/", follow=True)
    assert "asked to stop" in answer.content.decode()


def test_a_version_downloads_as_the_engines_archive(world: World, engine: FakeEngine) -> None:
    job = world.job()
    engine.jobs[job.public_id] = {}
    engine.emit(job.public_id, "step", version=1)
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/adapter/1/")
    assert answer.status_code == 200
    assert answer.headers["X-Policy-Version"] == "1"


@pytest.mark.parametrize("version", ["7", "newest", "1e3"])
def test_a_version_that_is_not_there_is_a_404(world: World, version: str) -> None:
    job = world.job()
    assert world.client(world.alice).get(f"/jobs/{job.public_id}/adapter/{version}/").status_code == 404


def test_a_download_while_the_engine_is_down_returns_to_the_page_with_a_sentence(world: World, engine: FakeEngine) -> None:
    job = world.job()
    engine.down = True
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/adapter/latest/", follow=True)
    assert "The engine does not answer" in answer.content.decode()


def test_a_refused_upload_lists_each_line_and_stores_nothing(world: World) -> None:
    file = jsonl({"prompt": "1+1=", "answer": "2"}, "{broken", {"prompt": ""})
    answer = world.client(world.alice).post("/datasets/new/", {"file": file, "eval_share": "0.1"}, follow=True)
    assert [fault["line"] for fault in answer.context["report"]["errors"]] == [2, 3]
    assert not world.sums.datasets.exists()


def test_an_upload_is_named_after_its_file(world: World) -> None:
    file = jsonl(*({"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(20)))
    answer = world.client(world.alice).post("/datasets/new/", {"file": file, "eval_share": "0.1"}, headers={"X-Requested-With": "upload"})
    dataset = world.sums.datasets.get()
    assert (answer.status_code, answer.headers["Location"]) == (201, f"/datasets/{dataset.public_id}/")
    assert dataset.name == "rows"


def test_the_preview_shows_prompts_and_columns_escaped(world: World) -> None:
    from portal.datasets.actions import create_dataset

    hostile = "<img src=x onerror=alert(1)>"
    rows_ = jsonl(*({"prompt": f"{hostile} {n}", "answer": hostile} for n in range(20)))
    dataset = create_dataset(world.sums, world.alice, hostile, rows_)
    html = world.client(world.alice).get(f"/datasets/{dataset.public_id}/").content.decode()
    assert hostile not in html
    assert "&lt;img src=x onerror=alert(1)&gt; 0" in html


@pytest.mark.parametrize("kind", ["numeric", "string_check", "math"])
def test_each_grader_can_be_made_with_the_forms_own_defaults(world: World, kind: str) -> None:
    typed = {
        "name": "mine",
        "type": kind,
        "input": "{{sample.output_text}}",
        "reference": "{{item.answer}}",
        "operation": "eq",
        "strip": "on",
    }
    answer = world.client(world.alice).post("/rewards/new/", typed)
    assert answer.status_code == 302
    assert world.sums.rewards.get().grader["type"] == kind


def test_a_bad_template_is_told_at_its_field(world: World) -> None:
    typed = {"name": "mine", "type": "numeric", "input": "{{sample.thoughts}}", "reference": "{{item.answer}}"}
    answer = world.client(world.alice).post("/rewards/new/", typed)
    assert "sample.thoughts" in " ".join(answer.context["form"].errors["input"])


def test_a_tokens_secret_is_in_one_answer_only(world: World) -> None:
    client = world.client(world.alice)
    answer = client.post("/settings/tokens/new/", {"name": "nightly", "days": "90", "scopes": ["jobs:read"]})
    secret = answer.context["secret"]
    assert secret in answer.content.decode()
    assert "Bearer $MARL_TOKEN" in answer.content.decode()  # the name that the command line reads
    assert secret not in client.get("/settings/tokens/").content.decode()
    assert "no-store" in answer.headers["Cache-Control"]


def test_a_revoked_token_opens_nothing(world: World, client: Any) -> None:
    pages = world.client(world.alice)
    secret = pages.post("/settings/tokens/new/", {"name": "nightly", "days": "90", "scopes": ["jobs:read"]}).context["secret"]
    headers = {"Authorization": f"Bearer {secret}"}
    assert client.get("/api/v1/jobs/", headers=headers).status_code == 200
    pages.post(f"/settings/tokens/{world.sums.api_tokens.get().token_id}/revoke/")
    assert client.get("/api/v1/jobs/", headers=headers).status_code == 401


def test_a_broken_view_shows_the_plain_error_page(world: World, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from portal.pages import views

    monkeypatch.setattr(views, "first_steps", lambda tenant: 1 / 0)
    broken = world.client(world.alice)
    broken.raise_request_exception = False
    answer = broken.get("/")
    assert answer.status_code == 500
    assert "Something broke on our side" in answer.content.decode()
