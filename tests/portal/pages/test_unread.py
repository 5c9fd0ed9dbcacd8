"""What an address asks for and there is not: left out, and the page says so and links to itself without it."""

from __future__ import annotations

import pytest

from portal.jobs.models import Job
from tests.portal.fake_engine import FakeEngine
from tests.portal.history import play
from tests.portal.world import World

SAID = {
    "/jobs/?state=zz&show=open": ("There is no state “zz”", "/jobs/?show=open"),
    "/jobs/?show=some": ("There is no list of jobs “some”", "/jobs/"),
    "/jobs/?page=99": ("There is no page 99; the last one is shown", "/jobs/"),
    "/jobs/?page=x&state=zz": ("There is no state “zz”, so that choice is left out. Page “x” is no whole number", "/jobs/"),
    "/jobs/compare/?x=pages": ("There is no axis “pages”", "/jobs/compare/"),
    "/jobs/new/?preset=none": ("There is no preset “none”", "/jobs/new/"),
    "/jobs/{job}/rollouts/?version=abc&row=1": ("Version “abc” is no whole number", "/jobs/{job}/rollouts/?row=1"),
    "/jobs/{job}/rollouts/?colour=pink": ("There is no colouring “pink”", "/jobs/{job}/rollouts/"),
    "/jobs/{job}/rollouts/?reward_min=much": ("Reward min “much” is no number", "/jobs/{job}/rollouts/"),
    "/jobs/{job}/rollouts/?finish=hacked": ("There is no ending “hacked”", "/jobs/{job}/rollouts/"),
    "/jobs/{job}/rollouts/rows/3/?a=99": ("There is no version of this prompt “99”", "/jobs/{job}/rollouts/rows/3/"),
    "/jobs/{job}/checkpoints/?page=9": ("There is no page 9", "/jobs/{job}/checkpoints/"),
    "/jobs/{job}/evaluation/latest/?show=draw": ("There is no change “draw”", "/jobs/{job}/evaluation/latest/"),
    "/datasets/?page=7": ("There is no page 7", "/datasets/"),
    "/datasets/{dataset}/?split=test": ("There is no part of this dataset “test”", "/datasets/{dataset}/"),
    "/datasets/{dataset}/?model=gpt": ("There is no model “gpt”", "/datasets/{dataset}/"),
    "/datasets/generate/?with=magic": ("There is no generator “magic”", "/datasets/generate/"),
    "/rewards/?page=7": ("There is no page 7", "/rewards/"),
    "/rewards/{reward}/lab/?run=run_none": ("There is no such run here", "/rewards/{reward}/lab/"),
    "/playground/{job}/?step=99": ("Step “99” is no whole number from 0 to 3", "/playground/{job}/"),
    "/usage/?show=gold": ("There is no unit “gold”", "/usage/"),
    "/settings/audit/?noun=cat": ("There is no kind of entries “cat”", "/settings/audit/"),
}


@pytest.fixture
def names(world: World, engine: FakeEngine) -> dict[str, str]:
    job = world.job()
    play(job, steps=3)
    engine.jobs[job.public_id] = {"spec": job.spec}
    for version in (1, 2, 3):
        engine.emit(job.public_id, "step", version=version)
    assert Job.objects.get().version == 3
    return {"job": job.public_id, "dataset": job.dataset.public_id, "reward": job.reward.public_id}


@pytest.mark.parametrize("address", SAID)
def test_a_page_says_what_it_left_out_and_leads_to_itself_without_it(world: World, names: dict[str, str], address: str) -> None:
    said, without = SAID[address]
    page = world.client(world.alice).get(address.format(**names)).content.decode()
    notice = page.partition('class="notice notice-info unread"')[2].partition("</a>")[0]
    assert said in notice
    assert f'href="{without.format(**names)}"' in notice
    clean = world.client(world.alice).get(without.format(**names)).content.decode()
    assert "unread" not in clean.partition("<main")[2]


def test_what_is_left_out_is_text_and_short(world: World) -> None:
    page = world.client(world.alice).get("/jobs/", {"state": "<b>" + "x" * 500}).content.decode()
    assert "There is no state “&lt;b&gt;" in page and "x" * 60 not in page


def test_a_list_that_refreshes_itself_asks_without_it(world: World, names: dict[str, str]) -> None:
    page = world.client(world.alice).get("/jobs/?state=zz&q=exact").content.decode()
    assert 'hx-get="/jobs/?q=exact&amp;page=1"' in page
