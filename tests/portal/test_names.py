"""Names that people give to things, in their own script."""

from __future__ import annotations

import pytest

from portal.names import clean_name, file_name


@pytest.mark.parametrize("name", ["Sums", "Наши суммы", "می\u200cخواهم", "👨\u200d👩\u200d👧 family", "<b>bold</b>"])
def test_a_name_in_any_script_is_kept(name: str) -> None:
    assert clean_name(name) == (name, [])


@pytest.mark.parametrize("name", ["a\x00b", "a\u202eb", "\u200b", 7])
def test_what_cannot_be_shown_is_refused(name: object) -> None:
    assert clean_name(name)[1]


def test_white_space_is_squeezed() -> None:
    assert clean_name("  a \n b ") == ("a b", [])


def test_a_files_name_is_as_its_owner_wrote_it() -> None:
    assert file_name("%22sums%22 50%.jsonl") == '"sums" 50%.jsonl'
    assert file_name("two%0D%0Alines.csv") == "two  lines.csv"
