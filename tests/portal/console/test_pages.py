from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.test import Client
from django.utils import timezone

from portal.console.models import Act
from portal.console.recent import recent
from portal.jobs import delivery
from portal.jobs.models import JobCommand
from tenants.models import User
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World, with_factor

PAGES = ("/console/", "/console/live/", "/console/tenants/", "/console/what-if/", "/console/engines/", "/console/audit/")


@pytest.fixture(autouse=True)
def fresh() -> None:
    recent.__init__()


def operator(name: str = "op", *, factor: bool = True) -> User:
    user = User.objects.create_user(f"{name}@example.org", "correct horse", is_staff=True)
    return with_factor(user) if factor else user


@pytest.fixture
def client(world: World) -> Client:
    return world.client(operator())


def deed(client: Client, slug: str, about: str = "", **given: Any) -> Any:
    return client.post(f"/console/act/?deed={slug}&about={about}", {"reason": "the disk is full", **given})


@pytest.mark.parametrize("path", PAGES)
def test_only_operators_know_that_it_is_there(world: World, path: str) -> None:
    assert world.client(world.alice).get(path).status_code == 404
    assert Client().get(path).status_code == 302


@pytest.mark.parametrize("path", PAGES)
def test_an_operator_without_a_second_factor_is_sent_to_set_one_up(world: World, path: str) -> None:
    answer = world.client(operator(factor=False)).get(path)
    assert answer.status_code == 403
    assert "/accounts/2fa/" in answer.content.decode()


def test_recovery_codes_alone_are_no_second_factor(world: World) -> None:
    user = operator(factor=False)
    Authenticator.objects.create(user=user, type=Authenticator.Type.RECOVERY_CODES, data={})
    assert world.client(user).get("/console/").status_code == 403


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_under_the_strict_policy(client: Client, world: World, path: str) -> None:
    world.job()
    answer = client.get(path)
    assert answer.status_code == 200
    assert "unsafe" not in answer["Content-Security-Policy"]
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_while_the_engine_is_down(client: Client, engine: FakeEngine, path: str) -> None:
    engine.down = True
    assert client.get(path).status_code == 200


