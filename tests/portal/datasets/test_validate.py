from __future__ import annotations

import io
import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from portal.datasets import validate as checks
from portal.datasets.validate import validate
from tests.portal.world import jsonl

GOOD = {"prompt": "1+1=", "answer": "2"}


def report(*rows, max_bytes: int = 1 << 24) -> dict:
    return validate(jsonl(*rows), max_bytes=max_bytes).report


def first_error(*rows) -> dict:
    found = report(*rows)
    assert found["error_total"] >= 1, found
    return found["errors"][0]


BAD_LINES = [
    ('{"prompt": "x"', None, "broken JSON"),
    ('{"prompt": "x"} {"prompt": "y"}', None, "broken JSON"),
    ("{'prompt': 'x'}", None, "broken JSON"),
    ('{"prompt": "x", "a": NaN}', None, "broken JSON"),
    ('{"prompt": "x", "a": 1e999}', None, "broken JSON"),
    ('{"prompt": "\\ud800"}', None, "broken JSON"),
    (b'{"prompt": "\xff"}', None, "not UTF-8: byte 0xff at position 13"),
    (b'{"prompt": "a\x00b"}', None, "NUL byte at position 14"),
    ('{"prompt": "a\\u0000b"}', "prompt", "NUL character"),
    ('["prompt"]', None, "a list, not an object"),
    ('"prompt"', None, "text, not an object"),
    ("null", None, "null, not an object"),
    ('{"question": "x", "answer": "y"}', None, "columns are question, answer"),
    ("{}", None, "columns are none"),
    ('{"prompt": ""}', "prompt", "empty"),
    ('{"prompt": " \\n "}', "prompt", "empty"),
    ('{"prompt": 7}', "prompt", "must be text, got a number"),
    ('{"prompt": null}', "prompt", "got null"),
    ('{"prompt": "x", "prompt": "y"}', "prompt", "twice"),
    ('{"prompt": "x", "deep": {"k": 1, "k": 2}}', "k", "twice"),
    ('{"prompt" :"x","prompt":"y"}', "prompt", "twice"),
    ('{"prompt"\t:"x","prompt":"y \\": z"}', "prompt", "twice"),
    ('{"prompt": "x", "a\\u0000b": 1}', "a\ufffdb", "NUL character"),
    ('{"prompt": "x", "messages": []}', "prompt", "both"),
    ('{"messages": []}', "messages", "at least one"),
    ('{"messages": "x"}', "messages", "list"),
    ('{"messages": ["x"]}', "messages", "messages[0] is text"),
    ('{"messages": [{"role": "robot", "content": "x"}]}', "messages", "'robot'"),
    ('{"messages": [{"content": "x"}]}', "messages", "role"),
    ('{"messages": [{"role": "user", "content": ["x"]}]}', "messages", "content must be text"),
    ('{"messages": [{"role": "user", "content": ""}]}', "messages", "messages[0].content is empty"),
    ('{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}', "messages", "assistant"),
    ('{"prompt": "x", "deep": ' + "[" * 40 + "]" * 40 + "}", None, "nested"),
    ('{"prompt": "x", "deep": ' + "[" * 100_000 + "]" * 100_000 + "}", None, "nested"),
    ('{"prompt": "x", "' + "k" * 200 + '": 1}', "k" * 40, "200 characters"),
    ('{"prompt": "' + "x" * (1 << 20) + '"}', None, "longer than"),
]


