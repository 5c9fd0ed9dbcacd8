from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.errors import Invalid
from portal.jobs.tasks import sweep
from portal.rewards import probes
from portal.rewards.models import Probe
from portal.rewards.probes import refresh, start_probe
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import World

HTMX = {"HX-Request": "true"}
PATH = "/api/v1/probes/"


@pytest.fixture
def alice(world: World) -> Client:
    return world.client(world.alice)


def asked(world: World, **changes: Any) -> dict[str, Any]:
    return {"reward": world.reward().public_id, "dataset": world.dataset().public_id, "base_model": "tiny-math", "rows": 8, **changes}


def post(client: Client, body: Any, path: str = PATH, **more: Any) -> Any:
    return client.post(path, body, content_type="application/json", **more)


def typed(world: World, **changes: Any) -> dict[str, Any]:
    numbers = {"rollout.group_size": 4, "rollout.prompts_per_step": 4, "rollout.max_prompt_tokens": 32, "rollout.max_new_tokens": 16}
    return {"dataset": world.dataset().public_id, "base_model": "tiny-math", "rows": 8, **numbers, "rollout.temperature": 1, **changes}


# The API


def test_a_probe_is_begun_followed_to_its_forecast_and_kept(world: World, engine: FakeEngine) -> None:
    api = world.api(world.alice)
    begun = post(api, asked(world))
    path = f"{PATH}{begun.json()['id']}/"
    for _ in range(4):
        found = api.get(path).json()
    engine.probes.known.clear()  # what has been told is the portal's own

    assert (begun.status_code, begun.json()["state"], begun.json()["total"]) == (202, "running", 64)
    assert (found["state"], found["done"], found["result"]["group_size"]) == ("done", 64, 8)
    assert api.get(path).json() == found
    assert api.get(PATH).json()["results"][0]["id"] == found["id"]


def test_the_engine_is_sent_the_job_that_was_described(world: World, engine: FakeEngine) -> None:
    post(world.api(world.alice), asked(world, rollout={"group_size": 4}, train={"steps": 7}))
    (order,) = engine.probes.orders.values()

    assert (order.tenant, order.rows, order.spec.rollout.group_size, order.spec.train.steps) == (world.sums.public_id, 8, 4, 7)
    assert order.spec.grader.type == "string_check"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"rows": 0}, "rows"),
        ({"rows": "8"}, "rows"),
        ({"rows": True}, "rows"),
        ({"dataset": "ds_none"}, "dataset"),
        ({"reward": "rw_none"}, "reward"),
        ({"reward": None}, "reward"),
        ({"base_model": "gpt"}, "base_model"),
        ({"rollout": {"group_size": 1}}, "rollout.group_size"),
        ({"what": 1}, "what"),
    ],
)
def test_a_bad_one_is_refused_with_its_field_and_nothing_is_stored(world: World, change: dict[str, Any], param: str) -> None:
    answer = post(world.api(world.alice), asked(world, **change))

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert not Probe.objects.exists()


def test_what_only_the_engine_can_refuse_is_refused_too(world: World, engine: FakeEngine) -> None:
    engine.probes.objection = (409, "other probes are under way; wait for one to end, or cancel it")
    answer = post(world.api(world.alice), asked(world))

    assert (answer.status_code, "other probes" in answer.json()["error"]["message"]) == (409, True)
    assert not Probe.objects.exists()


def test_while_the_engine_is_down_none_begins(world: World, engine: FakeEngine) -> None:
    body = asked(world)
    world.api(world.alice).get("/api/v1/models/")
    engine.down = True

    assert post(world.api(world.alice), body).status_code == 503
    assert not Probe.objects.exists()


def test_one_key_is_one_probe(world: World) -> None:
    api, body = world.api(world.alice), asked(world)
    first, again = [post(api, body, headers={"Idempotency-Key": "k"}).json()["id"] for _ in range(2)]
    other = post(api, {**body, "rows": 9}, headers={"Idempotency-Key": "k"})

    assert first == again
    assert (other.status_code, Probe.objects.count()) == (409, 1)


