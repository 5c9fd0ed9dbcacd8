from __future__ import annotations

import pytest

from portal.billing import ledger, sources
from tests.portal.billing.books import line
from tests.portal.world import NOW, World


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("base", "Chats with base models"),
        ("job_a@12", "Chats with step 12"),
        ("grading", "Answers graded by judges"),
        ("prb_x", "Probe"),
        ("lr_x", "Trial of a reward"),
        ("datasets", "Stored datasets"),
        ("something", ""),
    ],
)
def test_each_source_has_words_for_people(source: str, words: str) -> None:
    assert sources.words_of(source) == words


def test_the_usage_page_says_what_used_it(world: World) -> None:
    job = world.job()
    for number, source in enumerate(("base", f"{job.public_id}@3", job.public_id, "prb_abc")):
        ledger.post(world.sums, [line(step=number, source=source)], NOW)
    page = world.client(world.alice).get(f"/usage/?month={NOW:%Y-%m}").content.decode()
    assert "Chats with base models" in page and "Chats with step 3" in page and "prb_abc" in page
    assert page.count(f'href="/jobs/{job.public_id}/"') == 2