@pytest.mark.parametrize(("line", "column", "message"), BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_bad_line_is_named_with_column_and_advice(line, column: str | None, message: str) -> None:
    error = first_error(GOOD, GOOD | {"prompt": "2"}, line, GOOD | {"prompt": "3"})
    assert (error["line"], error["column"]) == (3, column)
    assert message in error["message"]
    assert error["fix"]


GOOD_LINES = [
    '{"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "x"}]}',
    '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}, {"role": "tool", "content": "y"}]}',
    '{"prompt": "\\u00e9\\ud83d\\ude00 \\"quoted\\": yes"}',
    '{"prompt": "{{{{[[[[{{{{[[[[{{{{[[[[{{{{[[[[{{{{[[[[{{{{[[[["}',
    '{"prompt": "a \\\\u0000 written out"}',
    '{"prompt": "x", "item": {"prompt": 1, "deep": [{"prompt": 2}]}}',
    '  {"prompt": "x"}  \r',
]


@pytest.mark.parametrize("line", GOOD_LINES, ids=range(len(GOOD_LINES)))
def test_odd_but_right_lines_pass(line: str) -> None:
    assert report(line)["errors"] == []


def test_the_first_hundred_faults_are_listed_and_all_are_counted() -> None:
    found = report(*["x"] * 250)
    assert (len(found["errors"]), found["error_total"], found["rows"]) == (100, 250, 250)


def test_blank_lines_count_for_numbering_only() -> None:
    assert first_error(GOOD, "", "   ", "x")["line"] == 4
    assert report(GOOD, "", "")["rows"] == 1


@pytest.mark.parametrize("content", [b"", b"\n\n \n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(content: bytes) -> None:
    assert validate(io.BytesIO(content), max_bytes=100).report["errors"][0]["message"] == "the file has no rows"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (json.dumps(GOOD).encode("utf-16"), "UTF-16"),
        (json.dumps(GOOD).encode("utf-32"), "UTF-32"),
        (b"PK\x03\x04" + b"x" * 50, "zip"),
        (b"\x1f\x8b\x08" + b"\x00" * 50, "gzip"),
        (b"PAR1" + b"\x00" * 50, "Parquet"),
    ],
)
def test_a_file_of_another_kind_is_named(content: bytes, word: str) -> None:
    found = validate(io.BytesIO(content), max_bytes=1000).report
    assert (found["error_total"], word in found["errors"][0]["message"]) == (1, True)


def test_a_byte_order_mark_is_no_fault() -> None:
    assert validate(io.BytesIO(b"\xef\xbb\xbf" + json.dumps(GOOD).encode()), max_bytes=1000).report["error_total"] == 0


def test_a_last_line_without_its_end_counts() -> None:
    assert validate(io.BytesIO(b'{"prompt": "a"}\n{"prompt": "b"}'), max_bytes=1000).rows == 2


def test_a_file_over_the_limit_is_refused_before_it_is_read() -> None:
    found = report(*[GOOD] * 100, max_bytes=1000)
    assert "larger than 1,000 bytes" in found["errors"][0]["message"]
    assert found["rows"] == 0


def test_a_line_without_end_is_not_held_in_memory() -> None:
    class Watched(io.BytesIO):
        largest = 0

        def readline(self, size: int | None = -1) -> bytes:
            self.largest = max(self.largest, size)
            return super().readline(size)

    file = Watched(b"x" * (5 << 20))
    assert "longer than" in validate(file, max_bytes=1 << 30).report["errors"][0]["message"]
    assert 0 < file.largest <= checks.MAX_LINE_BYTES + 1


def test_columns_are_those_that_every_row_has() -> None:
    found = report(GOOD, {"prompt": "2", "answer": "x", "extra": 1})
    assert found["columns"] == ["prompt", "answer"]
    assert found["warnings"][0]["column"] == "extra"


def test_different_columns_in_every_row_end_the_check() -> None:
    found = report(*({"prompt": str(n), f"column{n}": 1} for n in range(1000)))
    assert found["rows"] < 300
    assert "different columns" in found["errors"][-1]["message"]


def test_repeated_prompts_are_warned_of_with_their_lines() -> None:
    found = report(GOOD, {"prompt": "other"}, GOOD, {**GOOD, "answer": "3"})
    assert found["error_total"] == 0
    assert [(w["line"], "line 1" in w["message"]) for w in found["warnings"] if w["column"] is None] == [(3, True), (4, True)]


def test_a_prompt_equals_the_same_prompt_as_a_message() -> None:
    assert report({"prompt": "x"}, {"messages": [{"role": "user", "content": "x"}]})["warning_total"] == 1


def run_command(path: Path, *words: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("validate_dataset", str(path), *words, stdout=out)
    except SystemExit as ended:
        return ended.code, out.getvalue()
    return 0, out.getvalue()


def test_the_command_prints_the_report_and_fails_on_a_bad_file(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "x"}\n{"prompt": ""}\n')
    code, out = run_command(bad, "--json")
    assert (code, json.loads(out)["errors"][0]["line"]) == (1, 2)


def test_the_command_passes_a_good_file(tmp_path: Path) -> None:
    good = tmp_path / "good.jsonl"
    good.write_text(json.dumps(GOOD))
    assert run_command(good) == (0, "1 rows, 0 errors, 0 warnings\n")
