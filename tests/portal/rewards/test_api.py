from __future__ import annotations

import pytest
from django.conf import settings

from engine.grader_spec import TYPES
from engine.sealed import Sealer, is_sealed
from portal.rewards.actions import create_reward
from portal.rewards.models import Reward
from tests.portal.rewards.examples import GRADERS, SECRET, grader
from tests.portal.world import World


@pytest.mark.parametrize("type", TYPES)
def test_every_kind_can_be_made_by_a_program(world: World, type: str) -> None:
    api = world.api(world.alice)
    made = api.post("/api/v1/rewards/", {"name": "mine", "grader": grader(type)}, content_type="application/json")
    assert made.status_code == 201, made.content
    again = api.get(f"/api/v1/rewards/{made.json()['id']}/").json()["grader"]
    assert {key: again[key] for key in GRADERS[type] if key not in ("graders", "signing_secret")}.items() <= grader(type).items()


def test_a_refusal_names_the_field(world: World) -> None:
    bad = {"name": "x", "grader": grader("multi", calculate_output="exact + style")}
    refused = world.api(world.alice).post("/api/v1/rewards/", bad, content_type="application/json")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "grader.calculate_output")


def test_the_secret_is_written_and_never_read(world: World) -> None:
    api = world.api(world.alice)
    combined = grader("multi", graders={"exact": grader("http")})
    for raw in (grader("http"), combined):
        made = api.post("/api/v1/rewards/", {"name": "mine", "grader": raw}, content_type="application/json")
        assert SECRET not in made.content.decode() + api.get(f"/api/v1/rewards/{made.json()['id']}/").content.decode()
    assert SECRET not in api.get("/api/v1/rewards/").content.decode()
    part, alone = [reward.grader for reward in Reward.objects.all()]
    assert is_sealed(alone["signing_secret"]) and is_sealed(part["graders"]["exact"]["signing_secret"])
    assert SECRET not in str([alone, part])


def test_a_stored_reward_can_be_a_part_of_another_and_a_strangers_cannot(world: World) -> None:
    http = create_reward(world.sums, world.alice, "mine", grader("http")).grader
    both = grader("multi", graders={"exact": http})
    made, stolen = [
        world.api(user).post("/api/v1/rewards/", {"name": "both", "grader": both}, content_type="application/json")
        for user in (world.alice, world.charlie)
    ]

    assert made.status_code == 201
    assert (stolen.status_code, stolen.json()["error"]["param"]) == (400, "grader.graders.exact.signing_secret")


def test_the_engine_opens_what_the_portal_sealed(world: World) -> None:
    stored = create_reward(world.sums, world.alice, "mine", grader("http")).grader["signing_secret"]

    assert Sealer(bearer=settings.ENGINE_SECRET).open(stored, tenant=world.sums.public_id) == SECRET


def test_a_job_does_not_show_its_rewards_secret(world: World) -> None:
    job = world.job()
    job.spec["grader"] = grader("http")
    job.save(update_fields=["spec"])
    assert SECRET not in world.api(world.alice).get(f"/api/v1/jobs/{job.public_id}/").content.decode()


def test_a_stranger_gets_404(world: World) -> None:
    reward = world.reward()
    assert world.api(world.charlie).get(f"/api/v1/rewards/{reward.public_id}/").status_code == 404
    assert world.client(world.charlie).get(f"/rewards/{reward.public_id}/").status_code == 404
