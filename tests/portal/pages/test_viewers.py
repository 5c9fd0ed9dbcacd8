"""What pages offer to somebody who may only look: nothing that would be refused."""

from __future__ import annotations

import pytest

from portal.jobs.models import Job, State
from tests.portal.history import play
from tests.portal.world import World

MAKING = (
    "New job",
    "Start a job",
    "New reward",
    "Create a reward",
    "Use in a job",
    ">Generate<",
    "Upload</a>",
    "Upload a dataset",
    "New version",
    "Copy</a>",
    ">Stop",
    "Archive</button",
)


@pytest.mark.parametrize("empty", [True, False])
def test_lists_and_details_offer_a_viewer_nothing_to_make_and_a_member_all(world: World, empty: bool) -> None:
    pages = ["/jobs/", "/rewards/", "/datasets/"]
    if not empty:
        job = world.job()
        pages = ["/", *pages, f"/jobs/{job.public_id}/", f"/rewards/{job.reward.public_id}/", f"/datasets/{job.dataset.public_id}/"]
    for page in pages:
        theirs, ours = (
            world.client(user).get(page).content.decode().partition("<main")[2].partition("</main")[0] for user in (world.vera, world.bob)
        )
        assert [word for word in MAKING if word in theirs] == [], page
        assert [word for word in MAKING if word in ours], page


def test_a_viewer_sees_checkpoints_and_may_not_keep_or_delete_them(world: World) -> None:
    job = world.job()
    play(job, steps=2)
    Job.objects.filter(pk=job.pk).update(state=State.SUCCEEDED)
    address = f"/jobs/{job.public_id}/checkpoints/"
    theirs, ours = (world.client(user).get(address).content.decode() for user in (world.vera, world.bob))
    for words in ("/keep/", "Delete everything", "Start a job"):
        assert (words in theirs, words in ours) == (False, True), words


@pytest.mark.parametrize("address", ["/jobs/new/", "/datasets/new/", "/datasets/generate/", "/datasets/import/", "/rewards/new/"])
def test_a_page_for_making_something_tells_a_viewer_why_not(world: World, address: str) -> None:
    theirs, ours = (world.client(user).get(address).content.decode() for user in (world.vera, world.bob))
    assert ("your role is viewer" in theirs, "your role is viewer" in ours) == (True, False)


def test_a_refusal_keeps_the_navigation_for_who_is_signed_in(world: World) -> None:
    answer = world.client(world.vera).post("/rewards/new/", {"do": "save"})
    assert answer.status_code == 403
    assert all(words in answer.content.decode() for words in ("This is not open to you", 'href="/jobs/"', 'href="/datasets/"'))
