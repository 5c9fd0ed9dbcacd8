from __future__ import annotations

import pickle

from engine.errors import Conflict, Invalid


def test_a_refusal_survives_the_way_between_processes():
    error = pickle.loads(pickle.dumps(Invalid.of([("spec.seed", "too large"), ("spec.lora.rank", "too wide")])))
    assert isinstance(error, Invalid)
    assert error.body()["error"]["problems"] == [
        {"field": "spec.seed", "message": "too large"},
        {"field": "spec.lora.rank", "message": "too wide"},
    ]


def test_a_refusal_says_who_is_meant_and_why():
    body = Conflict("job a has ended", code="job_ended", param="job").body()["error"]
    assert body == {"message": "job a has ended", "type": "conflict", "param": "job", "code": "job_ended", "problems": []}