def test_a_script_that_is_signed_out_is_told_so(world: World) -> None:
    answer = Client().get("/console/live/", headers={"Accept": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "signed_out")


@pytest.mark.parametrize(("slug", "mode"), [("admission-pause", "paused"), ("drain", "drain"), ("admission-open", "open")])
def test_admission_is_changed_with_a_reason_that_is_kept(client: Client, engine: FakeEngine, slug: str, mode: str) -> None:
    assert deed(client, slug).status_code == 302
    act = Act.objects.get()
    assert (engine.admission, act.deed, act.by, act.about, act.reason, act.outcome) == (
        *(mode, slug, "op@example.org", "engine"),
        *("the disk is full", ""),
    )


def test_nothing_is_done_without_a_reason(client: Client, engine: FakeEngine) -> None:
    assert deed(client, "drain", reason="").status_code == 422
    assert (engine.admission, Act.objects.count()) == ("open", 0)


def test_what_the_engine_did_not_hear_is_written_down_as_not_done(client: Client, engine: FakeEngine) -> None:
    engine.down = True
    answer = deed(client, "drain")
    assert answer.status_code == 422
    assert "cannot be reached" in answer.content.decode()
    assert "cannot be reached" in Act.objects.get().outcome


def test_a_bad_policy_is_refused_in_the_engines_words(client: Client, engine: FakeEngine) -> None:
    assert deed(client, "policy", changes='{"max_active": 0}').status_code == 422
    assert deed(client, "policy", changes="[1").status_code == 422
    twice = deed(client, "policy", changes='{"max_active": 8, "max_active": 9}')
    assert (twice.status_code, "stands twice" in twice.content.decode()) == (422, True)
    assert deed(client, "policy", changes='{"max_active": 3}').status_code == 302
    assert engine.policy["max_active"] == 3


def test_the_policy_stands_there_as_one_types_it(client: Client, engine: FakeEngine) -> None:
    engine.policy |= {"barrier": False, "max_rollouts": None, "admission_order": "fair"}
    page = client.get("/console/act/?deed=policy").content.decode()
    for name, typed in (("barrier", "false"), ("max_rollouts", "null"), ("admission_order", "&quot;fair&quot;")):
        assert f'<dt class="mono">{name}</dt><dd class="mono">{typed}</dd>' in page


def test_a_jobs_priority_is_changed(client: Client, engine: FakeEngine, world: World) -> None:
    job = world.job()
    delivery.deliver(job.pk, NOW)
    assert deed(client, "job-priority", job.public_id, priority=7).status_code == 302
    assert engine.priorities == {job.public_id: 7}


@pytest.mark.parametrize(("slug", "kind"), [("job-stop", "cancel"), ("job-pause", "pause")])
def test_a_job_is_stopped_and_its_owner_reads_why(client: Client, engine: FakeEngine, world: World, slug: str, kind: str) -> None:
    job = world.job()
    delivery.deliver(job.pk, NOW)
    deed(client, slug, job.public_id)
    delivery.deliver(job.pk, NOW)
    command = JobCommand.objects.get()
    assert (command.kind, command.reason, command.job) == (kind, "by the operator: the disk is full", job)
    assert ("POST", f"/jobs/{job.public_id}/{kind}") in engine.calls


def test_a_job_that_has_ended_is_not_stopped(client: Client, world: World) -> None:
    job = world.job()
    type(job).objects.filter(pk=job.pk).update(state="succeeded")
    answer = deed(client, "job-stop", job.public_id)
    assert answer.status_code == 422
    assert "has ended already" in answer.content.decode()


@pytest.mark.parametrize("slug", ["job-priority", "job-pause", "job-resume", "job-stop"])
def test_a_job_that_has_ended_is_offered_no_deed(client: Client, engine: FakeEngine, world: World, slug: str) -> None:
    job = world.job()
    delivery.deliver(job.pk, NOW)  # the engine has it, and has not heard of its end
    page = f"/console/act/?deed={slug}&about={job.public_id}"
    assert 'name="reason"' in client.get(page).content.decode()
    type(job).objects.filter(pk=job.pk).update(state="succeeded")
    shown = client.get(page).content.decode()
    assert 'name="reason"' not in shown and "This job has ended (succeeded)" in shown
    assert deed(client, slug, job.public_id, priority=7).status_code == 422
    assert engine.priorities == {} and not JobCommand.objects.exists()


@pytest.mark.parametrize(("slug", "state"), [("job-pause", "running"), ("job-resume", "paused")])
def test_a_job_that_is_being_stopped_is_neither_paused_nor_resumed_by_an_operator(
    client: Client, world: World, slug: str, state: str
) -> None:
    job = world.job()
    type(job).objects.filter(pk=job.pk).update(state=state)
    assert deed(client, "job-stop", job.public_id).status_code == 302
    assert "asked to stop" in client.get(f"/console/act/?deed={slug}&about={job.public_id}").content.decode()
    assert deed(client, slug, job.public_id).status_code == 422
    assert JobCommand.objects.get().kind == "cancel"


def test_credit_is_given_once_however_often_the_form_is_sent(client: Client, world: World) -> None:
    before = client.get(f"/console/tenants/{world.sums.public_id}/")
    for _ in range(2):
        deed(client, "tenant-credit", world.sums.public_id, amount="12.50", key="gift")
    given = world.sums.entries.filter(source="gift")
    assert [(entry.amount_micros, entry.reason, entry.by) for entry in given] == [(12_500_000, "the disk is full", "op@example.org")]
    assert before.status_code == 200


def test_plan_limit_and_share_are_changed(client: Client, world: World) -> None:
    from portal.billing.models import Plan
    from portal.billing.quotas import limits

    small = Plan.objects.create(key="small", name="Small", running_jobs=1)
    deed(client, "tenant-plan", world.sums.public_id, plan=small.pk)
    deed(client, "tenant-limit", world.sums.public_id, quota="steps", limit=50)
    deed(client, "tenant-weight", world.sums.public_id, weight=2.5)
    world.sums.refresh_from_db()
    assert (limits(world.sums)["running_jobs"], limits(world.sums)["steps"], world.sums.weight) == (1, 50, 2.5)
    deed(client, "tenant-no-limit", world.sums.public_id, quota="steps")
    assert limits(world.sums)["steps"] is None
    assert Act.objects.filter(about=world.sums.public_id, outcome="").count() == 4


def test_a_suspended_organisation_is_shut_out_and_its_jobs_hold(client: Client, world: World) -> None:
    world.job()
    deed(client, "tenant-suspend", world.sums.public_id)
    assert world.client(world.alice).get("/jobs/").status_code == 403
    assert JobCommand.objects.get().kind == "pause"
    deed(client, "tenant-restore", world.sums.public_id)
    assert world.client(world.alice).get("/jobs/").status_code == 200
    told = set(world.sums.audit.values_list("action", flat=True))
    assert {"organisation.suspended", "organisation.restored", "job.pause"} <= told
    assert deed(client, "tenant-restore", world.sums.public_id).status_code == 422


def test_an_organisations_page_has_the_consoles_frame_and_not_that_of_its_members(client: Client, world: World) -> None:
    page = client.get(f"/console/tenants/{world.sums.public_id}/")
    assert page.context["tenant"] is None
    assert 'aria-label="Organisation: Sums"' not in page.content.decode()
    assert "Running jobs" in page.content.decode()


def test_acts_are_listed_and_never_deleted(client: Client, world: World) -> None:
    deed(client, "drain")
    assert "the disk is full" in client.get("/console/audit/").content.decode()
    assert "the disk is full" not in client.get("/console/audit/?q=job-stop").content.decode()
    with pytest.raises(PermissionError):
        Act.objects.get().delete()


def view_as(client: Client, world: World) -> None:
    client.post(f"/console/tenants/{world.sums.public_id}/view/", {"reason": "they ask about job 3"})


def test_an_operator_sees_what_a_tenant_sees_under_a_banner(client: Client, world: World) -> None:
    job = world.job()
    view_as(client, world)
    page = client.get(f"/jobs/{job.public_id}/")
    assert page.status_code == 200
    assert "You look at Sums as its viewers do" in page.content.decode()
    assert "Reason: they ask about job 3 · ends" in page.content.decode()
    assert Act.objects.get().deed == "view-as"


def test_who_only_looks_can_change_nothing(client: Client, world: World) -> None:
    job = world.job()
    view_as(client, world)
    assert client.post(f"/jobs/{job.public_id}/cancel/").status_code == 403
    assert not JobCommand.objects.exists()


def test_looking_ends_by_hand_and_by_itself(client: Client, world: World) -> None:
    from portal.console.viewing import SESSION_KEY

    view_as(client, world)
    client.post("/console/view/end/")
    assert client.get("/jobs/").status_code == 403
    view_as(client, world)
    session = client.session
    session[SESSION_KEY] = {**session[SESSION_KEY], "until": (timezone.now() - timedelta(seconds=1)).timestamp()}
    session.save()
    assert client.get("/jobs/").status_code == 403


def test_who_is_no_operator_any_more_sees_nothing_more(world: World) -> None:
    user = operator()
    client = world.client(user)
    view_as(client, world)
    User.objects.filter(pk=user.pk).update(is_staff=False)
    assert client.get("/jobs/").status_code == 403


def test_a_member_cannot_begin_to_look(world: World) -> None:
    client = world.client(world.alice)
    assert client.post(f"/console/tenants/{world.other.public_id}/view/", {"reason": "curious"}).status_code == 404


def test_what_if_shows_now_beside_then(client: Client, engine: FakeEngine) -> None:
    page = client.post("/console/what-if/", {"jobs": 4, "workload": "gsm8k", "steps": 2, "policy": ""}).content.decode()
    assert "0 jobs now, 4 then" in page
    assert "datasheets" in page


def test_a_bad_what_if_names_its_field(client: Client) -> None:
    question = {"jobs": 4, "workload": "gsm8k", "steps": 2}
    assert "stands twice" in client.post("/console/what-if/", {**question, "policy": '{"a": 1, "a": 2}'}).content.decode()
    page = client.post("/console/what-if/", {**question, "policy": '{"nonsense": 1}'})
    assert page.status_code == 422
    assert "a policy has no nonsense" in page.content.decode()
