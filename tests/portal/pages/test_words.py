"""Small words of the templates."""

from __future__ import annotations

import pytest
from django.test import Client

from portal.pages.templatetags.ui import size


@pytest.mark.parametrize(
    ("amount", "words"), [(None, "–"), (0, "0 B"), (999, "999 B"), (1440, "1.4 kB"), (512_000_000, "512 MB"), (4 << 30, "4.3 GB")]
)
def test_bytes_are_told_in_the_units_of_the_scripts(amount: int | None, words: str) -> None:
    assert size(amount) == words


@pytest.mark.parametrize("path", ["/accounts/login/", "/accounts/signup/", "/accounts/password/reset/"])
def test_account_pages_name_their_fields_in_our_words(db: None, path: str) -> None:
    page = Client().get(path).content.decode()
    assert ">Email address</label>" in page
    for theirs in ("Remember Me", "E-mail", "(again)", ">Email</label>"):
        assert theirs not in page
