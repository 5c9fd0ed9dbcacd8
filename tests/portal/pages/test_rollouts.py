"""The viewer of completions: what it asks for, what it shows, and that nobody else sees it."""

from __future__ import annotations

import pytest

from portal.jobs.rollouts import Filter, diff
from portal.jobs.token_text import BY_MISMATCH, _piece, _texts
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import World


@pytest.fixture
def job(world: World, engine: FakeEngine):
    """A job that has sampled from versions 0 to 2."""
    from portal.jobs.models import Job

    job = world.job(rollout={"prompts_per_step": 10, "group_size": 4})
    engine.jobs[job.public_id] = {"spec": job.spec}
    for version in (1, 2, 3):
        engine.emit(job.public_id, "step", version=version)
    Job.objects.filter(pk=job.pk).update(version=3)
    return job


def test_a_step_is_shown_group_by_group_with_what_was_dropped(world: World, job) -> None:
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/rollouts/?version=1&page=2")
    groups = answer.context["found"]["groups"]
    assert [group["row"] for group in groups] == [8, 9, 10]
    assert [group["dropped"] for group in groups] == [False, False, True]
    assert "other prompts took its place" in answer.content.decode()


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("version=2", {"version": "2"}),
        ("row=4&reward_max=0.5", {"row": "4", "reward_max": "0.5"}),
        ("length_min=3&finish=length", {"length_min": "3", "finish": "length"}),
        ("text=Oslo&kept=dropped&every=1", {"text": "Oslo", "kept": "dropped", "every": "true"}),
        ("version=%C2%B2&reward_min=nan&finish=hacked&page=-4", {}),
    ],
)
def test_the_filter_in_the_address_is_what_the_engine_is_asked(world: World, job, monkeypatch, query: str, asked: dict) -> None:
    from tests.portal import fake_groups

    seen = {}
    real = fake_groups.answer
    monkeypatch.setattr(fake_groups, "answer", lambda job, spec, version, params: seen.update(params) or real(job, spec, version, params))
    assert world.client(world.alice).get(f"/jobs/{job.public_id}/rollouts/?{query}").status_code == 200
    usual = {"kept": "all", "offset": "0", "limit": "8", "tokens": "false", "every": "false"}
    assert seen == {**usual, **asked}


def test_an_address_says_only_what_is_not_usual() -> None:
    assert Filter(version=3, text="a b", page=4).address() == "version=3&text=a+b"
    assert Filter(version=3, every=True).address(page=2) == "version=3&every=1&page=2"


@pytest.mark.parametrize("colour", ["advantage", "probability", "mismatch"])
def test_tokens_are_coloured_and_their_text_is_the_completion(world: World, job, colour: str) -> None:
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/rollouts/?version=1&row=3&colour={colour}")
    [group] = answer.context["found"]["groups"]
    for completion in group["completions"]:
        assert "".join(piece.text for piece in completion["pieces"]) == completion["text"]
    tones = {piece.tone for completion in group["completions"] for piece in completion["pieces"]}
    expected = {"advantage": ("up-", "down-", "even"), "probability": "odds-", "mismatch": "gap-"}
    assert all(tone.startswith(expected[colour]) for tone in tones)


def test_mismatch_has_a_legend_and_the_deepest_shade_where_sampler_and_trainer_disagree(world: World, job) -> None:
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/rollouts/?version=1&row=3&colour=mismatch")
    first = answer.context["found"]["groups"][0]["completions"][0]
    assert [piece.tone for piece in first["pieces"]][:2] == ["gap-1", "gap-1"], "0.002 and 0.008 nats"
    assert "differs by +0.002" in first["pieces"][0].told
    assert "0.5 nats and more" in answer.content.decode()


def test_completions_of_before_there_was_such_a_file_say_that_it_is_not_known(world: World, job, monkeypatch) -> None:
    from tests.portal import fake_groups

    monkeypatch.setattr(fake_groups, "_tokens", lambda batch: fake_groups.Tokens())
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/rollouts/?version=1&row=3&colour=mismatch")
    assert {piece.tone for c in answer.context["found"]["groups"][0]["completions"] for piece in c["pieces"]} == {"even"}
    assert "is not known of these completions" in answer.content.decode()


@pytest.mark.parametrize(("gap", "tone"), [(0.0, 1), (-0.01, 2), (0.049, 2), (0.05, 3), (-0.3, 4), (0.5, 5), (9.0, 5)])
def test_a_shade_begins_where_the_legend_says(gap: float, tone: int) -> None:
    assert _piece("a", [-0.1], gap, 0.0, BY_MISMATCH, 1.0).tone == f"gap-{tone}"


