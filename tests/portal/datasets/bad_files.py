"""Forty bad files of different kinds, made here: each with the line at fault, the cause, and the field where there is one.

Small versions; what must be large to be bad is made by the tests that need it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GOOD = {"prompt": "1+1=", "answer": "2"}


@dataclass(frozen=True, kw_only=True)
class BadFile:
    """``line`` None: the fault is the whole file's."""

    name: str
    content: bytes
    line: int | None
    cause: str
    column: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


def rows(*given: Any, good: int = 2, end: bytes = b"\n") -> bytes:
    """``good`` good rows, then ``given``: text and bytes as they stand, the rest as JSON."""
    lines = [*({**GOOD, "prompt": f"{n}+1="} for n in range(good)), *given, {"prompt": "last", "answer": "x"}]
    return end.join(line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode() for line in lines)


def table(*lines: str, header: str = "prompt,answer", end: str = "\r\n", encoding: str = "utf-8") -> bytes:
    return end.join([header, "1+1=,2", *lines, "last,x", ""]).encode(encoding)


def parquet(folder: Path, columns: dict[str, list[Any]], **options: Any) -> bytes:
    import pyarrow
    import pyarrow.parquet

    path = folder / "made.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)
    return path.read_bytes()


def all_of(folder: Path) -> list[BadFile]:
    return [*json_lines(), *csv_files(), *other_formats(), *parquet_files(folder)]


def json_lines() -> list[BadFile]:
    def bad(name: str, line: Any, cause: str, column: str | None = None) -> BadFile:
        return BadFile(name=f"{name}.jsonl", content=rows(line), line=3, cause=cause, column=column)

    return [
        bad("cut off in the middle", '{"prompt": "x", "answ', "broken_json"),
        bad("two objects on a line", '{"prompt": "x"} {"prompt": "y"}', "broken_json"),
        bad("written by python", "{'prompt': 'x'}", "broken_json"),
        bad("with a trailing comma", '{"prompt": "x",}', "broken_json"),
        bad("with NaN", '{"prompt": "x", "score": NaN}', "broken_json"),
        bad("with a lone surrogate", '{"prompt": "\\ud800"}', "broken_json"),
        bad("with a comment", "// the next row is hard", "broken_json"),
        bad("one line in Windows-1252", '{"prompt": "café"}'.encode("cp1252"), "encoding"),
        bad("with a NUL byte", b'{"prompt": "a\x00b"}', "nul"),
        bad("with a written NUL", '{"prompt": "a\\u0000b"}', "nul", "prompt"),
        bad("with a list for a row", '["prompt", "x"]', "not_an_object"),
        bad("with a number for a row", "42", "not_an_object"),
        bad("deeply nested", '{"prompt": "x", "deep": ' + "[" * 5000 + "]" * 5000 + "}", "too_deep"),
        bad("nested and never closed", '{"prompt": "x", "deep": ' + '{"a":' * 5000, "too_deep"),
        bad("with a giant list", {"prompt": "x", "ids": list(range(10_001))}, "giant_list", "ids"),
        bad("with a repeated key", '{"prompt": "x", "prompt": "y"}', "duplicate_key", "prompt"),
        bad("with a giant line", {"prompt": "x" * (1 << 20)}, "long_line"),
        bad("without a prompt", {"answer": "2"}, "no_prompt"),
        bad("with both prompts", {"prompt": "x", "messages": []}, "two_prompts", "prompt"),
        bad("with an empty prompt", {"prompt": " \n", "answer": "2"}, "empty_prompt", "prompt"),
        bad("with a number for a prompt", {"prompt": 7}, "wrong_type", "prompt"),
        bad("with null for a prompt", {"prompt": None}, "wrong_type", "prompt"),
        bad("with a role nobody knows", {"messages": [{"role": "robot", "content": "x"}]}, "wrong_role", "messages"),
        bad("with an image", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "wrong_type", "messages"),
        bad("with a column name too long", {"prompt": "x", "k" * 200: 1}, "long_name", "k" * 40),
        BadFile(name="one document over lines.json", content=b'{\n"prompt": "x"\n}', line=1, cause="broken_json"),
        BadFile(name="one array.json", content=json.dumps([GOOD, GOOD]).encode(), line=1, cause="not_an_object"),
        BadFile(name="nothing.jsonl", content=b"", line=None, cause="empty"),
        BadFile(name="blank lines only.jsonl", content=b"\r\n \n\n", line=None, cause="empty"),
    ]


