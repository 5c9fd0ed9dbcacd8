"""Probes of the fake engine: nothing is sampled; each look finds a quarter more done, and then a forecast of made-up completions."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx

from engine.probe_forecast import RowProbe, Took, forecast
from engine.probe_pace import StepPace
from engine.probe_spec import ProbeOrder
from engine.spec import SpecError, parse_as


class FakeProbes:
    """``known``: by id, what a look would answer. ``objection``: (status, message) that every new one is answered with."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.orders: dict[str, ProbeOrder] = {}
        self.objection: tuple[int, str] | None = None

    def begin(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        name = body.pop("probe")
        try:
            order = parse_as(ProbeOrder, body)
        except SpecError as error:
            return _refused(422, str(error), error.problems)
        if self.objection:
            return _refused(*self.objection)
        if self.orders.setdefault(name, order) != order:
            return _refused(409, "another body")
        fresh = {"probe": name, "state": "running", "done": 0, "total": order.completions, "error": None, "result": None, "used": {}}
        return httpx.Response(202, json=self.known.setdefault(name, fresh))

    def look(self, request: httpx.Request, name: str) -> httpx.Response:
        if name not in self.known:
            return _refused(404, "no such probe")
        found = self.known[name]
        if found["state"] == "running":
            found["done"] = done = min(found["total"], found["done"] + max(1, found["total"] // 4))
            counts = {"prompt_tokens": 10, "env_tokens": 1, "cached_tokens": 5, "sampled_tokens": 4, "judge_tokens": 2}
            found["used"] = {name: count * done for name, count in counts.items()}
            if found["done"] == found["total"]:
                found |= {"state": "done", "result": made_up(self.orders[name])}
        return httpx.Response(200, json=found)

    def cancel(self, request: httpx.Request, name: str) -> httpx.Response:
        if name not in self.known:
            return _refused(404, "no such probe")
        self.known[name]["state"] = "cancelled"
        return httpx.Response(200, json=self.known[name])


def made_up(order: ProbeOrder) -> dict[str, Any]:
    """A forecast of rows that are right half of the time."""
    chance, group = random.Random(7), order.spec.rollout.group_size
    rows = [
        RowProbe(
            row=number,
            prompt_tokens=chance.randrange(6, 14),
            rewards=tuple(float(chance.random() < rate) for _ in range(group)),
            lengths=tuple(chance.randrange(2, 7) for _ in range(group)),
            truncated=chance.randrange(2),
        )
        for number in range(order.sampled_rows)
        for rate in [chance.betavariate(1, 1)]
    ]
    pace = StepPace(train_seconds_per_token=1e-4, commit_seconds=0.02, wait_seconds=0.1)
    shown = [{"row": row.row, "text": "42 <b>", "reward": row.rewards[0], "invalid": None, "finish_reason": "stop"} for row in rows[:8]]
    return {**forecast(order.spec, rows, Took(seconds=2.0, longest_seconds=0.3), pace), "examples": shown}


def _refused(status: int, message: str, problems: Any = ()) -> httpx.Response:
    listed = [{"field": field, "message": text} for field, text in problems]
    return httpx.Response(status, json={"error": {"message": message, "type": "x", "param": None, "code": "x", "problems": listed}})
