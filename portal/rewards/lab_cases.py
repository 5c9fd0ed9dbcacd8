"""A trial's cases, read and fixed when it begins: ``{"text", "item", "row", "tool_calls"}`` each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from portal.datasets.models import Dataset
from portal.datasets.preview import offset_of, store_of
from portal.errors import Invalid
from portal.rewards.trial import OnRows, OnText, Trial
from tenants.models import Tenant

# One request to the engine has to hold the grader and at least one case.
MAX_CASE_BYTES = 300_000
MAX_ALL_BYTES = 16 << 20
_MAX_LOOKS = 20_000
_decode = msgspec.json.Decoder().decode


def cases_of(tenant: Tenant, trial: Trial) -> list[dict[str, Any]]:
    """Raises ``Invalid`` naming the field. The corpus's cases are the engine's: none here."""
    if isinstance(trial.on, OnText):
        found = [{"text": sample.output_text, "item": sample.item, "tool_calls": sample.tool_calls} for sample in trial.on.samples]
        return _fitting(found, "on.samples")
    return _fitting(_of_rows(tenant, trial.on), "on.count") if isinstance(trial.on, OnRows) else []


def size_of(case: dict[str, Any]) -> int:
    """Bytes on the wire."""
    return len(json.dumps(case, ensure_ascii=False, separators=(",", ":")).encode())


def _fitting(cases: list[dict[str, Any]], field: str) -> list[dict[str, Any]]:
    total = 0
    for number, case in enumerate(cases):
        size = size_of(case)
        total += size
        if size > MAX_CASE_BYTES:
            where = f"row {case['row']}" if "row" in case else f"number {number + 1}"
            raise Invalid([(field, f"{where} and its completion have {size:,} bytes; the Lab takes at most {MAX_CASE_BYTES:,} a case")])
    if total > MAX_ALL_BYTES:
        raise Invalid([(field, f"these cases have {total:,} bytes together, more than {MAX_ALL_BYTES:,}; choose fewer")])
    return cases


def _of_rows(tenant: Tenant, on: OnRows) -> list[dict[str, Any]]:
    dataset = tenant.datasets.filter(public_id=on.dataset).first()
    if dataset is None:
        raise Invalid([("on.dataset", f"there is no dataset {on.dataset[:40]!a}")])
    if dataset.blob(on.split) is None:
        raise Invalid([("on.split", "this dataset has no held-out rows")])
    return [_case(line, on) for line in rows_of(dataset, on)]


def _case(line: dict[str, Any], on: OnRows) -> dict[str, Any]:
    if on.column is None:
        return {"row": line["row"], "text": on.output_text, "item": line["item"]}
    if on.column not in line["item"]:
        known = ", ".join(list(line["item"])[:20])
        raise Invalid([("on.column", f"row {line['row']} has no column {on.column}; it has {known}")])
    value = line["item"][on.column]
    return {"row": line["row"], "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), "item": line["item"]}


def rows_of(dataset: Dataset, on: OnRows) -> list[dict[str, Any]]:
    """The chosen rows as they are stored, by their numbers. Raises ``Invalid`` for numbers that the split does not have."""
    blob = dataset.blob(on.split)
    with store_of().open(blob) as file:
        if on.pick == "first":
            return [_decode(line) for _, line in zip(range(on.count), file, strict=False)]
        wanted = _numbers(dataset, on)
        found = {line["row"]: line for line in _taken(_looked_up(file, blob.bytes, wanted), on)}
    if on.pick == "numbers" and (missing := [number for number in on.numbers if number not in found]):
        split = "training" if on.split == "train" else "held-out"
        raise Invalid([("on.numbers", f"row {missing[0]} is none of the {split} rows")])
    return [found[number] for number in sorted(found)]


def _numbers(dataset: Dataset, on: OnRows) -> Iterable[int]:
    """Row numbers to look up: those asked for, or all in an order that the seed gives. A split has only some of them."""
    if on.pick == "numbers":
        return on.numbers
    return random.Random(on.seed).sample(range(dataset.rows), min(dataset.rows, _MAX_LOOKS))


def _looked_up(file: Any, size: int, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
    for number in numbers:
        file.seek(offset_of(file, size, number))
        line = file.readline()
        if line and (row := _decode(line))["row"] == number:
            yield row


def _taken(rows: Iterator[dict[str, Any]], on: OnRows) -> Iterator[dict[str, Any]]:
    if on.pick == "numbers":
        return rows
    return (row for _, row in zip(range(on.count), rows, strict=False))