def csv_files() -> list[BadFile]:
    return [
        BadFile(name="too few cells.csv", content=table("alone"), line=3, cause="ragged"),
        BadFile(name="too many cells.csv", content=table("a,b,c"), line=3, cause="ragged"),
        BadFile(name="a quote never closed.csv", content=table('"open,2', "more,3"), line=3, cause="unclosed_quote"),
        BadFile(name="text after a quote.csv", content=table('"x"y,2'), line=3, cause="quotes"),
        BadFile(name="after a cell of three lines.csv", content=table('"a\r\nb\r\nc",2', "alone"), line=6, cause="ragged"),
        BadFile(name="the same column twice.csv", content=table(header="prompt,prompt"), line=1, cause="duplicate_column", column="prompt"),
        BadFile(name="a column without name.csv", content=table(header="prompt,"), line=1, cause="header"),
        BadFile(name="no prompt.csv", content=table(header="colour,shape"), line=1, cause="no_prompt"),
        BadFile(name="an empty prompt.csv", content=table(",2"), line=3, cause="empty_prompt", column="prompt"),
        BadFile(name="a NUL.csv", content=table("a\x00b,2"), line=3, cause="nul"),
        BadFile(name="neither UTF-8 nor Windows.csv", content=table("\x81é,2", encoding="latin-1"), line=3, cause="encoding"),
        BadFile(name="old Mac line ends.csv", content=table(end="\r"), line=1, cause="line_ends"),
        BadFile(name="header only.csv", content=b"prompt,answer\r\n", line=None, cause="empty"),
        BadFile(name="a giant cell.csv", content=table("x" * (1 << 20) + ",2"), line=3, cause="long_line"),
    ]


def other_formats() -> list[BadFile]:
    text = json.dumps(GOOD)
    return [
        BadFile(name="utf-16.jsonl", content=text.encode("utf-16"), line=1, cause="encoding"),
        BadFile(name="utf-16 without a mark.jsonl", content=text.encode("utf-16-le"), line=1, cause="encoding"),
        BadFile(name="utf-32.jsonl", content=text.encode("utf-32"), line=1, cause="encoding"),
        BadFile(name="utf-16.csv", content=table(encoding="utf-16"), line=1, cause="encoding"),
        BadFile(name="workbook.xlsx", content=b"PK\x03\x04" + b"x" * 50, line=None, cause="wrong_format"),
        BadFile(name="packed.jsonl.gz", content=b"\x1f\x8b\x08" + b"\x00" * 50, line=None, cause="wrong_format"),
        BadFile(name="a picture.jsonl", content=b"\x89PNG\r\n" + b"\x00" * 50, line=None, cause="wrong_format"),
    ]


def parquet_files(folder: Path) -> list[BadFile]:
    whole = parquet(folder, {"prompt": ["a", "b", "c"]})
    middle = len(whole) // 3
    damaged = whole[:8] + bytes(byte ^ 0x5A for byte in whole[8:middle]) + whole[middle:]
    return [
        BadFile(name="cut off.parquet", content=whole[:-20], line=None, cause="truncated"),
        BadFile(name="damaged.parquet", content=damaged, line=None, cause="broken_parquet"),
        BadFile(
            name="empty prompt.parquet", content=parquet(folder, {"prompt": ["a", "", "c"]}), line=2, cause="empty_prompt", column="prompt"
        ),
        BadFile(
            name="null prompt.parquet", content=parquet(folder, {"prompt": ["a", "b", None]}), line=3, cause="wrong_type", column="prompt"
        ),
        BadFile(name="no prompt.parquet", content=parquet(folder, {"colour": ["a"]}), line=None, cause="no_prompt"),
        BadFile(name="no rows.parquet", content=parquet(folder, {"prompt": []}), line=None, cause="empty"),
    ]