def test_it_can_be_cancelled_and_stays_so(world: World) -> None:
    api, probe = world.api(world.alice), world.probe()
    answer = post(api, {}, f"{PATH}{probe.public_id}/cancel/")

    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    assert api.get(f"{PATH}{probe.public_id}/").json()["state"] == "cancelled"


def test_a_viewer_may_look_and_not_begin(world: World) -> None:
    probe, vera = world.probe(), world.api(world.vera, scopes=["rewards:read"])

    assert vera.get(f"{PATH}{probe.public_id}/").status_code == 200
    assert post(vera, asked(world)).status_code == 403


# What happens to one


def test_one_that_the_engine_forgot_begins_again(world: World, engine: FakeEngine) -> None:
    probe = world.probe()
    engine.probes.known.clear()
    engine.probes.orders.clear()
    refresh(probe, timezone.now())

    assert (probe.state, list(engine.probes.known)) == ("running", [probe.public_id])


def test_an_engine_that_never_answers_ends_it_with_a_reason(world: World, engine: FakeEngine) -> None:
    probe = world.probe()
    engine.down = True
    refresh(probe, timezone.now())
    still = probe.state
    refresh(probe, timezone.now() + timedelta(minutes=16))

    assert (still, probe.state) == ("running", "failed")
    assert "did not answer" in Probe.objects.get().reason


def test_an_answer_that_comes_late_does_not_wake_it(world: World, engine: FakeEngine) -> None:
    probe = world.probe()
    stale = Probe.objects.get()
    Probe.objects.update(state="cancelled")
    refresh(stale, timezone.now())

    assert (stale.state, Probe.objects.get(pk=probe.pk).state) == ("cancelled", "cancelled")


def test_what_nobody_looks_at_is_taken_in_by_the_sweeper(world: World) -> None:
    world.probe()
    for _ in range(4):
        sweep()

    assert Probe.objects.get().state == "done"


def test_the_sweeper_asks_an_engine_that_is_down_only_once(world: World, engine: FakeEngine) -> None:
    world.probe()
    world.probe()
    engine.down = True
    before = len(engine.calls)
    probes.sweep(timezone.now())

    assert len(engine.calls) == before + 1


def test_a_failure_is_told_in_the_engines_words(world: World, engine: FakeEngine, alice: Client) -> None:
    probe = world.probe()
    error = {"reason": "row 3 has a prompt of 99 tokens", "attribution": "user"}
    engine.probes.known[probe.public_id] |= {"state": "failed", "error": error}

    assert "row 3 has a prompt of 99 tokens" in alice.get(f"/rewards/probes/{probe.public_id}/", headers=HTMX).content.decode()


def test_a_strangers_dataset_does_not_exist_for_it(world: World) -> None:
    foreign = {"dataset": world.dataset(world.charlie).public_id, "base_model": "tiny-math"}
    with pytest.raises(Invalid, match="there is no dataset"):
        start_probe(world.sums, world.alice, world.reward(), foreign, timezone.now())


# The page


def test_the_page_is_whole_by_itself_and_a_part_inside_of_another(world: World, alice: Client) -> None:
    world.dataset()
    path = f"/rewards/{world.reward().public_id}/probe/"
    whole, part = alice.get(path).content.decode(), alice.get(path, headers=HTMX).content.decode()

    assert "<html" in whole and "<html" not in part
    assert 'name="rollout.group_size"' in part and 'id="probe_dataset"' in part


def test_without_a_dataset_it_says_what_is_missing(world: World, alice: Client) -> None:
    assert "A probe needs a dataset" in alice.get(f"/rewards/{world.reward().public_id}/probe/").content.decode()


