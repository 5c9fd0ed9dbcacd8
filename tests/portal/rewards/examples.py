"""One good reward of every kind, as a program sends it and as the form's fields hold it."""

from __future__ import annotations

from typing import Any

SOURCE = "def grade(sample, item):\n    return 1.0\n"
MESSAGES = [{"role": "user", "content": "Grade {{sample.output_text}}"}]
SECRET = "not for anybody else's eyes"

GRADERS: dict[str, dict[str, Any]] = {
    "numeric": {"absolute_tolerance": 0.5},
    "string_check": {"operation": "ilike", "strip": False},
    "math": {"reference": "{{item.solution}}"},
    "text_similarity": {"evaluation_metric": "rouge_l"},
    "json_schema": {"json_schema": {"type": "object", "required": ["a"]}},
    "python": {"source": SOURCE, "range": [-1.0, 2.0]},
    "code_exec": {"tests": "assert f(1) == 2", "partial": True, "seconds": 3.0},
    "score_model": {"model": "strict", "input": MESSAGES, "range": [0.0, 10.0]},
    "label_model": {"model": "strict", "input": MESSAGES, "labels": ["good", "bad"], "passing_labels": ["good"]},
    "http": {"url": "https://grader.example.com/", "signing_secret": SECRET, "seconds": 2.0},
    "multi": {"graders": {"exact": {"type": "string_check"}}, "calculate_output": "0.5 * exact"},
}

FIELDS: dict[str, dict[str, Any]] = {
    "numeric": {"absolute_tolerance": "0.5"},
    "string_check": {"operation": "ilike"},
    "math": {"reference": "{{item.solution}}"},
    "text_similarity": {"evaluation_metric": "rouge_l"},
    "json_schema": {"json_schema": '{"type": "object", "required": ["a"]}'},
    "python": {"source": SOURCE.replace("\n", "\r\n"), "range_low": "-1", "range_high": "2"},
    "code_exec": {"tests": "assert f(1) == 2", "partial": "on", "seconds": "3"},
    "score_model": {"model": "strict", "prompt": "Grade {{sample.output_text}}", "range_high": "10"},
    "label_model": {"model": "strict", "prompt": "Grade {{sample.output_text}}", "labels": "good\r\nbad", "passing_labels": "good"},
    "http": {"url": "https://grader.example.com/", "signing_secret": SECRET, "seconds": "2"},
    "multi": {"calculate_output": "0.5 * exact"},
}


def grader(type: str, **changes: Any) -> dict[str, Any]:
    return {"type": type, **GRADERS[type], **changes}
