"""What is logged while people sign up, prove themselves, make tokens and webhooks and get all of it wrong has no secret in it."""

from __future__ import annotations

import ast
import io
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.conf import settings as site
from django.test import Client
from django.urls import reverse

from engine.rewards.outbound import Unreachable
from portal import logs
from portal.jobs import delivery
from portal.jobs.models import Job
from portal.notices import carrying, telling
from tenants import members
from tenants.models import Invitation
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, PASSWORD, World

NEW = "a battery with a staple"
GRADER_SECRET = "whsec_" + "Z3JhZGVycyBzZWNyZXQgb2YgdGhlIHRlc3Rz"


@pytest.fixture(params=["for people", "for machines"])
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """All that is written at the level of production, and of the loggers that are quieter there as much as of the others.

    Not at DEBUG: there Django's templates tell all that a page was made of.
    """
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logs.formatter(json=request.param == "for machines"))
    root, quiet = logging.getLogger(), [logging.getLogger(name) for name in ("django_structlog", "httpx", "httpcore")]
    before = [(logger, logger.level) for logger in (root, *quiet)]
    root.addHandler(handler)
    for logger, _ in before:
        logger.setLevel("INFO")
    yield out
    root.removeHandler(handler)
    for logger, level in before:
        logger.setLevel(level)


def test_a_whole_run_writes_no_secret(world: World, engine: FakeEngine, settings: Any, mailoutbox: list, written: io.StringIO) -> None:
    settings.STRIPE_WEBHOOK_SECRET, settings.METRICS_TOKEN = "whsec_of_the_till_123", "metrics-token-123"
    secrets = {
        "site key": site.SECRET_KEY,
        "engine's": site.ENGINE_SECRET,
        "till's": settings.STRIPE_WEBHOOK_SECRET,
        "metrics": settings.METRICS_TOKEN,
        "password": PASSWORD,
        "new password": NEW,
        "grader's": GRADER_SECRET,
        **signing_up(mailoutbox),
        **resetting(mailoutbox),
        **two_factors(world),
        **tokens(world),
        **invitation(world),
        **webhook(world),
    }
    machines(settings)
    grading(world, engine)
    said = written.getvalue()
    assert len(secrets) >= 18
    assert all(len(secret) >= 6 for secret in secrets.values())
    assert [name for name, secret in secrets.items() if secret in said] == []
    assert "/join/inv_" in said
    assert "_…" in said or "_\\u2026" in said


def signing_up(mails: list) -> dict[str, str]:
    browser = Client()
    browser.get("/accounts/signup/")
    browser.post("/accounts/signup/", {"email": "dora@example.org", "password1": NEW, "password2": NEW})
    key = mails[-1].body.split("/accounts/confirm-email/")[1].split("/")[0]
    for _ in range(2):
        browser.post(f"/accounts/confirm-email/{key}/")
    browser.post("/accounts/confirm-email/" + key[:-1] + "x/")
    browser.delete(f"/accounts/confirm-email/{key}/")  # 405: refused, so written down
    return {"confirmation": key, "session": browser.cookies["sessionid"].value, "csrf": browser.cookies["csrftoken"].value}


def resetting(mails: list) -> dict[str, str]:
    browser = Client()
    browser.post("/accounts/password/reset/", {"email": "vera@example.org"})
    key = mails[-1].body.split("/accounts/password/reset/key/")[1].split("/")[0]
    form = browser.get(f"/accounts/password/reset/key/{key}/")["Location"]
    browser.delete(f"/accounts/password/reset/key/{key}/")
    browser.post(form, {"password1": NEW, "password2": NEW})
    browser.get(f"/accounts/password/reset/key/{key}/")
    return {"reset": key}


def two_factors(world: World) -> dict[str, str]:
    browser = world.client(world.bob, proven=True)
    browser.post("/accounts/login/", {"login": "bob@example.org", "password": PASSWORD + " wrong"})
    form = browser.get("/accounts/2fa/totp/activate/").context["form"]
    seed = form.secret
    browser.post("/accounts/2fa/totp/activate/", {"code": "000000"})
    browser.post("/accounts/2fa/totp/activate/", {"code": code_of(seed)})
    assert world.bob.authenticator_set.filter(type="totp").exists()
    recovery = browser.get("/accounts/2fa/recovery-codes/").context["unused_codes"]
    other = Client()
    other.post("/accounts/login/", {"login": "bob@example.org", "password": PASSWORD})
    for code in ("000000", recovery[0]):
        other.post("/accounts/2fa/authenticate/", {"code": code})
    assert other.get("/jobs/").status_code == 200
    return {"seed": seed, "recovery": recovery[0], "next recovery": recovery[1], "bob's session": other.cookies["sessionid"].value}


