"""Datasets and rewards are deleted by typing their names, and say why they stay."""

from __future__ import annotations

import pytest

from tests.portal.world import World


@pytest.mark.parametrize("noun", ["dataset", "reward"])
def test_typing_the_name_deletes_and_anything_else_does_not(world: World, noun: str) -> None:
    thing, browser = getattr(world, noun)(), world.client(world.bob)
    page = f"/{noun}s/{thing.public_id}/"
    assert "Delete this" in browser.get(page).content.decode()
    slipped = browser.post(f"{page}delete/", {"typed": "additons"}, follow=True)
    page_again = slipped.content.decode()
    form = page_again.partition('<details class="panel" open><summary>Delete this')[2].partition("</details>")[0]
    assert f"Type {thing.name} to delete it for good." in form and 'value="additons" aria-invalid="true"' in form
    assert '<details class="panel" open><summary>Delete this' not in browser.get(page).content.decode(), "once"

    done = browser.post(f"{page}delete/", {"typed": f" {thing.name} "}, follow=True)
    assert f"{thing.name} is deleted." in done.content.decode()
    assert (done.redirect_chain[-1][0], browser.get(page).status_code) == (f"/{noun}s/", 404)
    assert world.sums.audit.get(action=f"{noun}.deleted").target == thing.public_id


@pytest.mark.parametrize(("noun", "why"), [("dataset", "one job was made of it"), ("reward", "a job is learning from it")])
def test_what_a_job_needs_stays_and_the_page_says_why(world: World, noun: str, why: str) -> None:
    thing, browser = getattr(world.job(), noun), world.client(world.bob)
    page = f"/{noun}s/{thing.public_id}/"
    assert f"It stays: {why}" in browser.get(page).content.decode()
    assert f"{thing.name} stays: {why}" in browser.post(f"{page}delete/", {"typed": thing.name}, follow=True).content.decode()


@pytest.mark.parametrize("noun", ["dataset", "reward"])
def test_viewers_see_no_such_thing(world: World, noun: str) -> None:
    thing = getattr(world, noun)()
    assert "Delete this" not in world.client(world.vera).get(f"/{noun}s/{thing.public_id}/").content.decode()
