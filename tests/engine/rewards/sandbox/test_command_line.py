"""``python -m engine.rewards run`` as a person calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.rewards.__main__ import BadItems, _item, _words, main
from engine.rewards.sandbox import Failed, Graded, NotApplicable, bubblewrap
from engine.rewards.sandbox.client import _Runner
from engine.rewards.sandbox.strength import open_nursery

ROOT = Path(__file__).resolve().parents[4]
SOURCE = """
def grade(sample, item):
    if item["answer"] == "raise":
        raise ValueError("no\u2028line")
    if item["answer"] == "none":
        return None
    return {"right": sample["output_text"] == item["answer"], "short": 0.5}
"""


@pytest.mark.engine
def test_one_result_is_printed_for_each_item_in_order(tmp_path):
    answers = ["4\u2028", "raise", "none"]
    rows = [{"sample": {"output_text": "4\u2028"}, "item": {"answer": answer}} for answer in answers]
    (tmp_path / "reward.py").write_text(SOURCE)
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    words = ["--source", str(tmp_path / "reward.py"), "--items", str(tmp_path / "items.jsonl"), "--tier", "plain", "--json"]
    done = subprocess.run([sys.executable, "-m", "engine.rewards", "run", *words], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "tier plain" in done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"reward": 1.5, "components": {"right": 1.0, "short": 0.5}},
        {"error": {"kind": "exception", "message": "ValueError: no\ufffdline", "line": 4}},
        {"reward": None},
    ]


@pytest.mark.engine
def test_a_tier_that_cannot_be_had_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bubblewrap, "program", lambda: None)
    monkeypatch.setattr(_Runner, "start", _refused)
    (tmp_path / "reward.py").write_text(SOURCE)
    (tmp_path / "items.jsonl").write_text("{}\n")
    words = ["run", "--source", str(tmp_path / "reward.py"), "--items", str(tmp_path / "items.jsonl"), "--tier", "bwrap"]
    assert main(words) == 3
    assert "bubblewrap is not installed" in capsys.readouterr().err


async def _refused(settings, launch):
    """What a runner says where bubblewrap is not installed, said by this process."""
    await open_nursery(settings)


def test_a_row_without_sample_and_item_is_the_item():
    assert _item('{"answer": 4, "completion": "x"}', 1) == {
        "sample": {"output_text": "x"},
        "item": {"answer": 4, "completion": "x"},
    }


@pytest.mark.parametrize("line", ["{", "[]", '{"sample": 1}', "[" * 100_000])
def test_a_line_that_is_no_item_is_named(line):
    with pytest.raises(BadItems, match="line 7"):
        _item(line, 7)


def test_a_verdict_in_words():
    assert _words(Graded(reward=1.5, components={"a": 0.5})) == "1.5  a=0.5"
    assert _words(Failed(kind="exception", message="ValueError: no", line=3)) == "exception in line 3: ValueError: no"
    assert _words(NotApplicable()) == "does not apply"