def code_of(seed: str) -> str:
    return format_hotp_value(hotp_value(seed, int(time.time()) // 30))


def tokens(world: World) -> dict[str, str]:
    made = world.api(world.alice).post("/api/v1/tokens/", {"name": "x"}, content_type="application/json").json()
    text = made["token"]
    for bearer in (text, text[:-1] + "a", text):
        client = Client(headers={"Authorization": f"Bearer {bearer}"})
        for path in ("/api/v1/me/", "/api/v1/nothing/", f"/api/v1/jobs/?cursor={bearer}", f"/nowhere/{bearer}/", "/v1/models"):
            client.get(path)
        client.post(f"/api/v1/tokens/{made['id']}/rotate/", {"overlap_hours": "x"}, content_type="application/json")
    Client().post("/api/v1/tokens/report/", {"token": text, "url": f"https://x/?{text}"}, content_type="application/json")
    return {"token": text, "token's secret": text.rpartition("_")[2][:20]}


def invitation(world: World) -> dict[str, str]:
    secret, invited = "the-secret-of-an-invitation-that-is-open-still", world.invitation(email="erin@example.org")
    Invitation.objects.filter(pk=invited.pk).update(secret_hash=members._hash(secret))
    link = f"/join/{invited.public_id}/{secret}/"
    assert world.client(world.charlie).post(link).status_code == 403
    assert Client().get(link[:-2] + "/").status_code == 404
    broken = Client(raise_request_exception=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("portal.accounts.views.membership.find_invitation", lambda *_: 1 / 0)
        assert broken.get(link).status_code == 500
    return {"invitation": secret}


def webhook(world: World) -> dict[str, str]:
    secret = world.client(world.alice).post("/notifications/webhooks/", {"url": "https://hooks.example.org/"}).context["secret"]
    job = world.job()
    Job.objects.filter(pk=job.pk).update(state="succeeded", last_seq=7)
    job.refresh_from_db()
    telling.tell(job, "running", NOW)

    def post(*_: Any) -> Any:
        raise Unreachable("nobody is there")

    assert carrying.sweep(NOW, post=post)
    return {"webhook": secret}


def machines(settings: Any) -> None:
    for bearer in (settings.METRICS_TOKEN, settings.METRICS_TOKEN + "x"):
        Client().get("/metrics", headers={"Authorization": f"Bearer {bearer}"})
    Client().post("/stripe/webhook/", b"{}", content_type="application/json", headers={"Stripe-Signature": "t=1,v1=0"})


def grading(world: World, engine: FakeEngine) -> None:
    api = world.api(world.alice)
    grader = {"type": "http", "url": "https://grader.example.org/", "signing_secret": GRADER_SECRET}
    for body in ({"name": "out", "grader": grader}, {"name": "", "grader": {**grader, "url": "http://127.0.0.1/"}}):
        made = api.post("/api/v1/rewards/", body, content_type="application/json")
    reward = api.post("/api/v1/rewards/", {"name": "out", "grader": grader}, content_type="application/json").json()
    assert made.status_code == 400
    order = {"dataset": world.dataset().public_id, "reward": reward["id"], "base_model": "tiny-math"}
    job = Job.objects.get(public_id=api.post("/api/v1/jobs/", json.dumps(order), content_type="application/json").json()["id"])
    delivery.deliver(job.pk, NOW)


OPENING = {
    "invitation": lambda secret: reverse("accounts:join", args=["inv_x", secret]),
    "confirmation": lambda secret: reverse("account_confirm_email", args=[f"MQ:1x:{secret}"]),
    "reset": lambda secret: reverse("account_reset_password_from_key", kwargs={"uidb36": "1", "key": secret}),
    "token": lambda secret: f"/jobs/?token=mrl_live_{'a' * 12}_{secret}",
}


@pytest.mark.parametrize("kind", OPENING)
def test_what_opens_something_is_veiled_in_an_address(kind: str) -> None:
    record = logging.LogRecord("django.request", logging.WARNING, "", 0, "Not Found: %s", (OPENING[kind]("ab2cd-3ef"),), None)
    for json_lines in (True, False):
        said = logs.formatter(json=json_lines).format(record)
        assert "ab2cd" not in said
        assert "…" in said or "\\u2026" in said


SECRET_WORDS = ("secret", "password", "signature", "checksum", "bearer")


def compared_plainly(source: str) -> Iterator[int]:
    """Lines of ``==`` and ``!=`` between values of which one is named as a secret is: those end at the first letter that differs."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            sides = [node.left, *node.comparators]
            names = [side.id if isinstance(side, ast.Name) else side.attr for side in sides if isinstance(side, ast.Name | ast.Attribute)]
            if any(word in name.lower() for name in names for word in SECRET_WORDS):
                yield node.lineno


def test_no_secret_is_compared_letter_by_letter() -> None:
    paths = [path for tree in ("portal", "tenants", "engine") for path in Path(tree).rglob("*.py")]
    assert len(paths) > 300
    assert [f"{path}:{line}" for path in paths for line in compared_plainly(path.read_text())] == []
    assert list(compared_plainly("if token.secret_hash == given: pass")) == [1]