def test_it_shows_how_far_it_is_until_the_forecast_is_there(world: World, alice: Client) -> None:
    reward = world.reward()
    begun = alice.post(f"/rewards/{reward.public_id}/probe/", typed(world), headers=HTMX).content.decode()
    probe = reward.probes.get()
    path = f"/rewards/probes/{probe.public_id}/"
    pages = [alice.get(path, headers=HTMX).content.decode() for _ in range(4)]

    assert "of 32 completions" in begun and f'hx-get="{path}"' in begun
    assert "hx-trigger" in pages[0] and "hx-trigger" not in pages[-1]
    assert "Groups of 4 without signal" in pages[-1] and "42 &lt;b&gt;" in pages[-1]
    assert alice.get(path).headers["Location"] == f"/rewards/{reward.public_id}/probe/"


def test_a_form_without_scripts_comes_back_to_the_page(world: World, alice: Client) -> None:
    path = f"/rewards/{world.reward().public_id}/probe/"
    answer = alice.post(path, typed(world))

    assert (answer.status_code, answer.headers["Location"]) == (302, path)


def test_a_bad_number_is_told_beside_its_field(world: World, alice: Client) -> None:
    path = f"/rewards/{world.reward().public_id}/probe/"
    whole, part = (alice.post(path, typed(world, **{"rollout.group_size": 1}), headers=more) for more in ({}, HTMX))

    assert (whole.status_code, part.status_code) == (422, 200)
    assert 'id="probe_rollout.group_size_error"' in part.content.decode()
    assert not Probe.objects.exists()


def test_an_engine_that_is_down_is_said_on_the_page(world: World, alice: Client, engine: FakeEngine) -> None:
    reward, form = world.reward(), typed(world)
    alice.get(f"/rewards/{reward.public_id}/probe/")
    engine.down = True

    assert "does not answer just now" in alice.post(f"/rewards/{reward.public_id}/probe/", form, headers=HTMX).content.decode()


def test_it_can_be_stopped_on_the_page(world: World, alice: Client) -> None:
    probe = world.probe()
    answer = alice.post(f"/rewards/probes/{probe.public_id}/cancel/", headers=HTMX)

    assert "Stopped before it was done" in answer.content.decode()


def test_a_probe_in_which_nothing_could_be_graded_says_so_and_shows_no_rates(world: World, alice: Client, engine: FakeEngine) -> None:
    from engine.probe_forecast import RowProbe, Took, forecast
    from engine.probe_pace import StepPace

    probe = world.probe()
    rows = [RowProbe(row=0, prompt_tokens=5, rewards=(None,) * 8, lengths=(3,) * 8, truncated=8, invalid=("row 0: no number",) * 8)]
    result = forecast(engine.probes.orders[probe.public_id].spec, rows, Took(seconds=1, longest_seconds=1), StepPace())
    engine.probes.known[probe.public_id] |= {"state": "done", "done": 64, "result": {**result, "examples": []}}
    page = alice.get(f"/rewards/probes/{probe.public_id}/", headers=HTMX).content.decode()

    assert "100 % of the completions could not be graded" in page and "row 0: no number" in page
    assert "Hardly any group would teach" in page and "were cut at their longest" in page
    assert "how long training takes is not known" in page


def test_the_form_begins_with_what_the_newest_probe_was_asked(world: World, engine: FakeEngine, alice: Client) -> None:
    reward, first = world.reward(), world.dataset()
    alice.post(f"/rewards/{reward.public_id}/probe/", {**typed(world), "dataset": first.public_id, "rollout.group_size": 3})
    world.dataset()  # newer than the one that was probed
    form = alice.get(f"/rewards/{reward.public_id}/probe/").context["form"]
    assert (form["dataset"].value(), form["rollout.group_size"].value()) == (first.public_id, 3)


def test_the_form_begins_with_room_for_the_longest_prompt(world: World, engine: FakeEngine, alice: Client) -> None:
    dataset = world.dataset()
    dataset.lengths = {"tiny-math": {"model": "tiny-math", "max": 63}}
    dataset.save(update_fields=["lengths"])
    form = alice.get(f"/rewards/{world.reward().public_id}/probe/").context["form"]
    assert form["rollout.max_prompt_tokens"].value() == 63
