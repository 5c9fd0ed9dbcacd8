"""Hostile strings in every place where a person or a model may put one: on every page they are text, and nothing else."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from msgspec.structs import replace

from portal.datasets.actions import create_dataset
from portal.jobs.actions import create_job
from portal.jobs.models import Job, JobEvent
from portal.rewards.actions import create_reward
from tests.portal import fake_groups, fake_script
from tests.portal.fake_engine import FakeEngine
from tests.portal.history import play
from tests.portal.world import NOW, World, jsonl

CORPUS = (
    "<script>owned()</script>",
    '"><img src=x onerror=owned()>',
    "'><svg/onload=owned()>",
    "</script><script>owned()</script>",
    "</title></textarea></select><script>owned()</script>",
    "<!--<img src='--><img src=x onerror=owned()//'>",
    "javascript:owned()//",
    '" autofocus onfocus=owned() x="',
    "<iframe srcdoc='<script>parent.owned()</script>'>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=owned()>",
    "{{constructor.constructor('owned()')()}}{% load ui %}",
    "<a href='java\tscript:owned()'>x</a>",
    "\u2028<details open ontoggle=owned()>",
    "<base href=//evil.example><link rel=stylesheet href=//evil.example>",
)


class Faults(HTMLParser):
    """What would run, or load from elsewhere, if a browser read the page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("iframe", "object", "embed", "base", "math", "style"):
            self.found.append(f"<{tag}>")
        if tag == "script" and "src" not in given and given.get("type") != "application/json":
            self.found.append("inline script")
        self.found += [f"{tag} {name}" for name in given if name.startswith("on") or name in ("srcdoc", "style", "autofocus")]
        targets = [given.get(name) or "" for name in ("href", "src", "action", "formaction", "xlink:href")]
        self.found += [target for target in targets if target.strip().lower().startswith(("javascript:", "data:", "//"))]


def faults(html: str) -> list[str]:
    parser = Faults()
    parser.feed(html)
    return parser.found


@pytest.mark.parametrize(
    "text", ["<img src=x onerror=a()>", "<script>a()</script>", "<a href=' javascript:a()'>x</a>", "<iframe></iframe>"]
)
def test_the_check_sees_what_is_not_inert(text: str) -> None:
    assert faults(text)


@pytest.mark.parametrize("hostile", CORPUS, ids=range(len(CORPUS)))
def test_it_is_inert_on_every_page(world: World, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, hostile: str) -> None:
    job = hostile_job(world, engine, hostile)
    monkeypatch.setattr(fake_groups, "_completion", _saying(fake_groups._completion, hostile))
    monkeypatch.setattr(fake_script, "_answer", lambda row, reward: {**_ANSWER, "row": row, "reward": reward, "text": hostile})
    client = world.client(world.alice)
    page = f"/jobs/{job.public_id}/"
    paths = [
        "/",
        "/jobs/",
        f"/jobs/?q={hostile[:40]}",
        "/jobs/new/",
        f"/jobs/new/?from={job.public_id}",
        "/datasets/",
        "/rewards/",
        "/usage/",
    ]
    paths += [f"/datasets/{job.dataset.public_id}/", f"/rewards/{job.reward.public_id}/", f"/jobs/compare/?job={job.public_id}"]
    paths += [page, f"{page}rollouts/", f"{page}rollouts/?colour=advantage&version=0", f"{page}rollouts/0/0/0/", f"{page}rollouts/rows/0/"]
    paths += [f"{page}checkpoints/", f"{page}evaluation/latest/"]
    found = {path: answer for path in paths if (answer := client.get(path)).status_code != 200 or faults(answer.content.decode())}
    assert {path: (answer.status_code, faults(answer.content.decode())) for path, answer in found.items()} == {}


def hostile_job(world: World, engine: FakeEngine, hostile: str) -> Job:
    """A job with the string as its name, in its dataset, its reward, its state and its events."""
    rows = jsonl(*({"prompt": f"{hostile} {n}", "answer": hostile, hostile[:30]: hostile} for n in range(40)))
    rows.name = f"{hostile[:40]}.jsonl"
    name = hostile.replace("\t", " ").replace("\u2028", " ")
    dataset = create_dataset(world.sums, world.alice, name, rows)
    reward = create_reward(world.sums, world.alice, name, {"type": "string_check", "reference": "{{item.answer}}"})
    order: dict[str, Any] = {"name": name, "dataset": dataset.public_id, "reward": reward.public_id, "base_model": "tiny-math"}
    job = create_job(world.sums, world.alice, order, NOW)
    play(job, steps=2)
    engine.jobs[job.public_id] = {"spec": job.spec}
    for version in (1, 2):
        engine.emit(job.public_id, "step", version=version)
    for seq, (kind, data) in enumerate(_events(job, hostile), start=job.last_seq + 1):
        engine.emit(job.public_id, kind, **data)
        JobEvent.objects.create(tenant=job.tenant, job=job, seq=seq, kind=kind, at=NOW, data=data)
        Job.objects.filter(pk=job.pk).update(last_seq=seq)
    Job.objects.filter(pk=job.pk).update(state="failed", state_reason=hostile)
    job.refresh_from_db()
    return job


def _events(job: Job, hostile: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("eval", fake_script.eval_event(job.public_id, job.spec, 0)),
        ("finding", {**fake_script.finding(2), "title": hostile, "evidence": hostile, "advice": hostile}),
        ("warning", {"code": hostile, "message": hostile, "advice": hostile}),
        (hostile[:60], {hostile: hostile}),
        ("ended", {"state": "failed", "reason": hostile, "attribution": "user", "version": 2}),
    ]


_ANSWER = {"invalid": None, "finish_reason": "stop", "sampled_tokens": 4, "sha256": "0" * 64}


def _saying(real: Any, text: str) -> Any:
    return lambda *given: replace(real(*given), text=text, invalid=text, components={text: 0.5, f"{text}2": 0.5})
