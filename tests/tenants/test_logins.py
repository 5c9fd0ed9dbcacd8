"""Login, sign-up and reset hold against somebody with a script, who writes into forwarding headers what he likes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import allauth
import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.hashers import MD5PasswordHasher
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from portal import env
from tenants.models import User
from tests.portal.world import PASSWORD, World

WRONG = "not the password"
NEW = "a battery with a staple"


def spoofed(n: int) -> dict[str, str]:
    address = f"10.{n // 250}.0.{n % 250}"
    return {"X-Forwarded-For": f"{address}, {address}", "X-Real-Ip": address, "Forwarded": f"for={address}", "Cf-Connecting-Ip": address}


def log_in(email: str, password: str, n: int = 0) -> Any:
    return Client().post("/accounts/login/", {"login": email, "password": password}, headers=spoofed(n))


def test_guessing_one_persons_password_ends_after_five_tries(world: World) -> None:
    for n in range(5):
        assert "not correct" in log_in("alice@example.org", WRONG, n).content.decode()
    held = log_in("alice@example.org", PASSWORD, 99)
    assert held.status_code == 200
    assert "Too many failed login attempts" in held.content.decode()


def test_trying_one_password_on_many_people_ends_too(world: World) -> None:
    answers = [log_in(f"person{n}@example.org", WRONG, n) for n in range(14)]
    assert "Too many failed login attempts" in answers[-1].content.decode()


def test_signing_up_in_masses_ends(db: None) -> None:
    signs = {"password1": NEW, "password2": NEW}
    answers = [
        Client().post("/accounts/signup/", {"email": f"spam{n}@example.org", **signs}, headers=spoofed(n)).status_code for n in range(21)
    ]
    assert answers[-1] == 429
    assert User.objects.count() == 20


def test_asking_for_resets_in_masses_ends(world: World) -> None:
    answers = [Client().post("/accounts/password/reset/", {"email": "alice@example.org"}, headers=spoofed(n)).status_code for n in range(6)]
    assert answers == [302] * 5 + [429]


def test_behind_our_own_proxy_each_address_has_its_own_limit(world: World, settings) -> None:
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    answers = [log_in(f"person{n}@example.org", WRONG, n) for n in range(14)]
    assert "not correct" in answers[-1].content.decode()


def test_a_reset_says_the_same_whether_there_is_an_account_or_not(world: World) -> None:
    known, unknown = (
        Client().post("/accounts/password/reset/", {"email": email}, follow=True) for email in ("alice@example.org", "nobody@example.org")
    )
    assert known.redirect_chain == unknown.redirect_chain
    assert without_secrets(known) == without_secrets(unknown)


def sign_up(client: Client, email: str) -> Any:
    return client.post("/accounts/signup/", {"email": email, "password1": NEW, "password2": NEW}, follow=True)


def test_a_sign_up_reveals_no_account(world: World, mailoutbox: list) -> None:
    browsers = Client(), Client()
    taken, free = (sign_up(client, email) for client, email in zip(browsers, ("alice@example.org", "dora@example.org"), strict=True))
    assert taken.redirect_chain == free.redirect_chain == [("/accounts/confirm-email/", 302)]
    assert without_secrets(taken).replace("alice", "dora") == without_secrets(free)
    assert browsers[0].cookies.keys() == browsers[1].cookies.keys()
    assert {mail.to[0]: mail.subject for mail in mailoutbox} == {
        "alice@example.org": "MARLaaS: You have an account already",
        "dora@example.org": "MARLaaS: Confirm your address",
    }


class Counted(MD5PasswordHasher):
    """Fast, and counts how often somebody waited for it."""

    made = 0

    def encode(self, password: str, salt: str) -> str:
        Counted.made += 1
        return super().encode(password, salt)


def hashes(act: Callable[[], Any]) -> int:
    before = Counted.made
    act()
    return Counted.made - before


def test_how_long_an_answer_takes_reveals_no_account(world: World, settings: Any) -> None:
    settings.PASSWORD_HASHERS = [f"{__name__}.Counted"]
    world.alice.set_password(PASSWORD)
    world.alice.save()
    log_in("alice@example.org", PASSWORD)
    assert hashes(lambda: log_in("alice@example.org", WRONG)) == hashes(lambda: log_in("nobody@example.org", WRONG)) > 0
    assert hashes(lambda: sign_up(Client(), "alice@example.org")) == hashes(lambda: sign_up(Client(), "dora@example.org")) > 0


def link_in(mail: Any) -> str:
    return mail.body.split("http://testserver")[1].split()[0]


def test_a_confirmation_signs_in_where_one_signed_up(db: None, mailoutbox: list) -> None:
    here = Client()
    here.post("/accounts/signup/?next=/settings/", {"email": "dora@example.org", "password1": NEW, "password2": NEW, "next": "/settings/"})
    link = link_in(mailoutbox[0])
    assert here.get("/").status_code != 200 or "Dora" not in here.get("/").content.decode()
    assert "Yes, confirm it" in here.get(link).content.decode()
    assert here.post(link)["Location"] == "/settings/"
    assert here.get("/jobs/").status_code == 200


def test_a_confirmation_elsewhere_confirms_and_signs_nobody_in(db: None, mailoutbox: list) -> None:
    here, elsewhere = Client(), Client()
    sign_up(here, "dora@example.org")
    link = link_in(mailoutbox[0])
    elsewhere.get(link)
    assert not EmailAddress.objects.get(email="dora@example.org").verified  # looking is not confirming: scanners of mail look
    assert elsewhere.post(link)["Location"] == "/accounts/login/"
    assert EmailAddress.objects.get(email="dora@example.org").verified
    assert [client.get("/jobs/").status_code for client in (here, elsewhere)] == [302, 302]
    elsewhere.post("/accounts/login/", {"login": "dora@example.org", "password": NEW})
    assert elsewhere.get("/jobs/").status_code == 200


def test_a_mail_server_that_is_down_changes_no_answer(world: World, settings: Any) -> None:
    settings.EMAIL_BACKEND, settings.EMAIL_HOST, settings.EMAIL_PORT = "django.core.mail.backends.smtp.EmailBackend", "127.0.0.1", 1
    taken, free = (sign_up(Client(), email) for email in ("alice@example.org", "dora@example.org"))
    assert (taken.redirect_chain, taken.status_code) == (free.redirect_chain, free.status_code)
    assert User.objects.filter(email="dora@example.org").exists()


THEIRS = Path(allauth.__file__).parent / "templates"
OURS = env.ROOT / "templates"
# Ways to sign in that are switched off.
NEVER_SENT = ("login_code", "password_reset_code")


def test_each_mail_about_accounts_is_in_our_own_words() -> None:
    names = [path.relative_to(THEIRS) for kind in ("account", "mfa") for path in (THEIRS / kind / "email").glob("*.txt")]
    assert [str(name) for name in names if not name.name.startswith(NEVER_SENT) and not (OURS / name).is_file()] == []
    assert len(names) > 30


def test_a_changed_password_is_told_by_mail(world: World, mailoutbox: list) -> None:
    here = browser("alice@example.org")
    here.post("/accounts/password/change/", {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW})
    assert [(mail.to, mail.subject) for mail in mailoutbox] == [(["alice@example.org"], "MARLaaS: Your password was changed")]
    assert "127.0.0.1" in mailoutbox[0].body
    assert NEW not in mailoutbox[0].body


def without_secrets(answer: Any) -> str:
    import re

    return re.sub(r'(nonce|value|content)="[^"]*"', "", answer.content.decode())


def test_unconfirmed_addresses_do_not_log_in(world: World) -> None:
    assert log_in("bob@example.org", PASSWORD)["Location"] == "/"
    EmailAddress.objects.filter(user=world.alice).update(verified=False)
    assert log_in("alice@example.org", PASSWORD)["Location"] == "/accounts/confirm-email/"


def browser(email: str) -> Client:
    client = Client()
    client.post("/accounts/login/", {"login": email, "password": PASSWORD})
    assert client.get("/").status_code == 200
    return client


def test_changing_the_password_ends_every_other_session(world: World) -> None:
    here, elsewhere = browser("alice@example.org"), browser("alice@example.org")
    changed = here.post("/accounts/password/change/", {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW})
    assert changed.status_code == 302
    assert (here.get("/").status_code, elsewhere.get("/").status_code) == (200, 302)
    assert elsewhere.get("/api/v1/me/").status_code == 401


def test_a_reset_password_ends_every_session(world: World, mailoutbox: list) -> None:
    elsewhere = browser("alice@example.org")
    anybody = Client()
    anybody.post("/accounts/password/reset/", {"email": "alice@example.org"})
    link = link_in(mailoutbox[0])
    form = anybody.get(link, follow=True).redirect_chain[-1][0]
    anybody.post(form, {"password1": NEW, "password2": NEW})
    assert elsewhere.get("/").status_code == 302
    assert log_in("alice@example.org", NEW)["Location"] == "/"


def account_pages() -> list[str]:
    """allauth's addresses without parameters."""

    def walk(patterns: list[Any], prefix: str) -> Any:
        for entry in patterns:
            route = prefix + str(entry.pattern)
            if isinstance(entry, URLResolver):
                yield from walk(entry.url_patterns, route)
            elif isinstance(entry, URLPattern) and "<" not in route and "(?P" not in route:
                yield "/" + route.replace("^", "").replace("$", "").replace("\\Z", "")

    return sorted(path for path in walk(get_resolver().url_patterns, "") if path.startswith("/accounts/") and path != "/accounts/")


@pytest.mark.parametrize("path", account_pages())
@pytest.mark.parametrize("who", ["alice", "nobody"])
def test_each_account_page_is_in_our_design_and_under_our_policy(world: World, path: str, who: str) -> None:
    client = browser("alice@example.org") if who == "alice" else Client()
    answer = client.get(path, follow=True)
    # 403: a code by mail proves nobody who has a password.
    assert answer.status_code in (200, 403, 404, 405)
    if answer.status_code != 200 or "text/html" not in answer["Content-Type"]:
        return
    html = answer.content.decode()
    assert "css/tokens.css" in html
    assert "'unsafe-inline'" not in answer["Content-Security-Policy"]
    scripts = html.split("<script")[1:]
    assert all('type="application/json"' in tag or "src=" in tag.split(">")[0] for tag in scripts)
    assert not any(word in html for word in (" style=", "<style", " onclick=", "javascript:"))
