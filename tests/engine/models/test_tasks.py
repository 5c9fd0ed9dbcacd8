from __future__ import annotations

import json

import pytest

from engine.models.tasks import TASKS, TINY_TASKS, TooFewPrompts, main, rows, split_of

CHECK = {
    "add": lambda text: str(sum(map(int, text.split("+")))),
    "subtract": lambda text: str(int(text.split("-")[0]) - int(text.split("-")[1])),
    "max": lambda text: max(text.removeprefix("max ").split(), key=int),
    "reverse": lambda text: text.removeprefix("reverse ")[::-1],
}


def question(row: dict) -> str:
    return row["prompt"] if "prompt" in row else row["messages"][-1]["content"]


@pytest.mark.parametrize("task", TINY_TASKS)
def test_every_answer_is_right(task):
    for row in rows(task, count=300, seed=1):
        assert CHECK[task](row["prompt"].removesuffix("=")) == row["answer"], row


@pytest.mark.parametrize("task", sorted(TASKS))
def test_training_and_held_out_prompts_are_disjoint_whatever_the_seeds(task):
    train = {question(row) for row in rows(task, count=400, seed=1)}
    held_out = {question(row) for row in rows(task, count=400, seed=2, split="eval")}
    assert len(train) == len(held_out) == 400
    assert not train & held_out


@pytest.mark.parametrize("task", sorted(TASKS))
def test_a_seed_gives_the_same_rows_and_another_gives_others(task):
    assert rows(task, count=50, seed=1) == rows(task, count=50, seed=1) != rows(task, count=50, seed=2)


def test_about_a_fifth_of_the_prompts_is_held_out():
    held_out = sum(split_of(f"{a}+{b}=") == "eval" for a in range(100) for b in range(100))
    assert 0.17 < held_out / 10_000 < 0.23


def test_word_problems_show_solved_ones_first_and_have_whole_answers():
    for row in rows("words", count=300, seed=1):
        assert int(row["answer"]) >= 0
        assert [message["role"] for message in row["messages"]] == ["user", "assistant"] * 3 + ["user"]
        assert question(row).endswith("?")
        assert "{" not in question(row)


def test_a_task_that_runs_out_of_prompts_says_so():
    with pytest.raises(TooFewPrompts, match="subtract has only about"):
        rows("subtract", count=6000, seed=1)


def test_the_command_writes_one_row_a_line(capsys):
    assert main(["add", "--rows", "3", "--seed", "5"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == rows("add", count=3, seed=5)