def test_what_a_tool_said_is_no_token_of_the_model(world: World, engine: FakeEngine) -> None:
    tools = {"type": "tools", "tools": ["calculator"], "max_tokens": 64}
    job = world.job(environment=tools, rollout={"prompts_per_step": 2, "group_size": 2})
    engine.jobs[job.public_id] = {"spec": job.spec}
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/rollouts/?colour=advantage")
    [first, *_] = answer.context["found"]["groups"]
    pieces = first["completions"][0]["pieces"]
    assert [piece.text for piece in pieces if piece.tone == "added"] == ["=="]
    assert "0.3 s" in answer.content.decode()


def test_programs_get_the_same_groups(world: World, job) -> None:
    api = world.api(world.alice)
    found = api.get(f"/api/v1/jobs/{job.public_id}/rollouts/?version=1&row=3&tokens=true").json()
    assert [group["row"] for group in found["groups"]] == [3]
    assert len(found["groups"][0]["completions"][0]["logprobs"]) > 0
    refused = api.get(f"/api/v1/jobs/{job.public_id}/rollouts/?reward_min=much")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "reward_min")
    assert api.get(f"/api/v1/jobs/{job.public_id}/rollouts/?version=99").status_code == 404
    assert world.api(world.charlie).get(f"/api/v1/jobs/{job.public_id}/rollouts/").status_code == 404


class Bytes:
    """A tokenizer of bytes, whose single tokens may be half of a character."""

    def decode(self, ids, skip_special_tokens):
        return bytes(ids).decode("utf-8", "replace")


def test_a_character_of_several_tokens_is_one_piece() -> None:
    ids = list("aé€b".encode())
    assert list(_texts(Bytes(), ids, [True] * len(ids))) == [("a", 1), ("é", 2), ("€", 3), ("b", 1)]


def test_a_completion_has_an_address_of_its_own(world: World, job) -> None:
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/rollouts/1/3/2/")
    assert (answer.context["completion"]["sample"], answer.context["group"]["row"]) == (2, 3)
    assert world.client(world.alice).get(f"/jobs/{job.public_id}/rollouts/1/3/99/").status_code == 404
    assert world.client(world.alice).get(f"/jobs/{job.public_id}/rollouts/9/3/2/").status_code == 404


def test_a_prompt_at_two_steps_is_shown_as_a_difference(world: World, job) -> None:
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/rollouts/rows/3/")
    assert (answer.context["before"], answer.context["after"]) == (0, 2)
    assert [side["version"] for side in answer.context["sides"]] == [0, 2]


def test_a_difference_is_told_word_by_word() -> None:
    assert diff("the sum is 12", "the sum was 12!") == [("same", "the sum "), ("gone", "is"), ("new", "was"), ("same", " 12"), ("new", "!")]


def test_without_completions_the_page_says_when_they_come(world: World, engine: FakeEngine) -> None:
    job = world.job()
    assert "No completions yet" in world.client(world.alice).get(f"/jobs/{job.public_id}/rollouts/").content.decode()


@pytest.mark.parametrize("path", ["rollouts/", "rollouts/0/0/0/", "rollouts/rows/0/"])
def test_while_the_engine_is_down_the_page_says_so(world: World, engine: FakeEngine, path: str) -> None:
    job = world.job()
    engine.down = True
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/{path}")
    assert answer.status_code == 503
    assert "does not answer just now" in answer.content.decode()


@pytest.mark.parametrize("colour", ["advantage", "probability", "mismatch"])
def test_the_colouring_goes_along_from_page_to_page_and_back(world: World, job, colour: str) -> None:
    client, here = world.client(world.alice), f"/jobs/{job.public_id}/rollouts"
    tones = {"advantage": "token-up-", "probability": "token-odds-", "mismatch": "token-gap-"}
    pages = {
        f"{here}/?version=1&row=3&": (f"{here}/1/3/2/?", f"{here}/rows/3/?"),
        f"{here}/1/3/2/?": (f"{here}/?",),
        f"{here}/rows/3/?": (f"{here}/?",),
    }
    for address, leads_to in pages.items():
        page = client.get(f"{address}colour={colour}").content.decode()
        assert f'class="token {tones[colour]}' in page, address
        assert all(f'href="{link}colour={colour}"' in page for link in leads_to), address
        assert 'class="token ' not in client.get(address).content.decode(), address


def test_completions_are_hostile_and_stay_text(world: World, job, monkeypatch) -> None:
    from tests.portal import fake_groups

    hostile = "<script>alert(1)</script>"
    monkeypatch.setattr(fake_groups, "_completion", _saying(fake_groups._completion, hostile))
    client = world.client(world.alice)
    for path in ("rollouts/?version=1", "rollouts/1/3/2/", "rollouts/rows/3/"):
        html = client.get(f"/jobs/{job.public_id}/{path}").content.decode()
        assert hostile not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html or path.endswith("/1/3/2/")  # which shows the tokens instead


def _saying(real, text: str):
    from msgspec.structs import replace

    return lambda *args: replace(real(*args), text=text)
