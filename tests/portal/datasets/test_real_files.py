"""Files that people really have go through with the mapping that is proposed."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from portal.datasets import mapping
from portal.datasets.validate import Checked, Options, validate
from tests.portal.datasets.bad_files import parquet
from tests.portal.world import jsonl


def check(file: io.BytesIO | bytes, filename: str = "rows.jsonl", **options: Any) -> Checked:
    file = io.BytesIO(file) if isinstance(file, bytes) else file
    return validate(file, max_bytes=1 << 30, options=Options(filename=filename, **options))


def first_row(checked: Checked) -> tuple[list[dict[str, str]], dict[str, Any]]:
    _, record = next(iter(checked.source.records()))
    row = checked.read(record)
    return row.messages, row.item


GSM8K = [
    {"question": "Ada reads 12 pages a day. How many in a week?", "answer": "12*7 = <<12*7=84>>84 pages.\n#### 84"},
    {"question": "A boat costs 1,250 a day. What do two days cost?", "answer": "2*1250=2500.\n#### $2,500"},
    {"question": "It is 3 degrees and falls by 7. What is it then?", "answer": "3-7=-4\n#### -4"},
]


def test_gsm8k_rows_give_the_number_after_the_mark() -> None:
    checked = check(jsonl(*GSM8K))
    answers = [checked.read(record).item["answer"] for _, record in checked.source.records()]
    assert (checked.report["error_total"], checked.proposal.kind, answers) == (0, "gsm8k", ["84", "2500", "-4"])
    assert first_row(checked)[1]["solution"] == GSM8K[0]["answer"]


def test_openai_reinforcement_rows() -> None:
    row = {
        "messages": [{"role": "developer", "content": "Answer with a date."}, {"role": "user", "content": "When?"}],
        "reference_answer": "1969-07-20",
        "tools": [],
    }
    messages, item = first_row(check(jsonl(row)))
    assert [turn["role"] for turn in messages] == ["system", "user"]
    assert (item["answer"], item["reference_answer"]) == ("1969-07-20", "1969-07-20")


def test_hotpotqa_rows() -> None:
    context = {"title": ["Oslo"], "sentences": [["Oslo is a town.", "It is in Norway."]]}
    row = {"id": "5a", "question": "In which country is Oslo?", "answer": "Norway", "type": "bridge", "level": "easy"}
    row |= {"supporting_facts": {"title": ["Oslo"], "sent_id": [1]}, "context": context}
    checked = check(jsonl(row))
    assert (checked.proposal.kind, first_row(checked)[1]["answer"]) == ("hotpotqa", "Norway")


def test_problems_with_boxed_solutions() -> None:
    row = {"problem": "Half of one?", "level": "Level 1", "solution": r"It is \boxed{x} no, $\boxed{\frac{1}{2}}$."}
    checked = check(jsonl(row))
    assert (checked.proposal.kind, first_row(checked)[1]["answer"]) == ("problem_solution", r"\frac{1}{2}")


@pytest.mark.parametrize(
    ("row", "kind", "answer"),
    [
        ({"problem": "p", "solution": r"\boxed{3}", "answer": "3"}, "problem_answer", "3"),
        ({"instruction": "i", "input": "x", "output": "o"}, "instruction", "o"),
        ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}, "answered_chat", "a"),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, "answered_chat", "a"),
        ({"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "7"}}, "chat_prompt", "7"),
        ({"prompt": "q", "completion": "c"}, "question_answer", "c"),
        ({"prompt": "q", "answer": "a"}, "plain", "a"),
        ({"question": "q", "answers": ["a", "b"]}, "question_answer", ["a", "b"]),
    ],
)
def test_other_shapes_are_recognised(row: dict[str, Any], kind: str, answer: Any) -> None:
    checked = check(jsonl(row, row))
    assert (checked.errors.total, checked.proposal.kind, first_row(checked)[1]["answer"]) == (0, kind, answer)


def test_a_spreadsheets_csv_with_mark_quotes_and_windows_line_ends() -> None:
    content = '\ufeffquestion,answer\r\n"He said ""two, please"".\r\nHow many?",2\r\n"Und Käse?",0\r\n,\r\n'.encode()
    checked = check(content, "export.csv")
    assert (checked.rows, checked.errors.total, checked.columns) == (2, 0, ["question", "answer"])
    assert first_row(checked)[0][0]["content"] == 'He said "two, please".\r\nHow many?'


def test_a_european_spreadsheet_in_windows_1252_is_read_and_says_so() -> None:
    content = "sep=;\r\nquestion;answer\r\nWas kostet Käse – 5 €?;5 €\r\n".encode("cp1252")
    checked = check(content, "export.csv")
    assert (checked.errors.total, checked.source.encoding) == (0, "windows-1252")
    assert checked.warnings.listed[0]["line"] == 3
    assert first_row(checked)[1]["answer"] == "5 €"


@pytest.mark.parametrize("encoding", ["windows-1252", "utf-16"])
def test_an_encoding_that_is_named_is_used(encoding: str) -> None:
    content = '{"prompt": "Käse?", "answer": "ja"}\n'.encode(encoding)
    assert first_row(check(content, encoding=encoding))[0][0]["content"] == "Käse?"


def test_a_csv_may_carry_chats_as_json() -> None:
    chat = json.dumps([{"role": "user", "content": "a,b"}]).replace('"', '""')
    messages, _ = first_row(check(f'messages,answer\n"{chat}",c\n'.encode(), "chats.csv"))
    assert messages == [{"role": "user", "content": "a,b"}]


def test_parquet_with_nested_columns(tmp_path: Any) -> None:
    chats = [[{"role": "user", "content": f"{n}?"}] for n in range(3)]
    checked = check(parquet(tmp_path, {"messages": chats, "answer": [1, 2, 3], "image": [b"x"] * 3}), "rows.parquet")
    assert (checked.errors.total, checked.rows, checked.columns) == (0, 3, ["messages", "answer"])
    assert first_row(checked)[1]["answer"] == 1


def test_a_mapping_can_be_changed() -> None:
    chosen = mapping.parse({"prompt": "answer", "answer": "question", "system": "Ask back."})
    messages, item = first_row(check(jsonl(*GSM8K), mapping=chosen))
    assert messages[0] == {"role": "system", "content": "Ask back."}
    assert item["answer"] == GSM8K[0]["question"]


def test_a_row_that_lacks_what_the_mapping_names_is_told() -> None:
    checked = check(jsonl(*GSM8K, {"question": "No answer?"}, {"question": "No mark?", "answer": "12"}))
    assert [(fault["line"], fault["cause"]) for fault in checked.errors.listed] == [(4, "no_answer"), (5, "no_answer")] or checked.rows == 5


@pytest.mark.parametrize(
    "raw",
    [[], {"colour": "x"}, {"prompt": 7}, {"prompt": "a", "messages": "b"}, {"extract": "regex"}, {"prompt": "a", "answer_turn": True}],
)
def test_a_mapping_that_cannot_be_is_refused(raw: Any) -> None:
    with pytest.raises(mapping.BadMapping):
        mapping.parse(raw)
